"""The job that `poundlock torture` kills: lines counted by key, and copied by event time, of files or of a topic."""

from __future__ import annotations

import os

from poundlock import FileSink, FileSource, Job, KafkaSink, KafkaSource, RollingPolicy

SCHEMA = "id bigint, customer string"
servers = os.environ.get("SERVERS")
job = Job("orders", checkpoint_dir=os.environ["CHECKPOINT"])
if servers is None:
    orders = job.from_source(FileSource(os.environ["GIVEN"], format="json", schema=SCHEMA), name="orders")
else:
    topic = KafkaSource(bootstrap_servers=servers, topics="orders", start="latest", format="json", schema=SCHEMA)
    orders = job.from_source(topic, name="orders")
    orders.sink_to(KafkaSink(servers, "copies", value=["id", "customer"], format="json", key="customer"), name="copies")
orders.sink_to(
    FileSink(os.environ["OUT"], format="json", bucket=lambda row: f"c={row['customer']}"), name="by-customer"
)
ones = orders.map(lambda row: {"customer": row["customer"], "n": 1}, schema="customer string, n bigint", name="ones")
ones.key_by("customer").sum("n", name="counted").sink_to(
    FileSink(os.environ["OUT"] + "-counts", format="json", rolling=RollingPolicy(on_checkpoint=True)), name="counts"
)
