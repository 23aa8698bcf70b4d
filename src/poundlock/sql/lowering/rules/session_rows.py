"""SESSION without an aggregate: the rows of sessions, which come once their session is over."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats import ddl
from poundlock.formats.arrays import Numbers, ends_in
from poundlock.formats.arrays import lists_of as lists_of_counts
from poundlock.sql.expressions.tree import ColumnRef, Expression
from poundlock.sql.lowering.programs import CalcProgram, CalcStep, UnnestProgram
from poundlock.sql.lowering.schemas import schema_of
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.lowering.window_rows import ROWS
from poundlock.sql.lowering.windows import assigner_of, bound_of, keys_text, moving_zone
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import LogicalWindowTable
from poundlock.sql.types import SqlType
from poundlock.stream.functions.arrow import ArrowAggregateFunction
from poundlock.stream.functions.process import ArrowAggregateWindow
from poundlock.stream.nodes import WindowNode
from poundlock.stream.stream import DataStream

_INSTANT = SqlType("TIMESTAMP_LTZ", (6,))
_BOUNDS = ("window_start", "window_end")


class AllRows(ArrowAggregateFunction):
    """The rows of a window as one list.

    Args:
        schema: of the rows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.columns = tuple(schema.names)
        self.accumulator = f"`{ROWS}` array<struct<{ddl.render(schema)}>>"
        self._fields = list(schema)

    def accumulate(self, rows: pa.RecordBatch, groups: npt.NDArray[np.int64], count: int) -> Any:
        """Return the rows of each group, in the order they came."""
        return {ROWS: self._lists(list(rows.columns), groups, count)}

    def merge(self, accumulators: pa.RecordBatch, groups: npt.NDArray[np.int64], count: int) -> Any:
        """Return the lists of each group, one behind the other."""
        lists = accumulators.column(0)
        lengths: Numbers = np.diff(ends_in(lists))
        return {ROWS: self._lists(list(lists.flatten().flatten()), np.repeat(groups, lengths), count)}

    def result(self, accumulators: pa.RecordBatch) -> Any:
        """Return the lists."""
        return {ROWS: accumulators.column(0)}

    def _lists(self, columns: list[pa.Array], groups: npt.NDArray[np.int64], count: int) -> pa.Array:
        lengths = np.bincount(groups, minlength=count).astype(np.int64)
        return lists_of_counts(pa.StructArray.from_arrays(columns, fields=self._fields), lengths)


def session_rows(lowering: Lowering, relation: LogicalWindowTable) -> DataStream:
    """Return the stream of the rows of sessions, each once, behind which stand the bounds of its session.

    Raises:
        DefinitionError: rows change.
    """
    inner, window, zone = relation.input, relation.window, lowering.context.zone
    lowering.no_updates(inner, "SESSION windows")
    schema = schema_of(inner.fields)
    stream = lowering.stream(inner)
    node = WindowNode(
        lowering.job.operator_id("session-rows", None),
        [stream.node],
        # The bounds of a session stand beside the keys, and the columns of rows in the list.
        [f"{key} AS `$key_{number}`" for number, key in enumerate(keys_text(window.partition))],
        assigner_of(window, zone),
        None if window.by_clock else window.time,
        [],
        ArrowAggregateWindow(AllRows(schema)),
        f"`{ROWS}` array<struct<{ddl.render(schema)}>>",
        zone=moving_zone(window, zone),
    )
    own = tuple(Field(f"$row_{n}", f"$row_{n}", each.type) for n, each in enumerate(inner.fields))
    types, elements = tuple(field.type for field in schema), tuple(each.column for each in own)
    program = UnnestProgram(ROWS, _BOUNDS, types, elements, is_outer=False, ordinality=None)
    fields = (*(Field(each, each, _INSTANT) for each in _BOUNDS), *own)
    rows = lowering.calc(stream.then(node), program, fields, kinds=False, name="windows")
    bounds = [bound_of(window, place, field.type, zone) for place, field in enumerate(relation.fields[-3:])]
    expressions: tuple[Expression, ...] = (*(ColumnRef(each.column, each.type) for each in own), *bounds)
    step = CalcStep(tuple(each.column for each in relation.fields), expressions)
    return lowering.calc(rows, CalcProgram((step,), lowering.context), relation.fields, kinds=False)
