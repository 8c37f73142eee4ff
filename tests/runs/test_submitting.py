"""Submitting work, and waiting for it, in both worlds: one durable write, one thread per id, one outcome."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.codec.keys import KeyRing
from holdfast.records.head import decode_head
from holdfast.runs.submitting import Service
from holdfast.stores.agenda import entry_of
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.clock import Clock

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with sync.open(tmp_path / "holdfast.db") as opened:
        yield opened


def double(store: Any, name: str = "double", **options: Any) -> Any:
    @sync.durable(store=store, name=name, **options)
    def double(number: int, plus: int = 0) -> int:
        calls.append(number)
        return 2 * number + plus

    return double


def head_of(store: Any, thread_id: str) -> Any:
    thread = store._store._reader.key(thread_id)
    return decode_head(thread, store._store._backend.heads([thread])[0])


def test_a_submitted_thread_is_queued_and_nothing_runs(store: Any) -> None:
    handle = double(store, queue="maths", labels={"a": "1"}).submit("t", 4)
    info = store.thread("t")
    assert (handle.thread_id, info.status, info.queue, info.priority) == ("t", "queued", "maths", 0)
    assert (info.function, info.version, info.labels, info.wake_at) == ("double", 0, {"a": "1"}, None)
    assert store.outcome("t").status == "queued"
    assert store.counts() == {"queued": 1}
    assert calls == []


def test_a_submitted_thread_survives_the_process(tmp_path: Path) -> None:
    with sync.open(tmp_path / "holdfast.db") as store:
        double(store, "survives").submit("t", 4)
    with sync.open(tmp_path / "holdfast.db") as store:
        double(store, "survives")
        assert store.recover().completed == ("t",)
        assert store.handle("t").result() == 8


def test_run_runs_a_queued_thread_and_stamps_the_version(store: Any) -> None:
    function = double(store, version=3)
    function.submit("t", 4)
    before = head_of(store, "t")
    assert function.run("t", 4) == 8
    info, after = store.thread("t"), head_of(store, "t")
    assert (info.status, info.version) == ("complete", 3)
    assert before.route != after.route
    assert entry_of(before) is not None
    assert entry_of(after) is None


def test_a_direct_run_has_a_place_too(store: Any) -> None:
    function = double(store, queue="maths")
    assert function.run("t", 4) == 8
    info = store.thread("t")
    assert (info.queue, info.function, info.version) == ("maths", "double", 1)


def test_the_same_call_is_the_same_thread(store: Any) -> None:
    function = double(store)
    for _ in range(3):
        function.submit("t", 4)
        function.submit("t", number=4)
        store.submit("double", "t", (4,))
    assert store.thread("t").row_count == 1
    store.recover()
    function.submit("t", 4)
    assert (calls, store.thread("t").status) == ([4], "complete")
    with pytest.raises(holdfast.KeyReused, match="number was 4, is now 5"):
        function.submit("t", 5)
    with pytest.raises(holdfast.KeyReused, match="runs double, not other"):
        double(store, "other").submit("t", 4)


def test_an_id_that_is_in_use_is_refused(store: Any) -> None:
    store.save("saved", {"a": 1})
    with pytest.raises(holdfast.KeyReused, match="used by something else"):
        double(store).submit("saved", 1)
    store.delete("saved")
    with pytest.raises(holdfast.Deleted):
        double(store).submit("saved", 1)
    store.revive("saved")
    double(store).submit("saved", 1)
    assert store.thread("saved").status == "queued"


def test_many_submits_at_once_make_one_thread(tmp_path: Path) -> None:
    async def main() -> int:
        async with holdfast.open(tmp_path / "holdfast.db") as store:
            handles = await asyncio.gather(*(store.submit("app:f", "t", (1,)) for _ in range(30)))
            assert {handle.thread_id for handle in handles} == {"t"}
            return (await store.thread("t")).row_count

    assert asyncio.run(main()) == 1


def test_options_say_where_and_when(store: Any) -> None:
    function, soon = double(store), datetime.now(UTC) + timedelta(hours=1)
    function.options(queue="slow", priority=-2, labels={"tenant": "acme"}, delay=3600).submit("late", 1)
    function.options(at=soon).submit("at", 2)
    info = store.thread("late")
    assert (info.queue, info.priority, info.labels) == ("slow", -2, {"tenant": "acme"})
    assert info.wake_at is not None
    assert abs(info.wake_at - soon) < timedelta(minutes=5)
    assert store.thread("at").wake_at == soon
    assert store.recover().resumed == ()
    assert function.run("late", 1) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 3},
        {"priority": True},
        {"queue": ""},
        {"queue": "q" * 129},
        {"delay": -1},
        {"at": datetime(2026, 1, 1)},  # noqa: DTZ001  it must be refused
        {"delay": 1, "at": datetime.now(UTC)},
        {"prority": 1},
        {"connection": object()},
    ],
)
def test_wrong_options_are_refused(store: Any, options: dict[str, Any]) -> None:
    with pytest.raises(holdfast.ConfigurationError):
        double(store).options(**options).submit("t", 1)
    with pytest.raises(holdfast.NotFound):
        store.thread("t")


@pytest.mark.parametrize("wrong", [{"version": 0}, {"version": 1, "since": 2}, {"retries": -1}, {"backoff": "x"}])
def test_wrong_terms_of_service_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(holdfast.ConfigurationError):
        Service(**wrong).check()


def test_work_is_submitted_by_name_without_the_code(store: Any) -> None:
    handle = store.submit("by name", "t", (4,), {"plus": 1}, queue="maths", priority=1)
    assert store.recover().skipped == ("t",)
    with pytest.raises(holdfast.KeyReused):
        store.submit("by name", "t", (5,))
    function = double(store, "by name")
    assert function.run("t", 4, 1) == 9
    assert handle.result() == 9


def test_a_delayed_thread_is_run_when_it_is_due() -> None:
    clock = Clock()

    async def main() -> tuple[Any, Any]:
        async with holdfast.Store(MemoryBackend(), ports=clock.ports(awaitable=True)) as store:

            @holdfast.durable(store=store, name="delayed double")
            async def twice(number: int) -> int:
                return 2 * number

            await twice.options(delay=60).submit("t", 4)
            clock.advance(59)
            early = (await store.recover()).resumed
            clock.advance(1)
            return early, (await store.recover()).completed

    assert asyncio.run(main()) == ((), ("t",))


def note(what: str) -> int:
    calls.append(what)
    return 1


# The handle


def test_a_handle_tells_how_a_thread_ended(store: Any) -> None:
    @sync.durable(store=store, name="ends")
    def ends(how: str) -> str:
        if how == "raises":
            raise ValueError("no: money")
        if how == "asks":
            return str(sync.ask("name").value)
        return how

    for how in ("well", "raises", "asks"):
        ends.submit(how, how)
    ends.submit("cancelled", "x")
    store.cancel("cancelled")
    store.recover()
    assert store.handle("well").result(5) == "well"
    assert store.handle("well").wait(5).result == "well"
    with pytest.raises(holdfast.ThreadFailed) as failure:
        store.handle("raises").result()
    assert (failure.value.type, failure.value.message) == ("ValueError", "no: money")
    assert store.handle("raises").wait().status == "failed"
    with pytest.raises(holdfast.RunCancelled):
        store.handle("cancelled").result()
    asked = store.handle("asks").wait()
    assert [request.name for request in asked.requests] == ["name"]
    with pytest.raises(TimeoutError):
        store.handle("asks").result(0.05)
    store.answer(asked.requests[0].id, value="Bo")
    with pytest.raises(TimeoutError):
        store.handle("asks").wait(0.05)
    store.recover()
    assert store.handle("asks").result() == "Bo"
    with pytest.raises(holdfast.NotFound):
        store.handle("nobody").result(1)


def test_a_handle_waits_for_another_thread_of_the_process(store: Any) -> None:
    function = double(store, "waited for")
    handle = function.submit("t", 4)
    worker = threading.Thread(target=store.recover)
    worker.start()
    assert handle.result(30) == 8
    worker.join()


def test_retry_puts_a_failed_thread_back_on_its_queue(store: Any) -> None:
    @sync.durable(store=store, name="fails once")
    def fails_once() -> int:
        first: int = sync.current().step("first", note, "first")
        if calls.count("tried") == 0:
            calls.append("tried")
            raise ValueError("not yet")
        return first

    handle = fails_once.submit("t")
    store.recover()
    assert store.thread("t").status == "failed"
    assert entry_of(head_of(store, "t")) is None
    store.retry("t")
    assert store.thread("t").status == "queued"
    assert entry_of(head_of(store, "t")) is not None
    store.recover()
    assert handle.result() == 1
    assert calls == ["first", "tried"]


# Waiting within a run


def parent_of(store: Any, child: Any, timeout: float | None = None) -> Any:
    @sync.durable(store=store, name="submitting parent")
    def parent() -> Any:
        handle = child.submit("child", 4)
        try:
            return handle.result(timeout)
        except TimeoutError:
            return "late"

    return parent


def test_a_run_that_waits_is_suspended_and_resumes(store: Any) -> None:
    parent = parent_of(store, double(store, "submitted child"))
    with pytest.raises(holdfast.Suspended):
        parent.run("parent")
    info = store.thread("parent")
    assert (info.status, info.lease) == ("working", None)
    assert info.wake_at is not None
    store.recover()
    assert parent.run("parent") == 8
    store.delete("child")
    assert parent.run("parent") == 8, "what it found is recorded"


def test_a_timeout_within_a_run_is_durable(store: Any) -> None:
    child = double(store, "submitted child")
    parent = parent_of(store, child, 0.05)
    with pytest.raises(holdfast.Suspended):
        parent.run("parent")
    threading.Event().wait(0.06)
    assert parent.run("parent") == "late"
    child.run("child", 4)
    assert parent.run("parent") == "late"


# Agents, keys and awaitable code


def test_an_agent_takes_tasks(store: Any) -> None:
    @sync.agent(store=store, name="app:clerk")
    def clerk(task: str) -> str:
        calls.append(task)
        return task.upper()

    handle = clerk.options(priority=1).submit("hello", thread_id="t")
    assert clerk.submit("hello", thread_id="t").thread_id == "t"
    info = store.thread("t")
    assert (info.status, info.priority, info.labels) == ("queued", 1, {"agent": "clerk"})
    with pytest.raises(holdfast.KeyReused):
        clerk.submit("other", thread_id="t")
    assert store.recover(clerk.resume, labels={"agent": "clerk"}).completed == ("t",)
    assert handle.result() == "HELLO"
    assert clerk.run("hello", thread_id="t") == "HELLO"
    assert calls == ["hello"]


def test_under_a_key_the_route_is_secret_and_follows_a_rotation(tmp_path: Path) -> None:
    old, path = KeyRing({"old": b"o" * 32}, "old"), tmp_path / "holdfast.db"
    with sync.open(tmp_path / "plain.db") as store:
        store.submit("app:f", "t", ())
        plain = head_of(store, "t").route
    with sync.open(path, keys=old) as store:
        store.submit("app:f", "t", ())
        first = head_of(store, "t").route
        assert store.thread("t").function == "app:f"
    assert first != plain
    assert b"app:f" not in path.read_bytes()
    with sync.open(path, keys=KeyRing({"old": b"o" * 32, "new": b"n" * 32}, "new")) as store:
        assert store.rotate() == 1
        assert head_of(store, "t").route not in {first, plain}
        assert store.verify().ok


def test_the_awaitable_world_submits_and_waits(tmp_path: Path) -> None:
    async def main() -> Any:
        async with holdfast.open(tmp_path / "holdfast.db") as store:

            @holdfast.durable(store=store, name="awaitable double", queue="maths")
            async def twice(number: int) -> int:
                return 2 * number

            handle = await twice.options(priority=2).submit("t", 4)
            assert (await store.thread("t")).priority == 2
            _, result = await asyncio.gather(store.recover(), handle.result(30))
            return result, (await handle.wait()).status

    assert asyncio.run(main()) == (8, "complete")
