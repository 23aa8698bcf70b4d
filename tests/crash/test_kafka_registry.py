"""Topics whose values name their schema in a registry, under crashes: from Avro to Avro and Protobuf, exactly once, while the schemas change.

Who produces and who reads what came out is Confluent's client. Producers go over to further schemas while the job runs, so does the sink that
writes by the newest one, and the registry is killed and comes back.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from poundlock.cli.main import main
from poundlock.formats.protobuf.descriptors import class_of, message_in, set_of_text
from poundlock.storage import LocalStorage
from poundlock.testing.audit import dead_letter_values
from poundlock.testing.job_process import JobProcess
from poundlock.testing.kafka import EmbeddedKafka, Record
from poundlock.testing.schema_registry.apicurio import EmbeddedSchemaRegistry
from support.fixtures import running_or_skipped
from support.lives import STATELESS, Lives, failpoint_setting, offsets_read
from support.torture import kept_ahead, tortured

pytestmark = [pytest.mark.crash, pytest.mark.torture]

JOB = Path(__file__).parent / "jobs/kafka_registry.py"
PARTITIONS = 3
KEYS = 97
Row = tuple[str, int, str | None, float]


def event(*fields: dict[str, Any]) -> str:
    """Return a schema of events with some fields."""
    return json.dumps({"type": "record", "name": "Event", "namespace": "shop", "fields": fields})


ID, NAME = {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}
AMOUNT = {"name": "amount", "type": "double", "default": 0.5}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
GOOD = (
    event({"name": "id", "type": "int"}, NAME),  # the job's amount is its default, and its id a long
    event(ID, NAME, AMOUNT),
    event(
        NOTE, {"name": "amount", "type": "float"}, NAME, ID
    ),  # another order, a field that nobody reads, a narrower number
    event(ID, NAME, AMOUNT, NOTE, {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}),
)
"""What producers write by, one after the other: the job's schema can read all of it."""
BAD = event({"name": "id", "type": "string"}, NAME, AMOUNT)
"""What the job's schema cannot read."""
WRITTEN = (event(ID, NAME, AMOUNT), event(ID, NAME, AMOUNT, NOTE))
"""What the sink of Avro writes by, one after the other."""


def context(topic: str, field: Any = MessageField.VALUE) -> SerializationContext:
    return SerializationContext(topic, field)


class RegistryScene:
    """The job, its topics, what was produced for it, and by which schema."""

    def __init__(self, root: Path, broker: EmbeddedKafka, registry: EmbeddedSchemaRegistry, name: str) -> None:
        self.root, self.broker, self.registry, self.name = root, broker, registry, name
        self.hit = root / "hit"
        self.checkpoints, self.dead_letters = root / "checkpoints", root / "dead_letters"
        self.expected: Counter[Row] = Counter()
        self.unreadable: list[bytes] = []
        self.count, self.schema = 0, 0
        self.given, self.copied, self.messages = f"{name}-in", f"{name}-avro", f"{name}-proto"
        for topic in (self.given, self.copied, self.messages):
            broker.create_topic(topic, PARTITIONS)
        self.peer = SchemaRegistryClient({"url": registry.url})
        self.writers = [AvroSerializer(self.peer, schema) for schema in (*GOOD, BAD)]
        self.keys = AvroSerializer(self.peer, '"string"')
        self.newest(0)
        environment = {
            "CRASH_SERVERS": broker.bootstrap_servers, "CRASH_REGISTRY": registry.url, "CRASH_TOPICS": name,
            "CRASH_CHECKPOINTS": str(self.checkpoints), "CRASH_DEAD_LETTERS": str(self.dead_letters),
            "CRASH_ON_INCOMPATIBLE": "bad_record",
        }  # fmt: skip
        self.lives = Lives(JOB, environment=environment, folder=root)

    def newest(self, number: int) -> None:
        """Register what the sink of Avro writes by from its next process on."""
        self.peer.register_schema(f"{self.copied}-value", Schema(WRITTEN[number], "AVRO"))

    def evolve(self) -> None:
        """Have producers go over to the next schema, and the sink as well."""
        self.schema = min(self.schema + 1, len(GOOD) - 1)
        self.newest(min(self.schema, len(WRITTEN) - 1))

    def produce(self, count: int) -> None:
        """Append records of the schema of the moment."""
        self._append([self._event(number) for number in range(self.count, self.count + count)], GOOD[self.schema])

    def produce_unreadable(self, count: int) -> None:
        """Append records that the job's schema cannot read."""
        events = [self._event(number) | {"id": f"no-{number}"} for number in range(self.count, self.count + count)]
        self._append(events, BAD)

    @staticmethod
    def _event(number: int) -> dict[str, Any]:
        name = None if number % 7 == 0 else f"n{number}"
        return {"id": number, "name": name, "amount": number / 4, "note": "x", "tags": ["y"]}

    def _append(self, events: list[dict[str, Any]], schema: str) -> None:
        write = self.writers[(*GOOD, BAD).index(schema)]
        names = [each["name"] for each in json.loads(schema)["fields"]]
        records = []
        for number, each in enumerate(events, self.count):
            key, place = f"k{number % KEYS:02d}", number % KEYS % PARTITIONS
            value = write({name: each[name] for name in names}, context(self.given))
            assert value is not None
            of_key = self.keys(key, context(self.given, MessageField.KEY))
            records.append(Record(value, key=of_key, partition=place))
            if schema == BAD:
                self.unreadable.append(value)
            else:
                self.expected[key, each["id"], each["name"], each["amount"] if "amount" in names else 0.5] += 1
        self.broker.produce(self.given, records, enable_idempotence=True)
        self.count += len(events)

    def waiting(self) -> int:
        """Return how many records no decided checkpoint has read."""
        return self.count - offsets_read(LocalStorage(str(self.checkpoints)))

    def caught_up(self) -> bool:
        return self.waiting() == 0

    def settled(self, job: JobProcess) -> None:
        """Wait until all is read, and stop the job."""
        job = self.lives.until(self.caught_up, job)
        assert self.lives.stop(job) == 0

    def found(self, topic: str) -> tuple[list[Row], Counter[int]]:
        """Return what Confluent's client reads from a topic of outputs, and how many values each schema wrote."""
        keys = AvroDeserializer(self.peer)
        if topic == self.copied:
            decode: Any = AvroDeserializer(self.peer)
        else:
            text = self.peer.get_latest_version(f"{topic}-value").schema.schema_str
            order = class_of(message_in(set_of_text(text)[0], "shop.Event"))
            message = ProtobufDeserializer(order, {"use.deprecated.format": False})

            def decode(value: bytes, where: SerializationContext) -> Any:
                made = message(value, where)
                return {"id": made.id, "name": made.name if made.HasField("name") else None, "amount": made.amount}

        rows, schemas = [], Counter[int]()
        for record in self.broker.read(topic):
            key, value = bytes(record.key or b""), bytes(record.value or b"")
            row = decode(value, context(topic))
            rows.append((keys(key, context(topic, MessageField.KEY)), row["id"], row["name"], row["amount"]))
            schemas[int.from_bytes(value[1:5], "big")] += 1
        return rows, schemas

    def assert_exact(self) -> None:
        """Assert that both topics have every row once, in order within its key, and the dead letters every other record once."""
        assert self.lives.left_behind() == []
        for topic in (self.copied, self.messages):
            rows, schemas = self.found(topic)
            found = Counter(rows)
            lost, doubled = self.expected - found, found - self.expected
            assert (lost.total(), doubled.total()) == (0, 0), topic
            last: dict[str, int] = {}
            for key, number, _, _ in rows:
                assert last.get(key, -1) < number, f"{topic}: out of order within {key}"
                last[key] = number
            print(f"{topic}: {len(rows)} rows, by schema {dict(schemas)}")
        letters = [
            path for path in self.dead_letters.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))
        ]
        assert Counter(dead_letter_values(letters)) == Counter(self.unreadable)
        assert main(["audit", str(self.checkpoints)]) == 0, "the job's own audit finds what the reader did not"

    def schemas_read(self) -> int:
        """Return by how many schemas the records that were produced were written."""
        return len({bytes(record.value or b"")[1:5] for record in self.broker.read(self.given)})


@pytest.fixture(scope="module")
def durable_registry() -> Iterator[EmbeddedSchemaRegistry]:
    """A registry for these tests, which may kill it: topics, and so subjects, are those of one test."""
    with running_or_skipped("schema registry", lambda: EmbeddedSchemaRegistry(durable=True, progress=print)) as server:
        yield server


@pytest.fixture
def scene(
    tmp_path: Path,
    crash_broker: EmbeddedKafka,
    durable_registry: EmbeddedSchemaRegistry,
    request: pytest.FixtureRequest,
) -> Iterator[RegistryScene]:
    name = f"kr-{request.node.originalname}".replace("_", "-")[:60] + f"-{random.randrange(1 << 24):06x}"
    made = RegistryScene(tmp_path, crash_broker, durable_registry.start(), name)
    with made.lives:
        yield made


def test_killed_at_every_failpoint(scene: RegistryScene) -> None:
    for number in range(len(GOOD)):
        scene.produce(8_000)
        if number == 1:
            scene.produce_unreadable(20)
        if number < len(GOOD) - 1:
            scene.evolve()
    setting = failpoint_setting("kill", scene.hit, times=2)
    job = scene.lives.run_until(
        lambda value: value.get("lag") == 0 and value.get("last_ms") is not None,
        most=40,
        POUNDLOCK_FAILPOINTS=setting,
    )
    assert {point.value for point in STATELESS} - {path.name for path in scene.hit.iterdir()} == set()
    scene.settled(job)
    assert scene.schemas_read() == len(GOOD) + 1
    scene.assert_exact()


def test_many_random_kills_while_schemas_change(scene: RegistryScene) -> None:
    kills = int(os.environ.get("POUNDLOCK_TORTURE_KILLS", "30"))
    rounds = [0]

    def produce() -> None:
        rounds[0] += 1
        if rounds[0] % 8 == 0:
            scene.evolve()
        if rounds[0] % 5 == 0:
            scene.produce_unreadable(3)
        scene.produce(400)

    scene.produce(3_000)
    job = tortured(scene.lives.start, kept_ahead(produce, scene.waiting, most=12_000), kills)
    scene.settled(job)
    assert scene.schemas_read() == len(GOOD) + 1, "producers went through all of them"
    scene.assert_exact()


def test_what_does_not_fit_stops_the_job_or_is_a_bad_record(scene: RegistryScene) -> None:
    """A compatible schema goes on; one that is not stops the job with its number, and by choice another start leaves such records out."""
    scene.produce(1_000)
    job = scene.lives.until(scene.caught_up, scene.lives.start(CRASH_ON_INCOMPATIBLE="fail"))
    scene.evolve()
    scene.produce(1_000)
    job = scene.lives.until(scene.caught_up, job)
    scene.produce_unreadable(10)
    scene.produce(500)
    assert scene.lives.end(job) == 4
    number = int.from_bytes(scene.unreadable[0][1:5], "big")
    log = job.log_tail(6000)
    assert f"schema {number} wrote it, which does not fit" in log
    assert 'on_incompatible="bad_record"' in log
    assert "Traceback" not in log
    scene.settled(scene.lives.start())
    scene.assert_exact()


def test_a_registry_that_goes_away_and_comes_back(scene: RegistryScene) -> None:
    """What is known goes on; a schema that has to be asked for waits, and a start as well. Nothing is lost."""
    scene.produce(1_000)
    job = scene.lives.until(scene.caught_up, scene.lives.start())
    scene.writers[1]({"id": 0, "name": None, "amount": 0.0}, context(scene.given))  # registered while it can be
    scene.registry.kill()
    scene.produce(1_000)
    job = scene.lives.until(scene.caught_up, job)
    scene.schema = 1
    scene.produce(1_000)
    scene.lives.until(lambda: "does not answer for schema" in job.log_tail(20_000), job)
    assert job.exit_code is None, "it waits"
    assert scene.waiting() > 0
    scene.registry.start()
    job = scene.lives.until(scene.caught_up, job)
    scene.registry.kill()
    assert job.kill()
    scene.lives.end(job)
    scene.produce(500)
    job = scene.lives.start()
    deadline = time.monotonic() + scene.lives.patience_s
    while "does not answer" not in job.log_tail(3_000):
        assert time.monotonic() < deadline, job.log_tail()
        time.sleep(0.2)
    scene.registry.start()
    if job.exit_code is not None:
        assert job.exit_code == 3
        job = scene.lives.start()
    scene.settled(job)
    scene.assert_exact()
