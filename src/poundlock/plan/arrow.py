"""`DataFrame.mapInArrow` without its import of pandas, which a driver has no other use for: most of a second of each start.

It makes the same user-defined function and calls the same method of the JVM's DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pickle import PicklingError

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType, _parse_datatype_string
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from poundlock.errors import DefinitionError
from poundlock.plan.raising import speaking

__all__ = ["map_in_arrow"]


def map_in_arrow(
    frame: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], columns: str
) -> DataFrame:
    """Return what a task makes of a frame's Arrow batches, one call per partition.

    Args:
        frame: the rows that go in.
        task: reads all batches of a partition and yields batches of `columns`.
        columns: Spark schema of what comes out, as DDL.

    Raises:
        DefinitionError: the task cannot be pickled.
    """
    schema = _parse_datatype_string(columns)
    assert isinstance(schema, StructType)
    function = UserDefinedFunction(speaking(task), schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    try:
        column = function(*[frame[f"`{name}`"] for name in frame.columns])
    except PicklingError as error:
        why = str(error).rpartition("Could not serialize object: ")[2]
        raise DefinitionError(
            f"a function of the job uses something that cannot be sent to the tasks: {why}",
            next="make locks, open files, connections and generators inside the function, not beside it",
        ) from None
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
