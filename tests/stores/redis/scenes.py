"""Redis stores for tests: on the server, or the cluster, of this process, each under a prefix of its own."""

from holdfast import sync
from holdfast.records.words import Durability
from holdfast.stores.redis import RedisBackend
from servers.redis import new_prefix, shared_cluster, shared_server

KINDS = ("server", "cluster")


def url_in(kind: str, prefix: str) -> str:
    """What to give to `open`."""
    return shared_server().url(prefix) if kind == "server" else shared_cluster().url(prefix)


def backend_in(kind: str, prefix: str) -> RedisBackend:
    """A backend at the level `process`: it survives all that a test does to a client, and costs no fsync."""
    return RedisBackend(url_in(kind, prefix), Durability.PROCESS)


def store_in(kind: str, prefix: str) -> sync.Store:
    """A blocking store, through the front door."""
    return sync.open(url_in(kind, prefix), durability="process")


class PrefixPlace:
    """A place for the model: a prefix that outlives the backends over it."""

    def __init__(self, kind: str) -> None:
        self._kind, self._prefix = kind, new_prefix()

    def open(self) -> RedisBackend:
        """Another backend on the same prefix."""
        return backend_in(self._kind, self._prefix)

    def crashed(self) -> "PrefixPlace":
        """Itself: what the server has taken is there, whatever becomes of its clients."""
        return self
