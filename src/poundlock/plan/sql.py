"""Row-wise Spark SQL over rows that carry hidden columns: a record that could not be decoded is never filtered.

Hidden columns pass through every step; a user's `*` never sees them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from poundlock.plan.rows import BAD, HIDDEN
from poundlock.stream.nodes import SqlNode

__all__ = ["KEEP", "apply_sql", "apply_sql_kept", "quoted", "visible"]

KEEP = "__keep"  # false where a branch that shares its pass has filtered the row


def visible(frame: DataFrame) -> list[str]:
    """Return the columns that are not hidden."""
    return [name for name in frame.columns if name not in HIDDEN]


def quoted(names: Sequence[str]) -> list[str]:
    """Return column names as Spark SQL."""
    return [f"`{name}`" for name in names]


def apply_sql(frame: DataFrame, node: SqlNode) -> DataFrame:
    """Apply one node."""
    hidden = [name for name in frame.columns if name in HIDDEN]
    if node.kind == "select":
        return frame.selectExpr(*_expressions(node, visible(frame)), *hidden)
    if node.kind == "where":
        condition = F.expr(node.arguments[0])
        return frame.where(condition | F.col(BAD).isNotNull() if BAD in hidden else condition)
    if node.kind == "with_column":
        return frame.withColumn(node.arguments[0], F.expr(node.arguments[1]))
    return frame.drop(*node.arguments)


def apply_sql_kept(frame: DataFrame, node: SqlNode, kept: Sequence[str]) -> DataFrame:
    """Apply one node so that filtered rows stay, empty and with KEEP false; `kept` names columns that are not its own."""
    stay = [name for name in frame.columns if name in (*kept, KEEP, *HIDDEN)]
    own = [name for name in frame.columns if name not in stay]
    if node.kind == "select":
        return frame.selectExpr(*quoted(stay), *_expressions(node, own))
    if node.kind == "where":
        frame = frame.withColumn(KEEP, F.expr(f"{KEEP} AND coalesce(({node.arguments[0]}), false)"))
        # Emptied, so that a later expression never meets values that the condition kept from it.
        return frame.selectExpr(*quoted(stay), *(f"IF({KEEP}, `{name}`, NULL) as `{name}`" for name in own))
    return apply_sql(frame, node)


def _expressions(node: SqlNode, every: Sequence[str]) -> list[str]:
    return [e for text in node.arguments for e in (quoted(every) if text.strip() == "*" else [text])]
