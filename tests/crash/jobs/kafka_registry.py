"""The crash tests' job whose topics name their schemas in a registry: Avro in, Avro by the newest schema and Protobuf out, under one decision."""

import json
from os import environ

from poundlock import AvroConfluent, Job, KafkaSink, KafkaSource, ProtobufConfluent, SchemaRegistry

servers, topics = environ["CRASH_SERVERS"], environ["CRASH_TOPICS"]
registry = SchemaRegistry(environ["CRASH_REGISTRY"], timeout="3 s")
read_by = {
    "type": "record",
    "name": "Event",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "amount", "type": "double", "default": 0.5},
    ],
}

job = Job(
    "crash-registry",
    checkpoint_interval="0 s",
    checkpoint_dir=environ["CRASH_CHECKPOINTS"],
    dead_letters=environ["CRASH_DEAD_LETTERS"],
    parallelism=2,
)
events = job.from_source(
    KafkaSource(
        bootstrap_servers=servers,
        topics=f"{topics}-in",
        format=AvroConfluent(registry, schema=json.dumps(read_by), on_incompatible=environ["CRASH_ON_INCOMPATIBLE"]),
        key_format=AvroConfluent(registry, schema="string"),
        key_prefix="of_",
        max_records_per_checkpoint=1000,
    ),
    name="events",
)
common = {"transactional_id_prefix": topics, "transaction_timeout": "60 s", "value": ["id", "name", "amount"]}
by_key = {"key": "of_key", "key_format": AvroConfluent(registry)}
newest = AvroConfluent(registry, use_latest=True)
events.sink_to(KafkaSink(servers, f"{topics}-avro", format=newest, **by_key, **common), name="avro")
messages = ProtobufConfluent(registry, message="shop.Event")
events.sink_to(KafkaSink(servers, f"{topics}-proto", format=messages, **by_key, **common), name="proto")
