"""Open requests are listed together, so they are bounded together: when they are asked, not when the run waits."""

import asyncio
from collections.abc import Sequence

import pytest

import holdfast
from holdfast import LimitExceeded, Limits, Status
from holdfast.codec.limits import refuse_excess
from holdfast.history import journal

LARGE: list[list[int]] = [[]] * 500


def _refuse_early(encodings: Sequence[bytes], _limits: Limits, what: str) -> None:
    refuse_excess(encodings, Limits(memory=100_000), what)


async def _ask_all(store: holdfast.Store) -> None:
    async with store.run("t") as run:
        await asyncio.gather(*(run.ask(f"question {number}", LARGE) for number in range(9)))


def test_a_question_that_makes_too_much_together_is_refused_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "refuse_together", _refuse_early)
    asyncio.run(_ask_too_much())


async def _ask_too_much() -> None:
    async with holdfast.MemoryStore() as store:
        with pytest.raises(LimitExceeded, match=r"the list of \d requests of 't'"):
            await _ask_all(store)
        thread = await store.thread("t")
        assert (thread.status, thread.lease) == (Status.FAILED, None)
        assert (await store.requests()).items == []


def test_a_run_whose_requests_are_beyond_the_limits_of_its_store_leaves_no_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were asked by a process with higher limits."""
    asyncio.run(_resume_too_much(monkeypatch))


async def _resume_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    async with holdfast.MemoryStore() as store:
        with pytest.raises(holdfast.Suspended):
            await _ask_all(store)
        monkeypatch.setattr(journal, "refuse_together", _refuse_early)
        with pytest.raises(LimitExceeded):
            await _ask_all(store)
        assert (await store.thread("t")).lease is None
