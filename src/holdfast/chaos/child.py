"""One life of the user's function, in its own process: `python -m holdfast.chaos.child`."""

import os
import sys
from inspect import unwrap
from typing import Any, cast

import msgspec

from holdfast.chaos.killed_life import KilledLife
from holdfast.chaos.named import find_named
from holdfast.chaos.order import ORDER, REPLAY, THREAD, Order, as_value
from holdfast.chaos.outside import watch
from holdfast.codec import encode
from holdfast.ports import BlockingPorts, Ports, run_blocking
from holdfast.ports.awaitable import AsyncPorts
from holdfast.records.errors import ConfigurationError, Suspended
from holdfast.records.event import Event
from holdfast.records.request import Request
from holdfast.records.signatures import is_async
from holdfast.records.words import Durability
from holdfast.runs.durable import Durable, registry
from holdfast.runs.store import Store
from holdfast.runtimes.agent.agent import AgentCore
from holdfast.stores.locations import resolve
from holdfast.sync.agents import Agent as BlockingAgent
from holdfast.testing.crash_effects import EffectBackend, EffectPorts

POLL_SECONDS = 0.2
LONGEST_REPR = 200


def load(target: str) -> Durable[Any, Any]:
    """Return the durable function that `module:function` names; `ConfigurationError` if it is not one."""
    if ":" not in target:
        raise ConfigurationError(f"{target}: give MODULE:FUNCTION, such as agent:support")
    try:
        found = find_named(target)
    except ConfigurationError as error:
        raise ConfigurationError(f"{target}: {error}") from error
    if isinstance(found, AgentCore | BlockingAgent):
        raise ConfigurationError(
            f"{target} is an Agent, and chaos is for durable functions; to test an agent, pass a function(store) that"
            " runs it to holdfast.testing.crash_everywhere"
        )
    if not isinstance(found, Durable):
        raise ConfigurationError(f"{target} is not a durable function; decorate it with @holdfast.durable")
    return found


def is_blocking(function: Durable[Any, Any]) -> bool:
    """True if it is a plain `def`."""
    return not is_async(function.__wrapped__)


class Child:
    """The function, on a store whose writes are crash points."""

    def __init__(self, order: Order, function: Durable[Any, Any], life: KilledLife) -> None:
        self._order = order
        self._function = function
        self._life = life
        backend = EffectBackend(resolve(order.store, Durability.PROCESS, inline=True).backend, life)
        worlds: dict[bool, Ports] = {True: BlockingPorts(), False: AsyncPorts()}
        stores = {
            blocking: Store(backend, ports=cast("Ports", EffectPorts(ports, life, life)), namespace=order.namespace)
            for blocking, ports in worlds.items()
        }
        for store in stores.values():
            store.on_event(self._hear)
        for durable in (each for each in registry.values() if isinstance(each, Durable)):
            durable._use(stores[is_blocking(durable)])  # noqa: SLF001  a tool of ours
        self._blocking = is_blocking(function)
        self._ports, self._store = worlds[self._blocking], stores[self._blocking]

    def _hear(self, event: Event) -> None:
        if event.kind in {"step_replayed", "step_in_doubt"}:
            self._life.note("replays", str(event.details["step"]), thread=event.thread_id)

    def live(self) -> None:
        """Run the function to its end, and write down how it ended."""
        watch(unwrap(self._function.__wrapped__), lambda what: self._life.note("outside", what))
        if self._blocking:
            run_blocking(self._end(self._store))
        else:
            from asyncio import run

            run(self._end(self._store))

    async def _end(self, store: Store) -> None:
        try:
            result = await self._result(store)
        except Exception as error:  # noqa: BLE001  how it ends is what is compared
            self._life.note("raised", f"{type(error).__name__}: {error}")
        else:
            self._life.note("returned", repr(result)[:LONGEST_REPR], value=encode(result).hex())

    async def _result(self, store: Store) -> Any:
        thread_id = await self._thread(store)
        while True:
            try:
                return await self._function._begin(thread_id, self._order.plan.arguments, {}, store)  # noqa: SLF001
            except Suspended as suspended:
                for request in suspended.requests:
                    await self._answer(store, request)
                if not suspended.requests:
                    await self._ports.sleep(POLL_SECONDS)

    async def _thread(self, store: Store) -> str:
        """Write down what the thread has recorded, and return its id; for a replay, the id of a fork."""
        newest = await store.latest(THREAD)
        if newest is None:
            return THREAD
        for step in newest.lazy_steps:
            if "key" in step.metadata:  # there is no event for the replay of a failure
                kind = "replays" if step.error else "recorded"
                self._life.note(kind, str(step.metadata["key"]), thread=THREAD)
        return await store.fork(newest.id, to=REPLAY) if self._order.replay else THREAD

    async def _answer(self, store: Store, request: Request) -> None:
        given = self._order.plan.answers.get(request.name)
        if given is None:
            self._life.note("unanswered", request.name, value=", ".join(request.choices))
            raise ConfigurationError(f"no answer was given for {request.name!r}")
        choice, value = (given, None) if request.choices else (None, as_value(given))
        await store.answer(request.id, choice, value, by="chaos")


def main() -> None:
    """Run the function, or write down why it cannot be run."""
    order = msgspec.json.decode(os.environ.pop(ORDER), type=Order)
    sys.path.insert(0, order.directory)
    life = KilledLife(order.report, order.kill_at)
    try:
        function = load(order.plan.target)
    except ConfigurationError as error:
        life.note("refused", str(error))
    else:
        Child(order, function, life).live()


if __name__ == "__main__":
    main()
