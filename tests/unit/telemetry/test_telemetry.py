"""OpenTelemetry: what its environment variables ask for, what a collector gets, and that a job does not notice one that is away."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poundlock.errors import DefinitionError
from poundlock.metrics.timeline import CommitCall, Phase, Timeline
from poundlock.metrics.user_totals import HistogramValue, UserMetrics
from poundlock.rest.observed import Observed
from poundlock.telemetry.export import Telemetry
from poundlock.telemetry.variables import Wanted, not_installed, wanted
from support.otlp_receiver import OtlpReceiver, attributes
from support.rest_job import ID, decision, observed

T = 1_545_184_226_000
DONE = Timeline(
    7,
    T,
    T + 300,
    (Phase("plan", T, 5.0), Phase("run", T + 5, 195.0), Phase("commit", T + 200, 100.0)),
    (CommitCall("files", T + 210, 60.5, 3, 1), CommitCall("topic", T + 210, 20.0, 1, 0)),
)
FAILED = Timeline(8, T, T + 50, (Phase("run", T, 10.0), Phase("verify", T + 10, 40.0)), failure="the disk is full")


@pytest.fixture
def job(tmp_path: Path) -> Observed:
    made, ledger = observed(tmp_path)
    own = UserMetrics(
        counters={"parse": {"bad": 3}}, histograms={"parse": {"size": HistogramValue((1.0, 10.0), (1, 2, 4), 70.0)}}
    )
    ledger.append(replace(decision(4, 3), metrics=own))
    return made


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def test_the_variables_say_what_is_exported() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    assert not wanted({})
    assert wanted(endpoint) == Wanted(traces=True, metrics=True, interval_ms=60_000)
    assert wanted({**endpoint, "OTEL_METRIC_EXPORT_INTERVAL": "500"}).interval_ms == 500
    assert not wanted({**endpoint, "OTEL_SDK_DISABLED": "TRUE"})
    assert wanted({**endpoint, "OTEL_METRICS_EXPORTER": "none"}) == Wanted(traces=True, metrics=False)
    assert wanted({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}) == Wanted(traces=False, metrics=True)
    assert wanted({"OTEL_TRACES_EXPORTER": "otlp"}) == Wanted(traces=True, metrics=False)
    assert not_installed() is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin"),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "port 4318"),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"}, "http/protobuf"),
        ({"OTEL_METRIC_EXPORT_INTERVAL": "1 min"}, "milliseconds"),
    ],
)
def test_what_is_not_known_is_refused_by_its_name(given: dict[str, str], text: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        wanted(given)
    assert text in f"{refused.value.what} {refused.value.next}"


def exporting(job: Observed, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, **more: str) -> Telemetry:
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, **more}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    telemetry = Telemetry(job, wanted(given), given)
    telemetry.start()
    return telemetry


def test_a_checkpoint_is_a_trace_with_its_phases_and_commits(job: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    with OtlpReceiver() as receiver:
        telemetry = exporting(job, receiver, monkeypatch, OTEL_EXPORTER_OTLP_HEADERS="api-key=secret")
        telemetry.update(job.progress)  # no checkpoint has ended yet
        for timeline in (DONE, DONE, FAILED):
            telemetry.update(replace(job.progress, timeline=timeline))
        telemetry.close()
        spans = list(receiver.spans())
        assert receiver.headers[0]["api-key"] == "secret", "the exporters read their variables themselves"
    by_name: dict[str, list[Any]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    assert {name: len(of) for name, of in by_name.items()} == {
        "checkpoint": 2, "plan": 1, "run": 2, "commit": 1, "commit files": 1, "commit topic": 1, "verify": 1
    }  # fmt: skip
    done, failed = sorted(by_name["checkpoint"], key=lambda span: attributes(span)["poundlock.checkpoint"])
    assert done.trace_id != failed.trace_id
    assert (done.start_time_unix_nano, done.end_time_unix_nano) == (T * 10**6, (T + 300) * 10**6)
    assert attributes(done).items() >= {"poundlock.job.id": ID, "poundlock.checkpoint.state": "COMPLETED"}.items()
    (commit,), (files,) = by_name["commit"], by_name["commit files"]
    assert (commit.parent_span_id, files.parent_span_id) == (done.span_id, commit.span_id)
    assert files.end_time_unix_nano - files.start_time_unix_nano == 60_500_000
    assert attributes(files) == {"poundlock.sink": "files", "poundlock.committables": 3, "poundlock.retries": 1}
    assert (failed.status.code, failed.status.message) == (2, "the disk is full")
    (verify,) = by_name["verify"]
    assert verify.status.code == 2
    assert verify.trace_id == failed.trace_id


def test_metrics_come_under_the_names_of_prometheus(job: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    with OtlpReceiver() as receiver:
        telemetry = exporting(job, receiver, monkeypatch, OTEL_METRIC_EXPORT_INTERVAL="20", OTEL_SERVICE_NAME="orders")
        receiver.until(lambda: len(receiver.metrics) >= 2)
        telemetry.close()
        metrics = receiver.newest_metrics()
        (resource,) = receiver.metrics[-1].resource_metrics
    assert attributes(resource.resource)["service.name"] == "orders"
    assert attributes(resource.resource)["poundlock.job.name"] == "orders"
    (rows,) = metrics["poundlock_rows_out"].sum.data_points[:1]
    assert (metrics["poundlock_rows_out"].sum.is_monotonic, rows.as_int) == (True, 24)
    assert attributes(rows) == {"job": "orders", "job_id": ID, "sink": "files"}
    assert metrics["poundlock_lag_records"].gauge.data_points[0].as_int == 5
    assert metrics["poundlock_user_bad"].sum.data_points[0].as_int == 3
    (size,) = metrics["poundlock_user_size"].histogram.data_points
    assert (list(size.bucket_counts), list(size.explicit_bounds), size.sum, size.count) == ([1, 2, 4], [1, 10], 70, 7)
    assert not size.HasField("min"), "what nobody kept is left out"
    assert "poundlock_checkpoint_duration_seconds" in metrics


def test_a_collector_that_is_away_or_refuses_holds_nobody_up_and_is_in_the_log(
    job: Observed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with OtlpReceiver(status=400) as receiver, caplog.at_level(logging.WARNING, "poundlock.telemetry"):
        telemetry = exporting(job, receiver, monkeypatch)
        telemetry.update(replace(job.progress, timeline=DONE))
        telemetry.close()
    assert "could not be delivered" in caplog.text
    assert capfd.readouterr().err == "", "a job's terminal is for the job"
