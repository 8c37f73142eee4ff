"""Notifies listeners and the log of events. An error of a listener is logged, and has no other effect."""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.ports import Ports, is_heard, logger
from holdfast.records.errors import ConfigurationError
from holdfast.records.event import EVENTS, Event, EventKind
from holdfast.records.retention import Freed


class Events:
    """The listeners of one store handle."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._listeners: list[tuple[Callable[[Event], Any], bool]] = []
        self.trace_context: Callable[[], str] = str
        """Returns the trace of the current run, to be stored with its thread; empty unless telemetry is on."""

    def subscribe(self, callback: Callable[[Event], Any], *, content: bool = False) -> Callable[[], None]:
        """Add a listener. Returns a function that removes it."""
        if not callable(callback):
            raise ConfigurationError(f"`callback` must be a function of one event, got {callback!r}")
        listener = (callback, content)
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def follow(self, other: "Events") -> None:
        """Have the listeners of another handle on the same store."""
        self._listeners, self.trace_context = other._listeners, other.trace_context  # noqa: SLF001  one class

    @property
    def has_listeners(self) -> bool:
        """True if there are listeners."""
        return bool(self._listeners)

    def wants(self, kind: EventKind) -> bool:
        """True if a listener or the log takes events of this kind."""
        return bool(self._listeners) or is_heard(EVENTS[kind].level)

    async def emit(
        self,
        kind: EventKind,
        thread_id: str,
        seq: int = 0,
        content: Mapping[str, object] | None = None,
        /,
        **details: object,
    ) -> None:
        """Write an event to the log, and notify every listener in the order they subscribed."""
        log_event(kind, thread_id, seq, details)
        if not self._listeners:
            return
        event = Event(kind=kind, thread_id=thread_id, seq=seq, details=details)
        full = Event(kind=kind, thread_id=thread_id, seq=seq, details=details, content=dict(content or {}))
        for callback, with_content in tuple(self._listeners):
            try:
                await self._ports.notify(callback, full if with_content else event)
            except Exception:  # noqa: BLE001  an error of a listener is only logged
                logger().exception("an event listener failed at %s %s", kind, thread_id)


def log_event(kind: EventKind, thread_id: str, seq: int, details: Mapping[str, object]) -> None:
    """Write a record to the logger `holdfast`, with the fields `event`, `thread_id`, `seq` and `details`."""
    level = EVENTS[kind].level
    if is_heard(level):
        words = "".join(f" {name}={value}" for name, value in details.items() if value not in ("", None))
        fields = {"event": kind, "thread_id": thread_id, "seq": seq, "details": dict(details)}
        logger().log(level, "%s %s@%d%s", kind, thread_id, seq, words, extra=fields)


def pruned_details(freed: Freed, *, dry_run: bool) -> dict[str, object]:
    """Return the details of a `pruned` event."""
    return {"threads": freed.threads, "checkpoints": freed.checkpoints, "bytes": freed.bytes, "dry_run": dry_run}
