"""Work by key on poundlock, over rows (at, key, n) in Parquet files. Arguments: WORK KEYS IN OUT CHECKPOINTS [STATE].

WORK is window_native or window_python (counts of ten seconds), process (a state and a timer for each key and ten seconds) or
sessions. Into the file STATE goes how many bytes of state there were at most.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from poundlock import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    FileSink,
    Job,
    KeyedProcessFunction,
    SparkSource,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from poundlock.driver.driver import run

_SPAN_MS = 10_000


class Count(KeyedProcessFunction):
    """Counts the rows of a key until a timer, ten seconds on, gives the count."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("n"))

    def process_element(self, value: tuple[Any, ...], ctx: Any) -> Any:
        rows = self.rows.value()
        if rows is None:
            rows = 0
            at = ctx.timestamp()
            ctx.timer_service().register_event_time_timer(at - at % _SPAN_MS + _SPAN_MS - 1)
        self.rows.update(rows + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield {"key": ctx.get_current_key(), "n": self.rows.value()}
        self.rows.clear()


def session_gap_us(keys: int) -> int:
    """Return a gap that about one row in 150 is followed by: keys take turns at random, 100,000 rows a second."""
    return 50 * keys


def job(work: str, keys: int, given: str, out: str, checkpoints: str) -> Job:
    made = Job("keyed-work", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2, on_error="fail")
    rows = made.from_source(
        SparkSource(
            "parquet", {"maxFilesPerTrigger": 1}, schema="at timestamp, key string, n bigint", path=given, bounded=True
        ),
        WatermarkStrategy.bounded_out_of_orderness("5 s", timestamp="at"),
        name="rows",
    )
    keyed = rows.key_by("key")
    kind, _, lane = work.partition("_")
    if kind == "process":
        counts = keyed.process(Count(), schema="key string, n bigint", name="counts")
    else:
        windows: Any = (
            TumblingEventTimeWindows("10 s")
            if kind == "window"
            else EventTimeSessionWindows(f"{session_gap_us(keys) // 1000} ms")
        )
        windowed = keyed.window(windows)
        if lane == "python":
            windowed = windowed.trigger(EventTimeTrigger())  # the windows' own; that it is named is enough for our lane
        counts = windowed.aggregate("count(*) as n", name="counts")
    counts.sink_to(FileSink(out, format="json"), name="out")
    return made


if __name__ == "__main__":
    work, keys, given, out, checkpoints, *state = sys.argv[1:]
    sizes = [0]
    run(job(work, int(keys), given, out, checkpoints), on_progress=lambda told: sizes.append(told.state_bytes or 0))
    for path in state:
        Path(path).write_text(str(max(sizes)))
