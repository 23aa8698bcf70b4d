"""Keyed operators for the tasks: how their rows come in, what they emit, and which columns an exchange has to bring.

Keys, times and arguments of aggregates are columns here; what has to be computed for them was computed before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.operators.columns.aggregation import FunctionAggregation
from poundlock.operators.columns.joins.interval_join import ColumnIntervalJoin
from poundlock.operators.columns.joins.pairs import PairFunction, PairOutput
from poundlock.operators.columns.joins.sides import JoinSide
from poundlock.operators.columns.joins.window_join import ColumnWindowJoin
from poundlock.operators.columns.operator import ColumnWork, ResultColumns, change_schema
from poundlock.operators.columns.partials import SessionAggregation, SliceAggregation, merges_by_time
from poundlock.operators.columns.records import layout_of
from poundlock.operators.columns.rows.counts import ColumnCounts
from poundlock.operators.columns.rows.deduplicate import ColumnDeduplication, FirstRecords, LastRecords
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.columns.rows.rolling import ColumnRolling
from poundlock.operators.columns.rows.sliding_counts import ColumnSlidingCounts
from poundlock.operators.columns.rows.top_n import ColumnTopN
from poundlock.operators.columns.sessions import ColumnSessions
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.columns.windows import ColumnWindows
from poundlock.operators.factory import (
    by_record,
    check_columns_do,
    join_by_record,
    process_by_record,
    process_operator,
    window_operator,
)
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.local_times import LocalTimes
from poundlock.operators.process.top_n import TopN
from poundlock.operators.records import RecordMaker, record_maker
from poundlock.operators.windows.aggregates import SqlAggregates
from poundlock.operators.windows.base import WindowSpec
from poundlock.plan.heads.changelog import (
    changelog_normalize_head,
    changelog_top_n_head,
    group_aggregate_head,
    regular_join_head,
)
from poundlock.plan.heads.over import over_head, temporal_join_head
from poundlock.plan.heads.timed_join import timed_join_head
from poundlock.plan.normalize import Expression, Normalized
from poundlock.plan.sql_text import ordered_column, resolve_column
from poundlock.state.hashing import key_hashes
from poundlock.stream.changelog_nodes import (
    ChangelogNormalizeNode,
    ChangelogTopNNode,
    GroupAggregateNode,
    RegularJoinNode,
)
from poundlock.stream.functions.process import ArrowAggregateWindow, CoGroupFunction
from poundlock.stream.matching import MatchNode
from poundlock.stream.nodes import (
    DeduplicateNode,
    IntervalJoinNode,
    KeyedNode,
    Node,
    PartitionNode,
    ProcessNode,
    RollingNode,
    TopNNode,
    WindowJoinNode,
    WindowNode,
)
from poundlock.stream.over_nodes import OverNode, TemporalJoinNode
from poundlock.stream.timed_join_nodes import SqlIntervalJoinNode, SqlWindowJoinNode
from poundlock.stream.windows.assigners import AlignedWindows
from poundlock.stream.windows.builtin_assigners import CountSlidingWindows, CountTumblingWindows, FixedSessions
from poundlock.tasks.columns import EVENT_TIME
from poundlock.tasks.exchange.blocks import ExchangeInput
from poundlock.tasks.keyed_rows import (
    KeyedInput,
    KeyedOutput,
    PairColumns,
    PairRows,
    RecordRows,
    WindowRows,
    check_keys,
)
from poundlock.tasks.keyed_stage import KeyedHead

NameOf = Callable[[pa.Schema, str], str]
"""Tells what Spark calls an expression over some columns."""


_OF_ONE_KEY = (ChangelogTopNNode, DeduplicateNode, GroupAggregateNode, MatchNode, OverNode, RegularJoinNode, TopNNode)
"""Steps of which all rows have one key where they name none."""
_BEFORE = "the columns of the key, window_start and window_end stand before those"


def keyed_head(
    node: WindowNode | KeyedNode,
    given: Sequence[pa.Schema | None],
    timed: Sequence[bool],
    graph: Normalized,
    name_of: NameOf,
    *,
    bounded: bool,
) -> KeyedHead:
    """Return the operator of a step.

    Args:
        given: the columns of each input.
        timed: per input, whether its rows have an event time in a hidden column.
        graph: the job's, which knows what was computed for the step.
        name_of: asked for the name of a key or result that is an expression.
        bounded: whether the job's input ends and only final results are wanted.

    Raises:
        DefinitionError: a column that is needed is not there, or keys of two inputs never meet.
    """
    schemas = [known_schema(node.id, schema) for schema in given]
    inputs = graph.inputs[node.id]
    keys = [
        [resolve_column(schema, key.column, node.id) for key in each.keys]
        for each, schema in zip(inputs, schemas, strict=True)
    ]
    keyed = [
        (each, pa.schema([schema.field(name) for name in names]))
        for each, schema, names in zip(inputs, schemas, keys, strict=True)
        if names
    ]
    check_keys(node.id, [[key.text for key in each.keys] for each, _ in keyed], [side for _, side in keyed])
    own = [
        pa.schema([field for field in schema if field.name not in each.hidden])
        for schema, each in zip(schemas, inputs, strict=True)
    ]
    if isinstance(node, WindowNode):
        return _window(node, graph, schemas[0], own[0], keys[0], timed[0], name_of)
    if isinstance(node, GroupAggregateNode):
        named = [_named(key, own[0], name_of) for key in inputs[0].keys]
        fields = {key: schemas[0].field(key).with_name(name) for key, name in zip(keys[0], named, strict=True)}
        return group_aggregate_head(node, schemas[0], fields, bounded=bounded)
    if isinstance(node, ChangelogTopNNode):
        return changelog_top_n_head(node, own[0], keys[0], bounded=bounded)
    if isinstance(node, ChangelogNormalizeNode):
        return changelog_normalize_head(node, own[0], keys[0])
    if isinstance(node, RegularJoinNode):
        return regular_join_head(node, own, keys, bounded=bounded)
    if isinstance(node, MatchNode):
        return _matches(node, schemas[0], keys[0], timed[0])
    if isinstance(node, OverNode):
        return over_head(node, own[0], keys[0], bounded=bounded)
    if isinstance(node, TemporalJoinNode):
        return temporal_join_head(node, own, keys)
    if isinstance(node, (SqlIntervalJoinNode, SqlWindowJoinNode)):
        times = [
            _event_time(node.id, column, schema, has_time)
            for column, schema, has_time in zip(node.columns, own, timed, strict=True)
        ]
        return timed_join_head(node, own, keys, times)
    return _process(node, graph, own, keys, timed, bounded)


def known_schema(operator: str, schema: pa.Schema | None) -> pa.Schema:
    """Return the columns of an input.

    Raises:
        DefinitionError: nobody knows them.
    """
    if schema is None:
        raise DefinitionError(
            f"{operator}: the columns of its input are not known", next="declare them: map(…, schema=…)"
        )
    return schema


def _window(
    node: WindowNode,
    graph: Normalized,
    schema: pa.Schema,
    own: pa.Schema,
    keys: Sequence[str],
    timed: bool,
    name_of: NameOf,
) -> KeyedHead:
    time = _time(node.id, node.column, schema, timed, needed=node.assigner.is_event_time())
    outputs: dict[str, KeyedOutput] = {}
    wanted = graph.aggregates.get(node.id)
    aggregates: SqlAggregates | None = None
    named = [_named(key, own, name_of) for key in graph.inputs[node.id][0].keys]
    fields = [pa.field(name, schema.field(key).type) for name, key in zip(named, keys, strict=True)]
    if isinstance(node.function, ArrowAggregateWindow):
        outputs[MAIN] = _function_results(node, fields)
        chosen = node.function.aggregate.columns or own.names
        elements = [resolve_column(schema, name, node.id) for name in chosen]
        whole = own.names if node.late_tag is not None else []
        taken = KeyedInput(keys=keys, time=time, elements=RecordMaker(tuple(elements), tuple), whole=whole)
    elif wanted is None:
        outputs[MAIN] = RecordRows(node.id, own if node.schema is None else ddl.parse(node.schema))
        taken = KeyedInput(keys=keys, time=time, elements=RecordMaker(tuple(own.names)), whole=own.names)
    else:
        aggregates = SqlAggregates(wanted.aggregates)
        types = wanted.result_types(schema, node.id)
        results = [_named(result, own, name_of) for result in wanted.results]
        outputs[MAIN] = WindowRows(fields, [pa.field(n, t) for n, t in zip(results, types, strict=True)])
        _check_names(node.id, outputs[MAIN], f"give the aggregate another name with AS: {_BEFORE}")
        elements = [resolve_column(schema, name, node.id) for name in wanted.arguments]
        if not elements and not keys and not node.assigner.is_event_time():
            elements = own.names[:1]  # rows without a column cannot be counted
        whole = own.names if node.late_tag is not None else []
        taken = KeyedInput(keys=keys, time=time, elements=RecordMaker(tuple(elements), tuple), whole=whole)
    outputs |= {tag: RecordRows(node.id, ddl.parse(text)) for tag, text in node.side_outputs.items()}
    if node.late_tag is not None:
        outputs[node.late_tag] = RecordRows(node.id, own)
    spec = WindowSpec.of(node, aggregates)
    windows = _by_columns(node, spec, taken, schema, outputs[MAIN])
    if isinstance(windows, (ColumnCounts, ColumnSlidingCounts)):
        return KeyedHead(node.id, windows.operator, [taken], outputs)
    if windows is not None:
        return KeyedHead(node.id, windows.operator, [taken], outputs, windows=windows)
    return KeyedHead(node.id, partial(window_operator, spec), [taken], outputs)


def _function_results(node: WindowNode, keys: Sequence[pa.Field]) -> WindowRows:
    """Return the columns of an aggregate of the user's own.

    Raises:
        DefinitionError: one has the name of another.
    """
    output = WindowRows(keys, list(ddl.parse(node.schema or "")))
    _check_names(node.id, output, f"rename it in schema=: {_BEFORE}")
    return output


def _check_names(operator: str, output: KeyedOutput, advice: str) -> None:
    """Refuse an output of which two columns have one name.

    Raises:
        DefinitionError: two have.
    """
    names = output.schema.names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DefinitionError(f"{operator}: two columns of the result are called {twice[0]}", next=advice)


def _by_columns(
    node: WindowNode, spec: WindowSpec, taken: KeyedInput, schema: pa.Schema, output: KeyedOutput
) -> ColumnWork | ColumnCounts | ColumnSlidingCounts | None:
    """Return a window operator's work by columns, None where records are needed one by one.

    Raises:
        DefinitionError: they are needed so, and the user's function takes columns.
    """
    if not isinstance(output, WindowRows):
        return None
    arguments = tuple(schema.field(name).type for name in taken.columns)
    aggregates: ColumnAggregates | FunctionAggregation
    if isinstance(spec.function, ArrowAggregateWindow):
        function = spec.function.aggregate
        check_columns_do(node.id, spec)
        aggregates = FunctionAggregation(node.id, function, tuple(taken.columns), node.schema or "")
    elif isinstance(spec.function, SqlAggregates):
        if by_record(spec) is not None:
            return None
        aggregates = ColumnAggregates(spec.function.aggregates, arguments, merges_by_time(spec.assigner))
    else:
        return None
    results = ResultColumns(output.keys, output.results)
    if isinstance(spec.assigner, (CountTumblingWindows, CountSlidingWindows)):
        return _counted(spec.assigner, taken, aggregates, results)
    time = (
        taken.time if spec.assigner.is_event_time() else None
    )  # a stream with event time may be in windows of the clock
    local = None if node.zone is None else LocalTimes(node.zone)
    rows = (tuple(taken.keys), time, tuple(taken.columns), aggregates, spec.assigner, key_hashes, local)
    if isinstance(spec.assigner, FixedSessions):
        return ColumnSessions(spec, SessionAggregation(*rows), results, tuple(taken.whole))
    return ColumnWindows(spec, SliceAggregation(*rows), results, tuple(taken.whole))


def _counted(
    assigner: CountTumblingWindows | CountSlidingWindows,
    taken: KeyedInput,
    aggregates: ColumnAggregates | FunctionAggregation,
    results: ResultColumns,
) -> ColumnCounts | ColumnSlidingCounts:
    """Return the work by columns of windows of a number of rows."""
    keys, arguments = RowKeys(tuple(taken.keys), key_hashes), tuple(taken.columns)
    if isinstance(assigner, CountSlidingWindows):
        sizes = assigner.n, assigner.slide, assigner.full_only
        return ColumnSlidingCounts(*sizes, keys, arguments, aggregates, results)
    if isinstance(aggregates, ColumnAggregates):
        return ColumnCounts(assigner.n, keys, arguments, aggregates, results)
    return ColumnSlidingCounts(assigner.n, assigner.n, False, keys, arguments, aggregates, results)


def _named(expression: Expression, schema: pa.Schema, name_of: NameOf) -> str:
    return name_of(schema, expression.text) if expression.name is None else expression.name


def _process(
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
        time = _time(node.id, node.columns[side], schema, timed[side], needed=needed)
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
        _check_names(node.id, outputs[MAIN], 'name one of them, as in select("left.ts", "right.ts AS right_ts")')
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


def _matches(node: MatchNode, schema: pa.Schema, keys: Sequence[str], timed: bool) -> KeyedHead:
    """Return the operator of a pattern of rows, which are tuples to it."""
    column = node.columns[0]
    time = None if column is None else _time(node.id, column, schema, timed, needed=True)
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


def _time(operator: str, column: str | None, schema: pa.Schema, timed: bool, *, needed: bool) -> str | None:
    """Return the column with the event time: as the strategy named it, or as a keyed step before has set it."""
    if column is not None and column in schema.names:
        return column
    if timed:
        return EVENT_TIME
    if needed:
        raise DefinitionError(
            f"{operator}: the column {column!r} with the event time is gone before it",
            next="keep it in select(…), or assign timestamps and watermarks right before",
        )
    return None


def _event_time(operator: str, column: str | None, schema: pa.Schema, timed: bool) -> str:
    """Return the column with the event time; raises as `_time` where there is none."""
    time = _time(operator, column, schema, timed, needed=True)
    assert time is not None
    return time


def exchange_inputs(node: Node, head: KeyedHead, *, max_parallelism: int) -> list[tuple[ExchangeInput, list[str]]]:
    """Return what the exchange before a step brings to each of its inputs, and the columns of that."""
    exchanged = []
    for side, taken in enumerate(head.inputs):
        keyless = isinstance(node, KeyedNode) and not taken.keys and not isinstance(node, _OF_ONE_KEY)
        how: Literal["keyed", "broadcast", "spread"] = "spread" if keyless else "keyed"
        to = ExchangeInput(
            operator=head.id,
            side=side,
            keys=tuple(taken.keys),
            how="broadcast" if side in head.broadcast else how,
            max_parallelism=max_parallelism,
        )
        columns = dict.fromkeys([*taken.whole, *taken.keys, *taken.columns, *([taken.time] if taken.time else [])])
        exchanged.append((to, list(columns)))
    return exchanged


def placing_input(node: PartitionNode, keys: Sequence[str]) -> ExchangeInput:
    """Return what an exchange brings to a step that places rows among its tasks; `keys` are the columns of its key."""
    hows: dict[str, Literal["spread", "rescale", "custom"]] = {"rebalance": "spread", "rescale": "rescale"}
    return ExchangeInput(
        operator=node.id,
        keys=tuple(keys),
        how=hows.get(node.kind, "custom"),
        max_parallelism=None,
        partitioner=node.partitioner,
    )
