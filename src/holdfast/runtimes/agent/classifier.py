"""Classify a failure by its error and by the recorded steps."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, TypeGuard

from holdfast.codec import encode
from holdfast.records.arguments import amount, mapping_or_none, whole_number
from holdfast.records.checkpoint import Step
from holdfast.records.errors import ConfigurationError, StepFailed
from holdfast.records.failure import FailureContext, FailureType
from holdfast.runtimes.agent.strategies import is_plain

Rule = tuple[Callable[[FailureContext], Any], FailureType]

_SCHEMA_ERRORS = {"ValidationError", "JSONDecodeError", "SchemaError", "DecodeError"}
_EXTERNAL_ERRORS = {"HTTPError", "RequestError", "RateLimitError", "ServiceUnavailable", "APIError", "StoreUnavailable"}
_OS_ERRORS: tuple[type, ...] = (OSError, *OSError.__subclasses__(), *ConnectionError.__subclasses__())
_EXTERNAL_ERRORS |= {each.__name__ for each in _OS_ERRORS}
"""By name: of a step that failed in an earlier process only the name of its error is known."""
_OVERFLOW_TEXTS = ("context length", "context window", "maximum context", "too many tokens", "prompt is too long")


class RulesClassifier:
    """Classifies failures by rules; the first rule that matches decides.

    The order: the error's own `failure_type`; `rules` (pairs of a function of the context and a type); loops, tools,
    constraints and schemas of the recorded steps; the error's class and text; missing `required_actions`. The
    functions must be plain, not async.
    """

    def __init__(
        self,
        *,
        rules: Sequence[Rule] = (),
        exceptions: Mapping[type[BaseException], FailureType] | None = None,
        loop_window: int = 3,
        loop_similarity: float = 1.0,
        allowed_tools: Collection[str] | None = None,
        constraints: Sequence[Callable[[FailureContext], Any]] = (),
        schemas: Mapping[str, Callable[[Any], Any]] | None = None,
        required_actions: Collection[str] = (),
    ) -> None:
        self._rules = _each(rules, "rules", _is_rule, "pairs of a plain function and a FailureType")
        self._exceptions = _by_error(exceptions)
        self._loop_window = whole_number(loop_window, "loop_window")
        self._loop_similarity = _share(loop_similarity, "loop_similarity")
        self._allowed_tools = None if allowed_tools is None else set(_words(allowed_tools, "allowed_tools"))
        self._constraints = _each(constraints, "constraints", is_plain, "plain functions of the context")
        self._schemas = _by_tool(schemas)
        self._required_actions = _words(required_actions, "required_actions")

    def __call__(self, context: FailureContext) -> FailureType:
        """Return the type of a failure; UNKNOWN if no rule matches."""
        for rule in (self._declared, self._recorded, self._raised, self._planned):
            failure = rule(context)
            if failure is not None:
                return failure
        return FailureType.UNKNOWN

    def _declared(self, context: FailureContext) -> FailureType | None:
        own = getattr(context.error, "failure_type", None)
        if _is_type(own):
            return FailureType(own)
        return next((FailureType(failure) for applies, failure in self._rules if applies(context)), None)

    def _recorded(self, context: FailureContext) -> FailureType | None:
        if is_loop(context.steps, self._loop_window, self._loop_similarity):
            return FailureType.LOOP_DETECTED
        used = {step.tool_called for step in context.steps if step.tool_called}
        if self._allowed_tools is not None and not used <= self._allowed_tools:
            return FailureType.WRONG_TOOL_CALLED
        if any(broken(context) for broken in self._constraints):
            return FailureType.CONSTRAINT_IGNORED
        return FailureType.SCHEMA_MISMATCH if not all(map(self._fits, context.steps)) else None

    def _fits(self, step: Step) -> bool:
        check = self._schemas.get(step.tool_called or "")
        try:
            return check is None or check(step.tool_output) is not False
        except Exception:  # noqa: BLE001  validators raise errors of any class
            return False

    def _raised(self, context: FailureContext) -> FailureType | None:
        error = _origin(context.error)
        names = {each.__name__ for each in type(error).__mro__} | {getattr(error, "type", "")}
        for kind, failure in self._exceptions.items():
            if isinstance(error, kind):
                return failure
        if any(text in context.message.lower() for text in _OVERFLOW_TEXTS):
            return FailureType.CONTEXT_OVERFLOW
        if isinstance(error, TimeoutError) or any("Timeout" in str(name) for name in names):
            return FailureType.TIMEOUT
        if names & _SCHEMA_ERRORS:
            return FailureType.SCHEMA_MISMATCH
        if isinstance(error, OSError) or names & _EXTERNAL_ERRORS:
            return FailureType.EXTERNAL_FAULT
        return None

    def _planned(self, context: FailureContext) -> FailureType | None:
        done = {step.action for step in context.steps}
        return FailureType.PLAN_INCOMPLETE if not done.issuperset(self._required_actions) else None


def _origin(error: BaseException | None) -> BaseException | None:
    """Return the cause of a failed step, which only the process that ran it has; else the error itself."""
    while isinstance(error, StepFailed) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _each(given: object, name: str, fits: Callable[[Any], bool], what: str) -> tuple[Any, ...]:
    """Return the items as a tuple, or raise if one does not fit. A str is not taken for a list of characters."""
    listed = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else None
    if listed is None or not all(map(fits, listed)):
        raise ConfigurationError(f"`{name}` must be a sequence of {what}, got {given!r}")
    return listed


def _words(given: object, name: str) -> tuple[str, ...]:
    return _each(given, name, lambda each: isinstance(each, str), "str")


def _by_error(given: object) -> dict[type[BaseException], FailureType]:
    pairs: dict[Any, Any] = dict(mapping_or_none(given, "exceptions") or {})
    if not all(_is_error(kind) and _is_type(failure) for kind, failure in pairs.items()):
        raise ConfigurationError(f"`exceptions` must map exception classes to FailureTypes, got {given!r}")
    return {kind: FailureType(failure) for kind, failure in pairs.items()}


def _by_tool(given: object) -> dict[str, Callable[[Any], Any]]:
    pairs: dict[Any, Any] = dict(mapping_or_none(given, "schemas") or {})
    if not all(isinstance(tool, str) and is_plain(check) for tool, check in pairs.items()):
        raise ConfigurationError(f"`schemas` must map tool names to plain functions, got {given!r}")
    return pairs


def _share(given: float, name: str) -> float:
    if amount(given, name) > 1:
        raise ConfigurationError(f"`{name}` must be a number from 0 to 1, got {given!r}")
    return given


def _is_rule(given: Any) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2 and is_plain(given[0]) and _is_type(given[1])


def _is_error(given: object) -> bool:
    return isinstance(given, type) and issubclass(given, BaseException)


def _is_type(given: object) -> TypeGuard[str]:
    return isinstance(given, str) and given in set(FailureType)


def is_loop(steps: Sequence[Step], window: int, similarity: float) -> bool:
    """True if the last `window` steps are equal, or at least as similar as `similarity`."""
    if window < 2 or len(steps) < window:
        return False
    first, *others = map(doing, steps[-window:])
    return all(_is_like(first, each, similarity) for each in others)


def _is_like(one: str, other: str, similarity: float) -> bool:
    """Compare two texts; the slow exact comparison runs only if the quick estimate passes."""
    if one == other or similarity >= 1:
        return one == other
    matcher = SequenceMatcher(None, one, other)
    return matcher.quick_ratio() >= similarity and matcher.ratio() >= similarity


def doing(step: Step) -> str:
    """Return what a step did, as text to compare: its call, or without input also its output."""
    called = (step.action, step.tool_called, step.tool_input)
    done = called if step.tool_input is not None else (*called, step.tool_output, step.llm_output)
    try:
        return repr(done)
    except ValueError:  # an int with more digits than Python converts to text
        return encode(done).hex()
