"""Event-time windows in Spark's own operators: `window` and `groupBy`.

The watermark that closes them is the driver's, see `plan/event_time.py`.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from poundlock.stream.nodes import WindowNode
from poundlock.stream.windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from poundlock.values import duration

__all__ = ["windowed"]

_WINDOW = "__window"


def windowed(frame: DataFrame, node: WindowNode) -> DataFrame:
    """Return a row for each key and window that is over."""
    assigner = node.assigner
    assert node.column is not None
    assert isinstance(assigner, (TumblingEventTimeWindows, SlidingEventTimeWindows))
    size = duration(assigner.size)
    slide = duration(assigner.slide) if isinstance(assigner, SlidingEventTimeWindows) else size
    assert isinstance(assigner.offset, timedelta)
    column = F.window(node.column, _interval(size), _interval(slide), _interval(assigner.offset % slide))
    keys = [F.expr(key) for key in node.keys]
    aggregates = [F.expr(text) for text in node.aggregates]
    grouped = frame.groupBy(*keys, column.alias(_WINDOW)).agg(*aggregates)
    names = [name for name in grouped.columns if name != _WINDOW]
    bounds = [f"{_WINDOW}.start as window_start", f"{_WINDOW}.end as window_end"]
    count = len(node.keys)
    quoted = [f"`{name}`" for name in names]
    return grouped.selectExpr(*quoted[:count], *bounds, *quoted[count:])


def _interval(span: timedelta) -> str:
    """Return a time span as Spark reads it; microseconds, so that nothing is rounded."""
    return f"{span // timedelta(microseconds=1)} microseconds"
