"""The REST interface of a job: Flink's shapes, what is asked for, and that nothing happens without the token."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.unit.cli.data.test_state import kept

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.skew import Shares, Skew
from poundlock.driver.progress import Progress
from poundlock.errors import PoundlockError
from poundlock.rest.access.access import Admission
from poundlock.rest.app import make_app
from poundlock.rest.figures import Figures
from poundlock.rest.observed import Observed
from poundlock.rest.probe import answers
from poundlock.rest.server import RestServer, take_port
from poundlock.storage import open_storage
from support.rest_job import ID, TOKEN, decision, observed

ALLOWED = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def made(tmp_path: Path) -> tuple[Observed, Ledger]:
    return observed(tmp_path)


@pytest.fixture
def job(made: tuple[Observed, Ledger]) -> Observed:
    return made[0]


@pytest.fixture
def client(job: Observed) -> TestClient:
    return TestClient(make_app(job, Admission.of_token(TOKEN)), headers=ALLOWED)


def get(client: TestClient, path: str) -> Any:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_overviews(client: TestClient) -> None:
    overview = get(client, "/overview")
    assert overview.items() >= {"jobs-running": 1, "jobs-failed": 0, "slots-total": 2, "taskmanagers": 1}.items()
    assert get(client, "/config")["refresh-interval"] == 3000
    assert get(client, "/jobs") == {"jobs": [{"id": ID, "status": "RUNNING"}]}
    (line,) = get(client, "/jobs/overview")["jobs"]
    assert line.items() >= {"jid": ID, "name": "orders", "state": "RUNNING", "start-time": 1000, "end-time": -1}.items()
    assert line["tasks"]["running"] == line["tasks"]["total"] == 2


def test_skew_of_key_groups_and_splits(client: TestClient, job: Observed) -> None:
    assert get(client, f"/jobs/{ID}/skew") == {"key-groups": [], "splits": []}
    groups = {"counts": Shares.of({"17": 600, "3": 300, "90": 300})}
    job.update(replace(job.progress, skew=Skew(groups, {"in": Shares.of({"events-1": 1200})})))
    found = get(client, f"/jobs/{ID}/skew")
    (of_counts,) = found["key-groups"]
    assert of_counts.items() >= {"id": "counts", "parts": 3, "rows": 1200, "skew": 1.5}.items()
    assert of_counts["largest"][0] == {"name": "17", "rows": 600, "share": 0.5}
    assert found["splits"][0]["largest"] == [{"name": "events-1", "rows": 1200, "share": 1.0}]
    text = client.get("/metrics/prometheus").text
    assert f'poundlock_key_group_largest_share{{job="orders",job_id="{ID}",operator="counts"}} 0.5' in text
    assert f'poundlock_split_largest_share{{job="orders",job_id="{ID}",source="in"}} 1.0' in text


def test_one_that_stands_by_says_so_and_is_asked_for_nothing(client: TestClient, job: Observed) -> None:
    assert get(client, f"/jobs/{ID}")["role"] == "active"
    job.entry = replace(job.entry, role="standby")
    assert get(client, f"/jobs/{ID}")["role"] == "standby"
    for answer in (client.post(f"/jobs/{ID}/stop"), client.patch(f"/jobs/{ID}"), client.post(f"/jobs/{ID}/savepoints")):
        assert answer.status_code == 409
        assert answer.json()["errors"][0] == "this driver stands by, and another one runs the job"
    assert not job.stop.stopping


def test_a_job_with_what_went_through_it(client: TestClient) -> None:
    found = get(client, f"/jobs/{ID}")
    assert found["timestamps"].keys() == {"RUNNING"}
    assert [(v["id"], v["metrics"]) for v in found["vertices"]] == [
        ("events", {"read-records": 20, "read-bytes": 2000}),
        ("files", {"write-records": 16, "write-bytes": 160}),
    ]
    assert found["progress"]["checkpoint"] == 2


def test_checkpoints_of_this_process_and_of_those_before(client: TestClient) -> None:
    found = get(client, f"/jobs/{ID}/checkpoints")
    assert found["counts"] == {
        "restored": 1,
        "total": 2,
        "in_progress": 0,
        "completed": 2,
        "failed": 0,
        "failed_in_all": 0,
    }
    assert [line["id"] for line in found["history"]] == [2, 1]
    assert found["latest"]["completed"]["end_to_end_duration"] == 300, "as the driver measured it"
    assert found["history"][1]["end_to_end_duration"] == 120, "as the ledger says"
    assert found["latest"]["restored"]["id"] == 0
    assert found["summary"]["checkpointed_size"] == {"min": 85, "max": 85, "avg": 85}
    for number in (0, 1, 2):
        details = get(client, f"/jobs/{ID}/checkpoints/details/{number}")
        assert (details["id"], details["rows_late"]) == (number, 1)
        assert details["sources"] == {
            "events": {"start": number * 10, "end": number * 10 + 10, "rows": 10, "bytes": 1000}
        }
    for number in ("3", str(2**63 - 1)):
        assert client.get(f"/jobs/{ID}/checkpoints/details/{number}").status_code == 404
    for number in ("-1", "x", str(2**63)):
        assert client.get(f"/jobs/{ID}/checkpoints/details/{number}").status_code == 400


def test_a_record_that_is_made_while_one_looks_is_seen_at_the_next_look(
    client: TestClient, made: tuple[Observed, Ledger]
) -> None:
    assert get(client, f"/jobs/{ID}/checkpoints")["counts"]["completed"] == 2
    made[1].append(decision(4, 3))
    assert get(client, f"/jobs/{ID}/checkpoints")["counts"]["completed"] == 3


def test_exceptions_metrics_and_settings(client: TestClient, job: Observed) -> None:
    assert get(client, f"/jobs/{ID}/exceptions")["root-exception"] is None
    job.update(Progress("RESTARTING", restarts=1, message="the broker went away (again in 1.0 s)"))
    found = get(client, f"/jobs/{ID}/exceptions")
    assert found["root-exception"].startswith("the broker went away")
    assert len(found["exceptionHistory"]["entries"]) == 1
    names = {metric["id"] for metric in get(client, f"/jobs/{ID}/metrics")}
    assert {"rows_read", "restarts", "uptime", "currentWatermark"} <= names
    assert get(client, f"/jobs/{ID}/metrics?get=currentWatermark") == [{"id": "currentWatermark", "value": "2500"}]
    job.update(Progress("RUNNING", restarts=1, watermark=9000, held_by="t-1 of time"))  # a partition went idle since
    assert get(client, f"/jobs/{ID}/metrics?get=currentWatermark") == [{"id": "currentWatermark", "value": "9000"}]
    assert get(client, f"/jobs/{ID}/metrics?get=restarts,none") == [{"id": "restarts", "value": "1"}]
    assert get(client, f"/jobs/{ID}/config")["execution-config"]["user-config"]["spark"] == {
        "spark.ssl.keyPassword": "*****"
    }


def test_the_restart_strategy_is_the_one_that_holds(client: TestClient, job: Observed) -> None:
    path = f"/jobs/{ID}/config"
    assert get(client, path)["execution-config"]["restart-strategy"] == "exponential-delay", (
        "written by an older driver"
    )
    job.setup = replace(job.setup, restart_strategy="fixed-delay")
    assert get(client, path)["execution-config"]["restart-strategy"] == "fixed-delay"


def test_prometheus(client: TestClient, job: Observed) -> None:
    text = client.get("/metrics/prometheus").text
    values = dict(re.findall(r"^(poundlock_\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE))
    mine = f'job="orders",job_id="{ID}"'
    assert {
        f'poundlock_rows_in_total{{{mine},source="events"}}': "20.0",
        f'poundlock_rows_out_total{{{mine},sink="files"}}': "16.0",
        f'poundlock_bytes_in_total{{{mine},source="events"}}': "2000.0",
        f'poundlock_bytes_out_total{{{mine},sink="files"}}': "160.0",
        f'poundlock_rows_late_total{{{mine},sink="files"}}': "2.0",
        f'poundlock_rows_dead_lettered_total{{{mine},sink="files"}}': "2.0",
        f"poundlock_lag_records{{{mine}}}": "5.0",
        f"poundlock_watermark_timestamp_seconds{{{mine}}}": "2.5",
        f"poundlock_checkpoint_duration_seconds_count{{{mine}}}": "2.0",
        f"poundlock_checkpoint_duration_seconds_sum{{{mine}}}": "0.42",
        f'poundlock_checkpoint_duration_seconds_bucket{{{mine},le="0.25"}}': "1.0",
        f'poundlock_checkpoint_duration_seconds_bucket{{{mine},le="0.5"}}': "2.0",
        f'poundlock_checkpoint_duration_seconds_bucket{{{mine},le="+Inf"}}': "2.0",
        f'poundlock_checkpoint_size_bytes_bucket{{{mine},le="1024.0"}}': "2.0",
        f"poundlock_checkpoint_size_bytes_sum{{{mine}}}": "170.0",
        f"poundlock_last_checkpoint_size_bytes{{{mine}}}": "85.0",
        f"poundlock_restarts_total{{{mine}}}": "0.0",
        f'poundlock_job_state{{{mine},state="RUNNING"}}': "1.0",
    }.items() <= values.items()
    assert "state_size" not in text, "what is not known is no zero"
    assert "process_restarts" not in text, "there is no supervisor"
    job.update(Progress("RUNNING", state_bytes=4096))
    assert f"poundlock_state_size_bytes{{{mine}}} 4096.0" in client.get("/metrics/prometheus").text


def test_the_parallelism_that_the_autoscaler_has_chosen_is_shown_instead_of_what_was_set(
    client: TestClient, job: Observed
) -> None:
    mine = f'job="orders",job_id="{ID}"'
    assert "poundlock_parallelism" not in client.get("/metrics/prometheus").text
    assert {vertex["parallelism"] for vertex in get(client, f"/jobs/{ID}")["vertices"]} == {2}
    job.update(Progress("RUNNING", parallelism=6, state_locality=0.75))
    assert {vertex["parallelism"] for vertex in get(client, f"/jobs/{ID}")["vertices"]} == {6}
    assert get(client, f"/jobs/{ID}/config")["execution-config"]["job-parallelism"] == 6
    assert get(client, "/overview")["slots-total"] == 6
    text = client.get("/metrics/prometheus").text
    assert f"poundlock_parallelism{{{mine}}} 6.0" in text
    assert f"poundlock_state_locality_ratio{{{mine}}} 0.75" in text


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_the_savepoint_a_job_began_with_is_told(tmp_path: Path, processes: int) -> None:
    """To the process that began with it, and to one that came before the first checkpoint; later ones began with a checkpoint."""
    ledger = Ledger(open_storage(str(tmp_path / "ledger")))
    restored = {"savepoint": "savepoint-c0ffee-0123", "path": "/saved/savepoint-c0ffee-0123", "job_id": "f" * 32}
    ledger.append(replace(decision(0, 7, "start"), restored=restored))
    records = [decision(1, 7, "start"), decision(2, 8)]
    for record in records[:processes]:
        ledger.append(record)
    job, _ = observed(tmp_path / "any")
    job.figures = Figures(ledger)
    found = get(TestClient(make_app(job, Admission.of_token(TOKEN)), headers=ALLOWED), f"/jobs/{ID}/checkpoints")
    assert found["began_with"] == restored["path"]
    told = found["latest"]["restored"]
    if processes < 2:
        assert (told["id"], told["is_savepoint"], told["external_path"]) == (7, True, restored["path"])
    else:
        assert (told["id"], told["is_savepoint"], told["external_path"]) == (8, False, None)


def test_restarts_of_the_process_are_told_with_their_causes(tmp_path: Path) -> None:
    job, _ = observed(tmp_path)
    job.entry = replace(job.entry, child=7, process_restarts=2, troubles=[("killed", 5), ("again", 9)])
    client = TestClient(make_app(job, Admission.of_token(TOKEN)), headers=ALLOWED)
    assert (
        f'poundlock_process_restarts_total{{job="orders",job_id="{ID}"}} 2.0' in client.get("/metrics/prometheus").text
    )
    found = get(client, f"/jobs/{ID}/exceptions")
    assert (found["root-exception"], found["timestamp"]) == ("again", 9)
    assert [entry["exceptionName"] for entry in found["exceptionHistory"]["entries"]] == ["again", "killed"]


def test_the_probe_asks_the_job_with_the_token_of_its_file(tmp_path: Path, job: Observed) -> None:
    server = RestServer(take_port("127.0.0.1", 0), "a-token-of-a-secret")
    server.start(job)
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("a-token-of-a-secret\n")
    wrong.write_text("another-one-than-that")
    asked = {"POUNDLOCK_REST_PORT": str(server.address[1])}
    assert answers({**asked, "POUNDLOCK_REST_TOKEN_FILE": str(right)}) is None
    assert answers({**asked, "POUNDLOCK_REST_TOKEN_FILE": str(wrong)}) == "the job answers with HTTP status 401"
    right.write_text("# tokens\nalice read sha256:" + "0" * 64 + "\nbob operate a-token-of-a-secret\n")
    assert answers({**asked, "POUNDLOCK_REST_TOKEN_FILE": str(right)}) is None, (
        "the first that stands there as it is sent"
    )
    assert "have to say where to ask" in str(answers({}))
    assert "have to say where to ask" in str(answers({**asked, "POUNDLOCK_REST_TOKEN_FILE": str(tmp_path / "none")}))
    server.close()
    assert "does not answer on port" in str(answers({**asked, "POUNDLOCK_REST_TOKEN_FILE": str(right)}))


def test_a_checkpoint_is_asked_for_and_looked_up(client: TestClient, job: Observed) -> None:
    answer = client.post(f"/jobs/{ID}/checkpoints")
    assert answer.status_code == 202
    path = f"/jobs/{ID}/checkpoints/{answer.json()['request-id']}"
    assert get(client, path) == {"status": {"id": "IN_PROGRESS"}}
    asked = job.requests.take()
    assert asked is not None
    asked.complete(17)
    assert get(client, path) == {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": 17}}
    assert client.get(path.replace("checkpoints", "savepoints")).status_code == 404, "it is no savepoint"
    assert client.get(f"/jobs/{ID}/checkpoints/{'0' * 32}").status_code == 404


def test_a_savepoint_is_asked_for_as_it_was_said(client: TestClient, job: Observed) -> None:
    body = {"target-directory": "/backup", "cancel-job": True}
    asked_id = client.post(f"/jobs/{ID}/savepoints", json=body).json()["request-id"]
    asked = job.requests.take()
    assert asked is not None
    assert (asked.kind, asked.directory, asked.then, asked.id) == ("savepoint", "/backup", "cancel", asked_id)
    asked.fail(PoundlockError("the disk is full", next="free some space"))
    operation = get(client, f"/jobs/{ID}/savepoints/{asked_id}")["operation"]
    assert operation["failure-cause"]["stack-trace"] == "the disk is full\nNext: free some space"
    client.post(f"/jobs/{ID}/stop", json={"targetDirectory": "/backup", "drain": True})
    asked = job.requests.take()
    assert asked is not None
    assert (asked.kind, asked.directory, asked.then, asked.drain) == ("savepoint", "/backup", "stop", True)
    assert not job.stop.stopping, "only once the savepoint is there"


def test_a_stop_and_a_cancel(client: TestClient, job: Observed) -> None:
    asked_id = client.post(f"/jobs/{ID}/stop").json()["request-id"]
    assert (job.stop.stopping, job.stop.canceling) == (True, False)
    assert get(client, f"/jobs/{ID}/savepoints/{asked_id}")["status"]["id"] == "IN_PROGRESS"
    assert client.patch(f"/jobs/{ID}?mode=cancel").status_code == 202
    assert job.stop.canceling
    assert get(client, "/jobs")["jobs"][0]["status"] == "CANCELLING"
    job.update(Progress("CANCELED"))
    job.requests.close()
    assert get(client, f"/jobs/{ID}/savepoints/{asked_id}")["status"]["id"] == "COMPLETED"
    for answer in (
        client.post(f"/jobs/{ID}/stop"),
        client.patch(f"/jobs/{ID}"),
        client.post(f"/jobs/{ID}/checkpoints"),
    ):
        assert answer.status_code == 409
        assert answer.json()["errors"] == ["the job has ended: CANCELED", "start it again: poundlock run job.py"]
    note = {"v": 1, "savepoint": "/saved/a b", "job_id": ID}
    (Path(job.entry.checkpoint_dir) / "savepoint.json").write_text(json.dumps(note))
    next = client.post(f"/jobs/{ID}/stop").json()["errors"][1]
    assert next == "start it again: poundlock run -s '/saved/a b' job.py", "anything else is refused"


def test_what_is_not_understood_is_refused_and_changes_nothing(client: TestClient, job: Observed) -> None:
    other = "f" * 32
    refused = [
        (404, client.get(f"/jobs/{other}")),
        (404, client.post(f"/jobs/{other}/stop")),
        (400, client.get("/jobs/abc")),
        (400, client.post(f"/jobs/{ID}/stop", json={"drian": True})),
        (400, client.post(f"/jobs/{ID}/stop", json=[])),
        (400, client.post(f"/jobs/{ID}/stop", content=b'{"targetDirectory": "\\ud800"}')),
        (400, client.post(f"/jobs/{ID}/stop", content=b"{", headers={"Content-Type": "application/json"})),
        (400, client.patch(f"/jobs/{ID}?mode=cancle")),
        (404, client.get("/nothing")),
        (405, client.delete(f"/jobs/{ID}")),
    ]
    for expected, answer in refused:
        assert answer.status_code == expected, answer.text
        what, next = answer.json()["errors"]
        assert what
        assert next.startswith("see ")
    assert not job.stop.stopping
    assert job.requests.take() is None


def test_an_id_of_another_job_is_answered_with_the_id_of_this_one(client: TestClient) -> None:
    for asked, what in (("f" * 32, "is not here"), ("abc", "'abc' is no job id")):
        wrong, there = client.get(f"/jobs/{asked}").json()["errors"]
        assert what in wrong
        assert ID in there


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": TOKEN},
        {"Authorization": f"bearer {TOKEN}x"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {TOKEN}"},
        [("Authorization", "Bearer no"), ("Authorization", f"Bearer {TOKEN}")],
    ],
)
def test_without_the_token_nothing_is_shown_and_nothing_changes(job: Observed, headers: Any) -> None:
    client = TestClient(make_app(job, Admission.of_token(TOKEN)))
    answers = [
        client.request(method, path, headers=headers)
        for method, path in (
            ("GET", "/openapi.json"),
            ("GET", "/metrics/prometheus"),
            ("GET", "/jobs"),
            ("GET", "/nothing"),
            ("POST", f"/jobs/{ID}/stop"),
            ("POST", f"/jobs/{ID}/checkpoints"),
            ("PATCH", f"/jobs/{ID}"),
        )
    ]
    assert [answer.status_code for answer in answers] == [401] * 7
    assert ID not in "".join(answer.text for answer in answers)
    assert not job.stop.stopping
    assert job.requests.take() is None


@pytest.mark.parametrize(("key", "text"), [("a/b", "a%2Fb"), ("", ""), (date(2018, 12, 19), "2018-12-19")])
def test_one_key_of_state(tmp_path: Path, client: TestClient, job: Observed, key: Any, text: str) -> None:
    folder = tmp_path / "kept"
    kept(folder, {key: 7})
    job.entry = replace(job.entry, checkpoint_dir=str(folder))
    answer = get(client, f"/jobs/{ID}/operators/totals/state/{text}")
    entry = {"key": text.replace("%2F", "/"), "window": None, "windowed": False, "value": 7}
    assert answer["state"] == {"state:sum": {"kind": "value", "ttl_ms": None, "count": 1, "entries": [entry]}}
    assert (answer["operator"], answer["watermark"], answer["event_timers"]) == ("totals", 5, [])


def test_state_that_is_not_there_or_cannot_be_read_is_refused_in_words(
    tmp_path: Path, client: TestClient, job: Observed
) -> None:
    folder = tmp_path / "kept"
    kept(folder, {3: 7})
    job.entry = replace(job.entry, checkpoint_dir=str(folder))
    base = f"/jobs/{ID}/operators"
    assert get(client, f"{base}/totals/state/4")["state"] == {}
    (record,) = (folder / "ledger").glob("*.json")
    refused = []
    for path in (f"{base}/total/state/3", f"{base}/totals/state/ada", f"{base}/totals/state/3?limit=0"):
        answer = client.get(path)
        refused.append((answer.status_code, answer.json()["errors"][0]))
    record.write_bytes(record.read_bytes().replace(b'"checkpoint":0', b'"checkpoint":1'))
    answer = client.get(f"{base}/totals/state/3")
    refused.append((answer.status_code, answer.json()["errors"][0]))
    assert [status for status, _ in refused] == [404, 400, 400, 503]
    assert refused[1][1] == "'ada' is no key of totals, whose keys are such as 3"
    assert "its checksum" in refused[3][1]


def test_a_ledger_that_cannot_be_read_yet_does_not_end_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ledger = observed(tmp_path)
    newest = ledger.newest

    def broken() -> Any:
        raise PoundlockError("the storage is away")

    monkeypatch.setattr(ledger, "newest", broken)
    figures = Figures(ledger)
    assert figures.history() == []
    monkeypatch.setattr(ledger, "newest", newest)
    assert figures.history() == []
    ledger.append(decision(4, 3))
    assert [each.number for each in figures.history()] == [3]
    assert figures.restored == 2


def test_a_request_that_is_too_large_is_refused_and_does_nothing(client: TestClient, job: Observed) -> None:
    for body in (b" " * 100_000, iter([b" " * 50_000] * 3)):
        answer = client.post(f"/jobs/{ID}/savepoints", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        assert answer.json()["errors"][0] == "the request has more than 65,536 bytes"
    assert job.requests.take() is None
