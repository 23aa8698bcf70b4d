"""fsck, ledger and files over a checkpoint that a real coordinator and real file sinks made on a local disk, with crashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from poundlock.audit.audit import AuditReport, SinkAudit
from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import open_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Counts, Occasion, Prepared, WriterContext
from poundlock.cli.data.sinks import _audited
from poundlock.cli.main import main
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.connectors.print_sink import PrintSink
from poundlock.storage import LocalStorage
from poundlock.storage.deferred import DeferredStorage
from poundlock.values import SystemClock
from support.error_lines import bare
from support.sinks import batch, lines

EACH = RollingPolicy(on_checkpoint=True)
LATER = RollingPolicy(every="1 h")

JOB = """
from poundlock import FileSink, Job, KafkaSource

job = Job("swept", checkpoint_dir={checkpoint!r}, dead_letters={dead!r})
job.from_source(KafkaSource(bootstrap_servers="127.0.0.1:1", topics="t"), name="in").sink_to(
    FileSink({out!r}, row="value"), name="out"
)
"""


class Died(BaseException):
    """The process died here."""


class Project:
    """A job whose driver lives and dies in this process; its checkpoint lies below the state directory."""

    def __init__(self, root: Path, name: str, out: Path, sink: FileSink | None = None) -> None:
        self.name = name
        self.out = out
        self.checkpoint = root / "state" / "checkpoints" / name
        self.storage = LocalStorage(str(self.checkpoint))
        dead = FileSink(f"{out}/_dead_letters", row="value", prefix="dead", suffix=".jsonl", rolling=EACH)
        self.sinks = {"out": sink or FileSink(str(out), row="value", prefix=name, rolling=EACH), "dead-letter": dead}
        self.number = 0
        self.start()

    def start(self) -> None:
        clock = SystemClock()
        identity = open_identity(self.storage, name=self.name, clock=clock)
        self.job_id = identity.job_id
        self.mine = {name: bound(sink, job_id=self.job_id, sink=name) for name, sink in self.sinks.items()}
        described = {name: json.loads(json.dumps(sink.describe_json())) for name, sink in self.mine.items()}  # type: ignore[attr-defined]
        self.epoch = Epoch.claim(self.storage, clock=clock, sinks=described)
        self.coordinator = Coordinator(
            identity=identity,
            epoch=self.epoch,
            ledger=Ledger(self.storage),
            participants=self.mine,
            clock=clock,
            sleep=lambda seconds: None,
        )
        self.coordinator.recover()

    def take(self, *, die: str = "", **rows: Any) -> None:
        """Take one checkpoint: per sink a chunk. `die` = "tasks": the driver is killed when all is prepared."""
        chunks = {name.replace("_", "-"): chunk for name, chunk in rows.items()}

        def run(directive: SinkDirectives) -> TaskResults:
            prepared = [piece for name, chunk in chunks.items() for piece in self._write(name, chunk, directive)]
            if die == "tasks":
                raise Died
            counts = {n: sum(int(p.payload["rows"]) for p in prepared if p.sink == n) for n in chunks}
            return TaskResults(prepared=prepared, counts={n: Counts(read=c, written=c) for n, c in counts.items()})

        n = self.number
        self.coordinator.checkpoint(n, {"in": SourceRange({"o": n}, {"o": n + 1})}, run)
        self.number += 1

    def _write(self, name: str, chunk: Any, directive: Mapping[str, Any]) -> list[Prepared]:
        context = WriterContext(
            job_id=self.job_id,
            sink=name,
            epoch=directive.epoch,
            checkpoint=directive.checkpoint,
            subtask=0,
            attempt=uuid.uuid4().hex,
            directive=directive.sinks[name],
            reject=lambda reject: None,
            started_ms=directive.started_ms,
        )
        writer = self.mine[name].open_writer(context)
        writer.write(chunk)
        return [Prepared(name, 0, payload) for payload in writer.prepare()]

    def stop(self) -> None:
        self.epoch.release()

    def crash_with_orphans(self, **rows: Any) -> None:
        with pytest.raises(Died):
            self.take(die="tasks", **(rows or {"out": lines(b"orphan")}))
        self.stop()

    def crash_after_decision(self, monkeypatch: pytest.MonkeyPatch, operation: str, **rows: Any) -> None:
        """Take a checkpoint that dies in the commit, right before a file operation."""

        def die(*args: Any) -> None:
            raise Died

        with monkeypatch.context() as patched:
            patched.setattr(DeferredStorage if operation == "rename" else LocalStorage, operation, die)
            with pytest.raises(Died):
                self.take(**rows)
        self.stop()

    def visible(self) -> dict[str, bytes]:
        return {os.path.relpath(p, self.out): p.read_bytes() for p in self._files() if p.name[0] != "."}

    def hidden(self) -> int:
        return sum(1 for p in self._files() if p.name[0] == ".")

    def _files(self) -> Iterator[Path]:
        return (path for path in self.out.rglob("*") if path.is_file())


@pytest.fixture(autouse=True)
def _own_folders(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a job adds its folder
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """One finished file of rows and one of dead letters; the driver is alive."""
    project = Project(tmp_path, "swept", tmp_path / "out")
    project.take(out=lines(b"one"), dead_letter=lines(b"{bad}"))
    assert project.visible() == {"swept-0-0": b"one\n", "_dead_letters/dead-0-0.jsonl": b"{bad}\n"}
    return project


def _fsck(project: Project, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["fsck", project.name, "--json", *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    return code, json.loads(out)


def _orphans(report: Mapping[str, Any]) -> dict[str, int]:
    return {name: len(found) for name, found in report["orphans"].items()}


def _problems(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (name, finding["problem"], os.path.basename(finding["path"]))
        for name, found in report["findings"].items()
        for finding in found
    ]


def test_a_job_that_stopped_is_clean(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.coordinator.roll(Occasion.END)
    project.stop()
    code, report = _fsck(project, capsys)
    assert (code, report["clean"], report["driver"]) == (0, True, None)
    assert (_orphans(report), _problems(report)) == ({"out": 0, "dead-letter": 0}, [])
    assert (report["checkpoint"], report["job"]["job_id"]) == (0, project.job_id)
    assert main(["fsck", str(project.checkpoint)]) == 0
    assert capsys.readouterr().out == f"swept: 3 decisions, 0 orphans (0 B), 0 findings in {project.checkpoint}\n"


def test_an_orphan_is_listed_with_its_age_and_nothing_is_touched(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.crash_with_orphans()
    [path] = (p for p in project.out.iterdir() if p.name[0] == ".")
    old = SystemClock().now_ms() - (3 * 3600 + 100) * 1000
    os.utime(path, ns=(old * 1_000_000, old * 1_000_000))
    code, report = _fsck(project, capsys)
    assert (code, report["fixed"], report["clean"]) == (1, False, False)
    [orphan] = report["orphans"]["out"]
    assert (orphan["path"], orphan["bytes"], orphan["modified_ms"]) == (str(path), 7, old)
    assert report["time_ms"] - orphan["modified_ms"] >= 3 * 3600 * 1000
    assert main(["fsck", str(project.checkpoint)]) == 1
    text = capsys.readouterr().out.splitlines()
    assert text[0] == f"orphan     out  {path}  7 B  3 h old"
    assert text[-1] == "Next: add --fix to finish what is pending and remove the orphans"
    assert path.exists()


def test_fix_removes_each_sinks_orphans_and_keeps_what_is_carried_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    project = Project(tmp_path, "swept", out, FileSink(str(out), row="value", rolling=LATER))
    project.take(out=lines(b"carried"))
    project.crash_with_orphans(out=lines(b"lost"), dead_letter=lines(b"{lost}"))
    code, report = _fsck(project, capsys)
    assert (code, _orphans(report)) == (1, {"out": 1, "dead-letter": 1})
    assert "/_dead_letters/" not in report["orphans"]["out"][0]["path"]
    assert "/_dead_letters/" in report["orphans"]["dead-letter"][0]["path"]
    code, report = _fsck(project, capsys, "--fix")
    assert (code, report["fixed"], _orphans(report)) == (0, True, {"out": 1, "dead-letter": 1})
    assert project.hidden() == 1
    assert _orphans(_fsck(project, capsys)[1]) == {"out": 0, "dead-letter": 0}
    project.start()
    project.coordinator.roll(Occasion.END)
    assert project.visible() == {"part-0-0": b"carried\n"}


def test_what_a_job_left_to_a_savepoint_is_not_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    project = Project(tmp_path, "swept", out, FileSink(str(out), row="value", rolling=LATER))
    project.take(out=lines(b"carried"))
    left = json.dumps({"v": 1, "savepoint": "/saved", "job_id": project.job_id})
    (project.checkpoint / "savepoint.json").write_text(left)
    project.stop()
    code, report = _fsck(project, capsys)
    assert (code, _problems(report), _orphans(report)) == (1, [], {"out": 1, "dead-letter": 0}), (
        "it was killed meanwhile"
    )
    assert report["left"] == "/saved"
    code, report = _fsck(project, capsys, "--fix")
    assert (code, report["fixed"], project.hidden()) == (0, True, 0)
    assert main(["fsck", str(project.checkpoint)]) == 0
    text = capsys.readouterr().out.splitlines()
    assert text[-1] == "the job ended with the savepoint /saved, which has what was pending"


def test_half_of_a_restore_is_told_as_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "restoring.json").write_text('{"v": 1, "savepoint": "/saved", "job_id": "0"}')
    assert main(["fsck", str(folder)]) == 2
    assert "half of a restore that was interrupted, of the savepoint /saved" in capsys.readouterr().err
    (folder / "restoring.json").write_text("{")
    assert main(["fsck", str(folder)]) == 4
    assert "restoring.json cannot be read" in capsys.readouterr().err


def test_another_jobs_files_in_a_shared_folder_are_not_its_business(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.stop()
    other = Project(tmp_path, "other", project.out)
    other.crash_with_orphans(out=lines(b"theirs"), dead_letter=lines(b"{theirs}"))
    assert _fsck(project, capsys, "--fix")[0] == 0
    assert project.hidden() == 2
    code, report = _fsck(other, capsys)
    assert (code, _orphans(report)) == (1, {"out": 1, "dead-letter": 1})
    # A name that looks like this sink's, but carries no tag of it.
    (project.out / ".swept-0-1.inprogress.deadbeef-0-0").write_bytes(b"x")
    assert _fsck(project, capsys)[0] == 0


@pytest.mark.parametrize("operation", ["rename", "delete"])
def test_what_is_decided_and_not_done_is_no_orphan_and_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    out = tmp_path / "out"
    compaction = FileCompaction(every_checkpoints=2)
    project = Project(tmp_path, "swept", out, FileSink(str(out), row="value", rolling=EACH, compaction=compaction))
    project.take(out=lines(b"one"))
    project.crash_after_decision(monkeypatch, operation, out=lines(b"two"))
    shown = {} if operation == "rename" else {"part-0-0": b"one\ntwo\n"}
    assert project.visible() == shown
    code, report = _fsck(project, capsys)
    # Where the driver died before the name was given, the first of the decided segments has the other behind it.
    assert (code, _orphans(report)) == (1, {"out": 0, "dead-letter": 0})
    assert _problems(report) == [("out", "pending", "part-0-0")]
    assert project.visible() == shown
    assert main(["fsck", project.name]) == 1
    assert "pending    out" in capsys.readouterr().out
    code, report = _fsck(project, capsys, "--fix")
    assert (code, report["fixed"], _problems(report)) == (0, True, [])
    assert project.visible() == {"part-0-0": b"one\ntwo\n"}
    assert project.hidden() == 0
    project.start()
    assert project.visible() == {"part-0-0": b"one\ntwo\n"}


def test_finished_files_that_are_gone_or_changed_are_named_and_the_rest_is_fixed(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    for row in (b"two", b"three"):
        project.take(out=lines(row))
    project.take()  # the newest decision names no file
    project.crash_with_orphans()
    (project.out / "swept-0-0").unlink()
    (project.out / "swept-0-1").write_bytes(b"two\ntwo\n")
    gone = [("out", "missing", "swept-0-0"), ("out", "size", "swept-0-1")]
    code, report = _fsck(project, capsys)
    assert (code, _problems(report), _orphans(report)["out"]) == (1, gone, 1)
    assert (report["findings"]["out"][1]["expected_bytes"], report["findings"]["out"][1]["found_bytes"]) == (4, 8)
    assert main(["fsck", project.name]) == 1
    assert "8 bytes instead of 4" in capsys.readouterr().out
    code, report = _fsck(project, capsys, "--fix")
    assert (code, report["fixed"], _problems(report)) == (1, True, gone)
    assert project.hidden() == 0


def test_nothing_is_removed_while_a_decision_cannot_be_carried_out(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.crash_after_decision(monkeypatch, "rename", out=lines(b"two"))
    (decided,) = (p for p in project.out.iterdir() if p.name[0] == ".")
    decided.rename(project.out / "moved-away")
    stray = project.out / decided.name.replace(".inprogress.", "x.inprogress.")
    stray.write_bytes(b"stray")
    code, report = _fsck(project, capsys, "--fix")
    assert (code, report["fixed"], _problems(report)) == (1, False, [("out", "missing", "swept-0-1")])
    assert "swept-0-1 was decided" in report["refused"]
    assert stray.exists()
    assert main(["fsck", project.name, "--fix"]) == 1
    assert "nothing was removed: " in capsys.readouterr().out
    (project.out / "moved-away").rename(decided)
    assert _fsck(project, capsys, "--fix")[0] == 0
    assert project.visible()["swept-0-1"] == b"two\n"
    assert not stray.exists()


def test_a_file_that_an_old_decision_names_is_finished_not_removed(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.take(out=lines(b"two"))
    project.stop()
    [committable] = Ledger(project.storage).read(1).sinks["out"].committables
    segment = committable["segments"][0]["path"]
    (project.out / "swept-0-0").rename(project.out / segment)  # as a backup of the wrong moment would have it
    code, report = _fsck(project, capsys)
    assert (code, _orphans(report)["out"], _problems(report)) == (1, 0, [("out", "pending", "swept-0-0")])
    assert _fsck(project, capsys, "--fix")[0] == 0
    assert project.visible()["swept-0-0"] == b"one\n"
    # With content that is not the decided one it is left to a person.
    (project.out / "swept-0-0").unlink()
    (project.out / "swept-0-0").write_bytes(b"eno\n")
    (project.out / segment).write_bytes(b"one\n")
    code, report = _fsck(project, capsys, "--fix")
    assert (code, report["fixed"], _problems(report)) == (1, False, [("out", "foreign", "swept-0-0")])
    assert "a decision names it" in report["refused"]
    assert (project.out / segment).read_bytes() == b"one\n"


def test_a_carried_segment_that_is_gone_is_found_before_it_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    project = Project(tmp_path, "swept", out, FileSink(str(out), row="value", rolling=LATER))
    project.take(out=lines(b"carried"))
    project.stop()
    assert _fsck(project, capsys)[0] == 0
    (segment,) = out.iterdir()
    segment.write_bytes(b"car")
    assert _problems(_fsck(project, capsys)[1]) == [("out", "size", segment.name)]
    segment.unlink()
    code, report = _fsck(project, capsys, "--fix")
    assert (code, _problems(report)) == (1, [("out", "missing", segment.name)])


def test_what_a_driver_finishes_that_begins_meanwhile_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    project = Project(tmp_path, "swept", out, FileSink(str(out), row="value", rolling=LATER))
    project.take(out=lines(b"carried"))
    project.stop()
    look = FileSink.inspect_state

    def finished_before(sink: FileSink, state: Any) -> Any:
        if project.hidden():
            project.start()
            project.coordinator.roll(Occasion.END)
            project.stop()
        return look(sink, state)

    monkeypatch.setattr(FileSink, "inspect_state", finished_before)
    code, report = _fsck(project, capsys)
    assert project.visible() == {"part-0-0": b"carried\n"}
    assert (code, _problems(report)) == (0, [])


def test_merged_parquet_is_known_by_its_mark_not_by_its_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    sink = FileSink(str(out), format="parquet", compression="zstd", compaction=FileCompaction(every_checkpoints=2))
    project = Project(tmp_path, "swept", out, sink)
    for i in range(2):
        project.take(out=batch(n=[i]))
    project.stop()
    [name] = project.visible()
    assert _fsck(project, capsys)[0] == 0
    (out / name).write_bytes(b"of another origin")
    assert _problems(_fsck(project, capsys)[1]) == [("out", "foreign", name)]


def test_nothing_is_changed_under_a_living_driver(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def died_with_running_tasks() -> None:
        project.take(die="tasks", out=lines(b"being written"))

    with pytest.raises(Died):
        died_with_running_tasks()
    assert main(["fsck", project.name, "--fix"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error: process {os.getpid()} on " in err
    assert "nothing is removed under a living driver" in err
    assert project.hidden() == 1
    code, report = _fsck(project, capsys)
    assert (code, _orphans(report)["out"]) == (1, 1)
    assert report["driver"].startswith(f"process {os.getpid()} on ")
    # The same from another process, as a person would.
    command = [sys.executable, "-m", "poundlock", "fsck", "swept", "--fix"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2)
    assert project.hidden() == 1
    project.take(out=lines(b"two"))
    assert project.visible()["swept-0-1"] == b"two\n"


def test_folder_file_and_name_mean_the_same_checkpoint(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.crash_with_orphans()
    job = tmp_path / "job.py"
    job.write_text(
        JOB.format(checkpoint=str(project.checkpoint), out=str(project.out), dead=f"{project.out}/_dead_letters")
    )
    seen = []
    for path in ("swept", str(project.checkpoint), str(job), f"{job}:job", f"{job}:swept"):
        assert main(["fsck", path, "--json"]) == 1
        seen.append({**json.loads(capsys.readouterr().out), "time_ms": 0})
        for command in ("ledger", "files"):
            assert main([command, path, "--json"]) == 0
            assert len(json.loads(capsys.readouterr().out)) == 2
    assert seen == [seen[0]] * 5
    assert _orphans(seen[0]) == {"out": 1, "dead-letter": 0}
    assert main(["files", "swpet"]) == 2
    assert "did you mean swept?" in capsys.readouterr().err


def test_a_sink_that_was_taken_out_is_still_looked_at(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.coordinator.roll(Occasion.END)
    project.stop()
    del project.sinks["dead-letter"]
    project.start()
    project.stop()
    (project.out / "_dead_letters" / "dead-0-0.jsonl").unlink()
    code, report = _fsck(project, capsys)
    assert (code, _problems(report)) == (1, [("dead-letter", "missing", "dead-0-0.jsonl")])


_WRONG = {
    "it is no JSON object": ["[]", '"x"', "7", "null"],
    "it is no JSON": ['{"v": 1', "", "["],
    "it has no format": ["{}"],
    "format 99 is not known to this version": ['{"v": 99}'],
    "it has no ": ['{"v": 1}'],
}


def test_a_record_that_is_damaged_anyhow_is_said_in_words(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.stop()
    record = "ledger/00000000000000000001.json"
    wrong_kind = {
        "job.json": ("created_ms", "created_ms is not what it should be"),
        record: ("sinks", "sinks is not what it should be"),
        "epochs/00000001.json": ("pid", "pid is not what it should be"),
    }
    for name in (*wrong_kind, "savepoint.json", "restoring.json"):
        path = project.checkpoint / name
        sound = path.read_bytes() if path.exists() else None
        contents = [(why, text) for why, texts in _WRONG.items() for text in texts]
        if name in wrong_kind:
            field, why = wrong_kind[name]
            contents.append((why, json.dumps({**json.loads(sound or b""), field: "x", "crc32": None})))
        if name == "restoring.json":
            (project.checkpoint / "job.json").unlink()
        for why, text in contents:
            path.write_text(text)
            assert main(["fsck", str(project.checkpoint)]) == 4, (name, text)
            what, next = capsys.readouterr().err.splitlines()
            assert what.startswith(f"error: {path} cannot be read: {why}"), what
            assert next.startswith("Next: restore the file from a backup"), next
        path.unlink()
        path.mkdir()
        assert main(["fsck", str(project.checkpoint)]) == 4, name
        what, _ = capsys.readouterr().err.splitlines()
        assert bare(what) == f"error: {path} cannot be read: it is a folder"
        path.rmdir()
        if sound is not None:
            path.write_bytes(sound)


def test_a_sink_of_a_persons_own_is_said_to_be_unknown(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.crash_with_orphans()
    path = project.checkpoint / "epochs" / "00000001.json"
    life = json.loads(path.read_text())
    life["sinks"]["out"] = {"v": 1, "kind": "my-warehouse"}
    path.write_text(json.dumps(life))
    code, report = _fsck(project, capsys, "--fix")
    assert (code, report["clean"], set(report["unchecked"]), report["fixed"]) == (1, False, {"out"}, False)
    assert "names sink 'out', which" in report["refused"]
    assert project.hidden() == 1
    assert main(["fsck", project.name]) == 1
    assert "Next: give the job's file instead" in capsys.readouterr().out


def test_a_sink_that_keeps_nothing_needs_no_file_of_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a script of SQL, which has none."""
    made = Project(tmp_path, "printed", tmp_path / "out", PrintSink(limit=3))  # type: ignore[arg-type]
    made.take(out=lines(b"shown"))
    capsys.readouterr()
    made.stop()
    code, report = _fsck(made, capsys)
    assert (code, report["clean"], report["unchecked"]) == (0, True, {})
    code, report = _fsck(made, capsys, "--fix")  # nothing is printed once more, which _fsck would not read
    assert (code, report["clean"], report["fixed"]) == (0, True, True)


def test_a_description_of_another_version_is_not_guessed_at(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.stop()
    path = project.checkpoint / "epochs" / "00000001.json"
    life = json.loads(path.read_text())
    life["sinks"]["out"]["v"] = 2
    path.write_text(json.dumps(life))
    assert main(["fsck", project.name]) == 2
    assert "format 2" in capsys.readouterr().err


def test_ledger_lists_decisions(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.stop()
    assert main(["ledger", "swept"]) == 0
    text = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in text] == ["number", "0", "1"]
    # read, written, bytes, filtered, late, dead-lettered, skipped, committed
    (record,) = (r for r in Ledger(project.storage) if r.occasion == "checkpoint")
    wrote = record.sinks["out"].wrote
    assert wrote is not None
    assert wrote.digest is not None
    assert text[2].split()[2:-1] == ["checkpoint", "0", "1", "0", "1", str(wrote.bytes), "0", "0", "0", "0", "1"]
    assert main(["ledger", "swept", "--occasion", "checkpoint", "--sink", "out", "-v"]) == 0
    _, _, source, sink, took = capsys.readouterr().out.splitlines()
    assert source.strip() == 'source in: {"o":0} to {"o":1}, - rows'
    assert sink.strip().startswith(f"sink out: {wrote.rows} rows, {wrote.bytes} bytes, {wrote.pieces} pieces, digest ")
    assert "run " in took
    assert main(["ledger", "swept", "--last", "1", "--json"]) == 0
    (newest,) = json.loads(capsys.readouterr().out)
    assert newest["number"] == 1
    assert main(["ledger", "swept", "--last", "9", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert main(["ledger", "swept", "--occasion", "start"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["ledger", "swept", "--from", "0", "--to", "0", "--json"]) == 0
    assert [record["checkpoint"] for record in json.loads(capsys.readouterr().out)] == [0]
    assert main(["ledger", "swept", "--occasion", "never"]) == 2
    assert main(["ledger", "swept", "--sink", "nowhere"]) == 2
    assert "use one of" in capsys.readouterr().err


def test_ledger_follows(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What is decided while it looks is shown; the pause between two looks ends the test."""
    from poundlock.cli.data import ledger

    records = sum(1 for _ in Ledger(project.storage))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            project.stop()
            project.start()
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(ledger, "time", SimpleNamespace(sleep=pause))  # threads of other tests sleep as well
    assert main(["ledger", "swept", "--follow", "--json"]) == 130
    shown = [json.loads(line)["number"] for line in capsys.readouterr().out.splitlines()]
    assert shown == list(range(sum(1 for _ in Ledger(project.storage))))
    assert len(shown) > records


def test_audit_agrees_and_tells_what_does_not(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.stop()
    assert main(["audit", "swept"]) == 0
    assert "everything agrees" in capsys.readouterr().out
    assert main(["audit", "swept", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["disagreements"] == []
    assert said.err == "", "a short audit says nothing but its result"
    monkeypatch.setattr("poundlock.cli.data.sinks._EVERY_S", 0.0)
    assert main(["audit", "swept", "--json"]) == 0
    said = capsys.readouterr()
    assert "1 files read" in said.err
    assert json.loads(said.out)["disagreements"] == []
    (path,) = [path for path in project.out.iterdir() if path.is_file() and not path.name.startswith(".")][:1]
    path.write_bytes(b"x" * path.stat().st_size)
    assert main(["audit", "swept"]) == 1
    out = capsys.readouterr().out
    assert "DISAGREES  out, checkpoint 0: " in out
    assert path.name in out


def test_audit_counts_what_there_is_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    project = Project(tmp_path, "swept", out, FileSink(str(out), row="value", rolling=LATER))
    assert main(["audit", "swept"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no checkpoint taken here, 1 decision: everything agrees"
    project.take(out=lines(b"carried"))
    project.stop()
    assert main(["audit", "swept"]) == 0
    text = capsys.readouterr().out.splitlines()
    assert "  0 visible in 0 pieces, read back; 1 wait" in text
    assert text[-1] == "checkpoint 0, 2 decisions: everything agrees"
    left = json.dumps({"v": 1, "savepoint": "/saved", "job_id": project.job_id})
    (project.checkpoint / "savepoint.json").write_text(left)
    assert main(["audit", "swept"]) == 0
    assert "  0 visible in 0 pieces, read back; 1 went into the savepoint /saved" in capsys.readouterr().out
    (project.checkpoint / "savepoint.json").unlink()
    project.start()
    project.coordinator.roll(Occasion.END)
    project.stop()
    assert main(["audit", "swept", "--from", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("not checked: the counts of checkpoints before 1, and")
    assert main(["fsck", "swept"]) == 0
    assert "swept: 5 decisions, 0 orphans (0 B), 0 findings in" in capsys.readouterr().out


def test_audit_says_what_was_merged_and_what_was_written_before(capsys: pytest.CaptureFixture[str]) -> None:
    merged = SinkAudit(counts=Counts(read=10, produced=-7, written=3), visible=5, waiting_before=2, read_back=1)
    report = AuditReport(first=4, last=6, records=3, rows_read={}, sinks={"out": merged}, disagreements=[])
    account, visible, before, total = _audited(report, None)
    assert account == "sink out: 10 in - 7 merged = 3 written + 0 filtered + 0 late + 0 dead-lettered + 0 skipped"
    assert visible == "  5 visible in 1 piece, read back; 0 wait"
    assert before.startswith("  2 of these were written before these decisions")
    assert total == "checkpoints 4 to 6, 3 decisions: everything agrees"
    *_, before, total, unchecked = _audited(replace(report, since=4), None)
    assert before.startswith("  2 more were written before checkpoint 4 and waited when it began: read back where")
    assert "before 4" in unchecked


def test_files_lists_what_decisions_made_visible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from poundlock.connectors.files.buckets.assigners import EventTimeBucketAssigner

    out = tmp_path / "out"
    bucket = EventTimeBucketAssigner("timestamp", "'dt='yyyyMMdd", zone="UTC")
    project = Project(tmp_path, "swept", out, FileSink(str(out), row="value", rolling=EACH, bucket=bucket))
    rows = [b'{"timestamp":1545177600.25}', b'{"timestamp":1545177601.5}']
    project.take(out=lines(*rows), dead_letter=lines(b"{bad}"))
    project.take(out=lines(rows[0]))
    project.stop()
    assert main(["files", "swept", "--json", "--sink", "out"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["path"], first["root"], first["bucket"]) == ("dt=20181219/part-0-0", str(out), "dt=20181219")
    assert (first["rows"], first["bytes"], first["checkpoint"], second["checkpoint"]) == (2, 55, 0, 1)
    assert (first["min_event_ms"], first["max_event_ms"]) == (1545177600250, 1545177601500)
    assert main(["files", "swept"]) == 0
    text = capsys.readouterr().out.splitlines()
    assert len(text) == 5
    line = next(line for line in text if "part-0-0" in line)
    assert line.split() == [
        "0", "2", "55", "2018-12-19T00:00:00.250Z", "2018-12-19T00:00:01.500Z", f"{out}/dt=20181219/part-0-0"
    ]  # fmt: skip
    assert text[-1].startswith("3 files, 4 rows, ")
