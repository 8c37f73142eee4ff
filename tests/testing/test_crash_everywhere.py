"""Crash tests as users write them: durable functions and functions of a store, in both worlds; what a table says."""

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import ConfigurationError, sync
from holdfast.records.request import Request
from holdfast.testing import CrashReport, Scenario, crash_everywhere, enumerate_crashes
from kinds import new_place
from rounds import rounds

pytestmark = pytest.mark.faults

sent: list[str] = []


def send(text: str, idempotency_key: str) -> str:
    if idempotency_key not in sent:
        sent.append(idempotency_key)
    return text.upper()


@sync.durable
def blocking(text: str, times: int = 1) -> list[str]:
    run = sync.current()
    return [run.step(f"send-{number}", send, text, effect=True) for number in range(times)]


@holdfast.durable
async def awaitable(text: str, times: int = 1) -> list[str]:
    run = holdfast.current()
    return await asyncio.gather(
        *(run.step(f"send-{number}", send, text, effect=True) for number in range(times)),
    )


@pytest.mark.parametrize("function", [blocking, awaitable], ids=["blocking", "awaitable"])
def test_a_durable_function_with_its_arguments(function: Any) -> None:
    def one_each() -> None:
        assert len(sent) == 2

    options: dict[str, Any] = {"before": sent.clear, "after": one_each, "pairs": rounds(20, 100)}
    report = crash_everywhere(function, "hi", times=2, thread_id="letters", **options)
    assert isinstance(report, CrashReport)
    assert report.ok
    assert report.result == ["HI", "HI"]
    assert report.executions == {("letters", "send-0"): 1, ("letters", "send-1"): 1}
    assert report.case_count == 1 + len(report.points) + report.pair_count


def test_a_step_that_differs_is_told_by_what_differs() -> None:
    names = iter("abcdefghijklmnopqrstuvwxyz")

    @sync.durable
    def wayward() -> None:
        sync.current().step(next(names), int)

    with pytest.raises(AssertionError, match=r"steps of 'crash-test'\[0\]\.action: 'a' became 'b'\n"):
        crash_everywhere(wayward, pairs=0, limit=1)


def test_a_plain_function_of_a_store() -> None:
    def saving(store: sync.Store, count: int) -> Any:
        for number in range(count):
            store.save("t", {"number": number}, idempotency_key=f"save-{number}")
        latest = store.latest("t")
        return latest.state if latest else None

    assert crash_everywhere(saving, 3, pairs=None).result == {"number": 2}


def test_an_async_function_of_a_store() -> None:
    async def saving(store: holdfast.Store) -> Any:
        async with store.run("t") as run:
            await run.append("items", 1, key="one")
            return run.state

    assert crash_everywhere(saving, pairs=None).result == {"items": [1]}


def test_all_pairs_or_at_most_so_many() -> None:
    every = crash_everywhere(blocking, "hi", pairs=None)
    some = crash_everywhere(blocking, "hi", pairs=7, seed=1)
    assert every.pair_count == every.possible_pair_count == some.possible_pair_count
    assert (some.pair_count, crash_everywhere(blocking, "hi", pairs=0).pair_count) == (7, 0)


def test_requests_are_answered_by_whom_the_test_names() -> None:
    @sync.durable
    def asking() -> list[Any]:
        return [sync.confirm("go"), sync.ask("name", "who").value]

    def answer(request: Request) -> Any:
        return "reject" if request.choices else request.payload * 2

    assert crash_everywhere(asking, pairs=10).result == [True, None]
    assert crash_everywhere(asking, pairs=10, answer=answer).result == [False, "whowho"]


@pytest.mark.parametrize("kind", ["sqlite", "file", "objects"])
def test_the_store_beneath_may_be_any(kind: str, tmp_path: Path) -> None:
    crash_everywhere(blocking, "hi", pairs=3, place=lambda: new_place(kind, tmp_path))


def test_a_table_says_where_what_and_why() -> None:
    calls: list[int] = []

    def forgetful(store: sync.Store) -> int:
        with store.run("t") as run:
            run.append("items", len(calls))  # without a key: once more after each crash
            run.step("note", calls.append, 1)
            return 1

    with pytest.raises(AssertionError) as caught:
        crash_everywhere(forgetful, before=calls.clear, pairs=0)
    first, *rows = str(caught.value).splitlines()
    assert re.fullmatch(r"\d+ problems in 11 cases \(10 crash points, 0 of \d+ pairs tried\)", first)
    assert rows[0].startswith("state of 't'")
    assert re.fullmatch(r"  \(\d+ of 11 cases, first at 4 after row 1, during claimed\)", rows[1])
    assert len(set(rows[::2])) == len(rows[::2]) <= 5


def test_a_table_shows_five_different_problems_and_counts_the_others() -> None:
    numbers = iter(range(100))

    def wrong() -> None:
        raise AssertionError(f"wrong in way {next(numbers)}")

    report = enumerate_crashes(Scenario(function=blocking, arguments=("hi",), after=wrong), limit=7)
    assert len(report.failures) == 7
    _, *rows, last = report.table().splitlines()
    assert rows[:2] == ["outside: wrong in way 0", "  (1 of 7 cases, first at (no crash))"]
    assert (len(rows), last) == (10, "and 2 other problems: see `failures` of the report")


def test_after_so_many_problems_nothing_more_is_tried() -> None:
    def wrong() -> None:
        raise AssertionError("never right")

    report = enumerate_crashes(Scenario(function=blocking, arguments=("hi",), after=wrong), limit=3)
    assert [failure.problem for failure in report.failures] == ["outside: never right"] * 3
    assert (report.case_count, report.pair_count) == (3, 0)
    assert not report.ok


def test_an_error_of_the_undisturbed_run_is_raised_as_it_is() -> None:
    def broken(store: sync.Store) -> None:
        raise LookupError("no such agent")

    with pytest.raises(LookupError, match="no such agent"):
        crash_everywhere(broken)


def test_a_scenario_that_waits_for_ever_is_given_up() -> None:
    def waiting(store: sync.Store) -> None:
        store.save("t", 1)
        raise holdfast.Suspended("t waits", thread_id="t", requests=())

    with pytest.raises(AssertionError, match="still waits"):
        crash_everywhere(waiting)


def test_it_is_refused_within_an_event_loop() -> None:
    async def inside() -> None:
        crash_everywhere(awaitable, "hi")

    with pytest.raises(ConfigurationError, match="plain function"):
        asyncio.run(inside())


def test_the_log_is_silent_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "holdfast"):
        crash_everywhere(blocking, "hi", pairs=0)
    assert not caplog.records
    assert not logging.getLogger("holdfast").disabled


def test_an_unknown_name_is_an_attribute_error() -> None:
    from holdfast import testing

    assert set(testing.__all__) <= {*dir(testing), *testing._LATER}
    assert all(getattr(testing, name) for name in testing.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        testing.nonsense  # noqa: B018
