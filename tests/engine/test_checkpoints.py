"""Checkpoints with a real Spark: kept, copied, restored elsewhere, deleted, timed out. One JVM serves all jobs of this file."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from poundlock import (
    DatagenSource,
    DefinitionError,
    FileSink,
    FileSource,
    FixedDelayRestart,
    Job,
    NoRestart,
    PoundlockError,
    RollingPolicy,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.cli.main import main
from poundlock.config import load_settings
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.savepoints.restore import Beginning
from poundlock.savepoint.metadata import read_metadata
from poundlock.storage import LocalStorage

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

START = 1_545_184_220
FILES = 6
PAUSE_MS = 250


def settings(folder: Path, *more: str) -> Any:
    return load_settings([f"state_dir={folder}/state", f"checkpoint_dir={folder}/checkpoint", "master=local[2]", *more])


def produce(folder: Path) -> None:
    folder.mkdir()
    for n in range(FILES):
        rows = [{"ts": START + 10 * n + i, "user": f"u{i % 3}"} for i in range(10)]
        (folder / f"{n:02d}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for n in (FILES, FILES + 1):  # lets the watermark pass all before
        (folder / f"{n:02d}.jsonl").write_text(json.dumps({"ts": START + 5000, "user": "last"}) + "\n")


def counts(tmp_path: Path, **more: Any) -> Job:
    job = Job("counts", checkpoint_interval="0 s", dead_letters=str(tmp_path / "dead"), **more)
    source = FileSource(
        str(tmp_path / "in"), format="json", schema="ts double, user string", max_files_per_checkpoint=1
    )
    (
        job.from_source(source, name="in")
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="timestamp_millis(bigint(ts * 1000))"),
            name="times",
        )
        .key_by("user")
        .window(TumblingEventTimeWindows("10 s"))
        .aggregate("count(*) as n", name="windows")
        .select("user", "unix_millis(window_start) as start", "n")
        .sink_to(
            FileSink(str(tmp_path / "out"), format="json", rolling=RollingPolicy(every="1 h", size="150 B")),
            name="out",
        )
    )
    return job


def seen(folder: Path) -> Counter[tuple[Any, ...]]:
    files = (p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    return Counter(tuple(json.loads(line).values()) for path in files for line in path.read_bytes().splitlines())


def expected() -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for n in range(FILES):
        for user, rows in (("u0", 4), ("u1", 3), ("u2", 3)):
            found[user, 1000 * (START + 10 * n), rows] += 1
    found["last", 1000 * (START + 5000), 2] += 1  # the end of the input fires it
    return found


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class CancelAt:
    """Cancels a job when a checkpoint is completed."""

    def __init__(self, checkpoint: int) -> None:
        self.stop, self.checkpoint, self.said = StopRequest(), checkpoint, list[str]()

    def __call__(self, progress: Progress) -> None:
        if progress.message:
            self.said.append(progress.message)
        if progress.checkpoint is not None and progress.checkpoint >= self.checkpoint:
            self.stop.cancel()


def test_a_job_that_was_cancelled_then_killed_is_restored_from_its_checkpoint_and_from_a_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(tmp_path / "in")
    first, second, third, fourth = (tmp_path / name for name in ("first", "second", "third", "fourth"))
    said = {"checkpoints_retained": 2}
    cancel = CancelAt(3)
    job = counts(tmp_path, checkpoint_min_pause=f"{PAUSE_MS} ms", **said)
    assert run(job, settings=settings(first), on_progress=cancel, stop=cancel.stop).state == "CANCELED"
    checkpoint = first / "checkpoint"

    taken = [record for record in Ledger(LocalStorage(str(checkpoint))) if record.occasion == "checkpoint"]
    pauses = [after.started_ms - before.time_ms for before, after in pairwise(taken) if after.started_ms is not None]
    assert len(pauses) >= 3
    assert min(pauses) >= PAUSE_MS

    # what is kept, and what `checkpoints` says of it
    assert main(["checkpoints", str(checkpoint), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    newest = taken[-1].checkpoint
    assert [each["checkpoint"] for each in listed["checkpoints"]] == list(range(newest, -1, -1))
    kept = {each["checkpoint"]: each["path"] for each in listed["checkpoints"] if each["path"] is not None}
    copied = sorted(path.name for path in (checkpoint / "retained").iterdir())
    assert len(copied) == 2
    assert set(kept) == {*(int(name.removeprefix("chk-")) for name in copied), newest}
    assert listed["checkpoints"][0]["rows_read"] == 10
    assert all(each["kept_bytes"] > 1000 for each in listed["checkpoints"] if "retained" in (each["path"] or ""))
    assert main(["checkpoints", str(checkpoint), "-n", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3

    # what cannot be restored is refused before anything is touched
    before = content(tmp_path)
    with pytest.raises(DefinitionError, match="is this job's own checkpoint"):
        run(counts(tmp_path, **said), settings=settings(first), beginning=Beginning(str(checkpoint)))
    with pytest.raises(DefinitionError, match="has the checkpoint of a job already"):
        run(counts(tmp_path, **said), settings=settings(first), beginning=Beginning(kept[newest - 1]))
    assert content(tmp_path) == before

    # restored from the checkpoint folder, and killed behind the second checkpoint, before the job has gone on
    before, told = content(checkpoint), list[str]()
    monkeypatch.setenv("POUNDLOCK_FAILPOINTS", f"checkpoint.done:raise@2;once={tmp_path}/raised")
    with pytest.raises(PoundlockError, match=r"checkpoint\.done"):
        run(
            counts(tmp_path, restart=NoRestart(), **said), settings=settings(second),
            beginning=Beginning(str(checkpoint)), on_progress=lambda progress: told.append(progress.message),
        )  # fmt: skip
    assert f"Restored from savepoint {checkpoint} (checkpoint {newest})" in told
    assert not (second / "checkpoint" / "restoring").exists()
    left = Ledger(LocalStorage(str(second / "checkpoint"))).newest()
    assert left is not None
    assert (left.occasion, left.checkpoint) == ("checkpoint", newest + 2)
    assert content(checkpoint) == before

    # restored from what the killed one left
    done = run(
        counts(tmp_path, **said),
        settings=settings(third),
        beginning=Beginning(str(second / "checkpoint")),
    )
    assert done.state == "FINISHED"
    assert seen(tmp_path / "out") == expected()

    # restored from an older copy, over the output that was finished since
    copy = kept[min(kept)]
    assert read_metadata(LocalStorage(copy)).decision.checkpoint == min(kept)
    with pytest.raises(DefinitionError, match="finished after the savepoint"):
        run(counts(tmp_path, **said), settings=settings(fourth), beginning=Beginning(copy))
    again = run(counts(tmp_path, **said), settings=settings(fourth), beginning=Beginning(copy, newer="retract"))
    assert again.state == "FINISHED"
    assert seen(tmp_path / "out") == expected()
    assert content(checkpoint) == before


def test_a_checkpoint_that_takes_too_long_is_aborted_and_tolerated_as_often_as_is_said(tmp_path: Path) -> None:
    """The first time it is tolerated, the second counts for a strategy that allows for one failure, the third is quick."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("1\n")
    marks = tmp_path / "marks"
    marks.mkdir()

    def sleepy(record: dict[str, Any]) -> dict[str, Any]:
        import time

        number = len(list(marks.iterdir()))
        (marks / str(number)).touch()
        if number < 2:
            time.sleep(600)
        return record

    job = Job(
        "sleepy",
        checkpoint_timeout="4 s",
        tolerable_failed_checkpoints=1,
        restart=FixedDelayRestart(attempts=1, delay="10 ms"),
    )
    job.from_source(FileSource(str(tmp_path / "in")), name="in").map(sleepy, schema="value binary").sink_to(
        FileSink(str(tmp_path / "out"), row="value"), name="out"
    )
    told: list[Progress] = []
    done = run(job, settings=settings(tmp_path), on_progress=told.append)
    assert (done.state, done.restarts) == ("FINISHED", 2)
    restarted = [each.message for each in told if each.state == "RESTARTING"]
    assert len(restarted) == 2
    assert all("checkpoint 0 took longer than checkpoint_timeout (4 s)" in text for text in restarted)
    files = [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    assert [path.read_bytes() for path in files] == [b"1\n"]


def test_a_bounded_job_that_has_nothing_left_to_read_says_so(tmp_path: Path) -> None:
    def made(count: int) -> Job:
        job = Job("made", checkpoint_interval="100 ms")
        source = job.from_source(DatagenSource("n int", count=count), name="made")
        source.sink_to(FileSink(str(tmp_path / "out"), format="json"), name="out")
        return job

    for count, said in ((10, False), (5, True)):  # the second has fewer rows than were read
        told: list[Progress] = []
        done = run(made(count), settings=settings(tmp_path), on_progress=told.append)
        assert (done.state, done.files_finished) == ("FINISHED", int(not said))
        assert ("Nothing was left to read" in [each.message for each in told]) is said


def test_a_cancelled_jobs_checkpoint_is_deleted_with_what_is_pending(tmp_path: Path) -> None:
    made = Job(
        "made", checkpoint_interval="100 ms", checkpoint_retention="DELETE_ON_CANCELLATION", checkpoints_retained=2
    )
    made.from_source(DatagenSource(rate=200), name="made").sink_to(
        FileSink(str(tmp_path / "out"), row="value", rolling=RollingPolicy(every="1 h", size="5 KB")), name="out"
    )
    cancel = CancelAt(4)
    assert run(made, settings=settings(tmp_path), on_progress=cancel, stop=cancel.stop).state == "CANCELED"
    assert cancel.said[-1] == f"Deleted the checkpoint {tmp_path / 'checkpoint'}"
    left = sorted(path.name for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    assert left == ["00000001.json", "driver.lock"]
    hidden = [p for p in (tmp_path / "out").rglob("*") if p.is_file() and p.name.startswith(".")]
    assert hidden == []
