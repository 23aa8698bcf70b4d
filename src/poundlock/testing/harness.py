"""Drives a keyed operator in a test: elements, watermarks and the clock go in, output, timers and state can be read. No JVM.

The operator is the very object that a task of Spark runs, and its state is the very runs, written at every snapshot. Windows are
written as on a stream: assigner, trigger, evictor, lateness, function.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Self

from poundlock.errors import DefinitionError
from poundlock.metrics.user import MetricGroup, active
from poundlock.operators.factory import window_operator
from poundlock.operators.keyed.codec import normal_key
from poundlock.operators.keyed.group import MAX, MIN, TimerEntries
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS, LATE, MAIN, GroupBatch, OutputChunk
from poundlock.operators.windows.aggregates import SqlAggregate, SqlAggregates
from poundlock.operators.windows.base import WindowSpec, as_window
from poundlock.state.hashing import groups_of, groups_of_task, hashes_of
from poundlock.state.operator_state import OperatorState
from poundlock.state.scratch import ScratchState
from poundlock.stream.functions.base import AggregateFunction
from poundlock.stream.functions.process import (
    AggregateWindow,
    ProcessWindow,
    ProcessWindowFunction,
    ReduceWindow,
    WindowFunction,
)
from poundlock.stream.windows.assigners import WindowAssigner
from poundlock.stream.windows.evictors import Evictor
from poundlock.stream.windows.triggers import Trigger
from poundlock.testing.metrics import CollectedMetrics
from poundlock.values import duration, span_ms

KeySelector = Callable[[Any], Hashable] | str | Sequence[str] | None
WindowFunctions = (
    WindowFunction | ProcessWindowFunction | AggregateFunction | Sequence[SqlAggregate] | Callable[[Any, Any], Any]
)


class Element(NamedTuple):
    """What goes in.

    Args:
        value: the element.
        timestamp: its event time in ms, None for none.
        side: which input of an operator with two: 0 or 1.
    """

    value: Any
    timestamp: int | None = None
    side: int = 0


class Emitted(NamedTuple):
    """What came out.

    Args:
        key: it was made for.
        value: what the function gave, or the late element.
        timestamp: its event time in ms, None for none.
        window: for results of windows the TimeWindow, GlobalWindow or CountWindow, otherwise None.
    """

    key: Any
    value: Any
    timestamp: int | None
    window: Any = None


class Timer(NamedTuple):
    """A timer that is set.

    Args:
        domain: "event" or "processing".
        time: in ms.
        key: of it.
        window: (start, end) in ms, or None.
    """

    domain: Literal["event", "processing"]
    time: int
    key: Any
    window: Any


@dataclass(frozen=True)
class Snapshot:
    """All that survives: the files of the state by name, the watermark, and the clock, in ms."""

    files: Mapping[str, bytes]
    watermark: int
    processing_time: int

    def describe(self) -> dict[str, Any]:
        """Return the state for people, as `poundlock state` shows that of a job.

        Returns:
            `watermark`, `processing_time` (ms); `state`: by name `kind`, `ttl_ms` and `entries` of `key`, `window` ((start, end) in
            ms, None where there is none), `windowed` and `value`; `event_timers` and `processing_timers`: `time`, `key`, `window`.
        """
        return ScratchState.of(self.files).described()


class KeyedOperatorHarness:
    """One keyed operator, on one or several instances that share its key groups.

    Args:
        make: makes the operator; called once for each instance and again at every restore.
        key: of an element: a function, the name of a column, several for a tuple, or None for one key for all.
        key_groups: how many groups keys are spread over.
        instances: how many instances share them.

    Use it in a `with` statement, or call `close`: the operator's functions are closed then.
    """

    def __init__(
        self, make: Callable[[], KeyedOperator], *, key: KeySelector = None, key_groups: int = 8, instances: int = 1
    ) -> None:
        self._make = make
        self._key = selector(key)
        self._key_groups = key_groups
        self._watermark, self._now = MIN, 0
        groups_of_task(0, instances, key_groups)
        self._state = ScratchState(key_groups, instances)
        self._operators: list[KeyedOperator] = []
        self._emitted: dict[str, list[Emitted]] = {}
        self._late_before = 0
        self._metrics = MetricGroup()
        self._start(instances)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start(self, instances: int) -> None:
        self._operators = [self._make() for _ in range(instances)]
        with active(self._metrics):
            for operator in self._operators:
                operator.open()

    def close(self) -> None:
        """Close the operator's functions."""
        with active(self._metrics):
            for operator in self._operators:
                operator.close()
        self._late_before += sum(operator.late_dropped for operator in self._operators)
        self._operators = []

    # --- what goes in -----------------------------------------------------------------------------------------------

    def process_element(self, value: Any, timestamp: int | None = None, *, side: int = 0) -> list[Emitted]:
        """Push one element and return what came out of the main output."""
        return self.process_elements([Element(value, timestamp, side)])

    def process_elements(self, elements: Iterable[Element | tuple[Any, int | None]]) -> list[Emitted]:
        """Push elements as one batch, in this order; return what came out of the main output."""
        given = [e if isinstance(e, Element) else Element(*e) for e in elements]
        by_task: dict[tuple[int, int], list[tuple[Any, Element]]] = {}
        for element in given:
            for task, key, sent in self._route(element):
                by_task.setdefault((task, element.side), []).append((key, sent))
        return self._run(self._elements(by_task))

    def _route(self, element: Element) -> Iterable[tuple[int, Any, Element]]:
        """Return the instances an element goes to, with its key and itself as it comes there."""
        key = self._key(element.value)
        return [(self._instance_of(key), key, element)]

    def _instance_of(self, key: Any) -> int:
        group = int(groups_of(hashes_of([key]), self._key_groups)[0])
        return group * self._state.parallelism // self._key_groups

    def _elements(self, by_task: Mapping[tuple[int, int], list[tuple[Any, Element]]]) -> Iterator[OutputChunk]:
        running = self._running()
        for (task, side), keyed in by_task.items():
            keys, elements = zip(*keyed, strict=True)
            batch = GroupBatch(list(keys), [e.value for e in elements], [e.timestamp for e in elements], side=side)
            operator, group = running[task]
            yield from operator.process(group, batch)

    def process_watermark(self, watermark: int) -> list[Emitted]:
        """Let the watermark reach a time in ms, and return what came out; one that is not greater than before is ignored."""
        running = self._running()  # what they hold was judged by the watermark before
        self._watermark = max(self._watermark, watermark)
        return self._run(
            chunk for operator, group in running for chunk in operator.advance_watermark(group, self._watermark)
        )

    def set_processing_time(self, now: int) -> list[Emitted]:
        """Set the clock to a time in ms, and return what came out. It begins at 0 and never goes back."""
        running = self._running()
        self._now = max(self._now, now)
        return self._run(
            chunk for operator, group in running for chunk in operator.advance_processing_time(group, self._now)
        )

    def end_of_input(self) -> list[Emitted]:
        """End the input: the watermark becomes the greatest there is. Timers of the clock do not fire."""
        return self.process_watermark(MAX)

    def _running(self) -> list[tuple[KeyedOperator, OperatorState]]:
        """Return each instance with its state."""
        if not self._operators:
            raise DefinitionError("the harness is closed", next="make a new one")
        return [(each, self._state.open(n, self._watermark, self._now)) for n, each in enumerate(self._operators)]

    def _run(self, chunks: Iterator[OutputChunk]) -> list[Emitted]:
        out: list[Emitted] = []
        with active(self._metrics):
            for chunk in chunks:
                self._check(chunk)
                windows = [None] * len(chunk) if chunk.windows is None else [as_window(w) for w in chunk.windows]
                rows = list(map(Emitted, chunk.keys, chunk.values, chunk.timestamps, windows))
                self._emitted.setdefault(chunk.tag, []).extend(rows)
                if chunk.tag == MAIN:
                    out += rows
        return out

    def _check(self, chunk: OutputChunk) -> None:
        """Raise DefinitionError for rows that the job would not take."""

    # --- snapshots --------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return everything that must survive. What came out so far is not part of it."""
        return Snapshot(self._state.to_files(), self._watermark, self._now)

    def restore(self, snapshot: Snapshot, *, instances: int | None = None) -> None:
        """Throw the operator away and go on with a new one from a snapshot.

        Args:
            snapshot: of this harness, or of another one with as many key groups.
            instances: how many share the key groups from now on; None for as many as before.
        """
        count = len(self._operators) if instances is None else instances
        groups_of_task(0, count, self._key_groups)
        self.close()
        self._watermark, self._now = snapshot.watermark, snapshot.processing_time
        self._state.replace(snapshot.files, count)
        self._start(count)

    def rescale(self, instances: int) -> None:
        """Go on with another number of instances, by a snapshot and a restore."""
        self.restore(self.snapshot(), instances=instances)

    @property
    def metrics(self) -> CollectedMetrics:
        """What the operator's functions have counted so far, over all instances."""
        return CollectedMetrics(self._metrics)

    # --- what came out ----------------------------------------------------------------------------------------------

    @property
    def output(self) -> list[Emitted]:
        """All rows of the main output so far."""
        return list(self._emitted.get(MAIN, ()))

    def side_output(self, tag: str) -> list[Emitted]:
        """Return all rows of a side output so far."""
        return list(self._emitted.get(tag, ()))

    @property
    def late(self) -> list[Emitted]:
        """All late elements so far, where the operator sends them to the side output "late"."""
        return self.side_output(LATE)

    @property
    def late_dropped(self) -> int:
        """How many late elements went nowhere."""
        return self._late_before + sum(operator.late_dropped for operator in self._operators)

    @property
    def watermark(self) -> int:
        """The watermark in ms."""
        return self._watermark

    @property
    def processing_time(self) -> int:
        """The clock in ms."""
        return self._now

    def timers(self) -> list[Timer]:
        """Return the timers that are set, in order of time."""
        result: list[Timer] = []
        for operator, group in self._running():
            list(operator.process(group, GroupBatch([], [], [])))  # it sets the timers that follow from its windows
            entries = group.timer_entries
            result += [Timer("event", time, *_owner(of, entries)) for time, of in group.event_timers.listed()]
            result += [Timer("processing", time, *_owner(of, entries)) for time, of in group.processing_timers.listed()]
        return sorted(result, key=lambda timer: timer.time)

    def state(self) -> dict[str, dict[Any, Any]]:
        """Return all state: by name, by key or (key, window), the value.

        A function's own state is called "state:name", per-window state "window:name", that of a trigger "trigger:name"; what
        is in the windows is "contents".
        """
        return {
            name: {
                (entry["key"], entry["window"]) if entry["windowed"] else entry["key"]: entry["value"]
                for entry in table["entries"]
            }
            for name, table in self._state.described()["state"].items()
        }


def _owner(entry: Any, entries: TimerEntries) -> tuple[Any, Any]:
    """Return key and window of a timer."""
    return entry if entries == "keys and windows" else (None, entry) if entries == "windows" else (entry, None)


def selector(key: KeySelector) -> Callable[[Any], Any]:
    """Return a function of an element to its key, which has NaN and minus zero as a job's rows have them."""
    if key is None:
        return lambda value: None
    if isinstance(key, str):
        return lambda value: normal_key(value[key])
    if callable(key):
        return lambda value: normal_key(key(value))
    names = tuple(key)
    return lambda value: normal_key(tuple(value[name] for name in names))


class WindowHarness(KeyedOperatorHarness):
    """Windows of a keyed stream.

    Args:
        assigner: which windows an element is in.
        function: a ProcessWindowFunction, an AggregateFunction, a function that reduces two elements to one, ReduceWindow or
            AggregateWindow for one of the latter with a process function, or a list of SqlAggregate.
        key: of an element: a function, the name of a column, several for a tuple, or None for one key for all.
        trigger: None for the assigner's own.
        evictor: None for the assigner's own.
        allowed_lateness: such as "1 min".
        late: whether late elements go to the side output `late`; otherwise they are counted in `late_dropped`.
        general: whether to run the general operator even where there is a quicker one for these windows.
        key_groups: how many groups keys are spread over.
        instances: how many instances share them.
        chunk_rows: about how many rows come out of the operator at a time.

    Raises:
        DefinitionError: the trigger cannot be used with windows that merge.
    """

    def __init__(
        self,
        assigner: WindowAssigner,
        function: WindowFunctions,
        *,
        key: KeySelector = None,
        trigger: Trigger | None = None,
        evictor: Evictor | None = None,
        allowed_lateness: str | timedelta = timedelta(0),
        late: bool = True,
        general: bool = False,
        key_groups: int = 8,
        instances: int = 1,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        lateness_ms = span_ms(duration(allowed_lateness))
        spec = WindowSpec(
            assigner=assigner,
            function=_function(function),
            trigger=trigger,
            evictor=evictor,
            allowed_lateness_ms=lateness_ms,
            late_tag=LATE if late else None,
        )

        def make() -> KeyedOperator:
            return window_operator(spec, chunk_rows=chunk_rows, general=general)

        super().__init__(make, key=key, key_groups=key_groups, instances=instances)


def _function(function: Any) -> WindowFunction | SqlAggregates:
    if isinstance(function, (ReduceWindow, AggregateWindow, ProcessWindow)):
        return function
    if isinstance(function, ProcessWindowFunction):
        return ProcessWindow(function)
    if isinstance(function, AggregateFunction):
        return AggregateWindow(function)
    return SqlAggregates(function) if isinstance(function, Sequence) else ReduceWindow(function)
