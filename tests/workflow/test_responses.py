"""What is promised of responses: none is lost, none is stored before all are checked, and a call may be repeated."""

from collections.abc import Iterator
from typing import Any, Literal
from uuid import UUID

import pytest

from holdfast import (
    Conflict,
    ExecutorFailed,
    HoldfastWarning,
    IncompatibleCheckpoint,
    InvalidAnswer,
    OutcomeUnknown,
    StoreUnavailable,
    UnstorableValue,
)
from holdfast.stores.memory import MemoryBackend
from holdfast.sync import (
    Executor,
    MemoryStore,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
)

ID = UUID(int=7)


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with MemoryStore() as opened:
        yield opened


def asker(name: str, response_type: Any, taken: Any) -> Executor:
    """Asks as often as its message says; its handler takes what it is told."""

    class Asker(Executor):
        @handler
        def take(self, count: int, ctx: WorkflowContext[str, Any]) -> None:
            for number in range(count):
                ctx.request_info(f"q{number}", response_type)

        def answered(self, request: str, response: Any, ctx: WorkflowContext[str, Any]) -> None:
            ctx.yield_output((request, response))

    Asker.answered.__annotations__["response"] = taken
    response_handler(Asker.answered)
    return Asker(name)


def flow(store: MemoryStore, response_type: Any = None, taken: Any = Any) -> Workflow:
    return WorkflowBuilder(asker("asker", response_type, taken), store, name="w").build()


@pytest.mark.parametrize(
    ("response_type", "taken", "wrong", "right"),
    [
        (UUID, UUID, {"value": str(ID)}, {"value": ID}),
        (Literal["a", "b"], Literal["a"], {"choice": "b"}, {"choice": "a"}),
        (bool, Literal[True], {"choice": "reject"}, {"choice": "approve"}),
    ],
)
def test_an_answer_that_no_handler_takes_is_asked_for_again(
    store: MemoryStore, response_type: Any, taken: Any, wrong: dict[str, Any], right: dict[str, Any]
) -> None:
    workflow = flow(store, response_type, taken)
    (request,) = workflow.run(1, thread_id="t").requests
    for _ in range(2):
        store.answer(request.id, **wrong)
        with pytest.warns(HoldfastWarning, match=rf"{request.id} was .*'asker' only handles str -> .*asked again"):
            result = workflow.run(thread_id="t")
        (again,) = result.requests
        assert (result.status, again.payload, again.id != request.id) == ("input_required", "q0", True)
        assert [event.request_id for event in result.events if event.type == "request_info"] == [again.id]
        request = again
    store.answer(request.id, **right)
    ((_, response),) = workflow.run(thread_id="t").outputs
    assert response in {ID, "a", True}


def test_a_request_that_was_stored_without_a_response_type_is_asked_again(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = flow(store, int, int)
    with monkeypatch.context() as older_version:
        older_version.setattr("holdfast.runtimes.workflow.context.answer_types", lambda *_: b"")
        (request,) = workflow.run(1, thread_id="t").requests
    store.answer(request.id, value="abc")
    with pytest.warns(HoldfastWarning, match="a value of type str, but executor 'asker' only handles"):
        (again,) = workflow.run(thread_id="t").requests
    assert workflow.run(thread_id="t", responses={again.id: 7}).outputs == [("q0", 7)]


def test_choices_of_which_no_handler_takes_any_are_refused_when_they_are_asked_for(store: MemoryStore) -> None:
    with pytest.raises(ExecutorFailed, match="no @response_handler for a request of type str and a response of type"):
        flow(store, Literal["a", "b"], int).run(1)


def test_no_response_is_stored_before_all_are_encoded(store: MemoryStore) -> None:
    workflow = flow(store)
    first, second = (each.id for each in workflow.run(2, thread_id="t").requests)
    with pytest.raises(UnstorableValue):
        workflow.run(thread_id="t", responses={first: "yes", second: object()})
    assert [each.id for each in store.requests()] == [first, second]
    assert workflow.run(thread_id="t", responses={first: 1, second: 2}).outputs == [("q0", 1), ("q1", 2)]


class Unsteady:
    """Fails one post of an answer: before it is stored, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: int, error: Exception, *, is_stored: bool) -> None:
        self.count, post = 0, MemoryBackend.post

        def unsteady(backend: MemoryBackend, *args: Any) -> bool:
            self.count += 1
            left = post(backend, *args) if is_stored or self.count != failing else False
            if self.count == failing:
                raise error
            return left

        monkeypatch.setattr(MemoryBackend, "post", unsteady)


FAILURES = [(1, OutcomeUnknown("the reply was lost"), True), (2, StoreUnavailable("it is down"), False)]


@pytest.mark.parametrize("retry", [0, 1])
@pytest.mark.parametrize(("failing", "error", "is_stored"), FAILURES)
def test_the_same_responses_are_given_again_after_a_failure(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, failing: int, error: Exception, is_stored: bool, retry: int
) -> None:
    workflow = flow(store, bool, bool)
    responses = {each.id: True for each in workflow.run(2, thread_id="t").requests}
    Unsteady(monkeypatch, failing, error, is_stored=is_stored)
    if not retry:
        with pytest.raises(type(error)):
            workflow.run(thread_id="t", responses=responses)
    assert workflow.run(thread_id="t", responses=responses, retry=retry).outputs == [("q0", True), ("q1", True)]


def test_the_same_responses_are_taken_after_some_were_consumed_and_others_are_a_conflict(store: MemoryStore) -> None:
    workflow = flow(store, bool, bool)
    first, second = (each.id for each in workflow.run(2, thread_id="t").requests)
    assert workflow.run(thread_id="t", responses={first: True}).status == "input_required"
    with pytest.raises(Conflict, match="was answered already"):
        workflow.run(thread_id="t", responses={first: False, second: True})
    assert [each.id for each in store.requests()] == [second]
    done = workflow.run(thread_id="t", responses={first: True, second: False})
    assert done.outputs == [("q0", True), ("q1", False)]


def test_responses_that_a_fresh_start_would_withdraw_are_refused_before_anything_is_written(store: MemoryStore) -> None:
    @executor
    def more(text: str, ctx: WorkflowContext[None, str]) -> None: ...

    (request,) = flow(store).run(1, thread_id="t").requests
    start, row = asker("asker", None, Any), store.thread("t").seq
    fresh = WorkflowBuilder(start, store, name="w", on_incompatible="fresh").add_edge(start, more).build()
    with pytest.raises(IncompatibleCheckpoint, match="withdraw its requests; run it without responses"):
        fresh.run(thread_id="t", responses={request.id: 4})
    assert (store.thread("t").seq, [each.id for each in store.requests()]) == (row, [request.id])
    assert flow(store).run(thread_id="t", responses={request.id: 4}).outputs == [("q0", 4)]


def test_a_response_that_is_refused_leaves_the_ids_of_the_thread_as_they_were(store: MemoryStore) -> None:
    (request,) = flow(store, int, int).run(1, thread_id="t").requests
    builder = WorkflowBuilder(asker("other", int, int), store, name="w").migrate(renamed={"asker": "other"})
    with pytest.raises(InvalidAnswer):
        builder.build().run(thread_id="t", responses={request.id: "abc"})
    assert flow(store, int, int).run(thread_id="t", responses={request.id: 4}).outputs == [("q0", 4)]
