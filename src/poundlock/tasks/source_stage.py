"""The source stage: a task reads its splits and sends the rows through the job's steps once.

Every record is read and decoded once, whatever hangs on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from poundlock.connectors.base import MeteredReader, Reader, ReaderContext, SplitSource
from poundlock.failpoints import Failpoint, hit
from poundlock.tasks.report import Directive, SourceRead, TaskReport, TaskWork
from poundlock.tasks.stage import Parcel, StageBody, StageRun


@dataclass(frozen=True, slots=True)
class SourceHead:
    """A source of a stage.

    Args:
        want: the form of rows that its first readers work on.
        columns: those that are needed; None = all.
    """

    source: SplitSource
    want: Literal["batch", "records"]
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class SourceStage:
    """What every task of the source stage runs; in `body` each source is also a step without inputs."""

    body: StageBody
    sources: Mapping[str, SourceHead]

    def run(self, work: TaskWork, directive: Directive, *, attempt: str) -> tuple[TaskReport, list[Parcel]]:
        """Read the splits of one task, write, prepare; return the report, and what goes to later stages."""
        with StageRun(self.body, directive, work.subtask, attempt) as run:
            self._read(run, work)
            parcels = list(run.parcels())
            report = run.finish()
        return report, parcels

    def _read(self, run: StageRun, work: TaskWork) -> None:
        readers: dict[str, Reader] = {}
        for each in work.splits:
            name, split = each.source, each.split
            reader = readers.get(name)
            if reader is None:
                reader = readers[name] = self._reader(run, name)
            run.sinks.current_source = name
            run.place, run.place_number = each.place, each.number
            for chunk in reader.read(split):
                hit(Failpoint.TASKS_READING)
                if len(chunk):
                    run.chain.push(chunk, name)
                if run.sinks.full:
                    break
            read = run.reads.setdefault(name, SourceRead())
            read.splits += 1
            if isinstance(reader, MeteredReader):
                read.bytes = reader.bytes_read
            elif split.bytes is not None:
                read.bytes = (read.bytes or 0) + split.bytes

    def _reader(self, run: StageRun, name: str) -> Reader:
        head = self.sources[name]
        return head.source.reader(
            ReaderContext(reject=lambda record: run.reject_at(name, record), columns=head.columns, want=head.want)
        )
