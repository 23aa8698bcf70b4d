"""What a schema refers to is found in its text, ordered, and registered before it; tests/services asks a registry."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool

from poundlock import AvroConfluent, JsonSchemaConfluent, ProtobufConfluent, SchemaRegistry
from poundlock.connectors.kafka.schemas.client import RegistryClient
from poundlock.connectors.kafka.schemas.references import referred
from poundlock.connectors.kafka.schemas.registered import Reference, RegisteredSchema
from poundlock.errors import DefinitionError
from poundlock.formats.protobuf.descriptors import set_of_text
from support.scripted_http import Asked, ScriptedHttp

REGISTRY = SchemaRegistry("http://127.0.0.1:9")
CURRENCY = json.dumps({"type": "enum", "name": "Currency", "namespace": "shop.money", "symbols": ["EUR"]})
MONEY = json.dumps({"type": "record", "name": "Money", "namespace": "shop.money", "fields": [
    {"name": "units", "type": "long"}, {"name": "in", "type": "Currency"}]})  # fmt: skip
BILL = json.dumps({"type": "record", "name": "Bill", "namespace": "shop", "fields": [
    {"name": "price", "type": "shop.money.Money"}, {"name": "tips", "type": {"type": "array", "items": ["null", "shop.money.Money"]}}]})  # fmt: skip
NAMES = {"shop.money.Money": MONEY, "shop.money.Currency": CURRENCY}


def outlined(references: tuple[Reference, ...]) -> list[tuple[str, tuple[str, ...], bool]]:
    return [(each.name, each.uses, each.is_direct) for each in references]


def test_names_of_avro_are_found_and_ordered() -> None:
    assert outlined(referred("AVRO", BILL, NAMES, "AvroConfluent")) == [
        ("shop.money.Currency", (), False),
        ("shop.money.Money", ("shop.money.Currency",), True),
    ]


def test_imports_of_protobuf_are_found() -> None:
    text = 'syntax = "proto3";\n// import "no.proto";\n/* import "no.proto"; */\nimport public "a/money.proto"; import "google/protobuf/timestamp.proto";\nmessage M { string s = 1; }'
    money = 'syntax = "proto3"; import\n"b.proto"; message N { }'
    found = referred("PROTOBUF", text, {"a/money.proto": money, "b.proto": 'syntax = "proto3";'}, "ProtobufConfluent")
    assert outlined(found) == [("b.proto", (), False), ("a/money.proto", ("b.proto",), True)]


@pytest.mark.parametrize("ref", ["money.json", "https://shop.example/money.json", "/money.json#/definitions/x"])
def test_refs_of_json_schema_are_found_as_written_and_below_their_own_address(ref: str) -> None:
    text = json.dumps({"$id": "https://shop.example/bill.json", "properties": {"price": {"items": [{"$ref": ref}]}}})
    found = referred("JSON", text, {"https://shop.example/money.json": '{"type": "object"}'}, "JsonSchemaConfluent")
    assert outlined(found) == [("https://shop.example/money.json", (), True)]


def test_what_a_registry_has_comes_with_what_it_refers_to() -> None:
    currency = Reference("shop.money.Currency", "currencies", 3, CURRENCY)
    money = RegisteredSchema(7, "AVRO", MONEY, (currency,), "money", 2)
    found = referred("AVRO", BILL, {"shop.money.Money": money}, "AvroConfluent")
    assert [(each.subject, each.version, each.is_direct) for each in found] == [
        ("currencies", 3, False),
        ("money", 2, True),
    ]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: AvroConfluent(REGISTRY, schema=BILL, references=NAMES | {"shop.Other": '{"type": "fixed", "name": "shop.Other", "size": 1}'}), "nothing refers to 'shop.Other'"),
        (lambda: AvroConfluent(REGISTRY, references=NAMES), "references mean nothing without the text of a schema"),
        (lambda: AvroConfluent(REGISTRY, schema=BILL, references={"shop.money.Money": 1}), "references are texts"),
        (lambda: AvroConfluent(REGISTRY, schema=BILL, references={"shop.money.Money": RegisteredSchema(1, "JSON", "{}")}), "is a schema of JSON"),
        (lambda: AvroConfluent(REGISTRY, schema=BILL, references={"shop.money.Money": RegisteredSchema(1, "AVRO", MONEY)}), "not known under which subject"),
        (lambda: AvroConfluent(REGISTRY, schema=BILL, references={"shop.money.Money": MONEY}), "the Avro schema cannot be read"),
        (lambda: ProtobufConfluent(REGISTRY, schema='import "a";', references={"a": 'import "b";', "b": 'import "a";'}), "'a' and 'b' refer to each other"),
        (lambda: JsonSchemaConfluent(REGISTRY, schema='{"$ref": "a"}', references={"a": "{"}), "a schema of JSON cannot be read"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(make: Any, what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        make()


def test_a_generated_class_brings_the_files_that_it_imports() -> None:
    files = {
        "c.proto": 'syntax = "proto3"; package shop; message Currency { string code = 1; }',
        "m.proto": 'syntax = "proto3"; package shop; import "c.proto"; import "google/protobuf/timestamp.proto"; message Money { Currency in = 1; google.protobuf.Timestamp at = 2; }',
    }
    text = 'syntax = "proto3"; package shop; import "m.proto"; import "c.proto"; message Bill { Money price = 1; Currency in = 2; }'
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(set_of_text(text, files)[0]).file:
        pool.Add(file)
    registers = ProtobufConfluent(REGISTRY, descriptor_set=set_of_text(text, files)[0], message="shop.Bill").registers
    assert registers is not None
    assert outlined(registers[1]) == [("c.proto", (), True), ("m.proto", ("c.proto",), True)]


def test_what_is_referred_to_is_registered_before_what_refers_to_it() -> None:
    known: dict[tuple[str, str], tuple[int, list[Any]]] = {}
    posted: list[str] = []

    def answer(asked: Asked) -> tuple[int, bytes]:
        path, body = asked.path.partition("?")[0], json.loads(asked.body)
        subject = path.split("/")[2]
        if path.endswith("/versions"):
            posted.append(subject)
            known[subject, body["schema"]] = (len(known) + 1, body.get("references", []))
        if (subject, body["schema"]) not in known:
            return 404, b'{"error_code": 40403, "message": "none"}'
        number = known[subject, body["schema"]][0]
        return 200, json.dumps({"id": number, "version": 10 + number, "subject": subject, **body}).encode()

    format = AvroConfluent(REGISTRY, schema=BILL, references=NAMES)
    assert format.registers is not None
    text, references, _ = format.registers
    with ScriptedHttp(answer) as server:
        for _ in range(2):  # as two processes, of which the second one registers nothing
            assert (
                RegistryClient(SchemaRegistry(server.url)).id_of("b-value", "AVRO", text, references, register=True)
                == 3
            )
    assert posted == ["shop.money.Currency", "shop.money.Money", "b-value"]
    assert [each for _, each in known.values()] == [
        [],
        [{"name": "shop.money.Currency", "subject": "shop.money.Currency", "version": 11}],
        [{"name": "shop.money.Money", "subject": "shop.money.Money", "version": 12}],
    ]
