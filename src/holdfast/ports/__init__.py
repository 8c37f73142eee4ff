"""The only door to the event loop, threads, the clock and randomness.

What is written once as `async def` over `Ports` runs in both worlds: `BlockingPorts` calls inline, and `run_blocking`
steps the coroutine to its end without an event loop; `AsyncPorts` awaits, and is only loaded
(`holdfast.ports.awaitable`) when it is used.
"""

from holdfast.ports.blocking import BlockingPorts, iterate_blocking, run_blocking
from holdfast.ports.contract import Ports
from holdfast.ports.forks import hold_during_fork, reset_after_fork
from holdfast.ports.logs import INFO, is_heard, logger
from holdfast.ports.streams import nested
from holdfast.ports.tickets import Driver, Signal, Ticket

__all__ = [
    "INFO",
    "BlockingPorts",
    "Driver",
    "Ports",
    "Signal",
    "Ticket",
    "awaitable_ports",
    "hold_during_fork",
    "is_heard",
    "iterate_blocking",
    "logger",
    "nested",
    "reset_after_fork",
    "run_blocking",
]


def awaitable_ports() -> Ports:
    """Return the ports of the awaitable world, which load asyncio."""
    from holdfast.ports.awaitable import AsyncPorts

    return AsyncPorts()
