"""What Confluent's serializers wrote, with their schemas in Apicurio: read as they were meant, and written again to the same bytes."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import AvroConfluent, JsonSchemaConfluent, ProtobufConfluent, SchemaRegistry
from poundlock.connectors.kafka.schemas.codec import RegistryCodec
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.connectors.kafka.schemas.framing import head
from poundlock.connectors.kafka.schemas.registered import RegisteredSchema

RECORDED = json.loads((Path(__file__).parent / "recorded" / "confluent_values.json").read_text())
PROTO = (Path(__file__).parent / "recorded" / "order.proto").read_text()
SCHEMAS = {int(n): RegisteredSchema(int(n), each["kind"], each["text"]) for n, each in RECORDED["schemas"].items()}
REGISTRY = SchemaRegistry("http://127.0.0.1:9")  # which nobody may ask
AT = datetime(2026, 11, 28, 1, 2, 3, 456000, UTC)
FIRST = {"id": 1, "customer": "ann", "kind": "LARGE", "price": Decimal("12.50"), "at": AT}
SECOND = {
    "id": 2**40, "customer": "bö", "kind": "SMALL", "price": Decimal("-0.01"), "at": AT, "day": date(2026, 11, 28), "tags": [("a", 1)],
    "any": {"member0": None, "member1": None, "member2": {"number": "n"}}, "items": [{"name": "i", "count": None}, {"name": "j", "count": 3}],
}  # fmt: skip


def values(kind: str) -> list[bytes]:
    return [base64.b64decode(each["bytes"]) for each in RECORDED["values"] if each["kind"] == kind]


def codec(format: RegistryFormat, single: str = "value") -> RegistryCodec:
    return RegistryCodec(format, format.reading_columns(single), pins=SCHEMAS)


def number_of(value: bytes) -> int:
    return int.from_bytes(value[1:5], "big")


def test_avro_of_two_schemas_is_read_by_the_newer_one() -> None:
    given = values("avro")
    parsed = codec(AvroConfluent(REGISTRY, schema=SCHEMAS[number_of(given[1])])).parse(given, "batch")
    assert isinstance(parsed.rows, pa.RecordBatch)
    assert parsed.bad == {}
    first, second, third = parsed.rows.to_pylist()
    assert {name: first[name] for name in FIRST} == FIRST
    assert (first["day"], first["tags"], first["items"], first["any"]) == (date(1970, 1, 1), [], [], None)
    assert second == SECOND
    assert third["any"] == {"member0": "x", "member1": None, "member2": None}


def test_avro_is_read_by_columns_whatever_wrote_it() -> None:
    given = values("avro")
    some = AvroConfluent(REGISTRY, columns="id bigint, kind string, items array<struct<name: string>>, day date")
    rows = codec(some).parse([given[1], given[0], given[2]], "batch").rows
    assert isinstance(rows, pa.RecordBatch)
    assert rows.to_pylist() == [
        {"id": 2**40, "kind": "SMALL", "items": [{"name": "i"}, {"name": "j"}], "day": date(2026, 11, 28)},
        {"id": 1, "kind": "LARGE", "items": None, "day": None},
        {"id": -3, "kind": "SMALL", "items": [], "day": date(1969, 12, 31)},
    ]


@pytest.mark.parametrize("place", range(3))
def test_avro_is_written_to_the_same_bytes(place: int) -> None:
    value = values("avro")[place]
    format = AvroConfluent(REGISTRY, schema=SCHEMAS[number_of(value)])
    rows = codec(format).parse([value], "batch").rows
    assert isinstance(rows, pa.RecordBatch)
    again = format.writing(rows.schema, None, is_single=False).writer.encode(rows, head(number_of(value)))
    assert (again.column().to_pylist(), again.bad) == ([value], {})


def test_a_key_of_a_single_value_is_a_column() -> None:
    (value,) = values("avro-key")
    format = AvroConfluent(REGISTRY, schema="string")
    rows = codec(format, "key").parse([value], "batch").rows
    assert isinstance(rows, pa.RecordBatch)
    assert rows.to_pylist() == [{"key": "key-1"}]
    written = AvroConfluent(REGISTRY).writing(pa.schema([pa.field("key", pa.string())]), None, is_single=True)
    assert (written.text, written.name) == ('"string"', "")
    assert written.writer.encode(rows, head(number_of(value))).column().to_pylist() == [value]


@pytest.mark.parametrize("reads_by", ["registered", "text"])
def test_protobuf_is_read_and_written_to_the_same_bytes(reads_by: str) -> None:
    given = values("protobuf")
    schema = SCHEMAS[number_of(given[0])] if reads_by == "registered" else PROTO
    format = ProtobufConfluent(REGISTRY, message="shop.Order", schema=schema)
    parsed = codec(format).parse(given, "batch")
    rows: Any = parsed.rows
    assert parsed.bad == {}
    full, empty = rows.to_pylist()
    assert full == {
        "id": 5, "customer": "ann", "amount": None, "kind": "LARGE", "items": [{"name": "x", "count": 0}, {"name": "y", "count": None}],
        "tags": [("a", 1), ("b", -2)], "at": AT, "large": Decimal(2**64 - 1), "raw": b"\0\xff", "card": None, "cash": True,
    }  # fmt: skip
    assert empty == {
        "id": 0, "customer": "", "amount": None, "kind": "SMALL", "items": [], "tags": [], "at": None, "large": Decimal(0), "raw": b"",
        "card": None, "cash": None,
    }  # fmt: skip
    again = format.writing(rows.schema, None, is_single=False).writer.encode(rows, head(number_of(given[0])))
    assert (again.column().to_pylist(), again.bad) == (given, {})


def test_which_message_of_a_file_a_value_is() -> None:
    (value,) = values("protobuf-nested")
    item = ProtobufConfluent(REGISTRY, message="shop.Order.Item", schema=PROTO)
    rows: Any = codec(item).parse([value], "batch").rows
    assert rows.to_pylist() == [{"name": "n", "count": None}]
    written = item.writing(rows.schema, None, is_single=False).writer.encode(rows, head(number_of(value)))
    assert written.column().to_pylist() == [value]
    order = ProtobufConfluent(REGISTRY, message="shop.Order", schema=PROTO, on_incompatible="bad_record")
    assert "it is a message shop.Order.Item, and shop.Order is expected" in codec(order).parse([value], "batch").bad[0]


def test_json_is_held_against_the_schema_that_wrote_it() -> None:
    given = values("json")
    format = JsonSchemaConfluent(REGISTRY, columns="id bigint, name string, amount double")
    wrong = given[0][:5] + b'{"id": 3, "amount": -1}'
    parsed = codec(format).parse([given[0], wrong, given[1], given[0][:5] + b"{"], "batch")
    rows: Any = parsed.rows
    assert rows.to_pylist() == [{"id": 1, "name": "bö", "amount": 1.5}, {"id": 2, "name": None, "amount": None}]
    assert "amount: -1 is less than the minimum of 0" in parsed.bad[1]
    assert "not JSON" in parsed.bad[3]
    unchecked = JsonSchemaConfluent(REGISTRY, columns="id bigint", validate=False)
    rows = codec(unchecked).parse([wrong], "batch").rows
    assert rows.to_pylist() == [{"id": 3}]
