"""Windows with aggregates of the user's own: those, and SQL's beside them, as one aggregate over columns.

What SQL's add up is what windows without such ones do; results stand in the columns that those have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.formats.arrays import Numbers, flags_in, indices_of
from poundlock.operators.columns.groups import Groups
from poundlock.operators.columns.sql.accumulators import ColumnAccumulator, accumulator_of
from poundlock.operators.windows.aggregates import SqlAggregate
from poundlock.sql.expressions.tree import ColumnRef, Expression
from poundlock.sql.lowering.schemas import schema_of
from poundlock.sql.lowering.windows import stream_aggregate
from poundlock.sql.relations.tree import LogicalRelation, SqlAggregateCall
from poundlock.sql.types import SqlType
from poundlock.sql.user.aggregates import OwnAggregate, can_merge, own_aggregate
from poundlock.sql.user.distinct import DistinctAggregate
from poundlock.stream.functions.arrow import ArrowAggregateFunction
from poundlock.stream.functions.process import ArrowAggregateWindow


@dataclass(frozen=True)
class WindowPart:
    """One aggregate.

    Args:
        column: that it is of; None for rows.
        kind: of SQL's, as streams call it; of the user's own None.
        name: of the result's column; `type`: its type.
    """

    column: str | None
    name: str
    type: pa.DataType
    kind: str | None = None
    own: OwnAggregate | DistinctAggregate | None = None


class MixedAggregates(ArrowAggregateFunction):
    """Aggregates of SQL and of the user's own over the same rows.

    Args:
        schema: the columns of the rows.
    """

    def __init__(self, parts: Sequence[WindowPart], schema: pa.Schema) -> None:
        self._parts = tuple(parts)
        self._schema = schema
        names = dict.fromkeys(each.column for each in parts if each.column is not None)
        self.columns = tuple(names) or tuple(schema.names[:1])
        self._kept = [[*self._types(each)] for each in parts]
        fields = [
            pa.field(f"a{number}_{place}", kind)
            for number, kinds in enumerate(self._kept)
            for place, kind in enumerate(kinds)
        ]
        self.accumulator = ddl.render(pa.schema(fields))
        self._names = [field.name for field in fields]

    def __reduce__(self) -> tuple[object, ...]:
        return MixedAggregates, (self._parts, self._schema)

    def _types(self, part: WindowPart) -> Sequence[pa.DataType]:
        return self._of_sql(part).types if part.own is None else part.own.types

    def _of_sql(self, part: WindowPart) -> ColumnAccumulator:
        kind = None if part.column is None else self._schema.field(part.column).type
        column = None if part.column is None else 0
        return accumulator_of(SqlAggregate(kind=part.kind, column=column, ignore_nulls=True), kind)  # type: ignore[arg-type]

    def accumulate(self, rows: pa.RecordBatch, groups: npt.NDArray[np.int64], count: int) -> Any:
        """Return what the rows of each group add up to."""
        whole = _groups(groups, count)
        made: list[pa.Array] = []
        for part in self._parts:
            column = None if part.column is None else rows.column(part.column)
            if part.own is None:
                made += self._of_sql(part).partial(column, whole)
                continue
            assert column is not None
            of = groups
            if column.null_count:  # a filter leaves them out
                there = np.flatnonzero(flags_in(column.is_valid()))
                column, of = column.take(indices_of(there)), groups[there]
            held = [pa.nulls(count, kind) for kind in part.own.types]
            made += part.own.fold(held, column, np.ones(len(of), np.int64), of)
        return dict(zip(self._names, made, strict=True))

    def merge(self, accumulators: pa.RecordBatch, groups: npt.NDArray[np.int64], count: int) -> Any:
        """Return one accumulator for each group of them."""
        made: list[pa.Array] = []
        for part, held in self._held(accumulators):
            if part.own is None:
                made += self._of_sql(part).merge(held, _groups(groups, count))
            else:
                made += part.own.merge(held, groups, count)
        return dict(zip(self._names, made, strict=True))

    def result(self, accumulators: pa.RecordBatch) -> Mapping[str, pa.Array]:
        """Return the results."""
        return {
            part.name: self._of_sql(part).result(held, part.type) if part.own is None else part.own.result(held)
            for part, held in self._held(accumulators)
        }

    def _held(self, accumulators: pa.RecordBatch) -> Sequence[tuple[WindowPart, list[pa.Array]]]:
        columns = iter(accumulators.columns)
        return [(part, [next(columns) for _ in kinds]) for part, kinds in zip(self._parts, self._kept, strict=True)]


def _groups(groups: Numbers, count: int) -> Groups:
    return Groups(np.arange(len(groups)), np.searchsorted(groups, np.arange(count)))


def own_window(
    relation: LogicalRelation, calls: Sequence[tuple[SqlAggregateCall, str | None]]
) -> tuple[ArrowAggregateWindow, str, dict[str, Expression]]:
    """Return the function of a window, the DDL of its results, and what becomes of those by the column of each aggregate.

    Args:
        relation: the rows.
        calls: the aggregates; of each the column of its argument that is null where its filter leaves a row out, if it has one.

    Raises:
        DefinitionError: one of them cannot be in windows.
    """
    types = {f.column: f.type for f in relation.fields}
    parts: list[WindowPart] = []
    results: dict[str, Expression] = {}
    columns = list(schema_of(relation.fields))
    for call, filtered in calls:
        argument = types[call.arguments[0]] if call.arguments else None
        column = filtered or (call.arguments[0] if call.arguments else None)
        if filtered is not None:
            columns.append(pa.field(filtered, pa.int32() if argument is None else argument.arrow))
        if call.own is not None and column is not None and argument is not None:
            parts.append(own_part(call, column, argument))
            results[call.column] = ColumnRef(call.column, call.type)
            continue
        made = stream_aggregate(call, argument, filtered)
        parts += [WindowPart(column, name, kind.arrow, aggregate) for aggregate, name, kind in made.parts]
        results[call.column] = made.result
    schema = pa.schema([pa.field(each.name, each.type) for each in parts])
    return ArrowAggregateWindow(MixedAggregates(parts, pa.schema(columns))), ddl.render(schema), results


def own_part(call: SqlAggregateCall, column: str, arguments: SqlType) -> WindowPart:
    """Return an aggregate of the user's own in windows.

    Args:
        column: that has its arguments, null where a filter leaves a row out; `arguments`: its type.

    Raises:
        DefinitionError: it cannot be in windows.
    """
    assert call.own is not None
    if call.is_distinct:
        own = DistinctAggregate(own_aggregate(call.own, arguments), arguments.arrow)
        return WindowPart(column, call.column, call.type.arrow, own=own)
    if not can_merge(call.own):
        raise DefinitionError(
            f"{call.own.name} has no merge, and windows merge what was added up",
            next="write def merge(self, accumulator, accumulators)",
        )
    return WindowPart(column, call.column, call.type.arrow, own=own_aggregate(call.own, arguments))
