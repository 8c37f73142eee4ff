"""Fixtures for all tests."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite(  # before their first import, hence the order; the package holds pytest's own plugin
    "holdfast.testing.conformance", "harness.model_driver", "holdfast.testing.exact", "harness.thread_model"
)

from holdfast import sync  # noqa: E402
from holdfast.runs import ledger  # noqa: E402
from kinds import EVERY_KIND, ON_DISK, ON_SERVERS, open_store, parameters  # noqa: E402

SERVER_STORES = tuple(f"tests/stores/{kind}/" for kind in ON_SERVERS)

settings.register_profile(
    "repeatable",
    max_examples=int(os.environ.get("HOLDFAST_EXAMPLES", "30")),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Say what our marks mean, and collect no garbage while the tests are collected."""
    gc.disable()
    config.addinivalue_line("markers", "faults: crashes and damage, repeated HOLDFAST_ROUNDS times")
    config.addinivalue_line("markers", "slow: repeats at length what a quicker test proves; only in make faults")
    config.addinivalue_line(
        "markers", "again: repeats a test in another world, store or value of a kind; not in test-quick"
    )
    config.addinivalue_line("markers", "processes: starts many processes, one after the other; not in test-quick")
    config.addinivalue_line("markers", "large: handles many megabytes, or many thousands of values; not in test-quick")
    config.addinivalue_line("markers", "servers: needs a server (a store's, an engine's) or strace; not in test-quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the server stores."""
    for item in items:
        if item.nodeid.startswith(SERVER_STORES):
            item.add_marker(pytest.mark.servers)


def pytest_collection_finish() -> None:
    """Collect garbage from here on, but leave the thousands of collected tests out of each search for it."""
    gc.enable()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_run_of_another_test() -> None:
    """Forget the runs that earlier tests abandoned: a step called outside of a run warns while one is live."""
    ledger._of_this_process.clear()


@pytest.fixture(params=parameters(*ON_DISK, quick={"sqlite"}))
def disk_kind(request: pytest.FixtureRequest) -> str:
    """The kinds of store that keep their threads on disk, one after the other."""
    return str(request.param)


@pytest.fixture(params=parameters(*EVERY_KIND, quick={"memory"}))
def kind(request: pytest.FixtureRequest) -> str:
    """Every embedded kind of store, one after the other."""
    return str(request.param)


@pytest.fixture
def disk_store(disk_kind: str, tmp_path: Path) -> Iterator[sync.Store]:
    """A blocking store on disk, of each kind."""
    with open_store(disk_kind, tmp_path) as store:
        yield store


@pytest.fixture
def memory_store() -> Iterator[sync.Store]:
    """A blocking store in memory."""
    with sync.MemoryStore() as store:
        yield store
