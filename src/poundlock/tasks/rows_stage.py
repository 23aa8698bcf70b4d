"""Stages whose rows come out of Spark: behind a Spark segment, and of one batch of a user's own streaming query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Batch
from poundlock.operators.time_values import UNKNOWN
from poundlock.tasks.event_time.split_times import SplitPlace
from poundlock.tasks.exchange.exits import SegmentRows, rows_by_place
from poundlock.tasks.report import Directive, TaskReport
from poundlock.tasks.stage import Parcel, StageBody, StageRun


@dataclass(frozen=True)
class RowsStage:
    """What every task of a stage behind a segment runs.

    Args:
        body: the steps; each output of the segment is also a step without inputs.
    """

    body: StageBody

    def run(
        self, task: int, elements: Iterable[SegmentRows], directive: Directive, *, attempt: str
    ) -> tuple[TaskReport, list[Parcel]]:
        """Send the rows of one partition through the steps, write, prepare."""
        unknown = SplitPlace(UNKNOWN, UNKNOWN, task)
        with StageRun(self.body, directive, task, attempt) as run:
            for element in elements:
                for place, rows in rows_by_place(element.block, directive.places, unknown):
                    run.place, run.sinks.current_source = place, place.source
                    run.chain.push(rows, element.input)
            parcels = list(run.parcels())
            report = run.finish()
        return report, parcels


@dataclass(frozen=True)
class SinkInput:
    """The columns of a batch that one sink is given.

    Args:
        columns: their names in the batch, in order.
        schema: as the sink sees them.
    """

    columns: Sequence[str]
    schema: pa.Schema


@dataclass(frozen=True)
class BatchStage:
    """What every task of a batch runs. Picklable. The steps of `body` are the sinks, without inputs."""

    body: StageBody
    inputs: Mapping[str, SinkInput]

    def run(self, batches: Iterable[pa.RecordBatch], directive: Directive, subtask: int, attempt: str) -> TaskReport:
        """Write the rows of one partition, prepare; return the report."""
        with StageRun(self.body, directive, subtask, attempt) as run:
            for batch in batches:
                hit(Failpoint.TASKS_READING)
                for name, given in self.inputs.items() if batch.num_rows else ():
                    columns = [batch.column(column) for column in given.columns]
                    rows = pa.RecordBatch.from_arrays(columns, given.schema.names).cast(given.schema)
                    run.chain.push(Batch(rows), name)
            report = run.finish()
        return report
