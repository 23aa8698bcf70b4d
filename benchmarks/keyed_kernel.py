"""Keyed operators without Spark: CPU time for a row, with state read from runs and written to a run for every batch.

Prints one line a case; nothing is asserted, since a figure means something only beside another of the same minutes. Rows come
100,000 to a second of event time and up to 4 s out of order; the watermark is 5 s behind.
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from poundlock.operators.factory import window_operator
from poundlock.operators.keyed.group import MIN
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import GroupBatch
from poundlock.operators.windows.aggregates import SqlAggregate, SqlAggregates
from poundlock.operators.windows.base import WindowSpec
from poundlock.state.scratch import ScratchState
from poundlock.stream.functions.process import ReduceWindow
from poundlock.stream.windows.assigners import WindowAssigner
from poundlock.stream.windows.builtin_assigners import (
    CountTumblingWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from poundlock.stream.windows.builtin_triggers import CountTrigger

BATCH = 100_000
COUNT = SqlAggregates([SqlAggregate(kind="count")])
SEVERAL = SqlAggregates(
    [SqlAggregate(kind="count"), SqlAggregate(kind="sum", column=0), SqlAggregate(kind="max", column=0)]
)


def newer(a: tuple[int], b: tuple[int]) -> tuple[int]:
    return b


def cases() -> Iterator[tuple[str, WindowSpec]]:
    """Yield windows with a name."""
    ten = TumblingEventTimeWindows("10 s")
    yield "tumbling 10 s, count(*)", WindowSpec(assigner=ten, function=COUNT)
    yield "tumbling 10 s, count, sum, max", WindowSpec(assigner=ten, function=SEVERAL)
    yield "tumbling 10 s, Python reduce", WindowSpec(assigner=ten, function=ReduceWindow(newer))
    sliding: WindowAssigner = SlidingEventTimeWindows("10 s", "2 s")
    yield "sliding 10 s / 2 s, count(*)", WindowSpec(assigner=sliding, function=COUNT)
    for gap in ("5 s", "500 ms"):
        yield f"session {gap}, count(*)", WindowSpec(assigner=EventTimeSessionWindows(gap), function=COUNT)
    yield "100 elements, count(*)", WindowSpec(assigner=CountTumblingWindows(100), function=COUNT)
    every = CountTrigger(100)
    yield "tumbling 10 s, every 100 (general)", WindowSpec(assigner=ten, trigger=every, function=COUNT)


def batches(rows: int, keys: int) -> Iterator[tuple[GroupBatch, int]]:
    """Yield each batch with the watermark after it."""
    names = [f"key-{i}" for i in range(keys)]
    for start in range(0, rows, BATCH):
        numbers = range(start, start + BATCH)
        times: list[int | None] = [i // 100 - 7919 * i % 4000 for i in numbers]
        chosen = [names[i * 2_654_435_761 % (1 << 32) % keys] for i in numbers]
        yield GroupBatch(chosen, [(i,) for i in numbers], times), (start + BATCH) // 100 - 5000


class Clock:
    """CPU seconds spent on each kind of work."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def time(self, what: str, work: Callable[[], Any]) -> Any:
        before = time.process_time()
        result = work()
        self.spent[what] = self.spent.get(what, 0.0) + time.process_time() - before
        return result

    def figures(self, rows: int, results: int, state: ScratchState) -> str:
        """Return what a row cost, and what came of all rows: results, and state at the end."""
        us = {what: spent / rows * 1e6 for what, spent in self.spent.items()}
        parts = ", ".join(f"{what} {spent:.2f}" for what, spent in us.items())
        size = sum(file.bytes for file in state.manifest.files) / 1e6
        return f"{sum(us.values()):6.2f} us a row ({parts}), {results} results, {size:.1f} MB of state at the end"


def run(spec: WindowSpec, rows: int, keys: int) -> str:
    """Return the figures of one case."""
    operator: KeyedOperator = window_operator(spec)
    state, before = ScratchState(128), MIN
    clock, out = Clock(), 0
    for batch, watermark in batches(rows, keys):
        group = clock.time("state", lambda b=before: state.open(0, b))
        out += clock.time("rows", lambda g=group, b=batch: sum(map(len, operator.process(g, b))))
        out += clock.time("timers", lambda g=group, w=watermark: sum(map(len, operator.advance_watermark(g, w))))
        clock.time("state", state.write)
        before = watermark
    return clock.figures(rows, out, state)


def opened(kind: str) -> WindowSpec:
    """Return windows to hold open: of all keys together, sessions with a timer each, or those of a trigger."""
    assigner = EventTimeSessionWindows("10 s") if kind == "session" else TumblingEventTimeWindows("10 s")
    return WindowSpec(assigner=assigner, function=COUNT, trigger=CountTrigger(2) if kind == "general" else None)


def open_windows(kind: str, count: int) -> str:
    """Return what it takes to close windows of as many keys with one watermark, in one task."""
    operator = window_operator(opened(kind))
    state = ScratchState(128)
    group = state.open()
    for start in range(0, count, BATCH):
        keys = range(start, min(start + BATCH, count))
        times: list[int | None] = [key % 9_000 for key in keys]
        for _ in range(2 if kind == "general" else 1):  # the trigger fires at the second element
            list(operator.process(group, GroupBatch(keys, [()] * len(keys), times)))
    del group
    state.write()
    size = sum(file.bytes for file in state.manifest.files) / 1e6
    gc.collect()
    group = state.open()
    list(operator.process(group, GroupBatch(["one more"], [()], [5])))  # the windows are read from their runs
    before_mb, before = peak_mb(), time.process_time()
    rows = largest = 0
    for chunk in operator.advance_watermark(group, 100_000):
        rows += len(chunk)
        largest = max(largest, len(chunk))
    spent = time.process_time() - before
    assert group.is_empty()
    return (
        f"{kind:8} {count} windows closed in {spent:.2f} CPU-s, {rows} results, at most {largest} at a time, "
        f"{size:.1f} MB of state, peak memory {before_mb:.0f} MB before and {peak_mb():.0f} MB after"
    )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(rows: int) -> None:
    for keys in (1_000, 100_000):
        for name, spec in cases():
            print(f"{name:36} {keys:7} keys {run(spec, rows, keys)}", flush=True)
    for kind in ("tumbling", "session", "general"):
        for count in (100_000, 1_000_000):
            # A process of its own: the peak of one that ran other cases says nothing.
            subprocess.run([sys.executable, "-m", "benchmarks.keyed_kernel", kind, str(count)], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(open_windows(sys.argv[1], int(sys.argv[2])))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
