"""Process functions, rolling aggregates and interval joins without Spark: CPU time for a row, with state read and written for every batch.

Prints one line a case; nothing is asserted, since a figure means something only beside another of the same minutes. Rows come
100,000 to a second of event time and up to 4 s out of order; the watermark is 5 s behind.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.keyed_kernel import BATCH, Clock
from poundlock.operators.keyed.group import MIN
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import GroupBatch
from poundlock.operators.process.joins import IntervalJoinOperator
from poundlock.operators.process.process import ProcessOperator
from poundlock.operators.process.rolling import RollingOperator, rolling_fold
from poundlock.state.scratch import ScratchState
from poundlock.stream.functions.process import KeyedProcessFunction
from poundlock.stream.functions.state import ValueStateDescriptor


class CountTenSeconds(KeyedProcessFunction):
    """Counts a key's rows and sends the count ten seconds after its first row."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> None:
        count = self.count.value()
        if count is None:
            count = 0
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10_000)
        self.count.update(count + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield {"key": ctx.get_current_key(), "count": self.count.value()}
        self.count.clear()


class CountEach(CountTenSeconds):
    """Sends the count with every row, and sets a timer with every row."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:  # type: ignore[override]
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() // 10_000 * 10_000 + 10_000)
        yield {"key": ctx.get_current_key(), "count": count}


def cases() -> Iterator[tuple[str, Callable[[], KeyedOperator], int]]:
    """Yield what makes an operator, with a name and its number of inputs."""
    yield "value state, a timer for 10 s", lambda: ProcessOperator(CountTenSeconds()), 1
    yield "the same, a row and a timer for each", lambda: ProcessOperator(CountEach()), 1
    yield "rolling sum", lambda: RollingOperator(rolling_fold("sum", "n")), 1
    yield "interval join, 20 ms around", lambda: IntervalJoinOperator(-20, 20), 2


def batches(rows: int, keys: int, inputs: int) -> Iterator[tuple[list[GroupBatch], int]]:
    """Yield the batches of each input, with the watermark after them."""
    names = [f"key-{i}" for i in range(keys)]
    for start in range(0, rows, BATCH):
        some: dict[int, tuple[list[Any], list[Any], list[int | None]]] = {}
        for i in range(start, start + BATCH):
            name = names[i * 2_654_435_761 % (1 << 32) % keys]
            columns = some.setdefault(i // 3 % inputs, ([], [], []))
            columns[0].append(name)
            columns[1].append({"key": name, "n": i, "text": "some text", "price": 2.5})
            columns[2].append(i // 100 - 7919 * i % 4000)
        yield [GroupBatch(*columns, side=side) for side, columns in sorted(some.items())], (start + BATCH) // 100 - 5000


def run(operator: KeyedOperator, rows: int, keys: int, inputs: int) -> str:
    """Return the figures of one case."""
    operator.open()
    state, before = ScratchState(128), MIN
    clock, out = Clock(), 0
    for sides, watermark in batches(rows, keys, inputs):
        group = clock.time("state", lambda b=before: state.open(0, b))
        for batch in sides:
            out += clock.time("rows", lambda g=group, b=batch: sum(map(len, operator.process(g, b))))
        out += clock.time("timers", lambda g=group, w=watermark: sum(map(len, operator.advance_watermark(g, w))))
        clock.time("state", state.write)
        before = watermark
    return clock.figures(rows, out, state)


def main(rows: int) -> None:
    for keys in (1_000, 100_000):
        for name, make, inputs in cases():
            print(f"{name:38} {keys:7} keys {run(make(), rows, keys, inputs)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
