"""Savepoints of files without Spark: what is carried goes along, nothing finished since is damaged, rubbish is refused."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DatagenSource, DefinitionError, FileSink, Job, RollingPolicy
from poundlock.audit.audit import audit
from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import new_job_id, open_identity, read_identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import SinkDirectives, TaskResults
from poundlock.checkpoint.participant import Counts, Occasion, Prepared, Reject, WriterContext
from poundlock.checkpoint.portable import NewerOutput
from poundlock.driver.savepoints.handover import leave, left
from poundlock.driver.savepoints.restore import Beginning, begin
from poundlock.formats.chunk import Batch
from poundlock.plan.plan import make_plan
from poundlock.savepoint.metadata import (
    METADATA,
    Metadata,
    Operator,
    check_files,
    damage,
    digest_of,
    new_name,
    read_metadata,
)
from poundlock.savepoint.restore import check, restore
from poundlock.savepoint.take import finish, take
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock
from support.saved import save

CLOCK = SystemClock()
OPERATORS = {"in": Operator("source"), "out": Operator("sink")}


def refuse(record: Reject) -> None:
    raise AssertionError(record.reason)


def rows(n: int) -> list[bytes]:
    return [b"%d/%d" % (n, i) for i in range(5)]


class Life:
    """A job over batches of known rows, without Spark."""

    def __init__(self, checkpoint: Path, output: Path) -> None:
        self.storage = LocalStorage(str(checkpoint))
        self.sink = FileSink(str(output), row="value", rolling=RollingPolicy(every="1 h", size="30 B"))
        self.identity = open_identity(self.storage, name="job", clock=CLOCK)
        self.output = output
        self.salt = b""
        self.rows = rows

    def run(self, first: int, last: int, *, end: bool = False) -> None:
        """Take checkpoints; with `end`, finish every file."""
        with Epoch.claim(self.storage, clock=CLOCK) as epoch:
            self.coordinator = Coordinator(
                identity=self.identity,
                epoch=epoch,
                ledger=Ledger(self.storage),
                participants={"out": bound(self.sink, job_id=self.identity.job_id, sink="out")},
                clock=CLOCK,
            )
            self.coordinator.recover()
            for n in range(first, last):
                self.storage.create_exclusive(f"sources/in/{n}", b"v1\n")
                self.coordinator.checkpoint(n, {"in": SourceRange(n, n + 1)}, lambda said, n=n: self._tasks(said, n))  # type: ignore[misc]
            if end:
                self.coordinator.roll(Occasion.END)

    def _tasks(self, directive: SinkDirectives, n: int) -> TaskResults:
        context = WriterContext(
            job_id=self.identity.job_id, sink="out", epoch=1, checkpoint=n, subtask=n % 2, attempt=uuid.uuid4().hex,
            directive=directive.sinks["out"], reject=refuse, started_ms=directive.started_ms,
        )  # fmt: skip
        writer = self.sink.open_writer(context)
        writer.write(
            Batch(pa.record_batch({"value": pa.array([row + self.salt for row in self.rows(n)], pa.binary())}))
        )
        prepared = [Prepared("out", n % 2, payload) for payload in writer.prepare()]
        return TaskResults(prepared=prepared, counts={"out": Counts(read=5, written=5)}, rows_read={"in": 5})

    def save(self, folder: Path) -> LocalStorage:
        name = new_name(self.identity.job_id)
        metadata = Metadata(
            name=name, job="job", job_id=self.identity.job_id, created_ms=CLOCK.now_ms(), versions={},
            decision=self.coordinator.newest, operators=OPERATORS, sinks={}, files={},
        )  # fmt: skip
        savepoint = LocalStorage(str(folder / name))
        finish(take(self.storage, savepoint, metadata=metadata, sinks={"out": self.sink}))
        return savepoint

    def seen(self) -> Counter[bytes]:
        files = (p for p in self.output.rglob("*") if p.is_file() and not p.name.startswith((".", "_")))
        return Counter(line for path in files for line in path.read_bytes().splitlines())

    def audited(self) -> None:
        report = audit(Ledger(self.storage), {"out": bound(self.sink, job_id=self.identity.job_id, sink="out")})
        assert report.agrees, report.disagreements


def restored(
    savepoint: LocalStorage, checkpoint: Path, output: Path, newer: NewerOutput = "refuse", **more: Any
) -> Life:
    storage, job_id = LocalStorage(str(checkpoint)), new_job_id()
    sink = FileSink(str(output), row="value", rolling=RollingPolicy(every="1 h", size="30 B"))
    sinks = {"out": bound(sink, job_id=job_id, sink="out")}
    found = check(savepoint, storage, job="job", operators=OPERATORS, sinks=sinks, newer=newer, **more)
    restore(found, storage, job_id=job_id, sinks=sinks, newer=newer, now_ms=CLOCK.now_ms())
    open_identity(storage, name="job", clock=CLOCK, job_id=job_id)
    return Life(checkpoint, output)


def expected(first: int, last: int) -> Counter[bytes]:
    return Counter(row for n in range(first, last) for row in rows(n))


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path / "checkpoint", tmp_path / "out")


def test_a_job_goes_on_from_where_it_was_saved(life: Life, tmp_path: Path) -> None:
    life.run(0, 3)
    before = life.seen()
    assert 0 < before.total() < expected(0, 3).total()  # some rows wait hidden
    savepoint = life.save(tmp_path)
    moved = LocalStorage(str(shutil.move(savepoint.root, tmp_path / "elsewhere")))
    shutil.rmtree(tmp_path / "checkpoint")
    for path in (tmp_path / "out").rglob(".*"):
        path.unlink()  # what waited hidden is in the savepoint, whole
    again = restored(moved, tmp_path / "checkpoint2", tmp_path / "out")
    again.run(3, 6, end=True)
    assert again.seen() == expected(0, 6)
    again.audited()


def test_a_fork_has_its_own_output_and_leaves_the_first_job_alone(life: Life, tmp_path: Path) -> None:
    life.run(0, 3)
    savepoint = life.save(tmp_path)
    visible = life.seen()
    fork = restored(savepoint, tmp_path / "fork", tmp_path / "out-of-fork")
    fork.run(3, 7, end=True)
    life.run(3, 6, end=True)
    assert life.seen() == expected(0, 6)
    assert fork.seen() == expected(0, 7) - visible
    life.audited()
    fork.audited()
    assert restored(savepoint, tmp_path / "third", tmp_path / "out3").identity.job_id != fork.identity.job_id


@pytest.mark.parametrize("newer", ["retract", "keep"])
def test_an_old_savepoint_after_its_successors_finished_files(life: Life, tmp_path: Path, newer: NewerOutput) -> None:
    life.run(0, 3)
    savepoint = life.save(tmp_path)
    visible = life.seen()
    life.run(3, 6, end=True)
    with pytest.raises(DefinitionError, match="finished after the savepoint") as caught:
        restored(savepoint, tmp_path / "second", tmp_path / "out")
    assert "--on-newer-output=retract" in str(caught.value.next)
    assert "poundlock cancel -s DIR" in str(caught.value.next)
    assert not (tmp_path / "second").exists()
    assert life.seen() == expected(0, 6)
    again = restored(savepoint, tmp_path / "second", tmp_path / "out", newer)
    again.run(3, 8, end=True)
    twice = expected(0, 6) - visible if newer == "keep" else Counter()
    assert again.seen() == expected(0, 8) + twice
    again.audited()


@pytest.mark.parametrize(("other", "what"), [(0, "lacks the file part-0-"), (6, "has another file part-0-")])
def test_a_savepoint_whose_output_was_taken_back_since(life: Life, tmp_path: Path, other: int, what: str) -> None:
    life.run(0, 2)
    early = life.save(tmp_path)
    life.run(2, 6)
    late = life.save(tmp_path)
    sibling = restored(early, tmp_path / "sibling", tmp_path / "out", "retract")
    sibling.salt = b"!"
    sibling.run(2, 2 + other, end=other > 0)  # other rows, in no file or in files of the same names
    seen = life.seen()
    for newer in ("refuse", "retract"):
        with pytest.raises(DefinitionError, match=f"sink 'out' {what}") as caught:
            restored(late, tmp_path / "again", tmp_path / "out", newer)
        assert "--on-newer-output=keep" in str(caught.value.next)
    if other:
        copied = shutil.copytree(tmp_path / "out", tmp_path / "copy")
        with pytest.raises(DefinitionError, match=f"sink 'out' {what}"):
            restored(late, tmp_path / "again", copied, "retract")
    assert life.seen() == seen, "nothing was touched"
    assert not (tmp_path / "again").exists()
    fork = restored(late, tmp_path / "fork", tmp_path / "elsewhere")
    fork.run(6, 8, end=True)
    assert Path(fork.save(tmp_path).root).is_dir()
    twice = restored(fork.save(tmp_path), tmp_path / "fork-of-fork", tmp_path / "elsewhere")
    twice.run(8, 9, end=True)
    assert set(rows(8)) <= set(twice.seen()), "files of the first output are nothing to count on in the second"


def test_a_file_that_only_began_as_the_finished_one_is_another(life: Life, tmp_path: Path) -> None:
    life.run(0, 1)
    early = life.save(tmp_path)  # with the first rows of a file
    life.run(1, 4)
    late = life.save(tmp_path)
    sibling = restored(early, tmp_path / "sibling", tmp_path / "out", "retract")
    sibling.rows = lambda n: rows(n + 6)  # of the same size, as where tasks read one another's partitions
    sibling.run(1, 4)
    assert rows(8)[0] in sibling.seen()
    with pytest.raises(DefinitionError, match="has another file part-0-0"):
        restored(late, tmp_path / "again", tmp_path / "out", "retract")


def test_a_restore_that_was_killed_is_begun_anew(life: Life, tmp_path: Path) -> None:
    life.run(0, 3)
    savepoint = life.save(tmp_path)
    storage = LocalStorage(str(tmp_path / "checkpoint2"))
    sinks = {"out": bound(FileSink(str(tmp_path / "out"), row="value"), job_id=new_job_id(), sink="out")}
    found = check(savepoint, storage, job="job", operators=OPERATORS, sinks=sinks)
    restore(found, storage, job_id="0" * 32, sinks=sinks, newer="refuse", now_ms=0)  # and no identity
    again = restored(savepoint, tmp_path / "checkpoint2", tmp_path / "out")
    again.run(3, 4, end=True)
    assert again.seen() == expected(0, 4)


def damage_missing(folder: Path) -> None:
    next(folder.rglob("sinks/**/.part*")).unlink()


def damage_truncated(folder: Path) -> None:
    path = next(folder.rglob("sinks/**/.part*"))
    path.write_bytes(path.read_bytes()[:-1])


def damage_changed(folder: Path) -> None:
    path = next(folder.rglob("sinks/**/.part*"))
    path.write_bytes(path.read_bytes().swapcase()[::-1])


def damage_version(folder: Path) -> None:
    said = json.loads((folder / METADATA).read_text())
    (folder / METADATA).write_text(json.dumps({**said, "v": 99}))


def damage_metadata(folder: Path) -> None:
    (folder / METADATA).write_bytes((folder / METADATA).read_bytes()[:-100])


def damage_half(folder: Path) -> None:
    (folder / METADATA).unlink()


def damage_folder(folder: Path) -> None:
    (folder / METADATA).unlink()
    (folder / METADATA).mkdir()


def damage_all(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_missing, "is missing"),
        (damage_truncated, "bytes instead of"),
        (damage_changed, "has other content"),
        (damage_version, "format 99 is not known"),
        (damage_metadata, "cannot be read"),
        (damage_folder, "cannot be read: it is a folder"),
        (damage_half, "was not copied whole"),
        (damage_all, "there is no savepoint in"),
    ],
)
def test_a_damaged_savepoint_is_refused_and_nothing_is_changed(
    life: Life, tmp_path: Path, damage: Any, said: str
) -> None:
    life.run(0, 3)
    savepoint = life.save(tmp_path)
    damage(Path(savepoint.root))
    files = sorted((tmp_path / "out").rglob("*"))
    with pytest.raises(DefinitionError, match=said):
        restored(savepoint, tmp_path / "second", tmp_path / "out")
    assert not (tmp_path / "second").exists()
    assert sorted((tmp_path / "out").rglob("*")) == files


def rubbish(said: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give what no savepoint says of itself."""
    sound = {"bytes": 8, "sha256": "0" * 64}
    for path in ("/etc/passwd", "../x", "a/../../x", "", "a//b", "./a", "a\0b"):
        yield f"files {path!r}", {**said, "files": {path: sound}}
    yield "no object", []
    yield "deep", None
    for name in ("name", "job", "job_id", "created_ms", "versions", "decision", "operators", "sinks", "files"):
        yield f"no {name}", {key: value for key, value in said.items() if key != name}
        for wrong in (None, 7.5, [1], True):
            yield f"{name} {wrong}", {**said, name: wrong}
    for name in ("number", "checkpoint", "time_ms", "sources", "sinks"):
        yield f"decision {name}", {**said, "decision": {**said["decision"], name: "x"}}
    for name in ("sources", "sinks"):
        yield f"decision of {name}", {**said, "decision": {**said["decision"], name: {"a": 3}}}
    yield "operator", {**said, "operators": {"a": "source"}}
    yield "description", {**said, "sinks": {"a": "files"}}
    yield "bytes", {**said, "files": {"a": {"bytes": "8", "sha256": "0" * 64}}}
    yield "digest", {**said, "files": {"a": {"bytes": 8, "sha256": "/"}}}


def test_a_savepoint_and_a_restore_read_no_large_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(storage: Any, path: str, *algorithm: Any) -> str:
        read.append(path)
        return digest_of(storage, path, *algorithm)

    monkeypatch.setattr("poundlock.savepoint.metadata.digest_of", noted)
    monkeypatch.setattr("poundlock.savepoint.take.digest_of", noted)
    savepoint = save(tmp_path, positions={"in": {"row": 1}}, state=["totals"])
    metadata = read_metadata(savepoint)
    (run,) = metadata.runs
    assert metadata.files[run].sha256 is None
    assert read
    assert not any(path.startswith("state/") for path in read)
    check_files(savepoint, metadata)
    assert read[-1] == run, "a small one is read"
    monkeypatch.setattr("poundlock.savepoint.metadata.VERIFIED_WHOLE", 49)
    path = Path(savepoint.root) / run
    path.write_bytes(path.read_bytes()[::-1].swapcase())
    read.clear()
    check_files(savepoint, metadata)
    assert run not in read
    assert [wrong for wrong, _ in damage(savepoint, metadata)] == [run]
    path.write_bytes(b"short")
    with pytest.raises(DefinitionError, match="has 5 bytes instead of 50"):
        check_files(savepoint, metadata)
    said = json.loads((Path(savepoint.root) / METADATA).read_text())
    said["files"]["sinks/other"] = {"bytes": 5, "sha256": None}
    with pytest.raises(ValueError, match="sinks/other has no digest"):
        Metadata.from_json(said)


def test_rubbish_is_refused_in_two_lines(life: Life, tmp_path: Path) -> None:
    life.run(0, 3)
    savepoint = life.save(tmp_path / "saved")
    listed = Path(savepoint.root, METADATA)
    for what, value in rubbish(json.loads(listed.read_text())):
        listed.write_text("[" * 100_000 if what == "deep" else json.dumps(value))
        with pytest.raises(DefinitionError, match="cannot be read: ") as refused:
            read_metadata(savepoint)
        assert len(str(refused.value)) < 600, what
        assert not re.search("xpected|`", str(refused.value)), what


def test_a_savepoint_cannot_have_a_finished_file_removed(life: Life, tmp_path: Path) -> None:
    """It would be deleted to make place for what is said to be unfinished."""
    life.run(0, 3)
    savepoint = life.save(tmp_path / "saved")
    listed = Path(savepoint.root, METADATA)
    said = json.loads(listed.read_text())
    [segment, *_] = said["decision"]["sinks"]["out"]["state"]["parts"][0]["segments"]
    segment["path"] = "part-0-0"
    listed.write_text(json.dumps(said))
    for newer in ("refuse", "keep", "retract"):
        with pytest.raises(DefinitionError, match="names 'part-0-0' as unfinished data"):
            restored(savepoint, tmp_path / "other", tmp_path / "out", newer)  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()


def test_what_does_not_fit_is_named(life: Life, tmp_path: Path) -> None:
    life.run(0, 3)
    savepoint = life.save(tmp_path)
    storage = LocalStorage(str(tmp_path / "second"))

    def refused(**changed: Any) -> str:
        given: dict[str, Any] = {"job": "job", "operators": OPERATORS, "sinks": {}, **changed}
        with pytest.raises(DefinitionError) as caught:
            check(savepoint, storage, **given)
        return caught.value.what

    strange = {"clicks": Operator("source"), "files": Operator("sink")}
    assert "is of job 'job', and 'other' has no operator in common" in refused(job="other", operators=strange)
    assert "has no such operator" in refused(job="job", operators=strange), "it may have been changed from end to end"
    assert check(savepoint, storage, job="other", operators=OPERATORS, sinks={}).dropped == []
    assert "sink 'out'" in refused(operators={"in": Operator("source")})
    dropped = check(
        savepoint, storage, job="job", operators={"in": Operator("source")}, sinks={}, allow_non_restored=True
    ).dropped
    assert dropped == ["out"]
    with pytest.raises(DefinitionError, match="has the checkpoint of a job already"):
        check(savepoint, life.storage, job="job", operators=OPERATORS, sinks={})


def test_it_says_what_it_holds(life: Life, tmp_path: Path) -> None:
    life.run(0, 3)
    savepoint = life.save(tmp_path)
    said = read_metadata(savepoint)
    assert said.name == savepoint.root.rpartition("/")[2]
    assert said.name.startswith(f"savepoint-{life.identity.job_id[:6]}-")
    assert said.decision.sources["in"].end == 3
    assert {path.split("/")[0] for path in said.files} == {"sources", "sinks"}
    assert Metadata.from_json(said.to_json()) == said


class Killed(BaseException):
    """A process that ends in the middle."""


def killed_after(monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
    """Let the process be killed at its next change of a local file after so many."""
    left = [changes]

    def counted(done: Any) -> Any:
        def change(self: LocalStorage, *arguments: Any, **more: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return done(self, *arguments, **more)

        return change

    for name in ("create_exclusive", "delete", "write"):
        monkeypatch.setattr(LocalStorage, name, counted(getattr(LocalStorage, name)))


@pytest.mark.parametrize("before", ["nothing", "a job that ended with a savepoint"])
def test_a_beginning_that_is_killed_anywhere_is_begun_again_and_one_that_was_done_is_not(
    life: Life, tmp_path: Path, before: str
) -> None:
    """As a supervised job does it: every process of it is given the savepoint, and the id that the job is to have."""
    sink = FileSink(str(tmp_path / "out2"), row="value", rolling=RollingPolicy(every="1 h", size="30 B"))
    job = Job("job")
    job.from_source(DatagenSource(), name="in").sink_to(sink, name="out")
    plan = make_plan(job)
    life.run(0, 3)
    savepoint = life.save(tmp_path)
    begun = 0
    for changes in range(1000):
        storage, output = LocalStorage(str(tmp_path / f"c{changes}")), tmp_path / "out2"
        shutil.rmtree(output, ignore_errors=True)
        if before != "nothing":
            old = open_identity(storage, name="job", clock=CLOCK)
            leave(storage, {}, "its savepoint", job_id=old.job_id, check=lambda: None)
        beginning = Beginning(savepoint.root, job_id=new_job_id())
        said: list[str] = []
        with pytest.MonkeyPatch.context() as monkeypatch:
            killed_after(monkeypatch, changes)
            try:
                begin(plan, storage, beginning, clock=CLOCK, say=said.append)
                break  # it had more changes than it needed
            except Killed:
                pass
        was_done = (found := read_identity(storage)) is not None and found.job_id == beginning.job_id
        begun += was_done
        said.clear()
        begin(plan, storage, beginning, clock=CLOCK, say=said.append)
        assert said[0].startswith("Begun with" if was_done else "Restored from savepoint")
        assert left(storage) is None
        again = Life(tmp_path / f"c{changes}", output)
        assert again.identity.job_id == beginning.job_id
        again.run(3, 5)
        begin(plan, storage, beginning, clock=CLOCK, say=said.append)
        again.run(5, 6, end=True)
        assert (again.seen() + life.seen()) == expected(0, 6)
        again.audited()
    assert changes > 5
    assert begun == 2, "between the identity and the last two steps"


def test_a_job_that_ended_with_a_savepoint_is_not_begun_again_with_the_first_one(life: Life, tmp_path: Path) -> None:
    job = Job("job")
    job.from_source(DatagenSource(), name="in").sink_to(FileSink(str(tmp_path / "out2"), row="value"), name="out")
    plan = make_plan(job)
    life.run(0, 3)
    savepoint = life.save(tmp_path)
    storage = LocalStorage(str(tmp_path / "c"))
    beginning = Beginning(savepoint.root, job_id=new_job_id())
    begin(plan, storage, beginning, clock=CLOCK, say=lambda _: None)
    assert beginning.job_id is not None
    leave(storage, {}, "a later one", job_id=beginning.job_id, check=lambda: None)
    with pytest.raises(DefinitionError, match="ended with the savepoint a later one"):
        begin(plan, storage, beginning, clock=CLOCK, say=lambda _: None)
    # Another run may take its place, and one without an id of its own is refused where a job is.
    begin(plan, storage, Beginning(savepoint.root, job_id=new_job_id()), clock=CLOCK, say=lambda _: None)
    with pytest.raises(DefinitionError, match="has the checkpoint of a job already"):
        begin(plan, storage, Beginning(savepoint.root), clock=CLOCK, say=lambda _: None)


@pytest.mark.parametrize("newer", ["refuse", "retract"])
def test_files_where_an_added_sink_is_to_write_are_nobodys_to_remove(
    life: Life, tmp_path: Path, newer: NewerOutput
) -> None:
    """They may be of a successor that went on from this very savepoint; whether they are, nobody can tell."""
    life.run(0, 3)
    savepoint = life.save(tmp_path)
    place = tmp_path / "added"
    place.mkdir()
    (place / "part-0-0").write_bytes(b"of a successor\n")
    job_id = new_job_id()
    sinks = {
        name: bound(FileSink(str(path), row="value"), job_id=job_id, sink=name)
        for name, path in (("out", tmp_path / "fresh"), ("added", place))
    }
    operators = {**OPERATORS, "added": Operator("sink")}
    storage = LocalStorage(str(tmp_path / "c"))
    with pytest.raises(DefinitionError, match="knows nothing of sink 'added'") as refused:
        check(savepoint, storage, job="job", operators=operators, sinks=sinks, newer=newer)
    assert "--on-newer-output=keep" in refused.value.next
    assert (place / "part-0-0").read_bytes() == b"of a successor\n"
    check(savepoint, storage, job="job", operators=operators, sinks=sinks, newer="keep")
    (place / "part-0-0").unlink()
    check(savepoint, storage, job="job", operators=operators, sinks=sinks, newer=newer)
