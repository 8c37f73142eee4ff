"""Telling whoever listens what happened. A listener that fails is logged, and changes nothing."""

import logging
from collections.abc import Callable
from typing import Any

from holdfast.ports import Ports
from holdfast.records.errors import ConfigurationError
from holdfast.records.reports import Event

logger = logging.getLogger("holdfast")


class Events:
    """The listeners of one store handle."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._callbacks: list[Callable[[Event], Any]] = []

    def subscribe(self, callback: Callable[[Event], Any]) -> Callable[[], None]:
        """Add a listener; the function returned removes it."""
        if not callable(callback):
            raise ConfigurationError(f"callback={callback!r} cannot be called: a function of one event")
        self._callbacks.append(callback)

        def unsubscribe() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return unsubscribe

    @property
    def wanted(self) -> bool:
        """False if an event would reach nobody."""
        return bool(self._callbacks) or logger.isEnabledFor(logging.DEBUG)

    async def emit(self, kind: str, thread_id: str, seq: int = 0, **details: object) -> None:
        """Tell every listener, in the order they subscribed."""
        logger.debug("%s %s@%d", kind, thread_id, seq)
        if not self._callbacks:
            return
        event = Event(kind=kind, thread_id=thread_id, seq=seq, details=details)
        for callback in tuple(self._callbacks):
            try:
                await self._ports.call(callback, event)
            except Exception:
                logger.exception("an event listener failed at %s %s", kind, thread_id)
