"""What cannot work is refused when it is made, not at the first failure; and what is refused says what to give."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from agent.test_policy import decided, failing
from holdfast import (
    ConfigurationError,
    FailureContext,
    FailurePolicy,
    FailureType,
    RecoveryAction,
    RulesClassifier,
    Step,
    UnstorableValue,
    sync,
)

RETRY, ESCALATE = RecoveryAction.RETRY, RecoveryAction.ESCALATE
EVERY_KIND = ("retry", "replan", "rollback", "resume", "escalate", "suspend", "abort")
EVERY_MAKER = (
    holdfast.backoff_and_retry,
    holdfast.retry_with_hint,
    holdfast.replan,
    holdfast.rollback_to_checkpoint,
    holdfast.compensating_rollback,
    holdfast.resume_from_subgoal,
    holdfast.circuit_breaker,
)


def worker(task: Any) -> Any:
    return task


async def slowly(*_args: Any) -> Any:
    return RETRY


async def items(*_args: Any) -> AsyncIterator[Any]:
    yield RETRY


class Slow:
    async def __call__(self, *_args: Any) -> Any:
        return RETRY


EVERY_ASYNC = [
    pytest.param(slowly, id="async def"),
    pytest.param(items, id="async generator"),
    pytest.param(Slow(), id="async __call__"),
    pytest.param(partial(slowly, 1), id="partial"),
    pytest.param(partial(partial(Slow(), 1), 2), id="partial of async __call__"),
]


# Names in plain data


@pytest.mark.parametrize(
    ("plain", "kind"),
    [
        ("REPLAN", "replan"),
        ("Retry", "retry"),
        ("Backoff_And_Retry", "retry"),
        ({"strategy": "REPLAN"}, "replan"),
        ({"action": "ROLLBACK"}, "rollback"),
        ({"strategy": "Circuit_Breaker", "then": "REPLAN"}, "replan"),
        (["REPLAN", "Abort"], "replan"),
    ],
)
def test_names_of_strategies_and_actions_are_taken_in_any_case(plain: Any, kind: str) -> None:
    assert decided(FailurePolicy.from_dict({"default": plain})).kind == kind
    assert decided(FailurePolicy.from_yaml(f"default: {plain}")).kind == kind


@pytest.mark.parametrize("plain", [{"timeout": "retry", "TIMEOUT": "abort"}, {"self": "retry"}])
def test_a_type_that_is_given_twice_or_is_none_is_refused(plain: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=min(plain).lower()):
        FailurePolicy.from_dict(plain)


def test_a_circuit_breaker_in_plain_data_retries_or_does_what_then_says() -> None:
    breaker = {"strategy": "circuit_breaker", "threshold": 2}
    assert decided(FailurePolicy.from_dict({"default": breaker})).kind == "retry"
    policy = FailurePolicy.from_dict({"default": {**breaker, "then": {"action": "abort", "reason": "no"}}})
    assert decided(policy).reason == "no"
    assert decided(policy, earlier=(FailureType.UNKNOWN,)).kind == "escalate"
    assert "`then`" in str(holdfast.circuit_breaker.__doc__)


def test_the_document_shows_a_policy_that_can_be_read_and_signatures_that_are_so() -> None:
    document = (Path(__file__).parents[2] / "docs" / "agent.md").read_text(encoding="utf-8")
    policy = FailurePolicy.from_yaml(document.partition("```yaml\n")[2].partition("```")[0])
    assert decided(policy, type=FailureType.SCHEMA_MISMATCH).kind == "replan"
    assert decided(policy, type=FailureType.SCHEMA_MISMATCH, earlier=(FailureType.SCHEMA_MISMATCH,)).kind == "escalate"
    compensator = signature(holdfast.record_step).parameters["compensator"]
    assert compensator.kind is compensator.KEYWORD_ONLY
    assert "`record_step(step, *, compensator=None)`" in document


# Strategies


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: holdfast.retry_with_hint(5), "`hint` must be a str or a plain function"),  # type: ignore[arg-type]
        (lambda: holdfast.retry_with_hint(slowly), "a plain function"),  # type: ignore[arg-type]
        (lambda: holdfast.resume_from_subgoal(5), "`subgoal` must be a str or None"),  # type: ignore[arg-type]
        (lambda: holdfast.circuit_breaker(5), "strategy must be a RecoveryAction"),
        (lambda: holdfast.circuit_breaker(holdfast.replan), "call it"),
        (lambda: holdfast.backoff_and_retry(hint=5), "`hint` must be a str, got 5"),  # type: ignore[arg-type]
        (lambda: holdfast.backoff_and_retry(longest=1e12), "`longest` must be .* to a thousand years"),
        (
            lambda: FailurePolicy.from_dict({"default": {"strategy": "retry_with_hint", "hint": 5}}),
            "`hint` must be a str",
        ),
        (lambda: FailurePolicy.from_yaml("default: {strategy: retry_with_hint, hint: 5}"), "`hint` must be a str"),
        (
            lambda: FailurePolicy.from_yaml("default: {strategy: resume_from_subgoal, subgoal: 5}"),
            "`subgoal` must be a str",
        ),
        (lambda: FailurePolicy.from_yaml("default: {strategy: circuit_breaker, then: 5}"), "unknown strategy 5"),
    ],
)
def test_a_strategy_that_would_fail_at_the_first_failure_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make()


@pytest.mark.parametrize("maker", EVERY_MAKER)
def test_a_strategy_that_was_not_called_is_refused(maker: Any) -> None:
    for module in (holdfast, sync):
        with pytest.raises(ConfigurationError, match=rf"policy must be a strategy.*call it, {maker.__name__}\("):
            module.Agent(worker, policy=maker)
    with pytest.raises(ConfigurationError, match=r"default must be a strategy.*call it"):
        FailurePolicy(default=maker)
    with pytest.raises(ConfigurationError, match=r"chain must be a strategy.*call it"):
        FailurePolicy.chain(maker)


@pytest.mark.parametrize("cls", [FailurePolicy, RecoveryAction])
def test_a_class_is_no_policy(cls: Any) -> None:
    for module in (holdfast, sync):
        with pytest.raises(ConfigurationError, match=rf"policy must be a strategy.*call it, {cls.__name__}\("):
            module.Agent(worker, policy=cls)


def test_a_strategy_that_returns_a_maker_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="call it"):
        decided(lambda _context: holdfast.replan)


# Actions


@pytest.mark.parametrize("kind", ["foo", "RETRY", "", None, 5, []])
def test_an_action_of_no_kind_is_refused_when_it_is_made(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be one of retry, replan"):
        RecoveryAction(kind=kind)


@pytest.mark.parametrize(
    ("name", "value"),
    [("hint", 5), ("delay", -1), ("delay", "x"), ("checkpoint_id", 5), ("strict", 1), ("undo", None), ("reason", [])],
)
def test_an_action_made_by_hand_is_checked_as_one_that_is_called(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^`?{name}\b"):
        RecoveryAction(kind="retry", **{name: value})


def test_a_delay_is_in_seconds_however_it_is_given() -> None:
    assert RecoveryAction(kind="retry", delay=timedelta(minutes=1)) == RETRY(delay=60)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_an_action_that_was_stored_is_read_back_as_it_was(kind: str) -> None:
    action = RecoveryAction.named(kind)
    assert msgspec.convert(msgspec.structs.asdict(action), RecoveryAction) == action
    assert repr(action) == f"RecoveryAction.{kind.upper()}()"


def test_the_options_of_a_stored_action_are_read_back() -> None:
    for action in (RETRY(hint="h", delay=1.5), RecoveryAction.ROLLBACK(checkpoint_id="t@1.ab", strict=True)):
        assert msgspec.convert(msgspec.structs.asdict(action), RecoveryAction) == action


# The classifier


@pytest.mark.parametrize("own", ["weird", 5, [], FailureType, object()])
def test_a_foreign_failure_type_of_an_error_is_ignored(own: Any) -> None:
    error = TimeoutError("late")
    error.failure_type = own  # type: ignore[attr-defined]
    assert RulesClassifier()(failing(error)) is FailureType.TIMEOUT


def test_the_real_error_is_not_lost_behind_a_foreign_failure_type() -> None:
    class Foreign(Exception):
        failure_type = "weird"

    def broken(_task: str) -> None:
        raise Foreign("the reason")

    with sync.MemoryStore() as store, pytest.raises(holdfast.Escalated, match="Foreign: the reason"):
        sync.Agent(broken, store=store).run("t")


def test_a_failure_type_of_an_error_may_be_a_plain_word() -> None:
    error = ValueError("late")
    error.failure_type = "loop_detected"  # type: ignore[attr-defined]
    assert RulesClassifier()(failing(error)) is FailureType.LOOP_DETECTED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rules", 5),
        ("rules", [5]),
        ("rules", [(len,)]),
        ("rules", [(5, FailureType.TIMEOUT)]),
        ("rules", [(len, "weird")]),
        ("rules", [(slowly, FailureType.TIMEOUT)]),
        ("exceptions", [ValueError]),
        ("exceptions", {"ValueError": FailureType.TIMEOUT}),
        ("exceptions", {ValueError: "weird"}),
        ("exceptions", {ValueError(): FailureType.TIMEOUT}),
        ("loop_window", "3"),
        ("loop_window", -1),
        ("loop_window", None),
        ("loop_similarity", "1"),
        ("loop_similarity", -0.5),
        ("loop_similarity", 90),
        ("allowed_tools", "web"),
        ("allowed_tools", 5),
        ("allowed_tools", [5]),
        ("constraints", len),
        ("constraints", [5]),
        ("constraints", [Slow()]),
        ("schemas", [len]),
        ("schemas", {"web": 5}),
        ("schemas", {5: len}),
        ("schemas", {"web": slowly}),
        ("required_actions", "call"),
        ("required_actions", None),
        ("required_actions", [5]),
    ],
)
def test_a_classifier_names_the_argument_that_is_wrong(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^`?{name}\b"):
        RulesClassifier(**{name: value})


def test_a_classifier_takes_collections_of_any_kind_and_types_by_their_words() -> None:
    words: Any = "timeout"
    rules = RulesClassifier(
        rules=[(lambda context: context.message == "rule", words)],
        exceptions={KeyError: words},
        allowed_tools={"web": 1}.keys(),
        required_actions=frozenset({"call"}),
        schemas={"web": dict},
    )
    assert rules(failing(ValueError("rule"))) is FailureType.TIMEOUT
    assert rules(failing(KeyError())) is FailureType.TIMEOUT
    assert rules(failing(ValueError())) is FailureType.PLAN_INCOMPLETE
    steps = [Step(action="call", tool_called="web", tool_output={"a": 1})]
    assert rules(failing(ValueError(), steps=steps)) is FailureType.UNKNOWN


# YAML


@pytest.mark.parametrize("text", ["false", "[]", "0", "''", "retry"])
def test_yaml_that_is_no_mapping_is_no_policy(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a policy must map failure types"):
        FailurePolicy.from_yaml(text)


@pytest.mark.parametrize("text", ["", "# nothing yet", "{}"])
def test_yaml_without_anything_is_a_policy_without_anything(text: str) -> None:
    assert decided(FailurePolicy.from_yaml(text)) == ESCALATE


def test_a_policy_that_cannot_be_read_says_which(tmp_path: Path) -> None:
    missing, latin = tmp_path / "missing.yaml", tmp_path / "latin.yaml"
    latin.write_bytes("default: {action: abort, reason: für}".encode("latin-1"))
    for source in (missing, str(missing), latin, tmp_path):
        with pytest.raises(ConfigurationError, match=rf"cannot read the policy .*{Path(source).name}"):
            FailurePolicy.from_yaml(source)


@pytest.mark.parametrize("source", [b"default: retry", None, 5, {"default": "retry"}])
def test_a_policy_is_read_from_a_path_or_a_text(source: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"`source` must be a path or YAML text, got {type(source).__name__}"):
        FailurePolicy.from_yaml(source)


@pytest.mark.parametrize(
    "text",
    [
        "timeout: retry\ntimeout: abort",
        "default: retry\n'default': abort",
        "timeout: retry\nTIMEOUT: abort",
        "timeout: {action: retry, hint: a, hint: b}",
        "timeout: [retry, {action: retry, action: abort}]",
        "timeout: {strategy: circuit_breaker, then: {action: retry, delay: 1, delay: 2}}",
    ],
)
def test_a_key_that_is_given_twice_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="twice; remove one"):
        FailurePolicy.from_yaml(text)


def test_a_part_of_a_policy_may_be_used_twice() -> None:
    policy = FailurePolicy.from_yaml(
        "timeout: &wait {action: retry, delay: 2}\nunknown: *wait\ndefault: [*wait, *wait]"
    )
    assert {decided(policy, type=each).delay for each in FailureType} == {2}


def test_a_value_that_yaml_cannot_make_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not valid YAML"):
        FailurePolicy.from_yaml("default: 2026-99-99")


# Async functions in the blocking world


@pytest.mark.parametrize("name", ["classifier", "on_step", "on_failure", "on_recovery", "policy"])
@pytest.mark.parametrize("function", EVERY_ASYNC)
def test_a_blocking_agent_refuses_async_functions(name: str, function: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name}: .*async.*\(use holdfast for async ones\)"):
        sync.Agent(worker, **{name: function})
    holdfast.Agent(worker, **{name: function})


@pytest.mark.parametrize("function", EVERY_ASYNC)
def test_a_blocking_agent_refuses_an_async_function_and_async_compensators(function: Any) -> None:
    with pytest.raises(ConfigurationError, match="use holdfast for async ones"):
        sync.Agent(function)
    with pytest.raises(ConfigurationError, match=r"^compensators: .*use holdfast for async ones"):
        sync.Agent(worker, compensators={"plain": worker, "undo": function})


@pytest.mark.parametrize(
    "policy",
    [
        FailurePolicy(timeout=slowly),
        FailurePolicy(default=slowly),
        FailurePolicy.sequence(RETRY, slowly),
        FailurePolicy.chain(FailurePolicy(default=FailurePolicy.sequence(slowly)), RETRY),
        holdfast.circuit_breaker(slowly),
        FailurePolicy(default=holdfast.circuit_breaker(FailurePolicy.chain(Slow()))),
    ],
)
def test_a_blocking_agent_finds_async_functions_deep_within_a_policy(policy: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^policy: .*use holdfast for async ones"):
        sync.Agent(worker, policy=policy)
    holdfast.Agent(worker, policy=policy)


def test_a_blocking_agent_takes_plain_functions_of_any_kind() -> None:
    class Plain:
        def __call__(self, *_args: Any) -> Any:
            return ESCALATE

    class OfOnesOwn(FailurePolicy):
        def __init__(self) -> None:
            """It decides by itself."""

        def for_type(self, failure: FailureType) -> Any:
            return RETRY(hint=failure.value)

    for policy in (Plain(), partial(Plain(), 1), lambda _context: RETRY, OfOnesOwn(), holdfast.circuit_breaker()):
        sync.Agent(worker, policy=policy, on_step=print, on_failure=Plain(), compensators={"undo": partial(print)})


# The decorator


def test_the_decorator_needs_no_parentheses() -> None:
    @holdfast.agent
    async def awaitable(task: str) -> str:
        return task

    @holdfast.agent()
    async def called(task: str) -> str:
        return task

    @sync.agent
    def blocking(task: str) -> str:
        return task

    @sync.agent(max_tokens=5)
    def with_options(task: str) -> str:
        return task

    agents: list[holdfast.Agent] = [awaitable, called]
    twins: list[sync.Agent] = [blocking, with_options]
    assert [each.name.rpartition(".")[2] for each in agents] == ["awaitable", "called"]
    assert [each.name.rpartition(".")[2] for each in twins] == ["blocking", "with_options"]


def test_an_agent_of_a_bare_decorator_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @sync.agent
    def blocking(task: str) -> str:
        return task * 2

    assert blocking.run("kelp ", thread_id="t") == "kelp kelp "


@pytest.mark.parametrize("module", [holdfast, sync])
def test_what_is_no_function_is_no_agent(module: Any) -> None:
    with pytest.raises(ConfigurationError, match="an agent must be a function, got FailurePolicy"):
        module.agent(FailurePolicy())


# What is recorded


class Doubtful:
    """As an array: to compare it gives another of its kind, which is neither true nor false."""

    def __eq__(self, other: object) -> Any:
        return self

    def __ne__(self, other: object) -> Any:
        return self

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("the truth value of this is ambiguous")


@pytest.mark.parametrize("field", ["tool_input", "tool_output", "llm_output"])
def test_a_value_that_cannot_be_compared_is_refused_as_one_that_cannot_be_stored(field: str) -> None:
    calls = []
    said: dict[str, Any] = {field: Doubtful()}

    def careless(_task: str, *, record_step: Any) -> None:
        calls.append(field)
        record_step(Step(**said))

    with sync.MemoryStore() as store:
        with pytest.raises(UnstorableValue, match="Doubtful"):
            sync.Agent(careless, policy=RETRY, store=store).run("t")
        assert calls == [field]
        with store.run("other") as run, pytest.raises(UnstorableValue, match="Doubtful"):
            run.record(Step(**said))


def test_what_a_step_leaves_at_its_default_is_read_back_as_that() -> None:
    steps = [Step(), Step(metadata={}, action=""), Step(tool_output=0, tool_input=False, llm_output="")]
    with sync.MemoryStore() as store, store.run("t") as run:
        for step in steps:
            run.record(step)
        assert [msgspec.structs.replace(each, index=0) for each in run.steps] == steps


def test_what_is_no_step_is_refused_in_words_that_fit_every_caller() -> None:
    said = r"^a record must be a holdfast\.Step, not str"

    def careless(_task: str, *, record_step: Any) -> None:
        with pytest.raises(ConfigurationError, match=said):
            record_step("looked")

    with sync.MemoryStore() as store:
        sync.Agent(careless, store=store).run("t")
        with store.run("other") as run, pytest.raises(ConfigurationError, match=said):
            run.record("looked")  # type: ignore[arg-type]


def test_an_async_policy_still_decides_in_the_async_world() -> None:
    async def once(context: FailureContext) -> RecoveryAction:
        return RETRY(hint=context.message)

    calls: list[Any] = []

    async def failing_once(task: str, *, recovery: Any = None) -> str:
        calls.append(recovery)
        if recovery is None:
            raise ValueError("again")
        return f"{task} {recovery.hint}"

    async def main() -> Any:
        async with holdfast.MemoryStore() as store:
            policy = FailurePolicy(default=holdfast.circuit_breaker(once))
            return await holdfast.Agent(failing_once, policy=policy, store=store).run("kelp")

    assert asyncio.run(main()) == "kelp again"
    assert len(calls) == 2
