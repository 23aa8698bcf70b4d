"""JSON lines into Parquet files on S3 on poundlock. Arguments: FOLDER OUT CHECKPOINTS BYTES-A-CHECKPOINT."""

from __future__ import annotations

import sys

from poundlock import FileSink, FileSource, Job

if __name__ == "__main__":
    place, out, checkpoints, size = sys.argv[1:5]
    job = Job("parquet-to-s3", checkpoint_interval="0 s", checkpoint_dir=checkpoints, parallelism=2, on_error="fail")
    source = FileSource(
        place,
        format="json",
        schema="timestamp double, event string, uuid string",
        max_bytes_per_checkpoint=size,
    )
    job.from_source(source, name="events").sink_to(FileSink(out, format="parquet"), name="files")
    print(job.run())
