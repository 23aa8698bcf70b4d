"""VALUES as a relation."""

from __future__ import annotations

from sqlglot import exp

from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.scope import QueryScope
from poundlock.sql.coercion import common_type
from poundlock.sql.expressions.tree import cast_to
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import LogicalValues


def values_of(analysis: Analysis, node: exp.Values) -> LogicalValues:
    """Return the rows that VALUES writes down; columns have the type that all their values fit in.

    Raises:
        SqlError: rows differ in length, or values of a column have no common type.
    """
    scope = QueryScope(analysis.script)
    rows = [
        [analysis.expression(value, scope) for value in (row.expressions if isinstance(row, exp.Tuple) else [row])]
        for row in node.expressions
    ]
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        raise analysis.error(
            node, "rows of VALUES that differ in length", "give each as many values", "column_count_mismatch"
        )
    types = []
    for values in zip(*rows, strict=True):
        shared = common_type([value.type for value in values])
        if shared is None:
            raise analysis.error(
                node,
                f"values of {' and '.join(sorted({str(v.type) for v in values}))} in one column of VALUES",
                "CAST them to one type",
                "type_mismatch",
            )
        types.append(shared)
    fields = tuple(
        Field(f"EXPR${place}", analysis.names.fresh(f"EXPR${place}"), kind) for place, kind in enumerate(types)
    )
    made = tuple(tuple(cast_to(value, kind) for value, kind in zip(row, types, strict=True)) for row in rows)
    return LogicalValues(fields, made)
