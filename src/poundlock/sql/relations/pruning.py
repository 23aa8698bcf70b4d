"""Which columns of relations are read at all: the others are left out where they come from, those of rows too.

A scan that is read for two columns decodes two, and a join keeps no more in state than what comes of it. What is left out changes no
row that comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from poundlock.sql.expressions.tree import ColumnRef, Expression, SqlCall, replaced
from poundlock.sql.relations.changes import upsert_key
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import (
    LogicalAggregate,
    LogicalAssignWatermark,
    LogicalDeduplicate,
    LogicalFilter,
    LogicalIntervalJoin,
    LogicalJoin,
    LogicalLookupJoin,
    LogicalProject,
    LogicalRelation,
    LogicalScan,
    LogicalTemporalJoin,
    LogicalTopN,
    LogicalUnionAll,
    LogicalWindowAggregate,
    LogicalWindowTable,
    LogicalWindowTopN,
    SqlAggregateCall,
    Unary,
)
from poundlock.sql.tables import TableDefinition
from poundlock.sql.types import SqlType

ColumnsRead = Literal["all", "columns", "fields"]
"""What can be left out where a table is read: nothing, columns, or also fields of rows, where they are known by their names."""
Readable = Callable[[TableDefinition], ColumnsRead]
"""Tells that of a table."""
_FIELD = ".field"
_BOUNDS = 3  # columns of a window, behind those of the rows


@dataclass
class ReadColumns:
    """The columns of a relation that are read: for each of them the fields of its row, None where it is read as a whole."""

    parts: dict[str, set[str] | None] = field(default_factory=dict)

    def read(self, columns: Iterable[str]) -> ReadColumns:
        """Add columns as a whole."""
        self.parts.update(dict.fromkeys(columns))
        return self

    def read_by(self, expression: Expression | None) -> ReadColumns:
        """Add what an expression is of."""
        if isinstance(expression, ColumnRef):
            self.parts[expression.name] = None
        elif isinstance(expression, SqlCall):
            of = expression.arguments[0] if expression.arguments else None
            if expression.function == _FIELD and isinstance(of, ColumnRef):
                self.add(of.name, {expression.options[0]})
            else:
                for each in expression.arguments:
                    self.read_by(each)
        return self

    def add(self, column: str, parts: set[str] | None) -> None:
        """Add a column, or fields of its row."""
        known = self.parts.get(column, set())
        self.parts[column] = None if parts is None or known is None else known | parts

    def update(self, other: ReadColumns) -> None:
        """Add what another has."""
        for column, parts in other.parts.items():
            self.add(column, parts)

    def __contains__(self, column: str) -> bool:
        return column in self.parts


def pruned(roots: Sequence[LogicalRelation], readable: Readable) -> list[LogicalRelation]:
    """Return relations that give the same rows, without the columns that none of them reads; what they share, they share still."""
    order = list(_inputs_first(roots))
    read = {id(each): ReadColumns() for each in order}
    for root in roots:
        read[id(root)].read(each.column for each in root.fields)
    for relation in reversed(order):
        if relation.fields and not any(each.column in read[id(relation)] for each in relation.fields):
            # Rows that are counted alone have to be of something: a time attribute is read for the watermark in any case.
            least = min(relation.fields, key=lambda each: (each.time is None, bool(each.type.of)))
            read[id(relation)].read([least.column])
        for of, needed in zip(relation.inputs, _read_of_inputs(relation, read[id(relation)]), strict=True):
            read[id(of)].update(needed)
    made: dict[int, LogicalRelation] = {}
    for relation in order:
        if isinstance(relation, LogicalScan):
            made[id(relation)] = _scan(relation, read[id(relation)], readable(relation.definition))
            continue
        made[id(relation)] = _rebuilt(relation, read[id(relation)], [made[id(each)] for each in relation.inputs])
    return [made[id(root)] for root in roots]


def _inputs_first(roots: Sequence[LogicalRelation]) -> Iterator[LogicalRelation]:
    seen: set[int] = set()

    def visit(relation: LogicalRelation) -> Iterator[LogicalRelation]:
        if id(relation) not in seen:
            seen.add(id(relation))
            for each in relation.inputs:
                yield from visit(each)
            yield relation

    for root in roots:
        yield from visit(root)


# --- what is read ----------------------------------------------------------------------------------------------------


def _read_of_inputs(relation: LogicalRelation, read: ReadColumns) -> list[ReadColumns]:
    """Return what a relation of which some columns are read reads of each of its inputs."""
    if isinstance(relation, LogicalProject):
        return [_read_by_project(relation, read)]
    if isinstance(relation, LogicalFilter):
        return [_passed(relation, read).read_by(relation.condition)]
    if isinstance(relation, LogicalAssignWatermark):
        return [_passed(relation, read).read_by(relation.watermark).read([relation.time])]
    if isinstance(relation, LogicalJoin):
        return _read_by_join(relation, read)
    if isinstance(relation, LogicalWindowTable):
        window = relation.window
        return [_whole(_passed(relation, read)).read([window.time, *window.partition])]
    if isinstance(relation, LogicalTopN):
        order = [each.column for each in relation.order]
        return [_whole(_passed(relation, read)).read([*relation.keys, *order])]
    if isinstance(relation, LogicalDeduplicate):
        return [_whole(_passed(relation, read)).read([*relation.keys, relation.time])]
    if isinstance(relation, LogicalAggregate):
        return [ReadColumns().read([*relation.keys, *_columns_of_calls(relation.calls)])]
    if isinstance(relation, LogicalWindowAggregate):
        times = [relation.window.time, *relation.window.partition]
        bounds = [each for each in relation.bounds if each is not None] if relation.is_attached else []
        there = {each.column for each in relation.input.fields}
        columns = [*relation.keys, *_columns_of_calls(relation.calls), *times, *bounds]
        return [ReadColumns().read(each for each in columns if each in there)]
    return [ReadColumns().read(each.column for each in of.fields) for of in relation.inputs]


def _read_by_project(project: LogicalProject, read: ReadColumns) -> ReadColumns:
    made = ReadColumns()
    for own, expression in zip(project.fields, project.expressions, strict=True):
        if own.column not in read:
            continue
        if isinstance(expression, ColumnRef):
            made.add(expression.name, read.parts[own.column])
        else:
            made.update(ReadColumns().read_by(expression))
    return made


def _read_by_join(join: LogicalJoin, read: ReadColumns) -> list[ReadColumns]:
    wanted = _whole(_whole(read).read_by(join.condition)).read(each for pair in join.keys for each in pair)
    if isinstance(join, LogicalIntervalJoin | LogicalTemporalJoin):
        wanted.read(join.times)
    if isinstance(join, LogicalLookupJoin):
        wanted.read(upsert_key(join.left) or ())  # by which rows that change are known
    return [_among(side.fields, wanted) for side in join.inputs]


def _passed(relation: Unary, read: ReadColumns) -> ReadColumns:
    """Return what is read of the columns that a relation has of its input."""
    return _among(relation.input.fields, read)


def _among(fields: Sequence[Field], read: ReadColumns) -> ReadColumns:
    there = {each.column for each in fields}
    return ReadColumns({column: parts for column, parts in read.parts.items() if column in there})


def _whole(read: ReadColumns) -> ReadColumns:
    return ReadColumns().read(read.parts)


def _columns_of_calls(calls: Sequence[SqlAggregateCall]) -> Iterator[str]:
    for call in calls:
        yield from call.arguments
        if call.filter is not None:
            yield call.filter


# --- what is left ----------------------------------------------------------------------------------------------------


def _rebuilt(relation: LogicalRelation, read: ReadColumns, inputs: list[LogicalRelation]) -> LogicalRelation:
    if isinstance(relation, LogicalProject):
        return _project(relation, read, inputs[0])
    if isinstance(relation, LogicalFilter):
        return LogicalFilter(_those_of(relation, inputs[0]), inputs[0], _typed(relation.condition, inputs[0]))
    if isinstance(relation, LogicalAssignWatermark):
        return replace(relation, fields=_those_of(relation, inputs[0]), input=inputs[0])
    if isinstance(relation, LogicalJoin):
        left, right = (_narrowed(of, needed) for of, needed in zip(inputs, _read_by_join(relation, read), strict=True))
        return replace(relation, fields=_kept(relation.fields, read), left=left, right=right)
    if isinstance(relation, LogicalUnionAll):
        return replace(relation, parts=tuple(inputs))
    if not isinstance(relation, Unary):
        return relation
    inner = _narrowed(inputs[0], _read_of_inputs(relation, read)[0])
    if isinstance(relation, LogicalWindowTable):
        fields = (*_those_of(relation, inner), *relation.fields[-_BOUNDS:])
        return replace(relation, fields=fields, input=inner)
    if isinstance(relation, LogicalTopN | LogicalWindowTopN):
        rank = tuple(each for each in relation.fields if each.column == relation.rank)
        return replace(relation, fields=(*_those_of(relation, inner), *rank), input=inner)
    if isinstance(relation, LogicalDeduplicate):
        return replace(relation, fields=_those_of(relation, inner), input=inner)
    return replace(relation, input=inner)


def _kept(fields: Sequence[Field], read: ReadColumns) -> tuple[Field, ...]:
    """Return the fields that are read; one where none is, since rows have to be of something."""
    return tuple(each for each in fields if each.column in read) or tuple(fields[:1])


def _those_of(relation: LogicalRelation, inner: LogicalRelation) -> tuple[Field, ...]:
    """Return the fields that a relation has of its input, now that this has fewer."""
    own = {each.column: each for each in relation.fields}
    return tuple(replace(own.get(each.column, each), type=each.type) for each in inner.fields)


def _narrowed(relation: LogicalRelation, read: ReadColumns) -> LogicalRelation:
    """Return the columns of a relation that are read of it here, where others read more of it."""
    fields = _kept(relation.fields, read)
    if len(fields) == len(relation.fields):
        return relation
    return LogicalProject(fields, relation, tuple(each.ref for each in fields))


def _project(project: LogicalProject, read: ReadColumns, inner: LogicalRelation) -> LogicalProject:
    kept = [
        (own, expression)
        for own, expression in zip(project.fields, project.expressions, strict=True)
        if own.column in read
    ]
    fields: list[Field] = []
    expressions: list[Expression] = []
    for own, expression in kept:
        typed = _typed(expression, inner)
        expressions.append(typed)
        fields.append(
            replace(own, type=typed.type) if isinstance(typed, ColumnRef) and typed is not expression else own
        )
    return LogicalProject(tuple(fields), inner, tuple(expressions))


def _typed(expression: Expression, inner: LogicalRelation) -> Expression:
    """Return an expression of columns that may be rows of fewer fields now."""
    types = {each.column: each.type for each in inner.fields if each.type.root == "ROW"}
    if not types:
        return expression

    def narrower(each: Expression) -> Expression | None:
        if isinstance(each, ColumnRef) and each.name in types and len(each.type.of) != len(types[each.name].of):
            return ColumnRef(each.name, types[each.name])
        return None

    return replaced(expression, narrower)


def _scan(scan: LogicalScan, read: ReadColumns, readable: ColumnsRead) -> LogicalScan:
    if readable == "all":
        return scan
    fields = []
    for each in scan.fields:
        if each.column in read:
            parts = read.parts[each.column] if readable == "fields" else None
            fields.append(replace(each, type=_row_of(each.type, parts)) if parts else each)
    return replace(scan, fields=tuple(fields))


def _row_of(kind: SqlType, parts: set[str]) -> SqlType:
    """Return a row with some of its fields."""
    kept = [(name, of) for name, of in zip(kind.names, kind.of, strict=True) if name in parts]
    return replace(kind, of=tuple(of for _, of in kept), names=tuple(name for name, _ in kept))
