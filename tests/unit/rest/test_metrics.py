"""The metrics of a job: each has a line in docs/metrics.md, and what is shown is what the catalogue says."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from poundlock.control.registry import now_ms
from poundlock.driver.progress import Progress
from poundlock.metrics.load import CommitLoad, JobLoad, OperatorLoad, TaskLoad
from poundlock.metrics.timeline import FailedCheckpoint, Phase, Timeline, UnderWay
from poundlock.metrics.user_totals import GaugeValue, HistogramValue, UserMetrics
from poundlock.rest.access.access import Admission
from poundlock.rest.app import make_app
from poundlock.rest.catalogue import METRICS, PREFIX
from poundlock.rest.observed import Observed
from poundlock.rest.prometheus import exposition
from support.rest_job import ID, TOKEN, decision, observed

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
LOAD = JobLoad(
    operators={"parse": OperatorLoad(20, 16, 3, 1, 0, 1500.0, 500.0, 640)},
    tasks=(TaskLoad(0, 0, 12, 2000.0, 900.0), TaskLoad(0, 1, 8, 1000.0, 700.0)),
    sinks={"files": CommitLoad(4, 1, 250.0)},
    reasons={"no value": 2},
    phases_ms={"run": 3000.0, "commit": 250.0},
    worker_memory_bytes=1 << 20,
    worker_cpu_ms=1600.0,
)


@pytest.fixture
def job(tmp_path: Path) -> Observed:
    made, _ = observed(tmp_path)
    made.entry = replace(made.entry, child=os.getpid(), process_restarts=3)
    progress = replace(
        made.progress,
        load=LOAD,
        rows_per_s=2.5,
        lags={"events": {"events-0": 5}},
        failed_checkpoints=7,
        failed_before=6,
        all_restarts=9,
        newest_failed=(FailedCheckpoint(3, "verify", 4000, 5500, "the disk is full"),),
        under_way=(UnderWay(2, "commit", now_ms() - 9000), UnderWay(3, "run", now_ms() - 4000)),
        timeline=Timeline(2, 3500, 3800, (Phase("run", 3500, 200.0), Phase("commit", 3700, 100.0))),
        parallelism=2,
        state_bytes=10,
        state_locality=0.5,
    )
    made.update(progress)
    return made


def test_every_metric_has_its_line_on_the_page() -> None:
    lines = re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = {(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in lines}
    assert told == {(metric.name, metric.kind, metric.labels) for metric in METRICS}
    assert len(lines) == len(METRICS)


def test_what_is_exposed_is_what_the_catalogue_says(job: Observed) -> None:
    text = exposition(job).decode()
    kinds = {f"{PREFIX}{metric.name}": metric for metric in METRICS}
    seen = set()
    for family in text_string_to_metric_families(text):
        metric = kinds[f"{family.name}_total" if family.type == "counter" else family.name]
        assert family.type == metric.kind
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == {"job", "job_id", *metric.labels}
            seen.add(metric.name)
    without_rows = {"key_group_largest_share", "split_largest_share"}
    on_this_machine = {"driver_memory_bytes", "driver_cpu_seconds_total"}
    assert {metric.name for metric in METRICS} - seen <= without_rows
    assert on_this_machine <= seen


def test_figures_of_operators_tasks_commits_and_failures(job: Observed) -> None:
    text = exposition(job).decode()
    values = dict(re.findall(r"^(poundlock_\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE))
    mine = f'job="orders",job_id="{ID}"'
    expected = {
        f'operator_rows_in_total{{{mine},operator="parse"}}': 20,
        f'operator_busy_seconds_total{{{mine},operator="parse"}}': 1.5,
        f'operator_waiting_seconds_total{{{mine},operator="parse"}}': 0.5,
        f'task_seconds_total{{{mine},stage="0",task="1"}}': 1,
        f'commit_retries_total{{{mine},sink="files"}}': 1,
        f'rows_rejected_total{{{mine},reason="no value"}}': 2,
        f'lag_partition_records{{{mine},partition="events-0",source="events"}}': 5,
        f"lag_seconds{{{mine}}}": 2,
        f"checkpoints_completed_total{{{mine}}}": 2,
        f"checkpoints_failed_total{{{mine}}}": 7,
        f"job_restarts_total{{{mine}}}": 9,
        f'checkpoints_in_progress{{{mine},phase="run"}}': 1,
        f'checkpoints_in_progress{{{mine},phase="verify"}}': 0,
        f'last_checkpoint_phase_seconds{{{mine},phase="commit"}}': 0.1,
        f"last_failed_checkpoint_timestamp_seconds{{{mine}}}": 5.5,
        f"last_checkpoint_timestamp_seconds{{{mine}}}": 4,
    }
    assert {name: float(values[f"poundlock_{name}"]) for name in expected} == expected
    assert 9 <= float(values[f"poundlock_checkpoint_in_progress_seconds{{{mine}}}"]) < 60
    assert float(values[f'poundlock_driver_memory_bytes{{{mine},process="driver"}}']) > 1 << 20


def test_checkpoints_that_failed_or_are_under_way_are_listed(job: Observed) -> None:
    client = TestClient(make_app(job, Admission.of_token(TOKEN)), headers={"Authorization": f"Bearer {TOKEN}"})
    answer = client.get(f"/jobs/{ID}/checkpoints").json()
    counts = {"restored": 1, "total": 4, "in_progress": 1, "completed": 2, "failed": 1, "failed_in_all": 7}
    assert answer["counts"] == counts, "a checkpoint that is decided is complete, though its commit goes on"
    states = [(line["id"], line["status"], line["phase"]) for line in answer["history"]]
    assert states == [
        (3, "IN_PROGRESS", "run"),
        (3, "FAILED", "verify"),
        (2, "COMPLETED", None),
        (1, "COMPLETED", None),
    ]
    failed = answer["latest"]["failed"]
    assert failed.items() >= {"failure_message": "the disk is full", "failure_timestamp": 5500}.items()
    assert failed["end_to_end_duration"] == 1500
    assert answer["history"][2]["phases"] == {"run": 200.0, "commit": 100.0}, "as the driver measured them"


def test_a_checkpoint_learns_from_the_next_record_how_long_its_decision_took(tmp_path: Path) -> None:
    job, ledger = observed(tmp_path)
    late = decision(4, 3)
    ledger.append(replace(late, durations_ms={**late.durations_ms, "decide": 4, "commit": 30}))
    newest, before, *_ = job.figures.history()
    assert newest.phases_ms == {"run": 100, "verify": 20}
    assert before.phases_ms == {"run": 100, "verify": 20, "decide": 4, "commit": 30}


def test_progress_comes_back_from_json_as_it_went(job: Observed) -> None:
    import msgspec

    kept = msgspec.json.decode(msgspec.json.encode(job.entry.to_json()["progress"]))
    assert Progress.of(kept) == replace(job.progress, state=job.entry.progress["state"])


def test_the_metrics_of_the_jobs_own_functions(tmp_path: Path) -> None:
    job, ledger = observed(tmp_path)
    own = UserMetrics(
        counters={"parse": {"bad": 3}, "price": {"bad": 0}},
        gauges={"price": {"newest": GaugeValue(2.5, "sum")}},
        histograms={"price": {"size": HistogramValue((1.0, 10.0), (1, 2, 4), 70.0)}},
    )
    ledger.append(replace(decision(4, 3), metrics=own))
    ledger.append(decision(5, 3, "roll"))
    text = exposition(job).decode()
    values = dict(re.findall(r"^(poundlock_user_\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE))
    mine = f'job="orders",job_id="{ID}"'
    assert {name: float(value) for name, value in values.items()} == {
        f'poundlock_user_bad_total{{{mine},operator="parse"}}': 3,
        f'poundlock_user_bad_total{{{mine},operator="price"}}': 0,
        f'poundlock_user_newest{{{mine},operator="price"}}': 2.5,
        f'poundlock_user_size_bucket{{{mine},le="1.0",operator="price"}}': 1,
        f'poundlock_user_size_bucket{{{mine},le="10.0",operator="price"}}': 3,
        f'poundlock_user_size_bucket{{{mine},le="+Inf",operator="price"}}': 7,
        f'poundlock_user_size_count{{{mine},operator="price"}}': 7,
        f'poundlock_user_size_sum{{{mine},operator="price"}}': 70,
    }
    client = TestClient(make_app(job, Admission.of_token(TOKEN)), headers={"Authorization": f"Bearer {TOKEN}"})
    answer = client.get(f"/jobs/{ID}/user-metrics").json()
    assert answer["counters"] == {"parse": {"bad": 3}, "price": {"bad": 0}}
    assert answer["gauges"] == {"price": {"newest": {"value": 2.5, "combine": "sum"}}}
    assert answer["histograms"]["price"]["size"] == {"bounds": [1.0, 10.0], "counts": [1, 2, 4], "sum": 70.0}
    listed = client.get(f"/jobs/{ID}/metrics?get=parse.bad,price.newest,price.size.count").json()
    assert [(each["id"], float(each["value"])) for each in listed] == [
        ("parse.bad", 3), ("price.newest", 2.5), ("price.size.count", 7)
    ]  # fmt: skip
