"""Sealed buckets of a file sink: when they are sealed, what their manifests name, and what becomes of rows that come later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poundlock.checkpoint.capabilities import SinkTime
from poundlock.checkpoint.participant import Committed, Occasion
from poundlock.connectors.files.buckets.assigners import EventTimeBucketAssigner, ProcessingTimeBucketAssigner
from poundlock.connectors.files.partitions.bucket_ends import EndsByPattern
from poundlock.connectors.files.partitions.commit import PartitionCommit
from poundlock.connectors.files.partitions.sealed import SealedBucket, SealedBuckets
from poundlock.connectors.files.partitions.times import PartitionTimePattern
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import CommitUnknown, DefinitionError, TerminalError, TransientError
from poundlock.formats.chunk import Lines
from poundlock.storage import LocalStorage
from support.sinks import JOB, FileSinkHarness, batch, lines

HOUR = 3_600_000
MIDNIGHT = round(datetime.fromisoformat("2026-01-05T00:00:00+00:00").timestamp() * 1000)
BY_HOUR = EventTimeBucketAssigner("ts", "'dt='yyyy-MM-dd'/hr='HH", zone="UTC", unit="ms")
SLOWLY = RollingPolicy(every="1 d", inactivity="1 d")
ENDED = SinkTime((1 << 63) - 1, ended=True)


def at(hours: float, ms: int = 0) -> SinkTime:
    """Return a watermark of that day."""
    return SinkTime(MIDNIGHT + round(hours * HOUR) + ms)


def row(hours: float, text: str = "") -> bytes:
    return json.dumps({"ts": MIDNIGHT + round(hours * HOUR), "text": text}).encode()


def rows(*hours: float) -> Lines:
    return lines(*(row(each) for each in hours))


def harness(folder: Path, sealed: SealedBuckets | None = None, **given: Any) -> FileSinkHarness:
    settings = {"row": "value", "bucket": BY_HOUR, "rolling": SLOWLY, **given}
    sink = FileSink(str(folder), sealed=sealed or SealedBuckets(), **settings)
    return FileSinkHarness(sink.bind(job_id=JOB, sink="out"))


def bucket(hour: int) -> str:
    return f"dt=2026-01-05/hr={hour:02}"


def manifest(h: FileSinkHarness, hour: int, version: int = 1) -> Any:
    return json.loads((h.root / bucket(hour) / f"_manifest-{version}.json").read_bytes())


def sealed(h: FileSinkHarness) -> dict[str, int]:
    """Return the newest version of each sealed bucket."""
    found: dict[str, int] = {}
    for path in h.paths():
        folder, _, name = path.rpartition("/")
        if name.startswith("_manifest-"):
            found[folder] = max(found.get(folder, 0), int(name.removeprefix("_manifest-").removesuffix(".json")))
    return found


def parts(h: FileSinkHarness, folder: str) -> list[str]:
    return [path for path in h.finished() if path.startswith(f"{folder}/part")]


def test_a_bucket_is_sealed_with_the_watermark_of_its_last_millisecond_and_the_lateness(tmp_path: Path) -> None:
    h = harness(tmp_path, SealedBuckets(allowed_lateness="1 h"))
    h.write(rows(10, 11))
    h.end_checkpoint(time=at(11.5))
    h.write(rows(10.5))
    h.end_checkpoint(time=at(12, ms=-2))
    assert (sealed(h), h.finished()) == ({}, {})
    h.end_checkpoint(time=at(12, ms=-1))
    assert sealed(h) == {bucket(10): 1}
    its = manifest(h, 10)
    path = f"{bucket(10)}/part-0-0"
    size = 2 * (len(row(10)) + 1)
    bounds = {"min_event_ms": MIDNIGHT + 10 * HOUR, "max_event_ms": MIDNIGHT + round(10.5 * HOUR)}
    assert its["files"] == [{"path": path, "rows": 2, "bytes": size, **bounds, "version": 1}]
    assert (its["v"], its["version"], its["bucket"], its["rows"], its["bytes"]) == (1, 1, bucket(10), 2, size)
    assert (tmp_path / bucket(10) / "_SUCCESS").read_bytes() == b""
    assert h.sink.next_watermark(h.state) == MIDNIGHT + 13 * HOUR - 1


def test_files_of_earlier_decisions_are_in_the_manifest(tmp_path: Path) -> None:
    h = harness(tmp_path, rolling=RollingPolicy(on_checkpoint=True))
    for each in (10.0, 10.1, 10.2):
        h.write(rows(each, 11))
        h.end_checkpoint(time=at(each))
    h.end_checkpoint(time=at(11))
    assert [each["path"] for each in manifest(h, 10)["files"]] == parts(h, bucket(10))
    assert len(parts(h, bucket(10))) == 3
    assert list(h.state["partitions"]["files"]) == [bucket(11)]  # what is sealed is forgotten


def test_a_late_row_opens_the_bucket_once_more_with_a_new_version(tmp_path: Path) -> None:
    calls: list[tuple[int, int, int, Mapping[str, str]]] = []

    def note(each: SealedBucket) -> None:
        calls.append((each.version, len(each.files), each.rows, each.spec))

    h = harness(tmp_path, SealedBuckets(policies=["success-file", note]))
    h.write(rows(10))
    h.end_checkpoint(time=at(11))
    h.write(rows(10.1, 10.2))
    h.end_checkpoint(time=at(11))
    assert sealed(h) == {bucket(10): 2}
    assert [each["version"] for each in manifest(h, 10, 2)["files"]] == [1, 2]
    assert manifest(h, 10, 2)["files"][:1] == manifest(h, 10, 1)["files"]
    spec = {"dt": "2026-01-05", "hr": "10"}
    assert calls == [(1, 1, 1, spec), (2, 2, 3, spec)]


def test_late_rows_go_into_a_folder_that_is_never_sealed(tmp_path: Path) -> None:
    h = harness(tmp_path, SealedBuckets(late="folder", target_size="1 MB"), rolling=RollingPolicy(on_checkpoint=True))
    h.write(rows(10))
    h.end_checkpoint(time=at(11))
    h.write(rows(10.1, 11.2, 9.9))  # nothing of 9 o'clock was ever written, and it is over all the same
    h.end_checkpoint(time=at(11))
    assert h.checkpoint == 2
    assert sealed(h) == {bucket(10): 1}
    late = {path: content for path, content in h.finished().items() if path.startswith("_late/")}
    assert {path.rpartition("/")[0] for path in late} == {f"_late/{bucket(9)}", f"_late/{bucket(10)}"}
    h.end_checkpoint(time=ENDED)
    assert sealed(h) == {bucket(10): 1, bucket(11): 1}
    assert manifest(h, 10)["rows"] == 1


def test_late_rows_are_dead_letters_with_the_reason(tmp_path: Path) -> None:
    h = harness(tmp_path, SealedBuckets(late="dead-letter"))
    h.write(rows(10, 11))
    assert h.rejects == []
    h.end_checkpoint(time=at(11))
    assert h.write(rows(10.5, 11.5)) == 1
    assert [(each.reason, each.value) for each in h.rejects] == [
        (f"late: bucket '{bucket(10)}' is sealed, watermark 2026-01-05T11:00:00.000Z", row(10.5))
    ]
    h.end_checkpoint(time=at(12))
    assert sealed(h) == {bucket(10): 1, bucket(11): 1}
    assert (manifest(h, 10)["rows"], manifest(h, 11)["rows"]) == (1, 2)


def test_a_task_that_did_not_know_of_the_seal_repeats_its_checkpoint(tmp_path: Path) -> None:
    h = harness(tmp_path, SealedBuckets(late="dead-letter"))
    h.write(rows(10))
    h.end_checkpoint(time=at(10.5))
    h.write(rows(10.6))
    slow = h.prepare()  # by what was decided before
    h.end_checkpoint(time=at(11))
    with pytest.raises(TransientError, match="is sealed"):
        h.decide(prepared=slow, time=at(11))


def test_target_size_hides_files_until_they_add_up_or_the_bucket_is_sealed(tmp_path: Path) -> None:
    h = harness(
        tmp_path, SealedBuckets(target_size="1 KB"), row=None, format="parquet", rolling=RollingPolicy(on_checkpoint=True),
        bucket=EventTimeBucketAssigner("ts", "'dt='yyyy-MM-dd'/hr='HH", zone="UTC"),
    )  # fmt: skip

    def some(hour: float) -> Any:
        return batch(ts=pa.array([MIDNIGHT + round(hour * HOUR)], pa.timestamp("ms", tz="UTC")))

    seen: list[int] = []
    for number in range(7):
        h.write(some(10 + number / 100), subtask=number % 2)
        h.end_checkpoint(time=at(10.5))
        seen.append(len(h.finished()))
    assert seen[0] == 0  # nothing is there before it has the size
    assert seen[-1] >= 1
    before = set(h.finished())
    h.end_checkpoint(time=at(11))
    its = manifest(h, 10)
    assert sorted(each["path"] for each in its["files"]) == parts(h, bucket(10))  # of all that readers see
    assert set(parts(h, bucket(10))) >= before
    assert len(its["files"]) < 7
    assert its["rows"] == sum(pq.read_table(tmp_path / each["path"]).num_rows for each in its["files"]) == 7
    assert all(each["bytes"] == (tmp_path / each["path"]).stat().st_size for each in its["files"])
    assert h.hidden() == []


def test_by_the_clock_buckets_are_sealed_between_checkpoints_and_rows_are_late_by_what_was_decided(
    tmp_path: Path,
) -> None:
    h = harness(tmp_path, SealedBuckets(trigger="process-time", allowed_lateness="10 min", late="dead-letter"))
    h.clock.set(MIDNIGHT + round(10.5 * HOUR))
    h.write(rows(10.5))
    h.end_checkpoint(time=SinkTime())
    due = MIDNIGHT + 11 * HOUR + 600_000
    assert h.sink.next_roll_ms(h.state) == due
    h.clock.set(due - 1)
    assert h.sink.stage(h.state, [], Occasion.ROLL, due - 1).state == h.state  # nothing to decide
    assert h.end_checkpoint(Occasion.ROLL) == []
    h.clock.set(due)
    h.write(rows(10.9))  # of a checkpoint that began before the seal
    h.end_checkpoint()
    assert (sealed(h), manifest(h, 10)["rows"]) == ({bucket(10): 1}, 2)
    assert h.write(rows(10.9)) == 0
    assert "clock 2026-01-05T11:10:00.000Z" in h.rejects[0].reason


def test_without_an_end_the_clock_counts_from_the_first_row(tmp_path: Path) -> None:
    h = harness(tmp_path, SealedBuckets(trigger="process-time", allowed_lateness="1 min"), bucket=lambda line: "all")
    h.clock.set(1_000_000)
    h.write(rows(1))
    h.end_checkpoint()
    h.clock.set(1_060_000)
    h.end_checkpoint(Occasion.ROLL)
    assert sealed(h) == {"all": 1}


@pytest.mark.parametrize("trigger", ["event-time", "process-time", "end"])
def test_the_end_of_the_input_seals_and_a_clean_stop_does_not(trigger: Any, tmp_path: Path) -> None:
    h = harness(tmp_path, SealedBuckets(trigger=trigger))
    h.clock.set(MIDNIGHT)
    h.write(rows(10))
    h.end_checkpoint(time=at(10.5))
    h.end_checkpoint(Occasion.END)
    assert sealed(h) == {}
    assert len(parts(h, bucket(10))) == 1
    h.end_checkpoint(time=ENDED)
    assert sealed(h) == {bucket(10): 1}


def test_a_seal_that_is_repeated_by_any_process_makes_no_second_version(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(rows(10))
    first = h.decide(time=at(11))
    h.commit(first)
    h.commit(first)
    h.write(rows(10.5))
    second = h.decide(time=at(11))
    h.commit(second)
    before = {path: (tmp_path / path).read_bytes() for path in h.paths()}
    h.commit([each for each in first if "mark" in each])  # of a driver that was thought dead
    h.commit([each for each in second if "mark" in each])
    assert {path: (tmp_path / path).read_bytes() for path in h.paths()} == before
    assert sealed(h) == {bucket(10): 2}


def test_two_processes_at_once_make_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h = harness(tmp_path)
    h.write(rows(10))
    decided = h.decide(time=at(11))
    h.commit([each for each in decided if "mark" not in each])
    [mark] = [each for each in decided if "mark" in each]
    create, met = LocalStorage.create_exclusive, list[str]()

    def overtaken(self: LocalStorage, path: str, data: bytes) -> bool:
        if "_manifest" in path and not met:
            met.append(path)
            assert create(self, path, data)  # the other one was here first
        return create(self, path, data)

    monkeypatch.setattr(LocalStorage, "create_exclusive", overtaken)
    assert isinstance(h.sink.commit(mark), Committed)
    assert (sealed(h), len(met)) == ({bucket(10): 1}, 1)


def test_files_that_were_there_before_the_sink_sealed_are_named_without_their_rows(tmp_path: Path) -> None:
    before = harness(tmp_path, rolling=RollingPolicy(on_checkpoint=True))
    plain = FileSinkHarness(replace(before.sink, sealed=None))
    plain.write(rows(10))
    plain.end_checkpoint(time=at(10))
    h = before
    h.state, h.checkpoint = plain.state, 1
    h.write(rows(10.5))
    h.end_checkpoint(time=at(11))
    assert [(each["path"], each["rows"]) for each in manifest(h, 10)["files"]] == [
        (f"{bucket(10)}/part-0-0", None), (f"{bucket(10)}/part-0-1", 1),
    ]  # fmt: skip


def test_a_function_that_fails_is_called_again_with_the_same_version(tmp_path: Path) -> None:
    calls: list[int] = []

    def fails_once(each: SealedBucket) -> None:
        calls.append(each.version)
        if len(calls) == 1:
            raise ValueError("away")

    h = harness(tmp_path, SealedBuckets(policies=[fails_once]))
    h.write(rows(10))
    decided = h.decide(time=at(11))
    with pytest.raises(CommitUnknown, match="fails_once failed"):
        h.commit(decided)
    h.commit(decided[1:])
    assert calls == [1, 1]


def test_fsck_finds_a_seal_that_has_not_ended_and_finishes_it_without_the_jobs_code(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(rows(10))
    decided = h.decide(time=at(11))
    h.commit(decided[:1])
    rebuilt = FileSink.from_json(json.loads(json.dumps(h.sink.describe_json())))
    found = rebuilt.inspect(decided[1])
    assert [(each.problem, each.path) for each in found] == [
        ("pending", f"{tmp_path}/{bucket(10)}/_manifest-{{version}}.json"),
        ("pending", f"{tmp_path}/{bucket(10)}/_SUCCESS"),
    ]
    rebuilt.commit(decided[1])
    assert (rebuilt.inspect(decided[1]), sealed(h)) == ([], {bucket(10): 1})


def test_a_manifest_that_was_never_given_its_name_is_swept(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(rows(10))
    h.end_checkpoint(time=at(11))
    (tmp_path / bucket(10) / ".tmp-00ff-_manifest-2.json").write_bytes(b"half")
    (tmp_path / bucket(10) / ".tmp-00ff-other.json").write_bytes(b"not ours")
    swept = h.sink.sweep(h.state, remove=True)
    assert [each.path.rpartition("/")[2] for each in swept] == [".tmp-00ff-_manifest-2.json"]
    assert (tmp_path / bucket(10) / ".tmp-00ff-other.json").exists()


def test_output_that_a_savepoint_retracts_takes_later_versions_along(tmp_path: Path) -> None:
    h = harness(tmp_path / "lake")
    h.write(rows(10))
    h.end_checkpoint(time=at(11))
    saved = dict(h.state)
    h.write(rows(10.5, 11))
    h.end_checkpoint(time=at(12))
    assert sealed(h) == {bucket(10): 2, bucket(11): 1}
    empty = LocalStorage(str(tmp_path / "savepoint"))
    h.state = h.sink.restore(saved, empty, "s", "retract")
    assert (sealed(h), manifest(h, 10)["version"]) == ({bucket(10): 1}, 1)
    h.write(rows(10.5, 11))
    h.end_checkpoint(time=at(12))
    assert sealed(h) == {bucket(10): 2, bucket(11): 1}


def test_an_earlier_version_refuses_the_state(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(rows(10))
    decided = h.decide(time=at(11))
    assert (h.state["v"], decided[1]["v"]) == (4, 4)


def test_a_manifest_of_another_origin_is_not_built_upon(tmp_path: Path) -> None:
    h = harness(tmp_path)
    h.write(rows(10))
    decided = h.decide(time=at(11))
    (tmp_path / bucket(10) / "_manifest-7.json").write_text("{}")
    with pytest.raises(TerminalError, match="is no manifest of a sealed bucket"):
        h.commit(decided)


@pytest.mark.parametrize(
    ("pattern", "zone", "name", "end"),
    [
        ("'dt='yyyyMMdd", "UTC", "dt=20260105", "2026-01-06T00:00:00+00:00"),
        ("yyyy", "UTC", "2026", "2027-01-01T00:00:00+00:00"),
        ("yyyy-MM", "UTC", "2026-12", "2027-01-01T00:00:00+00:00"),
        ("yyyyMMddHHmm", "UTC", "202601052359", "2026-01-06T00:00:00+00:00"),
        # Europe/Berlin puts its clocks back at 03:00 on 25 October 2026, and forward at 02:00 on 29 March.
        ("yyyyMMdd/HH", "Europe/Berlin", "20261025/01", "2026-10-25T02:00:00+02:00"),
        ("yyyyMMdd/HH", "Europe/Berlin", "20261025/02", "2026-10-25T03:00:00+01:00"),
        ("yyyyMMdd/HHmm", "Europe/Berlin", "20261025/0230", "2026-10-25T02:31:00+01:00"),
        ("yyyyMMdd/HH", "Europe/Berlin", "20260329/01", "2026-03-29T03:00:00+02:00"),
        ("yyyyMMdd", "Europe/Berlin", "20261025", "2026-10-26T00:00:00+01:00"),
        ("yyyyMMdd/HH", "Australia/Lord_Howe", "20260405/01", "2026-04-05T02:00:00+10:30"),
    ],
)
def test_the_end_of_a_bucket(pattern: str, zone: str, name: str, end: str) -> None:
    known = EndsByPattern(pattern, zone).end_ms(name)
    assert datetime.fromtimestamp(known / 1000, datetime.fromisoformat(end).tzinfo).isoformat() == end


def test_the_end_of_a_bucket_is_never_before_a_time_in_it() -> None:
    from zoneinfo import ZoneInfo

    for zone in ("Europe/Berlin", "Australia/Lord_Howe", "America/Havana", "America/Asuncion", "Asia/Kathmandu"):
        for text in ("yyyyMMdd/HH", "yyyyMMdd", "yyyyMMddHHmm"):
            assigner = ProcessingTimeBucketAssigner(pattern=text, zone=zone)
            ends = EndsByPattern(text, zone)
            start = round(datetime(2024, 1, 1, tzinfo=ZoneInfo(zone)).timestamp())
            for moment in range(start, start + 366 * 86_400, 7 * 601):
                assert ends.end_ms(assigner.bucket_at(moment * 1000)) > moment * 1000, (zone, text, moment)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"trigger": "never"}, "trigger"),
        ({"late": "drop"}, "late"),
        ({"late_folder": "late"}, "late_folder"),
        ({"length": "1 h"}, "length"),
        ({"zone": "Europe/Berlin"}, "zone"),
        ({"time": PartitionTimePattern("$dt")}, "how long"),
        ({"late": "folder", "late_folder": "a/b"}, "no folder"),
        ({"manifest_name": "_manifest.json"}, "no name of hidden files"),
        ({"manifest_name": "m-{version}"}, "no name of hidden files"),
        ({"policies": ["metastore"]}, "no commit policy"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        SealedBuckets(**given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"bucket": lambda line: "x"}, "nothing says when a bucket ends"),
        (
            {"bucket": lambda line: "x", "sealed": SealedBuckets(trigger="process-time", late="dead-letter")},
            "nothing says",
        ),
        ({"sealed": SealedBuckets(trigger="end", late="folder")}, "nothing says"),
        ({"bucket": EventTimeBucketAssigner("ts", "'hr='HH", zone="UTC")}, "cannot be read"),
        ({"partition_commit": PartitionCommit()}, "does not go with partition_commit"),
        ({"overwrite": []}, "does not go with overwrite"),
        ({"sealed": SealedBuckets(target_size="1 MB"), "compaction": FileCompaction(min_size="1 MB")}, "both say"),
        ({"sealed": "yes"}, "is none"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        FileSink("lake", **{"row": "value", "bucket": BY_HOUR, "sealed": SealedBuckets(), **given})


def test_it_is_described() -> None:
    sealing = SealedBuckets(allowed_lateness="1 h", late="dead-letter", target_size="256 MB")
    assert (
        "seals buckets by the watermark and 1 h, files up to 256.0 MB: _manifest-{version}.json, _SUCCESS; late rows are dead letters"
        in (FileSink("lake", row="value", bucket=BY_HOUR, sealed=sealing).describe())
    )
