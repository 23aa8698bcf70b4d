"""The crash tests' job on a database read by JDBC: a table into JSON lines. Small pieces, so that there are many checkpoints."""

from os import environ
from typing import Any

from poundlock import FileSink, JdbcSource, Job, RollingPolicy
from poundlock.spark.launch.jars import jar_set

given: dict[str, Any]
if environ["CRASH_MODE"] == "bounded":
    given = {"partition_column": "id", "partitions": 15, "partitions_per_checkpoint": 3}
else:
    given = {"mode": "incremental", "column": "id", "lag": "300 ms", "poll_every": "50 ms", "rows_per_split": 40}
    given |= {"max_rows_per_checkpoint": 120}

job = Job("crash-jdbc", checkpoint_interval="0 s", checkpoint_dir=environ["CRASH_CHECKPOINTS"], parallelism=2)
job.from_source(
    JdbcSource(
        environ["CRASH_URL"], table="events", user="root", jars=jar_set("mariadb-jdbc"), append_only=True, **given
    ),
    name="table",
).sink_to(
    FileSink(environ["CRASH_OUT"], format="json", rolling=RollingPolicy(every="1 s", size="1 MB")),
    name="files",
)
