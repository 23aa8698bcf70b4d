"""Tables of Iceberg in SQL: rows added by partition and replaced by key, and read back by queries."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.iceberg_tables import catalog_in
from support.sql_scripts import changes_of

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("shared_jvm")]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    return partial(changes_of, folder=tmp_path)


def test_rows_go_into_tables_and_come_back(run: Any, tmp_path: Path) -> None:
    rows = [{"k": n % 3, "n": n, "s": "x" * (n % 4)} for n in range(300)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    catalog = catalog_in(tmp_path)
    place = ", ".join(
        f"'{name}' = '{value}'"
        for name, value in {
            "connector": "iceberg",
            "catalog-name": "c",
            "catalog-type": "sql",
            "uri": catalog["uri"],
            "warehouse": catalog["warehouse"],
            "catalog-database": "db",
        }.items()
    )
    head = f"""
        CREATE TABLE source (k INT, n BIGINT, s STRING) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
        CREATE TABLE added (k INT, n BIGINT, s STRING) PARTITIONED BY (k) WITH ({place});
        CREATE TABLE totals (k INT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({place});"""
    run(f"{head} INSERT INTO added SELECT * FROM source; INSERT INTO totals SELECT k, SUM(n) FROM source GROUP BY k")
    changes = run(f"{head} SELECT n, s FROM added WHERE k = 1")
    wanted = Counter(("+I", (row["n"], row["s"])) for row in rows if row["k"] == 1)
    assert Counter(changes) == wanted
    totals = {k: sum(row["n"] for row in rows if row["k"] == k) for k in range(3)}
    assert Counter(run(f"{head} SELECT k, total FROM totals")) == Counter(("+I", pair) for pair in totals.items())
