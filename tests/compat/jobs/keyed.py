"""Counts by key in windows, and rows numbered by key in a process function: what has state and is killed."""

from collections.abc import Iterator
from os import environ
from typing import Any

from poundlock import (
    FileSink,
    FileSource,
    Job,
    KeyedProcessFunction,
    RollingPolicy,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)


class Numbering(KeyedProcessFunction):
    """Numbers the rows of a key."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("rows", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rows.update(self.rows.value() + 1)
        yield {"k": value["k"], "n": self.rows.value()}


WATCH: dict[str, Any] = {"watch": True, "discover_every": "200 ms"} if environ.get("COMPAT_WATCH") == "1" else {}

job = Job("compat-keyed", checkpoint_interval="0 s", checkpoint_dir="checkpoint", on_error="fail")
rows = job.from_source(
    FileSource(
        "in", format="json", schema="k string, at bigint", max_files_per_checkpoint=1,
        **WATCH,
    ),
    WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at"),
    name="rows",
)  # fmt: skip
numbered = rows.key_by("k").process(Numbering(), schema="k string, n bigint", name="numbering")
if environ.get("COMPAT_VERSION") == "2":
    numbered = numbered.filter(lambda row: row["n"] > 0, name="positive")
numbered.sink_to(FileSink("numbered", format="json", rolling=RollingPolicy(on_checkpoint=True)), name="numbered")
counts = (
    rows.key_by("k")
    .window(TumblingEventTimeWindows("10 s"))
    .aggregate("count(*) as n", "sum(at) as total", name="counts")
)
counts.sink_to(FileSink("counts", format="json"), name="counts-out")
