"""Window operators for the tasks: by columns where the windows and their function allow it, else record by record."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from poundlock.formats import ddl
from poundlock.operators.columns.aggregation import FunctionAggregation
from poundlock.operators.columns.operator import ColumnWork, ResultColumns
from poundlock.operators.columns.partials import SessionAggregation, SliceAggregation, merges_by_time
from poundlock.operators.columns.rows.counts import ColumnCounts
from poundlock.operators.columns.rows.keys import RowKeys
from poundlock.operators.columns.rows.sliding_counts import ColumnSlidingCounts
from poundlock.operators.columns.sessions import ColumnSessions
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.columns.windows import ColumnWindows
from poundlock.operators.factory import by_record, check_columns_do, window_operator
from poundlock.operators.keyed.output import MAIN
from poundlock.operators.local_times import LocalTimes
from poundlock.operators.records import RecordMaker
from poundlock.operators.windows.aggregates import SqlAggregates
from poundlock.operators.windows.base import WindowSpec
from poundlock.plan.heads.columns import NameOf, check_names, named_by, time_column
from poundlock.plan.normalize import Normalized
from poundlock.plan.sql_text import resolve_column
from poundlock.state.hashing import key_hashes
from poundlock.stream.functions.process import ArrowAggregateWindow
from poundlock.stream.nodes import WindowNode
from poundlock.stream.windows.builtin_assigners import CountSlidingWindows, CountTumblingWindows, FixedSessions
from poundlock.tasks.keyed_rows import KeyedInput, KeyedOutput, RecordRows, WindowRows
from poundlock.tasks.keyed_stage import KeyedHead

_BEFORE = "the columns of the key, window_start and window_end stand before those"


def window_head(
    node: WindowNode,
    graph: Normalized,
    schema: pa.Schema,
    own: pa.Schema,
    keys: Sequence[str],
    timed: bool,
    name_of: NameOf,
) -> KeyedHead:
    time = time_column(node.id, node.column, schema, timed, needed=node.assigner.is_event_time())
    outputs: dict[str, KeyedOutput] = {}
    wanted = graph.aggregates.get(node.id)
    aggregates: SqlAggregates | None = None
    named = [named_by(key, own, name_of) for key in graph.inputs[node.id][0].keys]
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
        results = [named_by(result, own, name_of) for result in wanted.results]
        outputs[MAIN] = WindowRows(fields, [pa.field(n, t) for n, t in zip(results, types, strict=True)])
        check_names(node.id, outputs[MAIN], f"give the aggregate another name with AS: {_BEFORE}")
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
    check_names(node.id, output, f"rename it in schema=: {_BEFORE}")
    return output


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
