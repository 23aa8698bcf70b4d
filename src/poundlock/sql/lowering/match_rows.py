"""What the operator of MATCH_RECOGNIZE computes of rows one by one: conditions that look at earlier rows, and the values of a match.

What depends on a row alone is computed by columns before: the operator is given a column of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from functools import cmp_to_key, partial
from typing import Any
from zlib import crc32

from poundlock.formats import ddl
from poundlock.formats.convert import column_values, declared_rows
from poundlock.operators.value_order import compare
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate, is_constant, is_total
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, columns_of, replaced
from poundlock.sql.lowering.schemas import schema_of
from poundlock.sql.lowering.single_values import Value, single_value
from poundlock.sql.relations.fields import ColumnNames, Field
from poundlock.sql.relations.tree import LogicalMatch, MatchValue
from poundlock.stream.matching import MatchCondition, MatchedRows, MatchResult, Row

_WIDE = Context(prec=76)
_EPOCH = {"TIMESTAMP": datetime(1970, 1, 1), "TIMESTAMP_LTZ": datetime(1970, 1, 1, tzinfo=UTC)}


@dataclass(frozen=True)
class SqlMatchProgram:
    """What rows have to be, and what comes out for a match.

    Args:
        fields: of a row.
        variables: of the pattern, in its order.
        conditions_: of the variables, over the values; None: any row.
        values: that conditions and results are of.
        outputs: the columns of the values that come out.
    """

    fields: tuple[Field, ...]
    variables: tuple[str, ...]
    conditions_: tuple[Expression | None, ...]
    values: tuple[MatchValue, ...]
    outputs: tuple[str, ...]
    context: EvaluationContext

    @property
    def columns(self) -> Sequence[str]:
        """The columns of a row."""
        return [each.column for each in self.fields]

    def conditions(self) -> Sequence[MatchCondition | None]:
        """Return for each variable whether a row may be of it."""
        return [
            None if each is None else _condition(single_value(each, self._getters(number), self.context))
            for number, each in enumerate(self.conditions_)
        ]

    def result(self) -> MatchResult:
        """Return what makes the values of a match."""
        by_column = {each.column: each for each in self.values}
        getters = [self._output(by_column[name]) for name in self.outputs]
        return lambda rows, time: tuple([get(rows, time) for get in getters])

    def _output(self, value: MatchValue) -> Callable[[MatchedRows, int], Any]:
        if value.kind == "rowtime":
            begin = _EPOCH[value.type.root]
            return lambda rows, time: begin + timedelta(milliseconds=time)
        get = self._getter(value, None)
        return lambda rows, time: get(rows)

    def _getters(self, number: int) -> dict[str, Value]:
        """Return what gives each value where a row may become one of a variable."""
        return {each.column: self._getter(each, number) for each in self.values if each.kind != "rowtime"}

    def _getter(self, value: MatchValue, at: int | None) -> Value:
        variable = None if value.variable is None else self.variables.index(value.variable)
        if value.kind != "row":
            return self._aggregate(value, variable)
        assert isinstance(value.expression, ColumnRef)
        place = self.columns.index(value.expression.name)
        if at is not None and _is_current(value, self.variables[at]):
            return lambda rows: rows.row[place]  # type: ignore[index]
        offset, from_first = value.offset, value.from_first

        def get(rows: MatchedRows) -> Any:
            row = rows.row_of(variable, offset, from_first=from_first)
            return None if row is None else row[place]

        return get

    def _aggregate(self, value: MatchValue, variable: int | None) -> Value:
        assert value.expression is not None
        argument = self._argument(value.expression)
        aggregate = _AGGREGATES[value.kind]
        return lambda rows: aggregate([each for each in argument(rows.rows_of(variable)) if each is not None])

    def _argument(self, expression: Expression) -> Callable[[list[Row]], list[Any]]:
        """Return what gives an expression of each of some rows."""
        if isinstance(expression, ColumnRef):
            place = self.columns.index(expression.name)
            return lambda rows: [row[place] for row in rows]
        schema, context = schema_of(self.fields), self.context

        def computed(rows: list[Row]) -> list[Any]:
            batch = declared_rows("match", schema, [tuple(row) for row in rows])
            return column_values(evaluate(expression, batch, context))

        return computed


def _condition(value: Value) -> MatchCondition:
    return lambda rows: value(rows) is True


def _is_current(value: MatchValue, variable: str) -> bool:
    """Return whether a value is of the row itself that may become one of a variable."""
    is_own = value.variable is None or value.variable == variable
    return value.kind == "row" and is_own and value.offset == 0 and not value.from_first


# --- aggregates of the values of some rows that are not null -----------------------------------------------------------


def _sum(values: list[Any]) -> Any:
    if not values:
        return None
    if isinstance(values[0], Decimal):
        total = values[0]
        for each in values[1:]:
            total = _WIDE.add(total, each)
        return total
    whole = sum(values)
    return whole if isinstance(whole, float) else (whole + (1 << 63)) % (1 << 64) - (1 << 63)


def _extreme(values: list[Any], choose: Callable[..., Any]) -> Any:
    return choose(values, key=cmp_to_key(compare)) if values else None


_AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {
    "count": len, "sum": _sum, "min": partial(_extreme, choose=min), "max": partial(_extreme, choose=max),
}  # fmt: skip


# --- what is computed by columns ----------------------------------------------------------------------------------------


@dataclass
class MatchColumns:
    """Divides the work of a match: what columns its rows need, and what of its conditions is computed by columns.

    Args:
        computed: the columns that are computed before, with their expressions over the input.
    """

    match: LogicalMatch
    context: EvaluationContext
    computed: list[tuple[Field, Expression]] = field(default_factory=list)
    _values: list[MatchValue] = field(default_factory=list)
    _names: ColumnNames = field(default_factory=ColumnNames)

    def __post_init__(self) -> None:
        for each in self.match.input.fields:
            self._names.fresh(each.column)

    def program(self) -> SqlMatchProgram:
        """Return what the operator computes."""
        match = self.match
        self._values = [self._computed_argument(each) for each in match.values]
        conditions = {name: self._condition(name, each) for name, each in match.conditions}
        needed = {column for each in match.measures for column in columns_of(each)}
        outputs = tuple(each.column for each in self._values if each.column in needed)
        needed |= {column for each in conditions.values() for column in columns_of(each)}
        values = tuple(each for each in self._values if each.column in needed)
        wanted = {key.column for key in match.order[1:]}
        wanted |= {name for each in values if each.expression is not None for name in columns_of(each.expression)}
        fields = (*match.input.fields, *(own for own, _ in self.computed))
        variables = tuple(each.name for each in match.pattern)
        return SqlMatchProgram(
            tuple(each for each in fields if each.column in wanted),
            variables,
            tuple(conditions.get(name) for name in variables),
            values,
            outputs,
            self.context,
        )

    def _condition(self, variable: str, condition: Expression) -> Expression:
        """Return a condition in which what is of the row alone is a column."""
        own = {each.column: each.expression for each in self._values if _is_current(each, variable)}

        def of_input(part: Expression) -> Expression | None:
            return own[part.name] if isinstance(part, ColumnRef) else None

        def by_columns(part: Expression) -> Expression | None:
            if isinstance(part, ColumnRef | Literal) or is_constant(part) or not is_total(part):
                return None
            if not set(columns_of(part)) <= own.keys():
                return None
            column = self._column(replaced(part, of_input))
            value = MatchValue(self._names.fresh("row_value"), part.type, "row", variable, column)
            self._values.append(value)
            return ColumnRef(value.column, value.type)

        return replaced(condition, by_columns)

    def _computed_argument(self, value: MatchValue) -> MatchValue:
        if value.kind == "row" or value.expression is None or isinstance(value.expression, ColumnRef):
            return value
        return replace(value, expression=self._column(value.expression)) if is_total(value.expression) else value

    def _column(self, expression: Expression) -> ColumnRef:
        """Return a column that is computed before."""
        for own, known in self.computed:
            if known == expression:
                return own.ref
        # Rows that wait have it in state: the name says what it is of, so that those of another condition are refused.
        name = self._names.fresh(f"computed_{crc32(repr(expression).encode()):08x}")
        own = Field(name, name, expression.type)
        self.computed.append((own, expression))
        return own.ref


def output_schema(program: SqlMatchProgram) -> str:
    """Return the columns that come out of the operator, as DDL."""
    types = {each.column: each.type for each in program.values}
    return ddl.render(schema_of([Field(name, name, types[name]) for name in program.outputs]))
