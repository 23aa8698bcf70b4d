"""What may be typed next in a shell."""

from __future__ import annotations

import pytest

from poundlock.sql.script import statements_of
from poundlock.sql.settings import SETTINGS
from poundlock.sql.shell.completion import candidates
from poundlock.sql.shell.named_tables import named_tables
from poundlock.sql.shell.option_names import option_names
from poundlock.sql.shell.words import STATEMENTS, function_names
from poundlock.sql.statements.session import SqlSession

TABLES = """
    CREATE TABLE orders (id INT, amount DECIMAL(10, 2), `order` STRING, ts TIMESTAMP(3))
    WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json');
    CREATE TABLE customers (id INT, name STRING) WITH ('connector' = 'blackhole');
    CREATE VIEW totals AS SELECT id, SUM(amount) AS total FROM orders GROUP BY id;
    CREATE DATABASE archive;
    CREATE TABLE archive.old_orders (id INT) WITH ('connector' = 'blackhole');
    CREATE FUNCTION twice_of AS 'support.sql_user_functions.double' LANGUAGE PYTHON
"""


@pytest.fixture(scope="module")
def session() -> SqlSession:
    made = SqlSession()
    list(made.results(TABLES))
    return made


def texts(session: SqlSession, typed: str, *, asked: bool = True) -> list[str]:
    """Return what may stand at the place of the |."""
    before, _, behind = typed.partition("|")
    return [each.text for each in candidates(session, before, behind, asked=asked)]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("SEL|", ["SELECT"]),
        ("sel|", ["SELECT"]),
        ("CREATE TEMP|", ["TEMPORARY FUNCTION", "TEMPORARY SYSTEM FUNCTION", "TEMPORARY TABLE", "TEMPORARY VIEW"]),
        ("STOP|", ["STOP JOB"]),
        ("SELECT twice_|", ["twice_of"]),
        ("SHOW TAB|", ["TABLES"]),
        ("SELECT 1; DROP VI|", ["VIEW"]),
        ("qu|", ["quit"]),
        ("SELECT * FROM or|", ["orders"]),
        ("SELECT * FROM |", ["customers", "orders", "totals", "archive", "default_database"]),
        ("SELECT * FROM customers, or|", ["orders"]),
        ("SELECT * FROM customers JOIN or|", ["orders"]),
        ("SELECT * FROM TABLE(TUMBLE(TABLE or|", ["orders"]),
        ("INSERT INTO cu|", ["customers"]),
        ("DESCRIBE tot|", ["totals"]),
        ("SELECT * FROM archive.|", ["old_orders"]),
        ("SELECT * FROM default_catalog.archive.|", ["old_orders"]),
        ("CREATE TABLE or|", []),
        ("CREATE TABLE more LIKE or|", ["orders"]),
        ("SELECT amo| FROM orders", ["amount"]),
        ("SELECT orde| FROM orders", ["`order`", "ORDER"]),
        ("SELECT `or| FROM orders", ["`order`"]),
        ("SELECT tota| FROM totals", ["total"]),
        ("SELECT o.| FROM orders AS o", ["id", "amount", "`order`", "ts"]),
        ("SELECT o.am| FROM orders o JOIN customers c ON o.id = c.id", ["amount"]),
        ("SELECT c.| FROM orders o JOIN customers c ON o.id = c.id", ["id", "name"]),
        ("INSERT INTO customers (na|", ["name"]),
        ("SELECT JSON_VAL|", ["JSON_VALUE"]),
        ("SELECT LISTA| FROM orders", ["LISTAGG"]),
        ("SELECT id FROM orders WHER|", ["WHERE"]),
        ("USE ar|", ["archive"]),
        ("USE CATALOG |", ["default_catalog"]),
        ("SET 'parallel|", ["'parallelism.default'"]),
        ("RESET 'pipeline.n|", ["'pipeline.name'"]),
        ("SET 'sql-client.execution.result-mode' = |", ["'table'", "'changelog'", "'tableau'"]),
        ("SET 'table.exec.mini-batch.enabled' = '|", ["'true'", "'false'"]),
        ("SET 'table.dml-sync' = '|", ["'true'"]),
        ("CREATE TABLE t (a INT) WITH ('conn|", ["'connector'"]),
        ("CREATE TABLE t (a INT) WITH (|", ["'connector'"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'upsert|", ["'upsert-kafka'"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'kafka', 'format' = 'js|", ["'json'", "'json-schema-confluent'"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'print', |)", ["'print-identifier'", "'standard-error'"]),
        ("CREATE TABLE t (a INT) WITH ('|, 'connector' = 'blackhole')", []),
        ("ALTER TABLE orders SET ('source.mon|", ["'source.monitor-interval'"]),
        ("SELECT 'sel|", []),
        ("-- sel|", []),
        ("SELECT 1 /* sel|", []),
    ],
)
def test_what_may_be_typed(session: SqlSession, typed: str, expected: list[str]) -> None:
    assert texts(session, typed) == expected


def test_what_is_typed_of_a_candidate_goes(session: SqlSession) -> None:
    (made,) = candidates(session, "SET 'parallel")
    assert ("SET 'parallel"[: -made.typed] + made.text, made.kind) == ("SET 'parallelism.default'", "setting")


def test_a_column_has_its_type_beside_it(session: SqlSession) -> None:
    (made,) = candidates(session, "SELECT amo", " FROM orders")
    assert (made.kind, made.note) == ("column", "DECIMAL(10, 2)")


@pytest.mark.parametrize("typed", ["|", "SELECT |", "SELECT id FROM orders |"])
def test_nobody_who_has_not_asked_gets_every_word(session: SqlSession, typed: str) -> None:
    assert texts(session, typed, asked=False) == []
    assert len(texts(session, typed)) > 10


def test_names_that_a_place_needs_are_given_without_asking(session: SqlSession) -> None:
    assert texts(session, "SELECT * FROM |", asked=False)[:3] == ["customers", "orders", "totals"]


def test_a_wrong_view_does_not_stop_completion(session: SqlSession) -> None:
    made = SqlSession()
    list(
        made.results(
            "CREATE TABLE t (a INT) WITH ('connector' = 'blackhole'); CREATE VIEW v AS SELECT a FROM t; DROP TABLE t"
        )
    )
    assert texts(made, "SELECT v.| FROM v") == []


def test_tables_by_the_names_that_stand_for_them() -> None:
    text = (
        "INSERT INTO a SELECT * FROM b.c AS d, e /* FROM x */ JOIN `f g` ON TRUE WHERE h IN (SELECT i FROM j) -- FROM y"
    )
    assert named_tables(text) == {"a": ("a",), "d": ("b", "c"), "e": ("e",), "f g": ("f g",), "j": ("j",)}


def test_options_are_those_that_connectors_ask_for() -> None:
    files = option_names("filesystem", "csv")
    assert {"path", "format", "source.monitor-interval", "sink.rolling-policy.file-size", "csv.field-delimiter"} <= set(
        files
    )
    kafka = option_names("kafka")
    assert {"topic", "topic-pattern", "properties.bootstrap.servers", "scan.startup.mode", "key.fields"} <= set(kafka)
    assert "sink.delivery-guarantee" in kafka
    assert not [name for name in kafka if name.startswith("json.")]
    assert option_names("no-such") == ()


@pytest.mark.parametrize(
    "beginning", [each for each in STATEMENTS if each.startswith("SHOW") and len(each.split()) < 3]
)
def test_the_beginnings_of_show_are_statements(beginning: str) -> None:
    of = " t" if beginning == "SHOW PARTITIONS" else ""  # which is of a table in any case
    assert len(statements_of(beginning + of)) == 1


def test_functions_are_words_that_a_query_can_call() -> None:
    names = function_names()
    assert {"COUNT", "ROW_NUMBER", "UPPER", "JSON_VALUE"} <= set(names)
    assert not [name for name in names if "$" in name]


def test_every_setting_can_be_completed(session: SqlSession) -> None:
    assert set(texts(session, "SET |")) == {f"'{key}'" for key in SETTINGS}
