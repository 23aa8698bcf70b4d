"""Tables of Kafka in SQL on a real broker: what is read and written, where reading begins and ends, upserts, changelogs, exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main
from poundlock.connectors.kafka.client_loader import confluent
from poundlock.errors import PoundlockError
from poundlock.testing.kafka import EmbeddedKafka, Record
from support.kafka_tables import Scripts, bounded, kafka_table, newest, values

pytestmark = [pytest.mark.services, pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

NewTopic = Callable[..., str]
KEYED = {"key__format": "json", "value__format": "json"}


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


def upsert(key: dict[str, Any], value: dict[str, Any] | None, **more: Any) -> Record:
    return Record(None if value is None else json.dumps({**key, **value}), key=json.dumps(key), **more)


def test_keys_and_values_and_what_a_record_has_beside_them(
    scripts: Scripts, kafka_broker: EmbeddedKafka, new_topic: NewTopic
) -> None:
    there, copied = new_topic(2), new_topic(2)
    kafka_broker.produce(
        there,
        [
            Record('{"name": "ann"}', key='{"id": 1}', partition=1, timestamp_ms=1_767_607_200_123, headers=[("h", b"x"), ("none", None)]),
            Record('{"name": null}', key='{"id": 2}', partition=0, timestamp_ms=1_767_607_201_000),
            Record(None, key='{"id": 3}', partition=0),
            Record('{"name": "no key"}', partition=0),
        ],
    )  # fmt: skip
    options = {
        "key__format": "json", "key__fields": "k_id", "key__fields_prefix": "k_", "value__format": "json", "value__fields_include": "EXCEPT_KEY",
    }  # fmt: skip
    writable = (
        "k_id INT, name STRING, seen TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', headers MAP<STRING, BYTES> METADATA"
    )
    read_only = "part INT METADATA FROM 'partition' VIRTUAL, `offset` BIGINT METADATA VIRTUAL, `topic` STRING METADATA VIRTUAL, how STRING METADATA FROM 'timestamp-type' VIRTUAL"
    tables = kafka_table(kafka_broker, "there", f"{writable}, {read_only}", there, **bounded(**options))
    tables += kafka_table(kafka_broker, "copied", f"{writable}, {read_only}", copied, **bounded(**options))
    changes = scripts.changes(
        f"{tables} INSERT INTO copied SELECT k_id, UPPER(name), seen, headers FROM there; SELECT * FROM copied; SELECT k_id, part, `offset`, `topic`, how FROM there"
    )
    assert sorted(row for _, row in changes if len(row) == 5) == [
        (1, 1, 0, there, "CreateTime"),
        (2, 0, 0, there, "CreateTime"),
    ]
    assert {row[:3] for _, row in changes if len(row) == 8} == {
        (1, "ANN", "2026-01-05T10:00:00.123Z"),
        (2, None, "2026-01-05T10:00:01.000Z"),
    }
    found = {record.key: record for record in kafka_broker.read(copied)}
    assert {key: json.loads(record.value or b"") for key, record in found.items()} == {
        b'{"id":1}': {"name": "ANN"},
        b'{"id":2}': {"name": None},
    }
    assert {key: record.timestamp_ms for key, record in found.items()} == {
        b'{"id":1}': 1_767_607_200_123,
        b'{"id":2}': 1_767_607_201_000,
    }
    assert dict(found[b'{"id":1}'].headers) == {"h": b"x", "none": None}
    assert not found[b'{"id":2}'].headers


def test_where_a_table_begins_and_ends(scripts: Scripts, kafka_broker: EmbeddedKafka, new_topic: NewTopic) -> None:
    topic, other = new_topic(2), new_topic()
    kafka_broker.produce(
        topic, [Record(json.dumps({"n": n}), partition=n % 2, timestamp_ms=1_000 * n) for n in range(1, 11)]
    )
    kafka_broker.produce(other, ['{"n": 100}'])
    kafka = confluent()
    group = f"{topic}-group"
    offsets = [kafka.TopicPartition(topic, 0, 3), kafka.TopicPartition(topic, 1, 4)]
    for future in kafka_broker.admin.alter_consumer_group_offsets([kafka.ConsumerGroupTopicPartitions(group, offsets)]).values():  # fmt: skip
        future.result(30)
    latest = {"scan__bounded__mode": "latest-offset", "format": "json"}
    tables = {
        "all_": bounded(format="json"),
        "latest": {**latest, "scan__startup__mode": "latest-offset"},
        "since": {**latest, "scan__startup__mode": "timestamp", "scan__startup__timestamp_millis": "7000"},
        "from_": {
            **latest,
            "scan__startup__mode": "specific-offsets",
            "scan__startup__specific_offsets": "partition:0,offset:4;partition:1,offset:5",
        },
        "until": bounded(scan__bounded__mode="timestamp", scan__bounded__timestamp_millis="4000", format="json"),
        "to_": bounded(
            scan__bounded__mode="specific-offsets",
            scan__bounded__specific_offsets="partition:0,offset:1;partition:1,offset:0",
            format="json",
        ),
        "committed": {**latest, "properties__group__id": group},
        "to_committed": bounded(scan__bounded__mode="group-offsets", properties__group__id=group, format="json"),
        "restarted": {**latest, "properties__group__id": f"{group}-2", "properties__auto__offset__reset": "earliest"},
    }
    # Partition 0 has 2, 4, 6, 8, 10, and partition 1 has 1, 3, 5, 7, 9.
    expected = {
        "all_": range(1, 11), "latest": [], "since": [7, 8, 9, 10], "from_": [10], "until": [1, 2, 3], "to_": [2],
        "committed": [8, 9, 10], "to_committed": [1, 2, 3, 4, 5, 6, 7], "restarted": range(1, 11),
    }  # fmt: skip
    script = "".join(kafka_table(kafka_broker, name, "n INT", topic, **options) for name, options in tables.items())
    script += kafka_table(kafka_broker, "both_", "n INT", f"{topic};{other}", **bounded(format="json"))
    pattern = kafka_table(kafka_broker, "named", "n INT", "-", **bounded(format="json"))
    script += pattern.replace("'topic' = '-'", f"'topic-pattern' = '{other[:-1]}.'")
    every = [*tables, "both_", "named"]
    rows = scripts.rows(script + " UNION ALL ".join(f"SELECT '{name}' AS t, n FROM {name}" for name in every))
    found = {name: sorted(n for of, n in rows if of == name) for name in every}
    assert found == {
        **{name: list(numbers) for name, numbers in expected.items()},
        "both_": [*range(1, 11), 100],
        "named": [100],
    }


def test_upserts_are_a_changelog_whose_state_outlives_the_job(
    scripts: Scripts, kafka_broker: EmbeddedKafka, new_topic: NewTopic
) -> None:
    users, cities = new_topic(2), new_topic(2)
    script = kafka_table(
        kafka_broker, "users", "id INT, city STRING, PRIMARY KEY (id) NOT ENFORCED", users, connector="upsert-kafka", **KEYED
    ) + kafka_table(
        kafka_broker, "cities", "city STRING, n BIGINT, PRIMARY KEY (city) NOT ENFORCED", cities, connector="upsert-kafka", **KEYED
    )  # fmt: skip
    script += "INSERT INTO cities SELECT city, COUNT(*) FROM users GROUP BY city"

    def counts() -> dict[str, int]:
        return {row["city"]: row["n"] for row in newest(kafka_broker.read(cities)).values()}

    first = [upsert({"id": n}, {"city": "rome" if n < 6 else "oslo"}) for n in range(10)]
    kafka_broker.produce(users, [*first, upsert({"id": 99}, None)])
    with scripts.running(script) as until:
        until(lambda: counts() == {"rome": 6, "oslo": 4})
    # Of a key that moved, of one that is gone, and of one that was never there.
    changed = [upsert({"id": 0}, {"city": "oslo"}), *(upsert({"id": n}, None) for n in (1, 2, 50))]
    kafka_broker.produce(users, changed)
    with scripts.running(script) as until:
        until(lambda: counts() == {"rome": 3, "oslo": 5})
        kafka_broker.produce(users, [upsert({"id": n}, None) for n in range(6, 10)])
        kafka_broker.produce(users, [upsert({"id": 0}, None)])
        until(lambda: counts() == {"rome": 3})
    assert [bytes(r.key or b"") for r in kafka_broker.read(cities) if r.value is None] == [b'{"city":"oslo"}'], (  # type: ignore[arg-type]
        "a group without rows is a record without a value"
    )


def test_the_changelog_of_upserts(scripts: Scripts, kafka_broker: EmbeddedKafka, new_topic: NewTopic) -> None:
    users = new_topic()
    table = kafka_table(
        kafka_broker, "users", "id INT, city STRING, doubled AS id * 2, PRIMARY KEY (id) NOT ENFORCED", users,
        connector="upsert-kafka", scan__bounded__mode="latest-offset", **KEYED,
    )  # fmt: skip
    given = [(1, "rome"), (2, "oslo"), (1, "rome"), (1, "oslo"), (2, None), (3, None), (2, "rome")]
    kafka_broker.produce(users, [upsert({"id": n}, None if city is None else {"city": city}) for n, city in given])
    changes = scripts.changes(f"{table} SELECT * FROM users")
    assert sorted(changes, key=lambda change: change[1][0]) == [
        ("+I", (1, "rome", 2)), ("-U", (1, "rome", 2)), ("+U", (1, "oslo", 2)),
        ("+I", (2, "oslo", 4)), ("-D", (2, "oslo", 4)), ("+I", (2, "rome", 4)),
    ]  # fmt: skip


def test_upserts_with_event_time_are_the_versions_of_a_table(
    scripts: Scripts, kafka_broker: EmbeddedKafka, new_topic: NewTopic
) -> None:
    rates, orders = new_topic(), new_topic()
    script = kafka_table(
        kafka_broker, "rates", "currency STRING, rate INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (currency) NOT ENFORCED",
        rates, connector="upsert-kafka", scan__bounded__mode="latest-offset", **KEYED,
    )  # fmt: skip
    script += kafka_table(
        kafka_broker, "orders", "id INT, currency STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts", orders,
        **bounded(format="json"),
    )  # fmt: skip
    versions = [("eur", 10, 0), ("usd", 7, 0), ("eur", 11, 10)]
    kafka_broker.produce(
        rates,
        [
            *(upsert({"currency": c}, {"rate": rate, "ts": f"2026-01-05 10:00:{at:02}"}) for c, rate, at in versions),
            upsert({"currency": "usd"}, None),
        ],
    )
    given = [(1, "eur", 5), (2, "eur", 10), (3, "usd", 20), (4, "eur", 30)]
    kafka_broker.produce(
        orders, [json.dumps({"id": n, "currency": c, "ts": f"2026-01-05 10:00:{at:02}"}) for n, c, at in given]
    )
    rows = scripts.rows(
        f"{script} SELECT o.id, r.rate FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.currency = r.currency"
    )
    assert rows == [(1, 10), (2, 11), (3, None), (4, 11)]


def test_changes_of_databases(scripts: Scripts, kafka_broker: EmbeddedKafka, new_topic: NewTopic) -> None:
    changes = {
        "debezium-json": [
            {"before": None, "after": {"id": 1, "n": 1}, "op": "c"}, {"before": {"id": 1, "n": 1}, "after": {"id": 1, "n": 5}, "op": "u"},
            {"before": None, "after": {"id": 2, "n": 2}, "op": "r"}, {"before": {"id": 2, "n": 2}, "after": None, "op": "d"},
        ],
        "canal-json": [
            {"data": [{"id": 1, "n": 1}, {"id": 2, "n": 2}], "type": "INSERT"},
            {"data": [{"id": 1, "n": 5}], "old": [{"n": 1}], "type": "UPDATE"}, {"data": [{"id": 2, "n": 2}], "type": "DELETE"},
        ],
        "maxwell-json": [
            {"data": {"id": 1, "n": 1}, "type": "insert"}, {"data": {"id": 1, "n": 5}, "old": {"n": 1}, "type": "update"},
        ],
    }  # fmt: skip
    script, parts = "", []
    for format, given in changes.items():
        topic, name = new_topic(), format.partition("-")[0]
        kafka_broker.produce(topic, [*(json.dumps(change) for change in given), None])
        script += kafka_table(kafka_broker, name, "id INT, n INT", topic, **bounded(format=format))
        parts.append(f"SELECT '{name}' AS of_, SUM(n) AS n, COUNT(*) AS c FROM {name}")
    copied = new_topic()
    script += kafka_table(kafka_broker, "copied", "n INT", copied, format="debezium-json")
    rows = scripts.rows(f"{script} INSERT INTO copied SELECT n FROM debezium; {' UNION ALL '.join(parts)}")
    assert rows == [("canal", 5, 1), ("debezium", 5, 1), ("maxwell", 5, 1)]
    assert [(change["op"], change["after"] or change["before"]) for change in values(kafka_broker.read(copied))] == [
        ("c", {"n": 1}), ("d", {"n": 1}), ("c", {"n": 5}), ("c", {"n": 2}), ("d", {"n": 2}),
    ]  # fmt: skip


def test_every_insert_of_a_statement_set_is_there_once(
    scripts: Scripts, kafka_broker: EmbeddedKafka, new_topic: NewTopic, capfd: pytest.CaptureFixture[str]
) -> None:
    topic, one, two = new_topic(3), new_topic(2), new_topic(2)
    kafka_broker.produce(topic, [Record(json.dumps({"n": n}), partition=n % 3) for n in range(300)])
    once = {"sink__delivery_guarantee": "exactly-once", "sink__transactional_id_prefix": f"{one}-mine"}
    script = kafka_table(
        kafka_broker, "numbers", "n INT", topic, **bounded(format="json", source__max_records_per_checkpoint="100")
    )
    script += kafka_table(kafka_broker, "firsts", "n INT", one, format="json", **once)
    script += kafka_table(
        kafka_broker, "counts", "k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED", two, connector="upsert-kafka", **KEYED, **once
    )  # fmt: skip
    script += "EXECUTE STATEMENT SET BEGIN INSERT INTO firsts SELECT n FROM numbers WHERE n < 200; INSERT INTO counts SELECT MOD(n, 3), COUNT(*) FROM numbers GROUP BY MOD(n, 3); END"
    for _ in range(2):  # what has been inserted is not inserted a second time
        scripts.changes(script)
        assert sorted(row["n"] for row in values(kafka_broker.read(one))) == list(range(200))
        assert sorted((row["k"], row["n"]) for row in newest(kafka_broker.read(two)).values()) == [
            (0, 100),
            (1, 100),
            (2, 100),
        ]
    (checkpoints,) = scripts.checkpoints()
    capfd.readouterr()
    assert main(["audit", str(checkpoints)]) == 0, capfd.readouterr()
    states = kafka_broker.admin.list_consumer_groups().result(30).valid
    assert any(group.group_id.startswith(f"{one}-mine.") for group in states), "the prefix of the script"


@pytest.mark.parametrize(
    ("given", "asked", "what"),
    [
        ({"properties__bootstrap__servers": "127.0.0.1:1"}, "SELECT * FROM t", "127.0.0.1:1"),
        ({"topic": "no-such-topic"}, "SELECT * FROM t", "no-such-topic"),
        ({"topic": "no-such-topic"}, "INSERT INTO t SELECT 1", "no-such-topic"),
        ({"properties__group__id": "nobody", "scan__startup__mode": "group-offsets"}, "SELECT * FROM t", "no committed offset"),
        ({"scan__startup__mode": "specific-offsets", "scan__startup__specific_offsets": "partition:0,offset:77"}, "SELECT * FROM t", "offset 77"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_two_lines(
    given: dict[str, str], asked: str, what: str, tmp_path: Path, kafka_broker: EmbeddedKafka, new_topic: NewTopic, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("POUNDLOCK_STATE_DIR", str(tmp_path / "state"))
    options = {**bounded(format="json"), **given}
    table = kafka_table(kafka_broker, "t", "n INT", options.pop("topic", None) or new_topic(), **options)
    assert main(["sql", "-e", f"{table} {asked}"]) in (2, 3)
    out, err = capfd.readouterr()
    lines = [line for line in err.strip().splitlines() if not line.startswith("job ")]  # which says where its log is
    assert len(lines) == 2, err
    assert what in lines[0]
    assert "Traceback" not in out + err


def test_a_record_that_cannot_be_read_fails_the_job_and_is_named(
    scripts: Scripts, kafka_broker: EmbeddedKafka, new_topic: NewTopic
) -> None:
    topic = new_topic()
    kafka_broker.produce(topic, ['{"n": 1}', "broken"])
    strict = kafka_table(kafka_broker, "t", "n INT", topic, **bounded(value__format="json"))
    with pytest.raises(PoundlockError, match=r"t: a record cannot be read: .*broken") as error:
        scripts.rows(f"{strict} SELECT * FROM t")
    assert "'value.json.ignore-parse-errors' = 'true'" in str(error.value.next)
    lenient = kafka_table(
        kafka_broker, "t", "n INT", topic, **bounded(value__format="json", value__json__ignore_parse_errors="true")
    )
    assert scripts.rows(f"{lenient} SELECT * FROM t") == [(1,)]
