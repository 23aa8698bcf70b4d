"""Rows by partition: the transforms of a table's spec over columns, and the text forms that users write them in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError, missing_package

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionKey, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import Transform

_TIME = re.compile(r"(year|month|day|hour)s?\(\s*([^()\s]+)\s*\)")
_SIZED = re.compile(r"(bucket|truncate)\(\s*(\d+)\s*,\s*([^()\s]+)\s*\)")
_PLAIN = re.compile(r"[^()\s,]+")


def transform_of(text: str) -> tuple[str, Transform[Any, Any]]:
    """Return column and transform of a text such as "day(ts)", "bucket(16, id)", "truncate(4, name)" or "country".

    Raises:
        DefinitionError: it is none.
    """
    from pyiceberg import transforms

    if match := _TIME.fullmatch(text):
        made: dict[str, Any] = {
            "year": transforms.YearTransform,
            "month": transforms.MonthTransform,
            "day": transforms.DayTransform,
            "hour": transforms.HourTransform,
        }
        return match[2], made[match[1]]()
    if (match := _SIZED.fullmatch(text)) and int(match[2]):
        sized: Any = transforms.BucketTransform if match[1] == "bucket" else transforms.TruncateTransform
        return match[3], sized(int(match[2]))
    if _PLAIN.fullmatch(text):
        return text, transforms.IdentityTransform()
    raise DefinitionError(
        f"{text!r} says no partition of a table",
        next='write "day(ts)", "bucket(16, id)", "truncate(4, name)" or "country"',
    )


def check_writable(table: str, spec: PartitionSpec, schema: Schema) -> None:
    """Raise DefinitionError unless tasks can compute the partitions of a spec."""
    sources = [field.source_id for field in spec.fields]
    if len(set(sources)) < len(sources):
        raise DefinitionError(
            f"{table} is partitioned twice by one column, which pyiceberg cannot write",
            next="change the partition spec",
        )
    for field in spec.fields:
        source = schema.find_field(field.source_id)
        try:
            transform = field.transform.pyarrow_transform(source.field_type)
            empty = pa.nulls(0, _arrow(schema, field.source_id))
            transform(empty)
        except ModuleNotFoundError as error:
            raise missing_package(f"the partition {field.name} of {table}", "pyiceberg-core", "iceberg") from error
        except Exception as error:
            raise DefinitionError(
                f"{table} is partitioned by {field.name}, {field.transform} of {source.name}, which pyiceberg cannot write: {error}",
                next="change the partition spec",
            ) from error


def _arrow(schema: Schema, source: int) -> pa.DataType:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(schema.find_type(source))


def split(
    batch: pa.RecordBatch, spec: PartitionSpec, schema: Schema
) -> Iterator[tuple[PartitionKey | None, pa.RecordBatch]]:
    """Yield the rows of each partition, in the order in which they are; None is the key where nothing is partitioned."""
    from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

    if spec.is_unpartitioned():
        yield None, batch
        return
    computed = [
        field.transform.pyarrow_transform(schema.find_field(field.source_id).field_type)(
            _column(batch, str(schema.find_column_name(field.source_id)))
        )
        for field in spec.fields
    ]
    names = [f"p{n}" for n in range(len(computed))]
    rows = pa.table([*computed, pa.array(np.arange(batch.num_rows))], names=[*names, "row"])
    groups = rows.group_by(names, use_threads=False).aggregate([("row", "list")])
    alone = groups.num_rows == 1
    for n, key in enumerate(groups.select(names).to_pylist()):
        values = [
            PartitionFieldValue(field=field, value=key[name]) for field, name in zip(spec.fields, names, strict=True)
        ]
        part = batch if alone else batch.take(groups["row_list"][n].values)
        yield PartitionKey(field_values=values, partition_spec=spec, schema=schema), part


def _column(batch: pa.RecordBatch, path: str) -> pa.Array:
    if path in batch.schema.names:
        return batch.column(path)
    first, *rest = path.split(".")
    return pc.struct_field(batch.column(first), rest)


def sorted_rows(rows: pa.Table, order: Sequence[tuple[str, bool, bool]]) -> pa.Table:
    """Return rows in order.

    Args:
        order: of columns: name, whether it descends, whether nulls come first.
    """
    keys: list[tuple[str, str]] = []
    helped = rows
    for n, (name, descends, nulls_first) in enumerate(order):
        helped = helped.append_column(f"\0{n}", pc.is_null(rows[name]))
        keys += [(f"\0{n}", "descending" if nulls_first else "ascending")]
        keys += [(name, "descending" if descends else "ascending")]
    return rows.take(pc.sort_indices(helped, sort_keys=keys))


def sort_order(order: Any, schema: Schema) -> list[tuple[str, bool, bool]]:
    """Return a table's sort order as `sorted_rows` takes it; [] where it has none, or one by transforms or nested fields."""
    from pyiceberg.table.sorting import NullOrder, SortDirection
    from pyiceberg.transforms import IdentityTransform

    names = {field.field_id: field.name for field in schema.fields}
    fields = list(order.fields)
    if not all(isinstance(f.transform, IdentityTransform) and f.source_id in names for f in fields):
        return []
    return [
        (names[f.source_id], f.direction == SortDirection.DESC, f.null_order == NullOrder.NULLS_FIRST) for f in fields
    ]
