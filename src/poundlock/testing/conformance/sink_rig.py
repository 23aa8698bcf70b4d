"""One sink in one place of its own, and what a check does with it: jobs, tasks in child processes, and a look at what is visible."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from poundlock.checkpoint.outcome import SinkDirectives
from poundlock.checkpoint.participant import JSON, Kind, Prepared
from poundlock.errors import DefinitionError
from poundlock.spark.pickled_functions import shipped
from poundlock.testing.conformance import lives
from poundlock.testing.conformance.children import Child, Children
from poundlock.testing.conformance.lives import SinkDriver, SinkJob, Task, TaskOutput
from poundlock.testing.conformance.report import Broken, difference

CHECKPOINTS, TASKS = 3, 2
# Of which kinds of sinks a check is asked; without one of these, of all.
HIDING = frozenset({Kind.TRANSACTIONAL})
ONCE = frozenset({Kind.TRANSACTIONAL, Kind.IDEMPOTENT, Kind.SKIPPING})
ANSWERING = ONCE | {Kind.APPEND}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Subject:
    """What the author gave: see `sink_conformance`."""

    make: Callable[[Path], Any]
    read: Callable[[Any], Sequence[Any]]
    given: Sequence[Row] | pa.RecordBatch | pa.Table
    bad_rows: Sequence[Row]
    second: Callable[[Any], Any] | None
    finds_orphans: bool
    rows: Sequence[Row] = field(init=False)
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        """Raise DefinitionError for what cannot be worked with."""
        if not callable(self.make):
            raise DefinitionError(
                f"{type(self.make).__name__} is no function that makes a sink",
                next="give one: lambda folder: MySink(…); each check needs an empty place, folder is one and folder.name a name for one",
            )
        rows = self.given
        if isinstance(rows, pa.RecordBatch | pa.Table):
            schema, rows = rows.schema, rows.to_pylist()
        else:
            every = [dict(row) for row in [*rows, *self.bad_rows]]
            schema = pa.Table.from_pylist(every).schema if rows else pa.schema([])
        least = CHECKPOINTS * TASKS * 2
        if len(rows) < least:
            raise DefinitionError(f"{len(rows)} rows are too few", next=f"give {least} or more, all of them unlike")
        if repeated := difference(rows, {repr(row): row for row in rows}.values()):
            raise DefinitionError(f"the rows are not unlike: {repeated}", next="give each a number, for example")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "schema", schema)

    def beside(self, sink: Any) -> Any:
        """Return the sink of another job in the same place."""
        return sink if self.second is None else self.second(sink)


class SinkRig:
    """One check's sink, in a place where nothing is yet."""

    def __init__(self, subject: Subject, folder: Path, children: Children, name: str) -> None:
        self.subject, self.children = subject, children
        self.folder = folder / f"{name.replace('.', '-')}-{uuid.uuid4().hex[:6]}"
        self.place = self.folder / f"p{uuid.uuid4().hex[:10]}"
        self.place.mkdir(parents=True)
        self.sink = subject.make(self.place)
        self.job = self.new_job("conformance", self.sink)

    def fresh(self, name: str) -> SinkRig:
        """Return a rig of the same sink in a place of its own."""
        return SinkRig(self.subject, self.folder, self.children, name)

    def new_job(self, name: str, sink: Any, *, job_id: str | None = None, sink_name: str = "out") -> SinkJob:
        """Return a job of a sink, with a checkpoint folder of its own."""
        folder = self.folder / f"checkpoint-{name}"
        return SinkJob(shipped(sink), str(folder), name, job_id or uuid.uuid4().hex, sink_name)

    @property
    def kind(self) -> Kind:
        """What the sink says it can promise."""
        return self.job.participant().kind

    # Rows

    def rows(self, *checkpoints: int) -> list[Row]:
        """Return the rows of some checkpoints; of all without."""
        wanted = checkpoints or tuple(range(CHECKPOINTS))
        return [row for n in wanted for task in range(TASKS) for row in self._rows(n, task)]

    def _rows(self, checkpoint: int, subtask: int) -> Sequence[Row]:
        return self.subject.rows[checkpoint * TASKS + subtask :: CHECKPOINTS * TASKS]

    def task(self, checkpoint: int, subtask: int, **how: Any) -> Task:
        """Return a task with its rows, which come to it in two pieces."""
        rows = self._rows(checkpoint, subtask)
        half = (len(rows) + 1) // 2
        return Task(checkpoint, subtask, self.subject.schema, [rows[:half], rows[half:]], checkpoint * 1000, **how)

    def tasks(self, checkpoint: int) -> list[Task]:
        """Return the tasks of a checkpoint."""
        return [self.task(checkpoint, subtask) for subtask in range(TASKS)]

    # At work

    def driver(self, job: SinkJob | None = None) -> SinkDriver:
        """A life of the driver in this process; the tasks run in others."""
        return SinkDriver(job or self.job)

    def life(self, *, failpoints: str = "", end: bool = True, only: Sequence[int] | None = None) -> Mapping[str, Any]:
        """Live a life in a process of its own: all checkpoints, or some, and the end. Raises Killed where it was killed."""
        numbers = range(CHECKPOINTS) if only is None else only
        checkpoints = {n: self.tasks(n) for n in numbers}
        outcome: Mapping[str, Any] = self.children.call(lives.life, self.job, checkpoints, end, failpoints=failpoints)
        return outcome

    def start(self, directive: SinkDirectives, task: Task, job: SinkJob | None = None) -> Child:
        """Start an attempt of a task."""
        return self.children.start(lives.write, job or self.job, directive, task)

    def write(self, directive: SinkDirectives, *tasks: Task, job: SinkJob | None = None) -> list[TaskOutput]:
        """Run attempts of tasks, one after the other, each in a process of its own."""
        return [self.start(directive, task, job).result() for task in tasks]

    def prepared(self, outputs: Sequence[TaskOutput]) -> list[Prepared]:
        """Return what tasks prepared, as a participant gets it."""
        return [Prepared("out", one.subtask, payload) for one in outputs for payload in one.payloads]

    def sweep(self, state: JSON, *, remove: bool, fenced: bool = False) -> tuple[list[str], bool]:
        """Sweep from a process of its own."""
        orphans, stopped = self.children.call(lives.sweep, self.job, state, remove, fenced)
        return [orphan.path for orphan in orphans], stopped

    # What is seen

    def visible(self) -> list[Any]:
        """Return what a reader sees."""
        return list(self.subject.read(self.sink))

    def expect(self, rows: Sequence[Any], when: str) -> None:
        """Raise Broken unless a reader sees just these rows, as far as the sink promises it."""
        kind = self.kind
        repeats = kind in (Kind.APPEND, Kind.FORGETFUL)
        if problem := difference(self.visible(), rows, repeats=repeats, losses=kind is Kind.FORGETFUL):
            raise Broken(f"{when}: {problem}")

    def expect_within(self, rows: Sequence[Any], when: str) -> None:
        """Raise Broken if a reader sees a row that is not among these, or one of them twice."""
        if self.kind is Kind.TRANSACTIONAL and (problem := difference(self.visible(), rows, losses=True)):
            raise Broken(f"{when}: {problem}")


def same_json(value: Any, what: str) -> None:
    """Raise Broken unless a value comes back from JSON as it was and, where it says so, has a version."""
    try:
        again = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise Broken(f"{what} is not JSON: {error}: {value!r}") from None
    if again != value or not isinstance(value, dict):
        raise Broken(f"{what} comes back from JSON as something else: {value!r} became {again!r}")
    if value and "v" not in value:
        raise Broken(f'{what} has no version "v": {value!r}')
