"""FileSink in raw mode, in one process: what readers see and when, and what is rejected with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.files.buckets.assigners import EventTimeBucketAssigner
from poundlock.connectors.files.sink.rolling import RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import DefinitionError, TransientError
from poundlock.formats.chunk import Batch, KafkaOrigin, Lines, Records
from poundlock.storage import LocalStorage
from poundlock.storage.hdfs import HdfsStorage
from support.sinks import FileSinkHarness, batch, lines

EVENTS = [
    b'{"timestamp":1545184226.432,"event":"page_view","uuid":"ac0e50bf-944c-4e2f-bbf5-a34b22718e0c"}',
    b'{"timestamp":1545184602.640,"event":"adv_click","uuid":"9b220808-2193-44d1-a0e9-09b9743dec55"}',
    b'{"timestamp":1545184608.969,"event":"thumbs_up","uuid":"b44c3137-4c91-4f36-96fb-80f56561c914"}',
]


def harness(path: Path, *, now_ms: int = 0, **options: Any) -> FileSinkHarness:
    options = {"bucket": EventTimeBucketAssigner("timestamp", "'dt='yyyyMMdd", zone="Asia/Shanghai"), **options}
    return FileSinkHarness(FileSink(str(path), row="value", **options), now_ms=now_ms)


def plain(path: Path, **options: Any) -> FileSinkHarness:
    return FileSinkHarness(FileSink(str(path), row="value", **options))


def content(h: FileSinkHarness) -> list[bytes]:
    return sorted(row for file in h.finished().values() for row in file.split(b"\n")[:-1])


def test_reference_layout(tmp_path: Path) -> None:
    h = harness(tmp_path)
    assert h.write(lines(*EVENTS)) == 3
    assert h.end_checkpoint() == []
    assert h.finished() == {}
    [committable] = h.end_checkpoint(Occasion.END)
    assert h.finished() == {"dt=20181219/part-0-0": b"".join(e + b"\n" for e in EVENTS)}
    assert h.hidden() == []
    assert (committable["min_ms"], committable["max_ms"]) == (1545184226432, 1545184608969)
    assert committable["rows"] == 3


def test_an_idle_stream_still_rolls(tmp_path: Path) -> None:
    h = harness(tmp_path, now_ms=1_000_000)
    h.write(lines(*EVENTS))
    h.end_checkpoint()
    due = h.sink.next_roll_ms(h.state)
    assert due == 1_060_000
    h.clock.set(due - 1)
    assert h.end_checkpoint(Occasion.ROLL) == []
    h.clock.set(due)
    assert len(h.end_checkpoint(Occasion.ROLL)) == 1
    assert h.sink.next_roll_ms(h.state) is None
    assert content(h) == sorted(EVENTS)


def test_a_part_grows_over_checkpoints_and_keeps_order(tmp_path: Path) -> None:
    h = plain(tmp_path)
    for i in range(5):
        h.write(lines(b"row %d" % i))
        h.end_checkpoint()
    assert len(h.hidden()) == 5
    h.end_checkpoint(Occasion.END)
    assert h.finished() == {"part-0-0": b"row 0\nrow 1\nrow 2\nrow 3\nrow 4\n"}
    assert h.hidden() == []


def test_counters_go_on_and_no_name_is_given_twice(tmp_path: Path) -> None:
    h = plain(tmp_path, rolling=RollingPolicy(on_checkpoint=True), prefix="p", suffix=".txt")
    for i in range(3):
        for subtask in (0, 2):
            h.write(lines(b"%d" % i), subtask)
        h.end_checkpoint()
    assert sorted(h.finished()) == ["p-0-0.txt", "p-0-1.txt", "p-0-2.txt", "p-2-0.txt", "p-2-1.txt", "p-2-2.txt"]


def test_counters_begin_after_files_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "part-0-7").write_bytes(b"another life\n")
    (tmp_path / "part-1-9").write_bytes(b"another subtask\n")
    h = plain(tmp_path, rolling=RollingPolicy(on_checkpoint=True))
    for _ in range(2):
        h.write(lines(b"x"))
        h.end_checkpoint()
    assert set(h.finished()) == {"old/part-0-7", "part-1-9", "part-0-8", "part-0-9"}


@pytest.mark.parametrize("cut", [1, 2, 3, 7])
def test_size_is_checked_before_each_row_however_rows_are_blocked(tmp_path: Path, cut: int) -> None:
    rows = [b"r%02d" % i for i in range(20)]  # 4 bytes each with the line end
    h = plain(tmp_path, rolling=RollingPolicy(size=10, every=None, inactivity=None))
    for first in range(0, len(rows), cut):
        h.write(lines(*rows[first : first + cut]))
    h.end_checkpoint(Occasion.END)
    sizes = [len(h.finished()[f"part-0-{i}"]) for i in range(len(h.finished()))]
    assert sizes == [12] * 6 + [8]  # 12 is the first size over 10
    assert content(h) == rows


def test_size_counts_what_waits_from_earlier_checkpoints(tmp_path: Path) -> None:
    h = plain(tmp_path, rolling=RollingPolicy(size=10, every=None, inactivity=None))
    h.write(lines(b"r01", b"r02"))
    assert h.end_checkpoint() == []
    h.write(lines(b"r03", b"r04"))
    h.end_checkpoint()
    assert h.finished() == {"part-0-0": b"r01\nr02\nr03\n"}


def test_a_part_of_a_task_that_is_gone_is_finished_by_time(tmp_path: Path) -> None:
    h = plain(tmp_path, rolling=RollingPolicy(every=None, inactivity="1 s"))
    for subtask in (0, 1):
        h.write(lines(b"r%d" % subtask), subtask)
    assert h.end_checkpoint() == []
    h.clock.set(h.clock.now_ms() + 900)
    h.write(lines(b"r2"), 0)  # the job has one task now
    assert h.end_checkpoint() == []
    h.clock.set(h.clock.now_ms() + 200)
    assert h.sink.next_roll_ms(h.state) < h.clock.now_ms()
    h.end_checkpoint(Occasion.ROLL)
    assert h.finished() == {"part-1-0": b"r1\n"}


def test_more_buckets_than_open_files(tmp_path: Path) -> None:
    h = plain(tmp_path, bucket=lambda row: row[:2].decode(), max_open_files=3)
    rows = [b"%02d %d" % (i % 10, i) for i in range(200)]
    for row in rows:
        h.write(lines(row))
    h.end_checkpoint(Occasion.END)
    assert content(h) == sorted(rows)
    assert len(h.finished()) == 10  # segments are many, parts are one a bucket
    assert h.finished()["03/part-0-3"].startswith(b"03 3\n03 13\n03 23\n")


def test_nothing_written_leaves_nothing(tmp_path: Path) -> None:
    h = harness(tmp_path)
    assert h.write(lines(b"not json")) == 0
    assert h.end_checkpoint(Occasion.END) == []
    assert h.paths() == []
    assert [(r.reason, r.value, r.where) for r in h.rejects] == [("not JSON", b"not json", {"file": "in", "offset": 8})]


BAD = [
    (b"", "empty line"),
    (b"   ", "empty line"),
    (b"[1]", "not a JSON object"),
    (b"7", "not a JSON object"),
    (b'{"timestamp":1545184226.432', "not JSON"),
    (b'{"timestamp":1545184226.432}}', "not JSON"),
    (b'{"timestamp":1545184226.432}{"timestamp":1545184226.432}', "not JSON"),
    (b'{"timestamp":NaN}', "not JSON"),
    (b'\xef\xbb\xbf{"timestamp":1545184226.432}', "not JSON"),
    (b'{"timestamp":1545184226.432,"x":"\xff"}', "not UTF-8"),
    (b'{"timestamp":true}', "timestamp is not a number"),
    (b'{"timestamp":[1545184226.432]}', "timestamp is not a number"),
    (b'{"timestamp":{"s":1}}', "timestamp is not a number"),
    (b'{"timestamp":"1545184226"}', "timestamp is text, not a number"),
    (b'{"timestamp":null}', "timestamp is null"),
    (b'{"Timestamp":1545184226}', "no timestamp"),
    (b'{"timestamp":-1545184226}', "timestamp is out of range"),
    (b'{"timestamp":0}', "timestamp is out of range"),
    (b'{"timestamp":1545184226432}', "timestamp is out of range"),
    (b'{"timestamp":1e400}', "timestamp is out of range"),
    (b'{"timestamp":1' + b"0" * 400 + b"}", "timestamp is out of range"),
    (b'{"timestamp":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON"),
]


@pytest.mark.parametrize("form", ["lines", "binary", "text", "records"])
@pytest.mark.parametrize("padding", [0, 300])
def test_bad_rows_among_good_ones(tmp_path: Path, form: str, padding: int) -> None:
    rows: list[bytes] = []
    for value, _ in BAD:
        rows += [*EVENTS * (1 + padding // 30), value]
    expected = [(value, reason) for value, reason in BAD]
    if form == "text":
        rows = [row for row in rows if b"\xff" not in row]
        expected = [(v, r) for v, r in expected if r != "not UTF-8"]
    chunk = {
        "lines": lambda: lines(*rows),
        "binary": lambda: batch(value=pa.array(rows, pa.binary())),
        "text": lambda: batch(value=[row.decode() for row in rows]),
        "records": lambda: Records([{"value": row} for row in rows]),
    }[form]()
    h = harness(tmp_path)
    assert h.write(chunk) == len(rows) - len(expected)
    h.end_checkpoint(Occasion.END)
    assert [(r.value, r.reason) for r in h.rejects] == expected
    assert content(h) == sorted(row for row in rows if row in EVENTS)


def test_carriage_returns_are_kept_and_do_no_harm(tmp_path: Path) -> None:
    rows = [event + b"\r" for event in EVENTS]
    h = harness(tmp_path)
    assert h.write(lines(*rows, b"\r")) == 3
    h.end_checkpoint(Occasion.END)
    assert content(h) == sorted(rows)
    assert [r.reason for r in h.rejects] == ["empty line"]


def test_duplicate_keys_last_wins_and_bytes_stay(tmp_path: Path) -> None:
    row = b'{"timestamp":1, "timestamp" : 1545184226.432}'
    h = harness(tmp_path)
    h.write(lines(row))
    h.end_checkpoint(Occasion.END)
    assert h.finished() == {"dt=20181219/part-0-0": row + b"\n"}


def test_line_breaks_in_raw_json_become_spaces_and_nothing_else_does(tmp_path: Path) -> None:
    spread = b'{\r\n "timestamp":\n1545184226.432}\n'
    inside = b'{"timestamp":1545184226.432,"x":"a\nb"}'
    two = b'{"timestamp":1545184226.432}\n{"timestamp":1545184226.432}'
    early = b'{\n"timestamp":3}'
    origin = KafkaOrigin("t", pa.array([0] * 6, pa.int32()).to_numpy(), pa.array(range(40, 46), pa.int64()).to_numpy())
    values = pa.array([EVENTS[0], spread, inside, None, two, early], pa.binary())
    h = harness(tmp_path)
    assert h.write(Batch(pa.record_batch({"value": values}), origin)) == 2
    h.end_checkpoint(Occasion.END)
    assert content(h) == sorted([EVENTS[0], b'{  "timestamp": 1545184226.432} '])
    assert sorted((r.where["offset"], r.reason, r.value) for r in h.rejects) == [
        (42, "not JSON", inside),
        (43, "value is null", b""),
        (44, "not JSON", two),
        (45, "timestamp is out of range", early),
    ]


def test_line_breaks_in_other_raw_values_are_rejected(tmp_path: Path) -> None:
    h = plain(tmp_path)
    assert h.write(batch(value=[b"a\nb", b"c"])) == 1
    h.end_checkpoint(Occasion.END)
    assert h.finished() == {"part-0-0": b"c\n"}
    assert [(r.reason, r.value) for r in h.rejects] == [("value has a line break", b"a\nb")]


def test_slices_and_wide_types_of_arrow(tmp_path: Path) -> None:
    values = pa.array([b"%d" % i for i in range(10)], pa.large_binary())
    h = plain(tmp_path)
    h.write(Batch(pa.record_batch({"value": values}).slice(3, 4)))
    h.write(Batch(pa.record_batch({"value": values.cast(pa.binary()).dictionary_encode()}).slice(8)))
    h.end_checkpoint(Occasion.END)
    assert h.finished() == {"part-0-0": b"3\n4\n5\n6\n8\n9\n"}


def test_columns_that_cannot_be_raw_rows(tmp_path: Path) -> None:
    h = plain(tmp_path)
    with pytest.raises(DefinitionError, match="no column 'value'"):
        h.write(batch(other=[b"x"]))
    with pytest.raises(DefinitionError, match="int64, not bytes"):
        h.write(batch(value=[1]))
    with pytest.raises(DefinitionError, match="holds int"):
        h.write(Records([{"value": 3}]))


@pytest.mark.parametrize("bucket", ["../x", "/x", "a//b", ".hidden", "_hidden", "a/..", "a\nb", "a\\b", "x" * 201])
def test_buckets_that_readers_could_not_see(tmp_path: Path, bucket: str) -> None:
    h = plain(tmp_path, bucket=lambda row: bucket if row == b"bad" else "good/_c=1")
    assert h.write(lines(b"a", b"bad", b"b")) == 2
    h.end_checkpoint(Occasion.END)
    assert h.finished() == {"good/_c=1/part-0-0": b"a\nb\n"}
    assert [r.value for r in h.rejects] == [b"bad"]
    assert "bucket" in h.rejects[0].reason


@pytest.mark.parametrize("options", [{"row": "value"}, {"format": "json"}, {"format": "parquet"}])
def test_buckets_that_a_file_system_has_no_names_for(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDFS takes no colon: the task would fail at this record each time it is tried again."""
    monkeypatch.setattr(LocalStorage, "refused_in_names", ":", raising=False)
    row = (lambda r: r.decode()) if "row" in options else (lambda r: r["value"].decode())
    h = FileSinkHarness(FileSink(str(tmp_path), bucket=row, **options))
    assert h.write(lines(b"at=10:00", b"at=1000", b"at=10:00", b"at=11:00")) == 1
    assert h.write(lines(b"at=10:00")) == 0
    assert h.write(lines(b"at=1000")) == 1
    h.end_checkpoint(Occasion.END)
    assert [path.split("/")[0] for path in h.finished()] == ["at=1000"]
    assert [reject.reason.split(",")[0] for reject in h.rejects] == [
        f"bucket '{bucket}' has a ':'" for bucket in ("at=10:00", "at=10:00", "at=11:00", "at=10:00")
    ]


def test_a_pattern_that_a_file_system_has_no_names_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStorage, "refused_in_names", ":", raising=False)
    by = EventTimeBucketAssigner("ts", "yyyy-MM-dd/HH:mm", zone="UTC")
    with pytest.raises(DefinitionError, match=r"no name in .* may have a ':'"):
        FileSink(str(tmp_path), row="value", bucket=by).preflight()
    FileSink(str(tmp_path), row="value", bucket=EventTimeBucketAssigner("ts", "HHmm", zone="UTC")).preflight()
    assert HdfsStorage("hdfs://host:1/a").refused_in_names == ":"


def test_a_bucket_function_that_fails_rejects_its_record_only(tmp_path: Path) -> None:
    h = plain(tmp_path, bucket=lambda row: {b"a": "x", b"b": 7}[row])
    assert h.write(lines(b"a", b"b", b"c")) == 1
    assert [r.reason for r in h.rejects] == ["bucket is int, not text", "bucket function: KeyError: b'c'"]


def test_a_full_disk_is_transient_and_leaves_the_rest_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h = plain(tmp_path)
    h.write(lines(b"a"))
    h.end_checkpoint()
    monkeypatch.setenv("POUNDLOCK_FAILPOINTS", "sink.writing:enospc")
    monkeypatch.setattr("poundlock.failpoints._seen", {})
    with pytest.raises(TransientError, match="disk full while writing to"):
        h.write(lines(b"b"))
    h.writer().abandon()
    h.crash()
    h.end_checkpoint(Occasion.END)
    assert h.finished() == {"part-0-0": b"a\n"}
    assert h.hidden() == []


def test_abandon_removes_finished_and_open_segments(tmp_path: Path) -> None:
    h = plain(tmp_path, rolling=RollingPolicy(size=1), bucket=lambda row: row[:1].decode())
    h.write(lines(b"aa", b"bb", b"aa", b"aa"))
    assert len(h.paths()) == 4
    h.writer().abandon()
    assert h.paths() == []


@pytest.mark.parametrize("options", [{"row": "value"}, {"row": "value", "compression": "gzip"}, {"format": "parquet"}])
def test_abandon_removes_a_segment_that_could_not_be_finished(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full is to have its space back before the task is tried again."""
    h = FileSinkHarness(FileSink(str(tmp_path), **options))
    h.write(lines(b"x"))

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(LocalStorage, "sync", full)
        with pytest.raises(TransientError, match="finishing a segment"):
            h.writer().prepare()
    assert len(h.paths()) == 1
    h.writer().abandon()
    assert h.paths() == []


def test_empty_lines_are_rows_of_a_plain_sink(tmp_path: Path) -> None:
    h = plain(tmp_path)
    assert h.write(Lines(memoryview(b"\n\na\n"), lines(b"", b"", b"a").ends)) == 3
    h.end_checkpoint(Occasion.END)
    assert h.finished() == {"part-0-0": b"\n\na\n"}


def test_as_many_values_as_lines_is_not_one_value_a_line(tmp_path: Path) -> None:
    """A blank line and a line of two values: taken for a sequence of values, the times between them would slip by a row."""
    later = b'{"timestamp":1545264226.432}'
    rows = [*EVENTS * 10, b"", *[later] * 10, EVENTS[0] + later, *EVENTS * 10]
    h = harness(tmp_path)
    assert h.write(lines(*rows)) == 70
    h.end_checkpoint(Occasion.END)
    assert [(r.value, r.reason) for r in h.rejects] == [(b"", "empty line"), (EVENTS[0] + later, "not JSON")]
    assert h.finished()["dt=20181220/part-0-1"] == (later + b"\n") * 10


def test_a_value_over_two_lines_is_two_bad_lines(tmp_path: Path) -> None:
    rows = [*EVENTS * 10, b'{"timestamp":1545184226.432', b"}", *EVENTS * 10]
    h = harness(tmp_path)
    assert h.write(lines(*rows)) == 60
    assert [r.reason for r in h.rejects] == ["not JSON", "not JSON"]
