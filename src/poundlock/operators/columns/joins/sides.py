"""What joins by columns share: how rows of two sides come in, late ones, and how rows are kept whole.

A host calls, for each checkpoint: `advance_processing_time`, `take_side` for each side, `advance_watermark`, `store`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import Flags, Numbers, indices_of, numbers_in
from poundlock.operators.columns.encoding import encode_key_columns
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.joins.kept_rows import SideTables
from poundlock.operators.columns.joins.matching import TimedRows
from poundlock.operators.columns.joins.pairs import PairFunction, PairOutput, emitter_of
from poundlock.operators.columns.msgpack.values import columns_of as record_columns
from poundlock.operators.columns.operator import ColumnChunk, TwoInputColumnOperator
from poundlock.operators.columns.records import columns_of

SIDES = ("left", "right")
HashKeys = Callable[[Sequence[pa.Array]], Hashes]


@dataclass(frozen=True)
class JoinSide:
    """One input of a join. Picklable.

    Args:
        keys: the columns of the key.
        time: the column of event time, a timestamp; None where windows end by the clock.
        layout: the columns that are kept of a row, as `layout_of` tells them.
        late_tag: side output of rows behind the watermark, with these columns; None to drop and count them.
    """

    keys: tuple[str, ...]
    time: str | None
    layout: str
    late_tag: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns that are kept of a row."""
        return columns_of(self.layout)


class ColumnJoinOperator(TwoInputColumnOperator):
    """Base of joins of side 0, left, and side 1, right, by columns."""

    kind: ClassVar[str]
    """What its state is called."""

    def __init__(
        self, sides: tuple[JoinSide, JoinSide], output: PairOutput | PairFunction, hash_keys: HashKeys
    ) -> None:
        super().__init__()
        self.sides = sides
        self.tables = [SideTables(name, self.kind, side.layout) for name, side in zip(SIDES, sides, strict=True)]
        self.emitter = emitter_of(output, self.out)
        self._hash_keys = hash_keys

    def open(self) -> None:
        self.emitter.open()

    def close(self) -> None:
        self.emitter.close()

    def from_records(
        self, side: int, entries: Any, of: Numbers, times: Numbers, records: Sequence[dict[str, Any]]
    ) -> TimedRows:
        """Return rows of a side that the operator of single records kept.

        Args:
            entries: its entries of state, one a key.
            of: of each row the place of its entry, ascending; `times`: its time, ms.
            records: what it is.

        Raises:
            TerminalError: a value does not fit the type that its column has now.
        """
        schema = self.sides[side].schema
        rows = pa.RecordBatch.from_arrays(record_columns(records, schema), schema=schema)
        return TimedRows(entries.hashes[of], entries.keys.take(indices_of(of)), times, rows)

    def event_times(self, rows: pa.RecordBatch, side: int, what: str) -> Numbers:
        """Return the event time of each row, ms.

        Raises:
            DefinitionError: one has none.
        """
        column = rows.column(self.sides[side].time)
        if column.null_count:
            raise DefinitionError(
                f"a record of the {SIDES[side]} side of {what} has no event time",
                next="call assign_timestamps_and_watermarks(WatermarkStrategy…) on both streams",
            )
        micros: Numbers = numbers_in(column.cast(pa.timestamp("us", column.type.tz)))
        return micros // 1000

    def send_late(self, rows: pa.RecordBatch, times: Numbers, late: Flags, side: int) -> Iterator[ColumnChunk]:
        """Send late rows to their side output, or count them."""
        gone, of = np.flatnonzero(late), self.sides[side]
        if of.late_tag is None:
            self.late_dropped += len(gone)
        elif len(gone):
            yield ColumnChunk(of.late_tag, rows.take(indices_of(gone)).select(of.schema.names), times[gone])

    def taken(self, rows: pa.RecordBatch, times: Numbers, flags: Flags, side: int) -> TimedRows:
        """Return some of the rows of a side as they are kept."""
        of = self.sides[side]
        if not flags.all():
            places = np.flatnonzero(flags)
            rows, times = rows.take(indices_of(places)), times[places]
        columns = [rows.column(name) for name in of.keys]
        records = rows.select(of.schema.names).cast(of.schema)
        return TimedRows(self._hash_keys(columns), encode_key_columns(columns), times, records)
