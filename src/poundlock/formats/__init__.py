"""Bytes to rows and back: raw, JSON lines, CSV, Avro, Parquet. Plain Python and Arrow, the same in a task, a test or a notebook."""
