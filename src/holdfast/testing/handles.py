"""Blocking stores over a backend that a test owns."""

from holdfast import sync
from holdfast.codec.keys import KeyRing
from holdfast.ports import BlockingPorts, Ports
from holdfast.records.retention import Retention
from holdfast.records.words import KeepInputs
from holdfast.runs.store import Store
from holdfast.stores.backend import Backend


def blocking_store(
    backend: Backend,
    *,
    ports: Ports | None = None,
    keys: KeyRing | bytes | None = None,
    compress: bool = True,
    retention: Retention | None = None,
    namespace: str = "",
    inputs: KeepInputs = "preview",
    closes: bool = True,
) -> sync.Store:
    """Return a store with the given (blocking) ports; with `closes=False`, closing it leaves the backend open."""
    awaitable = Store(
        backend,
        ports=ports or BlockingPorts(),
        keys=keys,
        compress=compress,
        retention=retention,
        namespace=namespace,
        inputs=inputs,
        on_close=None if closes else _leave_open,
    )
    store = sync.Store.__new__(sync.Store)
    store._store = awaitable  # noqa: SLF001  as holdfast.sync does: users cannot choose the ports
    return store


def _leave_open() -> None:
    """Do nothing: the test closes the backend."""
