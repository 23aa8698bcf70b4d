"""The window join by columns against the same join record by record: pairs, late rows, the order of firings, through state files that
merge and tasks that change their number.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock.errors import DefinitionError, TerminalError
from poundlock.operators.columns.joins import held_rows
from poundlock.operators.columns.joins import window_join as module
from poundlock.operators.columns.joins.pairs import PairFunction
from poundlock.operators.columns.joins.sides import ColumnJoinOperator, JoinSide
from poundlock.operators.columns.joins.window_join import ColumnWindowJoin
from poundlock.operators.columns.operator import ColumnChunk
from poundlock.operators.columns.records import layout_of
from poundlock.operators.factory import join_by_record, process_operator
from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import GroupBatch, OutputChunk
from poundlock.state.hashing import key_hashes
from poundlock.state.runs.merge import MergePolicy
from poundlock.stream.functions.process import JoinFunction
from poundlock.stream.functions.state import ValueStateDescriptor
from poundlock.stream.nodes import WindowJoinNode
from poundlock.stream.windows.builtin_assigners import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from poundlock.stream.windows.builtin_triggers import CountTrigger, EventTimeTrigger, PurgingTrigger
from poundlock.tasks.keyed_rows import PairColumns
from support.column_scripts import JoinScript
from support.examples import examples

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
WINDOWS = [
    TumblingEventTimeWindows("10 s"),
    TumblingEventTimeWindows("10 s", "3 s"),
    SlidingEventTimeWindows("10 s", "4 s"),
    CumulativeEventTimeWindows("5 s", "20 s"),
    TumblingProcessingTimeWindows("10 s"),
]
Row = tuple[str, int, int]


def pair(left: Any, right: Any) -> Any:
    """Return nothing, a record or several."""
    row = {"k": left["k"], "l": left["n"], "r": right["n"]}
    return [None, row, [row, row]][(left["n"] + right["n"]) % 3]


class Counted(JoinFunction):
    """Counts the pairs of a key."""

    def open(self, context: Any) -> None:
        self.n = context.get_state(ValueStateDescriptor("n", default=0))

    def join(self, left: Any, right: Any) -> Iterator[Any]:
        self.n.update(self.n.value() + 1)
        yield {"k": left["k"], "l": left["n"], "r": right["n"], "n": self.n.value()}


PARTS = [(0, "k"), (1, "n")]
SELECTED = PairColumns([(side, name, SCHEMA.field(name).with_name(f"{name}{side}")) for side, name in PARTS])
"""What is made of pairs where they are selected."""


def node(function: Any, assigner: Any, **changed: Any) -> WindowJoinNode:
    options = {"kind": "join", "assigner": assigner, "function": function, **changed}
    return WindowJoinNode("join", [], [["k"], ["k"]], ["at", "at"], "k string, l bigint, r bigint", {}, **options)


class ByRecord(JoinScript):
    """The join record by record."""

    def __init__(self, of: WindowJoinNode, policy: MergePolicy) -> None:
        super().__init__(policy)
        self.node = of

    def operator(self) -> KeyedOperator:
        return process_operator(self.node)

    def take(self, operator: Any, group: KeyGroup, rows: Sequence[Row], side: int) -> Iterable[OutputChunk]:
        records = [{"k": key, "n": n} for key, _, n in rows]
        return operator.process(group, GroupBatch([r[0] for r in rows], records, [r[1] for r in rows], side=side))

    def results(self, chunks: Iterable[OutputChunk]) -> list[Any]:
        return results(chunks)


class ByColumns(JoinScript):
    """The same by columns."""

    def __init__(self, of: WindowJoinNode, policy: MergePolicy) -> None:
        super().__init__(policy)
        assert join_by_record(of) is None
        side = JoinSide(("k",), "at" if of.assigner.is_event_time() else None, layout_of(SCHEMA) or "")
        output = SELECTED if of.select else PairFunction(of.function)  # type: ignore[arg-type]
        self.join = ColumnWindowJoin(of.assigner, (side, side), output, key_hashes)  # type: ignore[arg-type]

    def operator(self) -> ColumnJoinOperator:
        return self.join.operator()

    def take(self, operator: Any, group: KeyGroup, rows: Sequence[Row], side: int) -> Iterable[OutputChunk]:
        for some in pieces(batch(rows)):
            yield from operator.take_side(group, some, side)

    def results(self, chunks: Iterable[OutputChunk | ColumnChunk]) -> list[Any]:
        return results(chunks)


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    at = pa.array([row[1] * 1000 for row in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
    keys, numbers = pa.array([row[0] for row in rows], pa.string()), pa.array([row[2] for row in rows], pa.int64())
    return pa.RecordBatch.from_arrays([keys, numbers, at], ["k", "n", "at"])


def pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows as they come where they are many, or none at all."""
    return (rows.slice(first, 7) for first in range(0, rows.num_rows, 7))


def results(chunks: Iterable[OutputChunk | ColumnChunk]) -> list[Any]:
    done: list[Any] = []
    for chunk in chunks:
        if isinstance(chunk, ColumnChunk):
            done += zip(chunk.times.tolist(), chunk.rows.to_pylist(), strict=True)
        elif chunk.values and isinstance(chunk.values[0], tuple):  # pairs that are selected from
            done += zip(chunk.timestamps, SELECTED.rows(chunk).select([0, 1]).to_pylist(), strict=True)
        else:
            done += zip(chunk.timestamps, chunk.values, strict=True)
    return done


def by_window_and_key(rows: list[Any], *, in_order: bool) -> list[Any]:
    """Return the results of each window in the order that windows fired, in each those of a key together."""
    windows = []
    for time, of in groupby(rows, key=lambda row: row[0]):
        records = [value for _, value in of]
        if in_order:
            records.sort(key=lambda record: record.get("k", record.get("k0")))
        else:  # which pair was counted as which depends on their order
            records = sorted(({**each, "n": 0} for each in records), key=repr)
        windows.append((time, records))
    return windows


@examples(25)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_what_columns_do_is_what_records_do(data: st.DataObject, seed: int) -> None:
    dice = random.Random(seed)
    assigner = data.draw(st.sampled_from(WINDOWS))
    function = data.draw(st.sampled_from([pair, Counted(), None]))
    of = node(function, assigner, select=[] if function else ["left.k AS k0", "right.n AS n1"])
    policy = MergePolicy(fan_in=data.draw(st.sampled_from([2, 3, 8])))
    one, other = ByRecord(of, policy), ByColumns(of, policy)
    of_a_side, read = data.draw(st.sampled_from([(1 << 20, 1 << 27), (2, 0)]))
    tumbling = isinstance(assigner, (TumblingEventTimeWindows, TumblingProcessingTimeWindows))
    in_order = tumbling and of_a_side > 2
    now, before, number = 0, MIN, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_AT_ONCE", data.draw(st.sampled_from([3, 1 << 20])))
        patch.setattr(module, "_OF_A_SIDE", of_a_side)
        patch.setattr(held_rows, "_READ_BYTES", read)
        for step in range(data.draw(st.integers(1, 7)) + 1):
            now += dice.randrange(9_000)
            sides: list[list[Row]] = []
            for _ in range(2):
                rows = [
                    (f"key-{dice.randrange(4)}", now + dice.randrange(-20_000, 6_000), number + i)
                    for i in range(dice.randrange(20) * (step > 0))
                ]
                number += len(rows)
                sides.append(rows)
            after = before if dice.random() < 0.1 else max(before, now - dice.randrange(8_000))
            tasks = dice.choice([1, 2, 3])
            mine, theirs = (each.checkpoint(sides, before, after, tasks, now) for each in (one, other))
            assert [by_window_and_key(rows, in_order=in_order) for rows in theirs] == [
                by_window_and_key(rows, in_order=in_order) for rows in mine
            ]
            before = after
        mine, theirs = (each.checkpoint([[], []], before, MAX, 1, 1 << 40) for each in (one, other))
    assert len(theirs[0]) == len(mine[0])
    assert other.late_dropped == one.late_dropped
    group = other.state.open()
    assert not any(group.namespaces(name) for name in ("left", "right"))


@pytest.mark.parametrize(
    ("join", "reason"),
    [
        (node(pair, WINDOWS[0]), None),
        (node(pair, WINDOWS[0], trigger=PurgingTrigger(EventTimeTrigger())), None),
        (node(pair, WINDOWS[0], kind="co_group"), "a function is given all records of a key"),
        (node(pair, WINDOWS[0], trigger=CountTrigger(2)), "its trigger, evictor or windows look at each element"),
        (node(pair, EventTimeSessionWindows("1 s")), "its sessions merge as rows of either side come"),
        (node(pair, SlidingEventTimeWindows("5 s", "9 s")), "there are gaps between its windows"),
        (node(pair, SlidingProcessingTimeWindows("9 s", "5 s")), "its windows overlap and go by the clock"),
        (
            node(pair, WINDOWS[0], allowed_lateness=timedelta(seconds=1)),
            "windows that fired fire again as late elements come",
        ),
    ],
)
def test_who_needs_records_one_by_one_and_why(join: WindowJoinNode, reason: str | None) -> None:
    assert join_by_record(join) == reason


def test_state_of_columns_is_refused_by_the_operator_of_records_and_not_passed_over() -> None:
    of = node(pair, WINDOWS[0])
    columns = ByColumns(of, MergePolicy())
    group, operator = columns.state.open(), columns.join.operator()
    list(operator.take_side(group, batch([("a", 5, 1)]), 0))
    operator.store(group)
    columns.state.write()
    with pytest.raises(
        TerminalError, match=r"state 'contents' is kept as joined slices state and asked for as panes state"
    ):
        list(process_operator(of).advance_watermark(columns.state.open(), 50))


def test_a_row_without_event_time_is_refused_in_words() -> None:
    columns = ByColumns(node(pair, WINDOWS[0]), MergePolicy())
    rows = batch([("a", 1, 1)]).set_column(2, "at", pa.nulls(1, pa.timestamp("us", "UTC")))
    with pytest.raises(DefinitionError, match="a record of the left side of a join in windows has no event time"):
        list(columns.join.operator().take_side(columns.state.open(), rows, 0))
