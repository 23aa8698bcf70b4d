"""Which rule is for which kind of relation."""

from __future__ import annotations

from collections.abc import Mapping

from poundlock.sql.lowering.rules import aggregates, calc, event_time, joins, lookups, ordered, patterns, top_n, windows
from poundlock.sql.lowering.streams import Rule
from poundlock.sql.relations.lookups import LogicalLookupRows
from poundlock.sql.relations.tree import (
    LogicalAggregate,
    LogicalAssignWatermark,
    LogicalChangelogNormalize,
    LogicalDeduplicate,
    LogicalExpand,
    LogicalFilter,
    LogicalIntervalJoin,
    LogicalJoin,
    LogicalLookupJoin,
    LogicalMatch,
    LogicalOver,
    LogicalProject,
    LogicalRelation,
    LogicalRepeat,
    LogicalSort,
    LogicalTemporalJoin,
    LogicalTopN,
    LogicalUnionAll,
    LogicalUnnest,
    LogicalValues,
    LogicalWindowAggregate,
    LogicalWindowJoin,
    LogicalWindowTable,
    LogicalWindowTopN,
)

RULES: Mapping[type[LogicalRelation], Rule] = {
    LogicalProject: calc.calc,
    LogicalFilter: calc.calc,
    LogicalValues: calc.values,
    LogicalUnionAll: calc.union,
    LogicalUnnest: calc.unnest,
    LogicalExpand: calc.expand,
    LogicalRepeat: calc.repeat,
    LogicalAssignWatermark: event_time.watermark,
    LogicalWindowTable: windows.window_table,
    LogicalWindowAggregate: windows.window_aggregate,
    LogicalAggregate: aggregates.aggregate,
    LogicalChangelogNormalize: aggregates.normalize,
    LogicalJoin: joins.join,
    LogicalIntervalJoin: joins.interval_join,
    LogicalWindowJoin: joins.window_join,
    LogicalTemporalJoin: joins.temporal_join,
    LogicalLookupJoin: lookups.lookup_join,
    LogicalLookupRows: lookups.lookup_rows,
    LogicalTopN: top_n.top_n,
    LogicalWindowTopN: top_n.window_top_n,
    LogicalDeduplicate: top_n.deduplicate,
    LogicalMatch: patterns.match,
    LogicalOver: ordered.over,
    LogicalSort: ordered.sort,
}
"""The rule of each kind; tables are read as the job that reads them says."""
