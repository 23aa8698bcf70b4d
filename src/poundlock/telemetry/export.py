"""Exports what a job does while it runs. Whatever the collector does, the job goes on: what cannot be delivered is a line in the log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from poundlock import __version__
from poundlock.driver.progress import Progress
from poundlock.rest.observed import Observed
from poundlock.telemetry.metrics import metrics_data
from poundlock.telemetry.traces import trace
from poundlock.telemetry.variables import Wanted

_END_S = 3.0
_AGAIN_S = 600.0
_log = logging.getLogger("poundlock.telemetry")


class Telemetry:
    """The export of one job.

    Args:
        environment: where a service's name may be set; the exporters read their variables themselves.
    """

    def __init__(self, job: Observed, wanted: Wanted, environment: Mapping[str, str]) -> None:
        self._job, self._wanted = job, wanted
        _keep_from_terminal()
        self._resource = Resource.create(_attributes(job, environment))
        self._provider: TracerProvider | None = None
        if wanted.traces:
            self._provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._metrics = OTLPMetricExporter() if wanted.metrics else None
        self._traced: tuple[int, int] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="poundlock-telemetry", daemon=True)

    def start(self) -> None:
        """Begin to export metrics, now and then."""
        if self._metrics is not None:
            self._thread.start()

    def update(self, progress: Progress) -> None:
        """Export the trace of a checkpoint that has ended, once; returns at once."""
        timeline = progress.timeline
        if self._provider is None or timeline is None:
            return
        which = timeline.checkpoint, timeline.started_ms
        if which != self._traced:
            self._traced = which
            try:
                tracer = self._provider.get_tracer("poundlock", __version__)
                trace(tracer, timeline, job=self._job.entry.name, job_id=self._job.job_id)
            except Exception:
                _log.warning("the trace of checkpoint %d is lost", timeline.checkpoint, exc_info=True)

    def close(self) -> None:
        """Deliver what is left, for some seconds at most."""
        self._ended.set()
        closing = threading.Thread(target=self._close, name="poundlock-telemetry-end", daemon=True)
        closing.start()
        closing.join(_END_S)
        if closing.is_alive():
            _log.warning("the collector of OpenTelemetry did not take the last of it within %.0f s", _END_S)

    def _close(self) -> None:
        if self._metrics is not None:
            self._export()
        if self._provider is not None:
            self._provider.shutdown()

    def _run(self) -> None:
        while not self._ended.wait(self._wanted.interval_ms / 1000):
            self._export()

    def _export(self) -> None:
        assert self._metrics is not None
        try:
            data = metrics_data(self._job, self._resource, time.time_ns() // 1_000_000)
            if self._metrics.export(data) is not MetricExportResult.SUCCESS:
                _log.warning("metrics could not be delivered to the collector of OpenTelemetry")
        except Exception:
            _log.warning("metrics could not be exported", exc_info=True)


def _attributes(job: Observed, environment: Mapping[str, str]) -> dict[str, str]:
    attributes = {
        "poundlock.job.name": job.entry.name,
        "poundlock.job.id": job.job_id,
        "service.version": __version__,
        "service.instance.id": f"{job.entry.host}:{job.entry.process}",
    }
    named = "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "").replace(" ", "")
    if not (named or environment.get("OTEL_SERVICE_NAME")):
        attributes["service.name"] = "poundlock"
    return attributes


class _ToLog(logging.Handler):
    """Hands on what the SDK reports, each text once in ten minutes: a collector that is away would fill the log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._seen.get(record.msg, -_AGAIN_S) >= _AGAIN_S:
            self._seen[record.msg] = now
            _log.log(record.levelno, "OpenTelemetry: %s", record.getMessage())


def _keep_from_terminal() -> None:
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    if not any(isinstance(handler, _ToLog) for handler in logger.handlers):
        logger.addHandler(_ToLog())
