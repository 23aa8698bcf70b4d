"""The metrics of a job in Prometheus's text format. Counters count since this process started, unless their text says otherwise."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from poundlock.rest.catalogue import PREFIX
from poundlock.rest.figures import Spread
from poundlock.rest.observed import Observed
from poundlock.rest.samples import Measured, measured

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(job: Observed) -> bytes:
    """Return all metrics of a job as text."""
    registry = CollectorRegistry()
    registry.register(_OfJob(job))
    return generate_latest(registry)


class _OfJob(Collector):
    """Gives the metrics of one job, labelled with its id and name."""

    def __init__(self, job: Observed) -> None:
        self._job = job

    def collect(self) -> Iterable[Metric]:
        of = [self._job.job_id, self._job.entry.name]
        return [_family(each, of) for each in measured(self._job)]


def _family(measured: Measured, of: list[str]) -> Metric:
    metric = measured.metric
    name, labels = f"{PREFIX}{metric.name}", ["job_id", "job", *metric.labels]
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, metric.what, labels=labels)
        for sample in measured.samples:
            if isinstance(sample.value, Spread):
                histogram.add_metric(
                    [*of, *sample.labels], buckets=sample.value.classes(), sum_value=sample.value.total
                )
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    made = kind(name, metric.what, labels=labels)
    for sample in measured.samples:
        if not isinstance(sample.value, Spread):
            made.add_metric([*of, *sample.labels], sample.value)
    return made
