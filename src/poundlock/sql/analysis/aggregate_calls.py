"""Which parts of an expression are aggregates, and what each returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from poundlock.sql.analysis.context import Analysis
from poundlock.sql.expressions.tree import Expression, Literal, SqlCall, cast_to
from poundlock.sql.types import STRING, SqlType
from poundlock.sql.user.function import NO_ARGUMENT, SqlUserFunction

_NAMES: Mapping[type[exp.Expr], str] = {
    exp.Count: "COUNT", exp.Sum: "SUM", exp.Avg: "AVG", exp.Min: "MIN", exp.Max: "MAX", exp.FirstValue: "FIRST_VALUE",
    exp.LastValue: "LAST_VALUE", exp.ArrayAgg: "ARRAY_AGG", exp.VariancePop: "VAR_POP", exp.Variance: "VAR_SAMP",
    exp.StddevPop: "STDDEV_POP", exp.StddevSamp: "STDDEV_SAMP", exp.Stddev: "STDDEV_SAMP", exp.RowNumber: "ROW_NUMBER",
    exp.Rank: "RANK", exp.DenseRank: "DENSE_RANK", exp.Lag: "LAG", exp.Lead: "LEAD", exp.GroupConcat: "LISTAGG",
    exp.JSONObjectAgg: "JSON_OBJECTAGG", exp.JSONArrayAgg: "JSON_ARRAYAGG", exp.PercentRank: "PERCENT_RANK",
    exp.CumeDist: "CUME_DIST", exp.Ntile: "NTILE",
}  # fmt: skip
"""What sqlglot has a class for; everything else goes by the name that is written."""

_ARGUMENTS: Mapping[str, tuple[int, int]] = {
    "COUNT": (0, 16), "SUM": (1, 1), "AVG": (1, 1), "MIN": (1, 1), "MAX": (1, 1), "FIRST_VALUE": (1, 1),
    "LAST_VALUE": (1, 1), "LISTAGG": (1, 2), "ARRAY_AGG": (1, 1), "COLLECT": (1, 1), "VAR_POP": (1, 1),
    "VAR_SAMP": (1, 1), "VARIANCE": (1, 1), "STDDEV_POP": (1, 1), "STDDEV_SAMP": (1, 1), "STDDEV": (1, 1),
    "SINGLE_VALUE": (1, 1), "JSON_ARRAYAGG": (1, 1), "JSON_OBJECTAGG": (2, 2),
}  # fmt: skip
"""The aggregates, and how many arguments each takes."""

JSON_AGGREGATES = ("JSON_ARRAYAGG", "JSON_OBJECTAGG")
STATISTICS = ("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP")
RANKS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_OVER_ONLY = {
    "LAG": (1, 3),
    "LEAD": (1, 3),
    "PERCENT_RANK": (0, 0),
    "CUME_DIST": (0, 0),
    "NTILE": (1, 1),
} | dict.fromkeys(RANKS, (0, 0))
AGGREGATES = sorted({*_ARGUMENTS, *_OVER_ONLY} - {"SINGLE_VALUE"})
"""The names of all aggregates, those that need an OVER among them."""
_SAME = {"VARIANCE": "VAR_SAMP", "STDDEV": "STDDEV_SAMP"}
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
BIGINT = SqlType("BIGINT", is_nullable=False)
_AVERAGE_DIGITS = 6  # digits behind the point of an average of decimals, at least
_MOST_DIGITS = 38
_OWN = "poundlock_own_aggregate"
"""What a call of an aggregate of the user's own is marked with, beside its place in the script."""


@dataclass(frozen=True, slots=True)
class WrittenAggregate:
    """An aggregate as it is written.

    Args:
        own: the function, where it is one of the user's own.
    """

    name: str
    arguments: tuple[exp.Expr, ...]
    is_distinct: bool
    filter: exp.Expr | None
    node: exp.Expr
    own: SqlUserFunction | None = None


def mark_own(analysis: Analysis, query: exp.Expr) -> None:
    """Mark the calls of aggregates of the user's own in a query, which are known by name alone: the rest needs no catalog then."""
    if not analysis.catalogs.functions.has_any:
        return
    for node in query.find_all(exp.Anonymous, exp.AggFunc, exp.Dot):
        if type(node) not in _NAMES and _OWN not in node.meta:
            function = analysis.own_function(node)
            if function is not None and function.kind == "aggregate":
                node.meta[_OWN] = function


def aggregate_in(node: exp.Expr, *, over: bool = False) -> WrittenAggregate | None:
    """Return the aggregate that a node is, None where it is none.

    Args:
        over: whether those that need an OVER count too.
    """
    where: exp.Expr | None = None
    called = node
    if isinstance(node, exp.Filter):
        called, condition = node.this, node.expression
        where = condition.this if isinstance(condition, exp.Where) else condition
    name = _name_of(called)
    own = called.meta.get(_OWN)
    if own is not None:
        name = own.name
    elif name not in _ARGUMENTS and not (over and name in _OVER_ONLY):
        return None
    arguments = _arguments_of(called)
    is_distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if is_distinct:
        arguments = tuple(arguments[0].expressions)
    if name == "COUNT" and own is None and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        arguments = ()
    return WrittenAggregate(_SAME.get(name, name), arguments, is_distinct, where, node, own)


def needs_over(node: exp.Expr) -> str | None:
    """Return the name of a function that a node is and that needs an OVER, None where it is none."""
    name = _name_of(node)
    return name if name in _OVER_ONLY else None


def has_aggregates(node: exp.Expr) -> bool:
    """Return whether an expression has an aggregate of its own: none of an OVER, nor of a query in it."""
    return next(_aggregates(node), None) is not None


def _aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    left = [node]
    while left:
        node = left.pop()
        if isinstance(node, exp.Window):  # SUM(COUNT(*)) OVER (…): what stands in it may be one
            left += _arguments_of(node.this.this if isinstance(node.this, exp.Filter) else node.this)
        elif isinstance(node, exp.Query):
            continue
        elif aggregate_in(node) is not None:
            yield node
        else:
            left += node.iter_expressions()


def _name_of(node: exp.Expr) -> str:
    known = _NAMES.get(type(node))
    if known is not None:
        return known
    return str(node.this).upper() if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc) else ""


def _arguments_of(node: exp.Expr) -> tuple[exp.Expr, ...]:
    if isinstance(node, exp.Dot):
        return _arguments_of(node.expression)
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return tuple(node.expressions)
    if isinstance(node, exp.JSONObjectAgg):
        (pair,) = node.expressions
        return (pair.this, pair.expression)
    parts: list[exp.Expr] = []
    for key in node.arg_types:
        value = node.args.get(key)
        if isinstance(value, exp.Expr):
            parts.append(value)
        elif isinstance(value, list):
            parts += [each for each in value if isinstance(each, exp.Expr)]
    return tuple(parts)


def arguments_row(arguments: Sequence[Expression]) -> Expression:
    """Return the arguments of an aggregate of the user's own as the one ROW that it is given; of none a field that says so."""
    given = tuple(arguments) or (Literal(True, SqlType("BOOLEAN", is_nullable=False)),)
    names = tuple(f"f{number}" for number in range(len(arguments))) or (NO_ARGUMENT,)
    return SqlCall("ROW", given, SqlType("ROW", of=tuple(each.type for each in given), names=names, is_nullable=False))


def result_type(analysis: Analysis, written: WrittenAggregate, types: Sequence[SqlType]) -> SqlType:
    """Return what an aggregate returns for arguments of some types.

    Raises:
        SqlError: it does not take them.
    """
    least, most = _ARGUMENTS[written.name] if written.name in _ARGUMENTS else _OVER_ONLY[written.name]
    if not least <= len(types) <= most:
        some = f"{least}" if least == most else f"{least} to {most}"
        raise analysis.error(
            written.node,
            f"{written.name} takes {some} argument{'s' if most != 1 else ''}, and got {len(types)}",
            "mend its arguments",
            "wrong_arguments",
        )
    if written.name == "COUNT" or written.name in RANKS or written.name == "NTILE":
        return BIGINT
    if written.name in ("PERCENT_RANK", "CUME_DIST"):
        return SqlType("DOUBLE", is_nullable=False)
    if written.name in JSON_AGGREGATES:
        raise analysis.error(
            written.node,
            f"{written.name} is an aggregate of groups alone, as in Flink",
            f"write {written.name} with GROUP BY",
            "unsupported_query",
        )
    of = types[0]
    if written.name in ("SUM", "AVG", "VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"):
        if of.root not in _NUMBERS:
            raise analysis.error(
                written.node,
                f"{written.name} of {of}, which is no number",
                "give a column of numbers, or CAST it",
                "type_mismatch",
            )
        return _number(written.name, of)
    if written.name == "LISTAGG":
        return STRING
    if written.name == "ARRAY_AGG":
        return SqlType("ARRAY", of=(of,))
    if written.name == "COLLECT":
        return SqlType("MULTISET", of=(of,), is_nullable=False)
    if written.name in ("MIN", "MAX") and of.root in ("MAP", "ROW", "ARRAY", "MULTISET"):
        raise analysis.error(
            written.node, f"{written.name} of {of}, which has no order", "take one of its fields", "type_mismatch"
        )
    return _nullable(of)


def _number(name: str, of: SqlType) -> SqlType:
    if of.root == "DECIMAL":
        digits = of.sizes[1] if name == "SUM" else max(_AVERAGE_DIGITS, of.sizes[1])
        return SqlType("DECIMAL", (_MOST_DIGITS, digits))
    return SqlType(of.root)


def _nullable(of: SqlType) -> SqlType:
    return SqlType(of.root, of.sizes, of.of, of.names)


def statistic(
    analysis: Analysis,
    written: WrittenAggregate,
    of: Expression,
    made: SqlType,
    aggregate: Callable[[str, Expression, SqlType], Expression],
) -> Expression:
    """Return a variance or deviation, as Calcite takes it apart; it is computed in DOUBLE, whatever the type of the result.

    Args:
        of: the values.
        made: the type of the result.
        aggregate: returns an aggregate of the same rows by its name, argument and type.
    """
    call = analysis.call
    of = cast_to(of, SqlType("DOUBLE"))
    squared = call("*", [of, of])
    total_type = result_type(analysis, replace(written, name="SUM"), [of.type])
    squares_type = result_type(analysis, replace(written, name="SUM"), [squared.type])
    total, squares = aggregate("SUM", of, total_type), aggregate("SUM", squared, squares_type)
    count = aggregate("COUNT", of, BIGINT)
    difference = call("-", [squares, call("/", [call("*", [total, total]), count])])
    one, none = Literal(1, BIGINT), Literal(None, BIGINT.with_null())
    if written.name.endswith("SAMP"):
        count = SqlCall("CASE", (call("=", [count, one]), none, call("-", [count, one])), BIGINT.with_null())
    quotient = call("/", [difference, count])
    if written.name.startswith("STDDEV"):
        quotient = call("POWER", [quotient, Literal(0.5, SqlType("DOUBLE", is_nullable=False))])
    return cast_to(quotient, made.with_null())


def json_aggregate(
    analysis: Analysis,
    written: WrittenAggregate,
    typed: Sequence[Expression],
    aggregate: Callable[[str, Expression, SqlType], Expression],
) -> Expression:
    """Return JSON_ARRAYAGG or JSON_OBJECTAGG: a list of the JSON texts of its values, as one text.

    Args:
        typed: its arguments.
        aggregate: as of `statistic`.

    Raises:
        SqlError: a value has no JSON text, or a key is no text.
    """
    called = written.node.this if isinstance(written.node, exp.Filter) else written.node
    is_object = written.name == "JSON_OBJECTAGG"
    nulls = str(called.args.get("null_handling") or ("NULL ON NULL" if is_object else "ABSENT ON NULL")).upper()
    node = written.arguments[-1]
    is_json = isinstance(node, exp.JSONObject | exp.JSONArray) or _name_of(node) in ("JSON", *JSON_AGGREGATES)
    element = typed[-1] if is_json else analysis.call("JSON_STRING", [typed[-1]])
    if nulls == "NULL ON NULL":
        element = analysis.call("COALESCE", [element, Literal("null", STRING.not_null())])
    if is_object:
        key = typed[0]
        if key.type.root not in ("CHAR", "VARCHAR"):
            what, next = f"JSON_OBJECTAGG with a key of {key.type}", "CAST the key to STRING"
            raise analysis.error(called, what, next, "type_mismatch")
        pair = SqlType("ROW", of=(STRING, STRING), names=("key", "text"), is_nullable=False)
        element = SqlCall("ROW", (cast_to(key, STRING), cast_to(element, STRING)), pair)
    made = aggregate("ARRAY_AGG", element, SqlType("ARRAY", of=(element.type,)))
    return SqlCall(f"${written.name}", (made,), STRING.not_null())
