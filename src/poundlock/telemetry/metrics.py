"""A job's metrics as OpenTelemetry's exporters take them: those of Prometheus under the same names, whose `_total` a collector adds again.

Sums are the job's own and cumulative; the SDK's instruments, which would add up once more, are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from poundlock import __version__
from poundlock.rest.catalogue import PREFIX
from poundlock.rest.figures import Spread
from poundlock.rest.observed import Observed
from poundlock.rest.samples import Measured, measured

_NS = 1_000_000  # in a millisecond
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_UNKNOWN = cast(Any, None)  # of a histogram's least and greatest value, which nobody keeps


def metrics_data(job: Observed, resource: Resource, now_ms: int) -> MetricsData:
    """Return all metrics of a job as of now."""
    begin, now = job.entry.started_ms * _NS, now_ms * _NS
    own = {"job": job.entry.name, "job_id": job.job_id}
    metrics = [_metric(each, own, begin, now) for each in measured(job) if each.samples]
    scope = ScopeMetrics(InstrumentationScope("poundlock", __version__), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(measured: Measured, own: Mapping[str, str], begin: int, now: int) -> Metric:
    metric = measured.metric
    numbers, spreads = [], []
    for sample in measured.samples:
        attributes = {**own, **dict(zip(metric.labels, sample.labels, strict=True))}
        if isinstance(sample.value, Spread):
            spread = sample.value
            count, bounds = sum(spread.counts), [float(bound) for bound in spread.bounds]
            spreads.append(
                HistogramDataPoint(
                    attributes, begin, now, count, spread.total, list(spread.counts), bounds, _UNKNOWN, _UNKNOWN
                )
            )
        else:
            numbers.append(NumberDataPoint(attributes, begin, now, sample.value))
    data: Sum | Gauge | Histogram
    if metric.kind == "histogram":
        data = Histogram(spreads, _CUMULATIVE)
    elif metric.kind == "counter":
        data = Sum(numbers, _CUMULATIVE, True)
    else:
        data = Gauge(numbers)
    return Metric(f"{PREFIX}{metric.name.removesuffix('_total')}", metric.what, "", data)
