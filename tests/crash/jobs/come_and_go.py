"""Rows that take a while each, numbered by key and added up in windows of ten seconds, for a cluster whose executors come and go."""

import time
from collections.abc import Iterator
from os import environ
from typing import Any

from poundlock import (
    FileSink,
    FileSource,
    Job,
    KeyedProcessFunction,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)

WAIT_S = 0.05


def answered(row: dict[str, Any]) -> dict[str, Any]:
    """Wait as long as another system takes to answer."""
    time.sleep(WAIT_S)
    return row


class Number(KeyedProcessFunction):
    """Numbers the rows of a key."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("rows", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rows.update(self.rows.value() + 1)
        yield {"k": value["k"], "n": self.rows.value()}


SCHEMA = "k string, at bigint, v bigint"
job = Job("crash-come-and-go", checkpoint_interval="0 s", checkpoint_dir=environ["CRASH_CHECKPOINTS"], on_error="fail")
rows = job.from_source(
    FileSource(
        environ["CRASH_IN"], format="json", schema=SCHEMA, max_files_per_checkpoint=16,
        **({"watch": True, "discover_every": "200 ms"} if environ.get("CRASH_WATCH") == "1" else {}),
    ),
    name="rows",
)  # fmt: skip
# Files are read in any order, so that an hour is waited for the rows of others: windows fire at the end.
times = WatermarkStrategy.bounded_out_of_orderness("1 h", timestamp="at")
slow = rows.map(answered, schema=SCHEMA, name="answered").assign_timestamps_and_watermarks(times, name="times")
numbers = slow.key_by("k").process(Number(), schema="k string, n bigint", name="numbers")
numbers.sink_to(FileSink(f"{environ['CRASH_OUT']}/numbers", format="json"), name="numbered")
sums = slow.key_by("k").window(TumblingEventTimeWindows("10 s")).aggregate("count(*) as n", "sum(v) as v", name="sums")
sums.sink_to(FileSink(f"{environ['CRASH_OUT']}/sums", format="json"), name="summed")
