"""Questions to the outside: asked once, answered once, the answer consumed once."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import sync
from runs.worlds import World


async def suspended(world: World, thread_id: str = "t", **terms: Any) -> holdfast.Request:
    """A thread that waits for an answer to one question."""
    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run(thread_id) as run:
            await run.ask("refund", {"amount": 40}, **terms)
    assert caught.value.thread_id == thread_id
    (request,) = caught.value.requests
    return request


async def test_a_question_is_answered_and_the_run_goes_on(world: World) -> None:
    request = await suspended(world, choices=("approve", "reject"))
    assert (request.thread_id, request.name, request.payload) == ("t", "refund", {"amount": 40})
    assert (request.choices, request.status, request.deadline) == (("approve", "reject"), "open", None)
    assert (await world.store.thread("t")).status == "input_required"
    assert list(await world.store.requests()) == [request]
    answered = await world.store.answer(request.id, "approve", by="ana", comment="fine")
    assert answered.id == request.id
    async with world.store.run("t") as run:
        answer = await run.ask("refund", {"amount": 40}, choices=("approve", "reject"))
        assert (answer.choice, answer.value, answer.by, answer.comment) == ("approve", None, "ana", "fine")
        assert answer.at == request.created_at
    assert not await world.store.requests()
    (kept,) = await world.store.requests(status="answered")
    assert kept.answer == answer


async def test_without_choices_an_answer_is_a_value(world: World) -> None:
    request = await suspended(world)
    with pytest.raises(holdfast.InvalidAnswer, match="value="):
        await world.store.answer(request.id, "approve")
    await world.store.answer(request.id, value=("any", {"value"}))
    async with world.store.run("t") as run:
        assert (await run.ask("refund", {"amount": 40})).value == ("any", {"value"})


async def test_a_choice_may_come_with_a_value(world: World) -> None:
    request = await suspended(world, choices=("edit",))
    await world.store.answer(request.id, "edit", {"amount": 30})
    async with world.store.run("t") as run:
        answer = await run.ask("refund", {"amount": 40}, choices=("edit",))
        assert (answer.choice, answer.value) == ("edit", {"amount": 30})


async def test_an_answer_is_one_of_the_choices(world: World) -> None:
    request = await suspended(world, choices=("approve", "reject"))
    for choice in ("perhaps", None):
        with pytest.raises(holdfast.InvalidAnswer, match="'approve', 'reject'"):
            await world.store.answer(request.id, choice)
    await world.store.answer(request.id, "reject")


async def test_a_question_is_answered_once(world: World) -> None:
    request = await suspended(world)
    await world.store.answer(request.id, value=1)
    with pytest.raises(holdfast.Conflict, match="answered already"):
        await world.open().answer(request.id, value=2)
    async with world.store.run("t") as run:
        assert (await run.ask("refund", {"amount": 40})).value == 1
    with pytest.raises(holdfast.Conflict):
        await world.store.answer(request.id, value=3)


@pytest.mark.parametrize("wrong", ["t#2.{life}", "t#1.00000000", "other#1.{life}", "nothing of the kind"])
async def test_a_question_that_nobody_asked_is_not_found(world: World, wrong: str) -> None:
    request = await suspended(world)
    with pytest.raises(holdfast.NotFound):
        await world.store.answer(wrong.format(life=request.id.rpartition(".")[2]), value=1)


async def test_a_question_of_a_finished_thread_cannot_be_answered(world: World) -> None:
    request = await suspended(world)
    await world.store.cancel("t")
    assert not await world.store.requests()
    with pytest.raises(holdfast.Conflict, match="cancelled"):
        await world.store.answer(request.id, value=1)


async def test_work_before_the_question_is_not_done_again(world: World) -> None:
    calls: list[int] = []

    async def body(run: holdfast.Run) -> Any:
        await run.step("work", lambda: calls.append(1))
        return (await run.ask("refund")).value

    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run("t") as run:
            await body(run)
    await world.store.answer(caught.value.requests[0].id, value="yes")
    async with world.store.run("t") as run:
        assert await body(run) == "yes"
    assert len(calls) == 1


async def test_an_answer_survives_a_crash_and_is_consumed_once(world: World) -> None:
    request = await suspended(world)
    await world.store.answer(request.id, value="yes")
    async with world.doomed("t") as run:
        world.die_at_next_write()  # which would have consumed it
        await run.ask("refund", {"amount": 40})
    async with world.doomed("t") as run:
        assert (await run.ask("refund", {"amount": 40})).value == "yes"
    async with world.store.run("t") as run:
        assert (await run.ask("refund", {"amount": 40})).value == "yes"
    answers = [request for request in await world.store.requests(status=None) if request.status == "answered"]
    assert len(answers) == 1
    assert world.faults[0].inner.inbox(b"\x00t") == {}


@pytest.mark.parametrize(("default", "approved"), [(True, True), (False, False)])
async def test_a_question_can_have_a_default_at_its_deadline(world: World, default: bool, approved: bool) -> None:
    async def confirm(run: holdfast.Run) -> bool:
        return await run.confirm("refund", deadline=timedelta(hours=1), default=default)

    with pytest.raises(holdfast.Suspended) as caught:
        async with world.store.run("t") as run:
            await confirm(run)
    (request,) = caught.value.requests
    assert request.deadline == request.created_at + timedelta(hours=1)
    with pytest.raises(holdfast.Suspended):
        async with world.store.run("t") as run:
            await confirm(run)
    world.clock.advance(3600)
    async with world.store.run("t") as run:
        assert await confirm(run) is approved
    (kept,) = await world.store.requests(status="answered")
    assert kept.answer is not None
    assert (kept.answer.by, kept.answer.choice) == ("deadline", "approve" if approved else "reject")


async def test_a_default_can_be_any_value(world: World) -> None:
    await suspended(world, deadline=10, default=[1, 2])
    world.clock.advance(10)
    async with world.store.run("t") as run:
        assert (await run.ask("refund", {"amount": 40}, deadline=10, default=[1, 2])).value == [1, 2]


async def test_a_question_without_a_default_expires(world: World) -> None:
    request = await suspended(world, deadline=10)
    world.clock.advance(10)
    with pytest.raises(holdfast.RequestExpired, match="deadline"):
        await world.store.answer(request.id, value=1)
    for _ in range(2):
        async with world.store.run("t") as run:
            with pytest.raises(holdfast.RequestExpired, match="'refund' of thread 't'"):
                await run.ask("refund", {"amount": 40}, deadline=10)
    (kept,) = await world.store.requests(status="expired")
    assert kept.answer is None


async def test_an_answer_in_time_counts_though_the_run_comes_late(world: World) -> None:
    request = await suspended(world, deadline=10, default=0)
    await world.store.answer(request.id, value=1)
    world.clock.advance(100)
    async with world.store.run("t") as run:
        assert (await run.ask("refund", {"amount": 40}, deadline=10, default=0)).value == 1


async def test_a_deadline_can_be_a_moment(world: World) -> None:
    moment = datetime.fromtimestamp(world.clock.now / 1e6, UTC) + timedelta(minutes=5)
    request = await suspended(world, deadline=moment)
    assert request.deadline == moment


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"deadline": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"default": 1}, "give both"),
        ({"deadline": -1}, "from 0 to a thousand years"),
        ({"deadline": "soon"}, "deadline"),
    ],
)
async def test_terms_that_make_no_sense_are_refused(world: World, terms: dict[str, Any], message: str) -> None:
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.ConfigurationError, match=message):
            await run.ask("refund", **terms)


async def test_a_default_must_be_a_choice_and_a_payload_storable(world: World) -> None:
    async with world.store.run("t") as run:
        with pytest.raises(holdfast.InvalidAnswer):
            await run.ask("refund", choices=("a", "b"), deadline=1, default="c")
        with pytest.raises(holdfast.UnstorableValue, match="request 'refund'"):
            await run.ask("refund", object())


async def test_questions_are_paged_and_filtered(world: World) -> None:
    for number in range(5):
        await suspended(world, f"t{number}")
    page = await world.store.requests(limit=2)
    found = [request.thread_id for request in page]
    while page.next is not None:
        page = await world.store.requests(limit=2, cursor=page.next)
        found += [request.thread_id for request in page]
    assert sorted(found) == [f"t{number}" for number in range(5)]
    assert not await world.store.requests(status="expired")
    with pytest.raises(holdfast.ConfigurationError, match="open, answered, expired"):
        await world.store.requests(status="lost")


async def test_the_same_question_again_is_another_one(world: World) -> None:
    async def both(run: holdfast.Run) -> list[Any]:
        return [(await run.ask("more?")).value, (await run.ask("more?")).value]

    values = []
    for value in ("yes", "no"):
        with pytest.raises(holdfast.Suspended) as caught:
            async with world.store.run("t") as run:
                await both(run)
        await world.store.answer(caught.value.requests[0].id, value=value)
        values.append(value)
    async with world.store.run("t") as run:
        assert await both(run) == values


async def test_an_append_from_outside_hides_no_question(world: World) -> None:
    with pytest.raises(holdfast.Suspended):
        async with world.store.run("t") as run:
            await run.ask("go on?")
    await world.store.append("t", "notes", "seen")
    assert (await world.store.thread("t")).status == "input_required"
    assert len(await world.store.requests()) == 1


def test_an_imported_thread_lists_its_open_requests(tmp_path: Path) -> None:
    with sync.MemoryStore() as store, sync.MemoryStore() as other:
        with suppress(holdfast.Suspended), store.run("t") as run:
            run.ask("refund", {"amount": 40})
        store.export("t", tmp_path / "t.bundle")
        other.import_(tmp_path / "t.bundle")
        assert [request.name for request in other.requests().items] == ["refund"]
