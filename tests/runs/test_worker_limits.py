"""Workers keep the limits of a queue together: concurrency, lanes, rates, priorities."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.stores.agenda import NO_LIMITS
from holdfast.stores.memory import MemoryBackend
from kinds import shared_kinds, url_of
from patience import GIVE_UP_SECONDS

Body = Callable[[str], Any]


class Watch:
    """Counts what runs at the same time."""

    def __init__(self) -> None:
        self.now, self.most, self.order = Counter[str](), Counter[str](), list[str]()
        self.times = list[float]()

    async def work(self, tenant: str, seconds: float = 0.02) -> None:
        self.times.append(asyncio.get_running_loop().time())
        self.order.append(tenant)
        for name in (tenant, "all"):
            self.now[name] += 1
            self.most[name] = max(self.most[name], self.now[name])
        await asyncio.sleep(seconds)
        for name in (tenant, "all"):
            self.now[name] -= 1


def opened(url: str) -> holdfast.Store:
    return holdfast.open(url, durability="none" if url == "memory:" else "process")


async def busy(url: Any, queue: holdfast.Queue, submits: list[str], *, workers: int = 3, places: int = 4) -> Watch:
    """Submit a thread for each tenant, and let several workers, each with a handle of its own, run them all."""
    watch = Watch()
    stores = [opened(url) for _ in range(1 if url == "memory:" else workers)]

    @holdfast.durable(store=stores[0], name="limited in lanes", queue=queue)
    async def limited(tenant: str) -> None:
        await watch.work(tenant)

    for number, tenant in enumerate(submits):
        await limited.options(labels={"tenant": tenant}).submit(f"{number}", tenant)
    made = [holdfast.Worker(stores[n % len(stores)], functions=[limited], concurrency=places) for n in range(workers)]
    tasks = [asyncio.create_task(each.run()) for each in made]
    for number in range(len(submits)):
        await stores[0].handle(f"{number}").result(timeout=60)
    for each in made:
        each.stop()
    await asyncio.gather(*tasks)
    for store in stores:
        await store.close()
    return watch


@pytest.fixture(params=["memory", "sqlite", *shared_kinds("postgres", "redis")])
def url(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of each kind that has limits. No look for everything that is due rescues a worker that saw nothing."""
    monkeypatch.setattr("holdfast.runs.looking.COMPLETE_SECONDS", 10 * GIVE_UP_SECONDS)
    return "memory:" if request.param == "memory" else url_of(request.param, tmp_path)


def run(url: Any, queue: holdfast.Queue, submits: list[str], **options: Any) -> Watch:
    return asyncio.run(busy(url, queue, submits, **options))


def test_all_workers_together_keep_the_concurrency(url: Any) -> None:
    watch = run(url, holdfast.Queue("llm", concurrency=2), ["a"] * 12)
    assert watch.most["all"] == 2


def test_a_lane_is_kept_to_its_limit_and_the_others_go_on(url: Any) -> None:
    watch = run(url, holdfast.Queue("llm", fair_by="tenant", each=1), [*("a" * 6), *("b" * 3)])
    assert (watch.most["a"], watch.most["b"]) == (1, 1)
    assert watch.order.index("b") < 3, "the first lane did not hold it back"


def test_a_lane_with_few_threads_does_not_wait_for_one_with_many(url: Any) -> None:
    watch = run(url, holdfast.Queue("llm", fair_by="tenant"), [*("a" * 20), "b"], workers=1, places=1)
    assert "b" in watch.order[:3]


def test_beginnings_keep_the_rate(url: Any) -> None:
    rate = holdfast.Rate("starts", 8, per=1, burst=1)
    watch = run(url, holdfast.Queue("llm", rate=rate), ["a"] * 10)
    took = watch.times[-1] - watch.times[0]
    assert took >= 0.6, "two at once, then one each 125 ms: 1 s; the first may be late by a moment"


@pytest.mark.parametrize(
    "queue", [holdfast.Queue("llm", rate=holdfast.Rate("starts", 20, per=1)), holdfast.Queue("llm", concurrency=1)]
)
def test_one_pass_ends_when_all_that_limits_held_back_has_run(url: Any, queue: holdfast.Queue) -> None:
    async def main() -> None:
        done: list[int] = []
        async with opened(url) as store:

            @holdfast.durable(store=store, name="limited in one pass", queue=queue)
            async def limited(number: int) -> None:
                done.append(number)

            for number in range(6):
                await limited.submit(f"{number}", number)
            await holdfast.Worker(store, functions=[limited]).run(once=True)
        assert sorted(done) == list(range(6))

    asyncio.run(main())


@pytest.mark.parametrize(
    "test",
    [
        test_all_workers_together_keep_the_concurrency,
        test_a_lane_is_kept_to_its_limit_and_the_others_go_on,
        test_beginnings_keep_the_rate,
    ],
)
def test_an_agenda_without_limits_is_noticed(test: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    take: Any = MemoryBackend.take

    def unlimited(self: MemoryBackend, *place: Any) -> Any:
        return take(self, *place[:5], NO_LIMITS)

    monkeypatch.setattr(MemoryBackend, "take", unlimited)
    with pytest.raises(AssertionError):
        test("memory:")
