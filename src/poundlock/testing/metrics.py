"""The metrics that functions keep, in a test of them without a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from poundlock.metrics.user import MetricGroup, active
from poundlock.metrics.user_totals import HistogramValue


class CollectedMetrics:
    """What functions have counted, by the names of the metrics."""

    def __init__(self, group: MetricGroup) -> None:
        self._group = group

    @property
    def counters(self) -> Mapping[str, int]:
        """How far each was counted up."""
        return self._group.counts()

    @property
    def gauges(self) -> Mapping[str, float]:
        """What each was set to last."""
        return {name: gauge.value for name, gauge in self._group.values().items()}

    @property
    def histograms(self) -> Mapping[str, HistogramValue]:
        """How the values of each are spread: `count`, `sum`, `bounds`, `counts`."""
        return self._group.spreads()


@contextmanager
def collected_metrics() -> Iterator[CollectedMetrics]:
    """Have what functions count in the block collected, as a task does; give it."""
    with active(MetricGroup()) as group:
        yield CollectedMetrics(group)
