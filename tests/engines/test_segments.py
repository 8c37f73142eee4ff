"""Segments, and what a store and a worker do with an engine: without a server."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event
from time import time_ns
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast import sync
from holdfast.engines import segment, serving, urls
from holdfast.engines.engine import ServingEngine, Work
from holdfast.engines.segment import AGAIN, END, WAKE_AT, Segments, Unfinished, Verdict
from holdfast.engines.serving import Overdue
from holdfast.processes import has_tag, tagged
from holdfast.runs import schedules
from holdfast.runs.block import Terms
from holdfast.runs.durable import registry
from holdfast.runs.engine import VARIABLE
from holdfast.runs.store import attach
from holdfast.testing.clock import Clock
from patience import GIVE_UP_SECONDS
from servers.ports import free_port

executed: list[str] = []
TAG = "temporal-1"


@pytest.fixture(autouse=True)
def _nothing_executed() -> Iterator[None]:
    executed.clear()
    known = dict(registry)
    yield
    registry.clear()
    registry.update(known)
    schedules.declared.clear()


class FakeEngine(ServingEngine):
    """Only notes what it is sent."""

    def __init__(self) -> None:
        super().__init__(urls.place_of("temporal://nowhere/space"))
        self.sent: list[tuple[str, int]] = []
        self.is_away = False
        self.is_poked = Event()

    def send(self, thread_id: str, priority: int) -> None:
        if self.is_away:
            raise ConnectionError("no way")
        self.sent.append((thread_id, priority))
        self.is_poked.set()

    async def serve(self, work: Work) -> None:
        await work.stopped.wait()

    def close(self) -> None:
        pass


def durable(store: holdfast.Store, body: Callable[..., Any], **options: Any) -> Any:
    return holdfast.durable(store=store, name="job", **options)(body)


async def note(name: str) -> str:
    executed.append(name)
    return name


async def three_steps() -> int:
    for number in range(3):
        await holdfast.current().step(f"step {number}", note, str(number))
    return 3


async def asks() -> bool:
    return await holdfast.confirm("go on?")


async def fails() -> None:
    raise ValueError("a secret")


async def sleeps() -> None:
    await holdfast.sleep(3600)


async def segment_of(body: Callable[..., Any], **options: Any) -> Verdict:
    async with holdfast.open("memory:") as store:
        job = durable(store, body)
        await job.options(**options).submit("t")
        return await Segments(store, [job], TAG).run("t")


@pytest.mark.parametrize(
    ("body", "options", "word"),
    [
        (three_steps, {}, END),
        (fails, {}, END),
        (asks, {}, WAKE_AT),
        (sleeps, {}, WAKE_AT),
        (three_steps, {"delay": 60}, WAKE_AT),
    ],
)
def test_a_segment_runs_a_thread_as_far_as_it_gets_and_says_what_comes_next(
    body: Callable[..., Any], options: dict[str, Any], word: str
) -> None:
    verdict = asyncio.run(segment_of(body, **options))
    assert verdict.word == word
    assert (verdict.at > 0) == (body is sleeps or "delay" in options)
    assert executed == (["0", "1", "2"] if body is three_steps and not options else [])


def test_a_timer_of_a_verdict_is_as_far_away_as_the_thread_sleeps() -> None:
    verdict = asyncio.run(segment_of(sleeps))
    assert 3500 < verdict.seconds <= 3600


def test_a_thread_that_does_not_exist_or_has_ended_is_at_its_end() -> None:
    async def act() -> None:
        async with holdfast.open("memory:") as store:
            job = durable(store, three_steps)
            segments = Segments(store, [job], TAG)
            assert await segments.run("nothing") == Verdict(END)
            await job.submit("t")
            assert await segments.run("t") == await segments.run("t") == Verdict(END)

    asyncio.run(act())
    assert executed == ["0", "1", "2"]


def test_a_thread_whose_code_is_not_here_is_left_to_another_worker_and_no_text_is_said() -> None:
    async def act() -> None:
        async with holdfast.open("memory:") as store:
            await durable(store, three_steps).submit("t")
            with pytest.raises(Unfinished, match=r"^NotServed$"):
                await Segments(store, [], TAG).run("t")
            assert (await store.thread("t")).status == "queued"

    asyncio.run(act())


def test_an_outage_of_the_store_is_said_in_one_word(caplog: pytest.LogCaptureFixture) -> None:
    async def act() -> None:
        store = holdfast.open("memory:")
        await store.close()
        with pytest.raises(Unfinished, match=r"^StoreClosed$") as caught:
            await Segments(store, [], TAG).run("t")
        assert caught.value.__suppress_context__

    asyncio.run(act())
    assert "could not run" in caplog.text


def test_a_claim_of_the_same_engine_is_taken_over_at_once_and_fenced() -> None:
    async def act() -> None:
        async with holdfast.open("memory:") as store:
            job = durable(store, three_steps)
            await job.submit("t")
            block = store._run_block("t", None, Terms(tag=TAG))
            older = await block.enter()
            assert has_tag((await store.thread("t")).owner or "", TAG)
            assert await Segments(store, [job], TAG).run("t") == Verdict(END)
            with pytest.raises(holdfast.Fenced) as fenced:
                await older.step("late", note, "late")
            await block.leave(fenced.value)
            assert (await store.outcome("t")).result == 3

    asyncio.run(act())
    assert executed[:3] == ["0", "1", "2"]


@pytest.mark.parametrize("tag", ["", "restate-1"])
def test_the_claim_of_another_is_waited_for(tag: str) -> None:
    async def act() -> None:
        async with holdfast.open("memory:") as store:
            job = durable(store, three_steps)
            await job.submit("t")
            async with store._run_block("t", None, Terms(lease=30, tag=tag)) as run:
                verdict = await Segments(store, [job], TAG).run("t")
                assert verdict.word == WAKE_AT
                assert 25 < verdict.seconds <= 30
                run._ledger.untouched = True

    asyncio.run(act())
    assert executed == []


def test_a_segment_that_lasts_is_handed_over_at_its_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "LONGEST_SECONDS", 1e-6)

    async def act() -> list[str]:
        async with holdfast.open("memory:") as store:
            job = durable(store, three_steps)
            await job.submit("t")
            words: list[str] = []
            while not words or words[-1] == AGAIN:
                words.append((await Segments(store, [job], TAG).run("t")).word)
            return words

    words = asyncio.run(act())
    assert words == [AGAIN, AGAIN, END], "each segment does a step: a thread gets on, however short they are"
    assert executed == ["0", "1", "2"]


def test_what_is_handed_over_begins_nothing_any_more() -> None:
    async def act() -> None:
        async with holdfast.open("memory:") as store:
            job = durable(store, three_steps)
            await job.submit("t")
            segments = Segments(store, [job], TAG)
            segments.hand_over()
            with pytest.raises(Unfinished):
                await segments.run("t")

    asyncio.run(act())
    assert executed == []


def test_an_owner_has_only_the_tag_that_it_was_given() -> None:
    assert has_tag(f"host:1:2:3:4:{tagged('restate-1', 'abc')}", "restate-1")
    assert not has_tag(f"host:1:2:3:4:{tagged('', 'abc')}", "")
    assert not has_tag("host:1:2:3:4:restate-12.abc", "restate-1")


# URLs


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("celery://host", "unknown engine"),
        ("temporal", "unknown engine"),
        ("temporal://", "must have a host"),
        ("temporal://user:secret@host", "no user or password"),
        ("restate://host?admin=user:secret@host:9070", "no user or password"),
        ("restate://host?admin=user:secret%40host", "no user or password"),
        ("temporal://host?queue=q", "unknown option 'queue'"),
        ("restate://host?tls=true", "unknown option 'tls'"),
    ],
)
def test_a_wrong_url_is_refused_when_the_store_is_opened(url: str, why: str) -> None:
    with pytest.raises(holdfast.ConfigurationError, match=why) as caught:
        holdfast.open("memory:", engine=url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("url", "package"), [("temporal://host", "temporalio"), ("restate://host", "restate")])
def test_a_missing_package_names_its_extra(url: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"holdfast.engines.{url.partition(':')[0]}", raising=False)
    with pytest.raises(holdfast.ConfigurationError, match=rf"\.\[{url.partition(':')[0]}\]"):
        holdfast.open("memory:", engine=url)


def test_a_worker_that_temporal_refuses_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    temporal = pytest.importorskip("holdfast.engines.temporal")

    class Refused:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def run(self) -> None:
            raise RuntimeError("Namespace x was not found")

    async def connected(_: object) -> object:
        return object()

    async def act() -> None:
        async with holdfast.open("memory:") as store:
            work = Work(Segments(store, [], TAG), 1, 0, asyncio.Event(), asyncio.Event())
            await temporal.engine(urls.place_of("temporal://nowhere/x")).serve(work)

    monkeypatch.setattr(temporal, "Worker", Refused)
    monkeypatch.setattr(temporal.engine, "_reached", connected)
    with pytest.raises(holdfast.ConfigurationError, match="Namespace x was not found"):
        asyncio.run(act())


def test_the_variable_names_the_engine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "celery://host")
    with pytest.raises(holdfast.ConfigurationError, match="unknown engine"):
        sync.open("memory:")


def test_the_tag_depends_on_the_namespace_and_not_on_the_name_of_the_host() -> None:
    tags = [
        urls.place_of(url).tag for url in ("temporal://a/x", "temporal://b:7233/x", "temporal://a/y", "restate://a")
    ]
    assert len(set(tags)) == 3
    assert tags[0] == tags[1]


def test_importing_holdfast_imports_no_engine() -> None:
    code = "import holdfast, holdfast.sync, sys; holdfast.open('memory:'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"temporalio", "restate", "hypercorn", "holdfast.engines"} & set(loaded)


@pytest.mark.parametrize("limit", ["concurrency", "each", "rate"])
def test_limits_that_an_engine_cannot_keep_are_refused(limit: str) -> None:
    queue = SimpleNamespace(name="llm", **{"concurrency": None, "each": None, "rate": None, limit: 5})
    limited: Any = SimpleNamespace(name="job", _service=SimpleNamespace(queue=queue))

    async def act() -> None:
        async with holdfast.open("memory:") as store:
            await serving.serve("temporal://nowhere", store, [limited], stopped=asyncio.Event())

    with pytest.raises(holdfast.ConfigurationError, match=f"remove `{limit}`"):
        asyncio.run(act())


# Pokes


def test_a_store_pokes_its_engine_after_each_write_that_needs_it() -> None:
    engine = FakeEngine()

    async def act() -> None:
        async with holdfast.open("memory:") as store:
            attach(store, engine)
            job = durable(store, asks)
            handle = await job.options(priority=2).submit("t")
            await job.options(priority=2).submit("t")
            await Segments(store, [job], TAG).run("t")
            await store.answer((await handle.wait()).requests[0].id, "approve")
            await job.submit("u")
            await store.cancel("u")

    asyncio.run(act())
    assert engine.sent == [("t", 2), ("t", 2), ("t", 0), ("u", 0), ("u", 0)]


def test_the_end_of_a_thread_pokes_those_that_wait_for_it() -> None:
    engine = FakeEngine()

    async def act() -> None:
        async with holdfast.open("memory:") as store:
            child = holdfast.durable(store=store, name="segment child")(three_steps)

            @holdfast.durable(store=store, name="segment parent")
            async def parent() -> int:
                number: int = await (await child.submit("c")).result()
                return number

            await parent.submit("p")
            attach(store, engine)
            segments = Segments(store, [parent, child], TAG)
            assert (await segments.run("p")).word == WAKE_AT
            assert (await segments.run("c")).word == END
            assert engine.sent == [("c", 0), ("p", 0)]
            assert (await segments.run("p")).word == END
            assert (await store.outcome("p")).result == 3

    asyncio.run(act())


def test_a_worker_of_an_engine_keeps_the_schedules_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    monkeypatch.setattr(serving, "engine_at", lambda _: engine)

    async def act() -> None:
        async with holdfast.open("memory:") as store:
            job = durable(store, three_steps)
            holdfast.schedule("tick", job, every=1)
            stopped = asyncio.Event()
            served = asyncio.create_task(serving.serve("temporal://nowhere", store, [job], stopped=stopped))
            await asyncio.to_thread(engine.is_poked.wait, GIVE_UP_SECONDS)
            stopped.set()
            await served
            assert await store.counts() == {"queued": len(engine.sent)}

    asyncio.run(act())
    assert {name.partition("@")[0] for name, _ in engine.sent} == {"tick"}


@pytest.mark.parametrize("kind", ["temporal", "restate"])
def test_an_engine_that_is_away_does_not_keep_a_thread_from_being_submitted(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with sync.open("memory:", engine=f"{kind}://127.0.0.1:{free_port()}") as store:
        for number in range(5):
            store.submit("job", f"t{number}")
        assert store.counts() == {"queued": 5}
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_an_engine_that_took_long_to_fail_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, clock = FakeEngine(), iter((0, 1, 1, 4, 7, 8, 9))
    engine.is_away = True
    monkeypatch.setattr("holdfast.engines.engine.monotonic", lambda: next(clock))
    engine.poke("t")  # from 0 to 1: left alone until 6
    engine.is_away = False
    engine.poke("u")
    engine.poke("v")
    assert engine.sent == [("v", 0)]


def test_only_threads_that_are_overdue_and_that_nobody_holds_are_poked_again() -> None:
    engine = FakeEngine()

    async def act() -> None:
        async with holdfast.open("memory:") as store:
            job = durable(store, three_steps, queue="here")
            await job.options(priority=1).submit("due")
            await job.options(delay=timedelta(hours=1)).submit("later")
            await job.submit("held")
            await store.submit("of another program", "other", queue="here")
            await store.submit("job", "by name", queue="default")  # every worker looks at it
            overdue = Overdue(store, engine, [job])
            async with store._run_block("held", None, Terms()) as run:
                entries = store._reader.agenda.entries(b"")
                await store._ports.perform(overdue.poke, 0)
                assert store._reader.agenda.entries(b"").keys() == entries.keys()
                run._ledger.untouched = True

    asyncio.run(act())
    assert sorted(engine.sent) == [("by name", 0), ("due", 1)]


def test_a_thread_is_overdue_since_it_was_first_seen() -> None:
    """A look moves its entry, which says nothing about how long it is due."""
    engine, clock = FakeEngine(), Clock(time_ns() // 1000)

    async def act() -> None:
        async with holdfast.open("memory:") as store:
            job = durable(store, three_steps)
            await job.submit("due")
            clock.advance(1)
            store._backend.now = lambda: clock.now  # type: ignore[attr-defined]
            overdue = Overdue(store, engine, [job])
            for _ in range(4):
                assert engine.sent == []
                await store._ports.perform(overdue.poke, serving.OVERDUE_SECONDS)
                clock.advance(20)

    asyncio.run(act())
    assert engine.sent == [("due", 0)]


def test_a_thread_that_is_due_for_less_than_a_minute_is_not_poked_again() -> None:
    engine = FakeEngine()

    async def act() -> None:
        async with holdfast.open("memory:") as store:
            job = durable(store, three_steps)
            await job.submit("due")
            await store._ports.perform(Overdue(store, engine, [job]).poke, serving.OVERDUE_SECONDS)

    asyncio.run(act())
    assert engine.sent == []
