"""Partitions of a file sink: when they are committed, with which files, and what is done then."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.capabilities import SinkTime
from poundlock.checkpoint.committer import Retry, commit_all
from poundlock.checkpoint.decision import Decision, SinkDecision
from poundlock.checkpoint.outcome import StandardLog
from poundlock.checkpoint.participant import Committed, Occasion
from poundlock.connectors.files.partitions.commit import CommittedPartition, PartitionCommit
from poundlock.connectors.files.partitions.times import PartitionTimePattern
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import CommitUnknown, DefinitionError, TerminalError
from poundlock.storage import LocalStorage
from support.sinks import JOB, FileSinkHarness, lines

HOUR = 3_600_000
MIDNIGHT = round(datetime.fromisoformat("2026-01-05T00:00:00+00:00").timestamp() * 1000)
BY_TIME = PartitionCommit(trigger="partition-time", delay="1 h", time=PartitionTimePattern("$dt $hr:00:00"))
ENDED = SinkTime((1 << 63) - 1, ended=True)


def bucket_of(line: bytes) -> str:
    return f"dt=2026-01-05/hr={line.split()[0].decode()}"


def at(hours: float, ms: int = 0) -> SinkTime:
    """Return a watermark of that day."""
    return SinkTime(MIDNIGHT + round(hours * HOUR) + ms)


def harness(folder: Path, commit: PartitionCommit | None = BY_TIME, **given: Any) -> FileSinkHarness:
    sink = FileSink(str(folder), row="value", bucket=bucket_of, partition_commit=commit, **given)
    return FileSinkHarness(sink.bind(job_id=JOB, sink="out"))


def marked(h: FileSinkHarness) -> list[str]:
    """Return the hours whose partitions are committed."""
    return [path.split("/")[1] for path in h.paths() if path.endswith("/_SUCCESS")]


def rows(h: FileSinkHarness, hour: str) -> list[bytes]:
    return sorted(
        line for path, content in h.finished().items() if f"hr={hour}/part" in path for line in content.splitlines()
    )


def test_a_partition_is_committed_once_the_watermark_is_past_its_time_and_the_delay(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(lines(b"10 a", b"11 b"))
    h.end_checkpoint(time=at(10.9))
    h.write(lines(b"10 c"))
    h.end_checkpoint(time=at(11))
    assert (marked(h), h.finished()) == ([], {})  # the watermark is not past 11:00, and part files are open
    h.write(lines(b"12 d"))
    h.end_checkpoint(time=at(11, ms=1))
    assert (marked(h), rows(h, "10"), rows(h, "11")) == (["hr=10"], [b"10 a", b"10 c"], [])
    assert h.sink.next_watermark(h.state) == MIDNIGHT + 12 * HOUR + 1
    h.end_checkpoint(time=at(13.5))  # without a row
    assert (marked(h), rows(h, "11"), rows(h, "12")) == (["hr=10", "hr=11", "hr=12"], [b"11 b"], [b"12 d"])
    assert h.sink.next_watermark(h.state) is None


def test_what_comes_late_commits_the_partition_once_more(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(lines(b"10 a"))
    h.end_checkpoint(time=at(20))
    success = tmp_path / "dt=2026-01-05/hr=10/_SUCCESS"
    os.utime(success, (1, 1))
    h.end_checkpoint(time=at(20))
    assert success.stat().st_mtime == 1
    h.write(lines(b"10 late"))
    (file, mark) = h.decide(time=at(20))
    assert (file["rows"], mark["bucket"], "mark" in file, "mark" in mark) == (1, "dt=2026-01-05/hr=10", False, True)
    h.commit([file, mark])
    assert (rows(h, "10"), success.stat().st_mtime > 1, success.read_bytes()) == ([b"10 a", b"10 late"], True, b"")


def test_a_partition_waits_on_through_a_clean_stop_and_a_start_with_fewer_tasks(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(lines(b"10 a"), subtask=0)
    h.write(lines(b"10 b"), subtask=5)
    h.end_checkpoint(time=at(10.5))
    h.end_checkpoint(Occasion.END)
    assert (marked(h), rows(h, "10"), h.state["pending"]) == ([], [b"10 a", b"10 b"], 0)
    h.write(lines(b"12 c"))
    h.end_checkpoint(time=at(11.5))
    assert marked(h) == ["hr=10"]


@pytest.mark.parametrize("trigger", ["partition-time", "process-time", "end"])
def test_the_end_of_the_input_commits_what_waits(trigger: Any, tmp_path: Path) -> None:
    h = harness(tmp_path, replace(BY_TIME, trigger=trigger))
    h.write(lines(b"10 a"))
    h.end_checkpoint(time=at(10.5))
    h.end_checkpoint(Occasion.END)
    assert marked(h) == []
    assert h.sink.next_watermark(h.state) is not None
    h.end_checkpoint(time=ENDED)
    assert marked(h) == ["hr=10"]


def test_by_the_clock_a_partition_is_committed_also_between_checkpoints(tmp_path: Path) -> None:
    h = harness(tmp_path, PartitionCommit(delay="1 min"), rolling=RollingPolicy(every=None, inactivity=None))
    h.clock.set(1_000_000)
    h.write(lines(b"10 a"))
    h.end_checkpoint(time=SinkTime())
    h.clock.set(1_030_000)
    h.write(lines(b"10 b"))
    h.end_checkpoint(time=SinkTime())
    due = h.sink.next_roll_ms(h.state)
    assert (marked(h), due) == ([], 1_060_001)
    h.clock.set(1_060_000)
    h.end_checkpoint(Occasion.ROLL)
    assert marked(h) == []  # the clock is not past it
    h.clock.set(1_060_001)
    h.end_checkpoint(Occasion.ROLL)
    assert (marked(h), rows(h, "10"), h.sink.next_roll_ms(h.state)) == (["hr=10"], [b"10 a", b"10 b"], None)


def test_without_a_delay_each_checkpoint_commits_what_it_wrote_to(tmp_path: Path) -> None:
    h = harness(tmp_path, PartitionCommit())
    h.write(lines(b"10 a"))
    h.end_checkpoint(time=SinkTime())
    h.write(lines(b"11 b"))
    assert len(h.end_checkpoint(time=SinkTime())) == 2
    assert (marked(h), rows(h, "11")) == (["hr=10", "hr=11"], [b"11 b"])


def test_what_waits_to_be_merged_goes_with_its_partition(tmp_path: Path) -> None:
    h = harness(
        tmp_path,
        compaction=FileCompaction(min_size="1 GB", max_wait=None),
        rolling=RollingPolicy(every=None, inactivity=None, on_checkpoint=True),
    )
    for line in (b"10 a", b"11 b", b"10 c"):
        h.write(lines(line))
        h.end_checkpoint(time=at(10.5))
    assert h.finished() == {}
    h.end_checkpoint(time=at(11.5))
    assert (marked(h), rows(h, "10"), rows(h, "11")) == (["hr=10"], [b"10 a", b"10 c"], [])
    assert len([path for path in h.finished() if "hr=10" in path]) == 2  # one merged file, and _SUCCESS


def test_an_overwritten_partition_is_committed_at_the_end(tmp_path: Path) -> None:
    old = tmp_path / "dt=2026-01-05/hr=10/part-0-0"
    old.parent.mkdir(parents=True)
    old.write_text("old\n")
    h = harness(tmp_path, PartitionCommit(trigger="end"), overwrite=[])
    h.write(lines(b"10 a"))
    h.end_checkpoint(time=ENDED)
    assert (marked(h), old.read_text()) == ([], "old\n")
    h.end_checkpoint(Occasion.END)
    assert (marked(h), rows(h, "10"), old.exists()) == (["hr=10"], [b"10 a"], False)


def test_stage_is_a_pure_function(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(lines(b"10 a", b"11 b"), subtask=0)
    h.write(lines(b"10 c"), subtask=1)
    prepared = h.prepare()
    one = h.sink.stage_at({}, prepared, Occasion.CHECKPOINT, 5, at(11.5))
    assert one == h.sink.stage_at({}, prepared[::-1], Occasion.CHECKPOINT, 5, at(11.5))
    assert json.loads(json.dumps(one.state)) == one.state
    assert marked(h) == []


# --- what is done ----------------------------------------------------------------------------------------------------


def test_functions_are_called_behind_the_success_file_and_again_where_they_failed(tmp_path: Path) -> None:
    called: list[CommittedPartition] = []

    def notify(partition: CommittedPartition) -> None:
        assert Path(partition.path, "_DONE").exists()
        called.append(partition)
        if len(called) == 1:
            raise RuntimeError("no route")

    h = harness(tmp_path, replace(BY_TIME, policies=("success-file", notify), success_file_name="_DONE"))
    h.write(lines(b"10 a"))
    file, mark = h.decide(time=at(12))
    h.commit([file])
    with pytest.raises(CommitUnknown, match=r"notify failed for .*hr=10: RuntimeError: no route"):
        h.commit([mark])
    h.commit([mark])
    assert [each.spec for each in called] == [{"dt": "2026-01-05", "hr": "10"}] * 2


def test_fsck_knows_what_is_still_to_be_done(tmp_path: Path) -> None:
    h = harness(tmp_path, replace(BY_TIME, policies=("success-file", print)))
    h.write(lines(b"10 a"))
    file, mark = h.decide(time=at(12))
    h.commit([file])
    again = FileSink.from_json(json.loads(json.dumps(h.sink.describe_json())))
    assert [(each.problem, each.path) for each in again.inspect(mark)] == [
        ("pending", f"{tmp_path}/dt=2026-01-05/hr=10/_SUCCESS")
    ]
    with pytest.raises(TerminalError, match="a function that is not here"):
        again.commit(mark)
    assert again.inspect(mark) == []  # the file is there by then


def test_a_success_file_that_was_never_given_its_name_is_removed(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(lines(b"10 a"))
    h.end_checkpoint(time=at(12))
    for name in (".tmp-0a1b-_SUCCESS", ".tmp-0a1b-other"):
        (tmp_path / "dt=2026-01-05/hr=10" / name).touch()
    assert [each.path for each in h.sink.sweep(h.state, remove=True)] == [
        f"{tmp_path}/dt=2026-01-05/hr=10/.tmp-0a1b-_SUCCESS"
    ]
    assert h.hidden() == ["dt=2026-01-05/hr=10/.tmp-0a1b-other"]
    assert marked(h) == ["hr=10"]


class Sees(FileSink):
    """A file sink whose commits are looked at."""

    def commit_many(self, committables: Any) -> Any:
        for committable in committables:
            order.append("mark" if "mark" in committable else "file")
            yield CommitUnknown("away", next="wait") if failing(committable) else Committed({})


order: list[str] = []


def failing(committable: Mapping[str, Any]) -> bool:
    return "mark" not in committable and len(order) == 1


@pytest.mark.parametrize("behind", [True, False])
def test_a_partition_is_committed_behind_all_files_of_the_decision(behind: bool, tmp_path: Path) -> None:
    """A file whose outcome is not known is asked for again first. The control: without the order, it would not be."""

    class Unordered(Sees):
        def comes_behind(self, committable: Any) -> bool:
            return behind and super().comes_behind(committable)

    h = harness(tmp_path)
    h.write(lines(b"10 a", b"11 b"))
    found = h.decide(time=at(20))
    order.clear()
    decision = Decision(
        number=1, occasion="checkpoint", checkpoint=0, job_id=JOB, epoch=1, time_ms=0, sources={},
        sinks={"out": SinkDecision(list(reversed(found)), {})},
    )  # fmt: skip
    sinks = {"out": Unordered(str(tmp_path), row="value", partition_commit=BY_TIME)}
    retry = Retry(attempts=3, first_s=0)
    commit_all(decision, sinks, retry=retry, sleep=lambda _: None, log=StandardLog())
    assert (order == ["file", "file", "file", "mark", "mark"]) is behind


# --- other lives -----------------------------------------------------------------------------------------------------


def test_output_that_is_retracted_takes_its_success_files_along(tmp_path: Path) -> None:
    h = harness(tmp_path / "out")
    h.write(lines(b"09 z"))
    h.end_checkpoint(time=at(10.5))
    h.write(lines(b"10 a"))
    h.end_checkpoint(time=at(10.5))
    saved, folder = dict(h.state), LocalStorage(str(tmp_path / "saved"))

    def copy(storage: Any, path: str, to: str) -> None:
        folder.create_exclusive(to, storage.read(path))

    h.sink.save(saved, folder, "s", copy)
    h.write(lines(b"11 b"))
    h.end_checkpoint(time=at(20))
    assert marked(h) == ["hr=09", "hr=10", "hr=11"]
    h.state = dict(h.sink.restore(saved, folder, "s", "retract"))
    assert marked(h) == ["hr=09"]
    h.write(lines(b"11 b"))
    h.end_checkpoint(time=at(20))
    assert (marked(h), rows(h, "10"), rows(h, "11")) == (["hr=09", "hr=10", "hr=11"], [b"10 a"], [b"11 b"])


def test_a_sink_that_commits_partitions_keeps_its_folder_until_they_are_committed(tmp_path: Path) -> None:
    h = harness(tmp_path / "a")
    h.write(lines(b"10 a"))
    h.end_checkpoint(time=at(10))
    h.end_checkpoint(Occasion.END)
    moved = replace(h.sink, path=str(tmp_path / "b"))
    with pytest.raises(TerminalError, match=r"1 partitions below .*wait to be committed"):
        moved.stage(h.state, [], Occasion.CHECKPOINT, 0)
    assert moved.stage_at({}, [], Occasion.CHECKPOINT, 0, ENDED).committables == []


def test_a_job_that_had_no_partition_commit_begins_with_the_files_that_are_open(tmp_path: Path) -> None:
    h = harness(tmp_path, None)
    h.write(lines(b"10 a"))
    h.end_checkpoint(time=at(10.5))
    assert (h.state["v"], "partitions" in h.state) == (1, False)
    h.sink = replace(h.sink, partition_commit=BY_TIME)
    h.end_checkpoint(time=at(11.5))
    assert (marked(h), h.state["v"]) == (["hr=10"], 3)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"trigger": "now"}, "trigger='now' is not known"),
        ({"delay": "1"}, "no unit|not a duration|unit"),
        ({"time": "$dt"}, "is no extractor"),
        ({"policies": ["metastore"]}, "'metastore' is no commit policy"),
        ({"policies": []}, "without a policy does nothing"),
        ({"success_file_name": "a/b"}, "is no file name"),
        ({"watermark_time_zone": "Mars"}, "no time zone"),
        ({"time": PartitionTimePattern}, "is no extractor"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        PartitionCommit(**given)


def test_a_partition_without_a_time_stops_the_job_before_the_decision(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(lines(b"x a"))
    with pytest.raises(TerminalError, match="hr=x"):
        h.decide(time=at(1))


def test_it_is_in_the_line_for_explain(tmp_path: Path) -> None:
    assert "commits partitions by the watermark and 1 h: _SUCCESS" in harness(tmp_path).sink.describe()
