"""The tasks of one batch of a user's own streaming query: rows that Spark computed go into the sinks, which prepare them.

A task that fails leaves only output that no decision names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from poundlock.checkpoint.participant import Participant
from poundlock.errors import TerminalError
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Batch
from poundlock.tasks.report import Directive, StepCounts, TaskReport
from poundlock.tasks.sinks import SinkGroup


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
class BatchSinks:
    """What every task of a batch runs. Picklable.

    Args:
        job_id: 32 hex digits.
        inputs: per sink what it is given.
        sinks: participants by name, dead letters included where there are some.
        on_error: "dead_letter" or "fail".
    """

    job_id: str
    inputs: Mapping[str, SinkInput]
    sinks: Mapping[str, Participant]
    on_error: str

    def run(self, batches: Iterable[pa.RecordBatch], directive: Directive, *, subtask: int, attempt: str) -> TaskReport:
        """Write the rows of one partition, prepare; return the report.

        Args:
            batches: the rows.
            directive: what the checkpoint wants.
            subtask: index of the partition.
            attempt: unique to this attempt of the task; it is part of every name that is created.
        """
        group = SinkGroup(self.job_id, self.sinks, self.on_error, directive, subtask, attempt)
        try:
            rows = self._write(batches, group)
            prepared = group.prepare()
        except BaseException:
            group.abandon()
            raise
        counts: dict[str, StepCounts] = dict(group.counts())
        for name in self.inputs:
            if counts[name].rows_in != rows:
                raise TerminalError(
                    f"sink {name} took {rows} rows and accounts for {counts[name].rows_in}",
                    next="this is a fault in the sink; nothing was committed",
                    checkpoint=directive.checkpoint,
                    participant=name,
                )
        hit(Failpoint.SINK_PREPARED)
        return TaskReport(0, subtask, directive.run, prepared, counts, {})

    def _write(self, batches: Iterable[pa.RecordBatch], group: SinkGroup) -> int:
        running = {name: group.open(name, name, given.schema) for name, given in self.inputs.items()}
        rows = 0
        for batch in batches:
            hit(Failpoint.TASKS_READING)
            if not batch.num_rows:
                continue
            rows += batch.num_rows
            for name, given in self.inputs.items():
                columns = [batch.column(column) for column in given.columns]
                typed = pa.RecordBatch.from_arrays(columns, given.schema.names).cast(given.schema)
                running[name].process(Batch(typed), _nowhere)
        return rows


def _nowhere(tag: str, chunk: object) -> None:
    """A sink emits nothing."""
