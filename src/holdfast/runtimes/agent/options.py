"""The options of an agent: declared once for both worlds, and checked when the agent is created."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Unpack

import msgspec

from holdfast.records.arguments import (
    check_options,
    function_or_none,
    mapping_or_none,
    text_or_none,
    whole_number,
)
from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError
from holdfast.records.failure import FailureContext
from holdfast.records.naming import name_of
from holdfast.records.usage import Budget
from holdfast.runs.driver import Service, ServiceOptions, Terms
from holdfast.runs.options import seconds
from holdfast.runtimes.agent.actions import RecoveryAction
from holdfast.runtimes.agent.classifier import RulesClassifier
from holdfast.runtimes.agent.policy import AnyStrategy, check_strategy


class AgentOptions(ServiceOptions, total=False):
    """The keyword options of an agent, except its store."""

    policy: "AnyStrategy | None"
    name: str | None
    auto_checkpoint: bool
    classifier: Callable[[FailureContext], Any] | None
    compensators: Mapping[str, Callable[..., Any]] | None
    max_recovery_attempts: int
    max_recovery_seconds: timedelta | float | None
    max_cost_usd: float | None
    max_tokens: int | None
    on_step: Callable[[Step], Any] | None
    on_failure: Callable[[FailureContext], Any] | None
    on_recovery: Callable[[FailureContext, RecoveryAction], Any] | None
    lease: timedelta | float
    wait: timedelta | float | None


class AgentTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The checked options, and the function."""

    function: Callable[..., Any]
    name: str
    """The name its threads record, by which `recover` finds the agent."""
    policy: Any
    classifier: Callable[[FailureContext], Any]
    compensators: Mapping[str, Callable[..., Any]]
    auto_checkpoint: bool
    max_recovery_attempts: int
    max_recovery_seconds: float | None
    budget: Budget
    on_step: Callable[..., Any] | None
    on_failure: Callable[..., Any] | None
    on_recovery: Callable[..., Any] | None
    run: Terms
    service: Service


def agent_terms(function: Callable[..., Any], **options: Unpack[AgentOptions]) -> AgentTerms:
    """Check the options of an agent; `ConfigurationError` if one is invalid."""
    check_options(options, (*AgentOptions.__annotations__, "store"))
    if not callable(function):
        raise ConfigurationError(f"an agent must be a function, got {type(function).__name__}")
    given: Callable[..., Any] = options.get
    policy = RecoveryAction.ESCALATE if given("policy") is None else given("policy")
    check_strategy(policy, "policy")
    auto_checkpoint, longest = given("auto_checkpoint", True), given("max_recovery_seconds")
    if type(auto_checkpoint) is not bool:
        raise ConfigurationError(f"`auto_checkpoint` must be a bool, got {auto_checkpoint!r}")
    return AgentTerms(
        function=function,
        name=text_or_none(given("name"), "name") or name_of(function),
        policy=policy,
        classifier=function_or_none(given("classifier"), "classifier") or RulesClassifier(),
        compensators=_functions(given("compensators")),
        auto_checkpoint=auto_checkpoint,
        max_recovery_attempts=whole_number(given("max_recovery_attempts", 3), "max_recovery_attempts"),
        max_recovery_seconds=None if longest is None else seconds(longest, "max_recovery_seconds"),
        budget=Budget(given("max_cost_usd"), given("max_tokens"), ("max_cost_usd", "max_tokens")),
        on_step=function_or_none(given("on_step"), "on_step"),
        on_failure=function_or_none(given("on_failure"), "on_failure"),
        on_recovery=function_or_none(given("on_recovery"), "on_recovery"),
        run=Terms(given("lease", 30), given("wait")),
        service=Service.of(options),
    )


def _functions(compensators: object) -> dict[str, Callable[..., Any]]:
    given = dict(mapping_or_none(compensators, "compensators") or {})
    for name, function in given.items():
        if type(name) is not str or not callable(function):
            raise ConfigurationError(f"`compensators` must map names to functions, got {compensators!r}")
    return given
