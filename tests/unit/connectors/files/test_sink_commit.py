"""Commit, verify, abort and sweep: every crash between their steps, and files of other origin that must not be touched."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from poundlock.audit.write_totals import Written
from poundlock.checkpoint.decision import Decision, SinkDecision
from poundlock.checkpoint.participant import Occasion, Prepared
from poundlock.checkpoint.validation import holds_pending
from poundlock.connectors.files.file_values import FileCommittable, FileSinkState, OpenPart
from poundlock.connectors.files.manifest import ManifestEntry, finished_files
from poundlock.connectors.files.sink.commit_plan import MAX_SEGMENTS
from poundlock.connectors.files.sink.inspection import audit, inspect
from poundlock.connectors.files.sink.names import owner_tag
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import CommitUnknown, DefinitionError, TerminalError, TransientError
from poundlock.storage import LocalStorage
from poundlock.storage.base import OutcomeUnknown
from poundlock.storage.s3_client import StoreError
from support.sinks import JOB, FileSinkHarness, batch, lines

EACH = RollingPolicy(on_checkpoint=True)


def harness(path: Path, **options: Any) -> FileSinkHarness:
    return FileSinkHarness(FileSink(str(path), row="value", **options))


def decided(path: Path, segments: int, **options: Any) -> tuple[FileSinkHarness, dict[str, Any]]:
    """Return a sink with one decided, not committed file of so many segments."""
    h = harness(path, **options)
    for i in range(segments):
        h.write(lines(b"row %d" % i))
        found = h.decide(Occasion.END if i == segments - 1 else Occasion.CHECKPOINT)
    [committable] = found
    return h, committable


WHOLE = {1: b"row 0\n", 3: b"row 0\nrow 1\nrow 2\n"}


class Died(BaseException):
    """The process died here."""


def dying_storage(monkeypatch: pytest.MonkeyPatch, *, before: str | None = None, after: str | None = None) -> None:
    name = before or after
    assert name is not None
    real = getattr(LocalStorage, name)

    def die(*args: Any) -> Any:
        if after:
            real(*args)
        raise Died

    monkeypatch.setattr(LocalStorage, name, die)


@pytest.mark.parametrize("said", [FileNotFoundError, FileExistsError])
def test_a_name_in_between_that_fails_is_no_loss(
    tmp_path: Path, said: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated request may meet its own work, and a driver that takes over sweeps what is being joined."""
    h, committable = decided(tmp_path, 3)

    def fail(*args: Any) -> None:
        raise said(2, "it was taken away")

    with monkeypatch.context() as m:
        m.setattr(LocalStorage, "extend", fail)
        with pytest.raises(CommitUnknown, match="taken away"):
            h.sink.commit(committable)
    h.sink.commit(committable)
    assert list(h.finished().values()) == [WHOLE[3]]


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize(
    "where", [{"before": "extend"}, {"after": "extend"}, {"before": "rename"}, {"after": "rename"}, {"after": "delete"}]
)
def test_commit_is_repeated_after_a_crash_anywhere(
    tmp_path: Path, segments: int, where: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    h, committable = decided(tmp_path, segments)
    with monkeypatch.context() as m:
        dying_storage(m, **where)
        try:
            h.sink.commit(committable)
        except Died:
            pass
        else:
            assert segments == 1  # one segment is renamed: no merge
    h.sink.sweep(h.state, remove=True)
    for _ in range(3):
        h.sink.commit(committable)
        assert h.finished() == {"part-0-0": WHOLE[segments]}
    h.sink.sweep(h.state, remove=True)
    assert h.hidden() == []


@pytest.mark.parametrize("segments", [1, 3])
def test_commit_after_a_rename_by_link_that_died_half_way(tmp_path: Path, segments: int) -> None:
    h, committable = decided(tmp_path, segments)
    if segments == 1:
        os.link(tmp_path / committable["segments"][0]["path"], tmp_path / "part-0-0")
    else:
        (tmp_path / "part-0-0").write_bytes(WHOLE[segments])
    h.sink.commit(committable)
    assert h.finished() == {"part-0-0": WHOLE[segments]}
    assert h.hidden() == []


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize(
    "foreign", [b"", b"row 0", b"ROW 0\n", b"ROW 0\nROW 1\nROW 2\n", b"row 0\nrow 1\nrow 2\nrow 3\n"]
)
def test_a_file_of_another_origin_is_never_touched(tmp_path: Path, segments: int, foreign: bytes) -> None:
    h, committable = decided(tmp_path, segments)
    (tmp_path / "part-0-0").write_bytes(foreign)
    with pytest.raises(TerminalError, match=r"another origin(.|\n)*move part-0-0 away"):
        h.sink.commit(committable)
    assert h.finished() == {"part-0-0": foreign}
    (tmp_path / "part-0-0").rename(tmp_path / "away")
    h.sink.commit(committable)
    assert h.finished() == {"part-0-0": WHOLE[segments], "away": foreign}


@pytest.mark.parametrize("segments", [1, 3])
def test_a_folder_under_the_name_is_waited_for_and_told(tmp_path: Path, segments: int) -> None:
    h, committable = decided(tmp_path, segments)
    (tmp_path / "part-0-0").mkdir()
    with pytest.raises(CommitUnknown, match=r"part-0-0 visible failed: .*a folder or a link has that name"):
        h.sink.commit(committable)
    (tmp_path / "part-0-0").rmdir()
    h.sink.commit(committable)
    assert h.finished() == {"part-0-0": WHOLE[segments]}


@pytest.mark.parametrize("grown", [b"row 0\n", b"row 0\nrow", b"row 0\n\0\0\0\0\0\0\0\0", b"row 0\nrow 1\nrow 2\n"])
@pytest.mark.parametrize("link", [False, True])
def test_a_driver_died_while_the_first_segment_took_the_others_in(tmp_path: Path, grown: bytes, link: bool) -> None:
    """What it left behind the first one's own bytes is written over; a second name of the file, which a savepoint has, keeps its bytes."""
    h, committable = decided(tmp_path / "out", 3)
    first = tmp_path / "out" / committable["segments"][0]["path"]
    first.write_bytes(grown)
    assert [each.problem for each in h.sink.inspect(committable)] == ["pending"]
    if link:
        os.link(first, tmp_path / "saved")
    h.sink.commit(committable)
    assert h.finished() == {"part-0-0": WHOLE[3]}
    assert h.hidden() == []
    if link:
        assert (tmp_path / "saved").read_bytes() == grown


@pytest.mark.parametrize("wrong", [b"row 0", b"row 0\nrow 1\nrow 2\nrow 3\n"])
def test_a_first_segment_of_a_length_that_no_driver_leaves_is_told(tmp_path: Path, wrong: bytes) -> None:
    h, committable = decided(tmp_path, 3)
    (tmp_path / committable["segments"][0]["path"]).write_bytes(wrong)
    assert [each.problem for each in h.sink.inspect(committable)] == ["size"]
    with pytest.raises(TerminalError, match=r"not what was written: .*bytes instead of(.|\n)*restore the hidden files"):
        h.sink.commit(committable)
    assert h.finished() == {}


class Watched(LocalStorage):
    """Lets a driver go on before each look at a file."""

    def __init__(self, root: str, driver: Iterator[object]) -> None:
        super().__init__(root)
        object.__setattr__(self, "driver", driver)

    def stat(self, path: str) -> Any:
        next(self.driver, None)  # type: ignore[attr-defined]
        return super().stat(path)


@pytest.mark.parametrize("pause", range(12))
def test_what_a_driver_makes_visible_meanwhile_is_not_called_missing(tmp_path: Path, pause: int) -> None:
    """It goes on by a step at each look, from some look on."""
    h, committable = decided(tmp_path, 3)
    segments = [tmp_path / segment["path"] for segment in committable["segments"]]

    def driver() -> Iterator[None]:
        for _ in range(pause):
            yield
        yield segments[0].write_bytes(WHOLE[3][:9]) and None
        yield segments[0].write_bytes(WHOLE[3]) and None
        yield segments[0].rename(tmp_path / "part-0-0") and None
        for segment in segments[1:]:
            yield segment.unlink()

    file = FileCommittable.of(committable)
    watched = Watched(str(tmp_path), driver())
    assert {each.problem for each in inspect(watched, file, h.sink._merger)} <= {"pending"}
    watched = Watched(str(tmp_path), watched.driver)  # type: ignore[attr-defined]
    assert {each.what[:33] for each in audit(watched, file)} <= {"it is decided and not visible yet"}


@pytest.mark.parametrize("format", ["parquet", "avro"])
def test_a_segment_of_records_that_is_longer_than_written_is_told(tmp_path: Path, format: str) -> None:
    """Those are merged into another file, and none of them ever grows."""
    sink = FileSink(str(tmp_path), format=format, compaction=FileCompaction(every_checkpoints=2))  # type: ignore[arg-type]
    h = FileSinkHarness(sink)
    for i in (1, 2):
        h.write(batch(n=[i]))
        found = h.decide()
    [committable] = found
    assert [each.problem for each in h.sink.inspect(committable)] == ["pending"]
    with (tmp_path / committable["segments"][0]["path"]).open("ab") as first:
        first.write(b"x")
    assert [each.problem for each in h.sink.inspect(committable)] == ["size"]


def test_a_rename_by_link_died_half_way_behind_the_first_segments_growth(tmp_path: Path) -> None:
    h, committable = decided(tmp_path, 3)
    first = tmp_path / committable["segments"][0]["path"]
    first.write_bytes(WHOLE[3])
    os.link(first, tmp_path / "part-0-0")
    h.sink.commit(committable)
    assert h.finished() == {"part-0-0": WHOLE[3]}
    assert h.hidden() == []


def test_neither_file_nor_segments(tmp_path: Path) -> None:
    h, committable = decided(tmp_path, 3)
    (tmp_path / committable["segments"][1]["path"]).unlink()
    with pytest.raises(TerminalError, match="part-0-0 was decided"):
        h.sink.commit(committable)
    assert h.finished() == {}
    assert len(h.hidden()) == 2  # what is left is kept for a person


def test_a_failing_file_system_leaves_the_outcome_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h, committable = decided(tmp_path, 3)
    with monkeypatch.context() as m:
        m.setattr(LocalStorage, "extend", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(CommitUnknown, match=r"disk full while making .*part-0-0 visible"):
            h.sink.commit(committable)
    h.sink.commit(committable)
    assert h.finished() == {"part-0-0": WHOLE[3]}


def test_verify_sees_what_is_gone_or_changed(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(lines(b"a"))
    [prepared] = h.prepare()
    h.sink.verify([prepared])
    path = tmp_path / prepared.payload["path"]
    path.write_bytes(b"a\nb\n")
    with pytest.raises(TransientError, match="4 bytes instead of 2"):
        h.sink.verify([prepared])
    h.sink.abort(prepared)
    h.sink.abort(prepared)
    assert h.paths() == []
    with pytest.raises(TransientError, match="is gone"):
        h.sink.verify([prepared])


def test_sweep_takes_this_jobs_orphans_only(tmp_path: Path) -> None:
    h = harness(tmp_path, bucket=lambda row: "b/" + row.decode()[:1])
    h.write(lines(b"kept"))
    h.end_checkpoint()
    kept = h.hidden()
    h.write(lines(b"lost", b"gone"))
    h.crash()
    tag = owner_tag(JOB, "out")
    strangers = [
        "b/.part-0-1.inprogress.deadbeef-0-0",  # another job's
        f"b/.part-0-1.inprogress.{owner_tag(JOB, 'other')}-0-0",  # another sink's of this job
        ".hidden",
        f"b/visible.inprogress.{tag}-0-0",
        "part-0-77",
    ]
    ours = [f"b/.part-0-3.merging.{tag}-0", f"b/.tmp-0123abcd-.part-0-3.merging.{tag}-0"]
    for path in (*strangers, *ours):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x")

    orphans = h.sink.sweep(h.state, remove=False)
    found = {os.path.relpath(orphan.path, tmp_path) for orphan in orphans}
    assert found == set(h.hidden()) - set(kept) - set(strangers)
    assert found >= set(ours)
    assert len(found) == 4
    assert sorted(o.bytes for o in orphans) == [0, 0, 1, 1]  # small rows were still in memory
    assert h.sink.sweep(h.state, remove=True) == orphans
    assert set(h.paths()) == {*kept, *strangers}


def test_sweep_before_the_commit_spares_what_was_decided(tmp_path: Path) -> None:
    h, committable = decided(tmp_path, 3)
    assert h.sink.sweep(h.state, remove=True) == []
    h.sink.commit(committable)
    assert h.finished() == {"part-0-0": WHOLE[3]}


def test_orphans_before_the_first_decision_need_a_bound_sink(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(lines(b"lost"))
    h.crash()
    assert h.sink.sweep({}, remove=True) == []
    bound = h.sink.bind(job_id=JOB, sink="out")
    assert len(bound.sweep({}, remove=True)) == 1
    assert h.paths() == []


def test_preflight(tmp_path: Path) -> None:
    FileSink(str(tmp_path / "new" / "folder")).preflight()
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DefinitionError, match=r"cannot write to .*file/x(.|\n)*Next: give the sink a folder"):
        FileSink(str(tmp_path / "file" / "x")).preflight()


def test_preflight_on_a_store_that_is_busy_is_worth_another_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*args: Any) -> bool:
        raise OutcomeUnknown(StoreError(11, "the store answered SlowDown", "s3://bucket/x"))

    monkeypatch.setattr(LocalStorage, "create_exclusive", busy)
    with pytest.raises(TransientError, match="the store answered SlowDown while making a file in"):
        FileSink(str(tmp_path)).preflight()


def test_another_path_is_refused_while_data_waits_in_the_old_one(tmp_path: Path) -> None:
    h = harness(tmp_path / "a")
    h.write(lines(b"x"))
    h.end_checkpoint()
    moved = FileSink(str(tmp_path / "b"), row="value")
    with pytest.raises(TerminalError, match="unfinished files below"):
        moved.stage(h.state, [], Occasion.CHECKPOINT, 0)
    last = h.decide(Occasion.END)
    moved.stage(h.state, [], Occasion.CHECKPOINT, 0)
    moved.commit(last[0])  # what was decided is made visible where it is
    assert h.finished() == {"part-0-0": b"x\n"}


def test_another_format_goes_into_another_part(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(lines(b"x"))
    h.end_checkpoint()
    h.sink = FileSink(str(tmp_path), row="value", compression="gzip")
    h.write(lines(b"y"))
    h.end_checkpoint(Occasion.END)
    assert set(h.finished()) == {"part-0-0", "part-0-1.gz"}


def test_a_part_of_very_many_segments_is_finished(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), row="value", rolling=RollingPolicy(every=None, size=None, inactivity=None))
    common = {"v": 1, "tag": "t", "at_ms": 0, "floor": 0, "bucket": "", "kind": "raw", "new_part": False, "k": 0}
    piece = {**common, "rows": 1, "bytes": 1, "min_ms": None, "max_ms": None, "crc32": 0, "checkpoint": 0}
    state: dict[str, Any] = {}
    for i in range(MAX_SEGMENTS):
        staged = sink.stage(state, [Prepared("out", 0, {**piece, "path": f".{i}"})], Occasion.CHECKPOINT, 0)
        state = dict(staged.state)
        assert len(staged.committables) == (i == MAX_SEGMENTS - 1)
    assert staged.committables[0]["rows"] == MAX_SEGMENTS


@pytest.mark.parametrize("compaction", [None, FileCompaction(every_checkpoints=9)])
def test_the_state_says_whether_anything_waits(tmp_path: Path, compaction: FileCompaction | None) -> None:
    h = harness(tmp_path, compaction=compaction, rolling=EACH if compaction else RollingPolicy())
    h.write(lines(b"a"))
    h.end_checkpoint()
    assert holds_pending(h.state)
    h.end_checkpoint(Occasion.END)
    assert h.state["counters"] == {"0": 1}
    assert not holds_pending(h.state)


@pytest.mark.parametrize("compaction", [None, FileCompaction(every_checkpoints=9)])
def test_the_rows_of_a_checkpoint_are_found_wherever_its_segments_are(
    tmp_path: Path, compaction: FileCompaction | None
) -> None:
    """In a part that goes on, in one that waits to be merged, and in one that becomes visible."""
    rolling = RollingPolicy(size=8)
    h = harness(tmp_path, compaction=compaction, rolling=rolling, bucket=lambda value: value.decode()[:1])
    h.write(lines(b"a1", b"b1", b"b2"))
    h.end_checkpoint()
    h.write(lines(b"a2", b"a3", b"a4", b"a5", b"c1"))
    payloads = h.prepare()
    staged = h.sink.stage(h.state, payloads, Occasion.CHECKPOINT, 5)
    n = h.checkpoint
    assert h.sink.places(staged.committables, staged.state, n) == {"a": 4, "c": 1}
    assert h.sink.places(staged.committables, staged.state, n - 1) == {"a": 1, "b": 2}
    digests = {item.payload["digest"] for item in payloads}
    assert len(digests) == len(payloads), "bucket, length and checksum tell segments apart"


def test_what_is_measured_is_what_would_be_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "measured").mkdir()
    sink = FileSink(str(tmp_path / "real"), row="value", rolling=RollingPolicy(size=8), compression="gzip")
    real, measured = FileSinkHarness(sink), FileSinkHarness(sink.measuring(str(tmp_path / "measured")))
    for h in (real, measured):
        h.write(lines(b"a", b"bb", b"ccc", b"dddd"))
    one, two = (Written.of([item.payload for item in h.prepare()]) for h in (real, measured))
    assert one == two
    assert one.digest is not None
    real.write(lines(b"a", b"bb", b"ccd", b"dddd"))
    assert Written.of([item.payload for item in real.prepare()]).digest != one.digest


def test_avro_has_no_digest_for_its_bytes_are_never_the_same(tmp_path: Path) -> None:
    h = FileSinkHarness(FileSink(str(tmp_path), format="avro"))
    h.write(batch(n=[1, 2]))
    assert Written.of([item.payload for item in h.prepare()]).digest is None


def test_stage_is_pure(tmp_path: Path) -> None:
    h = harness(tmp_path, rolling=RollingPolicy(size=3))
    h.write(lines(b"a", b"b", b"c"))
    h.end_checkpoint()
    h.write(lines(b"d", b"e", b"f"))
    prepared = h.prepare()
    before = json.dumps(h.state)
    one = h.sink.stage(h.state, prepared, Occasion.CHECKPOINT, 5)
    two = h.sink.stage(h.state, list(reversed(prepared)), Occasion.CHECKPOINT, 5)
    assert one == two
    assert json.dumps(h.state) == before


def test_directive_stays_small(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), row="value")
    part = OpenPart(
        bucket="", subtask=0, name="part-0-0", created_ms=0, last_write_ms=0, bytes=0, rows=1, min_ms=None, max_ms=None,
        kind="raw", segments=[],
    )  # fmt: skip
    parts = [replace(part, bucket=f"bucket={'x' * 50}{i}", subtask=i % 9, bytes=i) for i in range(3000)]
    state = replace(FileSinkState.of({}), counters={str(i): 1 for i in range(9000)}, parts=parts)
    directive = sink.directive(state.to_json())
    assert len(json.dumps(directive)) < 32 * 1024
    assert directive["pending"][0] == [parts[-1].bucket, parts[-1].subtask, 2999]
    assert sink.directive({}) == {"v": 1}


def test_compaction_merges_over_subtasks_before_anything_is_visible(tmp_path: Path) -> None:
    h = harness(tmp_path, rolling=EACH, compaction=FileCompaction(min_size=12, max_wait="1 min"))
    h.write(lines(b"a0"), 0)
    h.write(lines(b"b0"), 1)
    h.end_checkpoint()
    assert h.finished() == {}
    h.write(lines(b"a1"), 0)
    h.write(lines(b"b1"), 1)
    h.end_checkpoint()
    assert h.finished() == {"part-0-0": b"a0\nb0\na1\nb1\n"}
    h.write(lines(b"a2"), 0)
    h.end_checkpoint()
    due = h.sink.next_roll_ms(h.state)
    assert due == 60_000
    h.clock.set(due)
    h.end_checkpoint(Occasion.ROLL)
    assert h.finished()["part-0-2"] == b"a2\n"
    assert h.hidden() == []


def test_compaction_switched_off_lets_go_what_waits(tmp_path: Path) -> None:
    h = harness(tmp_path, rolling=EACH, compaction=FileCompaction(every_checkpoints=100))
    h.write(lines(b"a"))
    h.end_checkpoint()
    h.sink = FileSink(str(tmp_path), row="value", rolling=EACH)
    h.end_checkpoint(Occasion.ROLL)
    assert h.finished() == {"part-0-0": b"a\n"}


@pytest.mark.parametrize("format", ["parquet", "avro"])
def test_compaction_by_record_is_known_again_after_a_crash(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FileSink(str(tmp_path), format=format, compaction=FileCompaction(every_checkpoints=2))  # type: ignore[arg-type]
    h = FileSinkHarness(sink)
    for i in (1, 2):
        h.write(batch(n=[i, i + 10]))
        found = h.decide()
    [committable] = found
    with monkeypatch.context() as m:
        dying_storage(m, after="rename")
        with pytest.raises(Died):
            sink.commit(committable)
    sink.commit(committable)
    [name] = h.finished()
    assert h.hidden() == []
    if format == "parquet":
        assert pq.read_table(tmp_path / name)["n"].to_pylist() == [1, 11, 2, 12]
    other = {**committable, "segments": [{"path": path, "bytes": 1, "rows": 1} for path in (".a", ".b")]}
    with pytest.raises(TerminalError, match="another origin"):
        sink.commit(other)
    (tmp_path / name).write_bytes(b"of no format")
    with pytest.raises(TerminalError, match="another origin"):
        sink.commit(committable)


def test_manifest_folds_decisions(tmp_path: Path) -> None:
    h = harness(tmp_path, rolling=EACH)
    decisions = []
    for i in range(2):
        h.write(lines(b"x", b"y"))
        found = h.decide()
        sinks = {"out": SinkDecision(found, h.state), "other": SinkDecision([{"v": 1, "id": "transaction"}], {})}
        decisions.append(Decision(i, "checkpoint", i + 10, JOB, 1, 0, {}, sinks))
    entries = list(finished_files(decisions))
    assert entries[1] == ManifestEntry("out", str(tmp_path), "part-0-1", "", 2, 4, None, None, 11, 1)
    assert [e.path for e in finished_files(decisions, sink="out")] == ["part-0-0", "part-0-1"]
    assert list(finished_files(decisions, sink="other")) == []
