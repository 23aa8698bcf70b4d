"""DataFrames and Arrow: their columns in the types that tasks know, and functions of Arrow batches as their tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.spark.row_sql import quoted
from poundlock.tasks.entry import run_arrow_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def arrow_schema(frame: DataFrame, step: str) -> pa.Schema:
    """Return the columns of a frame; all may hold nulls.

    Raises DefinitionError: a column has a type that has no DDL, or two have one name.
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
