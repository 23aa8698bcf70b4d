"""The Python part of a pipeline inside one task: chunks are pushed from a head through user functions into sinks.

Every row that enters is accounted for on the way to every sink: read + produced = written + filtered + rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter_ns, thread_time_ns
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from poundlock.formats.chunk import Chunk, origin_of
from poundlock.formats.convert import row_bytes
from poundlock.formats.reject import Reject
from poundlock.metrics.user import TaskMetrics, activate
from poundlock.stream.functions.base import RichFunction

Emit = Callable[[str, Chunk], None]  # (tag, chunk); the main output is the tag ""
MAIN = ""
T = TypeVar("T")


class Operator(Protocol):
    """One step's work. Picklable; used by one thread of one task."""

    def process(self, chunk: Chunk, emit: Emit) -> None:
        """Handle one chunk and emit what comes of it."""


@runtime_checkable
class LeavesOut(Protocol):
    """An operator that may emit only some of its rows: those that it leaves out count as filtered."""

    @property
    def leaves_out(self) -> bool:
        """Whether it does."""


RowFailed = Callable[[Chunk, int, Exception], None]  # (chunk, row, what the user's function raised)


class _Opened:
    function: Callable[..., Any]

    def open(self) -> None:
        """Open the function, where it can be. Called once in each attempt of a task, before its first row."""
        if isinstance(self.function, RichFunction):
            self.function.open()

    def close(self) -> None:
        """Close the function. Called once for each `open`, also where the task fails."""
        if isinstance(self.function, RichFunction):
            self.function.close()


@dataclass(frozen=True, kw_only=True)
class UserFunction(_Opened):
    """Base of operators that call a user's function, which may have an open and a close, and may fail on single rows.

    Args:
        rejects: whether a row for which the function raises, or gives what does not fit the declared columns, is a bad record;
            else the task fails.
        failed: takes such rows within a task, which emit nothing then; None = the error goes on.
        unreadable: takes rows within a task that have a date or time that Python has not, so that no function can be called.
    """

    leaves_out: ClassVar[bool] = False
    """Whether it emits some of the rows it is given, unchanged; those that it leaves out count as filtered."""
    rejects: bool = False
    failed: RowFailed | None = None
    unreadable: Callable[[Reject], None] | None = None

    def process(self, chunk: Chunk, emit: Emit) -> None:
        """Handle one chunk and emit what comes of it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Edge:
    """An input of a step: the output of another one under a tag."""

    step: str
    tag: str = MAIN


@dataclass(frozen=True, slots=True)
class Step:
    """An operator with its place in the graph. `inputs` is empty for the head."""

    id: str
    operator: Operator
    inputs: Sequence[Edge]


@dataclass(slots=True)
class StepCounts:
    """Rows at one step of a job: in = out + filtered + rejected, less what the step itself produced.

    Args:
        rows_in: rows that came in; of a source, all that were read, undecodable ones included.
        rows_out: rows that went out, by tag; of a sink, under the main tag, those that were written.
        rejected: rows that became dead letters, or were skipped.
        late: rows that a window or a join dropped because they came behind the watermark.
        busy_ns: CPU time of the thread in the step itself, without the steps behind it.
        waiting_ns: the rest of the time that the step itself took.
        bytes_in: size of what came over an exchange; None where nothing did.
    """

    rows_in: int = 0
    rows_out: dict[str, int] = field(default_factory=dict)
    filtered: int = 0
    rejected: int = 0
    late: int = 0
    busy_ns: int = field(default=0, compare=False)
    waiting_ns: int = field(default=0, compare=False)
    bytes_in: int | None = field(default=None, compare=False)

    def add(self, other: StepCounts) -> None:
        """Add another task's counts to these."""
        self.busy_ns += other.busy_ns
        self.waiting_ns += other.waiting_ns
        if other.bytes_in is not None:
            self.bytes_in = (self.bytes_in or 0) + other.bytes_in
        self.rows_in += other.rows_in
        self.filtered += other.filtered
        self.rejected += other.rejected
        self.late += other.late
        for tag, rows in other.rows_out.items():
            self.rows_out[tag] = self.rows_out.get(tag, 0) + rows


class Chain:
    """A graph of steps, ready to run. Push chunks into the head; terminal steps are the ones nobody reads from.

    Args:
        steps: in any order; the head is the one without inputs.
        reject: takes rows for which a user's function raised, where the job's author chose that; they are counted here.

    Functions are opened before the first row, so a task without rows opens none. Whoever runs the chain calls `close` once
    the last row is through, and also where the task fails.
    """

    def __init__(self, steps: Sequence[Step], reject: Callable[[Reject], None] | None = None) -> None:
        self.tallies = {step.id: StepCounts() for step in steps}
        self._reject = reject
        self.steps = {step.id: self._prepared(step) for step in steps}
        self._opened: list[tuple[str, UserFunction]] | None = None
        self.head = next(step.id for step in steps if not step.inputs)
        self.metrics = TaskMetrics()
        """What the functions of the steps count."""
        self._inner = (0, 0)  # time and CPU time of what was called by the step that is being timed
        self._readers: dict[tuple[str, str], list[str]] = {}
        for step in steps:
            for edge in step.inputs:
                self._readers.setdefault((edge.step, edge.tag), []).append(step.id)

    def _prepared(self, step: Step) -> Step:
        """Return a step that hands over rows that its function cannot be given, and where that was chosen those it fails for."""
        operator, reject = step.operator, self._reject
        if not isinstance(operator, UserFunction) or reject is None:
            return step

        def dispose(record: Reject) -> None:
            self.tallies[step.id].rejected += 1
            reject(record)

        def failed(chunk: Chunk, row: int, error: Exception) -> None:
            dispose(failed_row(step.id, chunk, row, error))

        prepared = replace(operator, unreadable=lambda record: dispose(unreadable_row(step.id, record)))
        return Step(step.id, replace(prepared, failed=failed) if operator.rejects else prepared, step.inputs)

    def open(self) -> None:
        """Open every function that is not open yet; `push` does it."""
        if self._opened is None:
            self._opened = []
            for step in self.steps.values():
                if isinstance(step.operator, UserFunction):
                    self._opened.append((step.id, step.operator))
                    self.timed(step.id, step.operator.open)

    def close(self) -> None:
        """Close every function that was opened, once; the first error is raised when all were asked.

        Raises:
            Exception: what a function's `close` raised.
        """
        errors: list[Exception] = []
        while self._opened:
            step, operator = self._opened.pop()
            try:
                self.timed(step, operator.close)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def push(self, chunk: Chunk, step: str | None = None) -> None:
        """Send a chunk through a step (the head) and all that follows."""
        if self._opened is None:
            self.open()
        name = self.head if step is None else step
        tally = self.tallies[name]
        rows = len(chunk)
        tally.rows_in += rows

        def emit(tag: str, out: Chunk) -> None:
            self.emit(name, tag, out)

        operator = self.steps[name].operator
        if isinstance(operator, LeavesOut) and operator.leaves_out:
            before = tally.rows_out.get(MAIN, 0) + tally.rejected
            self.timed(name, partial(operator.process, chunk, emit))
            tally.filtered += rows - (tally.rows_out.get(MAIN, 0) + tally.rejected - before)
        else:
            self.timed(name, partial(operator.process, chunk, emit))

    def timed(self, step: str, call: Callable[[], T]) -> T:
        """Call something that is a step's work, and whose metrics are the step's.

        Its time is the step's, less that of the steps it is called for meanwhile.
        """
        outer, self._inner = self._inner, (0, 0)
        running = activate(self.metrics.group(step))
        began, cpu_began = perf_counter_ns(), thread_time_ns()
        try:
            result = call()
        finally:
            activate(running)
        took, cpu = perf_counter_ns() - began, thread_time_ns() - cpu_began
        inner, cpu_inner = self._inner
        tally = self.tallies[step]
        busy = cpu - cpu_inner
        tally.busy_ns += busy
        tally.waiting_ns += max(0, took - inner - busy)
        self._inner = (outer[0] + took, outer[1] + cpu)
        return result

    def emit(self, step: str, tag: str, chunk: Chunk) -> None:
        """Send on what a step emitted under a tag; for steps that do their work outside the chain, too."""
        if len(chunk):
            rows_out = self.tallies[step].rows_out
            rows_out[tag] = rows_out.get(tag, 0) + len(chunk)
            for reader in self._readers.get((step, tag), ()):
                self.push(chunk, reader)


class Misfit(Exception):
    """A function gave what does not fit the columns it declared; the text says which."""


def failed_row(step: str, chunk: Chunk, row: int, error: Exception) -> Reject:
    """Return the bad record that a row is for which the function of an operator raised, or gave what does not fit: its error, its bytes, its place."""
    reason = f"{step} raised {type(error).__name__}: {error}"
    if isinstance(error, Misfit):
        reason = f"{step} gave a record that does not fit: {error}"
    return Reject(reason, row_bytes(chunk, row), {**origin_of(chunk).at(row), "operator": step})


def unreadable_row(step: str, record: Reject) -> Reject:
    """Return the bad record that a row is which the function of an operator cannot be given."""
    return Reject(f"{step} cannot be given it: {record.reason}", record.value, {**record.where, "operator": step})


class Pass:
    """Hand chunks on as they are: the head of a chain, a union, a side output."""

    def process(self, chunk: Chunk, emit: Emit) -> None:
        emit(MAIN, chunk)
