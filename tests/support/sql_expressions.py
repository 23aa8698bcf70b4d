"""An expression of SQL over the columns of a batch, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Any

import pyarrow as pa
from sqlglot import exp

from poundlock.sql.analysis.scope import NamedFields, QueryScope
from poundlock.sql.expressions.analysis import ExpressionAnalysis
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import Expression
from poundlock.sql.relations.fields import Field
from poundlock.sql.script import ParsedStatement, statements_of
from poundlock.sql.types import SqlType, type_of

ONE_ROW = pa.RecordBatch.from_arrays([pa.nulls(1)], ["nothing"])


def kind(declared: str) -> SqlType:
    """Return the type that is declared."""
    (made,) = statements_of(f"SELECT CAST(NULL AS {declared})")
    assert isinstance(made, ParsedStatement)
    declared_type = made.expression.find(exp.DataType)
    assert declared_type is not None
    return type_of(declared_type)


def scope_of(script: str, table: str, columns: Mapping[str, SqlType]) -> QueryScope:
    """Return the scope of the columns of one table."""
    return QueryScope(script, (NamedFields(table, tuple(Field(name, name, of) for name, of in columns.items())),))


def tree(text: str, columns: Mapping[str, str] | None = None) -> Expression:
    """Return the tree of an expression over columns, given as names and types."""
    script = f"SELECT {text}"
    (made,) = statements_of(script)
    assert isinstance(made, ParsedStatement)
    scope = scope_of(script, "t", {name: kind(of) for name, of in (columns or {}).items()})
    node = made.expression.expressions[0]
    return ExpressionAnalysis(script, scope).expression(node.this if isinstance(node, exp.Alias) else node)


def values(
    text: str, columns: Mapping[str, tuple[str, list[Any]]] | None = None, *, zone: tzinfo = UTC, now_us: int = 0
) -> list[Any]:
    """Return the values of an expression over columns, given as names, types and values."""
    types = {name: of for name, (of, _) in (columns or {}).items()}
    arrays = [pa.array(column, kind(of).arrow) for of, column in (columns or {}).values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(types)) if types else ONE_ROW
    made: list[Any] = evaluate(tree(text, types), batch, EvaluationContext(zone, now_us)).to_pylist()
    return made


def value(text: str) -> Any:
    """Return the value of an expression of constants."""
    (made,) = values(text)
    return made
