"""Process functions, patterns, joins, top-N, deduplication and rolling aggregates for the tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.operators.columns.joins.interval_join import ColumnIntervalJoin
from poundlock.operators.columns.joins.pairs import PairFunction, PairOutput
from poundlock.operators.columns.joins.sides import JoinSide
from poundlock.operators.columns.joins.window_join import ColumnWindowJoin
from poundlock.operators.columns.operator import change_schema
from poundlock.operators.columns.records import layout_of
from poundlock.operators.columns.rows.deduplicate import ColumnDeduplication, FirstRecords, LastRecords
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.columns.rows.rolling import ColumnRolling
from poundlock.operators.columns.rows.top_n import ColumnTopN
from poundlock.operators.factory import join_by_record, process_by_record, process_operator
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.process.top_n import TopN
from poundlock.operators.records import RecordMaker, record_maker
from poundlock.plan.heads.columns import check_names, time_column
from poundlock.plan.normalize import Normalized
from poundlock.plan.sql_text import ordered_column, resolve_column
from poundlock.state.hashing import key_hashes
from poundlock.stream.functions.process import CoGroupFunction
from poundlock.stream.matching import MatchNode
from poundlock.stream.nodes import (
    DeduplicateNode,
    IntervalJoinNode,
    KeyedNode,
    ProcessNode,
    RollingNode,
    TopNNode,
    WindowJoinNode,
)
from poundlock.stream.windows.assigners import AlignedWindows
from poundlock.tasks.keyed_rows import KeyedInput, KeyedOutput, PairColumns, PairRows, RecordRows
from poundlock.tasks.keyed_stage import KeyedHead


def process_head(
    node: KeyedNode,
    graph: Normalized,
    schemas: Sequence[pa.Schema],
    keys: Sequence[Sequence[str]],
    timed: Sequence[bool],
    bounded: bool,
) -> KeyedHead:
    if isinstance(node, TopNNode):
        columns = [replace(each, column=ordered_column(schemas[0], each.column, node.id)) for each in node.order_by]
        node = replace(node, order_by=columns)
    if isinstance(node, RollingNode) and node.column is not None:
        node = replace(node, column=_rolled(node.id, node.kind, node.column, schemas[0]))
    inputs = []
    for side, schema in enumerate(schemas):
        needed = (
            isinstance(node, IntervalJoinNode)
            or (isinstance(node, WindowJoinNode) and node.assigner.is_event_time())
            or (isinstance(node, DeduplicateNode) and node.order == "event_time")
        )
        time = time_column(node.id, node.columns[side], schema, timed[side], needed=needed)
        wanted = node.records[side] if isinstance(node, ProcessNode) else None
        inputs.append(
            KeyedInput(
                keys=keys[side],
                time=time,
                elements=record_maker(wanted, schema, node.id) or RecordMaker(tuple(schema.names)),
                lazy=isinstance(node, ProcessNode),
                # A process function sends no row on as it came.
                whole=() if isinstance(node, ProcessNode) else schema.names,
            )
        )
    outputs: dict[str, KeyedOutput] = {}
    if node.id in graph.pairs:
        outputs[MAIN] = PairColumns(
            [
                (
                    pair.side,
                    name := resolve_column(schemas[pair.side], pair.column, node.id),
                    schemas[pair.side].field(name).with_name(pair.name),
                )
                for pair in graph.pairs[node.id]
            ]
        )
        check_names(node.id, outputs[MAIN], 'name one of them, as in select("left.ts", "right.ts AS right_ts")')
    elif isinstance(node, (IntervalJoinNode, WindowJoinNode)) and node.select:
        outputs[MAIN] = PairRows(*schemas)
    else:
        outputs[MAIN] = RecordRows(node.id, _main(node, schemas[0]))
    late = dict(zip(node.late_tags, schemas, strict=True)) if isinstance(node, IntervalJoinNode) else {}
    for tag, text in node.side_outputs.items():
        schema = late.get(tag, schemas[0]) if text is None else ddl.parse(text)
        outputs[tag] = RecordRows(node.id, schema)
    if isinstance(node, (IntervalJoinNode, WindowJoinNode)) and join_by_record(node) is None:
        join = _join_by_columns(node, inputs, schemas, outputs[MAIN])
        if join is not None:
            # A function sees the values of all columns, columns of pairs are never made Python values.
            taken = (
                [replace(each, elements=RecordMaker(())) for each in inputs]
                if _columns_of_pairs(outputs[MAIN])
                else inputs
            )
            return KeyedHead(node.id, join.operator, taken, outputs)
    broadcast = frozenset({1} if isinstance(node, ProcessNode) and node.broadcast else ())
    make = _process_by_columns(node, inputs[0], schemas[0], bounded=bounded)
    if make is None:
        make = partial(process_operator, node, bounded=bounded)
    return KeyedHead(node.id, make, inputs, outputs, first=1 if broadcast else 0, broadcast=broadcast)


def match_head(node: MatchNode, schema: pa.Schema, keys: Sequence[str], timed: bool) -> KeyedHead:
    """Return the operator of a pattern of rows, which are tuples to it."""
    column = node.columns[0]
    time = None if column is None else time_column(node.id, column, schema, timed, needed=True)
    columns = tuple(resolve_column(schema, name, node.id) for name in node.program.columns)
    taken = KeyedInput(keys=keys, time=time, elements=RecordMaker(columns, tuple))
    output = RecordRows(node.id, ddl.parse(node.schema or ""))
    return KeyedHead(node.id, partial(process_operator, node), [taken], {MAIN: output})


def _rolled(operator: str, kind: str, name: str, schema: pa.Schema) -> str:
    """Return the column that a rolling aggregate is of.

    Raises:
        DefinitionError: there is none, or its values cannot be added up, or have no order.
    """
    if kind != "sum":
        return ordered_column(schema, name, operator)
    column = resolve_column(schema, name, operator)
    values = schema.field(column).type
    if not (pa.types.is_integer(values) or pa.types.is_floating(values) or pa.types.is_decimal(values)):
        raise DefinitionError(
            f"{operator}: there is no sum of values of type {values}",
            next=f'make them numbers before: with_column("{name}", "CAST({name} AS DOUBLE)")',
        )
    return column


def _main(node: KeyedNode, schema: pa.Schema) -> pa.Schema:
    """Return the columns of the main output, given those of the first input.

    Raises:
        DefinitionError: one has a name that is given.
    """
    if isinstance(node, TopNNode):
        return change_schema(schema, node.rank)
    if isinstance(node, DeduplicateNode) and node.keep == "last":
        return change_schema(schema)
    return schema if node.schema is None else ddl.parse(node.schema)


def _process_by_columns(
    node: KeyedNode, taken: KeyedInput, schema: pa.Schema, *, bounded: bool
) -> Callable[[], KeyedOperator] | None:
    """Return what makes the operator of a step that works by columns, None where records are needed one by one."""
    if process_by_record(node) is not None:
        return None
    keys = RowKeys(tuple(taken.keys), key_hashes)
    if isinstance(node, RollingNode) and node.column is not None and node.column in schema.names:
        return ColumnRolling(node.kind, node.column, node.first, schema, keys, taken.time, bounded).operator
    if isinstance(node, TopNNode):
        return ColumnTopN(TopN.of(node), schema, keys, taken.time, bounded).operator
    if isinstance(node, DeduplicateNode):
        rows = ColumnDeduplication(node.order, schema, keys, taken.time, node.ttl_ms)
        of = FirstRecords(rows) if node.keep == "first" else LastRecords(rows, node.update_before, bounded)
        return of.operator
    return None


def _columns_of_pairs(output: KeyedOutput) -> PairOutput | None:
    return output if isinstance(output, (PairRows, PairColumns)) else None


def _join_by_columns(
    node: IntervalJoinNode | WindowJoinNode,
    inputs: Sequence[KeyedInput],
    schemas: Sequence[pa.Schema],
    output: KeyedOutput,
) -> ColumnIntervalJoin | ColumnWindowJoin | None:
    """Return a join's work by columns, None where a column is of a type that has no name in DDL."""
    tags = node.late_tags if isinstance(node, IntervalJoinNode) else (None, None)
    sides = []
    for taken, schema, tag in zip(inputs, schemas, tags, strict=True):
        layout = layout_of(schema)
        if layout is None:
            return None
        sides.append(JoinSide(tuple(taken.keys), taken.time, layout, tag))
    left, right = sides
    of: PairOutput | PairFunction | None = _columns_of_pairs(output)
    if of is None:
        assert node.function is not None
        assert not isinstance(node.function, CoGroupFunction)
        of = PairFunction(node.function, tuple(tag for tag, text in node.side_outputs.items() if text is not None))
    if isinstance(node, WindowJoinNode):
        assert isinstance(node.assigner, AlignedWindows)
        return ColumnWindowJoin(node.assigner, (left, right), of, key_hashes)
    return ColumnIntervalJoin(node.lower_ms, node.upper_ms, (left, right), of, key_hashes)
