"""Scripts that are huge, or nested as nobody writes: each is in order or refused, in a time that grows as the script does."""

from __future__ import annotations

import pytest

from poundlock.sql.errors import SqlError
from poundlock.sql.running.runner import ScriptRunner
from support.mutated_scripts import bounded

ROWS = "(VALUES (1, 'a')) AS t (a, s)"
IN_ORDER = {
    "statements": "SET 'parallelism.default' = '1';\n" * 10_000,
    "tables": "".join(f"CREATE TABLE t{n} (a INT) WITH ('connector' = 'blackhole');\n" for n in range(500)),
    "literal": f"SELECT '{'x' * 1_000_000}' FROM {ROWS}",
    "AND": f"SELECT * FROM {ROWS} WHERE {' AND '.join(['a = 1'] * 1_000)}",
    "OR": f"SELECT * FROM {ROWS} WHERE {' OR '.join(['a = 1'] * 1_000)}",
    "texts": f"SELECT {' || '.join(['s'] * 500)} FROM {ROWS}",
    "IN": f"SELECT * FROM {ROWS} WHERE a IN ({', '.join(map(str, range(2_000)))})",
    "UNION ALL": " UNION ALL ".join([f"SELECT a FROM {ROWS}"] * 300),
    "UNION": " UNION ".join([f"SELECT a FROM {ROWS}"] * 100),
    "parentheses": f"SELECT {'(' * 100}a{')' * 100} FROM {ROWS}",
    "sub-queries": "SELECT * FROM (" * 100 + f"SELECT a FROM {ROWS}" + ")" * 100,
    "CASE": f"SELECT CASE {' '.join(f'WHEN a = {n} THEN {n}' for n in range(500))} END FROM {ROWS}",
    "WITH": "WITH w0 AS (SELECT 1 AS a)" + "".join(f", w{n + 1} AS (SELECT a + 1 AS a FROM w{n})" for n in range(100)) + " SELECT * FROM w100",
}  # fmt: skip
TOO_DEEP = {
    "parentheses": f"SELECT {'(' * 1_000}a{')' * 1_000} FROM {ROWS}",
    "sums": f"SELECT {' + '.join(['a'] * 1_000)} FROM {ROWS}",
    "sums that a task cannot compute": f"SELECT {' + '.join(['a'] * 150)} FROM {ROWS}",
    "NOT": f"SELECT * FROM {ROWS} WHERE {'NOT ' * 1_000} a = 1",
    "calls": f"SELECT {'ABS(' * 300}a{')' * 300} FROM {ROWS}",
    "sub-queries": "SELECT * FROM (" * 2_000 + f"SELECT a FROM {ROWS}" + ")" * 2_000,
    "types": f"CREATE TABLE t (a {'ARRAY<' * 3_000}INT{'>' * 3_000}) WITH ('connector' = 'blackhole')",
    "names": f"SELECT {'.'.join(['a'] * 3_000)} FROM {ROWS}",
}  # fmt: skip


def check(script: str) -> None:
    with bounded(60):
        ScriptRunner("check", lambda *_: None, lambda _: None).check(script)


@pytest.mark.parametrize("what", IN_ORDER)
def test_a_huge_script_is_in_order(what: str) -> None:
    check(IN_ORDER[what])


@pytest.mark.parametrize("what", TOO_DEEP)
def test_what_is_nested_too_deeply_is_refused(what: str) -> None:
    with pytest.raises(SqlError, match="nested too deeply"):
        check(TOO_DEEP[what])


def test_explain_of_explain_is_refused() -> None:
    with pytest.raises(SqlError, match="EXPLAIN does not take EXPLAIN"):
        check("EXPLAIN " * 2_000 + "SELECT 1")


def test_a_long_line_is_shown_around_the_place() -> None:
    with pytest.raises(SqlError) as refused:
        check(f"SELECT '{'x' * 1_000}', nobody, '{'y' * 1_000}' FROM {ROWS}")
    text, caret = refused.value.shown.split("\n")
    assert len(text) < 200
    assert text[len(caret) - 1 :].startswith("nobody")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("SELECT '名前', nobody", "SELECT '名前', nobody\n               ^"),
        ("SELECT '\x1b[31m', nobody", "SELECT '�[31m', nobody\n                ^"),
        ("\tSELECT nobody", " SELECT nobody\n        ^"),
    ],
)
def test_the_caret_stands_below_the_place(line: str, shown: str) -> None:
    with pytest.raises(SqlError) as refused:
        check(f"{line} FROM {ROWS}\r\n")
    text, caret = refused.value.shown.split("\n")
    assert f"{text.partition(' FROM')[0]}\n{caret}" == shown
