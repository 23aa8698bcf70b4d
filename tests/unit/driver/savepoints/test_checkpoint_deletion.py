"""Checkpoints that are kept, copied, given to `run -s` and deleted, without Spark: a job over rows that are known."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DatagenSource, DefinitionError, FileSink, FileSource, Job, RollingPolicy, failpoints
from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import DriverLock, Epoch
from poundlock.checkpoint.identity import new_job_id, open_identity, read_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Counts, Occasion, Prepared, Reject, WriterContext
from poundlock.driver.savepoints.checkpoint_as_savepoint import cut, described, savepoint_of
from poundlock.driver.savepoints.checkpoint_deletion import MARK, delete_checkpoint, finish_deletion
from poundlock.driver.savepoints.handover import LEFT, refuse_left
from poundlock.driver.savepoints.restore import Beginning, begin
from poundlock.driver.savepoints.retained_checkpoints import Retained, copies, newest_whole
from poundlock.failpoints import DeletionPoint, Failpoint, InjectedFailure
from poundlock.formats.chunk import Batch
from poundlock.plan.plan import Plan, make_plan
from poundlock.savepoint.metadata import METADATA, check_files, read_metadata, refuse_first_edition
from poundlock.storage import LocalStorage, open_storage
from poundlock.storage.copying import copy
from poundlock.values import SystemClock

CLOCK = SystemClock()


def refuse(record: Reject) -> None:
    raise AssertionError(record.reason)


def rows(n: int) -> list[bytes]:
    return [b"%d/%d" % (n, i) for i in range(5)]


def plan_of(output: Path, name: str = "job") -> Plan:
    job = Job(name, on_error="fail")
    job.from_source(DatagenSource(rate=1), name="in").sink_to(
        FileSink(str(output), row="value", rolling=RollingPolicy(every="1 h", size="30 B")), name="out"
    )
    return make_plan(job)


class Life:
    """One life of a job's driver."""

    def __init__(self, checkpoint: Path, output: Path) -> None:
        self.storage, self.output = LocalStorage(str(checkpoint)), output
        self.plan = plan_of(output)
        self.identity = open_identity(self.storage, name="job", clock=CLOCK)
        self.sinks = {"out": bound(self.plan.sinks["out"], job_id=self.identity.job_id, sink="out")}
        self.epoch = Epoch.claim(
            self.storage, clock=CLOCK, sinks={"out": self.sinks["out"].describe_json()}, operators=described(self.plan)
        )
        self.coordinator = self.new_coordinator()
        self.coordinator.recover()

    def new_coordinator(self) -> Coordinator:
        return Coordinator(
            identity=self.identity, epoch=self.epoch, ledger=Ledger(self.storage), participants=self.sinks, clock=CLOCK
        )  # fmt: skip

    def run(self, first: int, last: int) -> Life:
        for n in range(first, last):
            self.storage.create_exclusive(f"sources/in/{n}", b"what its enumerator notes")
            self.coordinator.checkpoint(n, {"in": SourceRange(n, n + 1)}, lambda said, n=n: self._tasks(said, n))  # type: ignore[misc]
        return self

    def _tasks(self, directive: SinkDirectives, n: int) -> TaskResults:
        context = WriterContext(
            job_id=self.identity.job_id, sink="out", epoch=1, checkpoint=n, subtask=n % 2, attempt=uuid.uuid4().hex,
            directive=directive.sinks["out"], reject=refuse, started_ms=directive.started_ms,
        )  # fmt: skip
        writer = self.sinks["out"].open_writer(context)
        writer.write(Batch(pa.record_batch({"value": pa.array(rows(n), pa.binary())})))
        prepared = [Prepared("out", n % 2, payload) for payload in writer.prepare()]
        return TaskResults(prepared=prepared, counts={"out": Counts(read=5, written=5)}, rows_read={"in": 5})

    def delete(self) -> None:
        delete_checkpoint(self.storage, self.identity, self.sinks, self.new_coordinator(), self.epoch)

    def retained(self, keep: int, said: list[str] | None = None) -> Retained:
        def copy(directory: str, name: str) -> Any:
            return cut(
                self.plan, self.storage, self.coordinator, self.identity, directory, clock=CLOCK, retained=name
            )  # fmt: skip

        return Retained(
            self.storage,
            job_id=self.identity.job_id,
            keep=keep,
            cut=copy,
            say=(said if said is not None else []).append,
        )


def begin_with(path: Path | str, folder: Path, output: Path, *, newer: Any = "refuse") -> Life:
    """Begin a job with a savepoint or a checkpoint, as the driver does."""
    storage, plan = open_storage(str(folder)), plan_of(output)
    said: list[str] = []
    with savepoint_of(Beginning(str(path), newer=newer), storage, plan, clock=CLOCK, say=said.append) as (given, say):
        begin(plan, storage, given, clock=CLOCK, say=say)
    assert said[0].startswith(f"Restored from savepoint {path} (checkpoint ")
    return Life(folder, output)


def seen(output: Path) -> Counter[bytes]:
    files = (p for p in output.rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return Counter(line for path in files for line in path.read_bytes().splitlines())


def expected(first: int, last: int) -> Counter[bytes]:
    return Counter(row for n in range(first, last) for row in rows(n))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def fail_committing(life: Life, monkeypatch: pytest.MonkeyPatch) -> Life:
    """Take checkpoints until one is decided and could not be carried out."""
    monkeypatch.setattr(failpoints, "_seen", {})
    with monkeypatch.context() as patch:
        patch.setenv("POUNDLOCK_FAILPOINTS", f"{Failpoint.SINK_COMMITTING.value}:raise")
        for n in range(9):
            try:
                life.run(n, n + 1)
            except InjectedFailure:
                return life
    raise AssertionError("nothing was to be committed")


# --- deleting --------------------------------------------------------------------------------------------------------


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_what_is_decided_becomes_visible_and_what_is_pending_goes(
    folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, before = fail_committing(Life(folder, out), monkeypatch), seen(out)
    life.delete()
    assert left(folder) == ["00000001.json", "driver.lock"]
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["epochs"]
    assert not [p for p in out.rglob(".*") if p.is_file()]
    assert seen(out) > before, "what was decided is visible"
    assert seen(out) <= expected(0, 9), "nothing is there twice"


def test_a_deletion_may_break_off_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the mark is there the checkpoint can be gone on from; after that the next start deletes the rest and starts over."""
    Life(tmp_path / "checkpoint", tmp_path / "out").run(0, 5).epoch.release()
    reached, file = set[DeletionPoint](), 0
    points = [(point, 1) for point in DeletionPoint if point is not DeletionPoint.FILE_DELETED]
    while points:
        point, times = points.pop()
        work = tmp_path / f"{point.name}-{times}"
        shutil.copytree(tmp_path / "checkpoint", work / "checkpoint")
        shutil.copytree(tmp_path / "out", work / "out")
        said = json.loads((work / "checkpoint/job.json").read_text())
        text = (tmp_path / "out").as_posix()
        for path in (work / "checkpoint").rglob("*.json"):  # the copy's sink is in the copy
            moved = path.read_text().replace(text, (work / "out").as_posix())
            path.write_text(re.sub(r',"crc32":"[0-9a-f]{8}"', "", moved))
        life = Life(work / "checkpoint", work / "out")
        pending = seen(work / "out")
        monkeypatch.setattr(failpoints, "_seen", {})
        monkeypatch.setenv("POUNDLOCK_FAILPOINTS", f"{point.value}:raise@{times}")
        try:
            life.delete()
        except InjectedFailure:
            reached.add(point)
            if point in (DeletionPoint.SWEPT, DeletionPoint.FILE_DELETED):
                file += 1
                points.append((DeletionPoint.FILE_DELETED, file))
        monkeypatch.delenv("POUNDLOCK_FAILPOINTS")
        life.epoch.release()

        told: list[str] = []
        marked = (work / "checkpoint" / MARK).exists()
        finish_deletion(life.plan, life.storage, clock=CLOCK, say=told.append)
        if point is DeletionPoint.COMMITTED:
            assert not marked
            again = Life(work / "checkpoint", work / "out").run(5, 8)
            again.coordinator.roll(Occasion.END)
            assert again.identity.job_id == said["job_id"]
            assert seen(work / "out") == expected(0, 8)
            continue
        assert [said["job_id"] in line for line in told] == [True] * marked
        assert set(left(work / "checkpoint")) - {f"{n:08d}.json" for n in range(9)} == {"driver.lock"}
        assert not [p for p in (work / "out").rglob(".*") if p.is_file()]
        assert read_identity(life.storage) is None
        anew = Life(work / "checkpoint", work / "out").run(100, 103)
        anew.coordinator.roll(Occasion.END)
        assert anew.identity.job_id != said["job_id"]
        assert seen(work / "out") == pending + expected(100, 103)
    assert reached == set(DeletionPoint)
    assert file > 10


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_checkpoint_deletion import Life
Life(Path({folder!r}), Path({out!r})).run(0, 5).delete()
"""


def test_a_deletion_that_is_killed_is_ended_by_the_next_start(folder: Path, out: Path) -> None:
    program = CHILD.format(here=str(Path(__file__).parent), folder=str(folder), out=str(out))
    environment = {**os.environ, "POUNDLOCK_FAILPOINTS": f"{DeletionPoint.FILE_DELETED.value}:kill@7"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (folder / MARK).exists()
    assert len(left(folder)) > 5
    stranger = Job("other", checkpoint_dir="x")
    stranger.from_source(DatagenSource(rate=1), name="clicks").sink_to(FileSink(str(out), row="value"), name="files")
    for _ in range(2):  # whoever is refused leaves the rest to the one that it belongs to
        with pytest.raises(DefinitionError, match=r"rest of a cancelled job's .* is of job 'job', and 'other' has no"):
            finish_deletion(make_plan(stranger), LocalStorage(str(folder)), clock=CLOCK, say=print)
    with (
        pytest.raises(DefinitionError, match="was cancelled, and its checkpoint is being deleted"),
        savepoint_of(Beginning(str(folder)), open_storage(f"{folder}-2"), plan_of(out), clock=CLOCK, say=print),
    ):
        pass
    finish_deletion(plan_of(out, "renamed"), LocalStorage(str(folder)), clock=CLOCK, say=print)
    assert left(folder) == ["00000002.json", "driver.lock"]


def test_a_sink_that_was_renamed_since_is_cleaned_too(folder: Path, out: Path, tmp_path: Path) -> None:
    life = Life(folder, out).run(0, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POUNDLOCK_FAILPOINTS", f"{DeletionPoint.MARKED.value}:raise@1")
        patch.setattr(failpoints, "_seen", {})
        with pytest.raises(InjectedFailure):
            life.delete()
    life.epoch.release()
    assert [p for p in out.rglob(".*") if p.is_file()]
    finish_deletion(plan_of(tmp_path / "elsewhere"), life.storage, clock=CLOCK, say=print)
    assert not [p for p in out.rglob(".*") if p.is_file()]


# --- copies ----------------------------------------------------------------------------------------------------------


def test_the_newest_are_kept_each_can_be_restored_and_old_ones_go(folder: Path, out: Path, tmp_path: Path) -> None:
    life = Life(folder, out)
    retained = life.retained(3)
    for n in range(6):
        life.run(n, n + 1)
        assert retained.due(n)
        retained.copy(n)
        assert not retained.due(n)
    kept = copies(life.storage)
    assert sorted(kept) == [3, 4, 5]
    assert len(list((folder / "retained").iterdir())) == 3
    for n, path in kept.items():
        copy = LocalStorage(f"{folder}/{path}")
        metadata = read_metadata(copy)
        check_files(copy, metadata)
        assert (metadata.name, metadata.decision.checkpoint) == (f"chk-{n}", n)
        assert sorted(int(name) for name in copy.names("sources/in")) == [*range(n + 1)]

    fork = begin_with(f"{folder}/{kept[4]}", tmp_path / "fork", tmp_path / "fork-out")
    fork.run(5, 8).coordinator.roll(Occasion.END)
    names = {row for row in expected(0, 8) if row not in seen(tmp_path / "fork-out")}
    assert names <= set(seen(out)), "what was finished before is in the first job's folder"
    assert set(seen(tmp_path / "fork-out").values()) == {1}


def test_the_newest_whole_copy_is_found(folder: Path, out: Path) -> None:
    life = Life(folder, out)
    retained = life.retained(3)
    assert newest_whole(life.storage) is None
    for n in range(3):
        life.run(n, n + 1)
        retained.copy(n)
    assert newest_whole(life.storage) == (2, f"{folder}/retained/chk-2")
    (folder / "retained/chk-2/sources/in/2").unlink()
    (folder / "retained/chk-1" / METADATA).write_text("{}")
    assert newest_whole(life.storage) == (0, f"{folder}/retained/chk-0")


def test_files_that_are_in_the_copy_before_are_not_read_again(
    folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from poundlock.savepoint import take

    read: list[str] = []
    digest = take.digest_of
    monkeypatch.setattr(take, "digest_of", lambda storage, path: read.append(path) or digest(storage, path))
    life = Life(folder, out)
    retained = life.retained(2)
    for n in range(3):
        read.clear()
        life.run(n, n + 1)
        retained.copy(n)
    assert [path for path in read if path.startswith("sources/")] == ["sources/in/2"]
    copy = LocalStorage(f"{folder}/retained/chk-2")
    check_files(copy, read_metadata(copy))


def test_a_crash_between_copies_leaves_whole_ones_and_the_rest_is_removed(folder: Path, out: Path) -> None:
    life = Life(folder, out)
    retained = life.retained(3)
    for n in range(2):
        life.run(n, n + 1)
        retained.copy(n)
    life.run(2, 3)
    retained.copy(2)
    (folder / "retained/chk-2" / METADATA).unlink()  # killed before it was digested
    (folder / "retained/chk-0" / METADATA).unlink()  # killed while it was removed
    foreign = folder / "retained/chk-9"
    shutil.copytree(folder / "retained/chk-1", foreign)
    metadata = json.loads((foreign / METADATA).read_text())
    (foreign / METADATA).write_text(json.dumps({**metadata, "job_id": new_job_id()}))
    (folder / "retained/notes").mkdir()

    retained = life.retained(3)
    assert sorted(path.name for path in (folder / "retained").iterdir()) == ["chk-1", "notes"]
    assert not retained.due(1)
    assert retained.due(2)
    life.retained(1)
    assert [path.name for path in (folder / "retained").iterdir()] == ["notes"]


def test_a_copy_that_cannot_be_made_is_told_and_the_job_goes_on(
    folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life, said = Life(folder, out).run(0, 1), list[str]()
    retained = life.retained(2, said)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("poundlock.savepoint.take.link", full)
        retained.copy(0)
    assert said == [f"Checkpoint 0 was not copied to {folder}/retained: [Errno 28] No space left on device"]
    assert copies(life.storage) == {}
    life.run(1, 2)
    retained.copy(1)
    assert list(copies(life.storage)) == [1]


def test_a_fork_of_a_checkpoint_folder_leaves_it_alone_and_everything_is_once(
    folder: Path, out: Path, tmp_path: Path
) -> None:
    life = Life(folder, out).run(0, 5)
    life.epoch.release()
    before = content(folder)
    hidden = {path for path in content(out) if path.rpartition("/")[2].startswith(".")}
    fork = begin_with(folder, tmp_path / "fork", out)
    assert content(folder) == before
    assert hidden <= set(content(out))
    assert fork.identity.job_id != life.identity.job_id
    assert fork.coordinator.newest.checkpoint == 4
    assert not (tmp_path / "fork/restoring").exists()
    assert (tmp_path / "fork/sources/in/4").read_bytes() == b"what its enumerator notes"
    fork.run(5, 8).coordinator.roll(Occasion.END)
    assert seen(out) == expected(0, 8)
    assert content(folder) == before


def refused(folder: Path, tmp_path: Path, out: Path, match: str) -> str:
    """Begin with a checkpoint that cannot be restored; return what to do about it. Nothing must have been touched."""
    before = content(tmp_path)
    with pytest.raises(DefinitionError, match=match) as failure:
        begin_with(folder, tmp_path / "fork", out)
    assert content(tmp_path) == before
    assert not (tmp_path / "fork").exists()
    return failure.value.next


def test_what_cannot_be_restored_is_refused_and_nothing_is_touched(
    folder: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(folder, out)
    assert "savepoint JOB" in refused(folder, tmp_path, out, "is still running .process [0-9]+ on ")
    life.epoch.release()
    assert refused(folder, tmp_path, out, "has no completed checkpoint") == "begin without -s"
    life = fail_committing(Life(folder, out), monkeypatch)
    life.epoch.release()
    said = refused(folder, tmp_path, out, "checkpoint [0-9] of .* is decided, and not all of it is visible yet")
    assert "start its job once" in said
    Life(folder, out).epoch.release()
    (folder / LEFT).write_text(json.dumps({"v": 1, "savepoint": "/sp"}))
    assert "run -s /sp" in refused(folder, tmp_path, out, "ended with the savepoint /sp")
    (folder / LEFT).unlink()
    with pytest.raises(DefinitionError, match="is this job's own checkpoint"):
        begin_with(folder, folder / "../checkpoint", out)
    before = content(tmp_path)
    claiming = Beginning(str(folder), claim="CLAIM")
    with (
        pytest.raises(DefinitionError, match="is the checkpoint folder of a job, which another one cannot own"),
        savepoint_of(claiming, open_storage(str(tmp_path / "claiming")), plan_of(out), clock=CLOCK, say=print),
    ):
        pass
    assert content(tmp_path) == before
    refuse_left(LocalStorage(str(folder)))


def test_a_decision_that_nobody_noted_as_carried_out_is_looked_at(folder: Path, out: Path, tmp_path: Path) -> None:
    life = Life(folder, out).run(0, 6)
    life.epoch.release()
    for path in (folder / "carried-out").iterdir():
        path.unlink()
    fork = begin_with(folder, tmp_path / "fork", out)
    fork.run(6, 7).coordinator.roll(Occasion.END)
    assert seen(out) == expected(0, 7)


def test_who_reads_a_checkpoint_keeps_drivers_out_and_writes_nothing(folder: Path) -> None:
    storage = LocalStorage(str(folder))
    assert not DriverLock.keep_out(storage).held
    assert not folder.exists()
    Epoch.claim(storage, clock=CLOCK).release()
    before = content(folder)
    lock, second = DriverLock.keep_out(storage), DriverLock.keep_out(storage)
    with pytest.raises(DefinitionError, match="two drivers on one checkpoint"):
        DriverLock.acquire(storage, clock=CLOCK)
    lock.release()
    second.release()
    assert content(folder) == before
    DriverLock.acquire(storage, clock=CLOCK).release()


def test_a_checkpoint_of_the_first_edition_is_refused_by_name(folder: Path, out: Path, tmp_path: Path) -> None:
    life = Life(folder, out).run(0, 2)
    life.epoch.release()
    (folder / "spark/offsets").mkdir(parents=True)
    (folder / "spark/offsets/1").write_bytes(b"v2\n{}\n{}")
    said = refused(folder, tmp_path, out, "was taken by poundlock 0.1, whose state and positions are Spark's")
    assert "let that version finish" in said
    with pytest.raises(DefinitionError, match=r"was taken by poundlock 0\.1"):
        refuse_first_edition(LocalStorage(str(folder)))
    (folder / "spark/offsets/1").unlink()
    refuse_first_edition(LocalStorage(str(folder)))


@pytest.mark.parametrize("below", ["", "sources", "../link/mine"])
def test_a_savepoint_is_not_made_where_the_job_removes_things(folder: Path, out: Path, below: str) -> None:
    life = Life(folder, out)
    life.run(0, 1)
    (folder.parent / "link").symlink_to(folder)
    before = sorted(folder.rglob("*"))
    with pytest.raises(DefinitionError, match="in the job's own checkpoint folder"):
        cut(life.plan, life.storage, life.coordinator, life.identity, f"{folder}/{below}", clock=CLOCK)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("directory", "said"),
    [
        (
            "out/saved",
            "the savepoint in .*/out/saved would be in the folder of sink 'out', .*/out, which removes .*\nNext: give one of",
        ),
        ("out/_saved", "would be in the folder of sink 'out', "),
        ("link", "would be in the folder of sink 'out', "),
        (
            "in/saved",
            "source 'files', which reads .*/in, would read the savepoint in .*/in/saved/savepoint-.*\nNext: give ",
        ),
        ("in/_saved", ""),
    ],
)
def test_a_savepoint_is_not_made_where_a_source_reads_or_a_sink_writes(
    folder: Path, tmp_path: Path, directory: str, said: str
) -> None:
    """A watching source read the savepoint's files as rows, and a sink's next start removed what was unfinished in it."""
    out = tmp_path / "out"
    life = Life(folder, out)
    life.run(0, 1)
    (tmp_path / "link").symlink_to(out)
    read = Job("job", on_error="fail")
    read.from_source(FileSource(f"{tmp_path}/in", watch=True), name="files").sink_to(life.plan.sinks["out"], name="out")
    before = sorted(tmp_path.rglob("*"))
    asked = (make_plan(read), life.storage, life.coordinator, life.identity, f"{tmp_path}/{directory}")
    drained: list[bool] = []
    if not said:
        cut(*asked, clock=CLOCK, ready=lambda: drained.append(True)).discard()
        assert drained
        return
    with pytest.raises(DefinitionError, match=said):
        cut(*asked, clock=CLOCK, ready=lambda: drained.append(True))
    assert not drained
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_left_of_a_savepoint_that_could_not_be_cut(
    folder: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from poundlock.savepoint import take

    copied: list[object] = []

    def full_at_the_second(*given: Any, **more: Any) -> None:
        copied.append(given)
        if len(copied) == 2:
            raise OSError(28, "No space left on device")
        copy(*given, **more)

    life = Life(folder, out)
    life.run(0, 2)
    monkeypatch.setattr(take, "copy", full_at_the_second)
    with pytest.raises(OSError, match="No space"):
        cut(life.plan, life.storage, life.coordinator, life.identity, f"{tmp_path}/saved", clock=CLOCK)
    assert list((tmp_path / "saved").iterdir()) == []
