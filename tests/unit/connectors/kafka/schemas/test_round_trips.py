"""Rows of any columns that a format has come back as they were: what is written by the schema that is made of columns is read by it."""

from __future__ import annotations

import math
import string
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poundlock import AvroConfluent, JsonSchemaConfluent, ProtobufConfluent, SchemaRegistry
from poundlock.connectors.kafka.schemas.codec import RegistryCodec
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.connectors.kafka.schemas.framing import head
from poundlock.connectors.kafka.schemas.registered import RegisteredSchema
from support.examples import examples

REGISTRY = SchemaRegistry("http://127.0.0.1:9")  # which nobody may ask
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=8)
MOMENT = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
PLAIN: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False),
    pa.float64(): FLOAT,
    pa.string(): TEXT,
    pa.binary(): st.binary(max_size=8),
    pa.timestamp("us", tz="UTC"): MOMENT,
}
DATED: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda unscaled: Decimal(unscaled).scaleb(-2)),
    pa.timestamp("us"): MOMENT.map(lambda moment: moment.replace(tzinfo=None)),
}
NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=4).map(lambda name: f"c_{name}")
Kinds = dict[pa.DataType, st.SearchStrategy[Any]]


def null_or(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


def kinds(plain: Kinds, *, inner_null: bool) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """Return types, with the values of each; within lists and maps with nulls or without."""
    inner = null_or if inner_null else (lambda values: values)
    one = st.sampled_from(sorted(plain, key=str)).map(lambda kind: (kind, plain[kind]))

    def wider(each: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        lists = each.map(lambda of: (pa.list_(of[0]), st.lists(inner(of[1]), max_size=3)))
        maps = each.map(
            lambda of: (
                pa.map_(pa.string(), of[0]),
                st.dictionaries(TEXT, inner(of[1]), max_size=3).map(lambda m: sorted(m.items())),
            )
        )
        structs = st.dictionaries(NAMES, each, min_size=1, max_size=3).map(
            lambda fields: (
                pa.struct([(name, kind) for name, (kind, _) in fields.items()]),
                st.fixed_dictionaries({name: null_or(values) for name, (_, values) in fields.items()}),
            )
        )
        return st.one_of(lists, maps, structs)

    return st.recursive(one, wider, max_leaves=4)


def has_list(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(has_list(field.type) for field in kind)
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind))


@st.composite
def tables(draw: st.DrawFn, plain: Kinds, *, protobuf: bool = False) -> pa.RecordBatch:
    chosen = kinds(plain, inner_null=not protobuf)
    if protobuf:  # of lists there is one level, and none is null
        chosen = chosen.filter(lambda of: not has_list(of[0]) or not _nests_list(of[0]))
    columns = draw(st.dictionaries(NAMES, chosen, min_size=1, max_size=5))
    count = draw(st.integers(1, 5))
    arrays = []
    for kind, values in columns.values():
        some = values if protobuf and has_list(kind) else null_or(values)
        arrays.append(pa.array(draw(st.lists(some, min_size=count, max_size=count)), kind))
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def _nests_list(kind: pa.DataType) -> bool:
    """Return whether a list is within a list, or within a struct, which may be null."""
    if pa.types.is_map(kind):
        return has_list(kind.item_type)
    return has_list(kind.value_type) if pa.types.is_list(kind) else pa.types.is_struct(kind)


def assert_comes_back(format: RegistryFormat, reading: RegistryFormat, rows: pa.RecordBatch) -> None:
    written = format.writing(rows.schema, None, is_single=False)
    made = written.writer.encode(rows, head(1))
    assert made.bad == {}
    codec = RegistryCodec(reading, rows.schema, pins={1: RegisteredSchema(1, format.kind, written.text)})
    parsed = codec.parse(made.column().to_pylist(), "batch")
    assert parsed.bad == {}
    assert isinstance(parsed.rows, pa.RecordBatch)
    again = parsed.rows.to_pylist()
    assert again == rows.to_pylist()
    # -0.0 equals 0.0, and is another value.
    signs = [[math.copysign(1, v) for v in row.values() if isinstance(v, float)] for row in again]
    assert signs == [[math.copysign(1, v) for v in row.values() if isinstance(v, float)] for row in rows.to_pylist()]


@examples(100)
@given(rows=tables(PLAIN | DATED))
def test_avro(rows: pa.RecordBatch) -> None:
    assert_comes_back(AvroConfluent(REGISTRY), AvroConfluent(REGISTRY), rows)


@examples(60)
@given(rows=tables(PLAIN | DATED))
def test_json_schema(rows: pa.RecordBatch) -> None:
    assert_comes_back(JsonSchemaConfluent(REGISTRY), JsonSchemaConfluent(REGISTRY), rows)


@examples(6)  # each compiles a schema, in a process of its own
@given(rows=tables(PLAIN, protobuf=True))
def test_protobuf(rows: pa.RecordBatch) -> None:
    assert_comes_back(ProtobufConfluent(REGISTRY), ProtobufConfluent(REGISTRY), rows)


@pytest.mark.parametrize("kind", [pa.date32(), pa.decimal128(9, 2), pa.timestamp("us"), pa.list_(pa.list_(pa.int32()))])
def test_what_protobuf_has_not_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match=r"column 'a' of type .* has no counterpart in Protobuf"):
        ProtobufConfluent(REGISTRY).writing(pa.schema([("a", kind)]), None, is_single=False)
