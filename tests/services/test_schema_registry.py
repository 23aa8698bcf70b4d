"""Values that name their schema in a real registry, beside Confluent's own client: each reads what the other one writes.

The registry is Apicurio's. Jobs copy from topic to topic; schemas change while values are read; the registry goes away.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from poundlock import AvroConfluent, Job, JsonSchemaConfluent, KafkaSink, KafkaSource, ProtobufConfluent, SchemaRegistry
from poundlock.config import load_settings
from poundlock.connectors.kafka.schemas.client import RegistryClient, client_of
from poundlock.connectors.kafka.schemas.codec import RegistryCodec
from poundlock.connectors.kafka.schemas.encoder import RegistryEncoder
from poundlock.driver.driver import run
from poundlock.errors import DefinitionError, TerminalError, TransientError
from poundlock.formats.protobuf.descriptors import class_of, message_in, set_of_text
from poundlock.testing.kafka import EmbeddedKafka, Record
from poundlock.testing.schema_registry.apicurio import EmbeddedSchemaRegistry
from support.kafka_tables import Scripts, bounded, kafka_table

pytestmark = pytest.mark.services

NewTopic = Callable[..., str]
FIRST = {"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}]}  # fmt: skip
SECOND = {"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}, {"name": "amount", "type": "double", "default": 0.5}]}  # fmt: skip
PROTO = 'syntax = "proto3";\npackage shop;\nmessage Order {\n  int64 id = 1;\n  optional string name = 2;\n}\n'
JSON = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}, "required": ["id"]}  # fmt: skip


@pytest.fixture
def peer(schema_registry: EmbeddedSchemaRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": schema_registry.url})


@pytest.fixture
def registry(schema_registry: EmbeddedSchemaRegistry) -> SchemaRegistry:
    return SchemaRegistry(schema_registry.url)


def context(topic: str, field: Any = MessageField.VALUE) -> SerializationContext:
    return SerializationContext(topic, field)


def order_class() -> Any:
    return class_of(message_in(set_of_text(PROTO)[0], "shop.Order"))


def some_topic() -> str:
    return f"s-{uuid.uuid4().hex[:12]}"


@pytest.mark.engine
@pytest.mark.usefixtures("shared_jvm")
def test_jobs_read_and_write_what_confluents_client_does(
    tmp_path: Path, kafka_broker: EmbeddedKafka, new_topic: NewTopic, peer: SchemaRegistryClient, registry: SchemaRegistry
) -> None:  # fmt: skip
    avro, proto, text = new_topic(), new_topic(), new_topic()
    outputs = {kind: new_topic() for kind in ("avro", "proto", "json")}
    key = AvroSerializer(peer, '"string"')
    old, new = AvroSerializer(peer, json.dumps(FIRST)), AvroSerializer(peer, json.dumps(SECOND))
    kafka_broker.produce(avro, [
        Record(old({"id": 1, "name": "a"}, context(avro)), key=key("k1", context(avro, MessageField.KEY))),
        Record(new({"id": 2, "name": None, "amount": 1.5}, context(avro)), key=key("k2", context(avro, MessageField.KEY))),
        Record(old({"id": 3, "name": "c"}, context(avro)), key=None),
    ])  # fmt: skip
    order = order_class()
    message = ProtobufSerializer(order, peer, {"use.deprecated.format": False})
    kafka_broker.produce(proto, [message(order(id=1, name="a"), context(proto)), message(order(id=2), context(proto))])
    checked = JSONSerializer(json.dumps(JSON), peer)
    kafka_broker.produce(
        text, [checked({"id": 1, "name": "a"}, context(text)), checked({"id": 2, "name": None}, context(text))]
    )

    def source(topic: str, **more: Any) -> KafkaSource:
        return KafkaSource(bootstrap_servers=kafka_broker.bootstrap_servers, topics=topic, end="latest", **more)

    def sink(kind: str, **more: Any) -> KafkaSink:
        return KafkaSink(kafka_broker.bootstrap_servers, outputs[kind], **more)

    job = Job("copies", checkpoint_interval="0 s", on_error="fail")
    reading = source(
        avro, format=AvroConfluent(registry, schema=registry.latest(f"{avro}-value")),
        key_format=AvroConfluent(registry, schema="string"), key_prefix="of_",
    )  # fmt: skip
    writing = sink(
        "avro",
        format=AvroConfluent(registry),
        value=["id", "name", "amount"],
        key="of_key",
        key_format=AvroConfluent(registry),
    )
    job.from_source(reading, name="avro").sink_to(writing, name="avro-out")
    of_proto = ProtobufConfluent(registry, schema=registry.latest(f"{proto}-value"))
    job.from_source(source(proto, format=of_proto), name="proto").sink_to(
        sink("proto", format=ProtobufConfluent(registry, message="shop.Order")), name="proto-out"
    )
    of_text = JsonSchemaConfluent(registry, columns="id bigint not null, name string")
    job.from_source(source(text, format=of_text), name="json").sink_to(
        sink("json", format=JsonSchemaConfluent(registry, title="Order")), name="json-out"
    )
    ended = run(job, settings=load_settings([f"state_dir={tmp_path}/state", f"checkpoint_dir={tmp_path}/checkpoint", "master=local[2]", "driver_memory=1g"]))  # fmt: skip
    assert ended.state == "FINISHED"

    def records(kind: str) -> list[tuple[Any, Any]]:
        return [(record.key, record.value) for record in kafka_broker.read(outputs[kind])]

    keys, values = AvroDeserializer(peer), AvroDeserializer(peer)
    copied = [
        (key and keys(key, context(outputs["avro"], MessageField.KEY)), values(value, context(outputs["avro"])))
        for key, value in records("avro")
    ]
    assert copied == [
        ("k1", {"id": 1, "name": "a", "amount": 0.5}),
        ("k2", {"id": 2, "name": None, "amount": 1.5}),
        (None, {"id": 3, "name": "c", "amount": 0.5}),
    ]
    written = message_in(set_of_text(registry.latest(f"{outputs['proto']}-value").text)[0], "shop.Order")
    messages = ProtobufDeserializer(class_of(written), {"use.deprecated.format": False})
    made = [messages(value, context(outputs["proto"])) for _, value in records("proto")]
    assert [(each.id, each.HasField("name"), each.name) for each in made] == [(1, True, "a"), (2, False, "")]
    objects = JSONDeserializer(None, schema_registry_client=peer)
    assert [objects(value, context(outputs["json"])) for _, value in records("json")] == [
        {"id": 1, "name": "a"}, {"id": 2, "name": None},
    ]  # fmt: skip


def test_schemas_change_while_values_are_read(peer: SchemaRegistryClient, registry: SchemaRegistry) -> None:
    topic = some_topic()
    old, new = AvroSerializer(peer, json.dumps(FIRST)), AvroSerializer(peer, json.dumps(SECOND))
    format = AvroConfluent(registry, columns="id bigint, name string, amount double")
    codec = RegistryCodec(format, format.reading_columns("value"))
    first = codec.parse([old({"id": 1, "name": "a"}, context(topic))], "batch")
    both = codec.parse(
        [new({"id": 2, "name": "b", "amount": 2.0}, context(topic)), old({"id": 3, "name": None}, context(topic))],
        "batch",
    )
    assert [row for parsed in (first, both) for row in parsed.rows.to_pylist()] == [  # type: ignore[union-attr]
        {"id": 1, "name": "a", "amount": None}, {"id": 2, "name": "b", "amount": 2.0}, {"id": 3, "name": None, "amount": None},
    ]  # fmt: skip
    narrow = RegistryCodec(AvroConfluent(registry), pa.schema([("id", pa.int32())]))
    with pytest.raises(TerminalError, match="which does not fit") as caught:
        narrow.parse([new({"id": 2, "name": "b", "amount": 2.0}, context(topic))], "batch")
    assert "on_incompatible" in caught.value.next
    choosing = AvroConfluent(registry, on_incompatible="bad_record")
    parsed = RegistryCodec(choosing, pa.schema([("id", pa.int32())])).parse(
        [old({"id": 1, "name": "a"}, context(topic)), new({"id": 2, "name": "b", "amount": 2.0}, context(topic))],
        "batch",
    )
    assert (parsed.rows.to_pylist(), list(parsed.bad)) == ([{"id": 1}], [1])  # type: ignore[union-attr]


def test_a_schema_that_refers_to_others_is_read(peer: SchemaRegistryClient, registry: SchemaRegistry) -> None:
    topic, money = some_topic(), some_topic()
    peer.register_schema(money, Schema(json.dumps(
        {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "units", "type": "long"}]}), "AVRO"))  # fmt: skip
    outer = {"type": "record", "name": "Bill", "namespace": "shop", "fields": [
        {"name": "price", "type": "shop.Money"}, {"name": "tip", "type": ["null", "shop.Money"]}]}  # fmt: skip
    peer.register_schema(f"{topic}-value", Schema(json.dumps(outer), "AVRO", [SchemaReference("shop.Money", money, 1)]))
    format = AvroConfluent(registry, use_latest=True)
    rows = pa.RecordBatch.from_pylist(
        [{"price": {"units": 1}, "tip": None}, {"price": {"units": 2}, "tip": {"units": 3}}]
    )
    made, bad = RegistryEncoder(format, is_key=False).encode(rows, topic)
    assert bad == {}
    assert AvroDeserializer(peer)(made[1].as_py(), context(topic)) == {"price": {"units": 2}, "tip": {"units": 3}}
    reading = AvroConfluent(registry, schema=registry.latest(f"{topic}-value"))
    parsed = RegistryCodec(reading, reading.reading_columns("value")).parse(made.to_pylist(), "batch")
    assert parsed.rows.to_pylist() == rows.to_pylist()  # type: ignore[union-attr]


def test_a_sink_registers_what_its_schema_refers_to(peer: SchemaRegistryClient, registry: SchemaRegistry) -> None:
    """Schema by schema, twice with the same numbers; Confluent's client follows the references when it reads."""
    topic, space = some_topic(), f"n{uuid.uuid4().hex[:8]}"
    rows = pa.RecordBatch.from_pylist([{"price": {"units": 1, "of": {"code": "EUR"}}}])

    def written(format: Any) -> bytes:
        made, bad = RegistryEncoder(format, is_key=False).encode(rows, topic)
        client_of.cache_clear()  # as in another process, which registers nothing twice
        again, _ = RegistryEncoder(format, is_key=False).encode(rows, topic)
        client_of.cache_clear()
        assert (bad, made.to_pylist()) == ({}, again.to_pylist())
        value: bytes = made[0].as_py()
        return value

    def record(name: str, *fields: dict[str, Any]) -> str:
        return json.dumps({"type": "record", "name": name, "namespace": space, "fields": fields})

    currency = record("Currency", {"name": "code", "type": "string"})
    money = record("Money", {"name": "units", "type": "long"}, {"name": "of", "type": "Currency"})
    bill = record("Bill", {"name": "price", "type": f"{space}.Money"})
    names = {f"{space}.Money": money, f"{space}.Currency": currency}
    value = written(AvroConfluent(registry, schema=bill, references=names, subject=f"{topic}-avro"))
    assert AvroDeserializer(peer)(value, context(topic)) == rows.to_pylist()[0]
    assert [each.subject for each in peer.get_latest_version(f"{topic}-avro").schema.references] == [f"{space}.Money"]
    assert peer.get_versions(f"{space}.Currency") == [1]

    head = f'syntax = "proto3"; package {space};'
    files = {
        f"{space}/currency.proto": f"{head} message Currency {{ string code = 1; }}",
        f"{space}/money.proto": f'{head} import "{space}/currency.proto"; message Money {{ int64 units = 1; Currency of = 2; }}',
    }
    text = f'{head} import "{space}/money.proto"; message Bill {{ Money price = 1; }}'
    reading = ProtobufConfluent(registry, columns="price struct<units: bigint, of: struct<code: string>>")
    by_text = ProtobufConfluent(registry, schema=text, references=files, subject=f"{topic}-proto")
    whole = set_of_text(text, files)[0]
    by_files = ProtobufConfluent(registry, descriptor_set=whole, message=f"{space}.Bill", subject=f"{topic}-set")
    message = ProtobufDeserializer(class_of(message_in(whole, f"{space}.Bill")), {"use.deprecated.format": False})
    for format in (by_text, by_files):
        value = written(format)
        read: Any = message(value, context(topic))
        assert (read.price.units, read.price.of.code) == (1, "EUR")
        parsed = RegistryCodec(reading, reading.reading_columns("value")).parse([value], "batch")
        assert parsed.rows.to_pylist() == rows.to_pylist()  # type: ignore[union-attr]

    address = f"https://{space}.example/money.json"
    of_money = {"$id": address, "title": "Money", "type": "object", "properties": {"units": {"type": "integer"}}, "required": ["units"]}  # fmt: skip
    of_bill = {"title": "Bill", "type": "object", "properties": {"price": {"$ref": address}}}
    objects = JsonSchemaConfluent(
        registry, schema=json.dumps(of_bill), references={address: json.dumps(of_money)}, subject=f"{topic}-json"
    )
    value = written(objects)
    assert JSONDeserializer(None, schema_registry_client=peer)(value, context(topic)) == rows.to_pylist()[0]
    narrow = JsonSchemaConfluent(registry, columns="price struct<units: bigint>")
    parsed = RegistryCodec(narrow, narrow.reading_columns("value")).parse(
        [value, value[:5] + b'{"price": {}}'], "batch"
    )
    assert parsed.rows.to_pylist() == [{"price": {"units": 1}}]  # type: ignore[union-attr]
    assert "units" in parsed.bad[1], "it is held against the schema that is referred to"


def test_what_is_registered_and_what_is_not(peer: SchemaRegistryClient, registry: SchemaRegistry) -> None:
    topic = some_topic()
    rows = pa.RecordBatch.from_pylist([{"id": 1}], pa.schema([("id", pa.int64())]))
    with pytest.raises(TerminalError, match="auto_register is off"):
        RegistryEncoder(AvroConfluent(registry, auto_register=False), is_key=False).encode(rows, topic)
    first, _ = RegistryEncoder(AvroConfluent(registry), is_key=False).encode(rows, topic)
    RegistryClient(registry)  # another process asks again, and registers nothing twice
    again = RegistryClient(registry).id_of(
        f"{topic}-value", "AVRO", registry.latest(f"{topic}-value").text, (), register=True
    )
    assert (again, peer.get_versions(f"{topic}-value")) == (int.from_bytes(first[0].as_py()[1:5], "big"), [1])
    peer.set_compatibility(f"{topic}-value", "BACKWARD")
    wider = pa.RecordBatch.from_pylist([{"id": "x"}], pa.schema([("id", pa.string())]))
    with pytest.raises(TerminalError, match="not compatible with what is there"):
        RegistryEncoder(AvroConfluent(registry), is_key=False).encode(wider, topic)
    by_record = AvroConfluent(registry, schema=FIRST, subject_name_strategy="topic-record")
    some = pa.RecordBatch.from_pylist([{"id": 1, "name": "a"}], pa.schema([("id", pa.int32()), ("name", pa.string())]))
    RegistryEncoder(by_record, is_key=False).encode(some, [topic])
    assert peer.get_versions(f"{topic}-shop.Order") == [1]


def test_a_registry_that_is_away_loses_nothing(own_schema_registry: EmbeddedSchemaRegistry) -> None:
    peer, registry = (
        SchemaRegistryClient({"url": own_schema_registry.url}),
        SchemaRegistry(own_schema_registry.url, timeout="2 s"),
    )
    topic = some_topic()
    value = AvroSerializer(peer, json.dumps(FIRST))({"id": 1, "name": "a"}, context(topic))
    source = KafkaSource(
        bootstrap_servers="localhost:9", topics=topic, format=AvroConfluent(registry, columns="id bigint")
    )
    bound = source.bind(job="j", name="s")
    assert list(bound.pins) == [int.from_bytes(value[1:5], "big")]
    client_of.cache_clear()  # as in a task, which has not asked
    own_schema_registry.kill()
    codec: Any = bound.decoder().codec  # type: ignore[union-attr]
    assert codec.parse([value], "batch").rows.to_pylist() == [{"id": 1}]
    with pytest.raises(TransientError, match="does not answer"):
        codec.parse([b"\0\0\0\3\xe7" + value[5:]], "batch")
    with pytest.raises(TransientError, match="does not answer"):
        RegistryEncoder(AvroConfluent(registry), is_key=False).encode(pa.record_batch({"id": [1]}), topic)
    own_schema_registry.start()
    parsed = codec.parse([value, b"\0\0\0\3\xe7" + value[5:]], "batch")
    assert "which the registry" in parsed.bad[1]


def test_a_sink_is_refused_before_it_writes(
    kafka_broker: EmbeddedKafka, new_topic: NewTopic, registry: SchemaRegistry
) -> None:
    topic = new_topic()
    sink = KafkaSink(
        kafka_broker.bootstrap_servers, topic, format=AvroConfluent(registry, schema=FIRST, auto_register=False)
    )
    with pytest.raises(DefinitionError, match="auto_register is off"):
        sink.preflight()
    latest = KafkaSink(kafka_broker.bootstrap_servers, topic, format=AvroConfluent(registry, use_latest=True))
    with pytest.raises(DefinitionError, match="has no subject"):
        latest.preflight()


@pytest.mark.engine
@pytest.mark.usefixtures("shared_jvm")
def test_tables_of_sql(
    tmp_path: Path, kafka_broker: EmbeddedKafka, new_topic: NewTopic, schema_registry: EmbeddedSchemaRegistry, peer: SchemaRegistryClient
) -> None:  # fmt: skip
    there, changes = new_topic(), new_topic()
    copies = {word: new_topic() for word in ("avro-confluent", "protobuf-confluent", "json-schema-confluent")}
    write = AvroSerializer(peer, json.dumps(SECOND))
    kafka_broker.produce(there, [write({"id": n, "name": f"n{n}", "amount": n / 2}, context(there)) for n in range(3)])
    row = {"type": "record", "name": "Value", "namespace": "db.orders", "fields": [{"name": "id", "type": "int"}, {"name": "city", "type": ["null", "string"]}]}  # fmt: skip
    envelope = {"type": "record", "name": "Envelope", "namespace": "db.orders", "fields": [
        {"name": "before", "type": ["null", row], "default": None}, {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"}, {"name": "ts_ms", "type": ["null", "long"]}]}  # fmt: skip
    change = AvroSerializer(peer, json.dumps(envelope))
    rows = [({"id": n, "city": "b"}, op) for n, op in ((1, "c"), (2, "r"))]
    kafka_broker.produce(changes, [
        *(change({"before": None, "after": after, "op": op, "ts_ms": 1}, context(changes)) for after, op in rows),
        change({"before": rows[0][0], "after": {"id": 1, "city": None}, "op": "u", "ts_ms": 2}, context(changes)),
        change({"before": rows[1][0], "after": None, "op": "d", "ts_ms": 3}, context(changes)),
        Record(None),
    ])  # fmt: skip
    url = schema_registry.url
    columns = "id BIGINT, name STRING, amount DOUBLE"

    def table(name: str, topic: str, word: str, columns: str = columns) -> str:
        return kafka_table(kafka_broker, name, columns, topic, **bounded(value__format=word, **{f"value__{word.replace('-', '_')}__url": url}))  # fmt: skip

    script = table("there", there, "avro-confluent")
    script += table("changes", changes, "debezium-avro-confluent", "id INT, city STRING, PRIMARY KEY (id) NOT ENFORCED")
    for number, (word, topic) in enumerate(copies.items()):
        script += table(f"t{number}", topic, word) + f"INSERT INTO t{number} SELECT * FROM there;"
    made = Scripts(tmp_path).changes(script + "SELECT * FROM changes;")
    assert made == [("+I", (1, "b")), ("+I", (2, "b")), ("-U", (1, "b")), ("+U", (1, None)), ("-D", (2, "b"))]
    back = "".join(table(f"t{number}", topic, word) for number, (word, topic) in enumerate(copies.items()))
    query = " UNION ALL ".join(f"SELECT {number} AS t, id, name, amount FROM t{number}" for number in range(3))
    assert Scripts(tmp_path / "back").rows(f"{back} {query};") == sorted(
        ((t, n, f"n{n}", n / 2) for t in range(3) for n in range(3)), key=repr
    )
    values = AvroDeserializer(peer)
    assert values(kafka_broker.read(copies["avro-confluent"])[1].value, context("t")) == {
        "id": 1,
        "name": "n1",
        "amount": 0.5,
    }
