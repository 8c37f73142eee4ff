"""PostgreSQL keeps every promise of the interface, and every store over it every promise of the API.

Those of the API by way of a sample in an ordinary run: Redis keeps all of them then.
"""

import pytest

from holdfast.stores.backend import Backend
from holdfast.testing.conformance import BackendConformance, Kit, StoreConformance
from holdfast.testing.conformance.store_privacy import Living
from holdfast.testing.conformance.store_saving import Appending, Expecting, Saving
from servers.postgres import new_schema
from stores.postgres.scenes import backend_in


class InPostgres(Kit):
    def setup_method(self) -> None:
        super().setup_method()
        self.schemas: dict[Backend, str] = {}

    def _made(self, schema: str) -> Backend:
        backend = backend_in(schema)
        self.schemas[backend] = schema
        return backend

    def backend(self) -> Backend:
        return self._made(new_schema())

    def reopen(self, backend: Backend) -> Backend:
        return self._made(self.schemas[backend])


class TestPostgresBackend(InPostgres, BackendConformance): ...


class TestPostgresStore(InPostgres, Saving, Expecting, Appending, Living): ...


@pytest.mark.slow
class TestWholePostgresStore(InPostgres, StoreConformance): ...


@pytest.mark.slow
class TestAwaitablePostgresStore(InPostgres, StoreConformance):
    awaitable = True
