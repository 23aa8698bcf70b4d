"""A table as a part of a job: where its rows come from, or go, and what tasks compute of them there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable
from zoneinfo import ZoneInfo

import pyarrow as pa

from poundlock.formats.arrays import Numbers
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.catalog import FullName
from poundlock.sql.expressions.tree import Expression
from poundlock.sql.formats.format import RecordDecoder
from poundlock.sql.relations.demands import ScanDemand
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.pruning import ColumnsRead
from poundlock.sql.tables import TableDefinition
from poundlock.stream.nodes import RowProgram

Takes = Literal["append", "upsert", "retract"]
"""What changes a sink takes: insertions alone, the newest row of each key, or all of them."""


@dataclass(frozen=True, slots=True)
class TableContext:
    """A table, and what it is used for.

    Args:
        fields: the columns that are read, or written, as they are called in batches; those of the data and of the connector alone.
        is_batch: whether the job runs in batch mode.
        demand: what is wanted of a table that is read; more may be given.
        is_updating: whether rows have kinds of change that are written.
        static: the columns of partitions that an INSERT gives a value.
    """

    name: FullName
    definition: TableDefinition
    fields: tuple[Field, ...]
    zone: ZoneInfo
    is_batch: bool
    demand: ScanDemand = field(default_factory=ScanDemand)
    is_updating: bool = False
    static: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class TableSource:
    """Where a table's rows come from.

    Args:
        program: makes rows of what the source reads; None where it reads the rows themselves, under the names in batches.
        is_updating: whether rows have kinds of change.
    """

    source: Any
    program: RowProgram | None = None
    is_updating: bool = False


@dataclass(frozen=True, slots=True)
class TableSink:
    """Where a table's rows go.

    Args:
        program: makes of rows what the sink takes.
        schema: of that.
        key: the columns of batches by which an upsert tells rows apart.
    """

    sink: Any
    program: RowProgram
    schema: pa.Schema
    takes: Takes = "append"
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """How long what a table answered is kept.

    Args:
        max_rows: keys that a worker process keeps at most; 0: none is kept.
        after_write_ms, after_access_ms: since a key was asked for, and since it was last wanted; None for ever.
        keeps_missing: whether keys without a row are kept too.
    """

    max_rows: int = 0
    after_write_ms: int | None = None
    after_access_ms: int | None = None
    keeps_missing: bool = True


class RowLookup(Protocol):
    """A table that can be asked for the rows of some keys. Picklable."""

    @property
    def identity(self) -> str:
        """What its answers depend on: in a process, lookups of one identity share a cache. It holds no secret."""

    @property
    def cache(self) -> CacheLimits:
        """How long answers are kept."""

    def rows(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the table has for some keys now, in any order.

        Args:
            keys: columns in the order in which the lookup was asked for; no two rows are equal, and none has a null.

        Raises:
            TransientError: the database does not answer.
        """

    def describe(self) -> str:
        """Return it in words."""


@runtime_checkable
class LookupConnector(Protocol):
    """A connector whose tables can be asked for the rows of some keys."""

    def lookup(self, table: TableContext, keys: Sequence[Field]) -> RowLookup:
        """Return how a table is asked.

        Args:
            keys: the columns of the table by which it is asked.

        Raises:
            OptionError: as `TableConnector.source`.
        """


@runtime_checkable
class PrunedConnector(Protocol):
    """A connector that can leave out what nobody reads of its tables."""

    def columns_read(self, definition: TableDefinition) -> ColumnsRead:
        """Return what can be left out of a table."""


class TableConnector(Protocol):
    """Makes sources and sinks of tables."""

    def source(self, table: TableContext) -> TableSource:
        """Return where a table's rows come from.

        Raises:
            OptionError: its options do not say it, or it cannot be read.
        """

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        """Return where a table's rows go; raises as `source`."""


@dataclass(frozen=True)
class DecodeProgram:
    """Rows of the records in a column of bytes.

    Args:
        names: the columns that come out, in their order.
        carried: further columns of what was read, by the name that they have behind it.
        table: for `explain`.
    """

    decoder: RecordDecoder
    column: str
    names: tuple[str, ...]
    carried: tuple[tuple[str, str], ...]
    table: str
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows, and of which record each is."""
        from poundlock.formats.arrays import indices_of

        decoded, places = self.decoder.decode(rows.column(self.column), self.names)
        for name, wanted in self.carried:
            column = rows.column(name)
            decoded = decoded.append_column(wanted, column if places is None else column.take(indices_of(places)))
        names = [*self.names, *([ROW_KIND] if self.decoder.is_updating else [])]
        return decoded.select(names), places

    def describe(self) -> str:
        """Return it in words."""
        return f"reads records of {self.table}"
