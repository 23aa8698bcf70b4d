"""What the dashboard reads of a job, from a ledger that is known to the last row."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from poundlock.checkpoint.decision import SinkDecision, SourceRange
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.participant import Counts
from poundlock.checkpoint.skew import Shares, Skew
from poundlock.control.registry import now_ms
from poundlock.metrics.load import JobLoad, OperatorLoad
from poundlock.metrics.timeline import FailedCheckpoint, Timeline
from poundlock.operators.time_values import (
    DecidedTime,
    PartitionTime,
    SourceTime,
    StreamHolder,
    StreamTime,
    TimeDirective,
    TimeState,
)
from poundlock.plan.graph import GraphEdge, GraphNode, GraphStage, JobGraph
from poundlock.rest.access.access import Admission
from poundlock.rest.app import make_app
from poundlock.rest.observed import Observed, Vertex
from poundlock.rest.trend import Trend
from poundlock.state.decided_state import DecidedState
from poundlock.state.manifest import Fragment, Manifest, OperatorMeta, RunFile, TableMeta
from support.rest_job import ID, TOKEN, decision, observed

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture
def made(tmp_path: Path) -> tuple[Observed, Ledger]:
    return observed(tmp_path / "checkpoint")


@pytest.fixture
def job(made: tuple[Observed, Ledger]) -> Observed:
    return made[0]


@pytest.fixture
def client(job: Observed) -> TestClient:
    return TestClient(make_app(job, Admission.of_token(TOKEN)), headers={"Authorization": f"Bearer {TOKEN}"})


def get(client: TestClient, path: str) -> Any:
    answer = client.get(path if path.startswith("/dash") else f"/jobs/{ID}/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_list_has_the_one_job_of_a_jobs_own_server(client: TestClient, job: Observed) -> None:
    shown = get(client, "/dashboard/jobs")
    (card,) = shown["jobs"]
    assert card.items() >= {"jid": ID, "name": "orders", "state": "RUNNING", "rows_read": 20, "lag": 5}.items()
    assert (card["operable"], card["ended"], shown["unreadable"]) == (True, None, [])
    job.entry = replace(job.entry, state="FAILED", ended_ms=9000, failure=("the disk is full", "make room"))
    (card,) = get(client, "/dashboard/jobs")["jobs"]
    assert (card["operable"], card["ended"], card["failure"]) == (False, 9000, ["the disk is full", "make room"])


def test_phases_of_a_checkpoint_stand_in_its_record_and_the_one_after_it(
    client: TestClient, made: tuple[Observed, Ledger]
) -> None:
    made[1].append(replace(decision(4, 3), durations_ms={"run": 7, "verify": 1, "decide": 30, "commit": 4}))
    shown = get(client, "timeline?last=2")
    assert [line["number"] for line in shown["decisions"]] == [4, 3]
    assert shown["decisions"][0]["durations"] == {"run": 7, "verify": 1}, "the next record will have the rest"
    assert shown["decisions"][1]["durations"] == {"run": 100, "verify": 20, "decide": 30, "commit": 4}
    assert (shown["oldest"], shown["newest"]) == (0, 4)
    line = shown["decisions"][1]
    assert (line["rows_read"], line["rows_written"], line["bytes_written"], line["dead_lettered"]) == (10, 8, 85, 1)
    older = get(client, "timeline?last=2&before=4")["decisions"]
    assert [each["number"] for each in older] == [3, 2]
    assert older[0] == line, "a page begins with what its newest record became"
    assert [each["number"] for each in get(client, "timeline?last=9&before=99")["decisions"]] == [4, 3, 2, 1, 0]
    assert get(client, "timeline?before=0")["decisions"] == []


def test_failures_are_on_the_timeline(client: TestClient, job: Observed) -> None:
    job.entry = replace(job.entry, troubles=(("the broker went away", 2500),))
    assert get(client, "timeline")["failures"][0].items() >= {"at": 2500, "what": "the broker went away"}.items()


def test_failed_checkpoints_are_on_the_timeline_once_with_the_restart_that_they_led_to(
    client: TestClient, job: Observed
) -> None:
    failed = [
        FailedCheckpoint(3, "run", 900, 1000, "a worker died"),
        FailedCheckpoint(4, "verify", 1900, 2000, "the broker went away"),
        FailedCheckpoint(4, "run", 2900, 3000, "the broker went away"),
    ]
    job.update(replace(job.progress, newest_failed=tuple(failed)))
    job.entry = replace(job.entry, troubles=(("the broker went away (again in 1.0 s)", 2500), ("no memory", 9000)))
    shown = get(client, "timeline")["failures"]
    assert [(each["at"], each["what"], each["level"]) for each in shown] == [
        (9000, "no memory", "restart"),
        (3000, "checkpoint 4 failed in run: the broker went away", "checkpoint"),
        (2500, "checkpoint 4 failed in verify: the broker went away (again in 1.0 s)", "restart"),
        (1000, "checkpoint 3 failed in run: a worker died", "checkpoint"),
    ]


def test_a_record_is_opened_up_and_one_that_is_not_there_is_none(client: TestClient) -> None:
    shown = get(client, "ledger/2")
    assert shown["record"]["sources"]["events"] == {"start": 10, "end": 20, "identity": {}, "rows": 10, "bytes": 1000}
    assert shown["committed"] is None
    assert get(client, "ledger/3")["committed"] is False, "of the newest that is not noted yet"
    assert client.get(f"/jobs/{ID}/ledger/4").status_code == 404
    assert client.get(f"/jobs/{ID}/ledger/-1").status_code == 400


def test_watermarks_and_positions_by_partition(client: TestClient, made: tuple[Observed, Ledger]) -> None:
    times = TimeState(
        streams={"time": StreamTime(watermark=700)},
        sources={
            "time": {
                "events": SourceTime(
                    watermark=700,
                    held_by="clicks-1",
                    partitions={
                        "clicks-0": PartitionTime(watermark=900),
                        "clicks-1": PartitionTime(watermark=700, idle=True),
                    },
                )
            }
        },
    )
    decided = DecidedTime(
        v=2,
        watermark=700,
        held_by=StreamHolder("events", "clicks-1"),
        state=times,
        directive=TimeDirective(TimeState(), 0, {}),
    )
    span = SourceRange({"clicks": {"0": 5, "1": 2}}, {"clicks": {"0": 9, "1": 2}}, {}, 4, None)
    made[1].append(replace(decision(4, 3), watermarks=decided, sources={"events": span}))
    made[0].update(replace(made[0].progress, lags={"events": {"clicks-1": 5}, "another": {"clicks-0": 7}}))
    shown = get(client, "watermarks")
    (source,) = shown["sources"]
    assert (source["watermark"], source["held_by"], source["assigner"]) == (700, "clicks-1", "time")
    assert [(p["name"], p["watermark"], p["idle"], p["position"], p["rows"]) for p in source["partitions"]] == [
        ("clicks-0", 900, False, 9, 4),
        ("clicks-1", 700, True, 2, 0),
    ]
    assert [p["lag"] for p in source["partitions"]] == [None, 5], "what is not known is no zero"
    assert shown["streams"] == [{"id": "time", "watermark": 700, "idle": False}]
    assert (shown["lag"], shown["latest_event"]) == (5, 9)


def test_state_by_operator_and_key_group(client: TestClient, made: tuple[Observed, Ledger]) -> None:
    job, ledger = made
    file = RunFile(name="state/a.arrow", digest="d", bytes=1000, rows=40, checkpoint=3, first=0, stop=4, id=1)
    manifest = Manifest(
        max_parallelism=8,
        checkpoint=3,
        operators={"counts": OperatorMeta(number=1, tables={"n": TableMeta(kind="value", ttl_ms=60_000)}, watermark=5)},
        files=(file,),
        fragments=(Fragment(0, 1, (1,)), Fragment(1, 4, (1,)), Fragment(4, 8)),
    )
    ledger.append(replace(decision(4, 3), state=DecidedState.whole({"stage-1": manifest})))
    job.update(replace(job.progress, skew=Skew({"counts": Shares.of({"2": 30, "3": 10})}, {})))
    shown = get(client, "state")
    assert (shown["bytes"], shown["rows"], shown["files"], shown["max_parallelism"]) == (1000, 40, 1, 8)
    (counts,) = shown["operators"]
    assert counts["tables"] == [{"name": "n", "kind": "value", "ttl_ms": 60_000, "windowed": False, "broadcast": False}]
    assert [(r["first"], r["stop"], r["bytes"], r["rows"]) for r in counts["ranges"]] == [
        (0, 1, 250, 10),
        (1, 4, 750, 30),
        (4, 8, 0, 0),
    ]
    assert (counts["skew"], counts["largest"]) == (1.5, [["2", 30, 0.75], ["3", 10, 0.25]])


def with_files(number: int, checkpoint: int, folder: Path, name: str) -> Any:
    """Return a record that makes a file of dead letters visible, and a transaction of another sink."""
    before = decision(number, checkpoint)
    file = {
        "v": 1, "tag": "t", "root": str(folder), "bucket": "", "final": name, "kind": "raw", "bytes": 9, "rows": 2,
        "min_ms": None, "max_ms": None, "segments": [{"path": ".p", "bytes": 9, "rows": 2}],
    }  # fmt: skip
    sinks = {
        "files": SinkDecision(
            [{"v": 1, "tid": "orders-1", "rows": 8, "bytes": 80}], {"pending": 3}, Counts(read=8, written=8)
        ),
        "dead-letter": SinkDecision([file], {"root": str(folder)}, Counts(read=2, written=2)),
    }
    return replace(before, sinks=sinks)


def test_sinks_with_their_commits_and_files(client: TestClient, made: tuple[Observed, Ledger], tmp_path: Path) -> None:
    made[1].append(with_files(4, 3, tmp_path, "dead-0-0.jsonl"))
    files, dead = get(client, "sinks?last=1")["sinks"]
    assert files["id"] == "files"
    assert (files["pending"], files["counts"]["written"], files["description"]) == (3, 8, "FileSink")
    assert files["commits"][0].items() >= {"what": ["orders-1"], "rows": 8, "bytes": 80, "pieces": 1}.items()
    assert dead["files"][0].items() >= {"path": f"{tmp_path}/dead-0-0.jsonl", "rows": 2, "checkpoint": 3}.items()


def test_dead_letters_have_samples_and_reasons(
    client: TestClient, made: tuple[Observed, Ledger], tmp_path: Path
) -> None:
    assert get(client, "dead-letters")["samples"] == []
    letters = [
        {
            "source": "events",
            "offset": n,
            "operator": "check",
            "checkpoint": 3,
            "reason": f"{HOSTILE} {n}",
            "value": HOSTILE,
        }
        for n in (17, 18)
    ]
    (tmp_path / "dead-0-0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in letters) + "no json\n")
    made[1].append(with_files(4, 3, tmp_path, "dead-0-0.jsonl"))
    made[1].append(with_files(5, 4, tmp_path, "gone.jsonl"))
    shown = get(client, "dead-letters?last=2&samples=3")
    assert shown["rows"] == 4
    assert "gone.jsonl cannot be read" in shown["note"]
    torn, newest, older = shown["samples"]
    assert (torn["value"], torn["reason"], torn["operator"]) == ("no json", "", None)
    assert (newest["value"], newest["reason"], newest["place"]) == (
        HOSTILE,
        f"{HOSTILE} 18",
        {"source": "events", "offset": 18},
    )
    assert older["checkpoint"] == 3
    assert [f"{HOSTILE} …", 2] in shown["reasons"], "reasons that differ in numbers alone are one"


def test_the_log_by_level_and_text_and_failures_in_full(client: TestClient, job: Observed, tmp_path: Path) -> None:
    log = tmp_path / "orders.log"
    lines = [
        {"time": "2026-11-27T21:35:38.9Z", "level": "info", "message": "run", "job": "orders", "file": "job.py"},
        {"time": "2026-11-27T21:35:39.0Z", "level": "error", "message": "it broke", "exception": f"Traceback\n{HOSTILE}"},
    ]  # fmt: skip
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + "plain text\n")
    job.entry = replace(job.entry, log=str(log), troubles=(("the broker went away", 2500),))
    shown = get(client, "log")
    assert [line["message"] for line in shown["lines"]] == ["run", "it broke", "plain text"]
    assert shown["lines"][0]["rest"] == {"file": "job.py"}
    assert [line["message"] for line in get(client, "log?level=warning")["lines"]] == ["it broke"]
    assert [line["message"] for line in get(client, "log?contains=PLAIN")["lines"]] == ["plain text"]
    assert [line["message"] for line in get(client, "log?last=1")["lines"]] == ["plain text"]
    broke, restarted = get(client, "failures")["entries"]
    assert (broke["what"], broke["trace"], broke["level"]) == ("it broke", f"Traceback\n{HOSTILE}", "error")
    assert (restarted["what"], restarted["level"]) == ("the broker went away", "restart")


def test_no_file_but_a_log_is_read_as_one(client: TestClient, job: Observed, tmp_path: Path) -> None:
    secret = tmp_path / "id_rsa"
    secret.write_text("secret\n")
    job.entry = replace(job.entry, log=str(secret))
    assert "secret" not in client.get(f"/jobs/{ID}/log").text
    job.entry = replace(job.entry, log=str(tmp_path / "none.log"))
    assert client.get(f"/jobs/{ID}/log").status_code == 404
    assert "cannot be read" in get(client, "failures")["entries"][0]["what"]


def test_whoever_writes_a_folder_does_not_choose_which_log_of_this_machine_is_shown(
    client: TestClient, job: Observed, tmp_path: Path
) -> None:
    log = tmp_path / "another.log"
    log.write_text('{"message": "of somebody else"}\n')
    job.entry = replace(job.entry, log=str(log))
    assert "of somebody else" in client.get(f"/jobs/{ID}/log").text
    job.entry = replace(job.entry, written_ms=0)
    assert "of somebody else" not in client.get(f"/jobs/{ID}/log").text


def test_figures_over_time(client: TestClient, made: tuple[Observed, Ledger]) -> None:
    job, ledger = made
    at = now_ms() - 30_000
    job.trend = Trend()
    for ms in (at, at + 9_999, at + 10_000):
        job.trend.add(job.progress, ms)
    for number, seconds in ((4, 0), (5, 10)):
        ledger.append(replace(decision(number, number - 1), time_ms=at + seconds * 1000))
    shown = get(client, "series?minutes=1")
    columns = shown["columns"]
    assert all(len(column) == len(shown["time"]) for column in columns.values())
    read = [rate for rate in columns["rows_read_per_s"] if rate is not None]
    assert len(read) == 11, "from the first to the last, and nothing is known before and behind"
    assert sum(read) * (shown["time"][1] - shown["time"][0]) / 1000 == pytest.approx(20)
    assert columns["run_ms"].count(100) == 2
    assert sum(columns["checkpoints"][n] or 0 for n in range(len(shown["time"]))) == 2
    assert columns["lag"].count(5) == 2, "sampled every ten seconds at most"
    delays = [value for value in columns["watermark_delay_s"] if value is not None]
    assert delays == pytest.approx([at / 1000 - 3.5, at / 1000 + 10 - 4.5])


def test_the_graph_with_figures_and_without_a_plan(client: TestClient, job: Observed) -> None:
    shown = get(client, "graph")
    assert [(n["id"], n["kind"]) for n in shown["nodes"]] == [("events", "source"), ("files", "sink")]
    assert shown["edges"] == [{"source": "events", "target": "files", "ship": "forward"}]
    nodes = [
        GraphNode(id="events", kind="source", what="source", stage=1),
        GraphNode(id=HOSTILE, kind="keyed", what="x", stage=2),
    ]
    stages = [
        GraphStage(number=1, kind="source", nodes=["events"]),
        GraphStage(number=2, kind="keyed", nodes=[HOSTILE]),
    ]
    edges = [GraphEdge(source="events", target=HOSTILE, ship="key groups")]
    job.setup = replace(job.setup, graph=JobGraph(nodes=nodes, edges=edges, stages=stages))
    shown = get(client, "graph")
    assert [n["id"] for n in shown["nodes"]] == ["events", HOSTILE]
    assert shown["nodes"][0]["figures"]["rows"] == 20
    assert shown["nodes"][0]["figures"]["rows_per_s"] is None, "decisions of long ago tell no rate of now"
    assert shown["nodes"][0]["figures"]["lag"] == 5
    assert shown["edges"][0]["ship"] == "key groups"


def test_how_busy_steps_are_by_the_checkpoints_that_were_seen(
    client: TestClient, made: tuple[Observed, Ledger]
) -> None:
    job, ledger = made
    at = now_ms() - 20_000
    nodes = [GraphNode(id=id, kind="step", what="x", stage=1) for id in ("parse", "another")]
    job.setup, job.trend = replace(job.setup, graph=JobGraph(nodes=nodes)), Trend()

    def taken(checkpoint: int, seconds: int, busy_ms: float) -> None:
        ledger.append(replace(decision(checkpoint + 1, checkpoint), time_ms=at + seconds * 1000))
        load = JobLoad(operators={"parse": OperatorLoad(20, 16, busy_ms=busy_ms)})
        timeline = Timeline(checkpoint, at, at + seconds * 1000)
        job.update(replace(job.progress, checkpoint=checkpoint, load=load, timeline=timeline, parallelism=2))

    def busy() -> list[float | None]:
        return [node["figures"]["busy"] for node in get(client, "graph")["nodes"]]

    taken(3, 0, 4000)
    assert busy() == [None, None], "a sum since the start says nothing of now"
    taken(4, 10, 9000)
    assert busy() == [0.25, None], "5 of the 20 seconds that two tasks had"
    taken(5, 15, 100)
    assert busy() == [None, None], "another process begins again"


def test_the_lag_of_a_source_is_its_own_where_it_says_it(client: TestClient, job: Observed) -> None:
    vertex = Vertex(name="other", kind="source", description="DatagenSource")
    job.setup = replace(job.setup, vertices=[*job.setup.vertices, vertex])
    job.update(replace(job.progress, lags={"events": {"clicks-0": 3, "clicks-1": 4}}))
    lags = {node["id"]: node["figures"]["lag"] for node in get(client, "graph")["nodes"]}
    assert lags == {"events": 7, "other": None, "files": None}


def test_savepoints_are_listed_and_removed(client: TestClient, job: Observed, tmp_path: Path) -> None:
    assert get(client, "savepoints") == {"folder": None, "savepoints": []}
    job.setup = replace(job.setup, settings={"state_dir": str(tmp_path)})
    broken = tmp_path / "savepoints" / f"savepoint-{ID[:6]}-abc"
    broken.mkdir(parents=True)
    (broken / "_metadata.json").write_text("{")
    (tmp_path / "savepoints" / "savepoint-another-abc").mkdir()
    (line,) = get(client, "savepoints")["savepoints"]
    assert line["path"] == str(broken)
    assert line["trouble"], "one that is damaged is shown as that"
    asked = client.post("/savepoint-disposal", json={"savepoint-path": str(tmp_path)})
    assert asked.status_code == 202
    while (now := client.get(f"/savepoint-disposal/{asked.json()['request-id']}").json())["status"][
        "id"
    ] == "IN_PROGRESS":
        pass
    assert "no savepoint" in now["operation"]["failure-cause"]["stack-trace"]
    assert broken.is_dir(), "what is no savepoint is left alone"
    assert client.post("/savepoint-disposal", json={"path": "x"}).status_code == 400
    assert client.get(f"/savepoint-disposal/{'0' * 32}").status_code == 404


def test_a_ledger_that_is_damaged_is_answered_in_words(client: TestClient, job: Observed) -> None:
    newest = max(Path(job.entry.checkpoint_dir, "ledger").glob("*.json"))
    newest.write_text("{")
    answer = client.get(f"/jobs/{ID}/timeline")
    assert answer.status_code == 503
    assert len(answer.json()["errors"]) == 2
