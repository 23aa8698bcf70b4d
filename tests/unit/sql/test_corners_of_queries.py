"""Corners of queries, each with its rows: untyped NULL, no rows at all, * behind GROUP BY, arguments by name, texts of results."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from poundlock.cli.jobs.sql import Form, _Shown
from poundlock.cli.output import Output
from poundlock.config import load_settings
from poundlock.sql.errors import SqlError
from poundlock.sql.running.runner import ScriptRunner
from poundlock.sql.statements.session import SqlSession
from support.in_process import PATCHES, InProcess

TABLE = "CREATE VIEW t AS SELECT * FROM (VALUES (1, 'x'), (2, 'y'), (1, 'x')) AS v (a, b); "
TIMES = """CREATE TABLE o (id INT, price DECIMAL(10, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'o', 'format' = 'json'); """


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch, own_folder: Path) -> None:
    for patch in PATCHES:
        monkeypatch.setattr(*patch)
    folder = Path("o")
    folder.mkdir()
    lines = (
        f'{{"id": {n}, "price": {n}.5, "ts": "2026-01-05 10:00:{at:02}"}}\n' for n, at in enumerate((1, 12, 25), 1)
    )
    (folder / "rows.json").write_text("".join(lines))


def shown(script: str, form: Form = "csv") -> list[str]:
    """Return the lines that a script shows, whose tasks run here."""
    session, out = SqlSession(), io.StringIO()
    results = _Shown(Output(out=out), session, form)
    settings = load_settings(["state_dir=state"])
    runner = ScriptRunner(
        "corners", results.take, results.known, session, settings, on_query=results.begin, spark=InProcess
    )
    runner.run(script, on_statement=results.end)
    return out.getvalue().split("\n")[:-1]


def rows(script: str) -> list[str]:
    """Return the rows of one query as CSV, without the kind of change."""
    return sorted(line.partition(",")[2] for line in shown(script)[1:])


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT NULL = NULL, 1 <> NULL, NULL > 'a', a IS DISTINCT FROM NULL FROM t WHERE a = 2", [",,,TRUE"]),
        ("SELECT a FROM t LIMIT 0", []),
        ("SELECT a FROM (SELECT a, ROW_NUMBER() OVER (ORDER BY b) AS n FROM t) WHERE n <= 0", []),
        ("SELECT * FROM t GROUP BY a, b", ["1,x", "2,y"]),
        ("SELECT t.*, COUNT(*) FROM t GROUP BY a, b", ["1,x,2", "2,y,1"]),
        ("SELECT a, w.v, w.i FROM t, UNNEST(ARRAY['p', 'q']) WITH ORDINALITY AS w (v, i) WHERE a = 2", ["2,p,1", "2,q,2"]),
    ],
)  # fmt: skip
def test_rows(query: str, wanted: list[str]) -> None:
    final = f"SET 'execution.runtime-mode' = 'batch'; {TABLE}{query}"
    assert rows(final) == wanted
    assert len(shown(TABLE + query)) >= 1 + len(wanted)


def test_a_shift_behind_the_first_row_has_the_type_of_its_column() -> None:
    made = rows(f"{TIMES} SELECT id, LAG(price, 1, 0) OVER (ORDER BY ts) FROM o")
    assert made == ["1,0.00", "2,1.50", "3,2.50"]


@pytest.mark.parametrize(
    ("call", "begins"),
    [
        ("TUMBLE(DATA => TABLE o, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' SECOND)", ["00", "10", "20"]),
        ("TUMBLE(SIZE => INTERVAL '20' SECOND, TIMECOL => DESCRIPTOR(ts), DATA => TABLE o)", ["00", "20"]),
        (
            "CUMULATE(DATA => TABLE o, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '20' SECOND, STEP => INTERVAL '10' SECOND)",
            ["00", "00", "20", "20"],
        ),
    ],
)
def test_arguments_of_windows_by_name(call: str, begins: list[str]) -> None:
    made = rows(
        f"{TIMES} SELECT window_start, window_end, COUNT(*) FROM TABLE({call}) GROUP BY window_start, window_end"
    )
    assert [line[17:19] for line in made] == begins


@pytest.mark.parametrize(
    ("script", "what"),
    [
        (f"{TIMES} SELECT 1 FROM TABLE(TUMBLE(DATA => TABLE o, SIZE => INTERVAL '1' SECOND))", "TUMBLE without TIMECOL"),
        (f"{TIMES} SELECT 1 FROM TABLE(TUMBLE(DATA => TABLE o, DESCRIPTOR(ts)))", "by name, each once, and all of them"),
        ("SELECT NULL", "NULL and of no type"),
        ("CREATE TABLE n WITH ('connector' = 'print') AS SELECT NULL AS x", "x is NULL and of no type"),
        (f"{TABLE} SELECT * FROM t GROUP BY a", "b is neither a key of GROUP BY"),
        ("CREATE VIEW v AS SELECT 1 AS x; CREATE OR REPLACE VIEW v AS SELECT * FROM v; SELECT * FROM v", "a view reads itself"),
        ("CREATE OR REPLACE TABLE n (a INT) WITH ('connector' = 'print')", "CREATE OR REPLACE TABLE without AS SELECT"),
        ("CREATE TABLE n (a INT) WITH ('connector' = 'print', 'connector' = 'print')", "'connector' is there twice"),
        ("CREATE TABLE n (a INT, b INT AS (a + 1)) WITH ('connector' = 'print')", "b has a type and an expression"),
        ("CREATE TABLE n (a INT, b AS a + 1 NOT NULL) WITH ('connector' = 'print')", "NOT NULL behind the expression of a computed column"),
        ("SELECT 1 NOT NULL", "Unexpected token"),
        ("CREATE TABLE n (a INT) WITH ('connector' = 'filesystem', 'path' = 'o', 'format' = 'json', 'source.max-files-per-checkpoint' = '0'); SELECT * FROM n", "'source.max-files-per-checkpoint' = '0' cannot be"),
        ("SHOW TABLES FROM nope", "no database nope"),
        ("SHOW MODULES;\n SHOW COLUMNS FROM nope", "line 2, column 2: there is no table or view nope"),
    ],
)  # fmt: skip
def test_what_is_refused(script: str, what: str) -> None:
    with pytest.raises(SqlError, match=what):
        shown(script)


def test_rank_in_a_stream_is_refused_where_it_stands() -> None:
    query = "SELECT a FROM (SELECT a, RANK() OVER (ORDER BY b) AS n FROM t)\nWHERE n <= 2"
    with pytest.raises(SqlError, match=r"line 2, column 7: RANK in a stream"):
        shown(TABLE + query)


def test_texts_of_csv_and_of_json() -> None:
    values = "SELECT 'a\"b', 'a,b', 'a\nb', 'a\\b,c', '', CAST(NULL AS STRING), 2"
    assert "\n".join(shown(values)[1:]) == '+I,"a""b","a,b","a\nb","a\\b,c","",,2'
    times = "SELECT TIMESTAMP '2026-01-05 10:00:00.123456' AS micros, TIMESTAMP '2026-01-05 10:00:00.1' AS millis"
    assert shown(times, "json") == [
        '{"op": "+I", "micros": "2026-01-05T10:00:00.123456", "millis": "2026-01-05T10:00:00.100"}'
    ]
    assert shown(f"{TABLE} SELECT a FROM t WHERE a > 7") == ["op,a"]


def test_what_there_is_by_name() -> None:
    assert shown(f"{TABLE} SHOW TABLES ILIKE 'T%'") == ["table name", "t"]
    assert shown(f"{TABLE} SHOW TABLES LIKE 'T%'") == ["table name"]
    assert shown("SHOW FULL MODULES") == ["module name,used", "core,TRUE"]
    replaced = "CREATE OR REPLACE TABLE n WITH ('connector' = 'blackhole') AS SELECT "
    assert shown(f"{replaced} 1 AS a; {replaced} 2 AS b; DESCRIBE n")[1:] == ["b,INT,FALSE,,,"]


def test_whole_hours_are_time_zones() -> None:
    assert rows("SET 'table.local-time-zone' = 'GMT-08:00'; SELECT TO_TIMESTAMP_LTZ(0, 3)") == [
        "1969-12-31 16:00:00.000"
    ]
