"""What becomes of a thread's place in the agenda: by forks, bundles, crashes, merged writes, and a second submit."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import sync
from holdfast.codec.keys import KeyRing
from holdfast.records.head import FORMAT, Head, decode_head, encode_head
from holdfast.runs.ledger import Ledger
from holdfast.stores.agenda import entry_of
from holdfast.testing import crash_everywhere
from runs.test_submitting import head_of

calls: list[Any] = []
FAR = timezone(timedelta(hours=-23))


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with sync.open(tmp_path / "holdfast.db") as opened:
        yield opened


def noted(number: int) -> int:
    calls.append(number)
    return number


def counting(store: Any, **options: Any) -> Any:
    @sync.durable(store=store, name="counting", **options)
    def count(number: int) -> int:
        return int(sync.current().step("note", noted, number))

    return count


# Forks and bundles


def forked(store: Any, _path: Path) -> str:
    fork: str = store.fork(store.latest("t").id, to="copy")
    return fork


def imported(store: Any, path: Path) -> str:
    store.export("t", path / "t.bundle")
    copy: str = store.import_(path / "t.bundle", to="copy")
    return copy


@pytest.mark.parametrize("copied", [forked, imported])
@pytest.mark.parametrize("by", ["submit", "by name", "retry"])
def test_a_copy_does_not_run_by_itself_but_can_be_put_on_its_queue(
    store: Any, tmp_path: Path, copied: Any, by: str
) -> None:
    function = counting(store, queue="maths", version=2)
    function.options(priority=1).submit("t", 4)
    store.save("t", {"a": 1}, status="queued")  # so that there is a checkpoint to fork
    copy = copied(store, tmp_path)
    info = store.thread(copy)
    assert (info.status, info.queue, info.priority, info.function) == ("idle", "maths", 1, "counting")
    assert store.recover().completed == ("t",)
    assert store.thread(copy) == info
    for _ in range(2):
        if by == "retry":
            store.retry(copy)
        elif by == "submit":
            function.submit(copy, 4)
        else:
            store.submit("counting", copy, (4,))
        assert store.thread(copy).status == "queued"
        if by == "retry":
            break
    assert store.verify().ok
    assert store.recover().completed == (copy,)
    assert calls == [4, 4]


@pytest.mark.parametrize("copied", [forked, imported])
def test_a_copy_takes_turns_in_the_lane_of_its_label(store: Any, tmp_path: Path, copied: Any) -> None:
    function = counting(store, queue=sync.Queue("maths", fair_by="tenant"))
    function.options(labels={"tenant": "acme"}).submit("t", 4)
    store.save("t", {"a": 1}, status="queued")
    copy = copied(store, tmp_path)
    function.submit(copy, 4)
    assert head_of(store, copy).lane == head_of(store, "t").lane != b""
    assert store.verify().ok


def test_a_fork_of_a_begun_thread_keeps_its_version_and_its_steps(store: Any) -> None:
    function = counting(store, version=3)
    function.run("t", 4)
    fork = store.fork(store.history("t").items[0].id)
    assert (store.thread(fork).version, store.thread(fork).status) == (3, "idle")
    function.submit(fork, 4)
    assert head_of(store, fork).route == head_of(store, "t").route
    assert store.recover().completed == (fork,)
    assert calls == [4]


def test_an_import_stays_what_it_was_if_nothing_would_run_it(store: Any, tmp_path: Path) -> None:
    @sync.durable(store=store, name="asking")
    def asking() -> Any:
        return sync.ask("name").value

    with pytest.raises(holdfast.Suspended):
        asking.run("t")
    copy = imported(store, tmp_path)
    assert store.thread(copy).status == "input_required"
    store.answer(next(each.id for each in store.requests() if each.thread_id == copy), value="Bo")
    assert store.recover().completed == (copy,)
    counting(store).run("done", 4)
    store.export("done", tmp_path / "done.bundle")
    assert store.thread(store.import_(tmp_path / "done.bundle", to="done too")).status == "complete"
    with pytest.raises(holdfast.Conflict, match="only a failed one"):
        store.retry("done too")


def test_an_import_under_a_key_has_a_route_of_that_key(store: Any, tmp_path: Path) -> None:
    counting(store).submit("t", 4)
    store.export("t", tmp_path / "t.bundle")
    with sync.open(tmp_path / "sealed.db", keys=KeyRing({"a": b"a" * 32}, "a")) as sealed:
        sealed.import_(tmp_path / "t.bundle")
        assert head_of(sealed, "t").route != head_of(store, "t").route
        assert b"counting" not in (tmp_path / "sealed.db").read_bytes()
        counting(sealed).submit("t", 4)
        assert (sealed.recover().completed, sealed.verify().ok) == (("t",), True)


def test_a_bundle_without_a_place_is_imported_as_before(store: Any, tmp_path: Path) -> None:
    with sync.open("memory:") as other, other.run("t") as run:
        run.step("note", noted, 1)
        other.export("t", tmp_path / "t.bundle")
    store.import_(tmp_path / "t.bundle")
    info = store.thread("t")
    assert (info.status, info.queue, info.function) == ("working", None, None)


def test_submitting_an_idle_thread_again_may_be_delayed(store: Any) -> None:
    function = counting(store)
    function.submit("t", 4)
    store.save("t", {}, status="idle")
    assert entry_of(head_of(store, "t")) is None
    function.options(delay=3600).submit("t", 4)
    info = store.thread("t")
    assert (info.status, store.recover().resumed) == ("queued", ())
    assert info.wake_at is not None
    assert info.wake_at > datetime.now(UTC) + timedelta(minutes=50)


def test_a_thread_that_another_process_has_completed_meanwhile_stays_complete(store: Any) -> None:
    function = counting(store)
    function.submit("t", 4)
    store.save("t", {}, status="idle")
    enter = type(store._store)._run_block

    def late(inner: Any, thread_id: str, *rest: Any) -> Any:
        type(store._store)._run_block = enter
        function.run("t", 4)
        return enter(inner, thread_id, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(store._store), "_run_block", late)
        function.submit("t", 4)
    assert store.thread("t").status == "complete"


# The first row of a run


def test_labels_are_part_of_the_first_row_so_that_a_crash_leaves_nothing_to_refuse(store: Any) -> None:
    function, commit = counting(store, labels={"a": "b"}), Ledger.commit

    async def die(*_: Any) -> Any:
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "commit", die)
        with pytest.raises(SystemExit):
            function.run("t", 4)
    assert Ledger.commit is commit
    function.submit("t", 4)
    assert (store.thread("t").row_count, store.thread("t").labels) == (1, {"a": "b"})
    function.run("direct", 4)
    assert store.history("direct", journal=True).items[-1].seq == 1
    assert store.thread("direct").labels == {"a": "b"}


def test_a_thread_that_was_cancelled_before_it_began_stays_cancelled(store: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "note", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            counting(store).run("t", 4)
    store.cancel("t")
    handle = counting(store).submit("t", 4)
    with pytest.raises(holdfast.RunCancelled):
        handle.result(0)
    with store.run("used") as run:
        run.step("note", noted, 1)
    store.cancel("used")
    with pytest.raises(holdfast.KeyReused):
        counting(store).submit("used", 4)


def test_a_thread_that_was_submitted_by_name_gets_the_labels_of_its_function(store: Any) -> None:
    store.submit("counting", "t", (4,), labels={"c": "d"})
    counting(store, labels={"a": "b"})
    store.recover()
    assert store.thread("t").labels == {"a": "b", "c": "d"}


def test_a_place_is_written_even_if_other_rows_are_merged_into_its_commit(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdfast.open(tmp_path / "holdfast.db") as store:

            @holdfast.step
            async def quick(number: int) -> int:
                await asyncio.sleep(0.01)
                return number

            @holdfast.durable(store=store, name="merged branches", version=2)
            async def branches() -> None:
                await asyncio.gather(*map(quick, range(20)))
                assert (await store.verify()).problems == []

            await branches.submit("t")
            await branches.run("t")

    asyncio.run(main())


def test_the_agenda_verifies_after_a_crash_at_every_effect() -> None:
    def work(store: Any) -> Any:
        function = counting(store, queue="maths", labels={"a": "b"})
        for name in ("one", "two"):
            function.options(priority=1).submit(name, 4)
        function.run("two", 4)
        store.recover()
        return [function.run(name, 4) for name in ("one", "two")]

    crash_everywhere(work, pairs=20)


# Damage, and wrong values


def test_one_wrong_entry_does_not_make_others_look_wrong(store: Any, tmp_path: Path) -> None:
    store.submit("app:f", "good", ())
    store.submit("app:f", "bad", (), queue="gone")
    with closing(sqlite3.connect(tmp_path / "holdfast.db", isolation_level=None)) as raw:
        raw.execute("DELETE FROM agenda WHERE place = CAST (char(0) || 'gone' AS BLOB)")
    problems = store.verify().problems
    assert [each.thread_id for each in problems if each.record == "agenda"] == ["bad"]


@pytest.mark.parametrize("queue", ["", "a\0b", "q" * 129, "line\n"])
def test_a_head_with_a_queue_that_no_store_gives_is_damaged(queue: str) -> None:
    thread = b"\0t"
    forged = Head(format=FORMAT, seq=1, status="queued", route=b"r" * 8, queue=queue)
    with pytest.raises(holdfast.Corrupt, match="its queue is"):
        decode_head(thread, encode_head(thread, forged))
    assert decode_head(thread, encode_head(thread, msgspec.structs.replace(forged, queue="q"))).queue == "q"


@pytest.mark.parametrize(
    ("at", "is_due"),
    [
        (datetime.min.replace(tzinfo=UTC), True),
        (datetime(1960, 1, 1, tzinfo=UTC), True),
        (datetime(1970, 1, 1, tzinfo=UTC), True),
        (datetime.max.replace(tzinfo=UTC), False),
    ],
)
def test_a_time_in_the_past_is_at_once_and_the_last_time_of_all_can_be_read(
    store: Any, at: datetime, is_due: bool
) -> None:
    counting(store).options(at=at).submit("t", 4)
    assert store.thread("t").wake_at == (None if is_due else at)
    assert (store.recover().completed == ("t",)) is is_due


def test_a_time_outside_of_the_calendar_is_refused(store: Any) -> None:
    with pytest.raises(holdfast.ConfigurationError, match="1 to 9999"):
        counting(store).options(at=datetime.max.replace(tzinfo=FAR))
