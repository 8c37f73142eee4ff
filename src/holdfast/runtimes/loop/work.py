"""One transition of a loop: call the handler of the state, and return the next snapshot.

Tools that a handler calls with `loop.call` belong to that handler call: their keys begin with its name, and deferred
calls are collected in it until the transition is made.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from functools import partial
from operator import is_
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.records.errors import ConfigurationError
from holdfast.records.loop import Deferred, LoopState, Snapshot
from holdfast.runs.driver import Driver, fingerprint_of
from holdfast.runtimes.loop.options import LoopTerms
from holdfast.runtimes.loop.tools import Tool
from holdfast.runtimes.loop.transitions import COMPLETE, EXECUTING, FAILED, OBSERVING, PLANNING, REFLECTING, applied


class HandlerCall(msgspec.Struct):
    """One call of a handler."""

    name: str
    deferred: list[Deferred] = []
    _masked: dict[bytes, tuple[int, tuple[Any, ...]]] = {}
    """The branch and arguments of the first tool call with masked values, by what is shown of it."""

    def check_order(self, tool: str, shown: bytes, branch: int, args: tuple[Any, ...]) -> None:
        """Refuse parallel calls that differ only in masked values: a rerun may make them in another order."""
        first_branch, first = self._masked.setdefault(shown, (branch, args))
        if first_branch != branch and not all(map(is_, first, args)):
            raise ConfigurationError(
                f"calls of {tool!r} in parallel branches differ only in values that are never stored: after a crash one"
                " could get the result of the other; add a plain argument that differs, such as a number"
            )


class Execution(msgspec.Struct):
    """The result of the last worker, and the calls it deferred. Not stored."""

    result: Any
    deferred: list[Deferred]


current_call: ContextVar["tuple[Transition, HandlerCall] | None"] = ContextVar("holdfast_loop_call", default=None)


class Transition:
    """Makes one transition of a loop under a claim."""

    def __init__(
        self,
        terms: LoopTerms,
        driver: Driver,
        loop: Any,
        snapshot: Snapshot,
        execution: Execution | None,
        commit: Callable[[], Awaitable[None]],
    ) -> None:
        """`commit` writes the decisions so far. It is called before an effect that depends on them."""
        self._terms = terms
        self._commit = commit
        self._driver = driver
        self.loop = loop
        """The public loop, which handlers get."""
        self.snapshot = snapshot
        """The current snapshot; after a failure, the state at which the transition stopped."""
        self.execution = execution

    async def make(self) -> None:
        """Call the handler of the state, and update the snapshot."""
        handlers: Mapping[str, Callable[[], Coroutine[Any, Any, None]]] = {
            PLANNING: self._plan,
            EXECUTING: self._execute,
            OBSERVING: self._observe,
            REFLECTING: self._reflect,
        }
        await handlers[self.snapshot.state]()

    # The handlers

    async def _plan(self) -> None:
        now, call = self.snapshot, HandlerCall(f"plan {self.snapshot.transitions}")
        plan = await self._call(call, self._terms.plan, self.loop)
        if not isinstance(plan, list | tuple):
            raise ConfigurationError(f"`plan` must return a list of steps, got {type(plan).__name__}")
        outbox = [*now.outbox, *call.deferred]
        to = EXECUTING if plan else REFLECTING
        self.snapshot = applied(now, to, plan=list(plan), cursor=0, outbox=outbox)

    async def _execute(self) -> None:
        now = self.snapshot
        step, name = now.plan[now.cursor], str(len(now.results))
        if type(step) is list:
            result, deferred = await self._execute_all(step, name)
        else:
            call = HandlerCall(name)
            result, deferred = await self._call(call, self._terms.execute, self.loop, step), call.deferred
        self.execution = Execution(result, deferred)
        self.snapshot = applied(now, OBSERVING)

    async def _execute_all(self, steps: list[Any], name: str) -> tuple[list[Any], list[Deferred]]:
        """Execute the steps of a parallel step concurrently."""
        calls = [HandlerCall(f"{name}.{number}") for number in range(len(steps))]
        execute, pairs = self._terms.execute, zip(calls, steps, strict=True)
        workers = [partial(self._call, call, execute, self.loop, step) for call, step in pairs]
        results = await self._driver.together(workers)
        return results, [each for call in calls for each in call.deferred]

    async def _observe(self) -> None:
        now, execution = self.snapshot, self.execution
        assert execution is not None  # noqa: S101  a loaded loop resumes in EXECUTING
        kept, call = execution.result, HandlerCall(f"observe {len(now.results)}")
        if self._terms.observe is not None:
            kept = await self._call(call, self._terms.observe, self.loop, now.plan[now.cursor], kept)
        outbox = [*now.outbox, *execution.deferred, *call.deferred]
        self.snapshot = applied(now, REFLECTING, results=[*now.results, kept], cursor=now.cursor + 1, outbox=outbox)
        self.execution = None

    async def _reflect(self) -> None:
        if self.snapshot.decision:
            await self._perform_deferred()
            return
        call = HandlerCall(f"reflect {self.snapshot.transitions}")
        to = None
        if self._terms.reflect is not None:
            to = await self._call(call, self._terms.reflect, self.loop)
        now = replace(self.snapshot, outbox=[*self.snapshot.outbox, *call.deferred])
        if to is None:
            to = EXECUTING if now.cursor < len(now.plan) else COMPLETE
        if not isinstance(to, LoopState):
            raise ConfigurationError(f"`reflect` must return a LoopState or None, got {to!r}")
        if to is COMPLETE and now.outbox:
            self.snapshot = applied(now, REFLECTING, decision=COMPLETE.value)
        else:
            self.snapshot = applied(now, to)

    # Deferred calls

    async def _perform_deferred(self) -> None:
        """Perform the deferred calls in order. If one fails, the loop is FAILED and keeps the remaining ones."""
        await self._commit()
        now = self.snapshot
        tools = [self._terms.tools.find(each.tool) for each in now.outbox]
        for number, (tool, each) in enumerate(zip(tools, now.outbox, strict=True)):
            try:
                await self._perform(tool, each)
            except Exception:
                self.snapshot = applied(now, FAILED, outbox=now.outbox[number:])
                raise
        self.snapshot = applied(now, COMPLETE, outbox=[], decision="")

    async def _perform(self, tool: Tool, deferred: Deferred) -> None:
        args = tuple(deferred.arguments)
        function = tool.bound(args, self._terms.screen)
        await self._driver.step("deferred", deferred.id, function, *args, **tool.policy_for(args))

    # Calls

    async def _call(self, call: HandlerCall, handler: Callable[..., Any] | None, *args: Any) -> Any:
        assert handler is not None  # noqa: S101  checked before the loop was driven
        token = current_call.set((self, call))
        try:
            return await self._driver.invoke(self._driver.key("loop", call.name), partial(handler, *args))
        finally:
            current_call.reset(token)

    async def call_tool(self, call: HandlerCall, tool: Tool, args: tuple[Any, ...]) -> Any:
        """Call a tool, or defer the call."""
        if tool.defer:
            return self._defer(call, tool, args)
        if not tool.effect:
            return await self._driver.ports.invoke(tool.function, args, {}, None)
        screen = self._terms.screen
        shown = screen.masked(args)
        if screen.hides(args):
            content = fingerprint_of([tool.name, *shown], f"tool {tool.name!r}", "")
            call.check_order(tool.name, content, self._driver.ports.branch(), args)
        await self._commit()
        return await self._driver.step_within(tool.name, tool.bound(args, screen), *shown, **tool.policy_for(args))

    def _defer(self, call: HandlerCall, tool: Tool, args: tuple[Any, ...]) -> Deferred:
        refusing = replace(self._terms.screen, redacts=False)  # a masked argument would be useless
        arguments = [refusing.screened(each, f"argument {at} of {tool.name}") for at, each in enumerate(args)]
        deferred = Deferred(f"{call.name}.{len(call.deferred)}", tool.name, arguments)
        call.deferred.append(deferred)
        return deferred
