"""Rows of files numbered by key, with a straggler in every batch: what is lost or done twice is seen in the numbers."""

import time
from collections.abc import Iterator
from os import environ
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from poundlock import FileSink, FileSource, Job, KeyedProcessFunction, RollingPolicy, ValueStateDescriptor

MARKS = Path(environ["CRASH_MARKS"])
STRAGGLE_S = 6.0


def straggle(row: dict[str, Any]) -> dict[str, Any]:
    """Have the first attempt of a batch's first task take long, and note who ran at all."""
    context = TaskContext.get()
    assert context is not None
    if row["first"] and context.attemptNumber() == 0:
        time.sleep(STRAGGLE_S)
    if row["first"] and context.attemptNumber() > 0:
        (MARKS / f"{row['k']}-{row['i']}-{context.attemptNumber()}").touch()
    return row


class Number(KeyedProcessFunction):
    """Numbers the rows of a key."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("rows", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rows.update(self.rows.value() + 1)
        yield {"k": value["k"], "n": self.rows.value(), "i": value["i"]}


job = Job("crash-numbered", checkpoint_interval="0 s", checkpoint_dir=environ["CRASH_CHECKPOINTS"], on_error="fail")
SCHEMA = "k string, i bigint, first boolean"
rows = job.from_source(
    FileSource(
        environ["CRASH_IN"], format="json", schema=SCHEMA, max_files_per_checkpoint=2,
        **({"watch": True, "discover_every": "200 ms"} if environ.get("CRASH_WATCH") == "1" else {}),
    ),
    name="rows",
)  # fmt: skip
numbered = (
    rows.map(straggle, schema=SCHEMA, name="straggle")
    .key_by("k")
    .process(Number(), schema="k string, n bigint, i bigint", name="number")
)
numbered.sink_to(
    FileSink(environ["CRASH_OUT"], format="json", rolling=RollingPolicy(every="1 h", size="1 KB")), name="out"
)
