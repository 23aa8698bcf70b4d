"""One source and many keyed branches, each with a sink of its own, four rows a checkpoint. Arguments: BRANCHES CHECKPOINTS OUT CHECKPOINT_DIR TIMES.

Row i has the key "key-" + i mod 8 and its time a quarter of a second after the row before. TIMES is a file for the ms of each checkpoint and the CPU ms of the process tree behind it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.jobs.usage import used
from poundlock import (
    AggregateFunction,
    CountEvictor,
    CountSlidingWindows,
    CountTumblingWindows,
    CumulativeEventTimeWindows,
    DatagenSource,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    FileSink,
    GlobalWindows,
    Job,
    KeyedProcessFunction,
    MapStateDescriptor,
    ProcessingTimeSessionWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from poundlock.driver.progress import Progress

ROWS, KEYS = 4, 8
_SCHEMA, _COUNT = "key string, n bigint", "count(*) as n"
_BASE_MS = 1_545_184_220_000


def row(number: int, _: Any) -> dict[str, Any]:
    return {"key": f"key-{number % KEYS}", "at": _BASE_MS + 250 * number}


class Timed(KeyedProcessFunction):
    """Counts the rows of a key until a timer, ten seconds on, gives the count."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("n"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if self.rows.value() is None:
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10_000)
        self.rows.update((self.rows.value() or 0) + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield {"key": ctx.get_current_key(), "n": self.rows.value()}
        self.rows.clear()


class ByRemainder(KeyedProcessFunction):
    """Counts the rows of a key in a map."""

    def open(self, context: Any) -> None:
        self.rows = context.get_map_state(MapStateDescriptor("n"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.rows.put(value["at"] % 3, (self.rows.get(value["at"] % 3) or 0) + 1)
        yield {"key": ctx.get_current_key(), "n": 1}


class Counted(ProcessWindowFunction):
    """Counts the elements of a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield {"key": key, "n": len(elements)}


class Added(AggregateFunction):
    """Counts in an accumulator."""

    def create_accumulator(self) -> Any:
        return {"n": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        return {"n": accumulator["n"] + 1}

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return {"n": a["n"] + b["n"]}


def _windows(assigner: Any) -> Callable[[Any, str], Any]:
    return lambda keyed, name: keyed.window(assigner).aggregate(_COUNT, name=name)


# What each branch is, and how often it counts a row; 0: it counts by the clock, and what is open at the end is lost.
BRANCHES: tuple[tuple[Callable[[Any, str], Any], float], ...] = (
    (_windows(TumblingEventTimeWindows("10 s")), 1),
    (_windows(EventTimeSessionWindows("5 s")), 1),
    (lambda keyed, name: keyed.process(Timed(), schema=_SCHEMA, name=name), 1),
    (_windows(SlidingEventTimeWindows("10 s", "5 s")), 2),
    (_windows(CountTumblingWindows(2)), 1),
    (_windows(CumulativeEventTimeWindows("5 s", "10 s")), 1.5),
    (lambda keyed, name: keyed.window(TumblingEventTimeWindows("10 s")).trigger(EventTimeTrigger()).aggregate(_COUNT, name=name), 1),
    (lambda keyed, name: keyed.window(TumblingEventTimeWindows("10 s")).process(Counted(), schema=_SCHEMA, name=name), 1),
    (_windows(TumblingProcessingTimeWindows("1 h")), 0),
    (_windows(GlobalWindows(at_end=True)), 1),
    (_windows(DynamicEventTimeSessionWindows(lambda value: 3_000)), 1),
    (lambda keyed, name: keyed.window(TumblingEventTimeWindows("20 s")).aggregate(Added(), schema="n bigint", name=name), 1),
    (_windows(CountSlidingWindows(2, 1)), 2),
    (_windows(ProcessingTimeSessionWindows("1 h")), 0),
    (lambda keyed, name: keyed.window(TumblingEventTimeWindows("10 s")).evictor(CountEvictor(100)).process(Counted(), schema=_SCHEMA, name=name), 1),
    (lambda keyed, name: keyed.process(ByRemainder(), schema=_SCHEMA, name=name), 1),
    (_windows(SlidingProcessingTimeWindows("2 h", "1 h")), 0),
    (_windows(DynamicProcessingTimeSessionWindows(lambda value: 3_600_000)), 0),
    (lambda keyed, name: keyed.window(EventTimeSessionWindows("7 s")).process(Counted(), schema=_SCHEMA, name=name), 1),
    (_windows(SlidingEventTimeWindows("20 s", "5 s")), 4),
)  # fmt: skip


def expected(branch: int, rows: int) -> int:
    """Return what the counts of a branch add up to; the windows of the last two rows hold the first row of a key once only."""
    return int(BRANCHES[branch][1] * rows) - (KEYS if BRANCHES[branch][0] is BRANCHES[12][0] else 0)


def main(branches: int, count: int, out: str, checkpoints: str, times: Path) -> None:
    marks: dict[int, tuple[int, int]] = {}  # of each checkpoint: its ms, and CPU ms so far

    def note(progress: Progress) -> None:
        if progress.checkpoint is not None and progress.last_ms is not None:
            marks.setdefault(progress.checkpoint, (progress.last_ms, used()[0]))

    job = Job("branches", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2, on_error="fail")
    source = DatagenSource(row, schema="key string, at bigint", count=count * ROWS, rows_per_checkpoint=ROWS)
    events = job.from_source(source, WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at"), name="events")
    keyed = events.key_by("key")
    for number, (made, _) in enumerate(BRANCHES[:branches]):
        counts = made(keyed, f"branch-{number}")
        counts.sink_to(FileSink(f"{out}/{number}", format="json"), name=f"out-{number}")
    job.run(on_progress=note)
    times.write_text(json.dumps([marks[number] for number in sorted(marks)]))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], Path(sys.argv[5]))
