"""One transition of a loop: calls the handler of its state, and says what the snapshot becomes.

What a handler calls by `loop.call` belongs to its work: effects get keys of that place, deferred calls wait in it until
the transition is made.
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


class Place(msgspec.Struct):
    """Where in a loop code runs: in one call of one handler."""

    name: str
    deferred: list[Deferred] = []
    _masked: dict[bytes, tuple[int, tuple[Any, ...]]] = {}
    """By what is shown of it, the first call with something masked: the branch it came from, and its arguments."""

    def check_order(self, tool: str, shown: bytes, branch: int, args: tuple[Any, ...]) -> None:
        """Refuse parallel calls that only their order tells apart: when the worker runs again, it may be another."""
        first_branch, first = self._masked.setdefault(shown, (branch, args))
        if first_branch != branch and not all(map(is_, first, args)):
            raise ConfigurationError(
                f"calls of {tool!r} in parallel branches differ only in what is never stored: after a crash one would"
                " get the result of the other; give each a plain argument that tells them apart, such as a number"
            )


class Execution(msgspec.Struct):
    """What the last worker did: its result, and the calls that it deferred. Lost with the process."""

    result: Any
    deferred: list[Deferred]


current_place: ContextVar["tuple[Transition, Place] | None"] = ContextVar("holdfast_loop_place", default=None)


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
        """`commit`: writes the decisions made so far, before an effect that follows from them is executed."""
        self._terms = terms
        self._commit = commit
        self._driver = driver
        self.loop = loop
        """The loop that is handed to the handlers."""
        self.snapshot = snapshot
        """The snapshot now; of a transition that failed in the middle, as far as it came."""
        self.execution = execution

    async def make(self) -> None:
        """Call the handler of the state, and change the snapshot."""
        handlers: Mapping[str, Callable[[], Coroutine[Any, Any, None]]] = {
            PLANNING: self._plan,
            EXECUTING: self._execute,
            OBSERVING: self._observe,
            REFLECTING: self._reflect,
        }
        await handlers[self.snapshot.state]()

    # The handlers

    async def _plan(self) -> None:
        now, place = self.snapshot, Place(f"plan {self.snapshot.transitions}")
        plan = await self._call(place, self._terms.plan, self.loop)
        if not isinstance(plan, list | tuple):
            raise ConfigurationError(f"plan must return a list of steps, got {type(plan).__name__}")
        outbox = [*now.outbox, *place.deferred]
        to = EXECUTING if plan else REFLECTING
        self.snapshot = applied(now, to, plan=list(plan), cursor=0, outbox=outbox)

    async def _execute(self) -> None:
        now = self.snapshot
        step, name = now.plan[now.cursor], str(len(now.results))
        if type(step) is list:
            result, deferred = await self._execute_all(step, name)
        else:
            place = Place(name)
            result, deferred = await self._call(place, self._terms.execute, self.loop, step), place.deferred
        self.execution = Execution(result, deferred)
        self.snapshot = applied(now, OBSERVING)

    async def _execute_all(self, steps: list[Any], name: str) -> tuple[list[Any], list[Deferred]]:
        """Execute the steps of one item at the same time."""
        places = [Place(f"{name}.{number}") for number in range(len(steps))]
        execute, pairs = self._terms.execute, zip(places, steps, strict=True)
        workers = [partial(self._call, place, execute, self.loop, step) for place, step in pairs]
        results = await self._driver.together(workers)
        return results, [each for place in places for each in place.deferred]

    async def _observe(self) -> None:
        now, execution = self.snapshot, self.execution
        assert execution is not None  # noqa: S101  a loaded loop starts in EXECUTING
        kept, place = execution.result, Place(f"observe {len(now.results)}")
        if self._terms.observe is not None:
            kept = await self._call(place, self._terms.observe, self.loop, now.plan[now.cursor], kept)
        outbox = [*now.outbox, *execution.deferred, *place.deferred]
        self.snapshot = applied(now, REFLECTING, results=[*now.results, kept], cursor=now.cursor + 1, outbox=outbox)
        self.execution = None

    async def _reflect(self) -> None:
        if self.snapshot.decision:
            await self._perform_deferred()
            return
        place = Place(f"reflect {self.snapshot.transitions}")
        to = None
        if self._terms.reflect is not None:
            to = await self._call(place, self._terms.reflect, self.loop)
        now = replace(self.snapshot, outbox=[*self.snapshot.outbox, *place.deferred])
        if to is None:
            to = EXECUTING if now.cursor < len(now.plan) else COMPLETE
        if not isinstance(to, LoopState):
            raise ConfigurationError(f"reflect must return a LoopState or None, got {to!r}")
        if to is COMPLETE and now.outbox:
            self.snapshot = applied(now, REFLECTING, decision=COMPLETE.value)
        else:
            self.snapshot = applied(now, to)

    # Deferred calls

    async def _perform_deferred(self) -> None:
        """Perform what the outbox holds, in its order. One that fails makes the loop FAILED, with the rest kept."""
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

    async def _call(self, place: Place, handler: Callable[..., Any] | None, *args: Any) -> Any:
        assert handler is not None  # noqa: S101  checked before the loop was driven
        token = current_place.set((self, place))
        try:
            return await self._driver.invoke(self._driver.key("loop", place.name), partial(handler, *args))
        finally:
            current_place.reset(token)

    async def call_tool(self, place: Place, tool: Tool, args: tuple[Any, ...]) -> Any:
        """Call a tool, or defer the call."""
        if tool.defer:
            return self._defer(place, tool, args)
        if not tool.effect:
            return await self._driver.ports.invoke(tool.function, args, {}, None)
        screen = self._terms.screen
        shown = screen.masked(args)
        if screen.hides(args):
            content = fingerprint_of([tool.name, *shown], f"tool {tool.name!r}", "")
            place.check_order(tool.name, content, self._driver.ports.branch(), args)
        await self._commit()
        return await self._driver.step_within(tool.name, tool.bound(args, screen), *shown, **tool.policy_for(args))

    def _defer(self, place: Place, tool: Tool, args: tuple[Any, ...]) -> Deferred:
        refusing = replace(self._terms.screen, redacts=False)  # a mask is no argument that anybody wants
        arguments = [refusing.screened(each, f"argument {at} of {tool.name}") for at, each in enumerate(args)]
        deferred = Deferred(f"{place.name}.{len(place.deferred)}", tool.name, arguments)
        place.deferred.append(deferred)
        return deferred
