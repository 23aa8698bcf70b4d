"""MATCH_RECOGNIZE: a pattern in the rows of each key, what rows are of its variables, and what comes out of a match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sqlglot import exp

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.analysis.aggregate_calls import BIGINT, aggregate_in, result_type
from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.patterns.row_patterns import pattern_of
from poundlock.sql.analysis.scope import NamedFields, QueryScope
from poundlock.sql.errors import shown
from poundlock.sql.expressions.analysis import ExpressionAnalysis
from poundlock.sql.expressions.tree import ColumnRef, Expression, SqlCall, cast_to
from poundlock.sql.relations.fields import Field, TimeKind
from poundlock.sql.relations.tree import LogicalMatch, LogicalRelation, MatchValue, OrderKey
from poundlock.sql.types import SqlType
from poundlock.stream.matching import AfterMatch, PatternVariable

_AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX")
_SKIPS = {"PAST LAST ROW": AfterMatch("past last row"), "TO NEXT ROW": AfterMatch("to next row")}
_SUM_TYPES = {"FLOAT": SqlType("DOUBLE"), "DOUBLE": SqlType("DOUBLE")}
_TIMESTAMP, _PROCTIME = SqlType("TIMESTAMP", (3,)), SqlType("TIMESTAMP_LTZ", (3,), is_nullable=False)


class MatchAnalysis:
    """Makes the relation of a MATCH_RECOGNIZE.

    Args:
        relation: its input; `named`: what the columns of that are called.
    """

    def __init__(self, analysis: Analysis, relation: LogicalRelation, named: NamedFields) -> None:
        self._analysis, self._relation, self._named = analysis, relation, named
        self._scope = QueryScope(analysis.script, (named,))

    def relation(self, node: exp.Expr) -> LogicalMatch:
        """Return the relation.

        Raises:
            SqlError: it is not possible, or not as it is written.
        """
        rows, subset = node.args.get("rows"), node.args.get("subset")
        if rows is not None and rows.name.startswith("ALL"):
            raise self._refused(node, "ALL ROWS PER MATCH", "write ONE ROW PER MATCH")
        if subset:
            raise self._refused(subset[0], "SUBSET", "name the variables themselves")
        keys = [self._column(each) for each in node.args.get("partition_by") or ()]
        order, by_clock = self._order(node)
        pattern = self._pattern(node)
        names = _MatchedNames(self._analysis, self._named, tuple(each.name for each in pattern), by_clock)
        conditions = tuple(self._conditions(node, names))
        measures = [self._measure(each, names) for each in node.args.get("measures") or ()]
        fields = [self._own(key, key.type, None) for key in keys]
        measured: list[Expression] = [names.of_row(None, key) for key in keys]
        for name, expression in measures:
            fields.append(self._own(Field(name, name, expression.type), expression.type, names.time_of(expression)))
            measured.append(expression)
        return LogicalMatch(
            tuple(fields),
            self._relation,
            tuple(key.column for key in keys),
            order,
            by_clock,
            pattern,
            self._after(node, pattern),
            self._within(node),
            conditions,
            tuple(measured),
            tuple(names.values),
            self._analysis.error(
                node,
                "MATCH_RECOGNIZE of rows that change, since it takes no row back",
                "read an append-only table, or what a window aggregate gives",
                "updates_not_supported_here",
            ),
        )

    def _own(self, field: Field, kind: SqlType, time: TimeKind | None) -> Field:
        return Field(field.name, self._analysis.names.fresh(field.name), kind, time)

    def _refused(self, node: exp.Expr, what: str, advice: str) -> DefinitionError:
        return self._analysis.error(node, f"{what}: Flink has no such match", advice, "unsupported_query")

    def _column(self, node: exp.Expr) -> Field:
        if not isinstance(node, exp.Column):
            raise self._analysis.error(
                node,
                "MATCH_RECOGNIZE by an expression",
                "compute the column in a sub-query before",
                "unsupported_query",
            )
        column, behind = self._scope.find([part.name for part in node.parts], node)
        if behind:
            raise self._analysis.error(
                node, f"a field of {column.name}", "make it a column in a sub-query before", "unsupported_query"
            )
        return column

    def _order(self, node: exp.Expr) -> tuple[tuple[OrderKey, ...], bool]:
        order = node.args.get("order")
        written = order.expressions if order is not None else []
        fields = [self._column(each.this) for each in written]
        if not fields or fields[0].time is None:
            raise self._analysis.error(
                order or node,
                "MATCH_RECOGNIZE is ordered by a time attribute first",
                "write ORDER BY the column that the watermark is for, or one of PROCTIME()",
                "unsupported_query",
            )
        if written[0].args.get("desc"):
            raise self._analysis.error(
                written[0], "MATCH_RECOGNIZE is ordered by time ascending", "leave DESC out", "unsupported_query"
            )
        keys = []
        for each, by in zip(written, fields, strict=True):
            is_descending, nulls_first = bool(each.args.get("desc")), each.args.get("nulls_first")
            keys.append(
                OrderKey(by.column, is_descending, not is_descending if nulls_first is None else bool(nulls_first))
            )
        return tuple(keys), fields[0].time == "proctime"

    # --- the pattern ------------------------------------------------------------------------------------------------------

    def _pattern(self, node: exp.Expr) -> tuple[PatternVariable, ...]:
        written = node.args.get("pattern")
        if written is None:
            raise self._analysis.error(node, "MATCH_RECOGNIZE without PATTERN", "write PATTERN (A B+ C)", "syntax")
        try:
            return pattern_of(written.name)
        except DefinitionError as error:
            raise self._analysis.error(node, error.what, error.next, "unsupported_query") from None

    def _after(self, node: exp.Expr, pattern: Sequence[PatternVariable]) -> AfterMatch:
        written = node.args.get("after")
        if written is None:
            return AfterMatch("to next row")
        if written.name in _SKIPS:
            return _SKIPS[written.name]
        where, _, variable = written.name.rpartition(" ")
        self._known(node, variable, [each.name for each in pattern])
        return AfterMatch("to first" if where == "TO FIRST" else "to last", variable)

    def _known(self, node: exp.Expr, variable: str, names: Sequence[str]) -> None:
        if variable not in names:
            use = f"use one of {', '.join(names)}"
            raise self._analysis.error(
                node,
                f"there is no variable {variable} in PATTERN",
                did_you_mean(variable, names, use),
                "unknown_column",
            )

    def _within(self, node: exp.Expr) -> int | None:
        written = node.args.get("within")
        if written is None:
            return None
        made = self._analysis.interval_ms(written)
        if made is None or made <= 0:
            raise self._analysis.error(
                written, "WITHIN takes a span of time", "write such as WITHIN INTERVAL '1' HOUR", "unsupported_query"
            )
        return made

    # --- DEFINE and MEASURES ----------------------------------------------------------------------------------------------

    def _conditions(self, node: exp.Expr, names: _MatchedNames) -> Iterator[tuple[str, Expression]]:
        seen: set[str] = set()
        for each in node.args.get("define") or ():
            self._known(each, each.alias, names.variables)
            if each.alias in seen:
                raise self._analysis.error(each, f"{each.alias} is defined twice", "join both conditions with AND")
            seen.add(each.alias)
            yield each.alias, names.analysis().condition(each.this, "DEFINE")

    def _measure(self, node: exp.Expr, names: _MatchedNames) -> tuple[str, Expression]:
        inner = node.this if isinstance(node, exp.MatchRecognizeMeasure) else node
        if isinstance(node, exp.MatchRecognizeMeasure) and node.args.get("window_frame") == "RUNNING":
            raise self._refused(inner, "RUNNING", "leave it out: a match has one row, which comes when it is complete")
        if not isinstance(inner, exp.Alias):
            raise self._analysis.error(inner, "a measure without a name", "write … AS name", "syntax")
        with names.measuring():
            return inner.alias, names.analysis().expression(inner.this)


@dataclass
class _MatchedNames:
    """What names mean in DEFINE and MEASURES: columns of the rows that are of a variable, of which the last one is meant."""

    of: Analysis
    named: NamedFields
    variables: tuple[str, ...]
    by_clock: bool
    values: list[MatchValue] = field(default_factory=list)
    _at: tuple[bool, int] | None = None
    """Whether FIRST or LAST is around, and its offset."""
    _inside: set[str | None] | None = None
    """The variables that an aggregate is of."""
    _is_measure: bool = False

    def analysis(self) -> ExpressionAnalysis:
        """Return what makes expressions over the values."""
        return ExpressionAnalysis(self.of.script, self, self._special)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Let what belongs to MEASURES alone be written."""
        self._is_measure = True
        try:
            yield
        finally:
            self._is_measure = False

    def time_of(self, expression: Expression) -> TimeKind | None:
        """Return what kind of time a measure is, None where it is none."""
        if isinstance(expression, SqlCall) and expression.function == "PROCTIME":
            return "proctime"
        is_time = isinstance(expression, ColumnRef) and any(
            each.kind == "rowtime" and each.column == expression.name for each in self.values
        )
        return "rowtime" if is_time else None

    def of_row(self, variable: str | None, column: Field) -> ColumnRef:
        """Return a column of a row of a variable."""
        from_first, offset = self._at or (False, 0)
        value = MatchValue("", column.type.with_null(), "row", variable, column.ref, offset, from_first)
        return self._value(column.name, value)

    def _value(self, name: str, value: MatchValue) -> ColumnRef:
        known = next((each for each in self.values if replace(each, column="") == value), None)
        if known is None:
            known = replace(value, column=self.of.names.fresh(name))
            self.values.append(known)
        return ColumnRef(known.column, known.type)

    def resolve(self, parts: tuple[str, ...], node: exp.Expr) -> tuple[Expression, tuple[str, ...]]:
        """Return what a name means, and the names of fields behind it.

        Raises:
            SqlError: there is no such column, or no such variable.
        """
        variable: str | None = None
        if len(parts) > 1 and parts[0] in self.variables:
            variable, parts = parts[0], parts[1:]
        columns = {each.name: each for each in self.named.fields}
        column = columns.get(parts[0])
        if column is None:
            near = [*columns] if variable is not None or len(parts) == 1 else [*self.variables]
            what = (
                f"column {parts[0]}" if variable is not None or len(parts) == 1 else f"variable {parts[0]} in PATTERN"
            )
            use = f"use one of {', '.join(near[:20])}"
            raise self.of.error(node, f"there is no {what}", did_you_mean(parts[0], near, use), "unknown_column")
        if self._inside is not None:
            self._inside.add(variable)
            return column.ref, parts[1:]
        return self.of_row(variable, column), parts[1:]

    # --- what is no expression of one row ---------------------------------------------------------------------------------

    def _special(self, node: exp.Expr) -> Expression | None:
        if isinstance(node, exp.First | exp.Last):
            return self._navigated(node, isinstance(node, exp.First))
        name = str(node.this).upper() if isinstance(node, exp.Anonymous) else ""
        if name in ("PREV", "NEXT"):
            raise self._refuse(
                node, f"{name}, which goes from row to row", f"write LAST(variable.column, 1) for {name}"
            )
        if name in ("MATCH_ROWTIME", "MATCH_PROCTIME"):
            return self._time(node, name)
        if name in ("CLASSIFIER", "MATCH_NUMBER") or isinstance(node, exp.Window):
            raise self._refuse(node, name or "an OVER", "leave it out")
        return self._aggregate(node)

    def _refuse(self, node: exp.Expr, what: str, advice: str) -> DefinitionError:
        return self.of.error(node, f"{what} in MATCH_RECOGNIZE", advice, "unsupported_query")

    def _navigated(self, node: exp.Expr, from_first: bool) -> Expression:
        name = "FIRST" if from_first else "LAST"
        if self._at is not None or self._inside is not None:
            raise self._refuse(node, f"{name} within another call of rows", "write each of its own")
        offset = node.args.get("expression")
        if offset is not None and not (isinstance(offset, exp.Literal) and offset.name.isdigit()):
            raise self._refuse(node, f"{name} with {shown(offset)}", f"write a whole number: {name}(a.x, 1)")
        self._at = from_first, 0 if offset is None else int(offset.name)
        try:
            return self.analysis().expression(node.this)
        finally:
            self._at = None

    def _time(self, node: exp.Expr, name: str) -> Expression:
        if not self._is_measure:
            raise self._refuse(node, f"{name} in DEFINE", "name the column of the time")
        if name == "MATCH_PROCTIME":
            return SqlCall("PROCTIME", (), _PROCTIME)
        if self.by_clock:
            raise self._refuse(node, "MATCH_ROWTIME of rows in the order of the clock", "write MATCH_PROCTIME()")
        kind = _TIMESTAMP
        for given in node.expressions:
            column = next(
                (each for each in self.named.fields if isinstance(given, exp.Column) and each.name == given.name), None
            )
            if column is None or column.time != "rowtime" or len(node.expressions) > 1:
                raise self._refuse(
                    node, f"MATCH_ROWTIME of {shown(given)}", "write MATCH_ROWTIME(), or name the event time"
                )
            kind = column.type.with_null()
        return self._value("rowtime", MatchValue("", kind, "rowtime"))

    def _aggregate(self, node: exp.Expr) -> Expression | None:
        written = aggregate_in(node)
        if written is None:
            return None
        if (
            written.own is not None
            or written.name not in _AGGREGATES
            or written.is_distinct
            or written.filter is not None
        ):
            distinct = " DISTINCT" if written.is_distinct else " with FILTER" if written.filter is not None else ""
            raise self._refuse(node, f"{written.name}{distinct}", f"take one of {', '.join(_AGGREGATES)}")
        if self._at is not None or self._inside is not None:
            raise self._refuse(node, f"{written.name} within another call of rows", "write each of its own")
        self._inside = set()
        try:
            arguments = [self.analysis().expression(each) for each in written.arguments]
            variables = self._inside
        finally:
            self._inside = None
        made = result_type(self.of, written, [each.type for each in arguments])
        if len(variables) != 1 or len(arguments) != 1:
            what = "of no column" if not variables else "of several variables"
            raise self._refuse(node, f"{written.name} {what}", f"write {written.name} of a column of one variable")
        (variable,), (argument,) = variables, arguments
        if written.name == "COUNT":
            return self._value("count", MatchValue("", BIGINT, "count", variable, argument))
        if written.name in ("MIN", "MAX"):
            kind = "min" if written.name == "MIN" else "max"
            return self._value(kind, MatchValue("", made, kind, variable, argument))  # type: ignore[arg-type]
        total = self._value("sum", MatchValue("", _sum_type(argument.type), "sum", variable, argument))
        if written.name == "SUM":
            return cast_to(total, made)
        count = self._value("count", MatchValue("", BIGINT, "count", variable, argument))
        return SqlCall("$AVG", (total, count), made)


def _sum_type(of: SqlType) -> SqlType:
    if of.root == "DECIMAL":
        return SqlType("DECIMAL", (38, of.sizes[1]))
    return _SUM_TYPES.get(of.root, SqlType("BIGINT"))
