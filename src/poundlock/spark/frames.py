"""DataFrames as the job's rows: row-wise Spark SQL past hidden columns, which a user's `*` never shows, their columns in the types that
tasks know, and functions of Arrow batches as their tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.stream.nodes import SqlNode
from poundlock.tasks.columns import HIDDEN_TYPES, visible
from poundlock.tasks.entry import run_arrow_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def quoted(names: Sequence[str]) -> list[str]:
    """Return column names as Spark SQL."""
    return ["`" + name.replace("`", "``") + "`" for name in names]


def apply_sql(frame: DataFrame, node: SqlNode) -> DataFrame:
    """Return the rows behind one step."""
    hidden = [name for name in frame.columns if name in HIDDEN_TYPES]
    texts = _expressions(node, visible(frame.columns), bool(hidden))
    if node.kind == "select":
        return frame.selectExpr(*texts, *quoted(hidden))
    if node.kind == "where":
        return frame.where(texts[0])
    if node.kind == "with_column":
        from pyspark.sql import functions as F

        return frame.withColumn(texts[0], F.expr(texts[1]))
    return frame.drop(*texts)


def apply_sql_kept(frame: DataFrame, node: SqlNode, *, kept: Sequence[str], keep: str) -> DataFrame:
    """Return all rows behind one step; those that it filters have false in a column and null in their own ones.

    So an expression behind never meets values that a condition kept from it.

    Args:
        kept: columns that are not the step's; they stay as they are.
        keep: the column that says whether a row is still there.
    """
    stay = [name for name in frame.columns if name in (*kept, keep)]
    hidden = [name for name in frame.columns if name in HIDDEN_TYPES]
    own = [name for name in frame.columns if name not in stay and name not in HIDDEN_TYPES]
    texts = _expressions(node, own, True)
    if node.kind == "select":
        return frame.selectExpr(*quoted(stay), *texts, *quoted(hidden))
    if node.kind == "where":
        frame = frame.selectExpr(
            *quoted([name for name in stay if name != keep]),
            f"`{keep}` AND coalesce(({texts[0]}), false) AS `{keep}`",
            *quoted([*own, *hidden]),
        )
        emptied = [f"IF(`{keep}`, {name}, NULL) AS {name}" for name in quoted([*own, *hidden])]
        return frame.selectExpr(*quoted(stay), *emptied)
    return apply_sql(frame, node)


def _expressions(node: SqlNode, own: Sequence[str], hides: bool) -> list[str]:
    """Return the texts of a step, `*` written out where other columns stand beside the user's."""
    if not hides or node.kind == "drop":
        return list(node.arguments)
    if not any("*" in text for text in node.arguments):
        return list(node.arguments)
    from poundlock.spark.stars import expand_star

    columns = dict(zip(own, quoted(own), strict=True))
    return [expression for text in node.arguments for expression in expand_star(text, columns)]


def arrow_schema(frame: DataFrame, step: str) -> pa.Schema:
    """Return the columns of a frame; all may hold nulls.

    Raises:
        DefinitionError: a column has a type that has no DDL, or two have one name.
    """
    fields = []
    for column in frame.schema.fields:
        kind = _type_text(column.dataType)
        try:
            fields.append(pa.field(column.name, ddl.parse_type(kind)))
        except DefinitionError:
            raise DefinitionError(
                f"{step}: the column {column.name!r} is of type {kind}, which tasks do not know",
                next=f'cast it, as in "CAST({column.name} AS STRING) AS {column.name}"',
            ) from None
    names = [column.name for column in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DefinitionError(f"{step}: the column {twice!r} is there twice", next="name the columns apart with AS")
    return pa.schema(fields)


def map_arrow(
    frame: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], columns: str
) -> DataFrame:
    """Return what a function, which travels pickled, makes of the rows of each partition; `columns` are of that, as DDL."""
    return frame.mapInArrow(partial(run_arrow_task, task=task), columns)


def _type_text(kind: Any) -> str:
    """Return the DDL of a type, names of fields in quotes, which Spark's own text of it lacks."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return f"array<{_type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_type_text(kind.keyType)},{_type_text(kind.valueType)}>"
    if isinstance(kind, StructType):
        fields = zip(quoted(kind.names), kind.fields, strict=True)
        return f"struct<{','.join(f'{name}:{_type_text(each.dataType)}' for name, each in fields)}>"
    return str(kind.simpleString())
