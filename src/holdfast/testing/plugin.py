"""Fixtures for pytest, available wherever Holdfast is installed. They load Holdfast only when a test uses one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast import Store, sync


@pytest.fixture
def holdfast_store() -> "Iterator[Store]":
    """Return an empty, awaitable store in memory; it is closed after the test."""
    from asyncio import Runner

    from holdfast.runs.kinds import MemoryStore

    store = MemoryStore()
    yield store
    with Runner() as runner:
        runner.run(store.close())


@pytest.fixture
def holdfast_sync_store() -> "Iterator[sync.Store]":
    """Return an empty, blocking store in memory; it is closed after the test."""
    from holdfast.sync import MemoryStore

    with MemoryStore() as store:
        yield store


@pytest.fixture
def crash_everywhere() -> Any:
    """Return `holdfast.testing.crash_everywhere`."""
    from holdfast.testing.crash import crash_everywhere as everywhere

    return everywhere
