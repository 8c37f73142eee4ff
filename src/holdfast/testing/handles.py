"""Blocking stores over a backend that a test holds on to: closing the store leaves the backend open, if asked to."""

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
    """A store that goes by the given (blocking) ports; with `closes=False` its end is not the backend's."""
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
    store._store = awaitable  # noqa: SLF001  as holdfast.sync does: the ports are not for users to choose
    return store


def _leave_open() -> None:
    """The backend belongs to somebody else."""
