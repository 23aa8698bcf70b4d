"""The job that `poundlock torture` kills together with its broker and its database: orders of a topic, with what a table of PostgreSQL knows of them."""

from __future__ import annotations

import os

import psycopg
import pyarrow as pa

from poundlock import FileSink, Job, KafkaSink, KafkaSource

servers = os.environ["SERVERS"]
job = Job("looked-up", checkpoint_dir=os.environ["CHECKPOINT"])
orders = job.from_source(
    KafkaSource(
        bootstrap_servers=servers, topics="orders", start="latest", format="json", schema="id bigint, customer string"
    ),
    name="orders",
)


def with_region(rows: pa.Table) -> pa.Table:
    """Add the region of each customer, as the database has it now."""
    with psycopg.connect(os.environ["CATALOG"], connect_timeout=5) as catalog:
        known = dict(catalog.execute("SELECT customer, region FROM customers").fetchall())
    regions = [known[customer] for customer in rows["customer"].to_pylist()]
    return rows.append_column("region", pa.array(regions, pa.string()))


known = orders.map_batches(with_region, schema="id bigint, customer string, region string", name="known")
known.sink_to(KafkaSink(servers, "copies", value=["id", "region"], format="json", key="region"), name="copies")
known.sink_to(FileSink(os.environ["OUT"], format="json", bucket=lambda row: f"r={row['region']}"), name="by-region")
