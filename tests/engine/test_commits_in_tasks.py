"""A job whose store's client takes much CPU: tasks commit, verify and remove leftovers, and its files are as ever."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock import FileSink, FileSource, Job, NoRestart, RollingPolicy
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.connectors.files.sink.names import owner_tag
from poundlock.driver.driver import run
from poundlock.spark.small_jobs import SparkTasks
from poundlock.storage import LocalStorage
from support.jobs_in_threads import settings

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

ROWS = 30


def bucket(row: Any) -> str:
    return f"b{row['n'] % 10}"


def test_files_are_verified_committed_and_swept_by_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(ROWS)))
    monkeypatch.setattr(LocalStorage, "client_s", 0.25)  # ten calls are more than the driver keeps for itself
    ran: list[tuple[str, int]] = []
    real = SparkTasks.run

    def counted(self: SparkTasks, call: Callable[[list[Any]], list[Any]], pieces: Sequence[list[Any]]) -> Any:
        ran.append((call.func.__name__, sum(map(len, pieces))))  # type: ignore[attr-defined]
        return real(self, call, pieces)

    monkeypatch.setattr(SparkTasks, "run", counted)
    job = Job("in-tasks", checkpoint_interval="0 s", restart=NoRestart())
    source = FileSource(str(tmp_path / "in"), format="json", schema="n long")
    job.from_source(source, name="rows").sink_to(
        FileSink(str(tmp_path / "out"), bucket=bucket, rolling=RollingPolicy(on_checkpoint=True)), name="out"
    )
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    assert ran == [("verify_piece", 10), ("commit_piece", 10)]
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) == 10
    rows = [json.loads(line)["n"] for path in files for line in path.read_text().splitlines()]
    assert sorted(rows) == list(range(ROWS))

    ran.clear()
    (job_id,) = {record.job_id for record in Ledger(LocalStorage(str(tmp_path / "checkpoint")))}
    tag = owner_tag(job_id, "out")
    for number in range(10):
        (tmp_path / "out" / f".part-{number}-0.inprogress.{tag}-dead-0").write_text("{}")
    assert run(job, settings=settings(tmp_path)).state == "FINISHED"
    assert ran == [("remove_piece", 10)]
    assert sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file()) == sorted(files)
