"""Files of rows, counted and added up by key, on a cluster. CLUSTER_ROOT has the folders in, out and checkpoints.

With CLUSTER_UNPLACED=1 Spark places keyed tasks as it would by itself, to compare with.
"""

from collections.abc import Iterator
from os import environ
from typing import Any

from poundlock import FileSink, FileSource, Job, KeyedProcessFunction, ValueStateDescriptor

ROOT = environ["CLUSTER_ROOT"]

if environ.get("CLUSTER_UNPLACED") == "1":
    from poundlock.spark.placement import TaskPlacement

    TaskPlacement.placed = lambda self, sent, parallelism, senders: sent  # type: ignore[method-assign]


class Account(KeyedProcessFunction):
    """Counts the rows of a key and adds their values up."""

    def open(self, context: Any) -> None:
        self.rows = context.get_state(ValueStateDescriptor("rows", default=0))
        self.total = context.get_state(ValueStateDescriptor("total", default=0))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rows.update(self.rows.value() + 1)
        self.total.update(self.total.value() + value["v"])
        yield {"k": value["k"], "n": self.rows.value(), "total": self.total.value()}


job = Job("cluster-state", checkpoint_interval="0 s", checkpoint_dir=f"{ROOT}/checkpoints", on_error="fail")
source = FileSource(f"{ROOT}/in", format="json", schema="k bigint, v bigint", watch=True, discover_every="200 ms")
rows = job.from_source(source, name="rows")
accounts = rows.key_by("k").process(Account(), schema="k bigint, n bigint, total bigint", name="accounts")
accounts.sink_to(FileSink(f"{ROOT}/out", format="json"), name="out")
