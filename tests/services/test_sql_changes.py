"""Tables as they change, in SQL on Spark and real servers: MariaDB's to their end, two of PostgreSQL, in chunks, into a third."""

from __future__ import annotations

from pathlib import Path

import pytest

from poundlock.testing.databases.mariadb import EmbeddedMariaDb
from poundlock.testing.postgres import EmbeddedPostgres
from support.kafka_tables import Scripts

pytestmark = [pytest.mark.services, pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]


def with_options(**options: str) -> str:
    written = ", ".join(f"'{name.replace('__', '.').replace('_', '-')}' = '{value}'" for name, value in options.items())
    return f"WITH ({written});\n"


def test_tables_of_mariadb_are_read_to_their_end(mariadb_server: EmbeddedMariaDb, tmp_path: Path) -> None:
    mariadb_server.execute("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    for name, count in (("orders_1", 40), ("orders_2", 7)):
        mariadb_server.execute(
            f"CREATE TABLE shop.{name} (id int PRIMARY KEY, price decimal(10, 2))",
            f"INSERT INTO shop.{name} SELECT seq, seq + 0.5 FROM seq_1_to_{count}",
        )
    script = "CREATE TABLE orders (id INT, price DECIMAL(10, 2), tab STRING METADATA FROM 'table_name') " + with_options(
        connector="mysql-cdc", hostname="127.0.0.1", port=str(mariadb_server.port), username="root", password="",
        database_name="shop", table_name="orders_1|orders_2", scan__startup__mode="snapshot",
        scan__incremental__snapshot__chunk__size="15",
    )  # fmt: skip
    rows = Scripts(tmp_path).rows(f"{script} SELECT tab, COUNT(*) AS n, SUM(price) AS total FROM orders GROUP BY tab")
    assert rows == [("orders_1", 40, "840.00"), ("orders_2", 7, "31.50")]


def test_tables_of_postgres_go_into_another_as_they_change(postgres_server: EmbeddedPostgres, tmp_path: Path) -> None:
    server = postgres_server
    for name, first, count in (("orders_1", 0, 40), ("orders_2", 1000, 7)):
        server.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, price numeric(10, 2))",
            f"ALTER TABLE {name} REPLICA IDENTITY FULL",
            f"INSERT INTO {name} SELECT i + {first}, i + 0.5 FROM generate_series(1, {count}) i",
        )
    server.execute(
        "CREATE PUBLICATION dbz_publication FOR TABLE orders_1, orders_2",
        "CREATE TABLE copied (tab text, id int PRIMARY KEY, price numeric(10, 2))",
    )
    address = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
    columns = "id INT, price DECIMAL(10, 2), tab STRING METADATA FROM 'table_name', PRIMARY KEY (id) NOT ENFORCED"
    script = f"CREATE TABLE orders ({columns}) " + with_options(
        connector="postgres-cdc", hostname="127.0.0.1", port=str(server.port), username="postgres", password="none",
        database_name="postgres", schema_name="public", table_name="orders_[0-9]", slot__name="orders_job",
        debezium__poll__interval__ms="50", scan__incremental__snapshot__chunk__size="15",
    )  # fmt: skip
    script += (
        "CREATE TABLE copied (tab STRING, id INT, price DECIMAL(10, 2), PRIMARY KEY (id) NOT ENFORCED) "
        + with_options(connector="jdbc", url=address, table_name="copied", username="postgres")
    )
    script += "INSERT INTO copied SELECT tab, id, price FROM orders"

    def is_copied() -> bool:
        of_both = "SELECT 'orders_1', id, price FROM orders_1 UNION ALL SELECT 'orders_2', id, price FROM orders_2 ORDER BY 1, 2"
        return server.execute(of_both) == server.execute("SELECT tab, id, price FROM copied ORDER BY 1, 2")

    with Scripts(tmp_path).running(script) as until:
        until(is_copied)
        server.execute(
            "DELETE FROM orders_1 WHERE id < 20", "UPDATE orders_2 SET price = 9, id = id + 100 WHERE id > 1003"
        )
        until(is_copied)
    server.execute("INSERT INTO orders_2 VALUES (2500, 1)", "UPDATE orders_1 SET price = 2 WHERE id = 40")
    with Scripts(tmp_path).running(script) as until:  # it goes on from what it has read
        until(is_copied)
