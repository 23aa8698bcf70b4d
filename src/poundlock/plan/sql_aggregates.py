"""SQL aggregates for our own operators: read with Spark's parser, their arguments left to Spark, only the adding up to us.

What is not one known function of one argument is refused with the ways out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from poundlock.errors import DefinitionError
from poundlock.operators.windows.aggregates import KINDS, SqlAggregate

__all__ = ["Parsed", "parse_aggregates"]

_NAMES = {"mean": "avg", "array_agg": "collect_list", "first_value": "first", "last_value": "last"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """Aggregates, and what Spark computes for them.

    Args:
        aggregates: of elements that are tuples.
        arguments: Spark SQL of each part of an element.
    """

    aggregates: Sequence[SqlAggregate]
    arguments: Sequence[str]


def parse_aggregates(spark: SparkSession, texts: Sequence[str], operator: str) -> Parsed:
    """Return aggregates such as "sum(n * 2) as total".

    Raises:
        DefinitionError: one is not among those our operators know.
    """
    arguments: list[str] = []
    found: list[SqlAggregate] = []
    for text in texts:
        call = _call(spark, text)
        if call is None:
            raise DefinitionError(
                f"{operator}: {text!r} cannot be computed with this trigger, evictor, lateness or window",
                next=f"use {', '.join(KINDS)} of one argument each and put results together in a select(…) behind, "
                "or write an AggregateFunction",
            )
        kind, argument, ignore_nulls = call
        if argument is None:
            found.append(SqlAggregate(kind="count"))
            continue
        if argument not in arguments:
            arguments.append(argument)
        found.append(SqlAggregate(kind=kind, column=arguments.index(argument), ignore_nulls=ignore_nulls))
    return Parsed(found, arguments)


def _call(spark: SparkSession, text: str) -> tuple[Any, str | None, bool] | None:
    """Return the function, its argument and whether it ignores nulls; None for the argument of count(*); None if it is anything else."""
    tree = spark._jsparkSession.sessionState().sqlParser().parseExpression(text)
    if tree.nodeName() == "Alias":
        tree = tree.child()
    if tree.nodeName() == "AggregateExpression":
        return _end(tree)
    if tree.nodeName() != "UnresolvedFunction" or tree.filter().isDefined() or tree.orderingWithinGroup().nonEmpty():
        return None
    names, given = tree.nameParts(), tree.arguments()
    name = str(names.head()).lower()
    name = _NAMES.get(name, name)
    if names.size() != 1 or given.size() != 1:
        return None
    argument = given.apply(0)
    if name == "count" and not tree.isDistinct():
        kind = argument.nodeName()
        if kind == "UnresolvedStar" or (kind == "Literal" and argument.value() is not None):
            return "count", None, False
    if tree.isDistinct():
        name = f"{name}_distinct"
    nulls = tree.ignoreNulls()  # IGNORE NULLS, RESPECT NULLS, or neither
    if name not in KINDS or (nulls.isDefined() and name not in ("first", "last")):
        return None
    return name, str(argument.sql()), nulls.isDefined() and bool(nulls.get())


def _end(tree: Any) -> tuple[Any, str | None, bool] | None:
    """Return what `_call` does, of first(…) and last(…): the parser makes aggregates of them at once."""
    function = tree.aggregateFunction()
    name = str(function.prettyName())
    if name not in ("first", "last") or tree.filter().isDefined():
        return None
    return name, str(function.child().sql()), bool(function.ignoreNulls())
