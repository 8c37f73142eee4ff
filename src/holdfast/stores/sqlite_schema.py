"""Compare the schema of a SQLite file with the one that Holdfast creates.

A file from elsewhere can have a view in place of a table, or triggers that run with every write.
"""

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from holdfast.records.errors import Corrupt

FIRST = 6
"""The version of the first schema: the versions before it were never released."""
Schema: TypeAlias = dict[str, tuple[str, str, str]]
"""Maps a name to the object's type, its table, and the SQL of a view or trigger, or the columns of a table."""

READ = """
SELECT name, CASE WHEN type = 'table' AND rootpage = 0 THEN 'virtual table' ELSE type END, tbl_name,
       CASE WHEN type IN ('view', 'trigger') THEN sql
            WHEN type = 'table' AND rootpage > 0
            THEN (SELECT group_concat(lower(columns.name)) FROM pragma_table_info(sqlite_master.name) AS columns)
            ELSE '' END
  FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
"""


def check_schema(connection: sqlite3.Connection, scripts: Sequence[str], path: str) -> None:
    """Refuse a file whose tables, views and triggers differ from those that these scripts create."""
    _compare(_read(connection), _made_by(tuple(scripts)), path)


def check_kinds(connection: sqlite3.Connection, scripts: Sequence[str], version: int, path: str) -> None:
    """Refuse a file that does not match the version it names, before a migration runs code stored in it.

    An object has another type, an extra trigger exists, or an object belongs to a later version.
    """
    if version and version < FIRST:
        raise Corrupt(
            f"{path} claims schema {version}, which no released Holdfast created; restore a backup", record="sqlite"
        )
    found, wanted = _read(connection), _made_by(tuple(scripts[: max(0, version - FIRST + 1)]))
    _compare(_without_sql(found), _without_sql(wanted), path)
    later = sorted(found.keys() & (_made_by(tuple(scripts)).keys() - wanted.keys()))
    if later:
        raise Corrupt(
            f"{path} claims schema {version}, but {later[0]!r} belongs to a later one; restore a backup",
            record="sqlite",
        )


def _without_sql(schema: Schema) -> Schema:
    return {name: (kind, table, "") for name, (kind, table, _) in schema.items()}


def _compare(found: Schema, wanted: Schema, path: str) -> None:
    wrong = [name for name, made in wanted.items() if found.get(name) != made]
    wrong += [name for name, (kind, *_) in found.items() if kind == "trigger" and name not in wanted]
    if wrong:
        fault = _fault(found.get(wrong[0]), wanted.get(wrong[0]))
        raise Corrupt(f"the schema of {path} was changed: {wrong[0]!r} is {fault}; restore a backup", record="sqlite")


def _fault(found: tuple[str, str, str] | None, wanted: tuple[str, str, str] | None) -> str:
    if found is None:
        return "missing"
    kind = found[0]
    return f"an altered {kind}" if wanted is not None and wanted[0] == kind else f"a {kind}"


def _read(connection: sqlite3.Connection) -> Schema:
    return {name: (kind, table, sql) for name, kind, table, sql in connection.execute(READ)}


@lru_cache(8)
def _made_by(scripts: tuple[str, ...]) -> Schema:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for script in scripts:
            connection.executescript(script)
        return _read(connection)
    finally:
        connection.close()
