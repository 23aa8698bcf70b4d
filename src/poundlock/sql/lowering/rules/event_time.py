"""The event time of streams: watermarks of tables, and the time of rows that belong to windows."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from poundlock.errors import DefinitionError
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.analysis.windows import bounds_of
from poundlock.sql.expressions.tree import ColumnRef, Expression, SqlCall
from poundlock.sql.lowering.programs import CalcProgram, CalcStep
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.lowering.watermarks import DelayedWatermarks, delay_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import LogicalAssignWatermark, LogicalRelation
from poundlock.sql.types import SqlType
from poundlock.stream.nodes import WatermarkNode
from poundlock.stream.stream import DataStream
from poundlock.stream.watermarks import WatermarkStrategy

TIME = "sql_rowtime"
"""The column that event time is given to a stream in."""
INSTANT = SqlType("TIMESTAMP_LTZ", (6,))


def watermark(lowering: Lowering, relation: LogicalAssignWatermark) -> DataStream:
    """Return a stream with event time and its watermark."""
    delay = delay_of(relation.time, relation.watermark)
    inner = relation.input
    fields = (*inner.fields, Field(TIME, TIME, INSTANT))
    time = relation.field(relation.time)
    updating = lowering.is_updating(inner)
    kind = (ColumnRef(ROW_KIND, SqlType("VARCHAR", (2,))),) if updating else ()
    instant = SqlCall("$ROWTIME", (time.ref, *kind), INSTANT)
    if delay is None:  # another expression: its greatest value is the watermark
        instant, delay = SqlCall("$WATERMARK", (time.ref, relation.watermark), INSTANT), 0
    expressions: tuple[Expression, ...] = (*(f.ref for f in inner.fields), instant)
    steps = (CalcStep(tuple(f.column for f in fields), expressions),)
    stream = lowering.calc(
        lowering.stream(inner), CalcProgram(steps, lowering.context), fields, kinds=updating, name="rowtime"
    )
    strategy = WatermarkStrategy.for_generator(partial(DelayedWatermarks, delay), timestamp=TIME, column=TIME)
    if lowering.idle_ms is not None:
        strategy = strategy.with_idleness(timedelta(milliseconds=lowering.idle_ms))
    node = WatermarkNode(lowering.job.operator_id("watermark", None), [stream.node], strategy)
    return stream.then(node)


def with_window_time(lowering: Lowering, relation: LogicalRelation, what: str) -> DataStream:
    """Return rows of windows with the last ms of their window as event time.

    Raises:
        DefinitionError: the windows are by the clock.
    """
    bounds = bounds_of(relation)
    assert bounds is not None
    if bounds.window.by_clock:
        raise DefinitionError(
            f"{what} of windows by the clock, which Flink does not have either",
            next="give them an event time: DESCRIPTOR(a column that WATERMARK FOR is for)",
        )
    end = relation.field(str(bounds.end))
    moment = SqlCall("$WINDOW_TIME", (end.ref,), INSTANT, (str(int(bounds.window.is_local)),))
    timed = CalcStep((*(f.column for f in relation.fields), TIME), (*(f.ref for f in relation.fields), moment))
    fields = (*relation.fields, Field(TIME, TIME, INSTANT))
    return lowering.calc(lowering.stream(relation), CalcProgram((timed,), lowering.context), fields, kinds=False)
