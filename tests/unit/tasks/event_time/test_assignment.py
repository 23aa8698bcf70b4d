"""Event time in a task: which expressions need no Spark, what they give, which rows have none, and what is reported."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import DefinitionError, WatermarkStrategy
from poundlock.formats.chunk import Batch, FileOrigin, KafkaOrigin, Lines, Records
from poundlock.formats.reject import Reject
from poundlock.operators.stream_times import StreamTimes
from poundlock.operators.time_graph import TimeGraph, TimeNode
from poundlock.operators.time_values import SourceInput, SplitTimes
from poundlock.tasks.event_time import (
    TIMELESS,
    EventTimeAssigner,
    NeedsSpark,
    SplitPlace,
    SplitTimesRecorder,
    TimeColumn,
    TimedChunk,
    assigner_for,
    time_column,
)

UTC_US = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema(
    {
        "ms": pa.int64(),
        "small": pa.int32(),
        "tiny": pa.int16(),
        "at": UTC_US,
        "naive": pa.timestamp("us"),
        "nanos": pa.timestamp("ns", tz="UTC"),
        "real": pa.float64(),
        "single": pa.float32(),
        "text": pa.string(),
        "day": pa.date32(),
        "money": pa.decimal128(20, 3),
        "odd name": pa.int64(),
        "a`b": pa.int64(),
        "Case": pa.int64(),
        "word": pa.dictionary(pa.int8(), pa.int64()),
        "odd": pa.duration("s"),
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ms", TimeColumn("ms", "millis")),
        (" small ", TimeColumn("small", "millis")),
        ("`odd name`", TimeColumn("odd name", "millis")),
        ("`a``b`", TimeColumn("a`b", "millis")),
        ("CASE", TimeColumn("Case", "millis")),
        ("word", TimeColumn("word", "millis")),
        ("at", TimeColumn("at", "timestamp")),
        ("naive", TimeColumn("naive", "timestamp", None)),
        ("timestamp_seconds(ms)", TimeColumn("ms", "seconds")),
        ("TIMESTAMP_Seconds ( `ms` )", TimeColumn("ms", "seconds")),
        ("timestamp_seconds(real)", TimeColumn("real", "seconds")),
        ("timestamp_millis(tiny)", TimeColumn("tiny", "millis")),
        ("timestamp_micros(ms)", TimeColumn("ms", "micros")),
        ("CAST(ms AS TIMESTAMP)", TimeColumn("ms", "seconds")),
        ("cast(single as timestamp)", TimeColumn("single", "seconds")),
        ("CAST(at AS TIMESTAMP)", TimeColumn("at", "timestamp")),
        ("CAST(naive AS TIMESTAMP)", TimeColumn("naive", "timestamp")),
        ("CAST(timestamp_millis(ms) AS TIMESTAMP)", TimeColumn("ms", "millis")),
    ],
)
def test_what_is_read_from_a_column(text: str, expected: TimeColumn) -> None:
    assert time_column("time", text, COLUMNS) == expected


@pytest.mark.parametrize(
    "text",
    [
        "timestamp_seconds(ms / 10)",
        "to_timestamp(text)",
        "coalesce(at, naive)",
        "nobody",
        "timestamp_millis(real)",
        "timestamp_seconds(money)",
        "timestamp_seconds(nobody)",
        "CAST(text AS TIMESTAMP)",
        "CAST(day AS TIMESTAMP)",
        "CAST(ms + 1 AS TIMESTAMP)",
        "a.b",
    ],
)
def test_what_only_spark_can_evaluate(text: str) -> None:
    assert isinstance(time_column("time", text, COLUMNS), NeedsSpark)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("text", "string"), ("real", "double"), ("day", "date"), ("tiny", "smallint"), ("odd", "duration[s]")],
)
def test_a_column_that_is_no_time_is_refused(text: str, kind: str) -> None:
    with pytest.raises(DefinitionError, match=f"time: event time {text} is of type {re.escape(kind)}\nNext: give a"):
        assigner_for("time", WatermarkStrategy.monotonous(timestamp=text), COLUMNS)


def assigner(timestamp: Any, schema: pa.Schema = COLUMNS, column: str = "event_time") -> EventTimeAssigner:
    made = assigner_for("time", WatermarkStrategy.monotonous(timestamp=timestamp, column=column), schema)
    assert isinstance(made, EventTimeAssigner)
    return made


def assigned(timestamp: Any, column: pa.Array, name: str = "x") -> tuple[TimedChunk, list[Reject]]:
    bad: list[Reject] = []
    batch = pa.record_batch([column], [name])
    timed = assigner(timestamp, batch.schema).assign(Batch(batch), 0, bad.append)
    assert isinstance(timed.chunk, Batch)
    assert timed.chunk.batch.schema.names == [name, "event_time"]
    return timed, bad


def column_of(timed: TimedChunk) -> Any:
    assert isinstance(timed.chunk, Batch)
    return timed.chunk.batch.column("event_time")


FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
FIRST_MS, LAST_MS = -62135596800000, 253402300799999


@pytest.mark.parametrize("encoded", [False, True])
def test_milliseconds_and_the_years_that_there_are(encoded: bool) -> None:
    values = [0, None, 1545184226432, FIRST_MS, FIRST_MS - 1, LAST_MS, LAST_MS + 1, -1, 1 << 62]
    timed, bad = assigned("x", pa.array(values).dictionary_encode() if encoded else pa.array(values))
    assert timed.times.tolist() == [0, 1545184226432, FIRST_MS, LAST_MS, -1]
    assert column_of(timed).cast(pa.int64()).to_pylist() == [1000 * ms for ms in timed.times.tolist()]
    assert column_of(timed).type == UTC_US
    reason = f"time: a row without a usable event time in x: {TIMELESS}"
    assert [(each.reason, each.value) for each in bad] == [
        (reason, f'{{"x": {value}}}'.encode()) for value in ("null", FIRST_MS - 1, LAST_MS + 1, 1 << 62)
    ]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Vienna"])
def test_timestamps_of_every_unit(unit: str, zone: str | None) -> None:
    each = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    column = pa.array([-each, None, 5 * each, -1], pa.int64()).cast(pa.timestamp(unit, tz=zone))
    timed, bad = assigned("x", column)
    last = {"s": -1000, "ms": -1, "us": -1, "ns": -1}[unit]
    assert timed.times.tolist() == [-1000, 5000, last], "rounded down, as rows before 1970 are"
    assert column_of(timed).type == pa.timestamp("us", tz=zone)
    assert len(bad) == 1


def test_timestamps_that_python_does_not_have_are_dead_letters_all_the_same() -> None:
    beyond = (LAST_MS + 1) * 1000
    timed, bad = assigned("x", pa.array([beyond, 0, -(1 << 60)], pa.int64()).cast(UTC_US))
    assert timed.times.tolist() == [0]
    assert [each.value for each in bad] == [f'{{"x": {beyond}}}'.encode(), f'{{"x": {-(1 << 60)}}}'.encode()]


def test_seconds_with_a_fraction_are_cut_off_as_spark_does() -> None:
    values = [1545184224.432, 0.0000019, -0.0000019, float("nan"), float("inf"), -1e300, None, 253402300800.0]
    timed, bad = assigned("timestamp_seconds(x)", pa.array(values))
    assert column_of(timed).cast(pa.int64()).to_pylist() == [1545184224432000, 1, -1]
    assert timed.times.tolist() == [1545184224432, 0, -1]
    assert len(bad) == 5
    timed, _ = assigned("CAST(x AS TIMESTAMP)", pa.array([0.5], pa.float32()))
    assert timed.times.tolist() == [500]


@given(
    st.lists(st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(10**13), 10**13)), max_size=20)
)
def test_numbers_of_every_form_are_what_python_makes_of_them(values: list[int | None]) -> None:
    for text, factor in (
        ("timestamp_seconds(x)", 1_000_000),
        ("timestamp_millis(x)", 1_000),
        ("timestamp_micros(x)", 1),
    ):
        micros = [None if v is None else v * factor for v in values]
        good = [v for v in micros if v is not None and FIRST_MS * 1000 <= v <= LAST_MS * 1000 + 999]
        timed, bad = assigned(text, pa.array(values, pa.int64()))
        assert column_of(timed).cast(pa.int64()).to_pylist() == good
        assert timed.times.tolist() == [v // 1000 for v in good]
        assert len(bad) == len(values) - len(good)


def test_slices_keep_their_own_values() -> None:
    column = pa.array([9, None, 8, 7, None, 6, 5, 4, 3], pa.int64()).slice(1, 6)
    timed, bad = assigned("x", column)
    assert timed.times.tolist() == [8, 7, 6, 5]
    assert len(bad) == 2


def test_a_function_of_a_record_gives_milliseconds_or_datetimes() -> None:
    table = {
        1: 1500,
        2: None,
        3: datetime(1970, 1, 1, 0, 0, 1, 2999),
        4: datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
        5: 10**30,
    }
    assign = assigner(lambda row: table[row["ms"]])
    bad: list[Reject] = []
    batch = Batch(pa.record_batch({"ms": list(table)}), KafkaOrigin("t", np.zeros(5, np.int32), np.arange(100, 105)))
    timed = assign.assign(batch, 0, bad.append)
    assert timed.times.tolist() == [1500, 1002, 2000]
    assert [(each.value, each.where) for each in bad] == [
        (b'{"ms": 2}', {"source": "time", "topic": "t", "partition": 0, "offset": 101}),
        (b'{"ms": 5}', {"source": "time", "topic": "t", "partition": 0, "offset": 104}),
    ]
    assert [timed.chunk.origin.at(row)["offset"] for row in range(3)] == [100, 102, 103]
    assert bad[0].reason.startswith("time: a row without a usable event time in event_time")
    for wrong in (1.5, True, "1"):
        with pytest.raises(DefinitionError, match="time: the timestamp assigner gave"):
            assigner(lambda row, wrong=wrong: wrong).assign(batch, 0, bad.append)


def test_a_function_is_not_given_a_row_whose_other_time_python_has_not() -> None:
    batch = Batch(pa.record_batch({"ms": [1, 2], "at": pa.array([0, (LAST_MS + 1) * 1000], UTC_US)}))
    bad: list[Reject] = []
    timed = assigner(lambda row: row["ms"]).assign(batch, 0, bad.append)
    assert timed.times.tolist() == [1]
    assert [record.reason[:34] for record in bad] == ["column 'at': a value of the type t"]


def test_lines_are_a_column_of_bytes() -> None:
    assign = assigner(lambda row: int(row["value"]), pa.schema({"value": pa.binary()}))
    data = b"17\n4\n"
    timed = assign.assign(Lines(memoryview(data), np.array([2, 4]), FileOrigin("f", np.array([0, 3]))), 0, [].append)
    assert timed.times.tolist() == [17, 4]
    assert timed.chunk.origin.at(1) == {"file": "f", "offset": 3}


@pytest.mark.parametrize(
    ("text", "values", "times"),
    [
        ("ms", [5, None, True, "x", LAST_MS + 1, -1], [5, -1]),
        ("at", [datetime(1970, 1, 1, 0, 0, 0, 7999, UTC), None, 5], [7]),
        ("naive", [datetime(1970, 1, 1, 0, 0, 1), None], [1000]),
        ("timestamp_seconds(real)", [1.5, float("nan"), -0.0000019, 2], [1500, -1, 2000]),
        ("timestamp_micros(ms)", [1999, datetime(1970, 1, 1)], [1]),
    ],
)
def test_rows_as_python_values_have_the_times_that_columns_have(text: str, values: list[Any], times: list[int]) -> None:
    assign = assigner(text)
    assert assign.source is not None
    rows = [{assign.source.column: value, "n": n} for n, value in enumerate(values)]
    bad: list[Reject] = []
    timed = assign.assign(Records(rows, FileOrigin("f", range(100, 120)), list(range(len(rows)))), 0, bad.append)
    assert isinstance(timed.chunk, Records)
    assert timed.times.tolist() == times
    assert len(bad) == len(values) - len(times)
    for row, at in zip(timed.chunk.rows, times, strict=True):
        zone = None if text == "naive" else UTC
        assert row["event_time"].tzinfo is zone
        assert (row["event_time"].replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
            milliseconds=1
        ) == at
    assert [timed.chunk.where(i)["offset"] for i in range(len(times))] == [100 + row["n"] for row in timed.chunk.rows]
    assert all("event_time" not in row for row in rows), "a user's function may have made them"


def test_the_column_takes_the_place_of_one_of_that_name() -> None:
    schema = pa.schema({"Event_Time": pa.int64(), "n": pa.int64()})
    assign = assigner("event_time", schema)
    assert assign.schema(schema) == pa.schema({"event_time": UTC_US, "n": pa.int64()})
    timed = assign.assign(Batch(pa.record_batch([[1], [2]], ["Event_Time", "n"])), 0, [].append)
    assert isinstance(timed.chunk, Batch)
    assert timed.chunk.batch.schema == assign.schema(schema)
    assert assigner("naive").schema(COLUMNS).field("event_time").type == pa.timestamp("us")


def test_the_clock_gives_all_rows_its_time() -> None:
    assign = assigner_for("time", WatermarkStrategy.ingestion_time(), COLUMNS)
    assert isinstance(assign, EventTimeAssigner)
    batch = assign.assign(Batch(pa.record_batch({"n": [1, 2]})), 1234, [].append)
    rows = assign.assign(Records([{"n": 1}]), 1234, [].append)
    assert batch.times.tolist() == [1234, 1234]
    assert isinstance(rows.chunk, Records)
    assert rows.chunk.rows[0]["event_time"] == datetime(1970, 1, 1, 0, 0, 1, 234000, UTC)


def test_it_goes_to_tasks_and_loads_no_pandas_there() -> None:
    assign = pickle.loads(pickle.dumps(assigner("ms")))
    assert assign == assigner("ms")
    code = """
import sys
import numpy as np, pyarrow as pa
from poundlock import WatermarkStrategy
from poundlock.formats.chunk import Batch
from poundlock.tasks.columns import int_column
from poundlock.tasks.event_time import assigner_for
from poundlock.tasks.exchange.blocks import BlockWriter, ExchangeInput
from poundlock.tasks.exchange.received import grouped
from poundlock.tasks.event_time import SplitPlace
class Hashing:
    def key_hashes(self, columns): return np.arange(len(columns[0]), dtype=np.uint64)[::-1].copy()
    def groups_of(self, hashes, groups): return (hashes % np.uint64(groups)).astype(np.int32)
rows = pa.RecordBatch.from_arrays([int_column(np.array([1, 2, 1 << 62]), pa.int64())], ["ms"])
assign = assigner_for("t", WatermarkStrategy.monotonous(timestamp="ms"), rows.schema)
timed = assign.assign(Batch(rows), 0, lambda reject: None)
writer = BlockWriter(ExchangeInput(operator="o", keys=("ms",)), Hashing())
writer.add(timed.chunk.batch, SplitPlace("s", "p", 0)); writer.add(timed.chunk.batch, SplitPlace("s", "p", 1))
assert grouped(writer.finish()).num_rows == 4
assert not {"pandas", "pyspark"} & set(sys.modules), sorted(set(sys.modules) & {"pandas", "pyspark"})
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- what a task reports ----------------------------------------------------------------------------------------------------


class Marks:
    """Emits the time of each record that says so; marks its partition idle by the word."""

    def __init__(self) -> None:
        self.records = 0

    def on_record(self, record: dict[str, Any], timestamp: int, output: Any) -> None:
        self.records += 1
        if record["word"] == "mark":
            output.emit_watermark(timestamp)
        if record["word"] == "idle":
            output.mark_idle()

    def on_periodic_emit(self, output: Any) -> None:
        pass


def times_of(strategy: WatermarkStrategy) -> StreamTimes:
    return StreamTimes(TimeGraph((TimeNode("in", ()), TimeNode("time", ("in",), strategy, ("in",), kept=True))))


def timed_rows(*rows: tuple[int, str]) -> TimedChunk:
    bad: list[Reject] = []
    timed = assigner("ms").assign(Records([{"ms": at, "word": word} for at, word in rows]), 0, bad.append)
    assert not bad
    return timed


def test_the_greatest_of_each_split_and_how_many_there_were() -> None:
    strategy = WatermarkStrategy.monotonous(timestamp="ms")
    times = times_of(strategy)
    recorder = SplitTimesRecorder("time", strategy, times.directive(times.initial(), 0, {}))
    recorder.rows(timed_rows((5, ""), (9, "")), SplitPlace("in", "p", 1))
    recorder.rows(timed_rows((7, "")), SplitPlace("in", "p", 1))
    recorder.rows(timed_rows((2, "")), SplitPlace("in", "p", 2))
    recorder.rows(timed_rows(), SplitPlace("in", "q", 3))
    assert recorder.reports() == [SplitTimes("time", "in", "p", 1, 9, 3), SplitTimes("time", "in", "p", 2, 2, 1)]


def test_a_generator_sees_each_record_and_goes_on_in_the_next_checkpoint() -> None:
    strategy = WatermarkStrategy.for_generator(Marks, timestamp="ms", per_record=True)
    times, state = times_of(strategy), times_of(strategy).initial()
    watermarks = []
    for number, chunks in enumerate(
        [
            [timed_rows((100, "mark"), (900, "")), timed_rows((300, "mark"), (200, "mark"))],
            [timed_rows((1000, ""))],
            [],
            [timed_rows((1100, "mark"), (1200, "idle"))],
        ]
    ):
        directive = times.directive(state, number, {"in": SourceInput(("p",))})
        recorder = SplitTimesRecorder("time", strategy, directive)
        for sequence, chunk in enumerate(chunks):
            recorder.rows(chunk, SplitPlace("in", "p", sequence))
        reports = recorder.reports()
        assert len(reports) == bool(chunks), "one for the partition, for its splits are read here"
        advanced = times.advance(directive, reports)
        state = advanced.state
        watermarks.append((advanced.watermarks["time"].after, advanced.watermarks["time"].idle))
    assert watermarks == [(300, False), (300, False), (300, False), (300, True)]
    partition = state.sources["time"]["in"].partitions["p"]
    assert (partition.generator, partition.watermark) == ({"records": 7}, 1100)


@pytest.mark.parametrize(("per_record", "needed"), [(True, "on_record"), (False, "on_event")])
def test_what_a_function_made_is_refused_if_it_is_no_such_generator(per_record: bool, needed: str) -> None:
    strategy = WatermarkStrategy.for_generator(lambda: object(), timestamp="ms", per_record=per_record)  # type: ignore[arg-type,return-value]
    times = times_of(strategy)
    directive = times.directive(times.initial(), 0, {"in": SourceInput(("p",))})
    recorder = SplitTimesRecorder("time", strategy, directive)

    def read() -> None:
        recorder.rows(timed_rows((5, "")), SplitPlace("in", "p", 0))
        times.advance(directive, recorder.reports())

    with pytest.raises(DefinitionError, match=f"the watermark generator object has no method {needed}\nNext: write it"):
        read()


def test_the_clock_is_not_looked_for_in_rows() -> None:
    strategy = WatermarkStrategy.ingestion_time()
    times = times_of(strategy)
    recorder = SplitTimesRecorder("time", strategy, times.directive(times.initial(), 7, {}))
    recorder.rows(timed_rows((5, "")), SplitPlace("in", "p", 0))
    assert recorder.reports() == []
