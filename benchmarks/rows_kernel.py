"""Steps that work row by row within a key, by columns and record by record: CPU time for a row, with state read from runs and written
to a run for every batch, as in a task.

Prints one line a case; nothing is asserted, since a figure means something only beside another of the same minutes. Both forms get the
same Arrow batches and give Arrow batches; what they give is compared.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.operators.columns.operator import ColumnOperator, ResultColumns, change_schema
from poundlock.operators.columns.rows.counts import ColumnCounts
from poundlock.operators.columns.rows.deduplicate import ColumnDeduplication, FirstRecords, LastRecords
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.columns.rows.rolling import ColumnRolling
from poundlock.operators.columns.rows.top_n import ColumnTopN
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.factory import window_operator
from poundlock.operators.keyed.group import MIN
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.process.deduplicate import FirstRecordOperator, LastRecordOperator, Order
from poundlock.operators.process.rolling import RollingOperator, rolling_fold
from poundlock.operators.process.top_n import TopN, TopNOperator
from poundlock.operators.records import RecordMaker
from poundlock.operators.windows.aggregates import SqlAggregate, SqlAggregates
from poundlock.operators.windows.base import WindowSpec
from poundlock.state.hashing import groups_of, key_hashes
from poundlock.state.scratch import ScratchState
from poundlock.stream.definitions import sort_columns
from poundlock.stream.windows.builtin_assigners import CountTumblingWindows
from poundlock.tasks.columns import int_column
from poundlock.tasks.keyed_rows import KeyedInput, KeyedOutput, RecordRows, WindowRows, with_times

BATCH = 100_000
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("price", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
KEYS = RowKeys(("k",), key_hashes)
TAKEN = KeyedInput(keys=["k"], time="at", elements=RecordMaker(tuple(SCHEMA.names)))


@dataclass(frozen=True)
class StepCase:
    """A step in both forms."""

    name: str
    record: Callable[[], KeyedOperator]
    columns: Callable[[], ColumnOperator]
    taken: KeyedInput
    output: KeyedOutput


def cases() -> Iterator[StepCase]:
    """Yield the steps."""
    for kind, column, bounded in (("sum", "n", False), ("max_by", "price", False), ("sum", "n", True)):
        rolling = ColumnRolling(kind, column, True, SCHEMA, KEYS, "at", bounded)
        record = partial(RollingOperator, rolling_fold(kind, column), bounded=bounded)
        name = f"rolling {kind}{', at the end' if bounded else ''}"
        yield StepCase(name, record, rolling.operator, TAKEN, RecordRows("rolling", SCHEMA))
    orders: tuple[Order, Order] = ("arrival", "event_time")
    for order in orders:
        rows = ColumnDeduplication(order, SCHEMA, KEYS, "at")
        first, last = partial(FirstRecordOperator, order), partial(LastRecordOperator, order)
        yield StepCase(f"first, {order}", first, FirstRecords(rows).operator, TAKEN, RecordRows("first", SCHEMA))
        output = RecordRows("last", change_schema(SCHEMA))
        yield StepCase(f"last, {order}", last, LastRecords(rows).operator, TAKEN, output)
    for rank in (None, "place"):
        top = TopN(10, sort_columns(["price desc", "n"]), rank)
        columns = ColumnTopN(top, SCHEMA, KEYS, "at")
        output = RecordRows("top", change_schema(SCHEMA, rank))
        name = f"top 10{' with ranks' if rank else ''}"
        yield StepCase(name, partial(TopNOperator, top), columns.operator, TAKEN, output)
    yield _counts()


def _counts() -> StepCase:
    aggregates = [
        SqlAggregate(kind="count"),
        SqlAggregate(kind="sum", column=0),
        SqlAggregate(kind="max", column=1),
        SqlAggregate(kind="avg", column=1),
    ]
    kinds = (pa.int64(), pa.float64())
    names = [pa.field(name, kind) for name, kind in zip("csma", (kinds[0], *kinds, kinds[1]), strict=True)]
    spec = WindowSpec(assigner=CountTumblingWindows(10), function=SqlAggregates(aggregates))
    of = ColumnAggregates(tuple(aggregates), kinds)
    keys = [SCHEMA.field("k")]
    columns = ColumnCounts(10, KEYS, ("n", "price"), of, ResultColumns(keys, names))
    taken = KeyedInput(keys=["k"], time=None, elements=RecordMaker(("n", "price"), tuple))
    return StepCase(
        "windows of 10 rows, 4 aggregates",
        partial(window_operator, spec),
        columns.operator,
        taken,
        WindowRows(keys, names),
    )


def batches(rows: int, keys: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield each batch, by key group as an exchange gives it, with the watermark after it."""
    names = pa.array([f"key-{i}" for i in range(keys)])
    for start in range(0, rows, BATCH):
        numbers = np.arange(start, start + BATCH)
        times = (numbers // 100 - 7919 * numbers % 4000) * 1000
        columns = [
            names.take(int_column(numbers * 2_654_435_761 % (1 << 32) % keys, pa.int64())),
            int_column(numbers, pa.int64()),
            pa.array(numbers * 7919 % 10_007 / 8),
            int_column(times, pa.int64()).view(pa.timestamp("us", "UTC")),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        order = np.argsort(groups_of(key_hashes([columns[0]]), 128), kind="stable")
        yield batch.take(int_column(order, pa.int64())), (start + BATCH) // 100 - 5000


def run(case: StepCase, *, by_columns: bool, rows: int, keys: int) -> tuple[float, int, float]:
    """Return CPU in us for a row, how many rows came out, and the MB of state at the end."""
    state, before, out, spent = ScratchState(128), MIN, 0, 0.0
    for batch, watermark in batches(rows, keys):
        began = time.process_time()
        group, operator = state.open(0, before), (case.columns if by_columns else case.record)()
        chunks: list[Any] = []
        if isinstance(operator, ColumnOperator):
            chunks += operator.take_rows(group, batch)
            chunks += operator.advance_watermark(group, watermark)
            operator.store(group)
            made = [with_times(chunk.rows.cast(case.output.schema), chunk.times) for chunk in chunks]
        else:
            chunks += operator.process(group, case.taken.batch(batch, 0))
            chunks += operator.advance_watermark(group, watermark)
            made = [case.output.rows(chunk) for chunk in chunks]
        out += sum(rows.num_rows for rows in made)
        state.write()
        spent += time.process_time() - began
        before = watermark
    return spent / rows * 1e6, out, sum(file.bytes for file in state.manifest.files) / 1e6


def main(rows: int) -> None:
    for keys in (1_000, 100_000):
        for case in cases():
            one, out, size = run(case, by_columns=False, rows=rows, keys=keys)
            other, same, my_size = run(case, by_columns=True, rows=rows, keys=keys)
            assert out == same, f"{case.name}: {out} rows record by record and {same} by columns"
            print(
                f"{case.name:32} {keys:7} keys: {one:6.2f} us a row record by record, {other:6.2f} by columns "
                f"({one / other:.1f} x), {out} rows out, {size:.1f} and {my_size:.1f} MB of state",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
