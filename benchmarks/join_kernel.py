"""Joins without Spark, record by record and by columns: CPU time for a row, from Arrow rows to Arrow pairs, state in runs included.

Prints one line a case; nothing is asserted but that both give the same pairs, since a figure means something only beside another of the
same minutes. Rows come 100,000 to a second of event time and up to 4 s out of order; the watermark is 5 s behind.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from benchmarks.data import WrongOutput
from poundlock.operators.columns.interval_join import ColumnIntervalJoin
from poundlock.operators.columns.joins import JoinSide
from poundlock.operators.columns.records import layout_of
from poundlock.operators.keyed.group import MIN
from poundlock.operators.process.joins import IntervalJoinOperator
from poundlock.state.hashing import key_hashes
from poundlock.state.scratch import ScratchState
from poundlock.tasks.keyed_rows import KeyedInput, PairColumns

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


def by_record(bounds: tuple[int, int], rows: int, keys: int) -> Figures:
    """Join record by record."""
    figures, state, before = Figures(), ScratchState(128), MIN
    operator = IntervalJoinOperator(*bounds)
    taken = KeyedInput(keys=["key"], time="at", columns=SCHEMA.names, whole=SCHEMA.names)
    for sides, watermark in batches(rows, keys):
        figures.start()
        group = state.open(0, before)
        for side, some in enumerate(sides):
            for first in range(0, some.num_rows, 65_536):
                for chunk in operator.process(group, taken.batch(some.slice(first, 65_536), side)):
                    figures.count(OUTPUT.rows(chunk))
        list(operator.advance_watermark(group, watermark))
        state.write()
        figures.stop()
        before = watermark
    return _ended(figures, state)


def by_columns(bounds: tuple[int, int], rows: int, keys: int) -> Figures:
    """Join by columns."""
    figures, state, before = Figures(), ScratchState(128), MIN
    side = JoinSide(("key",), "at", layout_of(SCHEMA) or "")
    join = ColumnIntervalJoin(*bounds, (side, side), OUTPUT, key_hashes)
    for sides, watermark in batches(rows, keys):
        figures.start()
        group, operator = state.open(0, before), join.operator()
        for number, some in enumerate(sides):
            for chunk in operator.take_side(group, some, number):
                figures.count(chunk.rows)
        list(operator.advance_watermark(group, watermark))
        operator.store(group)
        state.write()
        figures.stop()
        before = watermark
    return _ended(figures, state)


def _ended(figures: Figures, state: ScratchState) -> Figures:
    figures.state_mb = sum(file.bytes for file in state.manifest.files) / 1e6
    return figures


def main(rows: int, ways: Sequence[str]) -> None:
    for keys in (1_000, 100_000):
        for name, bounds in (("20 ms around", (-20, 20)), ("0 to 5 s later", (0, 5_000))):
            if name != "20 ms around" and keys < 100_000:
                continue  # 250 million pairs
            results = []
            for way, run in (("by record", by_record), ("by columns", by_columns)):
                if way in ways:
                    figures = run(bounds, rows, keys)
                    results.append((figures.pairs, figures.checksum))
                    print(
                        f"interval join {name:15} {keys:7} keys {way:10} {figures.spent / rows * 1e6:6.2f} us a row, "
                        f"{figures.pairs} pairs, {figures.state_mb:.1f} MB of state at the end",
                        flush=True,
                    )
            if len(set(results)) > 1:
                raise WrongOutput(f"the two ways gave other pairs: {results}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, sys.argv[2:] or ("by record", "by columns"))
