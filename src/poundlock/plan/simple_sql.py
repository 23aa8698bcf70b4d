"""Which steps of row-wise SQL tasks run by themselves: those made of columns, literals, comparisons and logic that mean the same everywhere.

Pure. In doubt a step stays Spark's: a text that can be read in two ways, a name that fits two columns, a type that would be cast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from poundlock.operators.sql_expressions import (
    Arithmetic,
    BothOrEither,
    ColumnValue,
    Comparison,
    Constant,
    Converted,
    Expression,
    IsNull,
    Negation,
    Not,
    SqlColumns,
    SqlFilter,
)
from poundlock.plan.sql_text import named_column, parts_of
from poundlock.stream.nodes import SqlNode

_EXACT = 1 << 53  # whole numbers up to here are double precision numbers
_INT32, _INT64 = 1 << 31, 1 << 63


@dataclass(frozen=True, slots=True)
class NeedsSpark:
    """A step that tasks cannot run; `reason` is for `explain`."""

    reason: str


def sql_operator(node: SqlNode, schema: pa.Schema | None) -> tuple[SqlFilter | SqlColumns, pa.Schema] | NeedsSpark:
    """Return what runs a step in the tasks, and the columns behind it; or why only Spark can.

    Args:
        node: the step.
        schema: the columns that come in; None where only Spark knows them.
    """
    if schema is None:
        return NeedsSpark("its columns are known to Spark only")
    try:
        return _operator(node, schema)
    except _OnlySparkError as error:
        return NeedsSpark(str(error))


class _OnlySparkError(Exception):
    """Something that is left to Spark."""


@dataclass(frozen=True, slots=True)
class _Typed:
    """An expression and its type."""

    value: Expression
    kind: pa.DataType


def _operator(node: SqlNode, schema: pa.Schema) -> tuple[SqlFilter | SqlColumns, pa.Schema]:
    reader = _Reader(schema)
    if node.kind == "where":
        condition = reader.read(node.arguments[0])
        _require(pa.types.is_boolean(condition.kind), "the condition is no truth value")
        return SqlFilter(condition.value, schema), schema
    if node.kind == "select":
        columns = [each for text in node.arguments for each in _selected(reader, text)]
    elif node.kind == "with_column":
        columns = _with_column(reader, *node.arguments)
    else:
        gone = {name.lower() for name in node.arguments}
        columns = [each for each in _all(schema) if each[0].name.lower() not in gone]
    names = [field.name.lower() for field, _ in columns]
    _require(len(set(names)) == len(names), "two columns have one name")
    after = pa.schema([field for field, _ in columns])
    return SqlColumns([value for _, value in columns], schema, after), after


def _all(schema: pa.Schema) -> list[tuple[pa.Field, Expression]]:
    return [(field, ColumnValue(place)) for place, field in enumerate(schema)]


def _selected(reader: _Reader, text: str) -> list[tuple[pa.Field, Expression]]:
    if text.strip() == "*":
        return _all(reader.schema)
    plain = named_column(text)
    if plain is not None and plain.column is not None:
        place = reader.place(plain.column)
        return [(reader.schema.field(place).with_name(plain.name), ColumnValue(place))]
    found, name = reader.read_named(text)
    _require(name is not None, f"only Spark knows what it calls {text}")
    return [(pa.field(name, found.kind), found.value)]


def _with_column(reader: _Reader, name: str, text: str) -> list[tuple[pa.Field, Expression]]:
    found = reader.read(text)
    added: tuple[pa.Field, Expression] = (pa.field(name, found.kind), found.value)
    columns = _all(reader.schema)
    alike = [place for place, (field, _) in enumerate(columns) if field.name.lower() == name.lower()]
    _require(len(alike) < 2, f"several columns are called {name}")
    if not alike:
        return [*columns, added]
    columns[alike[0]] = added
    return columns


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise _OnlySparkError(reason)


_COMPARISONS: Mapping[str, Literal["=", "<>", ">", ">=", "<", "<="]] = {
    "EQ": "=",
    "NEQ": "<>",
    "GT": ">",
    "GTE": ">=",
    "LT": "<",
    "LTE": "<=",
}
_ARITHMETIC: Mapping[str, Literal["+", "-", "*"]] = {"Add": "+", "Sub": "-", "Mul": "*"}
_OPERANDS = ("Column", "Literal", "Boolean", "Paren", "Neg", "Add", "Sub", "Mul")


class _Reader:
    """Reads expressions over the columns of a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def place(self, name: str) -> int:
        """Return the place of the column that a name means."""
        alike = [place for place, each in enumerate(self.schema.names) if each.lower() == name.lower()]
        _require(len(alike) == 1, f"{name} is not the name of one column")
        return alike[0]

    def read(self, text: str) -> _Typed:
        """Return the expression that a text is, without its name."""
        return self.read_named(text)[0]

    def read_named(self, text: str) -> tuple[_Typed, str | None]:
        """Return the expression that a text is, and the name it is given."""
        from sqlglot import exp, parse_one
        from sqlglot.errors import SqlglotError

        _refuse_doubtful(text)
        try:
            tree = parse_one(text, dialect="spark")
        except SqlglotError:
            raise _OnlySparkError(f"{text} is not read without Spark") from None
        written = sum(part.lower == "(" for part in parts_of(text))
        read = sum(1 for _ in tree.find_all(exp.Paren, exp.In))
        _require(
            written == read, "operators without parentheses"
        )  # else some were put in where Spark's grammar has none
        name = None
        if isinstance(tree, exp.Alias):
            tree, name = tree.this, tree.alias
        found = self._value(tree)
        _require(found.kind != _DECIMAL, "a decimal number")
        return found, name

    def _value(self, tree: Any) -> _Typed:
        kind = type(tree).__name__
        if kind == "Paren":
            return self._value(tree.this)
        if kind == "Column":
            _require(not tree.table, "a field of a struct")
            place = self.place(tree.name)
            return _Typed(ColumnValue(place), self.schema.field(place).type)
        if kind in ("Literal", "Boolean"):
            return _literal(tree, negative=False)
        if kind in _COMPARISONS:
            return self._comparison(_COMPARISONS[kind], tree.this, tree.expression)
        if kind in ("And", "Or"):
            left, right = self._truth(tree.this), self._truth(tree.expression)
            return _Typed(BothOrEither(kind == "And", left, right), pa.bool_())
        if kind == "Not":
            return _Typed(Not(self._truth(tree.this)), pa.bool_())
        if kind in _ARITHMETIC:
            left, right = self._doubles(kind, tree.this, tree.expression)
            return _Typed(Arithmetic(_ARITHMETIC[kind], left, right), pa.float64())
        return self._other(kind, tree)

    def _other(self, kind: str, tree: Any) -> _Typed:
        if kind == "Neg":
            if type(tree.this).__name__ == "Literal":
                return _literal(tree.this, negative=True)
            found = self._value(tree.this)
            _require(found.kind == pa.float64(), "arithmetic that can overflow")
            return _Typed(Negation(found.value), pa.float64())
        if kind == "Is":
            _require(type(tree.expression).__name__ == "Null", "a comparison with IS")
            return _Typed(IsNull(self._operand(tree.this).value), pa.bool_())
        if kind == "Between":
            low = self._comparison(">=", tree.this, tree.args["low"])
            high = self._comparison("<=", tree.this, tree.args["high"])
            return _Typed(BothOrEither(True, low.value, high.value), pa.bool_())
        if kind == "In" and tree.expressions:
            return self._one_of(tree.this, tree.expressions)
        raise _OnlySparkError(f"{tree.sql('spark')} is Spark's to compute")

    def _one_of(self, operand: Any, members: Sequence[Any]) -> _Typed:
        _require(len(members) <= 64, "a long list")
        found: Expression | None = None
        for member in members:
            _require(type(member).__name__ in ("Literal", "Boolean", "Neg"), "a list of expressions")
            equal = self._comparison("=", operand, member).value
            found = equal if found is None else BothOrEither(False, found, equal)
        assert found is not None
        return _Typed(found, pa.bool_())

    def _operand(self, tree: Any) -> _Typed:
        """Return a value beside an operator. What could bind otherwise in Spark's grammar must be in parentheses."""
        _require(type(tree).__name__ in _OPERANDS, "operators without parentheses")
        return self._value(tree)

    def _truth(self, tree: Any) -> Expression:
        found = self._value(tree)
        _require(pa.types.is_boolean(found.kind), "logic of values that are no truth values")
        return found.value

    def _comparison(self, operator: Literal["=", "<>", ">", ">=", "<", "<="], one: Any, other: Any) -> _Typed:
        left, right = _same_type(self._operand(one), self._operand(other))
        if pa.types.is_boolean(left.kind):
            _require(operator in ("=", "<>"), "an order of truth values")
        return _Typed(Comparison(operator, left.value, right.value, left.kind == pa.float64()), pa.bool_())

    def _doubles(self, kind: str, one: Any, other: Any) -> tuple[Expression, Expression]:
        # Spark takes a + b + c for c + b + a where both are computed, and rounding depends on the order.
        same = kind != "Sub" and kind in (type(one.unnest()).__name__, type(other.unnest()).__name__)
        _require(not same, "a sum or product of three numbers")
        left, right = _same_type(self._operand(one), self._operand(other))
        _require(left.kind == pa.float64(), "arithmetic that can overflow")
        return left.value, right.value


_COMPARED = (pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us", "UTC"))


def _same_type(left: _Typed, right: _Typed) -> tuple[_Typed, _Typed]:
    """Return two values in one type, if that is the type that Spark compares them in."""
    for one, other in ((left, right), (right, left)):
        _require(
            one.kind in _COMPARED or (one.kind == _DECIMAL and other.kind == pa.float64()), f"values of type {one.kind}"
        )
    if left.kind == right.kind:
        return left, right
    if {left.kind, right.kind} == {pa.int32(), pa.int64()}:
        return _converted(left, pa.int64()), _converted(right, pa.int64())
    if left.kind == pa.float64():
        return left, _as_double(right)
    if right.kind == pa.float64():
        return _as_double(left), right
    raise _OnlySparkError(f"values of types {left.kind} and {right.kind}")


def _converted(value: _Typed, kind: pa.DataType) -> _Typed:
    return value if value.kind == kind else _Typed(Converted(value.value, kind), kind)


_DECIMAL = pa.decimal128(
    38, 18
)  # stands for the type of a literal such as 1.5, which only has a meaning beside a double


def _as_double(value: _Typed) -> _Typed:
    constant = value.value
    _require(isinstance(constant, Constant), f"a value of type {value.kind} beside a double")
    assert isinstance(constant, Constant)
    number = constant.value
    _require(isinstance(number, (int, float)) and not isinstance(number, bool), "a text beside a number")
    _require(isinstance(number, float) or abs(int(number)) <= _EXACT, "a number that no double holds")
    return _Typed(Constant(float(number), pa.float64()), pa.float64())


def _literal(tree: Any, *, negative: bool) -> _Typed:
    if type(tree).__name__ == "Boolean":
        return _Typed(Constant(bool(tree.this), pa.bool_()), pa.bool_())
    text = str(tree.this)
    if tree.is_string:
        _require(not negative, "a text with a sign")
        return _Typed(Constant(text, pa.string()), pa.string())
    sign = -1 if negative else 1
    if text.isascii() and text.isdigit():
        number = sign * int(text)
        _require(abs(number) < _INT64, "a number of many digits")
        kind = pa.int32() if abs(number) < _INT32 else pa.int64()
        return _Typed(Constant(number, kind), kind)
    whole, point, part = text.partition(".")
    if point and (whole + part).isascii() and (whole + part).isdigit():
        _require(len(whole + part) <= 15, "a number of many digits")
        # A decimal has no negative zero.
        return _Typed(Constant(sign * float(text) or 0.0, _DECIMAL), _DECIMAL)
    raise _OnlySparkError(f"the literal {text}")


def _refuse_doubtful(text: str) -> None:
    """Leave texts to Spark that say something else to others: escapes in strings, comments, double quotes."""
    parts = parts_of(text)
    _require(bool(parts), f"{text} is not read without Spark")
    strings = [text[part.start : part.end] for part in parts if part.kind == "string"]
    plain = all(raw[0] == "'" == raw[-1] and "'" not in raw[1:-1] and "\\" not in raw for raw in strings)
    _require(plain and "--" not in text and "/*" not in text and '"' not in text, "a text with quotes or comments")
