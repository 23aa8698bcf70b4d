"""fsck and ledger over a real file sink and a real ledger: orphans go, what a decision names stays and is finished."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.decision import Decision, SinkDecision
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger import Ledger
from poundlock.checkpoint.participant import Counts, Occasion, Prepared, WriterContext
from poundlock.cli.main import main
from poundlock.connectors.files.sink import FileSink
from poundlock.storage import open_storage
from poundlock.testing.sinks import lines
from poundlock.values import ManualClock

JOB = """
from poundlock import FileSink, Job, KafkaSource

job = Job("swept", checkpoint_dir={checkpoint!r}, on_error="skip")
job.from_source(KafkaSource(bootstrap_servers="127.0.0.1:1", topics="t"), name="in").sink_to(FileSink({out!r}, row="value"), name="out")
"""


class Project:
    """A job that ran and was killed: two finished files' worth of decisions, and what a dead attempt left behind."""

    def __init__(self, root: Path) -> None:
        self.out, self.checkpoint = root / "out", root / "checkpoint"
        self.job = root / "job.py"
        self.job.write_text(textwrap.dedent(JOB).format(checkpoint=str(self.checkpoint), out=str(self.out)))
        self.storage = open_storage(str(self.checkpoint))
        identity = open_identity(self.storage, name="swept", clock=ManualClock(1))
        self.job_id = identity.job_id
        self.sink = FileSink(str(self.out), row="value").bind(job_id=self.job_id, sink="out")
        self.ledger = Ledger(self.storage)
        self.state: Any = {}
        self.decided = 0

    def write(self, text: bytes) -> Sequence[Prepared]:
        context = WriterContext(
            job_id=self.job_id,
            sink="out",
            epoch=1,
            checkpoint=self.decided,
            subtask=0,
            attempt=f"a{text.hex()}",
            directive=self.sink.directive(self.state),
            reject=lambda reject: None,
            started_ms=0,
        )
        writer = self.sink.open_writer(context)
        writer.write(lines(text))
        return [Prepared("out", 0, payload) for payload in writer.prepare()]

    def decide(self, prepared: Sequence[Prepared], occasion: Occasion, *, commit: bool = True) -> None:
        staged = self.sink.stage(self.state, prepared, occasion, 0)
        self.state = staged.state
        self.ledger.append(
            Decision(
                number=self.decided,
                occasion=occasion.value,
                checkpoint=self.decided,
                job_id=self.job_id,
                epoch=1,
                time_ms=1_700_000_000_000 + self.decided,
                sources={},
                sinks={"out": SinkDecision(list(staged.committables), staged.state, Counts(read=1, written=1))},
            )
        )
        self.decided += 1
        for committable in staged.committables if commit else ():
            self.sink.commit(committable)

    def visible(self) -> list[bytes]:
        return sorted(path.read_bytes() for path in self.out.rglob("*") if path.is_file() and path.name[0] != ".")

    def hidden(self) -> int:
        return sum(1 for path in self.out.rglob(".*") if path.is_file())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a job adds its folder
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    project = Project(tmp_path)
    project.decide(project.write(b"one"), Occasion.END)
    project.decide(project.write(b"two"), Occasion.CHECKPOINT)
    project.write(b"orphan")
    assert (project.visible(), project.hidden()) == ([b"one\n"], 2)
    return project


def _fsck(project: Project, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["fsck", str(project.job), "--json", *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    return code, json.loads(out)


def test_an_orphan_is_listed_and_nothing_is_touched(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = _fsck(project, capsys)
    assert code == 1
    assert [len(found) for found in report["orphans"].values()] == [1]
    assert (report["fixed"], report["clean"]) == (False, False)
    assert project.hidden() == 2
    assert main(["fsck", str(project.job)]) == 1
    text = capsys.readouterr().out.splitlines()
    assert text[0].startswith("orphan    out  ")
    assert text[-1] == "Next: add --fix to remove them"


def test_fix_removes_the_orphan_and_keeps_what_a_decision_carries(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = _fsck(project, capsys, "--fix")
    assert (code, report["fixed"], report["clean"]) == (0, True, True)
    assert (project.visible(), project.hidden()) == ([b"one\n"], 1)
    assert _fsck(project, capsys)[0] == 0
    project.decide([], Occasion.END)
    assert project.visible() == [b"one\n", b"two\n"]


def test_what_is_decided_and_not_yet_visible_is_no_orphan(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.decide([], Occasion.END, commit=False)
    _, report = _fsck(project, capsys)
    assert [len(found) for found in report["orphans"].values()] == [1]
    assert "orphan" not in json.dumps(list(project.ledger)[-1].to_json())
    code, _ = _fsck(project, capsys, "--fix")
    assert code == 0
    assert (project.visible(), project.hidden()) == ([b"one\n", b"two\n"], 0)


def test_fix_waits_for_no_running_driver(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    with Epoch.claim(project.storage, clock=ManualClock(1)):
        assert main(["fsck", str(project.job), "--fix"]) == 2
        error = capsys.readouterr().err.splitlines()
        assert len(error) == 2
        assert project.hidden() == 2
        assert main(["fsck", str(project.job)]) == 1


def test_ledger_lists_decisions(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", str(project.checkpoint)]) == 0
    text = capsys.readouterr().out.splitlines()
    assert len(text) == 3
    assert text[1].split() == ["0", "2023-11-14", "22:13:20", "end", "0", "1", "1", "1"]
    assert main(["ledger", str(project.checkpoint), "--last", "1", "--json"]) == 0
    (newest,) = json.loads(capsys.readouterr().out)
    assert newest["number"] == 1
