"""Spans and metrics, as the real SDK of OpenTelemetry exports them."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast import sync, telemetry
from patience import GIVE_UP_SECONDS

DIES = """
import os, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import get_current_span
from holdfast import sync, telemetry

store = sync.open("agents.db")
telemetry.instrument(store, tracer_provider=TracerProvider())
with store.run("t") as run:
    run.step("first", len, "abc")
    print(f"{get_current_span().get_span_context().trace_id:032x}", flush=True)
    os.kill(os.getpid(), 9)
"""


class Exports:
    """What was exported in one test."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.tracing = TracerProvider()
        self.tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        self.metering = MeterProvider([self._metrics])

    def instrument(self, store: holdfast.Store | sync.Store, *, content: bool = False) -> Any:
        """Instrument a store with these exporters."""
        return telemetry.instrument(store, content=content, tracer_provider=self.tracing, meter_provider=self.metering)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The spans that have ended, in that order."""
        return self._spans.get_finished_spans()

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [span.name for span in self.spans]

    def span(self, name: str) -> ReadableSpan:
        """The only span of that name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """The points of each metric: its attributes, and its value or how many values there were."""
        data = self._metrics.get_metrics_data()
        assert data is not None
        found = [metric for part in data.resource_metrics for scope in part.scope_metrics for metric in scope.metrics]
        return {
            metric.name: [
                (dict(point.attributes or {}), getattr(point, "value", None) or getattr(point, "count", None))
                for point in metric.data.data_points
            ]
            for metric in found
        }


@pytest.fixture
def exports() -> Exports:
    """Fresh exporters."""
    return Exports()


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_run_and_its_steps_are_spans_and_what_a_step_does_lies_within(
    exports: Exports, memory_store: sync.Store
) -> None:
    tracer = exports.tracing.get_tracer("user")

    def search(_query: str) -> int:
        with tracer.start_as_current_span("http"):
            return 3

    exports.instrument(memory_store)
    with memory_store.run("t") as run:
        run.step("search", search, "kelp")
        run.complete()
    http, step, whole = exports.span("http"), exports.span("step search"), exports.span("holdfast.run")
    assert (parent_of(http), parent_of(step), parent_of(whole)) == (id_of(step), id_of(whole), None)
    assert attributes_of(step) == {
        "holdfast.thread_id": "t",
        "holdfast.step.name": "search",
        "holdfast.step.key": "search",
        "holdfast.step.attempt": 1,
    }
    assert attributes_of(whole)["holdfast.run.status"] == "complete"


def test_parallel_steps_are_siblings_in_the_trace_around_the_run(exports: Exports) -> None:
    async def work(number: int) -> int:
        await asyncio.sleep(0)
        return number

    async def main() -> None:
        async with holdfast.MemoryStore() as store:
            exports.instrument(store)
            with exports.tracing.get_tracer("user").start_as_current_span("request"):
                async with store.run("t") as run:
                    await asyncio.gather(*(run.step(f"work {number}", work, number) for number in range(5)))

    asyncio.run(main())
    request, whole = exports.span("request"), exports.span("holdfast.run")
    steps = [span for span in exports.spans if span.name.startswith("step")]
    assert len(steps) == 5
    assert {parent_of(step) for step in steps} == {id_of(whole)}
    assert parent_of(whole) == id_of(request)


def test_a_resumed_run_is_a_new_trace_linked_to_that_of_the_killed_process(exports: Exports, tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", DIES], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    with sync.open(tmp_path / "agents.db") as store:
        exports.instrument(store)
        with store.run("t") as run:
            run.step("first", len, "abc")
            run.step("second", len, "abcd")
        with store.run("t") as run:
            run.complete()
    first, second = (span for span in exports.spans if span.name == "holdfast.run")
    (link,) = first.links
    assert f"{link.context.trace_id:032x}" == killed.stdout.strip()
    assert first.context is not None
    assert first.context.trace_id != link.context.trace_id
    assert attributes_of(first)["holdfast.run.kind"] == "taken_over"
    assert attributes_of(first)["holdfast.run.replayed_count"] == 1
    assert [each.context.span_id for each in second.links] == [id_of(first)]
    assert [name for name in exports.names if name.startswith("step")] == ["step second"]


def test_without_telemetry_nothing_is_kept_of_a_trace(memory_store: sync.Store) -> None:
    with memory_store.run("t") as run:
        run.step("first", len, "abc")
    assert len(memory_store.history("t", journal=True).items) == 1
    with memory_store.run("t") as run:
        assert run._run._ledger.journal.trace == ""


def test_each_attempt_is_a_span_and_errors_are_told_by_their_type(exports: Exports, memory_store: sync.Store) -> None:
    def fails() -> None:
        raise LookupError("the text is private")

    exports.instrument(memory_store)
    with suppress(sync.StepFailed), memory_store.run("t") as run:
        run.step("pay", fails, retries=1, backoff=0)
    first, second = (span for span in exports.spans if span.name == "step pay")
    assert [attributes_of(span)["holdfast.step.attempt"] for span in (first, second)] == [1, 2]
    whole = exports.span("holdfast.run")
    for span, error in ((first, "LookupError"), (second, "LookupError"), (whole, "StepFailed")):
        assert not span.status.is_ok
        assert attributes_of(span)["error.type"] == error
        assert "private" not in span.to_json()


async def runs_out(limit: asyncio.Timeout) -> None:
    """Take longer than the limit allows: it ends while this function is under way."""
    limit.reschedule(0)
    await asyncio.sleep(GIVE_UP_SECONDS)


def test_a_cancelled_step_ends_its_span_and_the_next_is_not_within_it(exports: Exports) -> None:
    async def main() -> None:
        async with holdfast.MemoryStore() as store:
            exports.instrument(store)
            async with store.run("t") as run:
                with suppress(TimeoutError):
                    async with asyncio.timeout(None) as limit:
                        await run.step("long", lambda: runs_out(limit))
                await run.step("next", asyncio.sleep, 0)

    asyncio.run(main())
    assert exports.names == ["step long", "step next", "holdfast.run"]
    assert parent_of(exports.span("step next")) == id_of(exports.span("holdfast.run"))


def test_content_is_told_only_if_asked_for(exports: Exports, memory_store: sync.Store) -> None:
    stop = exports.instrument(memory_store)
    with memory_store.run("private") as run:
        run.step("upper", str.upper, "canary")
    stop()
    assert "canary" not in "".join(span.to_json() for span in exports.spans).lower()
    exports.instrument(memory_store, content=True)
    with memory_store.run("told") as run:
        run.step("upper", str.upper, "canary")
    told = attributes_of(exports.spans[-2])
    assert (told["holdfast.step.arguments"], told["holdfast.step.result"]) == ("('canary',)", "'CANARY'")


def test_what_is_counted(exports: Exports, memory_store: sync.Store) -> None:
    attempts = iter([LookupError(), None])

    def flaky() -> None:
        error = next(attempts)
        if error:
            raise error

    exports.instrument(memory_store)
    memory_store.save("other", {"a": 1})
    with memory_store.run("t") as run:
        run.step("flaky", flaky, retries=1, backoff=0)
        run.step("flaky", flaky)
        run.checkpoint({"b": 2})
        run.complete()
    metrics = exports.metrics()
    name = {"holdfast.step.name": "flaky"}
    assert metrics["holdfast.saves"] == [({}, 2)]
    assert metrics["holdfast.saved_bytes"][0][1] > 20
    assert (
        metrics["holdfast.retries"] == metrics["holdfast.replays"] == metrics["holdfast.step.duration"] == [(name, 1)]
    )
    ends = {point[0]["holdfast.step.end"]: point[1] for point in metrics["holdfast.steps"]}
    assert ends == {"retried": 1, "done": 1}
    assert metrics["holdfast.run.duration"] == [({"holdfast.run.status": "complete"}, 1)]


def test_after_its_end_nothing_is_reported(exports: Exports, memory_store: sync.Store) -> None:
    stop = exports.instrument(memory_store)
    stop()
    with memory_store.run("t") as run:
        run.step("first", len, "abc")
    assert exports.names == []


def test_opentelemetry_is_not_imported_unless_it_is_asked_for() -> None:
    code = (
        "import sys; from holdfast import sync, telemetry; store = sync.MemoryStore(); store.save('t', 1);"
        " assert not [name for name in sys.modules if name.startswith('opentelemetry')];"
        " sys.modules['opentelemetry'] = None; telemetry.instrument(store)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "extra 'otel': pip install '.[otel]' in its checkout" in ran.stderr
