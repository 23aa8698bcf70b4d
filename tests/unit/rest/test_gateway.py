"""REST out of a checkpoint folder: what the driver wrote is answered, and what is asked comes to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.control.channel import FolderChannel
from poundlock.control.control_files import SETUP, newest_entry, put
from poundlock.control.control_server import ControlServer
from poundlock.control.registry import JobEnd, JobEntry, registered
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.errors import DefinitionError
from poundlock.rest import observed as gateway
from poundlock.rest.access.access import Admission
from poundlock.rest.app import make_app
from poundlock.rest.figures import Figures
from poundlock.rest.observed import Gateway
from poundlock.storage import LocalStorage
from support.rest_job import ID, TOKEN, decision, observed


class Scene:
    """A driver on a machine that is not reached, and a gateway to it."""

    def __init__(self, folder: Path) -> None:
        self.storage = LocalStorage(str(folder))
        self.setup = observed(folder)[0].setup  # and a ledger of two checkpoints
        made = registered(
            job_id=ID, name="orders", checkpoint_dir=str(folder), log=folder / "log", job_file="job.py", arguments=()
        )
        self.first = replace(made, application="application_1_2", host="there", pid=7, started_ms=2500)
        self.driver = self.begin(self.first)
        self.gateway = Gateway(self.storage, self.first, lambda entry: FolderChannel(self.storage, entry.name))
        self.ended = threading.Event()
        threading.Thread(target=self.gateway.run, args=(self.ended,), daemon=True).start()
        self.client = TestClient(
            make_app(self.gateway.observed, Admission.of_token(TOKEN)), headers={"Authorization": f"Bearer {TOKEN}"}
        )

    def begin(self, entry: JobEntry) -> ControlServer:
        put(self.storage, SETUP, msgspec.json.encode(self.setup, enc_hook=str))
        made = ControlServer(self.storage, entry, StopRequest(), Requests())
        made.start()
        made.update(Progress("RUNNING", checkpoint=2, rows_read=20))
        return made

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def until(self, path: str, condition: Any) -> Any:
        deadline = time.monotonic() + 60
        while not condition(now := self.get(path)):
            assert time.monotonic() < deadline, now
            time.sleep(0.02)
        return now

    def taken(self) -> Any:
        while (trigger := self.driver.requests.take()) is None:
            time.sleep(0.01)
        return trigger


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr("poundlock.control.control_server._LOOK_S", 0.02)
    monkeypatch.setattr("poundlock.control.channel._POLL_S", 0.02)
    monkeypatch.setattr(gateway, "_LOOK_S", 0.02)
    monkeypatch.setattr("poundlock.control.yarn.ask", lambda id: None)
    made = Scene(tmp_path)
    yield made
    made.ended.set()
    made.driver.requests.close()
    made.driver.end(JobEnd(state="FINISHED", exit_code=0))


def test_it_answers_as_the_driver_would(scene: Scene) -> None:
    found = scene.until(f"/jobs/{ID}", lambda now: now["state"] == "RUNNING")
    assert found["progress"]["rows_read"] == 20
    assert [(v["id"], v["metrics"]) for v in found["vertices"]] == [
        ("events", {"read-records": 20, "read-bytes": 2000}),
        ("files", {"write-records": 16, "write-bytes": 160}),
    ]
    checkpoints = scene.get(f"/jobs/{ID}/checkpoints")
    assert [line["id"] for line in checkpoints["history"]] == [2, 1]
    assert checkpoints["latest"]["restored"]["id"] == 0, "what was decided before the driver began"
    assert scene.get(f"/jobs/{ID}/config")["execution-config"]["job-parallelism"] == 2
    assert 'poundlock_last_checkpoint{job="orders"' in scene.client.get("/metrics/prometheus").text
    scene.driver.update(Progress("RESTARTING", restarts=1, message="the broker went away"))
    scene.until(f"/jobs/{ID}/exceptions", lambda now: now["root-exception"] == "the broker went away")


def test_what_is_asked_comes_to_the_driver(scene: Scene) -> None:
    asked = scene.client.post(f"/jobs/{ID}/checkpoints").json()["request-id"]
    scene.taken().complete(7)
    done = scene.until(f"/jobs/{ID}/checkpoints/{asked}", lambda now: now["status"]["id"] == "COMPLETED")
    assert done["operation"] == {"checkpointId": 7}
    body = {"target-directory": "s3://bucket/saved", "cancel-job": True}
    asked = scene.client.post(f"/jobs/{ID}/savepoints", json=body).json()["request-id"]
    trigger = scene.taken()
    assert (trigger.directory, trigger.then) == ("s3://bucket/saved", "cancel")
    trigger.fail(DefinitionError("no such bucket", next="make it"))
    done = scene.until(f"/jobs/{ID}/savepoints/{asked}", lambda now: now["status"]["id"] == "COMPLETED")
    assert done["operation"]["failure-cause"]["stack-trace"] == "no such bucket\nNext: make it"
    asked = scene.client.post(f"/jobs/{ID}/savepoints").json()["request-id"]
    done = scene.until(f"/jobs/{ID}/savepoints/{asked}", lambda now: now["status"]["id"] == "COMPLETED")
    assert "needs a folder to go to" in done["operation"]["failure-cause"]["stack-trace"]


def test_a_stop_is_over_when_the_driver_has_ended_and_the_next_one_is_followed(scene: Scene) -> None:
    asked = scene.client.post(f"/jobs/{ID}/stop").json()["request-id"]
    assert scene.driver.stop.wait(60)
    scene.driver.requests.close()
    scene.driver.end(JobEnd(state="FINISHED", exit_code=0))
    scene.until(f"/jobs/{ID}/savepoints/{asked}", lambda now: now["status"]["id"] == "COMPLETED")
    scene.until("/jobs", lambda now: now["jobs"][0]["status"] == "FINISHED")
    assert scene.client.post(f"/jobs/{ID}/stop").status_code == 409
    scene.driver = scene.begin(replace(scene.first, application="application_1_3", started_ms=9000))
    scene.until("/jobs", lambda now: now["jobs"][0]["status"] == "RUNNING")
    scene.until(f"/jobs/{ID}/checkpoints", lambda now: now["latest"]["restored"]["id"] == 2)
    assert scene.client.patch(f"/jobs/{ID}?mode=cancel").status_code == 202
    assert scene.driver.stop.wait(60)
    assert scene.driver.stop.canceling
    scene.until("/jobs", lambda now: now["jobs"][0]["status"] == "CANCELLING")


@pytest.mark.parametrize(("before_ms", "restored", "counted"), [(0, None, 6), (4500, 2, 3), (99_000, 5, 0)])
def test_figures_begin_where_the_driver_did(
    tmp_path: Path, before_ms: int, restored: int | None, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(LocalStorage(str(tmp_path)))
    for number in range(6):
        ledger.append(decision(number, number))
    figures = Figures(ledger, before_ms)
    assert (figures.restored, figures.refresh().records.get("checkpoint", 0)) == (restored, counted)
    monkeypatch.setattr("poundlock.rest.figures._HISTORY", 2)
    assert Figures(ledger, before_ms).refresh().records.get("checkpoint", 0) == min(counted, 2)


def test_it_goes_without_what_cannot_be_read(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    entry = registered(job_id=ID, name="orders", checkpoint_dir="c", log=tmp_path, job_file="job.py", arguments=())
    put(storage, SETUP, b"{")
    made = Gateway(storage, entry, lambda entry: FolderChannel(storage, entry.name))
    assert made.observed.setup.vertices == ()
    assert newest_entry(storage) is None
    made.look()
    assert made.observed.entry == entry
