"""Streams of a job as tables: their columns with the types of SQL, and what tasks make of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.formats.arrays import Numbers, column_of, numbers_in, valid_in
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.plan.known_columns import columns_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import PhysicalColumn, TableDefinition
from poundlock.sql.types import BYTES, STRING, SqlType
from poundlock.stream.definitions import event_time_column
from poundlock.stream.nodes import CalcNode, DeduplicateNode, Node, PythonNode, TopNNode
from poundlock.stream.stream import DataStream

_PLAIN = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.date32(): "DATE",
}  # fmt: skip
_TIME = SqlType("TIMESTAMP_LTZ", (3,))
_MICROS = pa.timestamp("us")


@dataclass(frozen=True)
class StreamTable:
    """A stream as a table.

    Args:
        is_updating: whether its rows have kinds of change.
    """

    stream: DataStream
    definition: TableDefinition
    is_updating: bool

    def program(self, fields: Sequence[Field]) -> StreamColumns:
        """Return what makes columns of a statement of its rows."""
        sources = tuple(f.name for f in fields)
        time = next((f.column for f in fields if f.time == "rowtime"), None)
        types = tuple(f.type.arrow for f in fields)
        return StreamColumns(sources, tuple(f.column for f in fields), types, time, self.is_updating)


def stream_table(name: str, stream: DataStream, schema: str | None) -> StreamTable:
    """Return a stream as a table.

    Args:
        schema: DDL of its columns; None for those that it has.

    Raises:
        DefinitionError: its columns are not known, have types that SQL has not, or the stream replaces rows without giving them.
    """
    known = columns_of(stream.node)
    declared = None if schema is None else ddl.parse(schema)
    if declared is not None and known is not None:
        missing = [each for each in declared.names if each not in known.names]
        if missing:
            raise DefinitionError(
                f"the stream has no column {missing[0]}", next=f"name some of {', '.join(known.names)}"
            )
    whole = declared if declared is not None else known
    if whole is None:
        raise _unknown(name, "the columns of the stream are", stream)
    is_updating = ROW_KIND in (known if known is not None else whole).names
    if is_updating:
        _check_replaced(stream.node)
    time = event_time_column(stream.node, "a table of SQL")
    columns = [
        PhysicalColumn(each.name, _TIME if each.name == time else _type(name, each, stream))
        for each in whole
        if each.name != ROW_KIND
    ]
    definition = TableDefinition(
        name=(name,),
        columns=tuple(columns),
        watermark=None,
        primary_key=(),
        partitioned_by=(),
        options={},
        comment=None,
        is_temporary=True,
        if_not_exists=False,
        like=None,
        query=None,
        event_time=time if any(each.name == time for each in columns) else None,
    )
    return StreamTable(stream, definition, is_updating)


def _unknown(name: str, what: str, stream: DataStream) -> DefinitionError:
    return DefinitionError(
        f"{what} not known before the job runs: it comes out of {stream.node.id}",
        next=f'say them: create_temporary_view("{name}", stream, schema="user string, n bigint")',
    )


def _type(name: str, field: pa.Field, stream: DataStream) -> SqlType:
    if pa.types.is_null(field.type):
        raise _unknown(name, f"the type of the column {field.name} is", stream)
    try:
        return sql_type(field.type)
    except KeyError:
        raise DefinitionError(
            f"the column {field.name} of {name} is {ddl.render_type(field.type)}, which SQL has no type for",
            next=f'leave it out: create_temporary_view("{name}", stream, schema="…")',
        ) from None


def sql_type(arrow: pa.DataType) -> SqlType:
    """Return the type of SQL that has the values of an Arrow type. Raises KeyError if there is none."""
    types = pa.types
    if types.is_string(arrow) or types.is_large_string(arrow):
        return STRING
    if types.is_binary(arrow) or types.is_large_binary(arrow):
        return BYTES
    if types.is_timestamp(arrow):
        return SqlType("TIMESTAMP" if arrow.tz is None else "TIMESTAMP_LTZ", (9 if arrow.unit == "ns" else 6,))
    if types.is_decimal(arrow):
        return SqlType("DECIMAL", (arrow.precision, arrow.scale))
    if types.is_list(arrow) or types.is_large_list(arrow):
        return SqlType("ARRAY", of=(sql_type(arrow.value_type),))
    if types.is_map(arrow):
        return SqlType("MAP", of=(sql_type(arrow.key_type).not_null(), sql_type(arrow.item_type)))
    if types.is_struct(arrow):
        inner = tuple(sql_type(each.type).with_null(each.nullable) for each in arrow)
        return SqlType("ROW", of=inner, names=tuple(each.name for each in arrow))
    return SqlType(_PLAIN[arrow])  # type: ignore[arg-type]


def _check_replaced(node: Node) -> None:
    """Refuse changes of which those that are replaced are not given.

    Raises:
        DefinitionError: the nearest step that gives changes does not give them.
    """
    while isinstance(node, (PythonNode, CalcNode)):
        (node,) = node.inputs
    replaces = isinstance(node, DeduplicateNode) or (isinstance(node, TopNNode) and node.rank is not None)
    if isinstance(node, (DeduplicateNode, TopNNode)) and replaces and not node.update_before:
        raise DefinitionError(
            f"{node.id} gives rows that stand for others, and not those others, which a query takes away first",
            next="ask for them: update_before=True",
        )


@dataclass(frozen=True)
class StreamColumns:
    """Rows of a stream with the columns of a statement, of its types.

    Args:
        sources: what columns are called in the stream; `names`: and in the statement.
        time: the one of event time, in whole ms there.
        keeps_kind: whether kinds of change are passed on.
    """

    sources: tuple[str, ...]
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    time: str | None
    keeps_kind: bool
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows."""
        columns = [
            self._column(rows.column(source), name, kind)
            for source, name, kind in zip(self.sources, self.names, self.types, strict=True)
        ]
        names = [*self.names]
        if self.keeps_kind:
            columns.append(rows.column(ROW_KIND))
            names.append(ROW_KIND)
        return pa.RecordBatch.from_arrays(columns, names), None

    def _column(self, column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
        if name != self.time:
            return column if column.type == kind else column.cast(kind)
        micros = column.cast(_MICROS)
        whole = column_of(numbers_in(micros) // 1_000 * 1_000, pa.int64(), valid_in(micros))
        return whole.cast(kind)

    def describe(self) -> str:
        """Return it in words."""
        return "calc: a stream as a table"
