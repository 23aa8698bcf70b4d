"""The iceberg connector: tables of Apache Iceberg, read and written with Flink's options. A table that is not there is made when it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.iceberg.sink.sink import IcebergSink
from poundlock.connectors.iceberg.source.source import IcebergSource
from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import Numbers
from poundlock.sql.connectors.iceberg.options import options_of
from poundlock.sql.connectors.jdbc.columns import DELETED, WrittenRowsProgram, declared
from poundlock.sql.connectors.table import TableContext, TableSink, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.pruning import ColumnsRead
from poundlock.sql.tables import ConnectorColumn, TableDefinition
from poundlock.sql.types import SqlType


class IcebergTable:
    """Reads and writes tables of Iceberg."""

    def columns_read(self, definition: TableDefinition) -> ColumnsRead:
        return "columns"

    def source(self, table: TableContext) -> TableSource:
        options = options_of(table)
        _refuse_metadata(table)
        given: dict[str, Any] = {"columns": [field.name for field in table.fields], "branch": options.branch}
        if options.streaming:
            given |= {
                "mode": "incremental",
                "poll_every": options.monitor_interval,
                "starting_strategy": options.starting_strategy,
                "start_snapshot_id": options.start_snapshot_id,
                "start_timestamp": options.start_timestamp,
                "end_snapshot_id": options.end_snapshot_id,
            }
        given |= {"snapshot_id": options.snapshot_id, "as_of": options.as_of, "ref": options.tag}
        source = _made(table, IcebergSource, options.catalog, options.table, given)
        return TableSource(source, IcebergRowsProgram(table.fields, table.name.name, EvaluationContext(table.zone)))

    def sink(self, table: TableContext, *, overwrite: bool) -> TableSink:
        options = options_of(table)
        _refuse_metadata(table)
        if overwrite or table.static:
            raise OptionError(
                f"{table.name.name}: iceberg takes no {'INSERT OVERWRITE' if overwrite else 'INSERT … PARTITION (…)'}",
                next="INSERT INTO the table, with all of its columns",
                kind="unsupported_query",
            )
        is_keyed = bool(table.definition.primary_key) and (options.is_upsert or table.is_updating)
        if options.is_upsert and not is_keyed:
            raise OptionError(
                f"{table.name.name}: 'write.upsert.enabled' needs a key",
                next="add PRIMARY KEY (…) NOT ENFORCED to the table",
                kind="bad_option_value",
            )
        key = tuple(f for f in table.fields if f.name in table.definition.primary_key) if is_keyed else ()
        deletes = is_keyed and table.is_updating
        names = tuple(field.name for field in table.fields)
        sink = _made(
            table,
            IcebergSink,
            options.catalog,
            options.table,
            {
                "create": pa.schema(
                    [pa.field(f.name, made_as(f.type, f.name), f.type.is_nullable) for f in table.fields]
                ),
                "partition_by": table.definition.partitioned_by,
                "table_properties": options.properties,
                "key": [field.name for field in key] or None,
                "delete_when": DELETED if deletes else None,
                "branch": options.branch,
                "target_file_size": options.target_file_size,
            },
        )
        schema = pa.schema([pa.field(field.name, field.type.arrow) for field in table.fields])
        if deletes:
            schema = schema.append(pa.field(DELETED, pa.bool_()))
        program = WrittenRowsProgram(table.fields, names, table.name.name, deletes)
        takes: Any = "upsert" if key else "append"
        return TableSink(sink, program, schema, takes=takes, key=tuple(field.column for field in key))


def made_as(kind: SqlType, name: str) -> pa.DataType:
    """Return the type of Arrow with which a column of Iceberg is made.

    Raises:
        OptionError: Iceberg has none for it.
    """
    made = kind.arrow
    if pa.types.is_timestamp(made) and made.unit == "ns":
        raise OptionError(
            f"column {name!r} is {kind}, and tables that pyiceberg writes have six digits of a second",
            next=f"declare it as {kind.root}(6)",
            kind="bad_option_value",
        )
    return _widened(made)


def _widened(made: pa.DataType) -> pa.DataType:
    """Return a type that Iceberg has, and that has all values of another."""
    kinds = pa.types
    if kinds.is_int8(made) or kinds.is_int16(made):
        return pa.int32()
    if kinds.is_time(made):
        return pa.time64("us")
    if kinds.is_timestamp(made):
        return pa.timestamp("us", made.tz)
    if kinds.is_list(made):
        return pa.list_(_widened(made.value_type))
    if kinds.is_map(made):
        return pa.map_(_widened(made.key_type), _widened(made.item_type))
    if kinds.is_struct(made):
        return pa.struct([pa.field(field.name, _widened(field.type), field.nullable) for field in made])
    return made


@dataclass(frozen=True)
class IcebergRowsProgram:
    """Columns of an Iceberg table under their names in batches, as their declared types."""

    fields: tuple[Field, ...]
    table: str
    context: EvaluationContext
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows."""
        columns = [self._declared(rows.column(field.name), field) for field in self.fields]
        return pa.RecordBatch.from_arrays(columns, [field.column for field in self.fields]), None

    def _declared(self, column: pa.Array, field: Field) -> pa.Array:
        what, kind = f"{self.table}.{field.name}", field.type.arrow
        if pa.types.is_nested(kind) or pa.types.is_time(kind):
            try:
                return pc.cast(column, kind)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise TerminalError(
                    f"{what} is declared {field.type}, and the table's column is {column.type}: {error}",
                    next="declare the type that the column has there",
                ) from error
        return declared(column, field.type, what, self.context)

    def describe(self) -> str:
        """Return it in words."""
        return f"reads columns of {self.table}"


def _made(table: TableContext, cls: Any, catalog: Mapping[str, str], name: str, given: Mapping[str, Any]) -> Any:
    try:
        return cls(catalog, name, **given)
    except DefinitionError as error:
        raise OptionError(f"{table.name.name}: {error.what}", next=str(error.next), kind="bad_option_value") from None


def _refuse_metadata(table: TableContext) -> None:
    for column in table.definition.columns:
        if isinstance(column, ConnectorColumn):
            raise OptionError(
                f"{table.name.name}: iceberg has no metadata columns, and {column.name} is one",
                next="leave it out of the table",
                kind="unsupported_query",
            )
