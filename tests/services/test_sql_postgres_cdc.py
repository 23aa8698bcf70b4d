"""Changes of a table of PostgreSQL in SQL, on real servers: as a table, joined with a topic, through stops and starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from poundlock.errors import PoundlockError
from poundlock.testing.kafka import EmbeddedKafka
from poundlock.testing.postgres import EmbeddedPostgres
from support.kafka_tables import Scripts, kafka_table, newest

pytestmark = [pytest.mark.services, pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

NewTopic = Callable[..., str]
KEYED = {"key__format": "json", "value__format": "json"}
COLUMNS = "id INT, name STRING, city STRING, balance DECIMAL(10, 2), since TIMESTAMP_LTZ(3)"


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


@pytest.fixture
def server(postgres_server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A server with a table of customers and a publication of it; slots are gone afterwards."""
    postgres_server.execute(
        "CREATE TABLE customers (id int PRIMARY KEY, name text, city text, balance numeric(10, 2), since timestamptz, note text)",
        "CREATE PUBLICATION dbz_publication FOR TABLE customers",
        "INSERT INTO customers VALUES (1, 'ann', 'rome', 2.50, '2026-01-05 10:00:00Z'), (2, 'bob', 'oslo', NULL, NULL)",
    )
    yield postgres_server
    for (slot,) in postgres_server.execute("SELECT slot_name FROM pg_replication_slots"):
        postgres_server.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    postgres_server.execute("DROP PUBLICATION dbz_publication", "DROP TABLE customers")


def customers(server: EmbeddedPostgres, columns: str = COLUMNS, **options: str) -> str:
    given = {
        "connector": "postgres-cdc", "hostname": "127.0.0.1", "port": str(server.port), "username": "postgres", "password": "none",
        "database-name": "postgres", "schema-name": "public", "table-name": "customers", "slot.name": "customers_job",
        "decoding.plugin.name": "pgoutput", "debezium.poll.interval.ms": "50",
        **{name.replace("__", ".").replace("_", "-"): value for name, value in options.items()},
    }  # fmt: skip
    written = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    return f"CREATE TABLE customers ({columns}) WITH ({written});\n"


def test_a_table_that_changes_joined_with_a_topic(
    scripts: Scripts, server: EmbeddedPostgres, kafka_broker: EmbeddedKafka, new_topic: NewTopic
) -> None:
    server.execute("ALTER TABLE customers REPLICA IDENTITY FULL")
    orders, totals = new_topic(2), new_topic(2)
    given: list[tuple[int, int]] = []

    def order(*several: tuple[int, int]) -> None:
        kafka_broker.produce(orders, [json.dumps({"customer": who, "amount": amount}) for who, amount in several])
        given.extend(several)

    def joined() -> bool:
        """Return whether the totals are those of all orders with the customers as they are now."""
        cities = dict(server.execute("SELECT id, city FROM customers"))
        wanted: dict[str, list[int]] = {}
        for who, amount in given:
            if who in cities:
                total = wanted.setdefault(cities[who], [0, 0])
                total[0] += 1
                total[1] += amount
        rows = newest(kafka_broker.read(totals)).values()
        return {row["city"]: [row["n"], row["total"]] for row in rows} == wanted

    script = customers(server, f"{COLUMNS}, PRIMARY KEY (id) NOT ENFORCED")
    script += kafka_table(
        kafka_broker, "orders", "customer INT, amount INT", orders, format="json", scan__startup__mode="earliest-offset"
    )
    script += kafka_table(
        kafka_broker, "totals", "city STRING, n BIGINT, total BIGINT, PRIMARY KEY (city) NOT ENFORCED", totals,
        connector="upsert-kafka", sink__delivery_guarantee="exactly-once", sink__transactional_id_prefix="totals", **KEYED,
    )  # fmt: skip
    script += "INSERT INTO totals SELECT c.city, COUNT(*), SUM(o.amount) FROM orders AS o JOIN customers AS c ON o.customer = c.id GROUP BY c.city"
    order((1, 10), (2, 20), (3, 30))
    with scripts.running(script) as until:
        until(joined)
        server.execute(
            "UPDATE customers SET city = 'oslo' WHERE id = 1", "INSERT INTO customers VALUES (3, 'cy', 'rome')"
        )
        until(joined)
    server.execute("DELETE FROM customers WHERE id = 2", "UPDATE customers SET id = 4, city = 'bern' WHERE id = 3")
    order((4, 40), (1, 1))
    with scripts.running(script) as until:
        until(joined)


def test_upserts_of_a_table_that_logs_keys_alone(
    scripts: Scripts, server: EmbeddedPostgres, kafka_broker: EmbeddedKafka, new_topic: NewTopic
) -> None:
    copied = new_topic()
    metadata = "op_ts TIMESTAMP_LTZ(3) METADATA, t STRING METADATA FROM 'table_name'"
    script = customers(server, f"{COLUMNS}, {metadata}, PRIMARY KEY (id) NOT ENFORCED", changelog_mode="upsert")
    script += kafka_table(
        kafka_broker, "copied", "id INT, city STRING, balance DECIMAL(10, 2), t STRING, was_there BOOLEAN, PRIMARY KEY (id) NOT ENFORCED",
        copied, connector="upsert-kafka", **KEYED,
    )  # fmt: skip
    script += "INSERT INTO copied SELECT id, city, balance, t, op_ts = TO_TIMESTAMP_LTZ(0, 3) FROM customers"

    def rows() -> dict[int, tuple[Any, ...]]:
        there = newest(kafka_broker.read(copied)).values()
        return {row["id"]: (row["city"], row["balance"], row["t"], row["was_there"]) for row in there}

    def changed() -> None:
        with scripts.running(script) as until:
            until(lambda: rows() == {1: ("rome", 2.5, "customers", True), 2: ("oslo", None, "customers", True)})
            server.execute("UPDATE customers SET id = 7 WHERE id = 1", "UPDATE customers SET note = 'x' WHERE id = 2")
            server.execute("INSERT INTO customers VALUES (3, 'cy', 'bern', 99999999.99)")
            server.execute("DELETE FROM customers WHERE id = 2")
            until(
                lambda: rows() == {7: ("rome", 2.5, "customers", False), 3: ("bern", 99999999.99, "customers", False)}
            )
            server.execute("TRUNCATE customers")
            until(lambda: False)

    with pytest.raises(PoundlockError, match="customers was truncated"):
        changed()


def test_a_table_as_it_is(scripts: Scripts, server: EmbeddedPostgres) -> None:
    rows = scripts.rows(f"{customers(server, scan__startup__mode='snapshot')} SELECT * FROM customers")
    assert rows == [(1, "ann", "rome", "2.50", "2026-01-05T10:00:00.000Z"), (2, "bob", "oslo", None, None)]


@pytest.mark.parametrize(
    ("columns", "options", "what"),
    [
        (COLUMNS, {"table_name": "nobody"}, "no table \"public\".\"nobody\""),
        (COLUMNS, {}, "does not log the rows of"),
        (COLUMNS, {"debezium__publication__name": "absent"}, "no publication 'absent'"),
        ("id SMALLINT", {"scan__startup__mode": "snapshot"}, "customers.id is SMALLINT, and the column of the server INT"),
        ("id INT, balance DECIMAL(5, 2)", {"scan__startup__mode": "snapshot"}, "DECIMAL\\(10, 2\\)"),
        ("id INT, gone INT", {"scan__startup__mode": "snapshot"}, "gone"),
        (COLUMNS, {"port": "1", "scan__startup__mode": "snapshot"}, "127.0.0.1"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(
    columns: str, options: dict[str, str], what: str, scripts: Scripts, server: EmbeddedPostgres
) -> None:
    with pytest.raises(PoundlockError, match=what) as error:
        scripts.rows(f"{customers(server, columns, **options)} SELECT * FROM customers")
    assert error.value.next
