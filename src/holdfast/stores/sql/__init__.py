"""SQL in named, described statements, and numbered migrations; one family of files per database."""

from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
"""Plain files, not `importlib.resources`: loading that takes longer than opening a store."""


@cache
def statements(database: str) -> dict[str, str]:
    """The statements of `<database>.sql`, by name."""
    text = (HERE / f"{database}.sql").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for block in text.split("-- name: ")[1:]:
        name, _, rest = block.partition("\n")
        lines = [line for line in rest.splitlines() if line and not line.startswith("--")]
        found[name.strip()] = "\n".join(lines)
    return found


@cache
def migrations(database: str) -> list[str]:
    """The scripts `<database>_NNN.sql`, in their order: the n-th leads to schema version n."""
    return [path.read_text(encoding="utf-8") for path in sorted(HERE.glob(f"{database}_*.sql"))]
