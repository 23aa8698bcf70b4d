"""Rows numbered and summed by key, for a job whose keys are many and that is killed wherever it runs."""

from collections.abc import Iterator
from os import environ
from typing import Any

from poundlock import FileSink, FileSource, Job, KeyedProcessFunction, RollingPolicy, ValueStateDescriptor


class Account(KeyedProcessFunction):
    """Counts the rows of a key and adds their values up."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("rows", default=0))
        self.total = context.get_state(ValueStateDescriptor("total", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rows.update(self.rows.value() + 1)
        self.total.update(self.total.value() + value["v"])
        yield {"k": value["k"], "n": self.rows.value(), "total": self.total.value()}


job = Job("crash-million-keys", checkpoint_interval="0 s", checkpoint_dir=environ["CRASH_CHECKPOINTS"], on_error="fail")
rows = job.from_source(
    FileSource(
        environ["CRASH_IN"], format="json", schema="k bigint, v bigint", max_files_per_checkpoint=2,
        **({"watch": True, "discover_every": "200 ms"} if environ.get("CRASH_WATCH") == "1" else {}),
    ),
    name="rows",
)  # fmt: skip
accounts = rows.key_by("k").process(Account(), schema="k bigint, n bigint, total bigint", name="accounts")
accounts.sink_to(
    FileSink(environ["CRASH_OUT"], format="json", rolling=RollingPolicy(every="1 h", size="32 MB")), name="out"
)
