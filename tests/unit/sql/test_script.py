"""Scripts of Flink SQL as statements: every script of the recorded cases, what each statement is, and errors that say where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from poundlock.sql.dialect import MatchRecognize, MetadataColumn, TableArgument
from poundlock.sql.errors import Place, SqlError
from poundlock.sql.script import Explain, ParsedStatement, ResetOption, SetOption, Show, StatementSet, statements_of
from support.examples import examples

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "conformance/data/sql.json").read_text())["cases"]
REFUSED = {"error.syntax": (2, 1), "error.reserved_word": (2, 13)}


def script_of(case: dict[str, Any]) -> str:
    return ";\n".join([*(table["ddl"] for table in case.get("tables", ())), case["script"]])


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_every_recorded_script_is_read_or_refused_where_it_is_wrong(case: dict[str, Any]) -> None:
    script, place = script_of(case), REFUSED.get(case["id"])
    if place is None:
        statements = statements_of(script)
        assert len(statements) >= len(case.get("tables", ())) + 1
        assert all(statement.text in script for statement in statements)
        return
    with pytest.raises(SqlError) as refused:
        statements_of(script)
    assert refused.value.place == Place(*place)
    assert case["expected"]["kind"] == "error"


def test_what_the_statements_of_a_program_are() -> None:
    script = """
        SET 'table.local-time-zone' = 'UTC';
        SET execution.runtime-mode = streaming;  -- without quotes, as Flink's shell takes it
        RESET 'table.local-time-zone'; RESET;
        SHOW COLUMNS FROM orders NOT LIKE '%t'; SHOW CREATE TABLE a.b; SHOW TABLES;
        EXPLAIN PLAN FOR SELECT 1; EXPLAIN INSERT INTO a SELECT 1;
        EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT ';'; END;
        BEGIN STATEMENT SET; INSERT INTO a SELECT 2; END;
        DESCRIBE orders
    """
    made = statements_of(script)
    zone, mode, reset, everything, columns, create, tables, plan, insert, both, one, described = made
    assert isinstance(zone, SetOption)
    assert (zone.key, zone.value, zone.place) == ("table.local-time-zone", "UTC", Place(2, 9))
    assert isinstance(mode, SetOption)
    assert (mode.key, mode.value) == ("execution.runtime-mode", "streaming")
    assert isinstance(reset, ResetOption)
    assert isinstance(everything, ResetOption)
    assert (reset.key, everything.key) == ("table.local-time-zone", None)
    shown = [(s.what, s.name, s.pattern, s.is_negated) for s in (columns, create, tables) if isinstance(s, Show)]
    assert shown == [
        ("COLUMNS", "orders", "%t", True), ("CREATE TABLE", "a.b", None, False), ("TABLES", None, None, False)
    ]  # fmt: skip
    explained = [
        s.of.expression for s in (plan, insert) if isinstance(s, Explain) and isinstance(s.of, ParsedStatement)
    ]
    assert [type(each) for each in explained] == [exp.Select, exp.Insert]
    assert isinstance(both, StatementSet)
    assert isinstance(one, StatementSet)
    assert [len(each.inserts) for each in (both, one)] == [2, 1]
    assert both.text.startswith("EXECUTE STATEMENT SET BEGIN")
    assert both.text.endswith("END")
    assert isinstance(described, ParsedStatement)
    assert isinstance(described.expression, exp.Describe)


def test_what_flink_adds_to_a_table() -> None:
    (made,) = statements_of(
        "CREATE TABLE t (id INT NOT NULL, r ROW<a INT, b ARRAY<STRING>>, ms BIGINT METADATA FROM 'timestamp' VIRTUAL,"
        " ts AS TO_TIMESTAMP_LTZ(ms, 3), PRIMARY KEY (id) NOT ENFORCED, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)"
        " PARTITIONED BY (id) WITH ('connector' = 'print')"
    )
    assert isinstance(made, ParsedStatement)
    metadata = made.expression.find(MetadataColumn)
    assert metadata is not None
    assert (metadata.args["key"].name, metadata.args["virtual"]) == ("timestamp", True)
    watermark = made.expression.find(exp.WatermarkColumnConstraint)
    assert watermark is not None
    assert watermark.this.name == "ts"
    assert {column.name for column in made.expression.find_all(exp.ColumnDef)} == {"id", "r", "a", "b", "ms", "ts"}


def test_table_functions_and_patterns() -> None:
    session, match = statements_of(
        "SELECT * FROM TABLE(SESSION(TABLE clicks PARTITION BY who, DESCRIPTOR(ts), INTERVAL '5' SECOND));"
        "SELECT * FROM ticker MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts MEASURES a.price AS p ONE ROW PER MATCH"
        " AFTER MATCH SKIP TO FIRST b PATTERN (a (x | y)*? b{2,}) WITHIN INTERVAL '4' SECOND DEFINE a AS a.price < 10) AS m"
    )
    assert isinstance(session, ParsedStatement)
    table = session.expression.find(TableArgument)
    assert table is not None
    assert (table.this.name, [each.name for each in table.args["partition_by"]]) == ("clicks", ["who"])
    assert isinstance(match, ParsedStatement)
    found = match.expression.find(MatchRecognize)
    assert found is not None
    assert found.args["pattern"].name == "a (x | y)*? b{2,}"
    assert found.args["after"].name == "TO FIRST b"
    assert found.args["within"].sql() == "INTERVAL '4' SECOND"


@pytest.mark.parametrize(
    ("script", "place", "says", "caret"),
    [
        ("SELECT 1;\n\tSELCT 2", (2, 2), "no statement begins with SELCT", " SELCT 2\n ^"),
        ("SELECT a FROM t WHERE (a = 1", (1, 28), "Expecting )", "SELECT a FROM t WHERE (a = 1\n" + " " * 27 + "^"),
        ("SELECT 'a", (1, 8), "a text or a comment does not end", "SELECT 'a\n       ^"),
        ("SELECT 1 AS user", (1, 13), "user is a word of the language and no name", "SELECT 1 AS user\n            ^"),
        ("SET 'a'", (1, 5), "SET without a key, = and a value", "SET 'a'\n    ^"),
        ("SHOW EVERYTHING", (1, 6), "there is no SHOW EVERYTHING", "SHOW EVERYTHING\n     ^"),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;", (1, 1), "without its END", None),
        ("EXECUTE STATEMENT SET BEGIN SELECT 1; END", (1, 29), "a statement set has no SELECT", None),
        ("EXECUTE STATEMENT SET BEGIN END", (1, 1), "a statement set without an INSERT", None),
        ("EXPLAIN SHOW TABLES", (1, 9), "EXPLAIN does not take SHOW", None),
    ],
)
def test_an_error_says_where(script: str, place: tuple[int, int], says: str, caret: str | None) -> None:
    with pytest.raises(SqlError, match=says.replace("(", "[(]").replace(")", "[)]")) as refused:
        statements_of(script)
    assert str(refused.value).startswith(f"line {place[0]}, column {place[1]}: ")
    assert refused.value.next
    assert caret is None or refused.value.shown == caret


def test_empty_statements_are_none() -> None:
    assert statements_of("") == statements_of(" ;; -- nothing\n;") == []


@examples(300)
@given(st.sampled_from(CASES), st.data())
def test_a_script_that_was_cut_or_changed_is_read_or_refused_in_words(
    case: dict[str, Any], data: st.DataObject
) -> None:
    script = script_of(case)
    at = data.draw(st.integers(0, len(script) - 1))
    cut = data.draw(st.integers(0, 12))
    script = (
        script[:at]
        + data.draw(st.sampled_from(["", "'", "(", ")", ";", "SELECT", "`", "/*", "é"]))
        + script[at + cut :]
    )
    refused = None
    try:
        statements_of(script)
    except SqlError as error:
        refused = error
    if refused is not None:
        assert 1 <= refused.place.line <= max(script.count("\n") + 1, 1)
        assert refused.shown.count("\n") == 1
