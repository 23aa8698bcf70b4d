"""Functions that keep metrics, in a map and in a keyed process function; for a job that is killed."""

from collections.abc import Iterator
from os import environ
from typing import Any

from poundlock import (
    FileSink,
    FileSource,
    Job,
    KeyedProcessFunction,
    RichFunction,
    RollingPolicy,
    ValueStateDescriptor,
    counter,
    gauge,
    histogram,
)

seen = counter("seen")
newest = gauge("newest")
sizes = histogram("sizes", (10, 100, 1000))


class Count(RichFunction):
    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        seen.inc()
        newest.set(row["id"])
        sizes.update(row["id"])
        return row


class PerKey(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.total = context.get_state(ValueStateDescriptor("total"))
        self.keyed = context.get_metric_group().counter("keyed")
        self.tasks = context.get_metric_group().gauge("tasks", "sum")

    def process_element(self, value: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        total = (self.total.value() or 0) + 1
        self.total.update(total)
        self.keyed.inc()
        self.tasks.set(1)
        yield {"k": value["k"], "n": total}


job = Job(
    "crash-metrics",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    on_error="fail",
    parallelism=2,
)
rows = job.from_source(
    FileSource(environ["CRASH_IN"], format="json", schema="k string, id bigint", max_files_per_checkpoint=1),
    name="rows",
)
counted = rows.map(Count(), schema="k string, id bigint", name="count")
counted.key_by("k").process(PerKey(), schema="k string, n bigint", name="per-key").sink_to(
    FileSink(environ["CRASH_OUT"], format="json", rolling=RollingPolicy(on_checkpoint=True)), name="out"
)
