"""What stands in front of the routes: roles, other sites' pages, and a line for each operation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from poundlock.control.operations_log import OperationsLog
from poundlock.errors import PoundlockError
from poundlock.rest.access.access import Admission
from poundlock.rest.access.tokens import TokenStore
from poundlock.rest.app import make_app
from poundlock.rest.observed import Observed
from support.rest_job import ID, observed

OWN = "the-token-of-the-process"
READER, OPERATOR = "reader-token-0123456789", "operator-token-0123456789"
OPERATIONS = (
    ("POST", f"/jobs/{ID}/checkpoints"),
    ("POST", f"/jobs/{ID}/savepoints"),
    ("POST", f"/jobs/{ID}/stop"),
    ("PATCH", f"/jobs/{ID}"),
)


class Scene:
    def __init__(self, folder: Path, hosts: frozenset[str] | None) -> None:
        self.job: Observed = observed(folder / "ledger")[0]
        file = folder / "tokens"
        file.write_text(f"dashboard read {READER}\nalice operate {OPERATOR}\n")
        file.chmod(0o600)
        self.log = folder / "logs" / "operations.log"
        self.fallback: list[str] = []
        operations = OperationsLog(path=self.log, job_id=ID, job="orders", say=self.fallback.append)
        app = make_app(self.job, Admission(tokens=TokenStore(OWN, file), hosts=hosts, operations=operations))
        self.client = TestClient(app, base_url="http://localhost:8081")

    def ask(self, method: str, path: str, token: str = OPERATOR, headers: Mapping[str, str] | None = None) -> Any:
        return self.client.request(method, path, headers={"Authorization": f"Bearer {token}", **(headers or {})})

    @property
    def changed(self) -> bool:
        return self.job.stop.stopping or bool(self.job.requests._known)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, frozenset({"jobs.example"}))


def test_who_may_only_look_changes_nothing(scene: Scene) -> None:
    assert scene.ask("GET", "/jobs", READER).status_code == 200
    for method, path in OPERATIONS:
        answer = scene.ask(method, path, READER)
        assert answer.status_code == 403
        assert answer.json()["errors"] == ["the token dashboard may only look", "send a token with the role operate"]
    assert not scene.changed
    for method, path in OPERATIONS:
        assert scene.ask(method, path).status_code == 202
    assert scene.changed


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "jobs.example.evil",
        "192.0.2.1:8081",
        "evil.example:8081",
        "",
        "[::2]",
        "[",
        "a@b:c",
    ],
)
def test_a_name_that_somebody_led_to_this_machine_is_refused(scene: Scene, host: str) -> None:
    for method, path in (("GET", "/jobs"), *OPERATIONS):
        answer = scene.ask(method, path, headers={"Host": host})
        assert answer.status_code == 403
        assert answer.json()["errors"][0] == f"this job is not asked as {host!r}"
    assert not scene.changed


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8081", "127.0.0.1", "127.1.2.3:9", "[::1]:8081", "jobs.example", "Jobs.Example.:443"],
)
def test_names_of_this_machine_and_those_that_are_allowed_are_answered(scene: Scene, host: str) -> None:
    assert scene.ask("GET", "/jobs", headers={"Host": host}).status_code == 200


def test_beyond_the_loopback_any_name_is_answered(tmp_path: Path) -> None:
    assert Scene(tmp_path, None).ask("GET", "/jobs", headers={"Host": "pod-0.jobs.svc"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:8081"},
    ],
)
def test_pages_of_other_sites_get_nothing(scene: Scene, headers: dict[str, str]) -> None:
    for method, path in (("GET", "/jobs"), *OPERATIONS):
        answer = scene.ask(method, path, headers={"X-Requested-With": "poundlock", **headers})
        assert answer.status_code == 403
        assert answer.json()["errors"][0] == "a page of another site asks"
        assert "access-control-allow-origin" not in answer.headers
    preflight = scene.client.options(f"/jobs/{ID}/stop", headers={"Access-Control-Request-Method": "POST", **headers})
    assert preflight.status_code == 403
    assert not scene.changed


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://localhost:8081"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Cookie": "a=b"},
    ],
)
def test_an_operation_of_the_own_page_needs_a_header_that_no_form_sends(scene: Scene, headers: dict[str, str]) -> None:
    assert scene.ask("GET", "/jobs", headers=headers).status_code == 200
    for method, path in OPERATIONS:
        answer = scene.ask(method, path, headers=headers)
        assert (answer.status_code, scene.changed) == (403, False)
        assert answer.json()["errors"][0] == "an operation of a page needs the header X-Requested-With"
    assert scene.ask(*OPERATIONS[0], headers={"X-Requested-With": "poundlock", **headers}).status_code == 202


def test_each_operation_leaves_a_line_and_one_about_its_end(scene: Scene) -> None:
    scene.ask("GET", "/jobs")
    body = {"target-directory": "s3://key:hush-hush@bucket/saved", "cancel-job": False}
    answer = scene.client.post(f"/jobs/{ID}/savepoints", json=body, headers={"Authorization": f"Bearer {OPERATOR}"})
    asked = scene.job.requests.take()
    assert asked is not None
    asked.fail(PoundlockError("the disk is full"))
    first, second = scene.lines
    assert first.items() >= {
        "job": "orders", "job_id": ID, "who": "alice", "role": "operate", "operation": "savepoint", "outcome": "accepted",
        "status": 202, "path": f"/jobs/{ID}/savepoints", "request_id": answer.json()["request-id"],
        "arguments": {"target-directory": "s3://key:*****@bucket/saved", "cancel-job": False},
    }.items()  # fmt: skip
    assert first["source"].startswith("testclient:")
    assert first["time"].endswith("Z")
    assert second.items() >= {
        "who": "alice", "operation": "savepoint", "outcome": "failed", "failure": "the disk is full",
        "request_id": first["request_id"],
    }.items()  # fmt: skip
    scene.ask("POST", f"/jobs/{ID}/checkpoints", OWN)
    asked = scene.job.requests.take()
    assert asked is not None
    asked.complete(7)
    assert [(line["who"], line["operation"], line["outcome"], line.get("result")) for line in scene.lines[2:]] == [
        ("owner", "checkpoint", "accepted", None),
        ("owner", "checkpoint", "completed", 7),
    ]
    assert scene.log.stat().st_mode & 0o777 == 0o600


def test_what_is_refused_leaves_a_line_as_well(scene: Scene) -> None:
    scene.ask("PATCH", f"/jobs/{ID}", READER)
    scene.ask("POST", f"/jobs/{ID}/stop", "wrong-token-0123456789")
    scene.ask("POST", f"/jobs/{ID}/stop", headers={"Host": "evil.example"})
    scene.ask("POST", f"/jobs/{'f' * 32}/stop")
    scene.client.post(
        f"/jobs/{ID}/stop", content=b"\xff\n{" + b" " * 3000, headers={"Authorization": f"Bearer {OPERATOR}"}
    )
    scene.ask("DELETE", "/jobs/a%0Ab")
    assert [(line["who"], line["operation"], line["status"], line["outcome"]) for line in scene.lines] == [
        ("dashboard", "cancel", 403, "refused"),
        (None, "stop", 401, "refused"),
        ("alice", "stop", 403, "refused"),
        ("alice", "stop", 404, "refused"),
        ("alice", "stop", 400, "refused"),
        ("alice", "DELETE /jobs/a\nb", 405, "refused"),
    ]
    assert scene.lines[4]["arguments"] == "2049 bytes or more"
    assert "token-0123456789" not in scene.log.read_text()


def test_a_line_that_cannot_be_written_goes_to_the_jobs_log_and_the_job_is_stopped(scene: Scene) -> None:
    scene.log.parent.write_text("no folder")
    assert scene.ask("POST", f"/jobs/{ID}/stop").status_code == 202
    assert scene.job.stop.stopping
    assert "cannot be written" in scene.fallback[0]
    assert '"operation": "stop"' in scene.fallback[0]
