"""Stages without state: of the sources, behind a Spark segment, and of one batch of a user's own streaming query.

A task sends its rows through the job's steps once. Every record is read and decoded once, whatever hangs on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pyarrow as pa

from poundlock.connectors.base import MeteredReader, PartitionRead, Reader, ReaderContext, SplitSource
from poundlock.failpoints import Failpoint, hit
from poundlock.formats.chunk import Batch
from poundlock.tasks.exchange.exits import SegmentRows, rows_by_place
from poundlock.tasks.report import Directive, SourceRead, TaskReport, TaskWork
from poundlock.tasks.stage import Parcel, StageBody, StageRun, unknown_place


@dataclass(frozen=True, slots=True)
class SourceHead:
    """A source of a stage.

    Args:
        want: the form of rows that its first readers work on.
        columns: those that are needed; None = all.
        straight: whether those readers make objects of their own of records, and look at no dict.
    """

    source: SplitSource
    want: Literal["batch", "records"]
    columns: tuple[str, ...] | None = None
    straight: bool = False


@dataclass(frozen=True)
class SourceStage:
    """What every task of the source stage runs; in `body` each source is also a step without inputs."""

    body: StageBody
    sources: Mapping[str, SourceHead]

    def run(self, work: TaskWork, directive: Directive, *, attempt: str) -> Generator[Parcel, None, TaskReport]:
        """Read the splits of one task, write, prepare; yield what goes to later stages as soon as it is full, return the report."""
        with StageRun(self.body, directive, work.subtask, attempt) as run:
            yield from self._read(run, work)
            yield from run.parcels()
            report = run.finish()
        return report

    def _read(self, run: StageRun, work: TaskWork) -> Iterator[Parcel]:
        readers: dict[str, Reader] = {}
        for each in work.splits:
            name, split = each.source, each.split
            reader = readers.get(name)
            if reader is None:
                head = self.sources[name]
                context = ReaderContext(
                    reject=partial(run.reject_at, name), columns=head.columns, want=head.want, straight=head.straight
                )
                reader = readers[name] = head.source.reader(context)
            run.sinks.current_source = name
            run.place, run.place_number = each.place, each.number
            rows = run.split_rows.setdefault(name, Counter())
            chunks = iter(reader.read(split))
            while (chunk := run.chain.timed(name, partial(next, chunks, None))) is not None:
                hit(Failpoint.TASKS_READING)
                if len(chunk):
                    rows[each.place.partition] += len(chunk)
                    run.chain.push(chunk, name)
                    yield from run.full_parcels()
                if run.sinks.full:
                    break
            read = run.reads.setdefault(name, SourceRead())
            read.splits += 1
            if isinstance(reader, MeteredReader):
                size, read.bytes = reader.bytes_read - (read.bytes or 0), reader.bytes_read
                own = read.partitions.setdefault(each.place.partition, PartitionRead())
                own.add(PartitionRead(split.weight, size))
            elif split.bytes is not None:
                read.bytes = (read.bytes or 0) + split.bytes


@dataclass(frozen=True)
class RowsStage:
    """What every task of a stage behind a segment runs.

    Args:
        body: the steps; each output of the segment is also a step without inputs.
    """

    body: StageBody

    def run(
        self, task: int, elements: Iterable[SegmentRows], directive: Directive, *, attempt: str
    ) -> Generator[Parcel, None, TaskReport]:
        """Send the rows of one partition through the steps, write, prepare; yield and return as `SourceStage.run` does."""
        unknown = unknown_place(self.body.number, task)
        with StageRun(self.body, directive, task, attempt) as run:
            for element in elements:
                for place, rows in rows_by_place(element.block, directive.places, unknown):
                    run.place, run.sinks.current_source = place, place.source
                    run.chain.push(rows, element.input)
                    yield from run.full_parcels()
            yield from run.parcels()
            report = run.finish()
        return report


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
