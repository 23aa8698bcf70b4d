"""GROUP BY, HAVING and aggregates: what is computed before, the aggregate itself, and what the query makes of its results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

from sqlglot import exp

from poundlock.sql.analysis.aggregate_calls import (
    BIGINT,
    JSON_AGGREGATES,
    STATISTICS,
    WrittenAggregate,
    aggregate_in,
    arguments_row,
    has_aggregates,
    json_aggregate,
    result_type,
    statistic,
)
from poundlock.sql.analysis.context import Analysis, FieldNode
from poundlock.sql.analysis.scope import QueryScope
from poundlock.sql.analysis.windows import BOUNDS, PLAIN_TIME, WindowBounds, bounds_of, group_window, without_window
from poundlock.sql.errors import shown
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, SqlCall, columns_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import (
    LogicalAggregate,
    LogicalExpand,
    LogicalProject,
    LogicalRelation,
    LogicalWindowAggregate,
    SqlAggregateCall,
    SqlWindow,
)
from poundlock.sql.types import SqlType

_GROUP_WINDOWS = ("TUMBLE", "HOP", "SESSION")
_PARTS = {"START": 0, "END": 1, "ROWTIME": 2, "PROCTIME": 2}
_SET_NODES = exp.GroupingSets, exp.Rollup, exp.Cube
_INSTANT = SqlType("TIMESTAMP_LTZ", (3,), is_nullable=False)


@dataclass
class Grouping:
    """The grouped part of a query; expressions behind it are analysed with `special`.

    Args:
        relation: what is grouped.
        scope: of its columns.
        group: the GROUP BY; None for aggregates over all rows.
    """

    analysis: Analysis
    relation: LogicalRelation
    scope: QueryScope
    group: exp.Group | None
    _keys: list[tuple[Expression, Field]] = field(default_factory=list)
    _sets: list[tuple[str, ...]] | None = None
    _calls: list[SqlAggregateCall] = field(default_factory=list)
    _computed: list[tuple[Expression, Field]] = field(default_factory=list)
    _window: tuple[exp.Expr, SqlWindow] | None = None
    _window_parts: list[str | None] = field(default_factory=lambda: [None, None, None])
    _number: str | None = None
    _is_updated: bool = False

    def __post_init__(self) -> None:
        sets: list[list[list[str]]] = []
        for node in self.group.expressions if self.group is not None else ():
            if isinstance(node, _SET_NODES):
                sets.append([[self._key(each) for each in some] for some in _key_sets(node)])
            else:
                own = self._group_window(node)
                if own is None:
                    sets.append([[self._key(node)]])
        if self.group is not None:
            for kind in ("grouping_sets", "rollup", "cube"):
                for node in self.group.args.get(kind) or ():
                    if isinstance(node, exp.Expr):
                        sets.append([[self._key(each) for each in some] for some in _key_sets(node)])
        if any(len(each) > 1 for each in sets):
            self._sets = [tuple(key for part in parts for key in part) for parts in product(*sets)]
            self._number = self.analysis.names.fresh("grouping_id")

    def _group_window(self, node: exp.Expr) -> SqlWindow | None:
        if not isinstance(node, exp.Anonymous) or str(node.this).upper() not in _GROUP_WINDOWS:
            return None
        window = group_window(self.analysis, node, str(node.this), node.expressions, self.relation)
        self._window = (node, window)
        return window

    def _key(self, node: exp.Expr) -> str:
        typed = self.analysis.expression(node, self.scope)
        for known, own in self._keys:
            if known == typed:
                return own.column
        if isinstance(typed, ColumnRef) and any(each.column == typed.name for each in self.relation.fields):
            key = self.relation.field(typed.name)
        else:
            key = Field(node.name or "key", self.analysis.names.fresh("key"), typed.type)
        self._keys.append((typed, key))
        return key.column

    # --- expressions behind the grouping ----------------------------------------------------------------------------------

    def special(self, node: exp.Expr) -> Expression | None:
        """Return what a part of an expression behind the grouping is: a key, or the result of an aggregate."""
        written = aggregate_in(node)
        if written is not None:
            return self._aggregate(written)
        if isinstance(node, exp.Grouping | exp.GroupingId):
            return self._grouping(node)
        part = self._window_part(node)
        if part is not None:
            return part
        if isinstance(node, exp.Subquery | exp.Query | exp.Window):
            return None
        if isinstance(node, exp.Column | FieldNode):
            name = node.field.name if isinstance(node, FieldNode) else shown(node)
            typed = self.analysis.expression(node, self.scope)
            key = self._known_key(typed)
            own = {each.column for each in self.relation.fields}
            if key is None and own & set(columns_of(typed)):
                raise self.analysis.error(
                    node,
                    f"{name} is neither a key of GROUP BY nor in an aggregate",
                    f"add {name} to GROUP BY, or take MAX({name})",
                    "not_grouped",
                )
            return typed if key is None else key
        if self._keys and not isinstance(node, exp.Literal) and not has_aggregates(node):
            written_as = [type(each) for each in self.group.expressions] if self.group is not None else []
            if type(node) in written_as or self._sets is not None:
                return self._known_key(self.analysis.expression(node, self.scope))
        return None

    def _known_key(self, typed: Expression) -> Expression | None:
        for known, own in self._keys:
            if known == typed:
                type_ = own.type
                if self._sets is not None and not all(own.column in some for some in self._sets):
                    type_ = replace(type_, is_nullable=True)
                return ColumnRef(own.column, type_)
        return None

    def _grouping(self, node: exp.Expr) -> Expression:
        asked = node.expressions or [node.this]
        keys = []
        for each in asked:
            key = self._known_key(self.analysis.expression(each, self.scope))
            if not isinstance(key, ColumnRef):
                raise self.analysis.error(
                    node, f"GROUPING of {shown(each)}, which is no key of GROUP BY", "give a key", "wrong_arguments"
                )
            keys.append(key.name)
        if self._number is None:
            return Literal(0, BIGINT)
        every = [own.column for _, own in self._keys]
        bits = tuple(str(len(every) - 1 - every.index(key)) for key in keys)
        return SqlCall("$BITS", (ColumnRef(self._number, BIGINT),), BIGINT, bits)

    def _window_part(self, node: exp.Expr) -> Expression | None:
        if self._window is None or not isinstance(node, exp.Anonymous):
            return None
        name, _, part = str(node.this).upper().partition("_")
        written, window = self._window
        if name != str(written.this).upper() or part not in _PARTS:
            return None
        given = group_window(self.analysis, node, name, node.expressions, self.relation)
        if given != window:
            raise self.analysis.error(
                node,
                f"{name}_{part} of another window than GROUP BY {shown(written)}",
                "give it the arguments that stand in GROUP BY",
                "invalid_window",
            )
        place = _PARTS[part]
        time = self.relation.field(window.time)
        if self._window_parts[place] is None:
            self._window_parts[place] = self.analysis.names.fresh(BOUNDS[place])
        return ColumnRef(str(self._window_parts[place]), time.type.not_null() if place == 2 else PLAIN_TIME.not_null())

    def _aggregate(self, written: WrittenAggregate) -> Expression:
        for argument in written.arguments:
            if has_aggregates(argument):
                raise self.analysis.error(
                    written.node, f"an aggregate in {written.name}(…)", "compute it in a sub-query", "illegal_aggregate"
                )
        typed = [self.analysis.expression(each, self.scope) for each in written.arguments]
        if written.own is not None:
            given = self.analysis.own_arguments(written.own, typed, written.node)
            return self._called(written, [arguments_row(given)], written.own.result)
        if written.name in JSON_AGGREGATES:
            return json_aggregate(self.analysis, written, typed, partial(self._renamed, written))
        made = result_type(self.analysis, written, [each.type for each in typed])
        if written.name in STATISTICS:
            return statistic(self.analysis, written, typed[0], made, partial(self._renamed, written))
        return self._called(written, typed, made)

    def _renamed(self, written: WrittenAggregate, name: str, argument: Expression, kind: SqlType) -> Expression:
        """Return another aggregate of the same rows, by its name, argument and type."""
        return self._called(replace(written, name=name), [argument], kind)

    def _called(self, written: WrittenAggregate, typed: Sequence[Expression], made: SqlType) -> Expression:
        if self.group is None and made is not BIGINT and written.name != "COLLECT":
            made = replace(made, is_nullable=True)
        filter_ = None if written.filter is None else self._column(self.analysis.condition(written.filter, self.scope))
        arguments = tuple(self._column(each) for each in typed)
        if (
            written.name == "COUNT"
            and len(arguments) == 1
            and not typed[0].type.is_nullable
            and not written.is_distinct
        ):
            arguments = ()
        call = SqlAggregateCall(
            written.name.lower() if written.own is None else "own",
            arguments,
            "",
            made,
            written.is_distinct and written.name not in ("MIN", "MAX"),
            filter_,
            own=written.own,
        )
        for known in self._calls:
            if replace(known, column="") == call:
                return ColumnRef(known.column, made)
        call = replace(call, column=self.analysis.names.fresh(call.kind))
        self._calls.append(call)
        return ColumnRef(call.column, made)

    def _column(self, typed: Expression) -> str:
        """Return the column that has an argument."""
        if isinstance(typed, ColumnRef) and any(each.column == typed.name for each in self.relation.fields):
            self._computed.append((typed, self.relation.field(typed.name)))
            return typed.name
        for known, own in self._computed:
            if known == typed:
                return own.column
        made = Field("argument", self.analysis.names.fresh("argument"), typed.type)
        self._computed.append((typed, made))
        return made.column

    # --- the relation -----------------------------------------------------------------------------------------------------

    def grouped(self) -> LogicalRelation:
        """Return the aggregate; called behind all expressions, which say what there is to compute."""
        bounds = bounds_of(self.relation)
        keys = [own.column for _, own in self._keys]
        if self._window is not None:
            return self._windowed(self._window[1], self._prepared(self.relation), keys, tuple(self._window_parts))
        if bounds is not None and {bounds.start, bounds.end} <= set(keys):
            return self._of_windows(bounds, keys)
        prepared = self._prepared(self.relation)
        grouped = keys if self._number is None else [*keys, self._number]
        fields = (*self._key_fields(prepared, grouped, keep_time=False), *self._call_fields())
        return LogicalAggregate(fields, prepared, tuple(grouped), tuple(self._calls))

    def _of_windows(self, bounds: WindowBounds, keys: Sequence[str]) -> LogicalRelation:
        """Return the aggregate of windows that the rows have."""
        parts = (bounds.start, bounds.end, bounds.time if bounds.time in keys else None)
        rest = [key for key in keys if key not in parts]
        if bounds.window.kind == "session" and not set(self._session_keys(bounds)) <= set(rest):
            return self._attached(bounds, keys)
        before = None if bounds.is_over else without_window(self.relation)
        if before is None or any(not self._is_of(before, typed) for typed, _ in self._wanted(parts)):
            return self._attached(bounds, keys)
        prepared = self._prepared(before, parts)
        return self._windowed(bounds.window, prepared, rest, parts)

    def _session_keys(self, bounds: WindowBounds) -> Iterator[str]:
        return iter(bounds.window.partition)

    def _attached(self, bounds: WindowBounds, keys: Sequence[str]) -> LogicalRelation:
        """Return the aggregate of rows that have the bounds of their window as columns: by those, once the window is over.

        Raises:
            SqlError: they come before it is over, and by the clock: nothing tells then when all have come.
        """
        if bounds.window.by_clock and not bounds.is_over and bounds.window.kind != "session":
            raise self.analysis.error(
                exp.Null() if self.group is None else self.group,
                "GROUP BY a window by the clock whose rows a condition or an expression of its bounds was computed for",
                "filter by other columns, or by window_start and window_end behind the aggregate, or give it an event time",
                "unsupported_query",
            )
        column = self.analysis.names.fresh("window_time")
        time = Field(column, column, _INSTANT, "rowtime")
        end = next(f for f in self.relation.fields if f.column == bounds.end)
        plain = tuple(f.plain() for f in self.relation.fields)
        moment = SqlCall("$WINDOW_TIME", (end.ref,), _INSTANT, (str(int(bounds.window.is_local)),))
        timed = LogicalProject((*plain, time), self.relation, (*(f.ref for f in plain), moment))
        window = SqlWindow("tumble", column, by_clock=bounds.window.by_clock, size=1)
        prepared = self._prepared(timed)
        grouped = list(keys) if self._number is None else [*keys, self._number]
        fields = (*self._key_fields(prepared, grouped, keep_time=True), *self._call_fields())
        parts = (bounds.start, bounds.end, bounds.time if bounds.time in keys else None)
        return LogicalWindowAggregate(
            fields, prepared, window, tuple(grouped), tuple(self._calls), parts, is_attached=True
        )

    def _windowed(
        self,
        window: SqlWindow,
        prepared: LogicalRelation,
        keys: Sequence[str],
        parts: tuple[str | None, ...],
    ) -> LogicalRelation:
        grouped = list(keys) if self._number is None else [*keys, self._number]
        time = prepared.field(window.time)
        types = (PLAIN_TIME.not_null(), PLAIN_TIME.not_null(), time.type.not_null())
        bounds = [
            Field(name, part, type_, time.time if place == 2 else None)
            for place, (name, part, type_) in enumerate(zip(BOUNDS, parts, types, strict=True))
            if part is not None
        ]
        fields = (*self._key_fields(prepared, grouped, keep_time=False), *bounds, *self._call_fields())
        return LogicalWindowAggregate(fields, prepared, window, tuple(grouped), tuple(self._calls), parts)  # type: ignore[arg-type]

    def _wanted(self, without: Sequence[str | None] = ()) -> list[tuple[Expression, Field]]:
        wanted = [(typed, own) for typed, own in self._keys if own.column not in without]
        return [*wanted, *self._computed]

    @staticmethod
    def _is_of(relation: LogicalRelation, typed: Expression) -> bool:
        return set(columns_of(typed)) <= {each.column for each in relation.fields}

    def _prepared(self, relation: LogicalRelation, without: Sequence[str | None] = ()) -> LogicalRelation:
        """Return the relation with keys and arguments as columns, and the sets of keys where there are several."""
        made: dict[str, tuple[Expression, Field]] = {own.column: (typed, own) for typed, own in self._wanted(without)}
        if not made:  # COUNT(*) alone: rows without a column cannot be counted
            column = self.analysis.names.fresh("one")
            one = Literal(1, BIGINT)
            made[column] = one, Field(column, column, BIGINT)
        rowtime = [self._window[1].time] if self._window is not None else []
        rowtime += [each.column for each in relation.fields if each.time is not None]
        for column in rowtime:
            own = relation.field(column)
            made.setdefault(column, (own.ref, own))
        fields = tuple(
            replace(own, time=relation.field(own.column).time)
            if isinstance(typed, ColumnRef) and typed.name == own.column and self._is_of(relation, typed)
            else own
            for typed, own in made.values()
        )
        prepared: LogicalRelation = LogicalProject(fields, relation, tuple(typed for typed, _ in made.values()))
        if self._sets is None or self._number is None:
            return prepared
        in_sets = [own.column for _, own in self._keys if own.column not in without]
        sets = tuple(tuple(key for key in some if key in in_sets) for some in self._sets)
        nullable = tuple(
            replace(each, type=replace(each.type, is_nullable=True))
            if each.column in in_sets and not all(each.column in some for some in sets)
            else each
            for each in prepared.fields
        )
        number = Field("grouping_id", self._number, BIGINT)
        return LogicalExpand((*nullable, number), prepared, sets, tuple(in_sets), self._number)

    def _key_fields(self, prepared: LogicalRelation, keys: Sequence[str], *, keep_time: bool) -> list[Field]:
        fields = [prepared.field(key) for key in keys]
        return fields if keep_time else [each.plain() for each in fields]

    def _call_fields(self) -> list[Field]:
        return [Field(call.kind, call.column, call.type) for call in self._calls]


def _key_sets(node: exp.Expr) -> list[list[exp.Expr]]:
    """Return the sets of keys that GROUPING SETS, ROLLUP or CUBE stand for."""
    parts = [_keys_in(each) for each in node.expressions]
    if isinstance(node, exp.Rollup):
        return [[key for part in parts[:n] for key in part] for n in range(len(parts), -1, -1)]
    if isinstance(node, exp.Cube):
        count = len(parts)
        return [
            [key for place, part in enumerate(parts) if not bits >> (count - 1 - place) & 1 for key in part]
            for bits in range(1 << count)
        ]
    sets: list[list[exp.Expr]] = []
    for each in node.expressions:
        sets += _key_sets(each) if isinstance(each, _SET_NODES) else [_keys_in(each)]
    return sets


def _keys_in(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this] if isinstance(node, exp.Paren) else [node]
