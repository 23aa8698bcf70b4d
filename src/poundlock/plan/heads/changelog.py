"""Keyed operators over changelogs for the tasks: aggregates of groups, Top-N, changelogs of upserts, and regular joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.operators.columns.changelog.aggregates import GroupAggregates
from poundlock.operators.columns.changelog.group_aggregate import ColumnGroupAggregation
from poundlock.operators.columns.changelog.normalize import ColumnChangelogNormalization
from poundlock.operators.columns.changelog.top_n import ColumnChangelogTopN
from poundlock.operators.columns.joins.regular_join import ChangelogSide, ColumnRegularJoin
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.operators.records import RecordMaker
from poundlock.plan.sql_text import ordered_column, resolve_column
from poundlock.state.hashing import key_hashes
from poundlock.stream.changelog_nodes import (
    ChangelogNormalizeNode,
    ChangelogTopNNode,
    GroupAggregateNode,
    RegularJoinNode,
    one_sided,
)
from poundlock.tasks.keyed_rows import KeyedInput, RecordRows
from poundlock.tasks.keyed_stage import KeyedHead


def group_aggregate_head(
    node: GroupAggregateNode,
    schema: pa.Schema,
    key_fields: Mapping[str, pa.Field],
    *,
    bounded: bool,
) -> KeyedHead:
    """Return the operator of aggregates of groups.

    Args:
        schema: the columns of the input.
        key_fields: by the column of each part of the key, its name and type in the result.

    Raises:
        DefinitionError: a column that is needed is not there, or two of the result have one name.
    """
    calls = [each.resolved(lambda name: resolve_column(schema, name, node.id)) for each in node.aggregates]
    for call in calls:
        if call.filter is not None and schema.field(call.filter).type != pa.bool_():
            raise DefinitionError(
                f"{node.id}: the filter {call.filter} of {call.name} is of type {schema.field(call.filter).type}",
                next="give a column of truth values",
            )
    keys = RowKeys(tuple(key_fields), key_hashes)
    aggregates = GroupAggregates(calls, schema, ROW_KIND in schema.names, key_hashes, node.ttl_ms)
    of = ColumnGroupAggregation(keys, list(key_fields.values()), aggregates, node.update_before, bounded)
    _check_names(node.id, of.schema.names, "give the aggregate another name")
    columns = [*keys.columns, *aggregates.columns, *([ROW_KIND] if aggregates.retracts else [])]
    # Rows without any column could not be counted.
    taken = _taken(keys.columns, list(dict.fromkeys(columns or schema.names[:1])))
    return _head(node.id, of.operator, [taken], of.schema)


def changelog_top_n_head(
    node: ChangelogTopNNode, schema: pa.Schema, keys: Sequence[str], *, bounded: bool
) -> KeyedHead:
    """Return the operator of the first rows of a changelog.

    Args:
        schema: the columns of the input; `keys`: those of its key.

    Raises:
        DefinitionError: a column of the order is not there or has no order, or the rows have the column of the place already.
    """
    own = pa.schema([field for field in schema if field.name != ROW_KIND])
    order = [replace(each, column=ordered_column(own, each.column, node.id)) for each in node.order_by]
    of = ColumnChangelogTopN(
        own,
        RowKeys(tuple(keys), key_hashes),
        order,
        node.first,
        node.last,
        node.rank,
        node.update_before,
        node.newest_first,
        node.ttl_ms,
        bounded,
    )
    return _head(node.id, of.operator, [_taken(keys, schema.names)], of.changes)


def changelog_normalize_head(node: ChangelogNormalizeNode, schema: pa.Schema, keys: Sequence[str]) -> KeyedHead:
    """Return the operator of the changelog of upserts.

    Args:
        schema: the columns of the input; `keys`: those of its key.
    """
    own = pa.schema([field for field in schema if field.name != ROW_KIND])
    of = ColumnChangelogNormalization(own, RowKeys(tuple(keys), key_hashes), node.ttl_ms)
    return _head(node.id, of.operator, [_taken(keys, schema.names)], of.changes)


def regular_join_head(
    node: RegularJoinNode, schemas: Sequence[pa.Schema], keys: Sequence[Sequence[str]], *, bounded: bool
) -> KeyedHead:
    """Return the operator of a regular join.

    Args:
        schemas: the columns of left and right.
        keys: those of their keys.

    Raises:
        DefinitionError: two columns of the result have one name.
    """
    sides = [
        ChangelogSide(
            RowKeys(tuple(own), key_hashes),
            pa.schema([field for field in schema if field.name != ROW_KIND]),
            ROW_KIND in schema.names,
            ttl_ms,
        )
        for own, schema, ttl_ms in zip(keys, schemas, node.ttl_ms, strict=True)
    ]
    names = [name for side in sides[: 1 if one_sided(node.kind) else 2] for name in side.schema.names]
    _check_names(node.id, names, "give one of them another name before the join")
    join = ColumnRegularJoin(node.kind, (sides[0], sides[1]), node.condition, tuple(node.null_equal), bounded)
    inputs = [_taken(own, schema.names) for own, schema in zip(keys, schemas, strict=True)]
    return _head(node.id, join.operator, inputs, join.schema)


def _head(
    operator: str, make: Callable[[], KeyedOperator], inputs: Sequence[KeyedInput], schema: pa.Schema
) -> KeyedHead:
    return KeyedHead(operator, make, inputs, {MAIN: RecordRows(operator, schema)})


def _taken(keys: Sequence[str], columns: Sequence[str]) -> KeyedInput:
    return KeyedInput(keys=list(keys), time=None, elements=RecordMaker(()), whole=list(columns))


def _check_names(operator: str, names: Sequence[str], advice: str) -> None:
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        raise DefinitionError(f"{operator}: two columns of the result are called {twice[0]}", next=advice)
