"""Words for a place in Kafka become one offset for each partition, or an error that names the range."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from poundlock.connectors.kafka.offsets import Offsets, Partition, describe, from_json, to_json
from poundlock.connectors.kafka.source.starting_offsets import StartingOffsets, pin, read_pinned
from poundlock.errors import DefinitionError, SourceGoneError, TerminalError
from poundlock.storage import LocalStorage

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[]", "it is no JSON object"),
        ('{"v": 2}', "format 2 is not known to this version"),
        ('{"v": 1, "kind": "other"}', "kind is not what it should be"),
        ('{"v": 1, "kind": "kafka-start"}', "it has no words"),
    ],
)
def test_a_damaged_start_is_said_in_words(tmp_path: Path, content: str, why: str) -> None:
    storage = LocalStorage(str(tmp_path))
    assert read_pinned(storage) is None
    made = pin(storage, "earliest", {A0: 5}, None, {"a": "id"})
    assert read_pinned(storage) == made
    (tmp_path / "start.json").write_text(content)
    with pytest.raises(TerminalError, match=rf"start\.json cannot be read: {why}"):
        read_pinned(storage)


class Table:
    """A cluster of three partitions: offsets 5 to 10, 0 to 0 and 2 to 8."""

    def begin(self, partitions: Iterable[Partition]) -> Offsets:
        return {p: {A0: 5, A1: 0, B0: 2}[p] for p in partitions}

    def end(self, partitions: Iterable[Partition]) -> Offsets:
        return {p: {A0: 10, A1: 0, B0: 8}[p] for p in partitions}

    def at(self, partitions: Iterable[Partition], timestamp_ms: int) -> Offsets:
        return {p: o for p, o in {A0: 7}.items() if p in set(partitions) and timestamp_ms <= 1000}

    def committed(self, partitions: Iterable[Partition], group: str) -> Offsets:
        told = {"g": {A0: 6, B0: 8}, "old": {A0: 3}}.get(group, {})
        return {p: told[p] for p in partitions if p in told}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [5, 0, 2]),
        ("latest", [10, 0, 8]),
        (1000, [7, 0, 8]),
        (1001, [10, 0, 8]),
        ("1970-01-01T00:00:01Z", [7, 0, 8]),
        ("1970-01-01T08:00:01+08:00", [7, 0, 8]),
        ({"a:0": 9}, [9, 0, 2]),
        ({("a", 0): 9, ("b", 0): 8}, [9, 0, 8]),
        ({"a": {0: 9, "1": 0}}, [9, 0, 2]),
        (StartingOffsets.offsets({"a:0": 9}, otherwise="latest"), [9, 0, 8]),
        ("committed", [6, 0, 8]),
        (StartingOffsets.committed("none"), [5, 0, 2]),
        (StartingOffsets.committed("none", otherwise="latest"), [10, 0, 8]),
    ],
)
def test_start(start: Any, expected: list[int]) -> None:
    resolved = StartingOffsets.parse(start, "start").resolve([B0, A1, A0], Table(), group="g")
    assert resolved == dict(zip([A0, A1, B0], expected, strict=True))


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("latest", [10, 0, 8]),
        ({"a:0": 99}, [99, 0, 8]),  # the end may be still to come
        (1000, [7, 0, 8]),
        (StartingOffsets.offsets({"a:0": 1}, otherwise="earliest"), [1, 0, 2]),
    ],
)
def test_end(end: Any, expected: list[int]) -> None:
    resolved = StartingOffsets.parse(end, "end").resolve([A0, A1, B0], Table(), group=None, end=True)
    assert resolved == dict(zip([A0, A1, B0], expected, strict=True))


@pytest.mark.parametrize(
    ("start", "group", "error", "what"),
    [
        ({"a:0": 4}, None, DefinitionError, "cannot start at offset 4: a-0 holds offsets 5 to 10"),
        ({"a:0": 11}, None, DefinitionError, "cannot start at offset 11"),
        ({"c:0": 1}, None, DefinitionError, "offsets name c-0, which this source does not read"),
        (StartingOffsets.offsets({"a:0": 9}, otherwise="fail"), None, DefinitionError, "no offset for a-1, b-0"),
        (
            StartingOffsets.committed("x", otherwise="fail"),
            None,
            DefinitionError,
            "no committed offset for a-0, a-1, b-0",
        ),
        ("committed", None, DefinitionError, "no group"),
        ("committed", "old", SourceGoneError, "committed offset 3 has expired.*offsets 3 to 5 are lost"),
    ],
)
def test_a_start_that_cannot_be(start: Any, group: str | None, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        StartingOffsets.parse(start, "start").resolve([A0, A1, B0], Table(), group=group)


@pytest.mark.parametrize(
    "value", ["soon", "2018-12-19T00:00:00", datetime(2018, 12, 19), {"a": 5}, {"a:x": 1}, {"a:0": -2}, 1.5, True, -1]
)
def test_what_is_no_place(value: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        StartingOffsets.parse(value, "start")
    assert caught.value.next


def test_times_keep_their_milliseconds() -> None:
    when = datetime(2018, 12, 19, 1, 50, 26, 432000, tzinfo=timezone(timedelta(hours=8)))
    assert StartingOffsets.timestamp(when).timestamp_ms == 1545155426432
    assert StartingOffsets.timestamp("2018-12-18T17:50:26.432Z").timestamp_ms == 1545155426432


def test_positions_are_sparks_json() -> None:
    position = {"a": {"0": 6, "10": 5, "2": 1}, "b": {"0": 7}}
    assert to_json(from_json(position)) == position
    assert list(to_json(from_json(position))["a"]) == ["0", "2", "10"]
    assert from_json(None) == {}


def test_describe_is_flinks_line() -> None:
    assert describe({"flink_test": {"1": 725, "0": 700}}) == (
        "will start reading 2 partitions with offsets in restored state: "
        "{KafkaTopicPartition{topic='flink_test', partition=0}=700, KafkaTopicPartition{topic='flink_test', partition=1}=725}"
    )
    assert describe({"t": {"0": 1}}).startswith("will start reading 1 partition with")
