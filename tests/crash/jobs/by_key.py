"""The crash tests' job for sinks by key: each key is written many times, and deleted at times; its newest row has to stay.

CRASH_POISON says which rows no system takes: "null", those have no key; "long", their text is longer than a keyword of OpenSearch's may be.
"""

from collections.abc import Callable
from os import environ
from typing import Any

from poundlock import CassandraSink, DatagenSource, Job, MongoSink, OpenSearchSink

ROWS, KEYS = int(environ["CRASH_ROWS"]), int(environ["CRASH_KEYS"])
POISON = environ["CRASH_POISON"]
IS_POISON = f"n % {environ['CRASH_POISON_EACH']} = 0"
job = Job(
    "crash-by-key",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    dead_letters=environ["CRASH_DEAD"],
    parallelism=2,
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
rows = numbers.select(
    f"if({IS_POISON} and '{POISON}' = 'null', null, n % {KEYS}) as id",
    "n",
    f"if({IS_POISON} and '{POISON}' = 'long', repeat('x', 40000), concat('row ', n)) as word",
    f"not ({IS_POISON}) and (n div {KEYS} + n) % 3 = 0 as gone",
)
sinks: dict[str, Callable[[str, str], Any]] = {
    "opensearch": lambda url, place: OpenSearchSink(url, place, key="id", delete_when="gone", bulk_size="16 KB"),
    "cassandra": lambda url, place: CassandraSink("127.0.0.1", place, port=int(url), delete_when="gone", timeout="3 s"),
    "mongodb": lambda url, place: MongoSink(url, "test", place, key="id", delete_when="gone", bulk_size="16 KB"),
    "mongodb-mark": lambda url, place: MongoSink(
        url, "test", place, key="id", delete_when="gone", deletes="mark", bulk_size="16 KB"
    ),
}
rows.sink_to(sinks[environ["CRASH_SINK"]](environ["CRASH_URL"], environ["CRASH_PLACE"]), name="by-key")
