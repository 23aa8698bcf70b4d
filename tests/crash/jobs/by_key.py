"""The crash tests' job for sinks by key: each key is written many times, and deleted at times; its newest row has to stay."""

from os import environ
from typing import Any

from poundlock import CassandraSink, DatagenSource, Job, OpenSearchSink

ROWS, KEYS = int(environ["CRASH_ROWS"]), int(environ["CRASH_KEYS"])
job = Job(
    "crash-by-key",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    parallelism=2,
    on_error="fail",
)
# A checkpoint has each key once, so that it does not matter which task writes it.
numbers = job.from_source(
    DatagenSource(
        "n bigint",
        fields={"n": "sequence"},
        count=ROWS,
        rows_per_checkpoint=KEYS,
        rows_per_split=KEYS // 2,
        rate=float(environ["CRASH_RATE"]) or None,
    ),
    name="numbers",
)
rows = numbers.select(f"n % {KEYS} as id", "n", "concat('row ', n) as word", f"(n div {KEYS} + n) % 3 = 0 as gone")
sink: Any = (
    OpenSearchSink(environ["CRASH_URL"], environ["CRASH_PLACE"], key="id", delete_when="gone")
    if environ["CRASH_SINK"] == "opensearch"
    else CassandraSink("127.0.0.1", environ["CRASH_PLACE"], port=int(environ["CRASH_URL"]), delete_when="gone")
)
rows.sink_to(sink, name="by-key")
