"""Shared by the kits for whole stores: handles on one place, blocking or awaitable, and a state of every type."""

from asyncio import Runner
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec
from uuid import UUID

from holdfast import sync
from holdfast.codec.keys import KeyRing
from holdfast.records.errors import HoldfastError
from holdfast.records.retention import Retention
from holdfast.stores.backend import Backend
from holdfast.testing.clock import Clock
from holdfast.testing.conformance.kit import Kit
from holdfast.testing.conformance.worlds import awaited
from holdfast.testing.handles import blocking_store

P = ParamSpec("P")

EVERYTHING: dict[str, Any] = {
    "none": None,
    "numbers": [0, 1, True, 1.0, False, 0.0, -0.0, 2**64, -(2**100), float("inf"), float("nan"), 1e-320],
    "text": ["", "ünïcode \U0001f600", "nul\0", "lone \ud800 surrogate", "x" * 5000],
    "bytes": bytes(range(256)),
    "containers": [(), (1,), [], {}, set(), frozenset({1}), {1, "1"}, [[[]]], {"a": {"b": {"c": {"d": 1}}}}],
    "keys": {1: "int", "1": "str", None: "none", (1, 2): "tuple", 1.5: "float", b"b": "bytes"},
    "times": [
        datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001  naive on purpose
        datetime(2026, 1, 2, tzinfo=UTC),
        datetime(2026, 1, 2, fold=1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
        date(2024, 2, 29),
        time(23, 59, fold=1),
        timedelta(days=-1, microseconds=1),
    ],
    "others": [Decimal("1.10"), Decimal("-0"), UUID(int=7), Path("a/b")],  # exact, as Decimal keeps its zeros
    "ours": {"__type__": "looks like a tag", "state": ["state"], "": ""},
}
"""A state of every kind of value that needs no registration."""


class StoreKit(Kit):
    """Subclass a kit for stores, give it `backend`; `awaitable = True` tests the awaitable store."""

    awaitable = False
    clock: Clock
    _base: Backend | None
    _handles: list[sync.Store]

    def setup_method(self) -> None:
        """Begin a test."""
        super().setup_method()
        self._base = None
        self._handles = []
        self.clock = Clock()
        self._runner = Runner()
        self._directory = TemporaryDirectory()

    def teardown_method(self) -> None:
        """End a test: close every handle, then the backend beneath them."""
        for store in self._handles:
            store.close()
        self._runner.close()
        self._directory.cleanup()
        super().teardown_method()

    @property
    def base(self) -> Backend:
        """Return the backend of this test, one for all of its handles."""
        if self._base is None:
            self._base = self.opened()
        return self._base

    def store(
        self,
        backend: Backend | None = None,
        *,
        keys: KeyRing | bytes | None = None,
        namespace: str = "",
        retention: Retention | None = None,
    ) -> sync.Store:
        """Return a handle on the test's place, or on another backend; each has its own cache of writers."""
        handle = blocking_store(
            self.base if backend is None else backend,
            ports=self.clock.ports(awaitable=self.awaitable),
            keys=keys,
            namespace=namespace,
            retention=retention,
            closes=False,
        )
        if self.awaitable:
            handle = awaited(handle, self._runner)
        self._handles.append(handle)
        return handle

    @property
    def directory(self) -> Path:
        """Return a directory for files that a test writes."""
        return Path(self._directory.name)


def raises(error: type[HoldfastError], call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> HoldfastError:
    """Return the error that the call must raise."""
    try:
        call(*args, **kwargs)
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was not raised")


def seqs(store: sync.Store, thread_id: str) -> list[int]:
    """Return the seqs that `history` lists, in pages of two."""
    found: list[int] = []
    page: sync.Page[Any] | None = store.history(thread_id, limit=2)
    while page is not None:
        found += [info.seq for info in page]
        page = page.next_page()
    return found
