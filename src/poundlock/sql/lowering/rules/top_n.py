"""The first rows by an order: Top-N, Top-N of windows, and the first or last row of a key."""

from __future__ import annotations

from collections.abc import Sequence

from poundlock.formats import ddl
from poundlock.sql.lowering.programs import InsertionsProgram
from poundlock.sql.lowering.rules.event_time import TIME, with_window_time
from poundlock.sql.lowering.schemas import schema_of
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.lowering.window_rows import ROWS, FirstRows, RankedRowsProgram
from poundlock.sql.lowering.windows import keys_text
from poundlock.sql.relations.tree import LogicalDeduplicate, LogicalRelation, LogicalTopN, LogicalWindowTopN
from poundlock.stream.changelog_nodes import ChangelogTopNNode
from poundlock.stream.functions.process import ArrowAggregateWindow
from poundlock.stream.nodes import DeduplicateNode, SortColumn, TopNNode, WindowNode
from poundlock.stream.stream import DataStream
from poundlock.stream.windows.builtin_assigners import TumblingEventTimeWindows


def top_n(lowering: Lowering, relation: LogicalTopN) -> DataStream:
    """Return the stream of the first rows of each key."""
    inner = relation.input
    order = [SortColumn(key.column, key.is_descending, key.nulls_first) for key in relation.order]
    if lowering.is_updating(inner):
        return _top_n_of_changes(lowering, inner, relation.keys, order, (relation.first, relation.last), relation.rank)
    stream = lowering.stream(inner)
    node = TopNNode(
        lowering.job.operator_id("top-n", None),
        [stream.node],
        [keys_text(relation.keys)],
        [None],
        None,
        {},
        n=relation.last,
        order_by=order,
        rank=relation.rank,
        ttl_ms=lowering.ttl_ms,
        update_before=relation.rank is not None,
        first=relation.first,
    )
    ranked = stream.then(node)
    if lowering.is_updating(relation):
        return ranked
    program = InsertionsProgram(tuple(f.column for f in relation.fields))
    return lowering.calc(ranked, program, relation.fields, kinds=False, name="insertions")


def _top_n_of_changes(
    lowering: Lowering,
    inner: LogicalRelation,
    keys: Sequence[str],
    order: Sequence[SortColumn],
    places: tuple[int, int],
    rank: str | None = None,
    *,
    newest_first: bool = False,
) -> DataStream:
    stream = lowering.stream(inner)
    node = ChangelogTopNNode(
        lowering.job.operator_id("top-n", None),
        [stream.node],
        [keys_text(keys)],
        [None],
        None,
        {},
        last=places[1],
        order_by=order,
        first=places[0],
        rank=rank,
        newest_first=newest_first,
        ttl_ms=lowering.ttl_ms,
    )
    return stream.then(node)


def deduplicate(lowering: Lowering, relation: LogicalDeduplicate) -> DataStream:
    """Return the stream of the first or the last row of each key."""
    inner = relation.input
    if lowering.is_updating(inner):
        last = relation.keep == "last"
        order = [] if relation.by_clock else [SortColumn(relation.time, last)]
        return _top_n_of_changes(lowering, inner, relation.keys, order, (1, 1), newest_first=last)
    stream = lowering.stream(inner)
    node = DeduplicateNode(
        lowering.job.operator_id("deduplicate", None),
        [stream.node],
        [keys_text(relation.keys)],
        [None if relation.by_clock else relation.time],
        None,
        {},
        keep=relation.keep,
        order="arrival" if relation.by_clock else "event_time",
        ttl_ms=lowering.ttl_ms,
        update_before=relation.keep == "last",
    )
    return stream.then(node)


def window_top_n(lowering: Lowering, relation: LogicalWindowTopN) -> DataStream:
    """Return the stream of the first rows of each window and key.

    Raises:
        DefinitionError: rows change, or the windows are by the clock.
    """
    inner = relation.input
    lowering.no_updates(inner, "Top-N of windows")
    stream = with_window_time(lowering, inner, "the first rows")
    rows = FirstRows(schema_of(inner.fields), relation.order, relation.last)
    rows_ddl = ddl.render(schema_of(inner.fields))
    node = WindowNode(
        lowering.job.operator_id("window-top-n", None),
        [stream.node],
        # The bounds of a window of 1 ms stand beside the keys, among which are those of the window that rows are of.
        [f"{key} AS `$key_{number}`" for number, key in enumerate(keys_text(relation.keys))],
        TumblingEventTimeWindows("1 ms"),
        TIME,
        [],
        ArrowAggregateWindow(rows),
        f"`{ROWS}` array<struct<{rows_ddl}>>",
    )
    program = RankedRowsProgram(tuple(f.column for f in inner.fields), relation.first, relation.rank)
    return lowering.calc(stream.then(node), program, relation.fields, kinds=False)
