"""The interval join by columns against the same join record by record: pairs and their order, late rows, through state files that merge
and tasks that change their number.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import indices_of
from poundlock.operators.columns.joins import held_rows, interval_join, matching
from poundlock.operators.columns.joins.interval_join import ColumnIntervalJoin, ColumnIntervalJoinOperator
from poundlock.operators.columns.joins.pairs import PairFunction
from poundlock.operators.columns.joins.sides import ColumnJoinOperator, JoinSide
from poundlock.operators.columns.records import layout_of
from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.keyed.output import GroupBatch, OutputChunk
from poundlock.operators.process.joins import IntervalJoinOperator
from poundlock.state.hashing import key_hashes
from poundlock.state.inspect import StateReader
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.scratch import OPERATOR
from poundlock.stream.functions.process import ProcessJoinFunction
from poundlock.stream.functions.state import ValueStateDescriptor
from poundlock.stream.stream import Side
from poundlock.tasks.keyed_rows import PairColumns, PairRows
from support.column_scripts import JoinScript
from support.examples import examples

KEYS = {
    "text": [pa.field("k", pa.string())],
    "number": [pa.field("k", pa.int64())],
    "both": [pa.field("k", pa.string()), pa.field("k2", pa.int64())],
}
TAGS = ("late-left", "late-right")
Row = tuple[Any, int, dict[str, Any]]  # key, time, record


class Counting(ProcessJoinFunction):
    """Counts the pairs of a key, and sends odd ones on."""

    def open(self, context: Any) -> None:
        self.n = context.get_state(ValueStateDescriptor("n", default=0))

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        self.n.update(self.n.value() + 1)
        yield {"pair": (left["n"], right["n"], right["t"]), "count": self.n.value()}
        yield Side("odd", {"times": (ctx.left_timestamp(), ctx.right_timestamp(), ctx.timestamp())})


class ByRecord(JoinScript):
    """The join record by record."""

    def __init__(
        self,
        bounds: tuple[int, int],
        tags: tuple[str | None, str | None],
        policy: MergePolicy,
        function: ProcessJoinFunction | None = None,
    ) -> None:
        super().__init__(policy)
        self.bounds, self.tags, self.function = bounds, tags, function

    def operator(self) -> IntervalJoinOperator:
        return IntervalJoinOperator(*self.bounds, self.function, late_tags=self.tags, tags=("odd",))

    def take(self, operator: Any, group: KeyGroup, rows: Sequence[Row], side: int) -> Iterable[OutputChunk]:
        batch = GroupBatch([r[0] for r in rows], [r[2] for r in rows], [r[1] for r in rows], side=side)
        return operator.process(group, batch)

    def results(self, chunks: Iterable[OutputChunk]) -> tuple[list[Any], list[Any]]:
        pairs, late = [], []
        for chunk in chunks:
            for value, time in zip(chunk.values, chunk.timestamps, strict=True):
                if chunk.tag in TAGS:
                    late.append((chunk.tag, value["n"], time))
                elif self.function is not None:
                    pairs.append((chunk.tag, value, time))
                else:
                    pairs.append((value[0]["n"], value[1]["n"], value[1]["t"], time))
        return pairs, late


class ByColumns(JoinScript):
    """The same by columns."""

    def __init__(
        self,
        keys: Sequence[pa.Field],
        bounds: tuple[int, int],
        tags: tuple[str | None, str | None],
        policy: MergePolicy,
        *,
        structs: bool = False,
        function: ProcessJoinFunction | None = None,
    ) -> None:
        super().__init__(policy)
        self.schema = pa.schema([*keys, ("n", pa.int64()), ("t", pa.string())])
        layout = layout_of(self.schema)
        assert layout is not None
        names = tuple(key.name for key in keys)
        left, right = (JoinSide(names, "at", layout, tag) for tag in tags)
        self.structs = structs
        parts = [(0, "n"), (1, "n"), (1, "t")]
        self.output: PairRows | PairColumns = PairRows(self.schema, self.schema)
        if not structs:
            fields = [self.schema.field(name).with_name(f"{name}{side}") for side, name in parts]
            self.output = PairColumns([(*part, field) for part, field in zip(parts, fields, strict=True)])
        calls = None if function is None else PairFunction(function, ("odd",))
        self.join = ColumnIntervalJoin(*bounds, (left, right), calls or self.output, key_hashes)

    def operator(self) -> ColumnJoinOperator:
        return self.join.operator()

    def take(self, operator: Any, group: KeyGroup, rows: Sequence[Row], side: int) -> Iterable[Any]:
        mine = self.batch(rows)
        for first in range(0, mine.num_rows, 9):  # many rows come by pieces
            yield from operator.take_side(group, mine.slice(first, 9), side)

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        columns = [pa.array([row[2][field.name] for row in rows], field.type) for field in self.schema]
        at = pa.array([row[1] * 1000 + 7 for row in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
        return pa.RecordBatch.from_arrays([*columns, at], [*self.schema.names, "at"])

    def results(self, chunks: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        pairs, late = [], []
        for chunk in chunks:
            if isinstance(chunk, OutputChunk):
                pairs += [(chunk.tag, value, time) for value, time in zip(chunk.values, chunk.timestamps, strict=True)]
                continue
            chunk.rows.validate(full=True)
            for row, time in zip(chunk.rows.to_pylist(), chunk.times.tolist(), strict=True):
                if chunk.tag:
                    late.append((chunk.tag, row["n"], time))
                elif self.structs:
                    pairs.append((row["left"]["n"], row["right"]["n"], row["right"]["t"], time))
                else:
                    pairs.append((*row.values(), time))
        return pairs, late


def row(dice: random.Random, kind: str, number: int, time: int) -> Row:
    key: Any = {
        "text": f"key-{dice.randrange(4)}" * dice.choice([1, 1, 8]),
        "number": dice.randrange(-2, 2),
        "both": (f"a{dice.randrange(2)}", dice.choice([None, 1])),
    }[kind]
    parts = key if type(key) is tuple else (key,)
    record = dict(zip([field.name for field in KEYS[kind]], parts, strict=True))
    return key, time, {**record, "n": number, "t": dice.choice([None, "x", "y" * 40])}


@examples(25)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_what_columns_do_is_what_records_do(data: st.DataObject, seed: int) -> None:
    compare(data, seed)


@examples(10)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_times_that_are_far_apart_are_matched_by_their_rank(data: st.DataObject, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "_LARGE", 1)
        compare(data, seed)


@examples(5)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_very_many_rows_are_searched_for_and_read_by_pieces(data: st.DataObject, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interval_join, "_AT_ONCE", 3)
        patch.setattr(held_rows, "_READ_BYTES", data.draw(st.sampled_from([0, 500, 1 << 20])))
        patch.setattr(held_rows, "_PAIR_BYTES", data.draw(st.sampled_from([1, 500, 1 << 20])))
        compare(data, seed)


def compare(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    unit = data.draw(st.sampled_from([1, 100, 10_000]))  # ms; with small ones many rows are exactly at a bound
    lower = data.draw(st.integers(-6, 6)) * unit
    bounds = lower, lower + data.draw(st.integers(0, 8)) * unit
    tags = data.draw(st.sampled_from([(None, None), TAGS, (None, TAGS[1])]))
    kind = data.draw(st.sampled_from(list(KEYS)))
    policy = MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    function = data.draw(st.sampled_from([None, Counting()]))
    one = ByRecord(bounds, tags, policy, function)
    other = ByColumns(KEYS[kind], bounds, tags, policy, structs=data.draw(st.booleans()), function=function)
    now, before, number = 0, MIN, 0
    for _ in range(data.draw(st.integers(1, 8))):
        now += dice.randrange(6)
        sides: list[list[Row]] = []
        for _ in range(2):
            rows = [
                row(dice, kind, number + i, (now + dice.randrange(-9, 6)) * unit) for i in range(dice.randrange(25))
            ]
            number += len(rows)
            sides.append(rows)
        after = before if dice.random() < 0.2 else max(before, (now - dice.randrange(6)) * unit)
        tasks = dice.choice([1, 2, 3])
        mine, theirs = (each.checkpoint(sides, before, after, tasks) for each in (one, other))
        if function is not None:  # a chunk has the rows of one output
            mine, theirs = (
                [(sorted(pairs, key=lambda row: row[0]), late) for pairs, late in each] for each in (mine, theirs)
            )
        assert theirs == mine
        before = after
    assert other.late_dropped == one.late_dropped
    one.checkpoint([[], []], before, MAX, 1)
    other.checkpoint([[], []], before, MAX, 1)
    group = other.state.open()
    assert not any(group.namespaces(name) for name in ("left", "right"))
    assert group.event_timers.next_time() is None


def test_pairs_come_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rows, "PIECE_ROWS", 7)
    rows = ByColumns(KEYS["number"], (-5, 5), (None, None), MergePolicy())
    operator, group = rows.join.operator(), rows.state.open()
    some = [(1, n % 3, {"k": 1, "n": n, "t": None}) for n in range(6)]
    assert not list(operator.take_side(group, rows.batch(some), 0))
    chunks = list(operator.take_side(group, rows.batch(some), 1))
    assert [len(chunk) for chunk in chunks] == [7, 7, 7, 7, 7, 1]


def test_rows_of_hashes_are_looked_up_from_either_side() -> None:
    class Held:
        hashes = pa.array([1, 1, 2, 5, 5, 9], pa.uint64()).to_numpy()

    for wanted in ([], [1], [5, 9], [0, 1, 3, 5, 9, 12], [7]):
        asked = pa.array(wanted, pa.uint64()).to_numpy()
        places = [place for place, hash_ in enumerate(Held.hashes.tolist()) if hash_ in wanted]
        assert matching.of_hashes(Held, asked).tolist() == places


def test_state_of_columns_is_refused_by_the_operator_of_records_and_not_passed_over() -> None:
    rows = ByColumns(KEYS["number"], (-5, 5), (None, None), MergePolicy())
    operator, group = rows.join.operator(), rows.state.open()
    list(operator.take_side(group, rows.batch([(1, 5, {"k": 1, "n": 1, "t": None})]), 0))
    operator.store(group)
    rows.state.write()
    with pytest.raises(
        TerminalError, match="state 'left' is kept as joined rows state and asked for as interval join state"
    ):
        list(IntervalJoinOperator(-5, 5).process(rows.state.open(), GroupBatch([1], [{}], [5])))


def test_a_column_that_has_another_type_than_the_rows_in_state_is_refused() -> None:
    rows = ByColumns(KEYS["number"], (-5, 5), (None, None), MergePolicy())
    operator, group = rows.join.operator(), rows.state.open()
    list(operator.take_side(group, rows.batch([(1, 5, {"k": 1, "n": 1, "t": None})]), 0))
    operator.store(group)
    rows.state.write()
    side = JoinSide(("k",), "at", "rows of k bigint, n int")
    other = ColumnIntervalJoinOperator(ColumnIntervalJoin(-5, 5, (side, side), rows.output, key_hashes))
    with pytest.raises(
        TerminalError,
        match=r"rows of the left side of a join in which n is of type int64; it is of type int32 now\nNext: CAST\(n\)",
    ):
        list(other.advance_watermark(rows.state.open(), 50))


def test_state_is_read_by_people() -> None:
    rows = ByColumns(KEYS["number"], (-5, 5), (None, None), MergePolicy())
    records = [{"k": 1, "n": n, "t": "x"} for n in range(3)]
    for record in records:
        operator, group = rows.join.operator(), rows.state.open()
        list(operator.take_side(group, rows.batch([(1, 5, record), (2, 5, record)]), 0))
        operator.store(group)
        rows.state.write()
    reader = StateReader(rows.state.manifest, rows.state.files)
    assert [entry.value for entry in reader.entries_of(OPERATOR, 1)] == [
        *records[:1] * 2,
        *records[1:2] * 2,
        *records[2:] * 2,
    ]
    assert sorted(entry.value["n"] for entry in reader.entries(OPERATOR)) == [0, 0, 1, 1, 2, 2]


def test_a_row_without_event_time_is_refused_in_words() -> None:
    rows = ByColumns(KEYS["text"], (-5, 5), (None, None), MergePolicy())
    batch = rows.batch([("a", 5, {"k": "a", "n": 1, "t": None})])
    batch = batch.set_column(batch.schema.get_field_index("at"), "at", pa.nulls(1, pa.timestamp("us", "UTC")))
    with pytest.raises(DefinitionError, match="a record of the right side of an interval join has no event time"):
        list(rows.join.operator().take_side(rows.state.open(), batch.take(indices_of([0])), 1))


def test_a_checkpoint_writes_what_came_and_nothing_else() -> None:
    rows = ByColumns(KEYS["number"], (-3_600_000, 3_600_000), (None, None), MergePolicy(fan_in=100))
    written: list[int] = []
    for number in range(10):
        came = [(n, number * 1000 + n, {"k": n, "n": n, "t": "x"}) for n in range(100)]
        rows.checkpoint([came, came], 0, 0, 2)
        there = [file for file in rows.state.manifest.files if file.checkpoint == rows.state.checkpoint]
        written.append(sum(file.bytes for file in there))
    assert max(written) <= 1.05 * min(written), "whatever was kept before"


def test_a_stream_that_is_far_ahead_of_the_other_is_kept_in_few_buckets() -> None:
    rows = ByColumns(KEYS["number"], (-1, 1), (None, None), MergePolicy())
    times = range(0, 86_400_000, 100_000)
    rows.checkpoint([[(1, time, {"k": 1, "n": time, "t": None}) for time in times], []], 0, 0, 1)
    assert len(rows.state.open().namespaces("left")) <= 65
    late = [(1, time + 1, {"k": 1, "n": time, "t": None}) for time in times[::7]]
    assert len(rows.checkpoint([[], late], 0, 0, 1)[0][0]) == len(late)


def test_a_row_that_python_has_no_time_for_is_joined_and_named_where_people_read_it() -> None:
    rows = ByColumns(KEYS["number"], (-5, 5), (None, None), MergePolicy())
    layout = "rows of k bigint, at timestamp"
    side = JoinSide(("k",), "at", layout)
    at = pa.array([1 << 60], pa.int64()).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array([1]), at], ["k", "at"])
    output = PairColumns([(0, "k", pa.field("k", pa.int64()))])
    for _ in range(2):
        operator = ColumnIntervalJoinOperator(ColumnIntervalJoin(-5, 5, (side, side), output, key_hashes))
        group = rows.state.open()
        chunks = [chunk for number in (0, 1) for chunk in operator.take_side(group, batch, number)]
        operator.store(group)
        rows.state.write()
    assert sum(len(chunk) for chunk in chunks) == 3
    with pytest.raises(TerminalError, match=r"that Python has not: .*\nNext: leave such rows out first"):
        list(StateReader(rows.state.manifest, rows.state.files).entries(OPERATOR))
