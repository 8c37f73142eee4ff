"""Fixtures for pytest, known to it wherever Holdfast is installed.

Nothing of Holdfast is loaded before a test asks for one of them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast import Store, sync


@pytest.fixture
def holdfast_store() -> "Iterator[Store]":
    """An empty store in memory, awaitable; closed after the test."""
    from asyncio import Runner

    from holdfast.runs.kinds import MemoryStore

    store = MemoryStore()
    yield store
    with Runner() as runner:
        runner.run(store.close())


@pytest.fixture
def holdfast_sync_store() -> "Iterator[sync.Store]":
    """An empty store in memory, blocking; closed after the test."""
    from holdfast.sync import MemoryStore

    with MemoryStore() as store:
        yield store


@pytest.fixture
def crash_everywhere() -> Any:
    """`holdfast.testing.crash_everywhere`."""
    from holdfast.testing.crash import crash_everywhere as everywhere

    return everywhere
