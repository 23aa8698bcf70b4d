"""Lookup joins in SQL, on a real Spark and a real PostgreSQL server."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from poundlock.errors import PoundlockError
from poundlock.sql.running.shown import FinalTable
from support.sql_scripts import ORDERS, changes_of

pytestmark = [pytest.mark.engine, pytest.mark.services, pytest.mark.usefixtures("shared_jvm")]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    return partial(changes_of, folder=tmp_path)


def test_rows_are_joined_with_a_table_as_it_is(postgres_server: Any, run: Any) -> None:
    postgres_server.execute(
        "DROP SCHEMA public CASCADE",
        "CREATE SCHEMA public",
        "CREATE TABLE people (id int PRIMARY KEY, name varchar(10), land char(2), since date)",
        "INSERT INTO people VALUES (1, 'ann', 'de', '2026-01-05'), (2, 'o''b\\', 'fr', NULL), (3, NULL, 'de', '2026-01-06'), (9, 'eve', 'de', NULL)",
        "CREATE TABLE tags (person bigint, tag text)",
        "INSERT INTO tags VALUES (1, 'a'), (1, 'o''b\\'), (2, 'a')",
    )

    def table(name: str, columns: str, more: str = "") -> str:
        url = f"jdbc:postgresql://127.0.0.1:{postgres_server.port}/postgres"
        return f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'jdbc', 'url' = '{url}', 'table-name' = '{name}', 'username' = 'postgres'{more});"

    cached = ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '2'"
    head = ORDERS + table("people", "id INT, name STRING, land STRING, since DATE", cached)
    head += table("tags", "person BIGINT, tag STRING")
    people = {1: ("ann", "de", "2026-01-05"), 2: ("o'b\\", "fr", None), 3: (None, "de", "2026-01-06")}
    orders = [row for _, row in run(ORDERS + "SELECT id, who FROM orders")]

    left = run(
        f"{head} SELECT o.id, o.who, p.name, p.land, p.since FROM orders AS o"
        " LEFT JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON o.who = p.id AND p.land = 'de'"
    )
    german = {key: value for key, value in people.items() if value[1] == "de"}
    wanted = [("+I", (id, who, *german.get(who, (None, None, None)))) for id, who in orders]
    assert Counter(left) == Counter(wanted)

    inner = run(
        f"{head} SELECT o.id, p.name, t.tag FROM orders AS o"
        " JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON o.who = p.id"
        " JOIN tags FOR SYSTEM_TIME AS OF o.pt AS t ON o.who = t.person AND t.tag <> 'none' WHERE o.id <= 100"
    )
    tags = {1: ["a", "o'b\\"], 2: ["a"]}
    pairs = [("+I", (id, people[who][0], tag)) for id, who in orders if id <= 100 for tag in tags.get(who, [])]
    assert Counter(inner) == Counter(pairs)

    full = ", 'lookup.cache' = 'FULL', 'lookup.full-cache.periodic-reload.interval' = '1 h'"
    whole = run(
        f"{ORDERS} {table('people', 'id INT, name STRING, land STRING, since DATE', full)}"
        " SELECT o.id, o.who, p.name, p.land, p.since FROM orders AS o"
        " LEFT JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON o.who = p.id AND p.land = 'de'"
    )
    assert Counter(whole) == Counter(wanted)

    by_two = run(
        f"{head} SELECT o.id, t.tag FROM (SELECT id, who, IF(id < 500, 'a', 'o''b\\') AS want, pt FROM orders) AS o"
        " JOIN tags FOR SYSTEM_TIME AS OF o.pt AS t ON o.who = t.person AND o.want = t.tag"
    )
    wants = [(id, who, "a" if id < 500 else "o'b\\") for id, who in orders]
    both = [("+I", (id, want)) for id, who, want in wants if want in tags.get(who, [])]
    assert both
    assert Counter(by_two) == Counter(both)

    changing = run(
        f"{head} SELECT o.who, o.n, p.name, p.since FROM (SELECT who, COUNT(*) AS n, PROCTIME() AS pt FROM orders GROUP BY who) AS o"
        " LEFT JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON o.who = p.id"
    )
    counts = Counter(who for _, who in orders)
    final = FinalTable()
    final.take(changing)
    named = {key: (value[0], value[2]) for key, value in people.items()}
    assert Counter(map(tuple, final.rows())) == Counter(
        (who, count, *named.get(who, (None, None))) for who, count in counts.items()
    )

    with pytest.raises(PoundlockError, match="there is no table absent") as refused:
        run(
            ORDERS + table("absent", "id BIGINT")
            + "SELECT o.id FROM orders AS o JOIN absent FOR SYSTEM_TIME AS OF o.pt AS a ON o.who = a.id"
        )  # fmt: skip
    assert str(refused.value).count("\n") <= 1
