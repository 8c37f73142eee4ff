"""Notifies listeners and the log of what happened. A listener that fails is logged, and changes nothing."""

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
        """Names the trace a run belongs to, to be kept with its thread; nothing unless telemetry is on."""

    def subscribe(self, callback: Callable[[Event], Any], *, content: bool = False) -> Callable[[], None]:
        """Add a listener; the function returned removes it."""
        if not callable(callback):
            raise ConfigurationError(f"callback={callback!r} cannot be called: a function of one event")
        listener = (callback, content)
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    @property
    def has_listeners(self) -> bool:
        """True if somebody subscribed."""
        return bool(self._listeners)

    def wants(self, kind: EventKind) -> bool:
        """False if an event of this kind would reach nobody."""
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
        """Write it to the log and tell every listener, in the order they subscribed."""
        log_event(kind, thread_id, seq, details)
        if not self._listeners:
            return
        event = Event(kind=kind, thread_id=thread_id, seq=seq, details=details)
        full = Event(kind=kind, thread_id=thread_id, seq=seq, details=details, content=dict(content or {}))
        for callback, with_content in tuple(self._listeners):
            try:
                await self._ports.notify(callback, full if with_content else event)
            except Exception:  # noqa: BLE001  whatever a listener does is logged, and changes nothing
                logger().exception("an event listener failed at %s %s", kind, thread_id)


def log_event(kind: EventKind, thread_id: str, seq: int, details: Mapping[str, object]) -> None:
    """One record of the logger `holdfast`, with the fields `event`, `thread_id`, `seq` and `details`."""
    level = EVENTS[kind].level
    if is_heard(level):
        words = "".join(f" {name}={value}" for name, value in details.items() if value not in ("", None))
        fields = {"event": kind, "thread_id": thread_id, "seq": seq, "details": dict(details)}
        logger().log(level, "%s %s@%d%s", kind, thread_id, seq, words, extra=fields)


def pruned_details(freed: Freed, *, dry_run: bool) -> dict[str, object]:
    """The details of a `pruned` event."""
    return {"threads": freed.threads, "checkpoints": freed.checkpoints, "bytes": freed.bytes, "dry_run": dry_run}
