"""Joins without Spark, record by record and by columns: CPU time for a row, from Arrow rows to Arrow pairs, state in runs included.

Prints one line a case; nothing is asserted but that both give the same pairs, since a figure means something only beside another of the
same minutes. Rows come 100,000 to a second of event time and up to 4 s out of order; the watermark is 5 s behind.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.data import WrongOutput
from poundlock.operators.columns.joins.interval_join import ColumnIntervalJoin
from poundlock.operators.columns.joins.pairs import PairFunction
from poundlock.operators.columns.joins.sides import ColumnJoinOperator, JoinSide
from poundlock.operators.columns.joins.window_join import ColumnWindowJoin
from poundlock.operators.columns.operator import ColumnChunk
from poundlock.operators.columns.records import layout_of
from poundlock.operators.factory import window_operator
from poundlock.operators.keyed.group import MIN
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.process.joins import IntervalJoinOperator, JoinedSides
from poundlock.operators.records import RecordMaker
from poundlock.operators.windows.base import WindowSpec
from poundlock.state.hashing import key_hashes
from poundlock.state.scratch import ScratchState
from poundlock.stream.functions.process import ProcessJoinFunction, ProcessWindow
from poundlock.stream.nodes import WindowJoinNode
from poundlock.stream.windows.builtin_assigners import TumblingEventTimeWindows
from poundlock.tasks.keyed_rows import KeyedInput, KeyedOutput, PairColumns, RecordRows

BATCH = 100_000
SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64()), ("text", pa.string()), ("price", pa.float64())])
PARTS = [(0, "key", "key"), (0, "n", "n"), (1, "n", "m"), (1, "price", "price")]
OUTPUT = PairColumns([(side, name, SCHEMA.field(name).with_name(to)) for side, name, to in PARTS])
AT = pa.field("at", pa.timestamp("us", "UTC"))


@dataclass
class Figures:
    """What a way of working took, and what came of it."""

    spent: float = 0.0
    pairs: int = 0
    checksum: int = 0
    state_mb: float = 0.0
    begun: float = field(default=0.0, repr=False)

    def count(self, rows: pa.RecordBatch) -> None:
        """Take note of pairs; not on the clock."""
        self.stop()
        self.pairs += rows.num_rows
        products = rows.column("n").to_numpy() * 31 + rows.column("m").to_numpy()
        self.checksum = (self.checksum + int(products.sum())) % (1 << 61)
        self.start()

    def start(self) -> None:
        self.begun = time.process_time()

    def stop(self) -> None:
        self.spent += time.process_time() - self.begun


def batches(rows: int, keys: int) -> Iterator[tuple[list[pa.RecordBatch], int]]:
    """Yield the rows of left and right, with the watermark after them."""
    names = np.array([f"key-{i}" for i in range(keys)])
    for start in range(0, rows, BATCH):
        numbers = np.arange(start, start + BATCH)
        chosen = names[numbers * 2_654_435_761 % (1 << 32) % keys]
        at = numbers // 100 - 7919 * numbers % 4000
        sides = []
        for side in (0, 1):
            own = numbers // 3 % 2 == side
            count = int(own.sum())
            columns = [
                pa.array(chosen[own].tolist()),
                pa.array(numbers[own]),
                pa.array(["some text"] * count),
                pa.array([2.5] * count),
                pa.array(at[own] * 1000).cast(AT.type),
            ]
            sides.append(pa.RecordBatch.from_arrays(columns, schema=pa.schema([*SCHEMA, AT])))
        yield sides, (start + BATCH) // 100 - 5000


class Pair(ProcessJoinFunction):
    """A record of each pair."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield pair(left, right)


def pair(left: Any, right: Any) -> dict[str, Any]:
    """Return the same as the columns of a pair."""
    return {"key": left["key"], "n": left["n"], "m": right["n"], "price": right["price"]}


@dataclass(frozen=True)
class Join:
    """A join in both forms: what makes its operator, and what makes rows of what that emits."""

    name: str
    record: Callable[[], KeyedOperator]
    columns: Callable[[], ColumnJoinOperator]
    output: KeyedOutput


def joins(keys: int) -> Iterator[Join]:
    """Yield joins of which few enough pairs come."""
    side = JoinSide(("key",), "at", layout_of(SCHEMA) or "")
    sides, records, calls = (side, side), RecordRows("join", OUTPUT.schema), PairFunction(Pair())
    for name, bounds in (("20 ms around", (-20, 20)), ("0 to 5 s later", (0, 5_000))):
        if keys < 100_000 and name != "20 ms around":
            continue  # 250 million pairs
        columns = ColumnIntervalJoin(*bounds, sides, OUTPUT, key_hashes)
        yield Join(f"interval {name}", partial(IntervalJoinOperator, *bounds), columns.operator, OUTPUT)
        columns = ColumnIntervalJoin(*bounds, sides, calls, key_hashes)
        record = partial(IntervalJoinOperator, *bounds, Pair())
        yield Join(f"interval {name}, Python", record, columns.operator, records)
    if keys >= 100_000:
        windows = TumblingEventTimeWindows("2 s")
        for name, function in (("tumbling 2 s", None), ("tumbling 2 s, Python", pair)):
            node = WindowJoinNode(
                "join", [], [["key"]] * 2, ["at"] * 2, "", {}, kind="join", assigner=windows, function=function
            )
            spec = WindowSpec.of(node, ProcessWindow(JoinedSides(node, ())))
            of = OUTPUT if function is None else PairFunction(function)
            window_join = ColumnWindowJoin(windows, sides, of, key_hashes)
            output = OUTPUT if function is None else records
            yield Join(name, partial(window_operator, spec), window_join.operator, output)


def by_record(join: Join, rows: int, keys: int) -> Figures:
    """Join record by record."""
    figures, state, before = Figures(), ScratchState(128), MIN
    taken = KeyedInput(keys=["key"], time="at", elements=RecordMaker(tuple(SCHEMA.names)), whole=SCHEMA.names)
    for sides, watermark in batches(rows, keys):
        figures.start()
        group, operator = state.open(0, before), join.record()
        for side, some in enumerate(sides):
            for first in range(0, some.num_rows, 65_536):
                for chunk in operator.process(group, taken.batch(some.slice(first, 65_536), side)):
                    figures.count(join.output.rows(chunk))
        for chunk in operator.advance_watermark(group, watermark):
            figures.count(join.output.rows(chunk))
        state.write()
        figures.stop()
        before = watermark
    return _ended(figures, state)


def by_columns(join: Join, rows: int, keys: int) -> Figures:
    """Join by columns."""
    figures, state, before = Figures(), ScratchState(128), MIN
    for sides, watermark in batches(rows, keys):
        figures.start()
        group, operator = state.open(0, before), join.columns()
        for number, some in enumerate(sides):
            for chunk in operator.take_side(group, some, number):
                figures.count(chunk.rows if isinstance(chunk, ColumnChunk) else join.output.rows(chunk))
        for chunk in operator.advance_watermark(group, watermark):
            figures.count(chunk.rows if isinstance(chunk, ColumnChunk) else join.output.rows(chunk))
        operator.store(group)
        state.write()
        figures.stop()
        before = watermark
    return _ended(figures, state)


def _ended(figures: Figures, state: ScratchState) -> Figures:
    figures.state_mb = sum(file.bytes for file in state.manifest.files) / 1e6
    return figures


def main(rows: int) -> None:
    for keys in (1_000, 100_000):
        for join in joins(keys):
            results = set()
            for way, run in (("by record", by_record), ("by columns", by_columns)):
                figures = run(join, rows, keys)
                results.add((figures.pairs, figures.checksum))
                print(
                    f"{join.name:32} {keys:7} keys {way:10} {figures.spent / rows * 1e6:6.2f} us a row, "
                    f"{figures.pairs} pairs, {figures.state_mb:.1f} MB of state at the end",
                    flush=True,
                )
            if len(results) > 1:
                raise WrongOutput(f"{join.name}: the two ways gave other pairs: {results}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
