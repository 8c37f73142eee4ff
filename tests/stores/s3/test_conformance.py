"""S3 keeps every promise of the interface, and every store over it every promise of the API.

On SeaweedFS all of them: those of the API by way of a sample in an ordinary run. On moto those about writing.
"""

import pytest

from holdfast.stores.backend import Backend
from holdfast.testing.conformance import BackendConformance, Kit, StoreConformance
from holdfast.testing.conformance.drops import Drops
from holdfast.testing.conformance.posts import Posts
from holdfast.testing.conformance.store_privacy import Living
from holdfast.testing.conformance.store_saving import Expecting, Saving
from holdfast.testing.conformance.swaps import Heads, Swaps
from servers.s3 import MotoServer, S3Server, SeaweedServer, new_prefix, shared
from stores.s3.scenes import backend_at


class InS3(Kit):
    server: type[S3Server] = SeaweedServer

    def setup_method(self) -> None:
        super().setup_method()
        self.prefixes: dict[Backend, str] = {}

    def _made(self, prefix: str) -> Backend:
        backend = backend_at(prefix, shared(self.server))
        self.prefixes[backend] = prefix
        return backend

    def backend(self) -> Backend:
        return self._made(new_prefix())

    def reopen(self, backend: Backend) -> Backend:
        return self._made(self.prefixes[backend])


class TestS3Backend(InS3, BackendConformance):
    rounds = 3


@pytest.mark.slow
class TestMotoBackend(InS3, Heads, Swaps, Drops, Posts):
    server = MotoServer


class TestS3Store(InS3, Saving, Expecting, Living):
    """Some promises; all of them over objects in memory in an ordinary run."""


@pytest.mark.slow
class TestWholeS3Store(InS3, StoreConformance): ...


@pytest.mark.slow
class TestAwaitableS3Store(InS3, StoreConformance):
    awaitable = True
