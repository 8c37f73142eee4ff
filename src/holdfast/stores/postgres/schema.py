"""The schema of a store: its name, and the numbered migrations that create it."""

from collections.abc import Sequence
from hashlib import sha256
from secrets import token_bytes
from typing import Any

from psycopg import errors

from holdfast.records.errors import ConfigurationError, IncompatibleCheckpoint, StoreUnavailable
from holdfast.records.head import Head
from holdfast.stores.agenda import OPEN, entry_of
from holdfast.stores.backend import readable_head
from holdfast.stores.postgres.connections import Connection
from holdfast.stores.postgres.listing import listing_query
from holdfast.stores.postgres.statements import raw_cursor
from holdfast.stores.postgres.swapping import entry_columns, key_of
from holdfast.stores.sql import migrations, statements

MAX_NAME_BYTES = 63
AGENDA_FROM = 3
"""The first version with a table for the agenda."""
PAGE = 500


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
    if version < len(migrations("postgres")):
        try:
            store = _migrated(connection, schema, sql)
        except errors.InsufficientPrivilege as error:
            raise StoreUnavailable(_no_rights(schema, version, error)) from error
    _refuse_newer(schema, version)
    return store


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
        f"schema {schema!r} {found}, this Holdfast needs version {len(migrations('postgres'))}, and this role may not"
        f" change it ({error.diag.message_primary}): open the store once as the role that owns the schema"
    )


def _refuse_newer(schema: str, version: int) -> None:
    if version > len(migrations("postgres")):
        raise IncompatibleCheckpoint(
            f"schema {schema!r} was written by a newer Holdfast (version {version}, here it is"
            f" {len(migrations('postgres'))}): upgrade holdfast"
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
        for script in migrations("postgres")[version:]:
            connection.execute(script.replace("{schema}", name).encode(), prepare=False)
        if version < AGENDA_FROM:
            _fill_agenda(connection, sql)
        _execute(connection, sql["update_version"], (max(version, len(migrations("postgres"))),))
    return bytes(store)


def _fill_agenda(connection: Connection, sql: dict[str, str]) -> None:
    """Make the entries of threads that had a place before the agenda was a table."""
    page, cursor = [], None
    while cursor is None or page:
        query, parameters = listing_query(sql["read_threads"], b"", OPEN, (), cursor, PAGE)
        page = _execute(connection, query, parameters)
        heads = [(thread, readable_head(thread, encoded) or Head()) for _, _, thread, encoded, *_ in page]
        entries = entry_columns([(thread, entry_of(head)) for thread, head in heads])
        _execute(connection, sql["move"], ([key_of(thread) for thread, _ in heads], *entries))
        cursor = str(page[-1][0]) if page else ""


def _execute(connection: Connection, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
    cursor = raw_cursor(connection, parameters)
    cursor.execute(sql, parameters, prepare=False, binary=True)
    return cursor.fetchall() if cursor.description else []
