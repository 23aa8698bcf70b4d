"""Ended jobs stay readable from a checkpoint root: how they ended, their last figures, and over REST all that the ledger has."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from poundlock.control.control_server import ControlServer
from poundlock.control.history import read_history
from poundlock.control.registry import registered
from poundlock.driver.failures.failure_record import FailureRecord
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.errors import DefinitionError
from poundlock.metrics.load import JobLoad, OperatorLoad
from poundlock.metrics.timeline import FailedCheckpoint
from poundlock.rest.app import make_app
from poundlock.rest.observed import observed_in
from poundlock.storage import LocalStorage
from support.rest_job import ID, TOKEN, observed

LAST = Progress(
    "FINISHED",
    checkpoint=2,
    rows_read=20,
    load=JobLoad(operators={"parse": OperatorLoad(20, 16)}),
    failed_checkpoints=1,
)


def job(root: Path, name: str, id: str, *, ends: str | None, ended_ms: int = 0) -> None:
    """Make the checkpoint folder of a job that ended, or that this process runs."""
    folder = root / name
    observed(folder)  # a ledger of two checkpoints
    storage = LocalStorage(str(folder))
    entry = registered(
        job_id=id, name=name, checkpoint_dir=str(folder), log=folder / "log", job_file="job.py", arguments=()
    )
    server = ControlServer(storage, replace(entry, started_ms=2500), StopRequest(), Requests())
    server.start()
    failure = ("the disk is full", "make room") if ends == "FAILED" else None
    if ends is None:
        server._over.set()
        return
    server.end(ends, 0, failure=failure, progress=asdict(replace(LAST, state=ends)))  # type: ignore[arg-type]
    server.entry = replace(server.entry, ended_ms=ended_ms)
    server._write()


def test_ended_jobs_with_their_last_figures(tmp_path: Path) -> None:
    job(tmp_path, "first", ID, ends="FINISHED", ended_ms=5_000)
    job(tmp_path, "second", "b" * 32, ends="FAILED", ended_ms=9_000)
    job(tmp_path, "third", "c" * 32, ends=None)
    record = FailureRecord(LocalStorage(f"{tmp_path}/first"), 1, ID, print)
    record.failed(FailedCheckpoint(1, "run", 1, 2, "a worker died"))
    (tmp_path / "other").mkdir()
    (tmp_path / "damaged/control").mkdir(parents=True)
    (tmp_path / "damaged/control/driver.json").write_text("{")
    history = read_history(str(tmp_path))
    assert [(each.entry.name, each.entry.state, each.ended_ms) for each in history.jobs] == [
        ("second", "FAILED", 9_000), ("first", "FINISHED", 5_000)
    ]  # fmt: skip
    assert history.running == 1
    assert list(history.unreadable) == [f"{tmp_path}/damaged"]
    second, first = history.jobs
    assert second.entry.failure == ("the disk is full", "make room")
    assert first.progress == LAST
    assert first.failures.newest[0].cause == "a worker died"
    assert read_history(f"{tmp_path}/first").jobs == (first,), "the folder of one job is a root of one"
    assert read_history(f"{tmp_path}/other").jobs == ()


def test_an_ended_job_answers_over_rest_as_it_was(tmp_path: Path) -> None:
    job(tmp_path, "first", ID, ends="FINISHED", ended_ms=5_000)
    (ended,) = read_history(str(tmp_path)).jobs
    shown = observed_in(LocalStorage(ended.folder), ended.entry)
    client = TestClient(make_app(shown, TOKEN), headers={"Authorization": f"Bearer {TOKEN}"})
    found = client.get(f"/jobs/{ID}").json()
    assert (found["state"], found["progress"]["rows_read"], found["end-time"] > 0) == ("FINISHED", 20, True)
    assert [line["id"] for line in client.get(f"/jobs/{ID}/checkpoints").json()["history"]] == [2, 1]
    assert 'operator_rows_in_total{job="first"' in client.get("/metrics/prometheus").text
    assert client.post(f"/jobs/{ID}/stop").status_code == 409, "nobody is there to be asked"


def test_a_store_that_is_not_known_is_refused() -> None:
    with pytest.raises(DefinitionError):
        read_history("gopher://old/checkpoints")
