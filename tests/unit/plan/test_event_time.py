"""Event time in the plan: the slot of a row, a Python function's timestamps, and what `explain` says of alignment."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from poundlock import DefinitionError, FileSink, FileSource, Job, SparkSource, WatermarkStrategy
from poundlock.plan.event_time import SPLIT_SLOTS, TimeChannel, _slot_of
from poundlock.plan.lower import untimed
from poundlock.plan.rows import PARTITION, SPLIT, TOPIC
from poundlock.plan.timestamps import AssignTime

STRATEGY = WatermarkStrategy.monotonous(timestamp="ts")


def slot_of(partitions: Any, splits: Any = None, columns: Any = (TOPIC, PARTITION), **more: Any) -> str:
    return _slot_of(TimeChannel("time", STRATEGY, ["in"], partitions, splits, **more), columns)


def test_the_slot_of_a_row() -> None:
    assert slot_of(None) == "-1"
    one = slot_of([("t", 0), ("t", 1), ("t", 2)])
    assert one == "CASE WHEN __partition BETWEEN 0 AND 2 THEN __partition + 0 ELSE -1 END"
    two = slot_of([("a'b", 0), ("a'b", 1), ("c", 3)])
    assert two == (
        r"CASE WHEN __topic = 'a\'b' AND __partition BETWEEN 0 AND 1 THEN __partition + 0"
        " WHEN __topic = 'c' AND __partition = 3 THEN 2 ELSE -1 END"
    )
    files = slot_of(None, ["f"], [SPLIT, PARTITION], first=SPLIT_SLOTS, others=PARTITION)
    assert files == (
        f"CASE WHEN __split >= {SPLIT_SLOTS} AND __split < {2 * SPLIT_SLOTS} THEN __split + {-SPLIT_SLOTS}"
        " WHEN __partition >= 0 THEN -2 ELSE -1 END"
    )


def test_the_end_of_files_is_not_that_of_what_they_are_united_with() -> None:
    files = TimeChannel("time", STRATEGY, ["files"], None, ["files"])
    assert untimed(["files", "rate", "files#2"], [files]) == ["rate"], "its rows are in no split of the channel"
    assert untimed(["files", "rate"], [TimeChannel("time", STRATEGY, ["files", "rate"], None, None)]) == []


def test_a_functions_timestamps_are_milliseconds_or_datetimes() -> None:
    assign = pickle.loads(pickle.dumps(AssignTime("time", dict.copy, "at")))
    assert assign.column == "at"

    def of(value: Any) -> Any:
        return AssignTime("time", lambda record: value, "at")({"n": 1})

    assert of(5) == {"n": 1, "at": 5}
    assert of(None) == {"n": 1, "at": None}
    assert (
        of(datetime(1970, 1, 1, 0, 0, 1, 2999)) == of(datetime(1970, 1, 1, 0, 0, 1, 2999, UTC)) == {"n": 1, "at": 1002}
    )
    for wrong in (1.5, True, "1"):
        with pytest.raises(DefinitionError, match="time: the timestamp assigner gave"):
            of(wrong)


def test_explain_says_who_is_not_held_back() -> None:
    job = Job("a", on_error="skip")
    aligned = STRATEGY.with_watermark_alignment("g", "1 min")
    files = job.from_source(FileSource("/in", format="json", schema="ts timestamp"), aligned, name="files")
    strange = job.from_source(SparkSource("strange"), aligned, name="strange")
    files.union(strange).sink_to(FileSink("/out", format="json"), name="out")
    text = job.explain()
    assert "event time ts as event_time, in order, at most 1 min ahead of group g" in text
    assert "note: strange: read by Spark, which cannot be told to wait: holds others of group g back" in text
    assert "note: files" not in text
