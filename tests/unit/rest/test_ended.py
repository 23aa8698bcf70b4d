"""An ended job stays readable from its checkpoint folder: how it ended, its last figures, and over REST all that the ledger has."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from fastapi.testclient import TestClient

from poundlock.control.control_server import ControlServer
from poundlock.control.driver_status import in_folder
from poundlock.control.registry import JobEnd, registered
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.metrics.load import JobLoad, OperatorLoad
from poundlock.rest.access.access import Admission
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


def test_an_ended_job_answers_over_rest_as_it_was(tmp_path: Path) -> None:
    observed(tmp_path)  # a ledger of two checkpoints
    storage = LocalStorage(str(tmp_path))
    entry = registered(
        job_id=ID, name="first", checkpoint_dir=str(tmp_path), log=tmp_path / "log", job_file="job.py", arguments=()
    )
    server = ControlServer(storage, replace(entry, started_ms=2500), StopRequest(), Requests())
    server.start()
    server.end(JobEnd(state="FINISHED", exit_code=0, progress=asdict(LAST)))
    ended = in_folder(storage)
    assert ended is not None
    assert ended.ended
    shown = observed_in(storage, ended)
    assert shown.progress == LAST
    client = TestClient(make_app(shown, Admission.of_token(TOKEN)), headers={"Authorization": f"Bearer {TOKEN}"})
    found = client.get(f"/jobs/{ID}").json()
    assert (found["state"], found["progress"]["rows_read"], found["end-time"] > 0) == ("FINISHED", 20, True)
    assert [line["id"] for line in client.get(f"/jobs/{ID}/checkpoints").json()["history"]] == [2, 1]
    assert 'operator_rows_in_total{job="first"' in client.get("/metrics/prometheus").text
    assert client.post(f"/jobs/{ID}/stop").status_code == 409, "nobody is there to be asked"
