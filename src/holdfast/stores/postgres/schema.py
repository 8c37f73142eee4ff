"""The schema of a store: its name, and the numbered migrations that create it."""

from collections.abc import Sequence
from hashlib import sha256
from secrets import token_bytes
from typing import Any

from psycopg import errors

from holdfast.records.errors import ConfigurationError, IncompatibleCheckpoint, StoreUnavailable
from holdfast.stores.postgres.connections import Connection
from holdfast.stores.postgres.statements import raw_cursor
from holdfast.stores.sql import migrations, statements

MAX_NAME_BYTES = 63
FIRST = 4
"""The version of the first schema: the versions before it were never released."""


def quoted(schema: str) -> str:
    """Return the schema's name quoted for SQL; refuse a name that our scripts cannot contain."""
    if not 0 < len(schema.encode("utf-8", "replace")) <= MAX_NAME_BYTES:
        raise ConfigurationError(f"`schema` must be a name of 1 to {MAX_NAME_BYTES} bytes, got {schema!r}")
    if any(character in schema for character in "\0$") or not schema.isprintable():
        raise ConfigurationError(f"`schema` must be a name of printable characters without $, got {schema!r}")
    return '"' + schema.replace('"', '""') + '"'


def statements_in(schema: str) -> dict[str, str]:
    """Return the named statements, for this schema."""
    name = quoted(schema)
    return {each: text.replace("{schema}", name) for each, text in statements("postgres").items()}


def migrate(connection: Connection, schema: str) -> bytes:
    """Create or update the schema, one process at a time; return the store's id. May be repeated."""
    sql = statements_in(schema)
    version, store = _version(connection, sql)
    _refuse_others(schema, version)
    if version < _last():
        try:
            store = _migrated(connection, schema, sql)
        except errors.InsufficientPrivilege as error:
            raise StoreUnavailable(_no_rights(schema, version, error)) from error
    return store


def _last() -> int:
    """Return the version of the schema that this Holdfast makes."""
    return FIRST + len(migrations("postgres")) - 1


def is_created(connection: Connection, schema: str) -> bool:
    """True if the schema has a store, of any version."""
    return _version(connection, statements_in(schema))[0] > 0


def _version(connection: Connection, sql: dict[str, str]) -> tuple[int, bytes]:
    try:
        found = _execute(connection, sql["read_version"])
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return 0, b""
    return (found[0][0], found[0][1]) if found else (0, b"")


def _no_rights(schema: str, version: int, error: errors.InsufficientPrivilege) -> str:
    found = f"has version {version}" if version else "does not exist yet"
    return (
        f"schema {schema!r} {found}, this Holdfast needs version {_last()}, and this role may not"
        f" change it ({error.diag.message_primary}): open the store once as the role that owns the schema"
    )


def _refuse_others(schema: str, version: int) -> None:
    if version > _last():
        raise IncompatibleCheckpoint(
            f"schema {schema!r} was written by a newer Holdfast (version {version}, here it is {_last()}): upgrade"
            " holdfast"
        )
    if 0 < version < FIRST:
        raise IncompatibleCheckpoint(
            f"schema {schema!r} has version {version}, which no released Holdfast created; use another schema"
        )


def _migrated(connection: Connection, schema: str, sql: dict[str, str]) -> bytes:
    """Run all steps in one transaction, under a lock for this schema: a second process finds them done."""
    name, lock = quoted(schema), int.from_bytes(sha256(f"holdfast {schema}".encode()).digest()[:8], "big", signed=True)
    with connection.transaction():
        _execute(connection, sql["set_search_path"])
        _execute(connection, sql["lock"], (lock,))
        if not _execute(connection, sql["has_schema"], (name,))[0][0]:
            _execute(connection, sql["create_schema"])
        _execute(connection, sql["create_store"])
        found = _execute(connection, sql["read_version"])
        if not found:
            _execute(connection, sql["insert_version"], (token_bytes(16),))
            found = _execute(connection, sql["read_version"])
        version, store = found[0]
        for script in migrations("postgres")[max(0, version - FIRST + 1) :]:
            connection.execute(script.replace("{schema}", name).encode(), prepare=False)
        _execute(connection, sql["update_version"], (max(version, _last()),))
    return bytes(store)


def _execute(connection: Connection, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
    cursor = raw_cursor(connection, parameters)
    cursor.execute(sql, parameters, prepare=False, binary=True)
    return cursor.fetchall() if cursor.description else []
