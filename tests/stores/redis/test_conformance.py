"""Redis, and Redis Cluster, keep every promise of the interface, and every store over them every promise of the API."""

import pytest

from holdfast.stores.backend import Backend
from holdfast.testing.conformance import BackendConformance, Kit, StoreConformance
from servers.redis import new_prefix
from stores.redis.scenes import backend_in


class InRedis(Kit):
    place = "server"

    def setup_method(self) -> None:
        super().setup_method()
        self.prefixes: dict[Backend, str] = {}

    def _made(self, prefix: str) -> Backend:
        backend = backend_in(self.place, prefix)
        self.prefixes[backend] = prefix
        return backend

    def backend(self) -> Backend:
        return self._made(new_prefix())

    def reopen(self, backend: Backend) -> Backend:
        return self._made(self.prefixes[backend])


class InRedisCluster(InRedis):
    place = "cluster"


class TestRedisBackend(InRedis, BackendConformance): ...


@pytest.mark.slow
class TestRedisClusterBackend(InRedisCluster, BackendConformance): ...


class TestRedisStore(InRedis, StoreConformance): ...


@pytest.mark.slow
class TestRedisClusterStore(InRedisCluster, StoreConformance): ...


@pytest.mark.slow
class TestAwaitableRedisStore(InRedis, StoreConformance):
    awaitable = True


@pytest.mark.slow
class TestAwaitableRedisClusterStore(InRedisCluster, StoreConformance):
    awaitable = True
