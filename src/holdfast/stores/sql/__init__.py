"""SQL in named, described statements, and numbered migrations; one family of files per database."""

import os
from functools import cache

HERE = os.path.dirname(__file__)
"""A plain directory: importing `importlib.resources` takes longer than opening a store."""


@cache
def statements(database: str) -> dict[str, str]:
    """Return the statements of `<database>.sql`, by name."""
    text = _read(f"{database}.sql")
    found: dict[str, str] = {}
    for block in text.split("-- name: ")[1:]:
        name, _, rest = block.partition("\n")
        lines = [line for line in rest.splitlines() if line and not line.startswith("--")]
        found[name.strip()] = "\n".join(lines)
    return found


@cache
def migrations(database: str) -> list[str]:
    """Return the scripts `<database>_NNN.sql`, in their order: each leads to the schema version NNN."""
    return [_read(name) for name in sorted(os.listdir(HERE)) if name.startswith(f"{database}_")]


def _read(name: str) -> str:
    with open(f"{HERE}/{name}", encoding="utf-8") as file:
        return file.read()
