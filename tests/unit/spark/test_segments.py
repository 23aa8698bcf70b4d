"""What Spark cannot plan names the operator and the line it was written in."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from poundlock import DatagenSource, DataStream, FileSink, Job
from poundlock.errors import DefinitionError
from poundlock.plan.normalize import normalize
from poundlock.spark.segments import apply_step
from poundlock.stream.nodes import SqlNode, walk


class Frame:
    """Rows in which Spark finds no column."""

    columns = ("user",)

    def where(self, condition: str) -> Any:
        raise AnalysisException(message=f"A column with name `{condition}` cannot be resolved.")

    selectExpr = where  # Spark's name


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def source() -> DataStream:
    return Job("j").from_source(DatagenSource(rate=1), name="in")


def test_a_misspelt_column_is_told_with_operator_and_line() -> None:
    stream, line = source().where("usr", name="few"), here()
    frame: Any = Frame()
    with pytest.raises(DefinitionError) as caught:
        apply_step(stream.node, [frame])
    assert caught.value.what == (
        f"few ({__file__}:{line}): Spark cannot plan the job: A column with name `usr` cannot be resolved."
    )
    assert caught.value.next == "mend the expression, schema or path it names"


def test_a_step_that_the_plan_puts_in_has_the_line_of_the_operator_it_is_for() -> None:
    stream = source()
    keyed, line = stream.key_by("lower(usr)", "b").max("n", name="most"), here()
    keyed.sink_to(FileSink("out", format="json"), name="out")
    graph = normalize(list(stream.job.graph()), time_in_tasks=lambda node: True)
    [put_in] = [node for node in walk(graph.roots) if isinstance(node, SqlNode)]
    assert (put_in.id, put_in.line) == ("most.key0", f"{__file__}:{line}")
