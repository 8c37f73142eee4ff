"""Metrics from events. Their attributes have few values: names of steps, how something ended; no ids."""

from collections.abc import Callable
from typing import Any

from opentelemetry.metrics import Meter

from holdfast.records.event import Event


class Metrics:
    """The instruments of one store handle."""

    def __init__(self, meter: Meter) -> None:
        self._saves = meter.create_counter("holdfast.saves", "{save}", "Checkpoints saved, without those of steps")
        self._bytes = meter.create_counter("holdfast.saved_bytes", "By", "Bytes that those saves stored")
        self._steps = meter.create_counter("holdfast.steps", "{step}", "Attempts at steps, by how they ended")
        self._replays = meter.create_counter("holdfast.replays", "{step}", "Steps answered from their record")
        self._saved = meter.create_counter("holdfast.replays.seconds", "s", "What those steps took when executed")
        self._retries = meter.create_counter("holdfast.retries", "{retry}", "Attempts that are followed by another")
        self._step_seconds = meter.create_histogram("holdfast.step.duration", "s", "Steps done, attempts included")
        self._run_seconds = meter.create_histogram("holdfast.run.duration", "s", "From claim to release")
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "saved": self._hear_save,
            "step_replayed": self._hear_replay,
            "step_done": self._hear_done,
            "step_retried": self._hear_retry,
            "step_failed": lambda details: self._hear_end(details, "failed"),
            "step_stopped": lambda details: self._hear_end(details, "stopped"),
            "released": self._hear_release,
        }

    def hear(self, event: Event) -> None:
        """Count one event."""
        handler = self._handlers.get(event.kind)
        if handler is not None:
            handler(event.details)

    def _hear_save(self, details: dict[str, Any]) -> None:
        self._saves.add(1)
        self._bytes.add(details["bytes"])

    def _hear_replay(self, details: dict[str, Any]) -> None:
        named = _step(details)
        self._replays.add(1, named)
        self._saved.add(details["seconds_saved"], named)

    def _hear_done(self, details: dict[str, Any]) -> None:
        self._hear_end(details, "done")
        self._step_seconds.record(details["seconds"], _step(details))

    def _hear_retry(self, details: dict[str, Any]) -> None:
        self._hear_end(details, "retried")
        self._retries.add(1, _step(details))

    def _hear_end(self, details: dict[str, Any], end: str) -> None:
        self._steps.add(1, {**_step(details), "holdfast.step.end": end})

    def _hear_release(self, details: dict[str, Any]) -> None:
        self._run_seconds.record(details["seconds"], {"holdfast.run.status": details["status"]})


def _step(details: dict[str, Any]) -> dict[str, str]:
    return {"holdfast.step.name": details["name"]}
