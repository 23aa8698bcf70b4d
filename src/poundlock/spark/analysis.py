"""What only Spark can say of a job before it runs: the columns behind its SQL and DataFrame functions, and names of expressions."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from poundlock.formats import ddl
from poundlock.plan.segments import Segment
from poundlock.spark.launch.session import Session
from poundlock.spark.segments import SparkSegment


class SessionAnalysis:
    """Asks a session; its SQL engine starts with the first question."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def segment(
        self, segment: Segment, inputs: Mapping[str, pa.Schema]
    ) -> tuple[SparkSegment, Mapping[str, pa.Schema]]:
        """Return a segment that can be run, and the columns of each output, hidden ones included."""
        made = SparkSegment(segment, inputs)
        return made, made.schemas(self._session.sql)

    def name_of(self, schema: pa.Schema, text: str) -> str:
        """Return what Spark calls an expression over some columns."""
        empty = self._session.sql.createDataFrame([], ddl.render(schema))
        return str(empty.selectExpr(text).columns[0])  # an aggregate alone is one over all rows
