"""Generated tables in SQL, run by two tasks on a real Spark."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.sql_scripts import ORDERS, changes_of

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    return partial(changes_of, folder=tmp_path)


def test_rows_of_a_generated_table_are_the_same_each_time(run: Any) -> None:
    query = "SELECT id, who FROM orders WHERE MOD(id, 2) = 0"
    first = run(ORDERS + query)
    assert sorted(row[0] for _, row in first) == list(range(2, 1001, 2))
    assert {who for _, (_, who) in first} == {None, 1, 2, 3, 4, 5, 6}
    assert Counter(run(ORDERS + query)) == Counter(first)
