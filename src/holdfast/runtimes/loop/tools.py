"""Tools: functions that the handlers of a loop call, with the policy of their effects."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Unpack, overload

import msgspec

from holdfast.records.arguments import text_or_none
from holdfast.records.errors import ConfigurationError
from holdfast.records.signatures import is_async
from holdfast.runs.options import StepOptions, StepPolicy
from holdfast.runtimes.loop.screening import Screen


class Tool(msgspec.Struct, frozen=True):
    """A function with a name and the policy of its effect. Created by `tool`."""

    name: str
    function: Callable[..., Any]
    effect: bool
    defer: bool
    policy: dict[str, Any]

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function directly, outside a loop."""
        return self.function(*args, **named)

    def bound(self, args: tuple[Any, ...], screen: Screen) -> Callable[..., Any]:
        """Return the function as a step: called with these arguments, even if rows show masked ones."""
        function, what = self.function, f"result of {self.name}"
        if is_async(function):

            @wraps(function)
            async def awaited(*_: Any, **named: Any) -> Any:
                return screen.screened(await function(*args, **named), what)

            return awaited

        @wraps(function)
        def called(*_: Any, **named: Any) -> Any:
            return screen.screened(function(*args, **named), what)

        return called

    def policy_for(self, args: tuple[Any, ...]) -> dict[str, Any]:
        """Return the policy of the step; `verify` gets these arguments, even if rows show masked ones."""
        verify = self.policy.get("verify")
        if verify is None:
            return self.policy
        return self.policy | {"verify": lambda key, *_: verify(key, *args)}


class ToolOptions(StepPolicy, total=False):
    """The keyword options of a tool: those of a step, its name, and whether its calls are deferred."""

    name: str | None
    defer: bool


@overload
def tool(function: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a function a tool of a loop: `tool(send_mail, effect=True)`, or `@tool(effect=True)`.

    A plain tool is called again when its handler is repeated. With `effect=True` its intent is recorded first, it gets
    `idempotency_key=` if it has that parameter, and its result is recorded; the other options are those of `Run.step`.
    `defer=True` makes it an effect that is performed at the end, after all decisions of the loop are stored. `name`
    defaults to the function's name.
    """
    return (lambda decorated: _tool(decorated, **options)) if function is None else _tool(function, **options)


def _tool(function: Any, *, name: str | None = None, defer: bool = False, **policy: Any) -> Tool:
    if not callable(function):
        raise ConfigurationError(f"a tool must be a function, got {function!r}")
    named = text_or_none(name, "name") or getattr(function, "__name__", "")
    if not named or named == "<lambda>":
        raise ConfigurationError(f"a tool needs a name that every process shares; pass tool({function!r}, name=...)")
    effect = bool(policy.pop("effect", False)) or defer
    StepOptions.of({**policy, "effect": effect}, "name", "defer")
    if policy and not effect:
        raise ConfigurationError(f"{', '.join(policy)} of tool {named!r} needs effect=True")
    return Tool(named, function, effect, defer, {**policy, "effect": effect})


class Tools(msgspec.Struct, frozen=True):
    """The tools of a loop, by name."""

    named: dict[str, Tool] = {}

    @classmethod
    def of(cls, given: Iterable[Any]) -> "Tools":
        """Return these tools by name. A function becomes a plain tool."""
        found: dict[str, Tool] = {}
        for each in given:
            made = each if isinstance(each, Tool) else _tool(each)
            if made.name in found:
                raise ConfigurationError(f"two tools are named {made.name!r}; pass another name= for one of them")
            found[made.name] = made
        return cls(found)

    def find(self, wanted: Any) -> Tool:
        """Return a tool by its name, by itself, or by its function."""
        for each in self.named.values():
            if wanted == each.name or wanted is each or wanted is each.function:
                return each
        shown = repr(wanted) if isinstance(wanted, str) else getattr(wanted, "__name__", repr(wanted))
        known = ", ".join(self.named) or "none"
        raise ConfigurationError(f"the loop has no tool {shown}; its tools are: {known}. Add it to tools=[...]")
