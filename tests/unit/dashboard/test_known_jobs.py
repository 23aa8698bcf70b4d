"""The jobs of a dashboard: all there are, each once, asked in the way that is safe for where it was listed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from poundlock.checkpoint.identity import Identity, open_identity
from poundlock.control.channel import ControlChannel, FolderChannel
from poundlock.control.control_server import ControlServer
from poundlock.control.registry import JobEnd, JobEntry, Registry, registered
from poundlock.dashboard import known_jobs
from poundlock.dashboard.app import make_dashboard
from poundlock.dashboard.known_jobs import KnownJobs
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.rest.access.access import Admission
from poundlock.storage import LocalStorage, open_storage
from poundlock.values import SystemClock

TOKEN = "t" * 16


class Scene:
    """A registry with a job that runs, its run before that failed, and a root with a job of another machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ways: list[tuple[str, str]] = []
        self.registry = Registry(folder / "state", alive=lambda pid, start: True)
        self.here = self.begun("here", folder / "here")
        entry = self.entry(self.here, folder / "here")
        old = self.registry.register(replace(entry, started_ms=1000))
        old.end(JobEnd(state="FAILED", exit_code=1, failure=("it broke", "mend it")))
        self.registration = self.registry.register(entry)
        self.there = self.begun("there", folder / "root" / "there")
        other = replace(
            self.entry(self.there, folder / "root" / "there"),
            host="another",
            token_file="/etc/passwd",
            rest=("evil", 80),
        )
        self.driver = self.driven(other, folder / "root" / "there")
        self.near = self.driven(entry, folder / "here")
        self.known = KnownJobs(self.registry, [str(folder / "root")], self.way("local"), self.way("shared"))
        self.client = TestClient(
            make_dashboard(self.known, Admission.of_token(TOKEN)), headers={"Authorization": f"Bearer {TOKEN}"}
        )

    def begun(self, name: str, folder: Path) -> Identity:
        return open_identity(LocalStorage(str(folder)), name=name, clock=SystemClock())

    def entry(self, identity: Identity, folder: Path) -> JobEntry:
        made = registered(
            job_id=identity.job_id,
            name=identity.name,
            checkpoint_dir=str(folder),
            log=folder / "x.log",
            job_file="job.py",
            arguments=(),
        )
        return replace(made, state="RUNNING", progress={"state": "RUNNING"})

    def driven(self, entry: JobEntry, folder: Path) -> ControlServer:
        made = ControlServer(LocalStorage(str(folder)), entry, StopRequest(), Requests())
        made.start()
        made.update(Progress("RUNNING", checkpoint=7, rows_read=20))
        return made

    def way(self, kind: str) -> Callable[[JobEntry], ControlChannel]:
        def made(entry: JobEntry) -> ControlChannel:
            self.ways.append((kind, entry.name))
            return FolderChannel(open_storage(entry.checkpoint_dir), entry.name)

        return made

    def cards(self) -> dict[str, Any]:
        return {card["name"]: card for card in self.client.get("/dashboard/jobs").json()["jobs"]}

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    for name, seconds in (("_LOOK_S", 0.05), ("_LIST_S", 0.1), ("_ROOT_S", 0.1), ("_TICK_S", 0.05)):
        monkeypatch.setattr(known_jobs, name, seconds)
    monkeypatch.setattr("poundlock.control.control_server._LOOK_S", 0.02)
    monkeypatch.setattr("poundlock.control.channel._POLL_S", 0.02)
    # The driver of another machine holds a lock that is not seen here.
    monkeypatch.setattr("poundlock.control.driver_status._is_held", lambda storage, entry: True)
    made, ended = Scene(tmp_path), threading.Event()
    thread = threading.Thread(target=made.known.run, args=(ended,), daemon=True)
    thread.start()
    yield made
    ended.set()
    thread.join(30)
    for driver in (made.driver, made.near):
        driver.requests.close()
        driver.end(JobEnd(state="FINISHED", exit_code=0))


def test_every_job_is_there_once_with_its_newest_run(scene: Scene) -> None:
    scene.until(lambda: scene.cards().keys() == {"here", "there"})
    cards = scene.cards()
    assert cards["here"]["failure"] is None, "the run that failed is the older one"
    assert cards["there"]["host"] == "another"
    scene.until(lambda: scene.cards()["there"]["checkpoint"] == 7)
    assert {each["id"] for each in scene.client.get("/jobs").json()["jobs"]} == {scene.here.job_id, scene.there.job_id}
    assert scene.client.get("/overview").json()["jobs-running"] == 2
    assert len(scene.client.get("/jobs/overview").json()["jobs"]) == 2
    assert scene.client.get(f"/jobs/{scene.there.job_id}").json()["name"] == "there"
    assert scene.client.get(f"/jobs/{scene.there.job_id}/timeline").json()["decisions"] == []
    assert scene.client.get(f"/jobs/{'0' * 32}").status_code == 404
    assert scene.client.get("/metrics/prometheus").status_code == 404
    assert TestClient(scene.client.app).get("/dashboard/jobs").status_code == 401


def test_a_job_of_a_root_is_asked_by_its_folder_and_no_token_leaves_this_machine(scene: Scene) -> None:
    """Its entry names a token file and a host: whoever can write into the folder could have chosen both."""
    scene.until(lambda: scene.cards().keys() == {"here", "there"})
    asked = scene.client.post(f"/jobs/{scene.there.job_id}/checkpoints").json()["request-id"]
    scene.until(lambda: (taken := scene.driver.requests.take()) is not None and (taken.complete(8) or True))
    path = f"/jobs/{scene.there.job_id}/checkpoints/{asked}"
    scene.until(lambda: scene.client.get(path).json()["status"]["id"] == "COMPLETED")
    assert scene.client.get(path).json()["operation"] == {"checkpointId": 8}
    assert {kind for kind, name in scene.ways if name == "there"} == {"shared"}
    assert {kind for kind, name in scene.ways if name == "here"} == {"local"}


def test_a_job_that_dies_while_it_is_watched_is_shown_as_failed(scene: Scene) -> None:
    scene.until(lambda: scene.cards().keys() == {"here", "there"})
    scene.near.requests.close()
    failure = ("the disk is full", "make room")
    scene.near.end(JobEnd(state="FAILED", exit_code=1, failure=failure, progress={"state": "FAILED"}))
    scene.registration.end(JobEnd(state="FAILED", exit_code=1, failure=failure, progress={"state": "FAILED"}))
    scene.until(lambda: scene.cards()["here"]["state"] == "FAILED")
    card = scene.cards()["here"]
    assert (card["failure"], card["operable"]) == (list(failure), False)
    assert scene.client.post(f"/jobs/{scene.here.job_id}/stop").status_code == 409


def test_a_root_without_jobs_is_named(scene: Scene, tmp_path: Path) -> None:
    assert scene.client.get("/dashboard/jobs").json()["unreadable"] == []
    scene.known.roots = [str(tmp_path / "mistyped")]
    scene.until(lambda: bool(scene.client.get("/dashboard/jobs").json()["unreadable"]))
    assert "mistyped" in scene.client.get("/dashboard/jobs").json()["unreadable"][0]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("job.json", "{"),
        ("job.json", "[]"),
        ("control/driver.json", "{"),
        ("control/driver.json", "[" * 20_000),
        ("control/driver.json", {"progress": {"rows_read": "many"}}),
        ("control/driver.json", {"progress": {"lags": 5}}),
        ("control/driver.json", {"progress": {"load": {"operators": {"a": 1}}}}),
    ],
)
def test_a_damaged_folder_is_named_and_hides_no_other_job(scene: Scene, file: str, content: Any) -> None:
    folder = scene.folder / "root" / "damaged"
    scene.begun("damaged", folder)
    (folder / "control").mkdir()
    entry = replace(scene.entry(scene.there, folder), job_id="d" * 32)
    good = json.loads(entry.to_bytes())
    (folder / "control" / "driver.json").write_text(json.dumps(good))
    scene.until(lambda: scene.cards().keys() == {"here", "there"} | {entry.name})
    whole = content if isinstance(content, str) else json.dumps({**good, **content})
    (folder / file).write_text(whole)
    scene.until(lambda: bool(scene.client.get("/dashboard/jobs").json()["unreadable"]))
    (named,) = scene.client.get("/dashboard/jobs").json()["unreadable"]
    assert named.startswith(f"{folder}: ")
    assert scene.cards().keys() >= {"here", "there"}
    (folder / file).unlink()
    scene.until(lambda: scene.client.get("/dashboard/jobs").json()["unreadable"] == [])


@pytest.mark.filterwarnings("error")
def test_the_description_has_each_path_once_and_says_what_it_is_of(scene: Scene) -> None:
    paths = scene.client.get("/openapi.json").json()["paths"]
    assert paths["/jobs"]["get"]["description"] == "The jobs' ids and states."
    assert paths["/overview"]["get"]["description"] == "All jobs together."


def test_a_token_that_is_missing_is_the_dashboards(scene: Scene) -> None:
    answer = scene.client.get("/jobs", headers={"Authorization": ""})
    assert answer.status_code == 401
    assert answer.json()["errors"][1] == "send Authorization: Bearer with the dashboard's token file"


def test_jobs_in_folders_by_team_and_environment_are_listed(scene: Scene) -> None:
    folder = scene.folder / "root" / "team" / "production" / "deep"
    deep = scene.begun("deep", folder)
    driver = scene.driven(scene.entry(deep, folder), folder)
    scene.until(lambda: scene.cards().keys() == {"here", "there", "deep"})
    assert {job.job_id for job in scene.known.all()} == {scene.here.job_id, scene.there.job_id, deep.job_id}
    driver.end(JobEnd(state="FINISHED", exit_code=0))
