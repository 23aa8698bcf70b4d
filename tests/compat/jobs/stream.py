"""A stream that Spark reads, a function that keeps state in Spark right behind it, and a keyed step of our own."""

from collections.abc import Iterator
from typing import Any

from poundlock import FileSink, Job, KeyedProcessFunction, RollingPolicy, SparkSource, ValueStateDescriptor


class Numbering(KeyedProcessFunction):
    """Numbers the rows of a key."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("rows", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rows.update(self.rows.value() + 1)
        yield {"k": value["k"], "n": value["n"], "number": self.rows.value()}


def once(rows: Any) -> Any:
    """Return the rows, each number once."""
    return rows.dropDuplicates(["n"])


job = Job("compat-stream", checkpoint_interval="0 s", checkpoint_dir="checkpoint", on_error="fail")
files = SparkSource("json", {"maxFilesPerTrigger": 1}, schema="k string, n bigint, at bigint", path="in", bounded=True)
(
    job.from_source(files, name="rows")
    .apply(once)
    .key_by("k")
    .process(Numbering(), schema="k string, n bigint, number bigint", name="numbering")
    .sink_to(FileSink("out", format="json", rolling=RollingPolicy(on_checkpoint=True)), name="out")
)
