"""One damaged task hides no other: it is named, and the others are listed and resumed."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import ExecutionState, HoldfastWarning, sync
from manager.tasks import APPROVAL, config, state_of

DAMAGES = {"head": "digest = x''", "row": "digest <> x''"}


def damage(path: Path, task: str, what: str) -> None:
    """Damage the head, or the first row, of a task's thread."""
    with closing(sqlite3.connect(path)) as connection, connection:
        thread = b"\x00" + f"shop/ana/chat-1/{task}".encode()
        ((number,),) = connection.execute("SELECT number FROM threads WHERE thread = ?", (thread,))
        mine = f"id >> 28 = {number} AND {DAMAGES[what]}"
        sql = f"UPDATE rows SET header = x'c1' WHERE id = (SELECT min(id) FROM rows WHERE {mine})"
        assert connection.execute(sql).rowcount == 1


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("task", ["waits", "works"])
def test_a_damaged_task_is_named_and_hides_no_other(
    task: str, what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, damaged = tmp_path / "tasks.db", f"shop/ana/chat-1/{task}"
    with sync.open(str(path)) as store:
        manager = sync.CheckpointManager(config(), store)
        for name in ("waits", "waits too"):
            manager.hooks.tool_approval_required(state_of(name), APPROVAL)
        for name in ("works", "works too"):
            manager.save(state_of(name))
        manager.add_event("shop", "ana", "chat-1", sync.Event("user", "hi"))
    damage(path, task, what)
    with sync.open(str(path)) as store:
        manager = sync.CheckpointManager(config(), store)
        manager.on_resume(lambda state, user_input: None)
        left = sorted({"waits", "waits too", "works", "works too"} - {task})
        for user in ("ana", None):
            with pytest.warns(HoldfastWarning, match=rf"some pending tasks cannot be read .*: {damaged}"):
                assert sorted(state.task_id for state in manager.pending("shop", user)) == left
        assert manager.pending("shop", "bob") == []
        stats = manager.stats("shop")
        assert (stats.total, stats.damaged) == (3, 1)
        report = manager.recover("shop")
        assert report.damaged == (damaged,)
        assert (len(report.resumed) + len(report.waiting), report.failed) == (3, ())
        assert "Traceback" not in caplog.text


@pytest.mark.parametrize("what", DAMAGES)
def test_requests_of_other_threads_are_listed_though_one_thread_is_damaged(what: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    with sync.open(str(path)) as store:
        manager = sync.CheckpointManager(config(), store)
        for name in ("1", "2"):
            manager.hooks.tool_approval_required(state_of(name), APPROVAL)
    damage(path, "1", what)
    with sync.open(str(path)) as store:
        for status in ("open", None):
            with pytest.warns(HoldfastWarning, match=r"not all requests are listed: thread 'shop/ana/chat-1/1'"):
                (request,) = store.requests(status=status)
            assert request.thread_id == "shop/ana/chat-1/2"


def test_a_failed_task_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def callback(state: ExecutionState, user_input: str) -> None:
        raise ValueError("cannot")

    with sync.MemoryStore() as store, caplog.at_level(logging.INFO):
        manager = sync.CheckpointManager(config(), store)
        manager.on_resume(callback)
        manager.save(state_of())
        assert len(manager.recover("shop").failed) == 1
    (line,) = [record for record in caplog.records if "recovery of task" in record.getMessage()]
    assert line.getMessage() == "recovery of task 'shop/ana/chat-1/task-1' failed: ValueError: cannot"
    assert line.exc_info is None
