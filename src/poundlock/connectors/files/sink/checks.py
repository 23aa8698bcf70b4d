"""What a file sink refuses when it is written down: settings that contradict each other, and names that cannot be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from poundlock.arguments import refuse_without_effect
from poundlock.connectors.files.buckets.assigners import BucketAssigner, EventTimeBucketAssigner
from poundlock.connectors.files.custom_rolling import CustomRollingPolicy
from poundlock.connectors.files.partitions.commit import PartitionCommit
from poundlock.connectors.files.partitions.sealed import SealedBuckets
from poundlock.connectors.files.sink.rolling import RollingPolicy
from poundlock.errors import DefinitionError, required
from poundlock.formats.own.custom import BULK, BulkWriterFactory, Encoder
from poundlock.formats.own.parquet_options import ParquetOptions

if TYPE_CHECKING:
    from poundlock.connectors.files.sink.sink import FileSink

SUFFIX = {
    "raw": "",
    "json": ".jsonl",
    "csv": ".csv",
    "parquet": ".parquet",
    "orc": ".orc",
    "avro": ".avro",
    "custom": "",
    "custom-bulk": "",
}
COMPRESSION: dict[str, dict[str, str | None]] = {
    "raw": {"none": None, "gzip": "gzip", "zstd": "zstd"},
    "json": {"none": None, "gzip": "gzip", "zstd": "zstd"},
    "csv": {"none": None, "gzip": "gzip", "zstd": "zstd"},
    "parquet": {c: c for c in ("none", "snappy", "gzip", "zstd", "lz4", "brotli")},
    "orc": {"none": "uncompressed", **{c: c for c in ("zlib", "snappy", "lz4", "zstd")}},
    "avro": {"none": "null", "deflate": "deflate"},
    "custom": {"none": None, "gzip": "gzip", "zstd": "zstd"},
    "custom-bulk": {},
}
NAMED = ("json", "csv", "parquet", "orc", "avro")
"""The formats that have a name."""
_NAME_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9.=+-]{0,79}")


def check_format(sink: FileSink) -> None:
    """Raise DefinitionError unless format, rows and files of a sink go together."""
    if sink.row is not None and (sink.format is not None or sink.columns is not None or sink.header):
        raise DefinitionError(
            "row= writes one column as it is; format=, columns= and header= do not go with it",
            next='drop row=, or keep only row="value"',
        )
    named = sink.row is not None or not isinstance(sink.format, str) or sink.format in NAMED
    if not named or not isinstance(sink.format, str | Encoder | BulkWriterFactory | None):
        raise DefinitionError(
            f"format={sink.format!r} is not known",
            next='use "json", "csv", "parquet", "orc" or "avro", row="value", or an Encoder or BulkWriterFactory of yours',
        )
    if sink.parquet is not None and (sink.kind_of_rows != "parquet" or not isinstance(sink.parquet, ParquetOptions)):
        raise DefinitionError(
            f"parquet={sink.parquet!r} has no effect", next='write format="parquet", parquet=ParquetOptions(…)'
        )
    if sink.kind_of_rows in ("orc", "custom-bulk") and sink.merging is not None:
        raise DefinitionError(
            f"files of {sink.format_name} cannot be merged", next="drop compaction=, or target_size= of SealedBuckets"
        )
    known = COMPRESSION[sink.kind_of_rows]
    if sink.compression is not None and sink.compression not in known:
        raise DefinitionError(
            f"compression={sink.compression!r} does not go with {sink.kind_of_rows}",
            next=f"use one of {', '.join(known)}" if known else "leave it out",
        )
    if sink.header and sink.kind_of_rows != "csv":
        raise DefinitionError("header= is for CSV", next='write format="csv", or drop header=')
    if sink.header and sink.compaction is not None:
        raise DefinitionError("CSV files with a header cannot be merged", next="drop header= or compaction=")
    if sink.kind_of_rows == "avro":
        required("fastavro", "Avro", "avro")
    bucket = sink.bucket
    if isinstance(bucket, type) or not (isinstance(bucket, BucketAssigner) or callable(bucket)):
        raise DefinitionError(f"bucket={bucket!r} is no assigner", next="use one of the …BucketAssigner, or a function")
    _ = sink.assigner  # refuses a function of something else
    if isinstance(bucket, EventTimeBucketAssigner) and sink.row is None and bucket.json(raw=False):
        raise DefinitionError('source="json" needs raw rows', next='give the sink row="value", or source="column"')
    if not isinstance(sink.rolling, RollingPolicy | CustomRollingPolicy):
        raise DefinitionError(f"rolling={sink.rolling!r} is no policy", next='write RollingPolicy(every="60 s")')
    rolling = sink.rolling
    is_whole = sink.header or sink.kind_of_rows in BULK
    if isinstance(rolling, RollingPolicy) and is_whole and not rolling.on_checkpoint:
        standing = RollingPolicy()
        times = {name: (getattr(rolling, name), getattr(standing, name)) for name in ("every", "inactivity")}
        refuse_without_effect(
            "FileSink",
            {f"rolling.{name}": pair for name, pair in times.items() if pair[0] is not None},
            because=f"{sink.format_name} files{' with a header' if sink.header else ''} are finished at every checkpoint",
            next="say RollingPolicy(on_checkpoint=True), and set Job(checkpoint_interval=…)",
        )
    if not isinstance(sink.partition_commit, PartitionCommit | None):
        raise DefinitionError(
            f"partition_commit={sink.partition_commit!r} is none", next='write PartitionCommit(delay="1 h")'
        )
    if sink.sealed is not None:
        _check_sealed(sink, sink.sealed)
    if not isinstance(sink.max_open_files, int) or sink.max_open_files < 1:
        raise DefinitionError(f"max_open_files={sink.max_open_files!r} is not a number", next="give 1 or more")


def _check_sealed(sink: FileSink, sealed: object) -> None:
    if not isinstance(sealed, SealedBuckets):
        raise DefinitionError(f"sealed={sealed!r} is none", next='write SealedBuckets(allowed_lateness="1 h")')
    if sink.partition_commit is not None or sink.overwrite is not None:
        other = "overwrite" if sink.partition_commit is None else "partition_commit"
        raise DefinitionError(f"sealed= does not go with {other}=", next="give one of them")
    if sealed.target_size is not None and sink.header:
        raise DefinitionError("CSV files with a header cannot be merged", next="drop header= or target_size=")
    sealed.rule(sink.assigner)
    sealed.merging(sink.compaction)


def check_names(sink: FileSink) -> None:
    """Raise DefinitionError unless a sink's folder and names can be written."""
    if not isinstance(sink.path, str) or not sink.path.strip():
        raise DefinitionError(f"{sink.path!r} is not a folder", next='give a path such as "/data/events"')
    if not isinstance(sink.prefix, str) or not _NAME_PART.fullmatch(sink.prefix):
        raise DefinitionError(
            f"prefix={sink.prefix!r} cannot begin a file name", next='use letters, digits and ". = + -", not hidden'
        )
    if sink.suffix is not None and not re.fullmatch(r"[A-Za-z0-9._=+-]{0,40}", sink.suffix):
        raise DefinitionError(f"suffix={sink.suffix!r} cannot end a file name", next='use text such as ".jsonl"')
