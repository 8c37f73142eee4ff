"""OpenTelemetry for a store: a span for each run and each attempt at a step, and metrics. Needs the extra `otel`.

    holdfast.telemetry.instrument(store)

OpenTelemetry is imported by that call, and `import holdfast` does not import this package.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.records.errors import missing_extra
from holdfast.runs.store import Store
from holdfast.sync import Store as BlockingStore

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["instrument"]

SCOPE = "holdfast"


def instrument(
    store: Store | BlockingStore,
    *,
    content: bool = False,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
) -> Callable[[], None]:
    """Report what happens through this store handle. Returns a function that stops it.

    A run is a span, in the trace of the code around it; each attempt at a step is a span within. A run that resumes a
    thread is linked to the run before it, also if that was in another process. With `content` the spans of steps have
    their arguments and results, as `repr` writes them. Without providers the global ones are used.
    """
    try:
        from opentelemetry.metrics import get_meter
        from opentelemetry.trace import get_tracer
    except ImportError as error:
        raise missing_extra("telemetry needs opentelemetry-api", "otel") from error
    from holdfast.telemetry.metrics import Metrics
    from holdfast.telemetry.spans import Spans, current_traceparent

    inner = store._store if isinstance(store, BlockingStore) else store  # noqa: SLF001  the handle behind the facade
    spans = Spans(get_tracer(SCOPE, tracer_provider=tracer_provider))
    metrics = Metrics(get_meter(SCOPE, meter_provider=meter_provider))
    ends = [inner.on_event(spans.hear, content=content), inner.on_event(metrics.hear)]
    inner._events.trace_context = current_traceparent  # noqa: SLF001

    def stop() -> None:
        inner._events.trace_context = str  # noqa: SLF001
        for end in ends:
            end()

    return stop
