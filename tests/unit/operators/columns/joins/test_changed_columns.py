"""Joins by columns that go on from state with other columns, and from state of single records, against joins record by record that go
through: pairs and late rows, over several checkpoints at another parallelism each.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import TerminalError
from poundlock.operators.columns.joins.interval_join import ColumnIntervalJoin
from poundlock.operators.columns.joins.kept_rows import read_as
from poundlock.operators.columns.joins.sides import JoinSide
from poundlock.operators.columns.joins.window_join import ColumnWindowJoin
from poundlock.operators.columns.operator import ColumnChunk
from poundlock.operators.columns.records import encode_records, layout_of
from poundlock.operators.factory import process_operator
from poundlock.operators.keyed.group import MAX, MIN
from poundlock.operators.keyed.output import GroupBatch
from poundlock.state.hashing import groups_of, hashes_of, key_hashes
from poundlock.state.inspect import StateReader
from poundlock.state.runs.merge import MergePolicy
from poundlock.state.scratch import OPERATOR, ScratchState
from poundlock.stream.nodes import IntervalJoinNode, WindowJoinNode
from poundlock.stream.windows.builtin_assigners import (
    CumulativeEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from poundlock.tasks.keyed_rows import PairRows
from support.examples import examples

GROUPS = 8
LATE = ("late-left", "late-right")
KEY, NUMBER = pa.field("k", pa.string()), pa.field("n", pa.int64())
VERSIONS = [
    pa.schema([KEY, ("n", pa.int32()), ("t", pa.string())]),
    pa.schema([KEY, NUMBER, ("t", pa.string()), ("d", pa.decimal128(10, 2))]),  # wider, and one more
    pa.schema([("d", pa.decimal128(12, 2)), ("t", pa.string()), KEY, NUMBER]),  # in another order
    pa.schema([KEY, NUMBER, ("f", pa.float64())]),  # two less, one more
    pa.schema([KEY, NUMBER, ("f", pa.float64()), ("t", pa.string())]),  # one is there again
]
WINDOWS = [
    TumblingEventTimeWindows("10 s", "3 s"),
    SlidingEventTimeWindows("10 s", "4 s"),
    CumulativeEventTimeWindows("5 s", "20 s"),
    TumblingProcessingTimeWindows("10 s"),
]
Row = tuple[Any, int, dict[str, Any]]  # key, time in ms, record
Node = IntervalJoinNode | WindowJoinNode


def interval_node(lower: int, upper: int) -> IntervalJoinNode:
    keys, times = [["k"], ["k"]], ["at", "at"]
    return IntervalJoinNode(
        "join",
        [],
        keys,
        times,
        None,
        dict.fromkeys(LATE),
        lower_ms=lower,
        upper_ms=upper,
        select=["left.k"],
        late_tags=LATE,
    )


def window_node(assigner: Any) -> WindowJoinNode:
    return WindowJoinNode(
        "join", [], [["k"], ["k"]], ["at", "at"], None, {}, kind="join", assigner=assigner, select=["left.k"]
    )


class Joined:
    """A join with its state, whose operator may be another one at each checkpoint."""

    def __init__(self, node: Node, policy: MergePolicy | None = None) -> None:
        self.node = node
        self.state = ScratchState(GROUPS, policy=policy)
        self.late_dropped = 0

    def checkpoint(
        self,
        sides: Sequence[Sequence[Row]],
        schemas: Sequence[pa.Schema],
        times: tuple[int, int, int],
        tasks: int,
        *,
        columns: bool,
    ) -> tuple[list[Any], list[Any]]:
        """Return pairs and late rows of all tasks, sorted; times are the watermark before and behind, and the clock."""
        before, after, clock = times
        self.state.parallelism = tasks
        chunks: list[Any] = []
        for task in range(tasks):
            group = self.state.open(task, before)
            operator: Any = self.operator(schemas) if columns else process_operator(self.node)
            operator.open()
            chunks += operator.advance_processing_time(group, clock)
            for side, rows in enumerate(sides):
                mine = [row for row in rows if int(groups_of(hashes_of([row[0]]), GROUPS)[0]) * tasks // GROUPS == task]
                if columns:
                    chunks += operator.take_side(group, batch(mine, schemas[side]), side)
                else:
                    batched = [[row[part] for row in mine] for part in (0, 2, 1)]
                    chunks += operator.process(group, GroupBatch(*batched, side=side))
            chunks += operator.advance_watermark(group, after)
            if columns:
                operator.store(group)
            self.late_dropped += operator.late_dropped
        self.state.write()
        return sorted_out(chunks, schemas)

    def operator(self, schemas: Sequence[pa.Schema]) -> Any:
        sides: Any = [
            JoinSide(("k",), "at", layout_of(schema) or "", tag) for schema, tag in zip(schemas, LATE, strict=True)
        ]
        output = PairRows(*schemas)
        if isinstance(self.node, IntervalJoinNode):
            return ColumnIntervalJoin(self.node.lower_ms, self.node.upper_ms, sides, output, key_hashes).operator()
        sides = [JoinSide(side.keys, side.time, side.layout) for side in sides]
        return ColumnWindowJoin(self.node.assigner, sides, output, key_hashes).operator()  # type: ignore[arg-type]


def batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([row[2].get(field.name) for row in rows], field.type) for field in schema]
    at = pa.array([row[1] * 1000 for row in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays([*columns, at], [*schema.names, "at"])


def sorted_out(chunks: Iterable[Any], schemas: Sequence[pa.Schema]) -> tuple[list[Any], list[Any]]:
    pairs, late = [], []
    for chunk in chunks:
        of_columns = isinstance(chunk, ColumnChunk)
        rows = chunk.rows.to_pylist() if of_columns else chunk.values
        for row, time in zip(rows, chunk.times.tolist() if of_columns else chunk.timestamps, strict=True):
            if chunk.tag:
                late.append((chunk.tag, row["n"], time))
                continue
            records = (row["left"], row["right"]) if of_columns else row
            named = [
                [(n, record.get(n)) for n in schema.names] for record, schema in zip(records, schemas, strict=True)
            ]
            pairs.append((time, *named))
    return sorted(pairs, key=repr), sorted(late)


def record(dice: random.Random, schema: pa.Schema, number: int, key: str) -> dict[str, Any]:
    values = {"k": key, "n": number, "t": dice.choice([None, "é", "y" * 40]), "f": dice.choice([None, -0.5])}
    values["d"] = Decimal(number).scaleb(-2) if dice.random() < 0.8 else None
    return {name: values[name] for name in schema.names}


@examples(10)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_state_is_read_whichever_columns_and_operator_it_was_written_with(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    lower = data.draw(st.integers(-5_000, 3_000))
    near = st.builds(interval_node, st.just(lower), st.integers(lower, lower + 8_000))
    of = data.draw(near | st.sampled_from(WINDOWS).map(window_node))
    policy = MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    one, other = Joined(of, policy), Joined(of, policy)
    count, taken_over = data.draw(st.integers(2, 7)), data.draw(st.sampled_from([0, 1, 2, 9]))
    versions = [0, 0]
    now, before, number = 0, MIN, 0
    for step in range(count):
        now += dice.randrange(7_000)
        if step > taken_over:  # what is taken over has the columns there are when it is
            versions = [dice.choice([at, dice.randrange(at, len(VERSIONS))]) for at in versions]
        schemas = [VERSIONS[at] for at in versions]
        sides: list[list[Row]] = []
        for schema in schemas:
            rows: list[Row] = []
            for _ in range(dice.randrange(16)):
                key, number = f"key-{dice.randrange(3)}", number + 1
                rows.append((key, now + dice.randrange(-9_000, 6_000), record(dice, schema, number, key)))
            sides.append(rows)
        after = before if dice.random() < 0.2 else max(before, now - dice.randrange(6_000))
        last = step == count - 1
        times = (before, MAX if last else after, now + 20_000 * last)
        tasks = dice.choice([1, 2, 7])
        expected = one.checkpoint(sides, schemas, times, tasks, columns=False)
        assert other.checkpoint(sides, schemas, times, tasks, columns=step >= taken_over) == expected
        before = after
        if dice.random() < 0.3:
            other.state = ScratchState.of(other.state.to_files())
    assert other.late_dropped == one.late_dropped
    if taken_over < count and isinstance(of, IntervalJoinNode):
        other.checkpoint([[], []], schemas, (MAX, MAX, 1 << 40), 1, columns=True)
        group = other.state.open()
        assert not any(group.namespaces(name) for name in group.tables)
        assert group.event_timers.next_time() is None


def test_rows_of_columns_that_were_once_are_read_by_people() -> None:
    joined = Joined(interval_node(-5_000, 5_000))
    for at, name in ((0, "left"), (1, "left 2"), (3, "left 3"), (1, "left 2")):
        schema = VERSIONS[at]
        rows = [("a", 5, record(random.Random(1), schema, at, "a"))]
        joined.checkpoint([rows, []], [schema] * 2, (0, 0, 0), 1, columns=True)
        there = [(e.table, e.value) for e in StateReader(joined.state.manifest, joined.state.files).entries(OPERATOR)]
        assert (name, rows[0][2]) in there
    assert len(there) == 4


def test_a_column_of_another_type_is_no_matter_once_its_rows_are_gone() -> None:
    joined, text = Joined(interval_node(-1_000, 1_000)), pa.schema([KEY, ("n", pa.string())])
    joined.checkpoint([[("a", 5, {"k": "a", "n": 1})], []], [VERSIONS[0]] * 2, (0, 0, 0), 1, columns=True)
    rows: list[Row] = [("a", 60_005, {"k": "a", "n": "x"})]
    with pytest.raises(TerminalError, match="n is of type int32; it is of type string now"):
        joined.operator([text, text]).use(joined.state.open())
    joined.checkpoint([[], []], [VERSIONS[0]] * 2, (0, 60_000, 0), 1, columns=True)
    joined.checkpoint([rows, []], [text, text], (60_000, 60_000, 0), 1, columns=True)
    pairs, _ = joined.checkpoint([[], rows], [text, text], (60_000, 60_000, 0), 1, columns=True)
    assert len(pairs) == 1


def test_records_whose_values_do_not_fit_are_refused_in_words() -> None:
    joined, number = Joined(interval_node(-1_000, 1_000)), pa.schema([KEY, ("t", pa.int64())])
    rows: list[Row] = [("a", 5, {"k": "a", "n": 1, "t": "no number"})]
    joined.checkpoint([rows, []], [VERSIONS[0]] * 2, (0, 0, 0), 1, columns=False)
    with pytest.raises(TerminalError, match="state holds a record that is not of the columns there are: column 't'"):
        joined.operator([number, number]).use(joined.state.open())


def test_no_column_at_all_is_read_of_rows_of_other_columns() -> None:
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["a"]), pa.array([1], pa.int32()), pa.array([None], pa.string())], schema=VERSIONS[0]
    )
    assert read_as(encode_records(rows), layout_of(VERSIONS[0]) or "", VERSIONS[3], []).num_columns == 0
    read = read_as(encode_records(rows), layout_of(VERSIONS[0]) or "", VERSIONS[3], ["f", "n"])
    assert (read.schema.names, read.to_pylist()) == (["f", "n"], [{"f": None, "n": 1}])
