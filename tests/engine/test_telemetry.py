"""A job with OpenTelemetry's variables set: each checkpoint comes to the collector as a trace, and the metrics at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from poundlock.testing.job_process import JobProcess, end_tagged, new_tag
from support.otlp_receiver import OtlpReceiver, attributes

pytestmark = pytest.mark.engine

JOB = """
from poundlock import DatagenSource, FileSink, Job, counter

kept = counter("kept")


def keep(row):
    kept.inc()
    return row


job = Job("exported", checkpoint_interval="0 s", checkpoint_dir="{folder}/checkpoint", parallelism=1)
made = job.from_source(DatagenSource("id bigint", count=300, rows_per_checkpoint=100), name="made")
made.map(keep, schema="id bigint", name="keep").sink_to(FileSink("{folder}/out", format="json"), name="files")
"""


def test_checkpoints_are_traces_and_the_last_metrics_come_before_the_end(tmp_path: Path) -> None:
    script, tag = tmp_path / "job.py", new_tag()
    script.write_text(JOB.format(folder=tmp_path))
    with OtlpReceiver() as receiver:
        environment = {
            "POUNDLOCK_STATE_DIR": f"{tmp_path}/state",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "OTEL_SERVICE_NAME": "exported-service",
        }
        job = JobProcess(
            script,
            arguments=["--no-rest", "-D", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"],
            environment=environment,
            tag=tag,
            log=tmp_path / "job.log",
        )
        try:
            assert job.wait(300) == 0, job.log_tail(4000)
        finally:
            end_tagged(tag, patience_s=0)
        spans = list(receiver.spans())
        metrics = receiver.newest_metrics()
    checkpoints = [span for span in spans if span.name == "checkpoint"]
    assert [attributes(span)["poundlock.checkpoint"] for span in checkpoints] == [0, 1, 2]
    names = {span.name for span in spans if span.trace_id == checkpoints[0].trace_id}
    assert names >= {"plan", "run", "verify", "decide", "commit"}
    rows = {
        attributes(point)["operator"]: point.as_int for point in metrics["poundlock_operator_rows_in"].sum.data_points
    }
    assert rows == {"made": 300, "keep": 300, "files": 300}
    assert metrics["poundlock_user_kept"].sum.data_points[0].as_int == 300
    assert metrics["poundlock_job_state"].gauge.data_points
