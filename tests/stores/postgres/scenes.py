"""PostgreSQL stores for tests: on the server of this process, each in a schema of its own."""

from holdfast import sync
from holdfast.records.words import Durability
from holdfast.stores.postgres import PostgresBackend
from servers.postgres import new_schema, shared_server

NOT_WAITING = "-c synchronous_commit=off"
"""`process` survives all that a test does to a client, and costs no fsync."""


def backend_in(schema: str) -> PostgresBackend:
    """A backend in a schema, at the level `process`."""
    return PostgresBackend(shared_server().conninfo(options=NOT_WAITING), Durability.PROCESS, schema=schema)


class SchemaPlace:
    """A place for the model: a schema that outlives the backends over it."""

    def __init__(self) -> None:
        self._schema = new_schema()

    def open(self) -> PostgresBackend:
        """Another backend on the same schema."""
        return backend_in(self._schema)

    def crashed(self) -> "SchemaPlace":
        """Itself: what the server has committed is there, whatever becomes of its clients."""
        return self


def store_in(schema: str) -> sync.Store:
    """A blocking store that waits for the disk."""
    return sync.PostgresStore(shared_server().conninfo(), schema=schema)
