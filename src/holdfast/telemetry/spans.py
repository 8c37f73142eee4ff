"""Spans from events. A span is the current one while its run or step is active, so that its code is within."""

from collections.abc import Callable
from contextvars import Token
from typing import Any, NamedTuple

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, Status, StatusCode, Tracer, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from holdfast.records.event import Event
from holdfast.records.shown import quoted

_KEPT = "traceparent"
_propagator = TraceContextTextMapPropagator()


def current_traceparent() -> str:
    """Return the current span as a W3C traceparent; empty if there is none."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get(_KEPT, "")


def _links(traceparent: object) -> list[Link]:
    """Return a link to the thread's previous run, if that recorded its span."""
    context = get_current_span(_propagator.extract({_KEPT: str(traceparent)}, Context())).get_span_context()
    return [Link(context)] if context.is_valid else []


class _Open(NamedTuple):
    """An open span, and the token to remove it from the context."""

    span: Span
    token: Token[Context]

    def end(self) -> None:
        """End the span; remove it from the context if it is the current one."""
        self.span.end()
        if get_current_span() is self.span:
            detach(self.token)


class Spans:
    """The spans of one store handle. A thread has one active run, and a run has one active step of a key."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._runs: dict[str, _Open] = {}
        self._steps: dict[tuple[str, object], _Open] = {}
        self._replayed: dict[str, int] = {}
        self._handlers: dict[str, Callable[[Event], None]] = {
            "claimed": self._begin_run,
            "resumed": self._begin_run,
            "taken_over": self._begin_run,
            "step_started": self._begin_step,
            "step_done": self._end_step,
            "step_retried": self._end_step,
            "step_failed": self._end_step,
            "step_stopped": self._end_step,
            "step_replayed": self._count_replay,
            "failed": self._fail_run,
            "released": self._end_run,
        }

    def hear(self, event: Event) -> None:
        """Open or end a span for one event."""
        handler = self._handlers.get(event.kind)
        if handler is not None:
            handler(event)

    def _open(self, name: str, attributes: dict[str, Any], context: Context | None, links: list[Link]) -> _Open:
        span = self._tracer.start_span(name, context, attributes=attributes, links=links)
        return _Open(span, attach(set_span_in_context(span)))

    # Runs

    def _begin_run(self, event: Event) -> None:
        attributes = {
            "holdfast.thread_id": event.thread_id,
            "holdfast.run.kind": event.kind,
            "holdfast.run.token": event.details["token"],
        }
        self._replayed[event.thread_id] = 0
        self._runs[event.thread_id] = self._open("holdfast.run", attributes, None, _links(event.details["trace"]))

    def _fail_run(self, event: Event) -> None:
        if run := self._runs.get(event.thread_id):
            _set_error(run.span, event)

    def _end_run(self, event: Event) -> None:
        run = self._runs.pop(event.thread_id, None)
        if run is not None:
            for key in [key for key in self._steps if key[0] == event.thread_id]:
                self._steps.pop(key).span.end()  # begun by hand and never completed
            run.span.set_attribute("holdfast.run.status", str(event.details["status"]))
            run.span.set_attribute("holdfast.run.replayed_count", self._replayed.pop(event.thread_id))
            run.end()

    def _count_replay(self, event: Event) -> None:
        if event.thread_id in self._replayed:
            self._replayed[event.thread_id] += 1

    # Steps

    def _begin_step(self, event: Event) -> None:
        attributes = {
            "holdfast.thread_id": event.thread_id,
            "holdfast.step.name": event.details["name"],
            "holdfast.step.key": event.details["step"],
            "holdfast.step.attempt": event.details["attempt"],
            **_content(event),
        }
        parent = self._parent(event.thread_id)
        span = self._open(f"step {event.details['name']}", attributes, parent, [])
        self._steps[event.thread_id, event.details["step"]] = span

    def _parent(self, thread_id: str) -> Context | None:
        """Return the run as parent where the current span is of another trace, as on a bare thread; else None."""
        run = self._runs.get(thread_id)
        if run is None or get_current_span().get_span_context().trace_id == run.span.get_span_context().trace_id:
            return None
        return set_span_in_context(run.span)

    def _end_step(self, event: Event) -> None:
        step = self._steps.pop((event.thread_id, event.details["step"]), None)
        if step is None:
            return
        step.span.set_attributes(_content(event))
        if event.kind != "step_done":
            _set_error(step.span, event)
        step.end()


def _content(event: Event) -> dict[str, str]:
    """Return arguments and results, if the listener gets them."""
    return {f"holdfast.step.{name}": quoted(value) for name, value in event.content.items()}


def _set_error(span: Span, event: Event) -> None:
    """Set the type of an error, not its text, which may quote a user."""
    error = str(event.details["error"])
    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR, error))
