"""Keyed operators over rows in an order for the tasks: aggregates of the rows around each, sorting, numbers that move, temporal joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.operators.columns.joins.temporal_join import ColumnTemporalJoin, TemporalSide
from poundlock.operators.columns.over.moving_ranks import ColumnMovingRanks
from poundlock.operators.columns.over.over import ColumnOver, Firing
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.operators.records import RecordMaker
from poundlock.plan.sql_text import resolve_column
from poundlock.state.hashing import key_hashes
from poundlock.stream.over_nodes import OverCall, OverNode, RowFrame, TemporalJoinNode
from poundlock.tasks.keyed_rows import KeyedInput, RecordRows
from poundlock.tasks.keyed_stage import KeyedHead


def over_head(node: OverNode, schema: pa.Schema, keys: Sequence[str], *, bounded: bool) -> KeyedHead:
    """Return the operator of aggregates of the rows around each, or of sorted rows.

    Args:
        schema: the columns of the input.
        keys: those of the key.

    Raises:
        DefinitionError: a column that is needed is not there, two of the result have one name, or a stream is to come to its end.
    """
    if not bounded:
        node.check_stream()

    def resolve(name: str) -> str:
        return resolve_column(schema, name, node.id)

    calls = [each.resolved(resolve) for each in node.calls]
    for call in calls:
        if call.filter is not None and schema.field(call.filter).type != pa.bool_():
            raise DefinitionError(
                f"{node.id}: the filter {call.filter} of {call.name} is of type {schema.field(call.filter).type}",
                next="give a column of truth values",
            )
    order = [replace(each, column=resolve(each.column)) for each in node.order]
    row_keys = RowKeys(tuple(keys), key_hashes)
    changes = node.gives_changes
    of: ColumnOver | ColumnMovingRanks
    if changes and not bounded:
        of = ColumnMovingRanks(row_keys, schema, order, calls, node.ttl_ms)
    else:
        firing: Firing = "end" if bounded else "event_time" if node.by == "event_time" else "arrival"
        if firing == "arrival":
            calls = [_of_arrival(each) for each in calls]
        of = ColumnOver(node.id, row_keys, schema, order, firing, calls, changes, node.limit, node.offset, node.ttl_ms)
    _check_names(node.id, of.out.names, "give the aggregate another name")
    return _head(node.id, of, [_taken(keys, schema.names)], of.out)


def _of_arrival(call: OverCall) -> OverCall:
    """Return an aggregate of rows that come out as they arrive: of all rows before is of those alone."""
    if call.frame.preceding is None:
        return replace(call, frame=RowFrame("rows", None, call.frame.following))
    return call


def temporal_join_head(
    node: TemporalJoinNode, schemas: Sequence[pa.Schema], keys: Sequence[Sequence[str]]
) -> KeyedHead:
    """Return the operator of a temporal join.

    Args:
        schemas: the columns of left and right.
        keys: those of their keys.

    Raises:
        DefinitionError: two columns of the result have one name, or left rows change.
    """
    if ROW_KIND in schemas[0].names:
        raise DefinitionError(
            f"{node.id}: the left rows of a temporal join change", next="join an append-only stream with the versions"
        )
    sides = [
        TemporalSide(
            RowKeys(tuple(own), key_hashes),
            pa.schema([field for field in schema if field.name != ROW_KIND]),
            resolve_column(schema, time, node.id),
        )
        for own, schema, time in zip(keys, schemas, node.times, strict=True)
    ]
    names = [name for side in sides for name in side.schema.names]
    _check_names(node.id, names, "give one of them another name before the join")
    join = ColumnTemporalJoin(node.id, (sides[0], sides[1]), node.kind, node.condition)
    return _head(node.id, join, [_taken(own, s.names) for own, s in zip(keys, schemas, strict=True)], join.out)


def _head(operator: str, of: Any, inputs: Sequence[KeyedInput], schema: pa.Schema) -> KeyedHead:
    return KeyedHead(operator, of.operator, inputs, {MAIN: RecordRows(operator, schema)})


def _taken(keys: Sequence[str], columns: Sequence[str]) -> KeyedInput:
    return KeyedInput(keys=list(keys), time=None, elements=RecordMaker(()), whole=list(columns))


def _check_names(operator: str, names: Sequence[str], advice: str) -> None:
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        raise DefinitionError(f"{operator}: two columns of the result are called {twice[0]}", next=advice)
