"""Policies, strategies and the rules that classify failures: what they decide, without a store."""

import asyncio
import json
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import FailureContext, FailurePolicy, FailureType, RecoveryAction, RulesClassifier, Step
from holdfast.runtimes.agent.policy import decide

RETRY, ROLLBACK, ESCALATE, ABORT = (
    RecoveryAction.RETRY,
    RecoveryAction.ROLLBACK,
    RecoveryAction.ESCALATE,
    RecoveryAction.ABORT,
)


def failing(error: BaseException | None = None, **fields: Any) -> FailureContext:
    return FailureContext(error=error, message=str(error or ""), error_type=type(error).__name__, **fields)


def decided(strategy: Any, context: FailureContext | None = None, **fields: Any) -> RecoveryAction:
    async def call(function: Any, *args: Any) -> Any:
        result = function(*args)
        return await result if asyncio.iscoroutine(result) else result

    return asyncio.run(decide(strategy, context or failing(**fields), call))


def test_a_policy_has_a_strategy_for_each_type_and_a_default() -> None:
    policy = FailurePolicy(external_fault=ROLLBACK, timeout=RETRY(delay=2), default=ABORT(reason="no"))
    assert decided(policy, type=FailureType.EXTERNAL_FAULT) == ROLLBACK
    assert decided(policy, type=FailureType.TIMEOUT).delay == 2
    assert decided(policy, type=FailureType.UNKNOWN).reason == "no"
    assert decided(FailurePolicy()) == ESCALATE
    for each in FailureType:
        assert decided(FailurePolicy(**{each.value: RETRY, "default": ABORT}), type=each) == RETRY


def test_a_sequence_takes_the_nth_strategy_at_the_nth_failure_and_then_the_last() -> None:
    policy = FailurePolicy.sequence(RETRY, ROLLBACK, ESCALATE)
    kinds = [decided(policy, attempt=number).kind for number in range(1, 6)]
    assert kinds == ["retry", "rollback", "escalate", "escalate", "escalate"]


def test_a_chain_goes_on_when_a_strategy_escalates() -> None:
    breaker = holdfast.circuit_breaker(RETRY, threshold=2)
    policy = FailurePolicy.chain(breaker, ROLLBACK)
    assert decided(policy).kind == "retry"
    assert decided(policy, earlier=(FailureType.UNKNOWN,), attempt=2).kind == "rollback"
    assert decided(FailurePolicy.chain(ESCALATE, ESCALATE(message="last"))).message == "last"


def test_a_strategy_is_an_action_called_or_not_or_a_function_plain_or_async() -> None:
    async def slowly(context: FailureContext) -> RecoveryAction:
        return RETRY(hint=context.message)

    assert decided(RETRY) == decided(RETRY()) == RETRY
    assert decided(slowly, failing(ValueError("why"))).hint == "why"
    assert decided(lambda _context: ROLLBACK).kind == "rollback"
    with pytest.raises(holdfast.ConfigurationError, match="result of a strategy must be a RecoveryAction"):
        decided(lambda _context: 5)


def test_the_ready_strategies() -> None:
    backoff = holdfast.backoff_and_retry(base=1, factor=3, longest=5)
    assert [decided(backoff, attempt=number).delay for number in (1, 2, 3)] == [1, 3, 5]
    assert decided(holdfast.retry_with_hint("use JSON")).hint == "use JSON"
    assert decided(holdfast.retry_with_hint(lambda context: context.message), failing(ValueError("x"))).hint == "x"
    assert decided(holdfast.replan()).kind == "replan"
    assert decided(holdfast.rollback_to_checkpoint("t@1.ab")).checkpoint_id == "t@1.ab"
    assert decided(holdfast.compensating_rollback()).strict
    steps = [Step(action="a", metadata={"subgoal": "find"}), Step(action="b", metadata={"subgoal": "buy"}), Step()]
    assert decided(holdfast.resume_from_subgoal(), steps=steps).from_subgoal == "buy"
    assert decided(holdfast.resume_from_subgoal("find"), steps=steps).from_subgoal == "find"
    assert decided(holdfast.resume_from_subgoal()).from_subgoal == ""


def test_a_wait_grows_no_longer_than_the_longest_however_often_it_failed() -> None:
    strategy = holdfast.backoff_and_retry(base=1, longest=30)
    assert [decided(strategy, attempt=attempt).delay for attempt in (1, 3, 5000)] == [1, 4, 30]


def test_a_circuit_breaker_counts_failures_of_one_type_in_a_row() -> None:
    timeout, fault = FailureType.TIMEOUT, FailureType.EXTERNAL_FAULT
    breaker = holdfast.circuit_breaker(RETRY, threshold=3)
    assert decided(breaker, type=timeout, earlier=(timeout, timeout)).kind == "escalate"
    assert decided(breaker, type=timeout, earlier=(timeout, fault, timeout)).kind == "retry"


@pytest.mark.parametrize("read", [FailurePolicy.from_dict, None])
def test_a_policy_from_plain_data(read: Any, tmp_path: Path) -> None:
    plain = {
        "external_fault": {"action": "rollback", "hint": "h"},
        "TIMEOUT": {"strategy": "backoff_and_retry", "base": 4},
        "loop_detected": [{"action": "replan"}, "abort"],
        "unknown": {"strategy": "circuit_breaker", "threshold": 2, "then": "rollback"},
        "default": "retry",
        "schema_mismatch": "replan",
    }
    if read is None:
        file = tmp_path / "policy.yaml"
        file.write_text(json.dumps(plain))
        policies = [FailurePolicy.from_yaml(file), FailurePolicy.from_yaml(str(file))]
        policies.append(FailurePolicy.from_yaml(json.dumps(plain, indent=1)))
    else:
        policies = [read(plain)]
    for policy in policies:
        assert decided(policy, type=FailureType.EXTERNAL_FAULT) == ROLLBACK(hint="h")
        assert decided(policy, type=FailureType.TIMEOUT).delay == 4
        assert decided(policy, type=FailureType.LOOP_DETECTED, attempt=2).kind == "abort"
        assert decided(policy, type=FailureType.UNKNOWN).kind == "rollback"
        assert decided(policy, type=FailureType.PLAN_INCOMPLETE).kind == "retry"
        assert decided(policy, type=FailureType.SCHEMA_MISMATCH).kind == "replan"


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"tiemout": "retry"}, "tiemout"),
        ({"timeout": {"action": "jump"}}, "jump"),
        ({"timeout": {"strategy": "hope"}}, "hope"),
        ({"timeout": {"action": "abort", "hint": "x"}}, "hint"),
        ({"timeout": {"strategy": "replan", "nonsense": 1}}, "nonsense"),
        ({"timeout": {}}, "None"),
        ({"timeout": []}, "sequence"),
        ([], "must map"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(plain: Any, said: str) -> None:
    with pytest.raises(holdfast.ConfigurationError, match=said):
        FailurePolicy.from_dict(plain)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(holdfast.ConfigurationError, match="RETRY has no option reason=; it takes hint="):
        RETRY(reason="x")
    with pytest.raises(holdfast.ConfigurationError, match="delay"):
        RETRY(delay=-1)
    with pytest.raises(holdfast.ConfigurationError, match=r"timeout must be a RecoveryAction .* got 'soon'"):
        FailurePolicy(timeout="soon")  # type: ignore[arg-type]
    assert repr(RETRY(hint="h")) == "RecoveryAction.RETRY(hint='h')"


class Overflow(Exception):
    """An error of a user."""


class ValidationError(Exception):
    """Of whatever library."""


class OwnError(Exception):
    failure_type = FailureType.PLAN_INCOMPLETE


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), FailureType.TIMEOUT),
        (holdfast.StepTimeout("late"), FailureType.TIMEOUT),
        (ConnectionError("down"), FailureType.EXTERNAL_FAULT),
        (OSError(5, "io"), FailureType.EXTERNAL_FAULT),
        (json.JSONDecodeError("bad", "x", 0), FailureType.SCHEMA_MISMATCH),
        (ValidationError(), FailureType.SCHEMA_MISMATCH),
        (ValueError("the prompt exceeds the maximum context length"), FailureType.CONTEXT_OVERFLOW),
        (OwnError(), FailureType.PLAN_INCOMPLETE),
        (RuntimeError("?"), FailureType.UNKNOWN),
    ],
)
def test_the_rules_know_exceptions(error: Exception, expected: FailureType) -> None:
    assert RulesClassifier()(failing(error)) is expected


def test_exceptions_and_rules_of_ones_own_come_first() -> None:
    rules = RulesClassifier(
        exceptions={Overflow: FailureType.CONTEXT_OVERFLOW},
        rules=[(lambda context: "wrong tool" in context.message, FailureType.WRONG_TOOL_CALLED)],
    )
    assert rules(failing(Overflow())) is FailureType.CONTEXT_OVERFLOW
    assert rules(failing(TimeoutError("wrong tool"))) is FailureType.WRONG_TOOL_CALLED


def test_a_loop_is_detected_by_a_window_of_similar_steps() -> None:
    same = [Step(action="search", tool_called="web", tool_input={"q": "kelp"}, tool_output=n) for n in range(3)]
    pages = [Step(action="search", tool_called="web", tool_input={"page": n}) for n in range(3)]
    thoughts = [Step(action="think", llm_output=f"thought {n}") for n in range(3)]
    assert RulesClassifier()(failing(ValueError(), steps=same)) is FailureType.LOOP_DETECTED
    assert RulesClassifier()(failing(ValueError(), steps=same[:2])) is FailureType.UNKNOWN
    assert RulesClassifier()(failing(ValueError(), steps=pages)) is FailureType.UNKNOWN
    assert RulesClassifier()(failing(ValueError(), steps=thoughts)) is FailureType.UNKNOWN
    assert RulesClassifier(loop_similarity=0.9)(failing(ValueError(), steps=pages)) is FailureType.LOOP_DETECTED
    assert RulesClassifier(loop_window=2)(failing(ValueError(), steps=same[:2])) is FailureType.LOOP_DETECTED


def test_rules_about_tools_constraints_schemas_and_plans() -> None:
    steps = [Step(action="call", tool_called="shell", tool_output={"code": 1})]
    context = failing(ValueError(), steps=steps)
    assert RulesClassifier(allowed_tools={"web"})(context) is FailureType.WRONG_TOOL_CALLED
    assert RulesClassifier(allowed_tools={"shell"})(context) is FailureType.UNKNOWN
    too_many = RulesClassifier(constraints=[lambda context: len(context.steps) > 0])
    assert too_many(context) is FailureType.CONSTRAINT_IGNORED
    assert RulesClassifier(schemas={"shell": lambda output: output["text"]})(context) is FailureType.SCHEMA_MISMATCH
    assert RulesClassifier(schemas={"shell": lambda output: "code" in output})(context) is FailureType.UNKNOWN
    assert RulesClassifier(required_actions=["call", "reply"])(context) is FailureType.PLAN_INCOMPLETE
    assert RulesClassifier(required_actions=["call"])(context) is FailureType.UNKNOWN


def test_long_texts_are_compared_for_a_loop_no_longer_than_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any) -> float:
        raise AssertionError("this takes minutes for long texts")

    monkeypatch.setattr(SequenceMatcher, "ratio", slow)
    steps = [Step(action="read", tool_output=letter * 100_000) for letter in "abc"]
    assert RulesClassifier()(failing(ValueError(), steps=steps)) is FailureType.UNKNOWN
    assert RulesClassifier(loop_similarity=0.9)(failing(ValueError(), steps=steps)) is FailureType.UNKNOWN
