"""The metrics of a job in Prometheus's text format. Counters count since this process started.

A figure that is not known is left out, so that no graph shows a zero that was never measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from poundlock.plan.plan import DEAD_LETTER
from poundlock.rest.figures import Spread
from poundlock.rest.observed import Observed

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_STATES = ("INITIALIZING", "RUNNING", "RESTARTING", "FINISHED", "CANCELED", "FAILED")


def exposition(job: Observed) -> bytes:
    """Return all metrics of a job as text."""
    registry = CollectorRegistry()
    registry.register(_OfJob(job))
    return generate_latest(registry)


class _OfJob(Collector):
    """Gives the metrics of one job, labelled with its id and name."""

    def __init__(self, job: Observed) -> None:
        self._job = job
        self._labels = [job.job_id, job.entry.name]

    def collect(self) -> Iterable[Metric]:
        yield from self._flow()
        yield from self._of_checkpoints()
        yield from self._of_state()

    def _counter(self, name: str, what: str, values: dict[str, int], label: str) -> Metric:
        made = CounterMetricFamily(f"poundlock_{name}", what, labels=["job_id", "job", label])
        for key, value in values.items():
            made.add_metric([*self._labels, key], value)
        return made

    def _sole(self, name: str, what: str, value: float) -> Metric:
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        made = kind(f"poundlock_{name}", what, labels=["job_id", "job"])
        made.add_metric(self._labels, value)
        return made

    def _spread(self, name: str, what: str, spread: Spread) -> Metric:
        made = HistogramMetricFamily(f"poundlock_{name}", what, labels=["job_id", "job"])
        made.add_metric(self._labels, buckets=spread.classes(), sum_value=spread.total)
        return made

    def _flow(self) -> Iterator[Metric]:
        totals, progress = self._job.figures.refresh(), self._job.progress
        sinks = {name: counts for name, counts in totals.counts.items() if name != DEAD_LETTER}
        yield self._sole("rows_read_total", "Rows read from all sources.", progress.rows_read)
        yield self._counter("rows_in", "Rows read, of sources that count them.", totals.rows_in, "source")
        yield self._counter("bytes_in", "Bytes read, of sources that tell.", totals.bytes_in, "source")
        yield from self._skew()
        yield self._counter("rows_out", "Rows written.", {n: c.written for n, c in totals.counts.items()}, "sink")
        yield self._counter("bytes_out", "Bytes written, of sinks that tell.", totals.bytes_out, "sink")
        for name, what in (
            ("late", "Rows that came behind the watermark."),
            ("dead_lettered", "Rows that went to the dead letters."),
            ("skipped", "Rows that could not be used and were left out."),
            ("filtered", "Rows that the job itself left out."),
        ):
            yield self._counter(f"rows_{name}", what, {n: getattr(c, name) for n, c in sinks.items()}, "sink")
        if progress.lag is not None:
            yield self._sole("lag_records", "Records waiting in the sources.", progress.lag)
        watermark = totals.watermark_ms if progress.watermark is None else progress.watermark
        if watermark is not None:
            yield self._sole("watermark_timestamp_seconds", "The watermark, seconds since 1970.", watermark / 1000)

    def _skew(self) -> Iterator[Metric]:
        skew = self._job.progress.skew
        for name, what, label, known in (
            ("key_group_largest_share", "Part of an operator's rows that one key group has.", "operator", skew.groups),
            ("split_largest_share", "Part of a source's rows that one split has.", "source", skew.splits),
        ):
            made = GaugeMetricFamily(f"poundlock_{name}", what, labels=["job_id", "job", label])
            for id, shares in known.items():
                if shares.largest:
                    made.add_metric([*self._labels, id], shares.share(shares.largest[0]))
            yield made

    def _of_checkpoints(self) -> Iterator[Metric]:
        history = self._job.figures.history()
        totals = self._job.figures.refresh()
        yield self._spread("checkpoint_duration_seconds", "Checkpoints from their start to their end.", totals.seconds)
        yield self._spread("checkpoint_size_bytes", "What checkpoints wrote to sinks.", totals.sizes)
        if history:
            newest = history[0]
            yield self._sole("last_checkpoint", "Number of the newest checkpoint.", newest.number)
            yield self._sole(
                "last_checkpoint_duration_seconds", "How long the newest checkpoint took.", newest.duration_ms / 1000
            )
            if newest.size is not None:
                yield self._sole("last_checkpoint_size_bytes", "Bytes that the newest checkpoint wrote.", newest.size)

    def _of_state(self) -> Iterator[Metric]:
        progress = self._job.progress
        yield self._sole("restarts_total", "Restarts since this process started.", progress.restarts)
        if self._job.entry.child is not None:
            what = "How often the supervisor has started the job's process again."
            yield self._sole("process_restarts_total", what, self._job.entry.process_restarts)
        yield self._sole("process_start_seconds", "When the process started.", self._job.entry.started_ms / 1000)
        if progress.parallelism is not None:
            yield self._sole("parallelism", "Number of tasks that a checkpoint has at most.", progress.parallelism)
        if progress.state_locality is not None:
            what = "Part of the key groups that were worked on the executor that had them before."
            yield self._sole("state_locality_ratio", what, progress.state_locality)
        if progress.state_bytes is not None:
            yield self._sole("state_size_bytes", "Memory of the state, as Spark tells it.", progress.state_bytes)
        made = GaugeMetricFamily(
            "poundlock_job_state", "1 for the state the job is in.", labels=["job_id", "job", "state"]
        )
        for state in _STATES:
            made.add_metric([*self._labels, state], int(progress.state == state))
        yield made
