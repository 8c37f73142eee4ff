"""Requests to the outside: stored with the superstep, seen by every tool, answered once, delivered once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from msgspec import Struct
from pydantic import BaseModel

from holdfast import (
    ConfigurationError,
    Conflict,
    Executor,
    ExecutorFailed,
    IncompatibleCheckpoint,
    InvalidAnswer,
    LimitExceeded,
    Limits,
    NotFound,
    WorkflowContext,
    WorkflowExecutor,
    ask,
    handler,
    response_handler,
    sleep,
)
from holdfast.codec import registry
from holdfast.codec.limits import refuse_excess
from holdfast.history import journal
from holdfast.runtimes.workflow.snapshot import Pending
from runs.worlds import BlockingWorld, World
from workflow.flows import Builder, Flow, types_of

calls: list[str] = []


@pytest.fixture(autouse=True)
def _new_world() -> None:
    calls.clear()


@dataclass
class Ask:
    amount: int


class Approver(Executor):
    """Asks for each amount, and yields what was said."""

    @handler
    async def take(self, amounts: list[int], ctx: WorkflowContext[Any, str]) -> None:
        calls.append("asked")
        for amount in amounts:
            await ctx.request_info(Ask(amount), bool)

    @response_handler
    async def answered(self, request: Ask, response: bool, ctx: WorkflowContext[Any, str]) -> None:
        calls.append(f"answered {request.amount}")
        await ctx.yield_output(f"{request.amount}: {response}")


def approval(world: World) -> Flow:
    return Builder(world, Approver("approver"), name="approval").build()


async def test_a_request_suspends_the_thread_until_it_is_answered(world: World) -> None:
    result = await approval(world).run([40], thread_id="t")
    assert (result.status, result.outputs) == ("input_required", [])
    (request,) = result.requests
    assert (request.name, request.payload, request.choices) == ("approver", Ask(40), ("approve", "reject"))
    assert (await world.store.thread("t")).status == "input_required"
    (event,) = [each for each in result.events if each.type == "request_info"]
    assert (event.data, event.executor_id, event.request_id) == (Ask(40), "approver", request.id)
    again = await approval(world).run(thread_id="t")
    assert (again.status, again.requests) == ("input_required", result.requests)
    done = await approval(world).run(thread_id="t", responses={request.id: True})
    assert (done.status, done.outputs, done.requests) == ("complete", ["40: True"], ())
    assert calls == ["asked", "answered 40"]


async def test_a_request_is_in_the_inbox_of_the_store_and_may_be_answered_there(world: World) -> None:
    await approval(world).run([40], thread_id="t")
    (request,) = list(await world.store.requests())
    await world.store.answer(request.id, "reject", by="ana")
    result = await approval(world).run([40], thread_id="t")
    assert result.outputs == ["40: False"]


async def test_a_request_is_answered_once(world: World) -> None:
    flow = approval(world)
    (request,) = (await flow.run([40], thread_id="t")).requests
    await world.store.answer(request.id, "approve")
    with pytest.raises(Conflict, match="answered already"):
        await flow.run(thread_id="t", responses={request.id: False})
    assert (await flow.run(thread_id="t")).outputs == ["40: True"]
    with pytest.raises(Conflict):
        await flow.run(thread_id="t", responses={request.id: False})
    assert calls == ["asked", "answered 40"]


async def test_requests_may_be_answered_one_by_one_and_outputs_are_those_of_all_runs(world: World) -> None:
    flow = approval(world)
    requests = (await flow.run([1, 2, 3], thread_id="t")).requests
    first = await flow.run(thread_id="t", responses={requests[1].id: True})
    assert (first.status, first.outputs, len(first.requests)) == ("input_required", ["2: True"], 2)
    last = await flow.run(thread_id="t", responses={requests[0].id: True, requests[2].id: False})
    assert (last.status, last.outputs) == ("complete", ["2: True", "1: True", "3: False"])


async def test_a_response_of_the_wrong_type_is_refused_before_it_is_used_up(world: World) -> None:
    flow = approval(world)
    (request,) = (await flow.run([40], thread_id="t")).requests
    with pytest.raises(InvalidAnswer, match="request 'approver' takes one of 'approve', 'reject', not 'yes'"):
        await flow.run(thread_id="t", responses={request.id: "yes"})
    with pytest.raises(NotFound):
        await flow.run(thread_id="t", responses={f"{request.id}0": True})
    assert (await flow.run(thread_id="t", responses={request.id: True})).outputs == ["40: True"]


class Asker(Executor):
    @handler
    async def take(self, kind: str, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.request_info(kind, Literal["red", "blue"] if kind == "choice" else int)

    @response_handler
    async def word(self, request: str, response: str, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(f"{request}: {response}")

    @response_handler
    async def number(self, request: str, response: int, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(f"{request} + {response}")


async def test_a_literal_is_a_choice_and_any_other_response_a_value(world: World) -> None:
    flow = Builder(world, Asker()).build()
    (request,) = (await flow.run("choice", thread_id="c")).requests
    assert request.choices == ("red", "blue")
    assert (await flow.run(thread_id="c", responses={request.id: "blue"})).outputs == ["choice: blue"]
    (request,) = (await flow.run("value", thread_id="v")).requests
    assert request.choices == ()
    assert (await flow.run(thread_id="v", responses={request.id: 7})).outputs == ["value + 7"]


async def test_an_answer_of_another_type_than_the_response_type_is_refused_and_the_request_stays_open(
    world: World,
) -> None:
    """`word` would take it."""
    flow = Builder(world, Asker()).build()
    (request,) = (await flow.run("value", thread_id="t")).requests
    refusal = f"request {request.id} of 'Asker' takes a value of type int, not 'abc'"
    with pytest.raises(InvalidAnswer, match=refusal):
        await world.store.answer(request.id, value="abc")
    with pytest.raises(InvalidAnswer, match=refusal):
        await flow.run(thread_id="t", responses={request.id: "abc"})
    assert (await flow.run(thread_id="t")).requests == (request,)
    await world.store.answer(request.id, value=7)
    assert (await flow.run(thread_id="t")).outputs == ["value + 7"]


@dataclass
class Decision:
    is_granted: bool
    reasons: list[str]


class Verdict(Struct):
    is_granted: bool
    reasons: list[str]


class Ruling(BaseModel):
    is_granted: bool
    reasons: list[str]


class Judge(Executor):
    """Asks for an object of a class that is not named in any annotation."""

    def __init__(self, kind: Any) -> None:
        super().__init__("judge")
        self.kind = kind

    @handler
    async def take(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.request_info(text, self.kind)

    @response_handler
    async def answered(self, request: str, response: Any, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(f"{type(response).__name__}: {response.reasons[0]}")


@pytest.mark.parametrize("kind", [Decision, Verdict, Ruling])
async def test_an_object_may_be_answered_with_its_fields_as_json_has_them(world: World, kind: type) -> None:
    flow = Builder(world, Judge(kind)).build()
    (request,) = (await flow.run("x", thread_id="t")).requests
    for wrong in ({"is_granted": True}, {"is_granted": True, "reasons": "none"}, 5):
        with pytest.raises(InvalidAnswer, match=rf"of 'judge' takes a value of type {kind.__name__}\(.*\), not "):
            await world.store.answer(request.id, value=wrong)
    await world.store.answer(request.id, value={"is_granted": True, "reasons": ["it is broken"]})
    assert (await flow.run(thread_id="t")).outputs == [f"{kind.__name__}: it is broken"]


async def test_a_program_that_does_not_know_the_class_of_a_response_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Builder(world, Judge(Decision)).build()
    (request,) = (await flow.run("x", thread_id="t")).requests
    with monkeypatch.context() as other_program:
        other_program.setattr(registry, "_entry_named", lambda _name: None)
        with pytest.raises(InvalidAnswer, match=r"takes a value of type Decision.*is not registered in this program"):
            await world.store.answer(request.id, value={"is_granted": True, "reasons": []})
    assert (await flow.run(thread_id="t")).requests == (request,)


async def test_a_response_type_that_no_handler_takes_is_refused_when_it_is_asked_for(world: World) -> None:
    class Mistaken(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.request_info(text, int)

        @response_handler
        async def answered(self, request: str, response: str, ctx: WorkflowContext[Any, str]) -> None: ...

    with pytest.raises(
        ExecutorFailed, match="no @response_handler for a request of type str and a response of type int"
    ):
        await Builder(world, Mistaken()).build().run("x")


async def test_without_a_response_type_an_answer_is_what_the_handlers_take(world: World) -> None:
    class Open(Asker):
        @handler
        async def take(self, kind: str, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.request_info(kind)

    flow = Builder(world, Open()).build()
    (request,) = (await flow.run("x", thread_id="t")).requests
    with pytest.raises(InvalidAnswer, match=r"takes a value of type str \| int, not 1.5"):
        await flow.run(thread_id="t", responses={request.id: 1.5})
    assert (await flow.run(thread_id="t", responses={request.id: 7})).outputs == ["x + 7"]


async def test_responses_are_taken_all_or_none(world: World) -> None:
    flow = approval(world)
    first, second, third = (await flow.run([1, 2, 3], thread_id="t")).requests
    await world.store.answer(first.id, "approve")
    for wrong, error in ({second.id: True, first.id: False}, Conflict), ({second.id: True, third.id: 5}, InvalidAnswer):
        with pytest.raises(error):
            await flow.run(thread_id="t", responses=wrong)
    assert [each.id for each in (await world.store.outcome("t")).requests] == [second.id, third.id]


async def test_responses_for_a_thread_of_another_graph_are_not_taken(world: World) -> None:
    (request,) = (await approval(world).run([40], thread_id="t")).requests
    changed = Builder(world, Approver("other"), name="approval").build()
    with pytest.raises(IncompatibleCheckpoint):
        await changed.run(thread_id="t", responses={request.id: True})
    assert (await approval(world).run(thread_id="t")).requests == (request,)


def test_a_request_that_was_stored_without_a_response_type_is_read() -> None:
    assert Pending.of(["judge", "x", [], False]) == Pending("judge", "x")


async def test_a_request_without_a_response_handler_is_refused(world: World) -> None:
    class Silent(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.request_info(text, str)

    with pytest.raises(ExecutorFailed, match="'Silent' has no @response_handler for a request of type str"):
        await Builder(world, Silent()).build().run("x")


async def test_the_request_of_a_sub_workflow_survives_and_is_answered_once(world: World) -> None:
    def built() -> Flow:
        inner = WorkflowExecutor(approval(world).inner, id="sub")
        return Builder(world, inner, name="outer").build()

    (request,) = (await built().run([40], thread_id="t")).requests
    assert request.name == "sub/approver"
    result = await built().run(thread_id="t", responses={request.id: True})
    assert (result.status, result.outputs) == ("complete", ["40: True"])
    with pytest.raises(Conflict):
        await built().run(thread_id="t", responses={request.id: True})
    assert calls == ["asked", "answered 40"]


async def test_a_fork_asks_the_open_requests_for_itself(world: World) -> None:
    flow = approval(world)
    (request,) = (await flow.run([40], thread_id="t")).requests
    waiting = await flow.latest()
    assert [each["data"] for each in waiting.pending_request_info_events.values()] == [Ask(40)]
    await flow.run(thread_id="t", responses={request.id: True})
    forked = await flow.run(checkpoint_id=waiting.checkpoint_id)
    assert forked.thread_id != "t"
    (other,) = forked.requests
    assert other.id != request.id
    done = await flow.run(thread_id=forked.thread_id, responses={other.id: False})
    assert done.outputs == ["40: False"]


async def test_a_handler_may_also_ask_in_the_middle(world: World) -> None:
    question: Any = world.api.ask if isinstance(world, BlockingWorld) else ask

    class Direct(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
            answer = await question("really", text, choices=("yes", "no"))
            await ctx.yield_output(f"{text}: {answer.choice}")

    flow = Builder(world, Direct()).build()
    result = await flow.run("x", thread_id="t")
    assert (result.status, [each.name for each in result.requests]) == ("input_required", ["really"])
    await world.store.answer(result.requests[0].id, "yes")
    done = await flow.run(thread_id="t")
    assert (done.outputs, types_of(done.events)[-1]) == (["x: yes"], "status")


async def test_a_handler_may_sleep_for_hours_and_the_thread_is_at_work_meanwhile(world: World) -> None:
    pause: Any = world.api.sleep if isinstance(world, BlockingWorld) else sleep

    class Patient(Executor):
        @handler
        async def take(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
            calls.append(text)
            await pause(7200)
            await ctx.yield_output(text)

    flow = Builder(world, Patient()).build()
    result = await flow.run("x", thread_id="t")
    assert (result.status, result.requests, result.events[-1].data) == ("working", (), "working")
    world.clock.advance(7200)
    assert (await flow.run(thread_id="t")).outputs == ["x"]
    assert calls == ["x", "x"]


class Either(Executor):
    """Asks for a word or for a bool, and takes any response."""

    @handler
    async def take(self, kind: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.request_info(kind, Literal["approve", "reject"] if kind == "word" else bool)

    @response_handler
    async def answered(self, request: str, response: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output(response)


@pytest.mark.parametrize(
    ("kind", "response", "expected"),
    [("word", "reject", "reject"), ("word", "approve", "approve"), ("bool", "reject", False), ("bool", True, True)],
)
async def test_reject_is_never_taken_for_approve(world: World, kind: str, response: Any, expected: Any) -> None:
    flow = Builder(world, Either()).build()
    (request,) = (await flow.run(kind, thread_id="t")).requests
    with pytest.raises(InvalidAnswer):
        await flow.run(thread_id="t", responses={request.id: "rejected"})
    assert (await flow.run(thread_id="t", responses={request.id: response})).outputs == [expected]


async def test_a_response_to_a_request_of_another_thread_is_refused(world: World) -> None:
    flow = approval(world)
    (request,) = (await flow.run([40], thread_id="t")).requests
    await flow.run([40], thread_id="u")
    with pytest.raises(ConfigurationError, match="is of another thread than 'u'; run that one"):
        await flow.run(thread_id="u", responses={request.id: True})
    assert (await flow.run(thread_id="t")).status == "input_required"


async def test_what_was_asked_before_a_fresh_start_is_closed(world: World) -> None:
    (old,) = (await approval(world).run([40], thread_id="t")).requests
    fresh = Builder(world, Approver("other"), name="approval", on_incompatible="fresh").build()
    (request,) = (await fresh.run(thread_id="t")).requests
    assert request.name == "other"
    with pytest.raises(Conflict):
        await fresh.run(thread_id="t", responses={old.id: True})
    assert (await fresh.run(thread_id="t", responses={request.id: True})).outputs == ["40: True"]


class Greedy(Executor):
    @handler
    async def take(self, amounts: list[int], ctx: WorkflowContext[Any, str]) -> None:
        for amount in amounts:
            await ctx.request_info([Ask(amount)] * 500)

    @response_handler
    async def answered(self, request: list[Ask], response: str, ctx: WorkflowContext[Any, str]) -> None: ...


async def test_more_requests_than_could_be_listed_are_refused_when_they_are_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_early(encodings: Sequence[bytes], _limits: Limits, what: str) -> None:
        refuse_excess(encodings, Limits(memory=200_000), what)

    monkeypatch.setattr(journal, "refuse_together", refuse_early)
    with pytest.raises(LimitExceeded, match="the list of 9 requests of 't'"):
        await Builder(world, Greedy("greedy")).build().run([1] * 9, thread_id="t")
    assert (await world.store.outcome("t")).requests == ()
