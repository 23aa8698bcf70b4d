"""The stage behind a Spark segment: its rows go on through the job's steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from poundlock.operators.time_values import UNKNOWN
from poundlock.tasks.event_time.split_times import SplitPlace
from poundlock.tasks.exchange.segment_steps import SegmentRows, rows_by_place
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
