"""What operators by columns share: what comes in, what goes out, and how what was added is kept.

A host calls, for each checkpoint: `advance_processing_time`, `take` where rows came added up, `take_rows` where rows came as they are,
`advance_watermark`, `store`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import Flags, Numbers, column_of, indices_of, texts_of
from poundlock.operators.columns.encoding import decode_key_columns
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.partials import RowAggregation
from poundlock.operators.columns.sent import SentPartials
from poundlock.operators.keyed.group import MAX, KeyGroup, TimerEntries
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import MAIN, OutputChunk
from poundlock.operators.pieces import pieces, pieces_of_places
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.operators.windows.base import WindowSpec

_BOUND = pa.timestamp("us", "UTC")
Slice = tuple[int, int]


class EncodedRows(NamedTuple):
    """Rows as state keeps them: hashes, and the bytes of keys and of accumulators or whole rows, large_binary; subkeys where a key has
    several rows; times in ms where rows have some."""

    hashes: Hashes
    keys: pa.Array
    values: pa.Array
    subkeys: pa.Array | None = None
    times: Numbers | None = None


class Pending(Protocol):
    """What is to be written, if it is still there at the end of the checkpoint."""

    def __call__(self) -> EncodedRows:
        """Return the rows."""


class RowStore(Protocol):
    """Tables of rows, distinguished by a stretch of time; a `KeyGroup` that keeps its tables in state files is one."""

    def rows_of(self, name: str, namespace: Slice | None) -> Sequence[Any]:
        """Return what state files have of a table, oldest first: rows with hashes, keys and values, each by hash."""

    def entries_of(self, name: str, namespace: Slice | None) -> Any:
        """Return the rows of a table that are true, by hash."""

    def look_up(self, name: str, namespace: Slice, hashes: Hashes, keys: pa.Array) -> tuple[Numbers, Any]:
        """Return the rows of some keys that are true, and before them the number of each one's key; hashes ascend."""

    def look_up_between(self, name: str, namespace: Slice | None, first: Hashes, last: Hashes, keys: pa.Array) -> Any:
        """Return what `look_up` does of keys whose rows have hashes from a first to a last one."""

    def values_of(self, name: str, namespace: Slice | None, hashes: Hashes, keys: pa.Array) -> tuple[Numbers, pa.Array]:
        """Return the numbers of those keys that have an entry, ascending, and the values; hashes ascend."""

    def append(self, name: str, namespace: Slice | None, pending: Pending) -> None:
        """Put rows beside those that there are."""


class ColumnChunk(NamedTuple):
    """Rows of one output.

    Args:
        rows: the columns of the output.
        times: event time of each row in ms.
    """

    tag: str
    rows: pa.RecordBatch
    times: Numbers

    def __len__(self) -> int:
        return int(self.rows.num_rows)


class ColumnWork(Protocol):
    """How rows of windows come: added up, or one by one where `singly` says so. Picklable."""

    @property
    def partial(self) -> RowAggregation:
        """How rows add up."""

    @property
    def singly(self) -> bool:
        """Whether some rows are needed one by one, which `alone` tells."""

    def alone(self, times: Numbers, watermark: int) -> Flags:
        """Return which rows are needed one by one.

        Args:
            times: of each row, as `partial.times` gave them.
            watermark: that the rows are judged by.
        """

    def operator(self) -> PartialsOperator:
        """Return a new operator."""


@dataclass(frozen=True)
class ResultColumns:
    """The columns of a window's results. Picklable.

    Args:
        keys: name and type of each column of the key.
        results: the same of each result.
    """

    keys: Sequence[pa.Field]
    results: Sequence[pa.Field]

    def chunks(
        self, keys: pa.Array, results: Sequence[pa.Array], starts: Numbers | None = None, ends: Numbers | None = None
    ) -> Iterator[ColumnChunk]:
        """Yield results in chunks that are bounded in rows and bytes.

        Args:
            keys: the bytes of the keys.
            starts: of the windows, ms; `ends` likewise; None: they have no bounds.
        """
        columns = decode_key_columns(keys, [key.type for key in self.keys]) if self.keys else []
        bounds = [
            pa.nulls(len(keys), _BOUND) if bound is None else column_of(bound * 1000, _BOUND)
            for bound in (starts, ends)
        ]
        times = np.full(len(keys), MAX) if ends is None else ends - 1
        fields = [*self.keys, pa.field("window_start", _BOUND), pa.field("window_end", _BOUND), *self.results]
        batch = pa.RecordBatch.from_arrays([*columns, *bounds, *results], schema=pa.schema(fields))
        for first, count in pieces(batch.columns):
            yield ColumnChunk(MAIN, batch.slice(first, count), times[first : first + count])


INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
_KINDS = texts_of(["+I", "-U", "+U", "-D"])


def row_chunks(rows: pa.RecordBatch, places: Numbers, times: Numbers) -> Iterator[ColumnChunk]:
    """Yield some of the rows in chunks that are bounded in rows and bytes.

    Args:
        places: of the rows that are wanted; `times`: of each of those.
    """
    for some in pieces_of_places(rows.columns, places):
        yield ColumnChunk(MAIN, rows.take(indices_of(places[some])), times[some])


def change_schema(schema: pa.Schema, rank: str | None = None) -> pa.Schema:
    """Return the columns of changes.

    Raises:
        DefinitionError: the rows have one of them already.
    """
    added = [] if rank is None else [pa.field(rank, pa.int64())]
    added.append(pa.field(ROW_KIND, pa.string()))
    for field in added:
        if field.name in schema.names or (rank == ROW_KIND):
            raise DefinitionError(
                f"the records have a column {field.name!r} already, which holds {'their place' if field.name == rank else 'the kind of change'}",
                next="give theirs another name first: with_column(…) and drop(…)",
            )
    return pa.schema([*schema, *added])


def change_chunks(
    columns: Sequence[pa.Array],
    schema: pa.Schema,
    places: Numbers,
    kinds: Numbers,
    times: Numbers,
    *,
    ranks: Numbers | None = None,
) -> Iterator[ColumnChunk]:
    """Yield changes in chunks that are bounded in rows and bytes: rows with their rank, if that is wanted, and the kind of change in columns behind the others.

    Args:
        schema: of the changes.
        places: the row of each change; kinds: INSERT and so on; times: event time of each, ms.
    """
    for some in pieces_of_places(columns, places):
        rows, kind = indices_of(places[some]), _KINDS.take(indices_of(kinds[some]))
        taken = [column.take(rows) for column in columns]
        taken += [] if ranks is None else [column_of(ranks[some], pa.int64())]
        yield ColumnChunk(MAIN, pa.RecordBatch.from_arrays([*taken, kind], schema=schema), times[some])


_Rows = TypeVar("_Rows", bound=RowAggregation)


@dataclass(frozen=True)
class WindowColumns(Generic[_Rows]):
    """Windows, and their rows as columns: what `ColumnWork` of windows is of. Picklable.

    Args:
        spec: the windows.
        partial: how rows add up.
        output: the columns of results.
        late: the columns of late rows as they came, where they go to a side output.
    """

    spec: WindowSpec
    partial: _Rows
    output: ResultColumns
    late: Sequence[str] = ()


class ColumnOperator(KeyedOperator):
    """Base of operators that work on columns."""

    timer_entries: ClassVar[TimerEntries] = "windows"
    opens_tables_first: ClassVar[bool] = True

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        """Take rows as they are, in the order they came; called behind `take`, with a piece at a time where they are many."""
        raise NotImplementedError

    def store(self, group: KeyGroup) -> None:
        """Have what was added written with the checkpoint; called once, behind all that fired."""
        raise NotImplementedError

    @property
    def rows(self) -> Any:
        """The group in use, as a store of rows."""
        return self.group


class TwoInputColumnOperator(KeyedOperator):
    """Base of operators that take the rows of two inputs as columns."""

    timer_entries: ClassVar[TimerEntries] = "windows"
    opens_tables_first: ClassVar[bool] = True

    @property
    def rows(self) -> Any:
        """The group in use, as a store of rows."""
        return self.group

    def take_side(self, group: KeyGroup, rows: pa.RecordBatch, side: int) -> Iterator[ColumnChunk | OutputChunk]:
        """Take rows of one side, in the order they came.

        Raises:
            DefinitionError: a row has no event time, and needs one.
        """
        raise NotImplementedError

    def store(self, group: KeyGroup) -> None:
        """Have what was added written with the checkpoint; called once, behind all else."""
        raise NotImplementedError


class PartialsOperator(ColumnOperator):
    """Base of window operators whose rows come added up, but for those that are needed one by one."""

    def __init__(self, windows: WindowColumns[Any]) -> None:
        super().__init__()
        self.spec = windows.spec
        self._late_columns = list(windows.late)

    def take(self, group: KeyGroup, parts: Sequence[SentPartials]) -> None:
        """Take what rows of this checkpoint added up to where they were read, in their order."""
        raise NotImplementedError

    def send_late(self, rows: pa.RecordBatch, times: Numbers) -> Iterator[ColumnChunk]:
        """Send late rows to their side output, or count them."""
        if self.spec.late_tag is None:
            self.late_dropped += rows.num_rows
        elif rows.num_rows:
            yield ColumnChunk(self.spec.late_tag, rows.select(self._late_columns), times)
