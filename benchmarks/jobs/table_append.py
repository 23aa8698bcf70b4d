"""JSON lines into a table of Delta or Iceberg on poundlock. Arguments: FORMAT FOLDER PLACE CHECKPOINTS BYTES-A-CHECKPOINT."""

from __future__ import annotations

import sys

import pyarrow as pa

from poundlock import DeltaSink, FileSource, IcebergSink, Job

COLUMNS = "timestamp double, event string, uuid string"

if __name__ == "__main__":
    format_, folder, place, checkpoints, size = sys.argv[1:6]
    job = Job("table-append", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2, on_error="fail")
    events = job.from_source(
        FileSource(folder, format="json", schema=COLUMNS, max_bytes_per_checkpoint=size), name="events"
    )
    if format_ == "delta":
        events.sink_to(DeltaSink(f"{place}/events", schema=COLUMNS), name="table")
    else:
        catalog = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}"}
        schema = pa.schema([("timestamp", pa.float64()), ("event", pa.string()), ("uuid", pa.string())])
        events.sink_to(IcebergSink(catalog, "db.events", create=schema), name="table")
    print(job.run())
