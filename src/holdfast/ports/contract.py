"""What the rest of the program may ask of the outside world, whichever world it is."""

from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from typing import Any, ParamSpec, Protocol, TypeVar

from holdfast.ports.tickets import Driver, Signal, Ticket

T = TypeVar("T")
P = ParamSpec("P")


class Ports(Protocol):
    """What the rest of the program may ask of the outside world."""

    blocking: bool
    """True if there is no event loop, so that no async function can be called."""

    def now(self) -> int:
        """Microseconds since 1970. Only ever shown or compared with leases: no order depends on it."""
        ...

    def entropy(self, count: int) -> bytes:
        """Random bytes."""
        ...

    async def perform(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work without blocking the caller's world."""
        ...

    async def settle(self, ticket: Ticket, driver: Driver) -> bool:
        """Wait for a ticket. A cancelled wait does not cancel the write."""
        ...

    def dispatch(self, ticket: Ticket, driver: Driver) -> None:
        """See that a ticket is settled though nobody waits for it: soon, or in the blocking world at once."""
        ...

    async def wait(self, ticket: Ticket) -> None:
        """Wait until somebody else has settled a ticket."""
        ...

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a user's function, plain or (in the awaitable world) async."""
        ...

    async def notify(self, listener: Callable[[T], Any], event: T) -> None:
        """Call a listener and wait for it; where plain code cannot wait for an async one, leave it to the loop."""
        ...

    async def invoke(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], seconds: float | None
    ) -> Any:
        """Call a user's function that may take long, plain or async. `StepTimeout` after so many seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run all to their end: at the same time where the world allows it, in their order elsewhere."""
        ...

    def side_by_side(self, branches: Sequence[Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
        """Run branches of a run at the same time, on threads where there is no event loop; give each result as it ends.

        Leaving it cancels the branches that are left, or waits for those that are on threads.
        """
        ...

    async def shielded(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await it to its end, also if the caller is cancelled meanwhile; the cancellation is raised then."""
        ...

    def is_cancelled_by(self, error: BaseException | None) -> bool:
        """True if this error is how a cancellation of the current task arrived."""
        ...

    def is_raised_cancellation(self, error: BaseException) -> bool:
        """True if this is a cancellation that nobody asked for: the code that was called raised it itself."""
        ...

    def owner(self) -> str:
        """A name for a new claim of this process, which no other claim ever has."""
        ...

    def is_certainly_dead(self, owner: str) -> bool:
        """True if the process behind a claim's name surely does not run any more."""
        ...

    def branch(self) -> int:
        """The task or thread that asks."""
        ...

    def others(self, belongs: Callable[[Context], bool]) -> Collection[object]:
        """The tasks or threads beside the caller whose context may be one of these."""
        ...

    def lock(self) -> AbstractContextManager[Any]:
        """A lock for one thread at a time, which may take it again."""
        ...

    def beat(self, tick: Callable[[], float | None], woken: "Signal") -> None:
        """Call `tick` from a thread of its own, again after as many seconds as it returns, until it returns None.

        Sooner if it is woken, by the signal.
        """
        ...

    def tell(self, text: str) -> None:
        """Say something to the person at the terminal, if there is one."""
        ...

    def for_plain_code(self) -> "Ports":
        """Ports to the same world for code that cannot await: blocking ones."""
        ...

    def close(self) -> None:
        """Let go of threads."""
        ...
