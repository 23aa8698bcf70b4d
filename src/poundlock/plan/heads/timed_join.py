"""Joins of SQL by event time for the tasks: in intervals and in windows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.operators.columns.joins.kinds import JoinedColumns
from poundlock.operators.columns.joins.sides import JoinSide
from poundlock.operators.columns.joins.sql_interval_join import ColumnSqlIntervalJoin
from poundlock.operators.columns.joins.sql_window_join import ColumnSqlWindowJoin
from poundlock.operators.columns.records import layout_of
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.operators.records import RecordMaker
from poundlock.state.hashing import key_hashes
from poundlock.stream.changelog_nodes import one_sided
from poundlock.stream.timed_join_nodes import SqlIntervalJoinNode, SqlWindowJoinNode
from poundlock.tasks.keyed_rows import KeyedInput, RecordRows
from poundlock.tasks.keyed_stage import KeyedHead


def timed_join_head(
    node: SqlIntervalJoinNode | SqlWindowJoinNode,
    schemas: Sequence[pa.Schema],
    keys: Sequence[Sequence[str]],
    times: Sequence[str],
) -> KeyedHead:
    """Return the operator of a join by event time.

    Args:
        schemas: the columns of left and right.
        keys: those of their keys; `times`: those of their event time.

    Raises:
        DefinitionError: two columns of the result have one name, a side is a changelog, or a column cannot be kept in state.
    """
    own = [
        schema if isinstance(node, SqlIntervalJoinNode) else pa.schema([f for f in schema if f.name != time])
        for schema, time in zip(schemas, times, strict=True)
    ]
    output = JoinedColumns(node.kind, (own[0], own[1]), node.condition)
    names = own[0].names if one_sided(node.kind) else [*own[0].names, *own[1].names]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DefinitionError(
            f"{node.id}: two columns of the result are called {twice[0]}",
            next="give one of them another name before the join",
        )
    sides = [
        JoinSide(tuple(key), time, _layout(node.id, schema)) for key, time, schema in zip(keys, times, own, strict=True)
    ]
    inputs = [
        KeyedInput(keys=list(key), time=time, elements=RecordMaker(()), whole=schema.names)
        for key, time, schema in zip(keys, times, own, strict=True)
    ]
    of: ColumnSqlIntervalJoin | ColumnSqlWindowJoin
    if isinstance(node, SqlIntervalJoinNode):
        of = ColumnSqlIntervalJoin(node.lower_ms, node.upper_ms, (sides[0], sides[1]), output, key_hashes)
    else:
        of = ColumnSqlWindowJoin((sides[0], sides[1]), output, key_hashes)
    return KeyedHead(node.id, of.operator, inputs, {MAIN: RecordRows(node.id, output.schema)})


def _layout(operator: str, schema: pa.Schema) -> str:
    if ROW_KIND in schema.names:
        raise DefinitionError(
            f"{operator}: its input is a changelog, and a join by event time is of rows that stay",
            next="join it without bounds of time, or read an append-only table",
        )
    layout = layout_of(schema)
    if layout is None:
        raise DefinitionError(
            f"{operator}: a column is of a type that has no name in DDL: {', '.join(map(str, schema))}",
            next="CAST it to another type before the join, or leave it out",
        )
    return layout
