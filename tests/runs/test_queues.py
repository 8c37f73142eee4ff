"""Queues and rates: what processes keep together, as a submit and a step see it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import sync
from holdfast.codec.keys import KeyRing
from holdfast.records.head import decode_head
from holdfast.runs.queues import queue_of
from holdfast.runs.rates import RateBase
from holdfast.stores.agenda import PARKED
from holdfast.stores.listed_agenda import agenda_of
from holdfast.stores.memory import MemoryBackend
from holdfast.testing.clock import Clock
from holdfast.testing.handles import blocking_store

KINDS = ("memory", "sqlite")


@pytest.fixture(params=KINDS)
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    url = "memory:" if request.param == "memory" else tmp_path / "holdfast.db"
    with sync.open(url) as opened:
        yield opened


def work(store: Any, **options: Any) -> Any:
    @sync.durable(store=store, name="queued work", **options)
    def work(number: int) -> int:
        return number

    return work


def head_of(store: Any, thread_id: str) -> Any:
    reader = store._store._tools.reader
    key = reader.key(thread_id)
    return decode_head(key, reader.backend.heads([key])[0])


# What is given


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": ""}, "queue"),
        ({"name": "a\nb"}, "printable"),
        ({"name": "q", "concurrency": 0}, "concurrency"),
        ({"name": "q", "each": 2}, "`each` needs `fair_by`"),
        ({"name": "q", "rate": 3}, "`rate` must be a Rate"),
        ({"name": "q", "rate": sync.Rate("r", 1, per=1, by="tenant")}, "cannot have `by`"),
        ({"name": "q", "max_waiting": -1}, "max_waiting"),
    ],
)
def test_a_wrong_queue_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(sync.ConfigurationError, match=says):
        sync.Queue(options.pop("name"), **options)


@pytest.mark.parametrize(
    ("count", "options", "says"),
    [
        (0, {"per": 1}, "`count`"),
        (True, {"per": 1}, "`count`"),
        (float("nan"), {"per": 1}, "`count`"),
        (1, {"per": 0}, "`per`"),
        (1, {"per": 1, "burst": -1}, "burst"),
        (1, {"per": 1, "by": ""}, "by"),
    ],
)
def test_a_wrong_rate_is_refused(count: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(sync.ConfigurationError, match=says):
        sync.Rate("r", count, **options)


@pytest.mark.parametrize("units", [-1, True, "one", float("nan")])
def test_wrong_units_are_refused(units: Any) -> None:
    with pytest.raises(sync.ConfigurationError, match="`units`"):
        sync.step(rate=sync.Rate("r", 1, per=1), units=units)
    with pytest.raises(sync.ConfigurationError, match="`rate` must be a Rate"):
        sync.step(rate="r")  # type: ignore[call-overload]


def test_a_name_is_a_queue_without_limits() -> None:
    assert queue_of("a") == sync.Queue("a")
    assert queue_of(None).name == "default"
    assert not sync.Queue("a", max_waiting=3).has_limits
    assert sync.Queue("a", fair_by="tenant").has_limits


# Lanes


def test_a_label_makes_the_lane(store: Any) -> None:
    work_ = work(store, queue=sync.Queue("llm", fair_by="tenant"))
    for name, tenant in (("a", "acme"), ("b", "acme"), ("c", "other")):
        work_.options(labels={"tenant": tenant}).submit(name, 1)
    work_.submit("d", 1)
    lanes = [head_of(store, name).lane for name in "abcd"]
    assert lanes[0] == lanes[1] != lanes[2]
    assert lanes[3] == b""
    assert lanes[0] in head_of(store, "a").labels


def test_a_direct_run_is_in_the_lane_of_its_label(store: Any) -> None:
    lanes = []

    @sync.durable(store=store, name="in a lane", queue=sync.Queue("llm", fair_by="tenant"), labels={"tenant": "acme"})
    def direct() -> None:
        sync.current().step("s", int)
        lanes.append(head_of(store, "t").lane)

    direct.run("t")
    assert lanes[0]


def test_a_lane_moves_to_the_new_key(tmp_path: Path) -> None:
    old, both = KeyRing({"1": b"1" * 32}, write="1"), KeyRing({"1": b"1" * 32, "2": b"2" * 32}, write="2")
    queue = sync.Queue("llm", fair_by="tenant")
    with sync.open(tmp_path / "a.db", keys=old) as opened:
        work(opened, queue=queue).options(labels={"tenant": "acme"}).submit("a", 1)
        before = head_of(opened, "a").lane
    with sync.open(tmp_path / "a.db", keys=both) as opened:
        work(opened, queue=queue).options(labels={"tenant": "acme"}).submit("b", 1)
        opened.rotate()
        assert head_of(opened, "a").lane == head_of(opened, "b").lane != before
        assert opened.verify().ok


# A full queue


def test_a_full_queue_refuses_new_threads_only(store: Any) -> None:
    work_ = work(store, queue=sync.Queue("llm", max_waiting=2))
    work_.submit("a", 1)
    work_.options(delay=100).submit("b", 1)
    work_.submit("a", 1)
    with pytest.raises(sync.QueueFull, match="2 waiting threads"):
        work_.submit("c", 1)
    assert [info.thread_id for info in store.threads(limit=10)] == ["b", "a"]
    work_.run("a", 1)
    work_.submit("c", 1)


def test_limits_need_an_agenda(tmp_path: Path) -> None:
    with sync.open(f"file:{tmp_path}/files") as opened:
        with pytest.raises(sync.ConfigurationError, match="cannot limit"):
            work(opened, queue=sync.Queue("llm", concurrency=2)).submit("a", 1)
        work(opened, queue=sync.Queue("llm", max_waiting=1)).submit("a", 1)
        with pytest.raises(sync.QueueFull):
            work(opened, queue=sync.Queue("llm", max_waiting=1)).submit("b", 1)


# Rates of steps


class Waits:
    """A store whose clock moves only while somebody sleeps, and is the backend's."""

    def __init__(self, lease: float = 30) -> None:
        self.clock, self.slept, self.backend = Clock(), list[float](), MemoryBackend()
        self.backend.now = lambda: self.clock.now  # type: ignore[method-assign]
        ports = self.clock.ports()
        ports.sleep = self._sleep  # type: ignore[method-assign]
        self.store = blocking_store(self.backend, ports=ports)
        self.lease = lease

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.clock.advance(seconds)

    def run(self, function: Any, thread_id: str = "t", **labels: str) -> Any:
        with self.store.run(thread_id, lease=self.lease, labels=labels or None) as run:
            return function(run)


def test_steps_wait_their_turn() -> None:
    waits = Waits()
    rate = sync.Rate("openai", 10, per=1, burst=2)

    @sync.step(rate=rate)
    def ask(number: int) -> int:
        return number

    waits.run(lambda _: [ask(number) for number in range(6)])
    assert waits.slept == [0.1, 0.1, 0.1], "three at once (one, and two ahead), then one each 100 ms"
    waits.run(lambda _: [ask(number) for number in range(6)])
    assert len(waits.slept) == 3, "what was recorded is not charged"


def test_a_rate_is_shared_and_units_may_overdraw() -> None:
    waits = Waits()
    rate = sync.Rate("tokens", 100, per=1, burst=0)

    @sync.step(rate=rate, units=lambda words: words)
    def ask(words: int) -> int:
        return words

    waits.run(lambda _: ask(50), "a")
    waits.run(lambda _: ask(1), "b")
    assert waits.slept == [0.5], "the run of another thread waits until the 50 units are paid off"


def test_a_label_has_a_bucket_of_its_own() -> None:
    waits = Waits()

    @sync.step(rate=sync.Rate("r", 1, per=1, burst=0, by="tenant"))
    def ask(number: int) -> int:
        return number

    for thread, tenant in (("a", "x"), ("b", "y"), ("c", "x")):
        waits.run(lambda _, n=thread: ask(ord(n)), thread, tenant=tenant)
    assert waits.slept == [1.0]


def test_what_was_really_used_is_charged_without_waiting() -> None:
    waits = Waits()
    rate = sync.Rate("tokens", 100, per=1, burst=0)

    @sync.step(rate=rate)
    def ask(used: int) -> int:
        rate.spend(used)
        return used

    waits.run(lambda _: (ask(99), ask(0), ask(1)))
    assert waits.slept == [1.0, 0.01]
    with pytest.raises(sync.ConfigurationError, match="within a step"):
        rate.spend(1)
    with pytest.raises(sync.ConfigurationError, match="`units`"):
        waits.run(lambda _: rate.spend(True), "b")


def test_units_that_are_returned_can_be_used() -> None:
    waits = Waits()
    rate = sync.Rate("tokens", 100, per=1, burst=0)

    @sync.step(rate=rate, units=80)
    def ask(number: int) -> int:
        rate.spend(-70)
        return number

    waits.run(lambda _: (ask(1), ask(2)))
    assert waits.slept == [0.1]


def test_a_long_wait_suspends_the_run() -> None:
    """It holds no place meanwhile, and its attempts do not count."""
    waits, calls = Waits(lease=5), []
    rate = sync.Rate("slow", 1, per=3600, burst=0)

    @sync.step(rate=rate)
    def ask(number: int) -> int:
        calls.append(number)
        return number

    def body(_: Any) -> list[int]:
        return [ask(1), ask(2)]

    with pytest.raises(sync.Suspended):
        waits.run(body)
    info = waits.store.thread("t")
    assert (calls, waits.slept, info.status) == ([1], [], "working")
    assert info.wake_at is not None
    assert 3599 < info.wake_at.timestamp() - waits.clock.now / 1e6 <= 3600
    waits.clock.advance(3600)
    assert waits.run(body) == [1, 2]
    assert calls == [1, 2]


def test_an_async_step_waits_its_turn() -> None:
    async def main() -> float:
        store = holdfast.open("memory:")
        rate = holdfast.Rate("r", 20, per=1, burst=0)

        @holdfast.step(rate=rate)
        async def ask(number: int) -> int:
            await rate.spend(1)
            return number

        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with store.run("t"):
            assert await asyncio.gather(*(ask(number) for number in range(3))) == [0, 1, 2]
        return loop.time() - begun

    assert asyncio.run(main()) >= 0.19, "six units of 50 ms, the last two of which nobody waits for"


def test_a_rate_that_is_not_kept_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above fail on an agenda that grants everything."""
    monkeypatch.setattr(MemoryBackend, "spend", lambda *_: 0)
    for test in (
        test_steps_wait_their_turn,
        test_a_rate_is_shared_and_units_may_overdraw,
        test_a_label_has_a_bucket_of_its_own,
        test_what_was_really_used_is_charged_without_waiting,
        test_units_that_are_returned_can_be_used,
    ):
        with pytest.raises(AssertionError):
            test()
    with pytest.raises(pytest.fail.Exception):
        test_a_long_wait_suspends_the_run()


def test_limits_become_those_of_the_agenda(store: Any) -> None:
    bindings = store._store._tools.reader.bindings
    rate = sync.Rate("r", 10, per=1, burst=3)
    limits = sync.Queue("q", concurrency=5, fair_by="t", each=2, rate=rate).limits(bindings, ["f"])
    assert (limits.concurrency, limits.each) == (5, 2)
    assert limits.pace is not None
    assert (limits.pace.cost, limits.pace.burst) == (100_000, 300_000)
    assert limits.unbegun == {*bindings.routes("f", 0)}
    assert agenda_of(store._store._backend).spend(limits.pace.bucket, 1, PARKED) == 0
    assert RateBase.pace(replace(rate, name="s"), bindings, dict).bucket != limits.pace.bucket
