"""UNNEST, and functions of the user's own that give rows: each row of a relation with the elements of a collection, or the rows, of it."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.scope import NamedFields, QueryScope
from poundlock.sql.expressions.tree import Expression
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import LogicalProject, LogicalRelation, LogicalUnnest
from poundlock.sql.types import SqlType

_NUMBER = SqlType("INT", is_nullable=False)


def unnested(
    analysis: Analysis,
    left: LogicalRelation,
    typed: Expression,
    item: exp.Expr,
    *,
    is_outer: bool,
    numbered: bool = False,
) -> tuple[LogicalRelation, NamedFields]:
    """Return a relation with the elements of a collection behind its columns, and those alone.

    Args:
        typed: the collection.
        item: what stands in FROM, with its alias.
        is_outer: whether a row without elements stays.
        numbered: whether the elements have a number.

    Raises:
        SqlError: it is no collection, or the names are too many or too few.
    """
    if typed.type.root not in ("ARRAY", "MAP", "MULTISET"):
        raise analysis.error(
            item.expressions[0],
            f"UNNEST of {typed.type}, which has no elements",
            "give an array or a map",
            "type_mismatch",
        )
    fields, column = left.fields, analysis.names.fresh("collection")
    relation: LogicalRelation = LogicalProject(
        (*fields, Field(column, column, typed.type)), left, (*(f.ref for f in fields), typed)
    )
    alias = item.args.get("alias")
    named = [each.name for each in alias.args.get("columns") or ()] if alias is not None else []
    element = _element_fields(typed.type)
    number = item.args.get("offset")
    if named and isinstance(number, exp.Identifier):  # which sqlglot takes from the end of the names
        named.append(number.name)
    if numbered:
        element.append(("ORDINALITY", _NUMBER))
    names = named or [name for name, _ in element]
    if len(names) != len(element):
        raise analysis.error(
            item,
            f"{len(names)} names for {len(element)} columns of an element",
            "name each",
            "column_count_mismatch",
        )
    own = tuple(
        Field(name, analysis.names.fresh(name), replace(kind, is_nullable=kind.is_nullable or is_outer))
        for name, (_, kind) in zip(names, element, strict=True)
    )
    ordinality = own[-1].column if numbered else None
    relation = LogicalUnnest((*fields, *own), relation, column, is_outer, ordinality)
    given = alias.this.name if alias is not None and alias.this is not None else None
    return relation, NamedFields(given, own)


def is_own_rows(analysis: Analysis, node: exp.Expr) -> bool:
    """Return whether a node of FROM calls a function of the user's own, perhaps within TABLE( … )."""
    return analysis.own_function(_called(node)) is not None


def function_rows(
    analysis: Analysis, left: LogicalRelation, scope: QueryScope, item: exp.Expr, *, is_outer: bool
) -> tuple[LogicalRelation, NamedFields]:
    """Return a relation with the rows that a function gives for each of its rows; arguments as of `unnested`.

    Raises:
        SqlError: there is no such function, it gives no rows, or does not take such arguments.
    """
    node = _called(item.this)
    function = analysis.own_function(node)
    if function is None:
        analysis.expression(node, scope)  # which says that there is none
        raise analysis.error(
            item, f"{node.sql()[:40]} gives no rows", "declare a function with @udtf", "unsupported_query"
        )
    return unnested(analysis, left, analysis.own_rows(function, node, scope), item, is_outer=is_outer)


def _called(node: exp.Expr) -> exp.Expr:
    """Return what stands within TABLE( … )."""
    if isinstance(node, exp.Anonymous) and node.name.upper() == "TABLE" and len(node.expressions) == 1:
        inner = node.expressions[0]
        return inner if isinstance(inner, exp.Expr) else node
    return node


def _element_fields(collection: SqlType) -> list[tuple[str, SqlType]]:
    """Return the columns of an element: those of a row, key and value of a map, or the one."""
    if collection.root == "MAP":
        return [("KEY", collection.of[0]), ("VALUE", collection.of[1])]
    element = collection.of[0]
    if element.root == "ROW":
        return list(zip(element.names, (replace(each, is_nullable=True) for each in element.of), strict=True))
    return [("EXPR$0", element)]
