"""Changes of PostgreSQL's tables on a real server, without Spark: several tables, chunks beside the log, deaths between, changes of the schema."""

from __future__ import annotations

import json
import pickle
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poundlock import DefinitionError, PostgresSource, TransientError
from poundlock.connectors.base import ReaderContext
from poundlock.errors import SourceGoneError, TerminalError
from poundlock.storage import LocalStorage
from poundlock.testing import source_conformance
from support.placeless import PlacelessSource

pytestmark = pytest.mark.services

SLOT = {"slot": "s", "publication": "pub", "poll_every": "0 s"}


@pytest.fixture
def pg(postgres_server: Any) -> Iterator[Any]:
    server = postgres_server
    server.start()
    server.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    yield server
    server.start()
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datid > 0"
    )
    for (slot,) in server.execute("SELECT slot_name FROM pg_replication_slots WHERE NOT temporary"):
        server.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    for (name,) in server.execute("SELECT pubname FROM pg_publication"):
        server.execute(f"DROP PUBLICATION {name}")


class Life:
    """One life of a driver that reads a source, checkpoint by checkpoint."""

    def __init__(self, source: PostgresSource, folder: Path, at: Any = None) -> None:
        # A process of its own has looked nothing up yet.
        self.source, self.folder = replace(source), folder
        self.enumerator = self.source.enumerator(LocalStorage(str(folder)))
        self.at = self.enumerator.initial() if at is None else at
        self.ways: list[tuple[Any, Any, list[dict[str, Any]]]] = []

    def checkpoint(self) -> list[dict[str, Any]]:
        end = self.enumerator.latest(self.at)
        if end == self.at:
            return []
        rows = self.between(self.at, end)
        self.decide(end, rows)
        return rows

    def decide(self, end: Any, rows: list[dict[str, Any]]) -> None:
        self.ways.append((self.at, end, rows))
        self.at = end
        self.enumerator.committed(end)

    def between(self, start: Any, end: Any) -> list[dict[str, Any]]:
        self.source.schema()
        source = pickle.loads(pickle.dumps(self.source))
        return [
            row
            for split in self.enumerator.splits(start, end)
            for chunk in source.reader(ReaderContext(reject=None)).read(split)
            for row in chunk.batch.to_pylist()
        ]

    def rest(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while rows := self.checkpoint():
            found += rows
        return found

    def next(self, source: PostgresSource | None = None) -> Life:
        """Return the life after this one, which dies."""
        self.enumerator.close()
        return Life(source or self.source, self.folder, self.at)


def source_of(pg: Any, *tables: str, **settings: Any) -> PostgresSource:
    return PostgresSource(pg.dsn, tables=tables or ["public.t"], mode="cdc", **{**SLOT, **settings})


def filled(pg: Any, *tables: str, count: int = 0, columns: str = "id int PRIMARY KEY, v text") -> None:
    for name in tables:
        pg.execute(
            f"CREATE TABLE {name} ({columns})",
            f"ALTER TABLE {name} REPLICA IDENTITY FULL",
            *([f"INSERT INTO {name} SELECT i, i::text FROM generate_series(1, {count}) i"] if count else []),
        )
    pg.execute(f"CREATE PUBLICATION pub FOR TABLE {', '.join(tables)}")


Tables = dict[str, dict[Any, Any]]


def materialised(rows: Sequence[dict[str, Any]], tables: Tables, key: str = "id") -> Tables:
    """Return the tables that changes lead to, in the order they came; each has to fit what the ones before it made."""
    for row in rows:
        table = tables.setdefault(row["table"], {})
        before, after = row["before"], row["after"]
        if row["op"] == "truncate":
            table.clear()
        if row["op"] in ("update", "delete"):
            assert table.pop(before[key]) == before, row
        if after is not None:
            assert after[key] not in table, row
            table[after[key]] = after
    return tables


def tables_of(pg: Any, *names: str) -> Tables:
    return {
        f"public.{name}": {id: {"id": id, "v": v} for id, v in pg.execute(f"SELECT id, v FROM {name}")}
        for name in names
    }


def write(pg: Any, chance: random.Random, names: Sequence[str], most: int) -> None:
    """Change a few rows in a few transactions that run side by side; some are rolled back, and some move keys."""
    with pg.connect(autocommit=False) as one, pg.connect(autocommit=False) as other:
        for connection in (one, other, one):
            for _ in range(chance.randrange(1, 5)):
                name, a, b = chance.choice(names), chance.randrange(most // 2), chance.randrange(most // 2)
                if connection is other:  # rows of its own, so that neither waits for the other
                    a, b = a + most // 2, b + most // 2
                connection.execute(
                    chance.choice(
                        [
                            f"INSERT INTO {name} VALUES ({a}, 'new{b}') ON CONFLICT DO NOTHING",
                            f"UPDATE {name} SET v = left(v, 20) || '{b % 7}' WHERE id = {a}",
                            f"UPDATE {name} SET id = {b} WHERE id = {a} AND NOT EXISTS (SELECT FROM {name} WHERE id = {b})",
                            f"DELETE FROM {name} WHERE id = {a}",
                            f"INSERT INTO {name} VALUES ({a}, 'put{b}') ON CONFLICT (id) DO UPDATE SET v = excluded.v",
                        ]
                    )
                )
            if connection is other:
                connection.rollback() if chance.random() < 0.2 else connection.commit()
        one.rollback() if chance.random() < 0.2 else one.commit()


# --- chunks beside the log --------------------------------------------------------------------------------------------


def test_chunks_and_changes_of_two_tables_lead_to_them_and_come_twice_alike(pg: Any, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    filled(pg, "t", "u", count=150)
    source = source_of(pg, r"public\.[tu]", chunk_size=17, chunks_per_checkpoint=3)
    source.preflight()
    life, made = Life(source, tmp_path), Tables()
    again: list[tuple[Any, Any, list[dict[str, Any]]]] = []
    for _ in range(9):
        write(pg, chance, ["t", "u"], 180)
        end = life.enumerator.latest(life.at)
        write(pg, chance, ["t", "u"], 180)  # behind the place that is read up to, before the chunks are
        if chance.random() < 0.3:  # a driver dies before the decision, and another plans
            life = life.next()
            continue
        rows = life.between(life.at, end) if end != life.at else []
        start = life.at
        if (
            chance.random() < 0.5
        ):  # a driver dies behind the decision, and another reads it once more: the state is gone
            life = life.next()
            assert life.between(start, end) == rows
        life.decide(end, rows)
        again.append((start, end, rows))
        materialised(rows, made)
    middle = [dict(way[1]["tables"]) for way in again]
    materialised(life.rest(), made)
    assert made == tables_of(pg, "t", "u")
    assert len({json.dumps(each, sort_keys=True) for each in middle}) > 2


def test_a_start_goes_on_in_the_middle_of_a_table(pg: Any, tmp_path: Path) -> None:
    filled(pg, "t", "u", count=40)
    life = Life(source_of(pg, "public.t", "public.u", chunk_size=10, chunks_per_checkpoint=1), tmp_path)
    found = []
    for _ in range(8):
        found.append(life.checkpoint())
        life = life.next()
    assert [sorted({row["table"] for row in rows}) for rows in found] == [["public.t"]] * 4 + [["public.u"]] * 4
    assert [row["after"]["id"] for row in found[1]] == list(range(11, 21))
    assert life.checkpoint() == []
    pg.execute("DELETE FROM u WHERE id = 7", "UPDATE t SET v = 'x' WHERE id = 40")
    assert [(row["table"], row["op"]) for row in life.rest()] == [("public.u", "delete"), ("public.t", "update")]


def test_writers_while_a_state_is_looked_for(pg: Any, tmp_path: Path) -> None:
    filled(pg, "t", "u", count=400)
    stop, made = threading.Event(), Tables()

    def busy(seed: int) -> None:
        chance = random.Random(seed)
        with pg.connect() as connection:
            while not stop.is_set():
                name, key = chance.choice("tu"), seed * 200 + chance.randrange(200) + 1
                connection.execute(f"UPDATE {name} SET v = v || 'x' WHERE id = {key}")

    writers = [threading.Thread(target=busy, args=(n,)) for n in range(2)]
    for writer in writers:
        writer.start()
    life = Life(source_of(pg, "public.t", "public.u", chunk_size=60, chunks_per_checkpoint=2), tmp_path)
    try:
        for _ in range(8):
            materialised(life.checkpoint(), made)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    materialised(life.rest(), made)
    assert made == tables_of(pg, "t", "u")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id uuid PRIMARY KEY, v text", 4),
        ("id timestamptz PRIMARY KEY, v text", 4),
        ("id date PRIMARY KEY, v text", 4),
        ("id text PRIMARY KEY, v text", 1),
        ("id text, v text", 1),
    ],
)
def test_keys_of_each_kind(pg: Any, tmp_path: Path, columns: str, said: int) -> None:
    filled(pg, "t", columns=columns)
    value = {"u": "md5(i::text)::uuid", "t": "'2020-01-01'::date + i"}.get(columns[3], "'2020-01-01'::date + i")
    value = "'Key ' || chr(60 + i)" if "text," in columns[:8] else value
    pg.execute(f"INSERT INTO t SELECT {value}, i::text FROM generate_series(1, 20) i")
    life = Life(source_of(pg, chunk_size=6, chunks_per_checkpoint=9), tmp_path)
    first = life.checkpoint()
    assert len(life.enumerator.splits(*life.ways[0][:2])) == said
    assert sorted(row["after"]["v"] for row in first) == sorted(str(n) for n in range(1, 21))
    pg.execute("UPDATE t SET v = 'changed' WHERE v IN ('3', '17')", "DELETE FROM t WHERE v = '9'")
    life = life.next()
    if "PRIMARY KEY" in columns:
        assert life.between(*_first(life, tmp_path)) == first
    else:
        with pytest.raises(TransientError, match="has no primary key"):
            life.between(*_first(life, tmp_path))
    assert [row["op"] for row in life.rest()] == ["update", "update", "delete"]


def _first(life: Life, folder: Path) -> tuple[Any, Any]:
    """Return the first range of a job whose newest decision is its end."""
    return life.enumerator.initial(), life.at


def test_a_table_that_logs_keys_alone_is_read_from_the_state_that_is_held(pg: Any, tmp_path: Path) -> None:
    filled(pg, "t", count=30)
    pg.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
    life, made = Life(source_of(pg, before="key", chunk_size=10, chunks_per_checkpoint=1), tmp_path), dict[int, str]()
    for n in range(6):
        end = life.enumerator.latest(life.at)
        pg.execute(
            f"UPDATE t SET v = 'at {n}' WHERE id IN (5, 25)", f"DELETE FROM t WHERE id = {n + 11}",
            f"UPDATE t SET id = {n + 101} WHERE id = {n + 1}",
        )  # fmt: skip
        rows = life.between(life.at, end)
        life.decide(end, rows)
        for row in rows:
            if row["before"] is not None:
                made.pop(row["before"]["id"], None)
            if row["after"] is not None:
                made[row["after"]["id"]] = row["after"]["v"]
        if n == 0:
            dead = life.next()
            with pytest.raises(TransientError, match="logs the keys of changed rows alone"):
                dead.between(dead.enumerator.initial(), dead.at)
            life = dead
    for row in life.rest():
        if row["before"] is not None:
            made.pop(row["before"]["id"], None)
        if row["after"] is not None:
            made[row["after"]["id"]] = row["after"]["v"]
    assert made == dict(pg.execute("SELECT id, v FROM t"))


def test_a_table_that_is_emptied_while_a_chunk_is_read(pg: Any, tmp_path: Path) -> None:
    """An older state shows nothing of it, so a chunk would lose its rows in silence."""
    filled(pg, "t", count=30)
    source = source_of(pg, chunk_size=10, chunks_per_checkpoint=1)
    life = Life(source, tmp_path)
    made = materialised(life.checkpoint(), {})
    end = life.enumerator.latest(life.at)
    pg.execute("TRUNCATE t", "INSERT INTO t VALUES (1, 'after'), (25, 'after')")
    with pytest.raises(TransientError, match="was emptied, or written anew"):
        life.between(life.at, end)
    assert materialised(life.next().rest(), made) == tables_of(pg, "t")


def test_partitioned_tables_are_read_as_one(pg: Any, tmp_path: Path) -> None:
    pg.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (0) TO (50)",
        "CREATE TABLE t_high PARTITION OF t FOR VALUES FROM (50) TO (500)",
        *(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in ("t", "t_low", "t_high")),
        "INSERT INTO t SELECT i, i::text FROM generate_series(1, 99) i",
        "CREATE PUBLICATION pub FOR TABLE t WITH (publish_via_partition_root = true)",
    )
    life, made = Life(source_of(pg, r"public\..*", chunk_size=30, chunks_per_checkpoint=1), tmp_path), Tables()
    materialised(life.checkpoint(), made)
    pg.execute("UPDATE t SET id = 200 WHERE id = 7", "DELETE FROM t WHERE id = 90")
    materialised(life.rest(), made)
    assert made == tables_of(pg, "t")


# --- which tables -----------------------------------------------------------------------------------------------------


def test_a_table_that_comes_to_be_meant_is_read_from_its_beginning(pg: Any, tmp_path: Path) -> None:
    filled(pg, "t_1", count=5)
    source = source_of(pg, r"public\.t_[0-9]")
    life, made = Life(source, tmp_path), Tables()
    materialised(life.rest(), made)
    pg.execute(
        "CREATE TABLE t_2 (id int PRIMARY KEY, v text)", "ALTER TABLE t_2 REPLICA IDENTITY FULL", "ALTER PUBLICATION pub ADD TABLE t_2",
        "INSERT INTO t_2 VALUES (1, 'there'), (2, 'there')", "UPDATE t_1 SET v = 'x' WHERE id = 2",
    )  # fmt: skip
    materialised(life.rest(), made)
    assert list(made) == ["public.t_1"]
    pg.execute("DELETE FROM t_2 WHERE id = 1")
    life = life.next()
    rows = life.rest()
    assert [(row["table"], row["op"]) for row in rows] == [("public.t_2", "read")]
    materialised(rows, made)
    pg.execute("INSERT INTO t_2 VALUES (3, 'new')", "DELETE FROM t_1 WHERE id = 1")
    materialised(life.rest(), made)
    assert made == tables_of(pg, "t_1", "t_2")
    with pytest.raises(DefinitionError, match=r"has read public\.t_1 so far"):
        life.next(source_of(pg, "public.t_2")).checkpoint()


def test_tables_that_are_not_there_or_unlike_are_refused_by_name(pg: Any) -> None:
    filled(pg, "t")
    pg.execute(
        "CREATE TABLE other (id int PRIMARY KEY, w int)", "ALTER PUBLICATION pub ADD TABLE other",
        "CREATE TABLE g (id int PRIMARY KEY, w int GENERATED ALWAYS AS (id + 1) STORED)",
        "ALTER TABLE g REPLICA IDENTITY FULL", "ALTER TABLE other REPLICA IDENTITY FULL",
        "CREATE PUBLICATION all_of_it FOR ALL TABLES",
    )  # fmt: skip
    for source, said in (
        (source_of(pg, "public.absent"), "no table public.absent"),
        (source_of(pg, r"public\.x_[0-9]+"), "no table public"),
        (source_of(pg, "public.t", "public.other"), "public.t has other columns than public.other"),
        (source_of(pg, "public.g"), "does not have table public.g"),
        (source_of(pg, key="v"), "by 'v': it is none of smallint"),
        (source_of(pg, key="w"), "by 'w': it is not read"),
        (source_of(pg, "public.other", key="w"), "by 'w': it may be null"),
        (source_of(pg, "public.other", key="w", before="key"), "the old values of the primary key alone"),
        (source_of(pg, "public.g", columns=["id", "w"], publication="all_of_it"), "generated|leaves out column 'w'"),
    ):
        with pytest.raises(DefinitionError, match=said) as caught:
            source.preflight()
        assert str(caught.value).count("\n") == 1
    source_of(pg, "public.t", "public.other", columns=["id"]).preflight()


def test_tables_of_unlike_columns_come_as_debezium_writes_them(pg: Any, tmp_path: Path) -> None:
    filled(pg, "a", count=1)
    pg.execute(
        "CREATE TABLE b (k text PRIMARY KEY, n numeric(9, 2), t time)", "ALTER TABLE b REPLICA IDENTITY FULL", "ALTER PUBLICATION pub ADD TABLE b",
    )  # fmt: skip
    life = Life(source_of(pg, r"public\.[ab]", output="debezium"), tmp_path)
    (read,) = life.rest()
    value = json.loads(read["value"])
    assert (read["table"], read["key"], value["op"], value["after"]) == (
        "public.a",
        '{"id":1}',
        "r",
        {"id": 1, "v": "1"},
    )
    with pg.connect(autocommit=False) as connection:
        connection.execute("INSERT INTO b VALUES ('x', 1.5, '01:00:01.5')")
        connection.execute("DELETE FROM a")
        connection.commit()
    pg.execute("TRUNCATE b")
    rows = life.rest()
    values = [json.loads(row["value"]) for row in rows]
    assert [(row["table"], value["op"]) for row, value in zip(rows, values, strict=True)] == [
        ("public.b", "c"), ("public.a", "d"), ("public.b", "t"),
    ]  # fmt: skip
    assert values[0]["after"] == {"k": "x", "n": "1.50", "t": 3601500000}
    assert (values[1]["source"]["row"], values[1]["source"]["db"], rows[2]["key"]) == (2, "postgres", None)


# --- changes of the schema --------------------------------------------------------------------------------------------


def test_a_column_added_goes_on_and_comes_with_the_next_start(pg: Any, tmp_path: Path) -> None:
    filled(pg, "t", count=2)
    life = Life(source_of(pg), tmp_path)
    life.rest()
    pg.execute("INSERT INTO t VALUES (3, 'a')", "ALTER TABLE t ADD w int DEFAULT 7", "INSERT INTO t VALUES (4, 'b', 8)")
    assert [row["after"] for row in life.rest()] == [{"id": 3, "v": "a"}, {"id": 4, "v": "b"}]
    pg.execute("INSERT INTO t VALUES (5, 'c', 9)", "ALTER TABLE t ADD x int", "UPDATE t SET x = 1 WHERE id = 5")
    rows = life.next().rest()
    assert [row["after"] for row in rows] == [
        {"id": 5, "v": "c", "w": 9, "x": None},
        {"id": 5, "v": "c", "w": 9, "x": 1},
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DROP v", "column 'v' of public.t is gone"),
        ("RENAME v TO w", "column 'v' of public.t is gone"),
        ("ALTER id TYPE bigint", "column 'id' of public.t is of another type"),
    ],
)
def test_what_cannot_be_followed_stops_the_job_and_a_start_goes_on(
    pg: Any, tmp_path: Path, change: str, said: str
) -> None:
    filled(pg, "t", count=2)
    life = Life(source_of(pg), tmp_path)
    life.rest()
    pg.execute(f"ALTER TABLE t {change}", "INSERT INTO t (id) VALUES (9)")
    with pytest.raises(TerminalError, match=said):
        life.rest()
    (row,) = life.next().rest()
    assert (row["op"], row["after"]["id"]) == ("insert", 9)


def test_a_column_added_in_the_middle_of_the_chunks(pg: Any, tmp_path: Path) -> None:
    filled(pg, "t", count=30)
    life, made = Life(source_of(pg, chunk_size=10, chunks_per_checkpoint=1), tmp_path), Tables()
    materialised(life.checkpoint(), made)
    pg.execute("ALTER TABLE t ADD w int", "INSERT INTO t VALUES (99, 'x', 5)", "UPDATE t SET v = 'y' WHERE id = 3")
    materialised(life.rest(), made)
    assert made == tables_of(pg, "t")


# --- what is gone -----------------------------------------------------------------------------------------------------


def test_a_slot_that_vanished_in_the_middle_of_the_chunks(pg: Any, tmp_path: Path) -> None:
    filled(pg, "t", count=30)
    life = Life(source_of(pg, chunk_size=10, chunks_per_checkpoint=1), tmp_path)
    life.checkpoint()
    life = life.next()
    pg.execute("SELECT pg_drop_replication_slot('s')")
    with pytest.raises(SourceGoneError, match="replication slot 's' is gone"):
        life.checkpoint()


def test_the_server_goes_away_and_comes_back_in_the_middle_of_the_chunks(pg: Any, tmp_path: Path) -> None:
    filled(pg, "t", count=30)
    life, made = Life(source_of(pg, chunk_size=10, chunks_per_checkpoint=1), tmp_path), Tables()
    materialised(life.checkpoint(), made)
    end = life.enumerator.latest(life.at)
    pg.execute("DELETE FROM t WHERE id IN (3, 15)")
    pg.restart()
    with pytest.raises(TransientError):
        life.enumerator.latest(life.at)
    dead = life.next()
    # Read again as it was, though the state that it was planned with went with the server.
    assert [row["after"]["id"] for row in dead.between(dead.at, end)] == list(range(11, 21))
    materialised(dead.rest(), made)
    assert made == tables_of(pg, "t")


def test_a_position_that_an_earlier_version_wrote_goes_on(pg: Any, tmp_path: Path) -> None:
    filled(pg, "t", count=3)
    life = Life(source_of(pg, initial="none"), tmp_path)
    life.checkpoint()
    ((oid,),) = pg.execute("SELECT 't'::regclass::oid::int8")
    old = {"slot": "s", "lsn": life.at["lsn"], "oid": oid}
    pg.execute("DELETE FROM t WHERE id = 2")
    life.enumerator.close()
    (row,) = Life(source_of(pg), tmp_path, old).rest()
    assert (row["op"], row["before"]["id"]) == ("delete", 2)
    pg.execute("CREATE TABLE u (id int PRIMARY KEY, v text)", "ALTER TABLE u REPLICA IDENTITY FULL")
    pg.execute("ALTER PUBLICATION pub ADD TABLE u", "INSERT INTO u VALUES (1, 'there')")
    both = Life(source_of(pg, "public.t", "public.u"), tmp_path, old)
    assert [(row["table"], row["op"]) for row in both.rest()] == [("public.t", "delete"), ("public.u", "read")]
    first = {"slot": "s", "lsn": None}, {**old, "plan": "p", "snapshot": "x", "of": 1}
    with pytest.raises(SourceGoneError, match="decided by another version"):
        both.between(*first)
    with pytest.raises(SourceGoneError, match="created again"):
        Life(source_of(pg), tmp_path, {**old, "oid": 7}).checkpoint()


# --- contract ---------------------------------------------------------------------------------------------------------

ROWS = [{"id": n, "v": f"w{n}"} for n in range(12)]


def checked(pg: Any, only: Sequence[str] | None) -> Any:
    def make(folder: Path) -> PostgresSource:
        name = "c_" + "".join(c if c.isalnum() else "_" for c in folder.name).lower()
        pg.execute(
            f"CREATE TABLE IF NOT EXISTS {name} (id int PRIMARY KEY, v text)",
            f"ALTER TABLE {name} REPLICA IDENTITY FULL",
        )
        if not pg.execute(f"SELECT 1 FROM pg_publication WHERE pubname = '{name}'"):
            pg.execute(f"CREATE PUBLICATION {name} FOR TABLE {name}")
        for row in ROWS:
            pg.execute(f"INSERT INTO {name} VALUES ({row['id']}, '{row['v']}') ON CONFLICT DO NOTHING")
        given: dict[str, Any] = {**SLOT, "slot": name[-63:], "publication": name}
        return PlacelessSource(
            pg.dsn, tables=[f"public.{name}"], mode="cdc", chunk_size=3, chunks_per_checkpoint=2, **given
        )

    def change(source: PostgresSource) -> None:
        name = source.shown
        pg.execute(f"UPDATE {name} SET v = 'changed' WHERE id = 3", f"DELETE FROM {name} WHERE id = 8")

    def rows(source: PostgresSource) -> list[dict[str, Any]]:
        head = {"op": "read", "number": None, "xid": None, "commit_time": None, "table": source.shown, "before": None}
        return [{**head, "after": row} for row in ROWS]

    return source_conformance(make, rows=rows, change=change, patience_s=5, only=only)


def test_it_keeps_its_contract(pg: Any) -> None:
    only = ("reads-all", "splits-pure", "replay-promise")
    assert set(checked(pg, only).passed) == set(only)


@pytest.mark.torture
def test_it_keeps_all_of_its_contract(pg: Any) -> None:
    assert not checked(pg, None).failed
