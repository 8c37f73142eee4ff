"""S3 stores for tests: on the SeaweedFS of this process, each under a prefix of its own."""

from typing import Any

from holdfast import sync
from holdfast.stores.s3 import S3Backend
from servers.s3 import S3Server, SeaweedServer, new_prefix, shared


def seaweed() -> S3Server:
    """The server of this test process."""
    return shared(SeaweedServer)


def backend_at(prefix: str, server: S3Server | None = None, **options: Any) -> S3Backend:
    """A backend under a prefix."""
    return S3Backend((server or seaweed()).url(prefix), **options)


def store_at(prefix: str, **options: Any) -> sync.Store:
    """A blocking store under a prefix."""
    return sync.S3Store(seaweed().url(prefix), **options)


class PrefixPlace:
    """A place for the model: a prefix that outlives the backends over it."""

    def __init__(self) -> None:
        self._prefix = new_prefix()

    def open(self) -> S3Backend:
        """Another backend under the same prefix."""
        return backend_at(self._prefix)

    def crashed(self) -> "PrefixPlace":
        """Itself: what was put is there, whatever becomes of its clients."""
        return self
