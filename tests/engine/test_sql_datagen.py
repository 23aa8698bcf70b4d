"""Generated tables in SQL, run by two tasks on a real Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from poundlock.config import load_settings
from poundlock.sql.running.runner import ScriptRunner
from support.sql_scripts import Answers

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]

ORDERS = """
CREATE TABLE orders (id INT, who BIGINT, `day` DATE, pt AS PROCTIME()) WITH (
  'connector' = 'datagen', 'rows-per-second' = '1000000', 'number-of-rows' = '1000',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '5000',
  'fields.who.min' = '1', 'fields.who.max' = '6', 'fields.who.null-rate' = '0.1');
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def ran(script: str) -> list[tuple[str, tuple[Any, ...]]]:
        answers = Answers()
        settings = load_settings([f"state_dir={tmp_path}/.state", "master=local[2]", "restart-strategy.type=none"])
        ScriptRunner("script", answers.take, answers.known, settings=settings, parallelism=2).run(script)
        return [(kind, tuple(row)) for kind, row in answers.changes]

    return ran


def test_rows_of_a_generated_table_are_the_same_each_time(run: Any) -> None:
    query = "SELECT id, who FROM orders WHERE MOD(id, 2) = 0"
    first = run(ORDERS + query)
    assert sorted(row[0] for _, row in first) == list(range(2, 1001, 2))
    assert {who for _, (_, who) in first} == {None, 1, 2, 3, 4, 5, 6}
    assert Counter(run(ORDERS + query)) == Counter(first)
