"""`poundlock checkpoints` without Spark: how a job is named, and what is said where there is nothing to list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from poundlock.audit.write_totals import Written
from poundlock.checkpoint.decision import Decision, SinkDecision, SourceRange
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.participant import Counts
from poundlock.cli.main import main
from poundlock.control.registry import Registry, registered
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock

pytestmark = pytest.mark.usefixtures("own_folder")


def record(number: int, occasion: str, checkpoint: int, *, epoch: int = 1, **durations_ms: int) -> Decision:
    decided = occasion == "checkpoint"
    return Decision(
        number=number, occasion=occasion, checkpoint=checkpoint, job_id="a" * 32, epoch=epoch, time_ms=1000 * number,
        sources={"in": SourceRange(0, 1, rows=7)} if decided else {},
        sinks={"out": SinkDecision([], {}, Counts(read=7, written=6), Written(rows=6, bytes=60, pieces=1))}
        if decided else {"out": SinkDecision([], {})},
        durations_ms=durations_ms, started_ms=1000 * number - 500 if decided else None,
    )  # fmt: skip


def job(folder: Path) -> Ledger:
    storage = LocalStorage(str(folder))
    open_identity(storage, name="counts", clock=SystemClock(), job_id="a" * 32)
    return Ledger(storage)


def test_newest_first_with_what_was_decided_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = job(tmp_path / "state/checkpoints/counts")
    records = [
        record(0, "start", -1),
        record(1, "checkpoint", 0, run=30, verify=1),
        record(2, "roll", 0, decide=4, commit=5),
        record(3, "roll", 0),
        record(4, "checkpoint", 4, run=20),  # numbers may have gaps
        record(5, "start", 4, epoch=2),
        record(6, "checkpoint", 5, epoch=2, run=10),
        record(7, "end", 5, epoch=2, decide=2),
    ]
    for each in records:
        ledger.append(each)
    assert main(["checkpoints", "counts", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["job_id"], found["name"]) == ("a" * 32, "counts")
    listed = found["checkpoints"]
    assert [(c["checkpoint"], c["occasions"], c["duration_ms"]) for c in listed] == [
        (5, ["checkpoint", "end"], 12),
        (4, ["checkpoint"], 20),
        (0, ["checkpoint", "roll"], 40),
    ]
    first = listed[-1]
    assert (first["started_ms"], first["decided_ms"], first["bytes"]) == (500, 1000, 60)
    assert (first["rows_read"], first["rows_written"], first["path"], first["kept_bytes"]) == (7, 6, None, None)
    assert [c["path"] for c in listed] == [None, None, None], "nobody noted that the newest is carried out"
    ledger.mark_committed(7)
    assert main(["checkpoints", "counts", "-n", "1"]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split()[0] == "checkpoint"
    assert line.split()[0] == "5"
    assert line.endswith(f"checkpoint, end         {tmp_path}/state/checkpoints/counts")


def test_where_there_is_nothing_to_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "fresh")
    assert main(["checkpoints", "fresh"]) == 0
    assert capsys.readouterr().out == f"No completed checkpoint of job {'a' * 32} (counts).\n"
    assert main(["checkpoints", "nobody"]) == 2
    error = capsys.readouterr().err.splitlines()
    assert error == ["error: there is no job 'nobody' [PL-1202]", "Next: see the jobs there are: poundlock list -a"]
    assert main(["checkpoints", str(tmp_path / "nowhere")]) == 2
    assert "is no checkpoint of a job that has run" in capsys.readouterr().err


def test_a_job_is_found_by_its_name_wherever_its_checkpoint_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `fsck`, `audit` and the others that take a folder say they do; most checkpoints on a store are not below the state directory."""
    assert main(["fsck", "counts"]) == 2
    assert "is no checkpoint of a job that has run" in capsys.readouterr().err
    job(tmp_path / "elsewhere").append(record(0, "start", -1))
    made = registered(
        job_id="a" * 32,
        name="counts",
        checkpoint_dir="elsewhere",
        log=Path("counts.log"),
        job_file="job.py",
        arguments=["job.py"],
    )
    Registry(tmp_path / "state").register(made)
    assert main(["fsck", "counts"]) == 1, "its sink has no code here"
    assert f" in {tmp_path}/elsewhere\n" in capsys.readouterr().out
