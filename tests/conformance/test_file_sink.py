"""The file sink against the conformance cases: real writer, stage and commit, a clock that is set.

What readers see is compared in full. Not compared, since hidden data is laid out otherwise here: `hidden` counts, files in
the states `hidden` and `orphan`, and `cleanup`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.files.buckets.assigners import ProcessingTimeBucketAssigner
from poundlock.connectors.files.custom_rolling import CustomRollingPolicy, PartFile
from poundlock.connectors.files.file_values import CompactionState, WaitingFile
from poundlock.connectors.files.sink.commit_plan import compact
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from support.sinks import FileSinkHarness, batch

CASES = json.loads((Path(__file__).parent / "data" / "file_sink.json").read_text())["cases"]


def of_kind(kind: str) -> Any:
    cases = [case for case in CASES if case["kind"] == kind]
    return pytest.mark.parametrize("case", cases, ids=[case["id"] for case in cases])


class EachElement(CustomRollingPolicy):
    """Rolls before every write to an open file."""

    def should_roll_on_event(self, part: PartFile, rows: pa.RecordBatch) -> int:
        return 0 if part.rows else 1


def policy(case: dict[str, Any]) -> Any:
    said = case["policy"]
    if said == {"on_each_element": True}:
        return EachElement()
    assert set(said) <= {"max_part_bytes", "rollover_ms", "inactivity_ms", "on_checkpoint"}
    return RollingPolicy(
        every=f"{said['rollover_ms']} ms" if "rollover_ms" in said else None,
        size=said.get("max_part_bytes"),
        inactivity=f"{said['inactivity_ms']} ms" if "inactivity_ms" in said else None,
        on_checkpoint=said.get("on_checkpoint", False),
    )


def harness(case: dict[str, Any], folder: Path) -> FileSinkHarness:
    # The bucket is a column's first part: the case says it beside the text.
    sink = FileSink(str(folder), row="value", bucket=BucketOfKey(), rolling=policy(case))
    return FileSinkHarness(sink)


class BucketOfKey:
    """Takes the bucket from a column, as the assigner for SQL expressions does."""

    def open(self, context: Any, *, raw: bool) -> Any:
        from poundlock.connectors.files.buckets.assignment import ColumnBuckets

        return ColumnBuckets("bucket")

    def describe(self) -> str:
        return "column"


def write(h: FileSinkHarness, step: dict[str, Any]) -> None:
    text = step["text"]
    assert text.endswith("\n")
    assert h.write(batch(value=[text[:-1].encode()], bucket=[step["bucket"]]), step.get("subtask", 0)) == 1


def test_every_case_is_run_by_some_test() -> None:
    kinds = {"bucket_id", "file_sink_script", "rolling_script", "bucket_writer_script", "compaction_script"}
    assert {case["kind"] for case in CASES} == kinds
    assert len(CASES) == len({case["id"] for case in CASES}) == 13


@of_kind("bucket_id")
def test_bucket_id(case: dict[str, Any]) -> None:
    assert (
        ProcessingTimeBucketAssigner(pattern=case["format"], zone=case["zone"]).bucket_at(case["time_ms"])
        == case["expected"]
    )


@of_kind("file_sink_script")
def test_file_sink_script(case: dict[str, Any], tmp_path: Path) -> None:
    h = harness(case, tmp_path)
    snapshots: dict[int, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
    for step, expected in zip(case["steps"], case["expected"], strict=True):
        [(kind, said)] = step.items()
        if kind == "write":
            write(h, said)
        elif kind == "processing_time":
            h.clock.set(said)
        elif kind == "snapshot":
            decided = h.decide()
            snapshots[said] = (h.state, decided)
        elif kind == "checkpoint_complete":
            for n in sorted(snapshots):
                if n <= said:
                    h.commit(snapshots.pop(n)[1])
        elif kind == "crash_and_restore":
            h.crash()
            h.state, decided = snapshots[said]
            h.commit(decided)
            h.sink.sweep(h.state, remove=True)
        else:
            assert kind == "close"
            h.crash()
        if expected is not None:
            check_visible(h, expected)


def check_visible(h: FileSinkHarness, expected: dict[str, Any]) -> None:
    assert set(expected) <= {"finished", "hidden", "files"}
    found = {path: content.decode() for path, content in h.finished().items()}
    if "finished" in expected:
        assert len(found) == expected["finished"]
    for file in expected.get("files", ()):
        assert file["state"] in ("finished", "hidden", "orphan")
        path = f"{file['bucket']}/{file['part']}"
        if file["state"] == "finished":
            assert found[path] == file["text"]
        else:
            assert path not in found


@of_kind("rolling_script")
def test_rolling_script(case: dict[str, Any]) -> None:
    """The policy alone: times within one checkpoint, as in these cases, do not exist where batches are checkpoints."""
    rolling = policy(case)
    part: dict[str, int] | None = None
    closed = 0
    for step, expected in zip(case["steps"], case["expected"], strict=True):
        [(kind, said)] = step.items()
        if kind == "write":
            if part is not None and rolling.full(part["bytes"]):
                part, closed = None, closed + 1
            part = part or {"created": said["at"], "bytes": 0, "last": 0}
            part = {**part, "bytes": part["bytes"] + len(said["text"]), "last": said["at"]}
        elif kind == "processing_time":
            if part is not None and rolling.due(part["created"], part["last"], said):
                part, closed = None, closed + 1
        else:
            assert kind == "snapshot"
            if part is not None and (rolling.on_checkpoint or rolling.full(part["bytes"])):
                part, closed = None, closed + 1
        assert closed == expected


@of_kind("bucket_writer_script")
def test_bucket_writer_script(case: dict[str, Any], tmp_path: Path) -> None:
    h = harness(case, tmp_path)
    waiting = 0
    for step, expected in zip(case["steps"], case["expected"], strict=True):
        [(kind, said)] = step.items()
        if kind == "write":
            h.clock.set(said.get("at", 0))
            write(h, said)
        elif kind == "processing_time":
            h.clock.set(said)
            waiting += len(h.decide())
        elif kind in ("prepare_commit", "prepare_commit_end_of_input"):
            waiting += len(h.decide(Occasion.CHECKPOINT if kind == "prepare_commit" else Occasion.END))
        else:
            assert kind == "store_state"
        if expected is None:
            continue
        assert set(expected) <= {"pending", "open", "cleanup", "active_buckets"}
        if "pending" in expected:
            assert waiting == expected["pending"]
            waiting = 0
        if "open" in expected:
            assert [part["bucket"] for part in h.state["parts"]] == expected["open"]


@of_kind("compaction_script")
def test_compaction_script(case: dict[str, Any]) -> None:
    said = case["policy"]
    assert set(said) <= {"size_threshold", "every_n_checkpoints"}
    setting = FileCompaction(min_size=said.get("size_threshold"), every_checkpoints=said.get("every_n_checkpoints"))
    state = CompactionState()
    for step, expected in zip(case["steps"], case["expected"], strict=True):
        [(kind, value)] = step.items()
        closed = [waiting(value)] if kind == "pending" else []
        found, left = compact(setting, state, closed, OCCASIONS[kind], 0)
        state = msgspec.json.decode(msgspec.json.encode(left), type=CompactionState)  # as after a crash
        assert sorted(map(as_case, found), key=str) == sorted(expected, key=str)


OCCASIONS = {"pending": Occasion.ROLL, "checkpoint": Occasion.CHECKPOINT, "end_of_input": Occasion.END}


def waiting(file: Mapping[str, Any]) -> WaitingFile:
    return WaitingFile(
        bucket=file["bucket"], subtask=0, name="", created_ms=0, last_write_ms=0, rows=0, min_ms=None, max_ms=None, kind="raw",
        segments=[], file=file["file"], bytes=file["bytes"],
    )  # fmt: skip


def as_case(files: Sequence[WaitingFile]) -> dict[str, Any]:
    """Return what becomes visible as one: hidden files, which are merged, and then those that are visible already."""
    paths = [file.file for file in files]
    compact = [path for path in paths if path.rpartition("/")[2].startswith(".")]
    assert paths[: len(compact)] == compact
    return {"bucket": files[0].bucket, "compact": compact, "pass_through": paths[len(compact) :]}
