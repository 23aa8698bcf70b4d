"""Which statement is the same job as one before it, and goes on where that was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from poundlock.sql.running.runner import identity_of
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import RunsInserts
from poundlock.sql.statements.session import SqlSession

SCRIPT = """
CREATE TABLE t (color STRING, n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE o (color STRING, total BIGINT) WITH ('connector' = 'print');
CREATE VIEW v AS SELECT color, n FROM t WHERE n > 1;
INSERT INTO o SELECT color, SUM(n) FROM v GROUP BY color HAVING COUNT(*) > 1
"""


def identity(script: str) -> str:
    session = SqlSession()
    for statement in statements_of(script):
        result = session.take(statement, script)
        if isinstance(result, RunsInserts):
            return identity_of(result, statement.text)
    raise AssertionError("no insert")


def test_the_same_statement_over_the_same_tables_is_the_same_job() -> None:
    more = "CREATE TABLE other (x INT) WITH ('connector' = 'print');" + SCRIPT.replace(
        "GROUP BY color", "GROUP  BY\n color"
    )
    assert identity(SCRIPT) == identity(more)


def test_a_job_is_the_same_in_another_process() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); from test_job_identity import *; print(identity(SCRIPT))"
    done = subprocess.run(
        [sys.executable, "-c", code, __file__.rpartition("/")[0]], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == identity(SCRIPT)


def test_in_another_folder_a_relative_path_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SCRIPT.replace("'path' = 'in'", f"'path' = '{tmp_path}/in'")
    monkeypatch.chdir(tmp_path)
    here, by_its_whole_path = identity(SCRIPT), identity(whole)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert identity(SCRIPT) != here
    assert identity(SCRIPT.replace("'path' = 'in'", "'path' = '../in'")) == here
    assert identity(whole) == by_its_whole_path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("> 1\n", "> 2\n"),
        ("n > 1;", "n > 2;"),
        ("'path' = 'in'", "'path' = 'there'"),
        ("n INT", "n BIGINT"),
        ("'5' SECOND", "'6' SECOND"),
        ("'connector' = 'print'", "'connector' = 'blackhole'"),
    ],
)
def test_another_statement_view_or_table_is_another_job(old: str, new: str) -> None:
    assert old in SCRIPT
    assert identity(SCRIPT) != identity(SCRIPT.replace(old, new))
