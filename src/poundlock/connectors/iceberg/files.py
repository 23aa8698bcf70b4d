"""Data files as JSON, as they stand in payloads, decisions and splits, and back as pyiceberg has them.

Statistics of columns are packed: they are for planners, and people read path, rows and bytes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


class FileValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A data file, or one of deletes.

    Args:
        path: where it is.
        partition: values of the partition's fields as Iceberg's single values in hex; None where one is null.
        stats: packed counts and bounds of columns; "" = none.
        format: "PARQUET", "ORC", "AVRO" or "PUFFIN".
        sort: id of the sort order that the whole file has; None = none.
    """

    path: str
    rows: int
    bytes: int
    spec: int
    partition: list[str | None] = []
    stats: str = ""
    format: str = "PARQUET"
    content: int = 0
    sort: int | None = None


def packed_stats(statistics: Mapping[str, Any]) -> str:
    """Return the statistics of a data file, as pyiceberg gives them to be serialized, as text."""
    plain: dict[str, Any] = {name: {str(k): v for k, v in (statistics[name] or {}).items()} for name in _COUNTS}
    plain |= {name: {str(k): v.hex() for k, v in (statistics[name] or {}).items()} for name in _BOUNDS}
    plain["split_offsets"] = statistics["split_offsets"]
    return base64.b64encode(zlib.compress(json.dumps(plain, separators=(",", ":")).encode())).decode()


def _unpacked_stats(text: str) -> dict[str, Any]:
    if not text:
        return {}
    plain = json.loads(zlib.decompress(base64.b64decode(text)))
    made: dict[str, Any] = {name: {int(k): v for k, v in plain[name].items()} for name in _COUNTS}
    made |= {name: {int(k): bytes.fromhex(v) for k, v in plain[name].items()} for name in _BOUNDS}
    return {**made, "split_offsets": plain["split_offsets"]}


def packed_partition(values: Sequence[Any], kinds: Sequence[IcebergType]) -> list[str | None]:
    """Return a partition's values, of the types that its spec gives, as texts."""
    from pyiceberg.conversions import to_bytes

    return [None if value is None else to_bytes(kind, value).hex() for value, kind in zip(values, kinds, strict=True)]


def partition_kinds(metadata: TableMetadata, spec: int) -> list[IcebergType]:
    """Return the types of the fields of a partition spec."""
    return [each.field_type for each in metadata.specs()[spec].partition_type(metadata.schema()).fields]


def to_data_file(value: FileValue, kinds: Sequence[IcebergType]) -> DataFile:
    """Return a file as pyiceberg has it.

    Args:
        kinds: the types of its partition's fields.
    """
    from pyiceberg.conversions import from_bytes
    from pyiceberg.manifest import DataFile as Made
    from pyiceberg.manifest import DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    partition = Record(
        *(
            None if text is None else from_bytes(kind, bytes.fromhex(text))
            for text, kind in zip(value.partition, kinds, strict=True)
        )
    )
    made = Made.from_args(
        content=DataFileContent(value.content),
        file_path=value.path,
        file_format=FileFormat(value.format),
        partition=partition,
        record_count=value.rows,
        file_size_in_bytes=value.bytes,
        sort_order_id=value.sort,
        equality_ids=None,
        key_metadata=None,
        **_unpacked_stats(value.stats),
    )
    made.spec_id = value.spec
    return made


def from_data_file(file: DataFile, kinds: Sequence[IcebergType]) -> FileValue:
    """Return a file of a manifest without its statistics."""
    return FileValue(
        path=file.file_path,
        rows=file.record_count,
        bytes=file.file_size_in_bytes,
        spec=file.spec_id,
        partition=packed_partition([file.partition[i] for i in range(len(kinds))], kinds),
        format=str(file.file_format.value),
        content=int(file.content),
    )
