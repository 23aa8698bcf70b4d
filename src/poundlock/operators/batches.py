"""A batch of rows in the form that a batch function asks for, and what it returns as Arrow again.

pandas and polars are loaded where a function asks for a DataFrame of theirs, and nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.operators.chain import Misfit
from poundlock.stream.functions.records import BatchFormat


def batch_as(batch: pa.RecordBatch, wanted: BatchFormat) -> Any:
    """Return a batch in a form.

    In a DataFrame of pandas a column of integers, or of truth values, that has nulls is of a nullable type of pandas: as floating point numbers, large ones would be
    changed in silence.
    """
    if wanted == "record_batch":
        return batch
    if wanted == "table":
        return pa.Table.from_batches([batch])
    if wanted == "polars":
        import polars

        return polars.from_arrow(pa.Table.from_batches([batch]), rechunk=False)
    return batch.to_pandas(types_mapper=_pandas_types(batch))


def _pandas_types(batch: pa.RecordBatch) -> Callable[[pa.DataType], Any] | None:
    whole = {
        column.type
        for column in batch.columns
        if column.null_count and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type))
    }
    if not whole:
        return None
    import pandas as pd

    names = {pa.int8(): "Int8", pa.int16(): "Int16", pa.int32(): "Int32", pa.int64(): "Int64", pa.bool_(): "boolean"}
    return {kind: pd.api.types.pandas_dtype(names[kind]) for kind in whole if kind in names}.get


def batches_of(result: Any, step: str) -> Iterable[pa.RecordBatch]:
    """Yield what a batch function returned as Arrow, whatever of the known forms it has.

    Raises:
        DefinitionError: it has none of them.
        Misfit: a column of a DataFrame holds values that are of no one type.
    """
    if isinstance(result, pa.RecordBatch):
        yield result
    elif isinstance(result, pa.Table):
        yield from result.to_batches()
    elif _is_frame(result, "pandas"):
        try:
            yield from pa.Table.from_pandas(result, preserve_index=False).to_batches()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise Misfit(f"a DataFrame that is no columns: {error}") from error
    elif _is_frame(result, "polars"):
        yield from result.to_arrow(compat_level=sys.modules["polars"].CompatLevel.oldest()).to_batches()
    elif result is None or isinstance(result, (str, bytes, dict)) or not isinstance(result, Iterable):
        raise DefinitionError(
            f"{step} returned {type(result).__name__}, not Arrow",
            next="return a pyarrow.RecordBatch, a Table or a DataFrame, or yield them",
        )
    else:
        for part in result:
            yield from batches_of(part, step)


def _is_frame(result: Any, package: str) -> bool:
    loaded = sys.modules.get(package)
    return loaded is not None and isinstance(result, loaded.DataFrame)
