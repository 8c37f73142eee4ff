"""The tests that every store of Holdfast passes, and that your own stores should pass.

    from holdfast.testing.conformance import BackendConformance

    class TestMyBackend(BackendConformance):          # collected by pytest: one test for each promise
        def backend(self):
            return MyBackend(new_empty_place())

        def reopen(self, backend):                    # if anything survives a close
            return MyBackend(backend.place)

`StoreConformance` tests a whole store over such a backend. Without pytest, call `check(make)` and `check_store(make)`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.stores.backend import Backend
from holdfast.testing.conformance.agendas import Agendas
from holdfast.testing.conformance.drops import Drops
from holdfast.testing.conformance.keys import Keys
from holdfast.testing.conformance.kit import Kit, promises, run
from holdfast.testing.conformance.leases import Leases
from holdfast.testing.conformance.listings import Listings
from holdfast.testing.conformance.lives import Lives
from holdfast.testing.conformance.posts import Posts
from holdfast.testing.conformance.races import Races
from holdfast.testing.conformance.reads import Indexes, Rows
from holdfast.testing.conformance.store_hostility import Forgery, Hostility
from holdfast.testing.conformance.store_privacy import Encryption, Isolation, Living
from holdfast.testing.conformance.store_reading import Histories, Reading, Threads
from holdfast.testing.conformance.store_saving import Appending, Expecting, Saving
from holdfast.testing.conformance.store_travel import Forking, Moving
from holdfast.testing.conformance.store_upkeep import Deleting, Pruning
from holdfast.testing.conformance.swaps import Heads, Swaps

B = TypeVar("B", bound=Backend)


class BackendConformance(Heads, Swaps, Drops, Rows, Indexes, Listings, Posts, Lives, Keys, Races, Leases, Agendas):
    """Test every promise of `Backend`, the leases that are built on it, and its agenda."""


class StoreConformance(
    Saving,
    Expecting,
    Appending,
    Reading,
    Histories,
    Threads,
    Deleting,
    Pruning,
    Forking,
    Moving,
    Isolation,
    Encryption,
    Forgery,
    Hostility,
    Living,
):
    """Test every promise of `Store` over a backend; with `awaitable = True`, of the awaitable store."""


def check(make: Callable[[], B], reopen: Callable[[B], B] | None = None) -> int:
    """Test every promise of a backend without pytest, and return their number; AssertionError names a broken one.

    `make` returns a new backend on a new, empty place each time; `reopen` returns another one on the place of the given
    one. Without `reopen`, tests that need two are left out.
    """
    methods: dict[str, Any] = {"backend": lambda _: make()}
    if reopen is not None:
        methods["reopen"] = lambda _, backend: reopen(backend)
    return run(type("Given", (BackendConformance,), methods))


def check_store(
    make: Callable[[], B], *, awaitable: bool = False, damage: Callable[[B, bytes], None] | None = None
) -> int:
    """Test every promise of a store over such backends, as `check` does.

    `damage(backend, key)` damages the stored head of the thread with that key, beneath the backend. Without it, tests
    that need it are left out.
    """
    methods: dict[str, Any] = {"backend": lambda _: make(), "awaitable": awaitable}
    if damage is not None:
        methods["damage"] = lambda _, backend, thread: damage(backend, thread)
    return run(type("Given", (StoreConformance,), methods))


__all__ = ["BackendConformance", "Kit", "StoreConformance", "check", "check_store", "promises", "run"]
