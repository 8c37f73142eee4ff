"""`pending` of one user reads that user's threads only, however many others there are: counted, not timed."""

from pathlib import Path

import pytest

from holdfast import CheckpointConfig, sync
from holdfast.testing.faults import FaultyBackend
from holdfast.testing.handles import blocking_store
from kinds import new_place
from manager.tasks import state_of


def calls_of_pending(kind: str, directory: Path, others: int) -> list[str]:
    """The backend calls of one listing of ana's three tasks among those of so many others."""
    backend = FaultyBackend(new_place(kind, directory).open())
    with blocking_store(backend) as store:
        manager = sync.CheckpointManager(CheckpointConfig(enabled=True), store)
        for number in range(others):
            labels = {"app": "shop", "user": f"user-{number}", "session": "chat-1", "task": "t"}
            thread_id = manager.thread_id("shop", f"user-{number}", "chat-1", "t")
            store.save(thread_id, {}, labels=labels, status="working")
        for task in ("1", "2", "3"):
            manager.save(state_of(task))
        backend.calls.clear()
        found = manager.pending("shop", "ana")
        assert sorted(state.task_id for state in found) == ["1", "2", "3"]
        return list(backend.calls)


again, slow = pytest.mark.again, pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "many"),
    [
        ("memory", 500),
        pytest.param("memory", 20_000, marks=slow),
        pytest.param("sqlite", 500, marks=again),
        pytest.param("sqlite", 20_000, marks=slow),
        pytest.param("file", 200, marks=again),
        pytest.param("objects", 200, marks=again),
    ],
)
def test_pending_of_a_user_reads_that_users_threads_only(kind: str, many: int, tmp_path: Path) -> None:
    few = calls_of_pending(kind, tmp_path, 1)
    assert calls_of_pending(kind, tmp_path, many) == few
    assert few.count("threads") == 1
    assert len(few) <= 1 + 3 * 4
