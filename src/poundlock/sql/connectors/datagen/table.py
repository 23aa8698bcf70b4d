"""The datagen connector: rows that are made up, with Flink's options. Row i is a function of the table's name and i, whoever makes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.datagen.numbered import NumberedSource
from poundlock.connectors.datagen.rows import RowOrigin
from poundlock.connectors.datagen.source import DatagenEnumerator
from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.convert import to_records
from poundlock.sql.connectors.datagen.columns import GeneratedColumns
from poundlock.sql.connectors.datagen.values import ColumnValues, NumberedRows
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.relations.pruning import ColumnsRead
from poundlock.sql.tables import ConnectorColumn, PhysicalColumn, TableDefinition
from poundlock.storage import Storage
from poundlock.values import Clock, SystemClock

_CHUNK, _CHUNK_BYTES = 10_000, 16 << 20


class DatagenTable:
    """Makes rows up."""

    def columns_read(self, definition: TableDefinition) -> ColumnsRead:
        return "columns"

    def source(self, table: TableContext) -> TableSource:
        options = TableOptions(table.name.name, table.definition.options)
        options.required("connector")
        rate, most = options.whole("rows-per-second", 10_000), options.whole("number-of-rows")
        for name, value in (("rows-per-second", rate), ("number-of-rows", most)):
            if value is not None and value < (1 if name == "rows-per-second" else 0):
                raise OptionError(
                    f"{options.table}: {name!r} = '{value}' is not possible",
                    next=f"write such as '{name}' = '100'",
                    kind="bad_option_value",
                )
        if options.text("scan.parallelism") is not None:
            raise OptionError(
                f"{options.table}: 'scan.parallelism' cannot be set for one table",
                next="SET 'parallelism.default' = '…' for the job",
                kind="unsupported_query",
            )
        made = GeneratedColumns(options, table.zone)
        values: dict[str, ColumnValues] = {}
        for (
            each
        ) in table.definition.columns:  # of all of them, so that what a column holds depends on none that is read
            if isinstance(each, ConnectorColumn):
                raise OptionError(
                    f"{options.table}.{each.name}: datagen has no metadata",
                    next="declare it as a column, without METADATA",
                    kind="unknown_column",
                )
            if isinstance(each, PhysicalColumn):
                values[each.name] = made.of(each.name, each.type)
        options.finish("datagen")
        counts = [count for count in (most, made.rows) if count is not None]
        source = GeneratedRows(
            pa.schema([pa.field(f.column, f.type.arrow) for f in table.fields]),
            tuple(values[f.name] for f in table.fields),
            seed=int.from_bytes(blake2b(str(table.name).encode(), digest_size=8).digest(), "big"),
            rate=int(rate or 1),
            count=min(counts) if counts else None,
            chunk=max(1, min(_CHUNK, _CHUNK_BYTES // max(made.row_bytes, 1))),
        )
        return TableSource(source)

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        raise OptionError(
            f"{table.name.name}: datagen is no sink", next="write into another table", kind="unsupported_query"
        )


@dataclass(frozen=True)
class GeneratedRows(NumberedSource):
    """A source of rows that are made up. A position is a number of rows and the time at which row 0 was due: with the seed it says all.

    Args:
        columns: of the rows; `values` makes each.
        rate: rows a second, since the job first started.
        count: how many there are; None: there is no end.
        chunk: rows that are made at once.
    """

    columns: pa.Schema
    values: tuple[ColumnValues, ...]
    seed: int
    rate: int
    count: int | None
    chunk: int
    rows_per_checkpoint: int = 1_000_000
    rows_per_split: int = 100_000
    clock: Clock = field(default_factory=SystemClock, compare=False)

    @property
    def row_count(self) -> int | None:
        """How many rows there are; None: there is no end."""
        return self.count

    @property
    def place(self) -> str:
        """What it reads, for explain."""
        return f"made up, {self.rate} rows a second"

    def schema(self) -> pa.Schema:
        """Return the columns of the rows."""
        return self.columns

    def preflight(self) -> None:
        """Do nothing: all was looked at when the table was."""

    def enumerator(self, workspace: Storage) -> TimedDatagenEnumerator:
        """Return the driver's half; it remembers nothing."""
        return TimedDatagenEnumerator(self)

    def reader(self, context: ReaderContext) -> GeneratedRowsReader:
        """Return the task's half."""
        return GeneratedRowsReader(self, context)


class TimedDatagenEnumerator(DatagenEnumerator):
    """Driver's half, whose pieces of work say when row 0 was due as well."""

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        since = int(end["from_ms"])
        return [replace(split, payload={**split.payload, "from_ms": since}) for split in super().splits(start, end)]


@dataclass(frozen=True)
class GeneratedRowsReader:
    """Task's half: makes the rows of a split."""

    source: GeneratedRows
    context: ReaderContext

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a split."""
        payload, source = split.payload, self.source
        for start in range(int(payload["start"]), int(payload["stop"]), source.chunk):
            stop = min(start + source.chunk, int(payload["stop"]))
            rows = NumberedRows(start, stop, source.seed, int(payload["from_ms"]), source.rate)
            chunk = Batch(_made(source.values, rows, source.columns), RowOrigin(start))
            yield to_records(chunk) if self.context.want == "records" else chunk


def _made(values: Sequence[ColumnValues], rows: NumberedRows, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([each.make(rows) for each in values], schema=schema)
