"""An argument of a wrong type or value is refused with an error of ours that names it; both worlds take the same."""

import inspect
import re
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import ConfigurationError, FailurePolicy, InvalidId, RecoveryAction, sync

NOT_A_NUMBER: tuple[Any, ...] = ("1", -1, True, float("nan"), float("inf"), [])
NOT_AN_INT: tuple[Any, ...] = ("1", -1, True, 1.5, [])
NOT_A_DURATION: tuple[Any, ...] = ("x", -1, True, timedelta(-1), float("nan"))
NOT_A_FUNCTION: tuple[Any, ...] = (5, "text", [])
AGENT: dict[str, tuple[Any, ...]] = {
    "policy": NOT_A_FUNCTION,
    "store": (5, "agents.db"),
    "auto_checkpoint": (None, 1, "yes"),
    "classifier": NOT_A_FUNCTION,
    "compensators": (5, ["undo"], {"undo": 5}, {5: len}),
    "max_recovery_attempts": NOT_AN_INT,
    "max_recovery_seconds": NOT_A_DURATION,
    "max_cost_usd": NOT_A_NUMBER,
    "max_tokens": NOT_AN_INT,
    "on_step": NOT_A_FUNCTION,
    "on_failure": NOT_A_FUNCTION,
    "on_recovery": NOT_A_FUNCTION,
    "lease": (*NOT_A_DURATION, 0, None),
    "wait": NOT_A_DURATION,
}


def cases(table: dict[str, tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(name, value, id=f"{name}={value!r}") for name, values in table.items() for value in values]


def worker(task: Any) -> Any:
    return task


@pytest.mark.parametrize(("name", "value"), cases(AGENT))
def test_an_agent_names_the_argument_that_is_wrong(name: str, value: Any) -> None:
    for module in (holdfast, sync):
        with pytest.raises(ConfigurationError, match=name):
            module.Agent(worker, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"), cases({"input_tokens": NOT_AN_INT, "output_tokens": NOT_AN_INT, "cost_usd": NOT_A_NUMBER})
)
def test_usage_is_made_of_counts_and_an_amount(name: str, value: Any) -> None:
    def spender(_task: str, *, record_usage: Any) -> None:
        with pytest.raises(ConfigurationError, match=name):
            record_usage(**{name: value})

    with sync.MemoryStore() as store:
        made = sync.Agent(spender, store=store)
        made.run("t", thread_id="t")
        assert made.summary("t").usage.tokens == 0


@pytest.mark.parametrize("thread_id", ["", 5])
def test_an_id_that_is_none_is_refused(thread_id: Any) -> None:
    with sync.MemoryStore() as store, pytest.raises(InvalidId):
        sync.Agent(worker, store=store).run("t", thread_id=thread_id)


def test_a_state_and_a_step_that_are_none_are_refused() -> None:
    def careless(_task: str, *, record_step: Any, replace_state: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"holdfast\.Step, not str"):
            record_step("looked")
        with pytest.raises(ConfigurationError, match="must be a dict, got list"):
            replace_state([])

    with sync.MemoryStore() as store:
        sync.Agent(careless, store=store).run("t")


@pytest.mark.parametrize("kind", ["bad luck", None, []])
def test_a_classifier_that_names_no_type_is_refused(kind: Any) -> None:
    def failing(_task: str) -> None:
        raise ValueError

    with sync.MemoryStore() as store, pytest.raises(ConfigurationError, match=re.escape(f"returned {kind!r}")):
        sync.Agent(failing, store=store, classifier=lambda _context: kind).run("t")


def test_a_compensator_that_is_none_is_refused() -> None:
    def careless(_task: str, *, record_step: Any, record_compensator: Any) -> None:
        record_step(holdfast.Step(action="book"))
        with pytest.raises(ConfigurationError, match="or a function, got 5"):
            record_compensator(5)

    with sync.MemoryStore() as store:
        sync.Agent(careless, store=store).run("t")


def test_both_agents_have_the_same_methods_and_signatures() -> None:
    for name in ("__init__", "run", "start", "stream", "resume", "summary"):
        awaitable, blocking = (inspect.signature(getattr(each, name)) for each in (holdfast.Agent, sync.Agent))
        assert [(p.name, p.kind, p.default) for p in awaitable.parameters.values()] == [
            (p.name, p.kind, p.default) for p in blocking.parameters.values()
        ]
        for each in (holdfast.Agent, sync.Agent):
            assert name == "__init__" or getattr(each, name).__doc__


def test_an_async_function_in_the_blocking_world_is_refused_with_the_name_of_its_twin() -> None:
    async def awaitable(task: str) -> str:
        return task

    policy = RecoveryAction.ESCALATE
    with sync.MemoryStore() as store, pytest.raises(holdfast.HoldfastError, match=r"use holdfast for async"):
        sync.Agent(awaitable, policy=policy, store=store)


def test_an_async_generator_in_the_blocking_world_is_refused_likewise() -> None:
    async def items(task: str) -> AsyncIterator[str]:
        yield task

    with sync.MemoryStore() as store, pytest.raises(ConfigurationError, match="use holdfast for async"):
        sync.Agent(items, store=store)


@pytest.mark.parametrize(
    ("field", "value"),
    [("action", 5), ("tool_called", 5), ("error", ValueError("x")), ("metadata", 5), ("idempotent", "yes")],
)
def test_a_step_that_no_tool_could_show_is_refused(field: str, value: Any) -> None:
    step: Any = holdfast.Step(**{field: value})
    with sync.MemoryStore() as store, store.run("t") as run:
        with pytest.raises(ConfigurationError, match=f"`{field}` of a Step must be"):
            run.record(step)
        assert run.steps == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: RecoveryAction.ROLLBACK(checkpoint_id=4),
        lambda: RecoveryAction.ROLLBACK(strict="yes"),
        lambda: RecoveryAction.RETRY(hint=5),
        lambda: RecoveryAction.ABORT(reason=5),
        lambda: holdfast.backoff_and_retry(base="x"),  # type: ignore[arg-type]
        lambda: holdfast.backoff_and_retry(longest=-1),
        lambda: holdfast.circuit_breaker(threshold=0),
        lambda: FailurePolicy.from_dict({"timeout": {"strategy": "backoff_and_retry", "base": "x"}}),
        lambda: FailurePolicy.from_dict({"timeout": {"action": "rollback", "checkpoint_id": 4}}),
        lambda: FailurePolicy.from_yaml("timeout: {action: ["),
    ],
)
def test_what_makes_no_sense_in_a_policy_is_refused_when_it_is_made(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError):
        make()
