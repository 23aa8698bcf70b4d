"""PostgresSource on a real server, its two halves without Spark: all modes, restarts, writers meanwhile, refusals."""

from __future__ import annotations

import decimal
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from poundlock import DefinitionError, PostgresSource, TransientError
from poundlock.connectors.base import ReaderContext
from poundlock.connectors.postgres.source.slots import find
from poundlock.errors import SourceGoneError, TerminalError
from poundlock.storage import LocalStorage
from poundlock.values import ManualClock

pytestmark = pytest.mark.services


@pytest.fixture
def pg(postgres_server: Any) -> Iterator[Any]:
    server = postgres_server
    server.start()
    server.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    yield server
    server.start()
    # A life that a test left behind holds its snapshot, and that a lock on the table.
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datid > 0"
    )
    for (slot,) in server.execute("SELECT slot_name FROM pg_replication_slots"):
        server.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    for (name,) in server.execute("SELECT pubname FROM pg_publication"):
        server.execute(f"DROP PUBLICATION {name}")


class Life:
    """One life of a driver that reads a source, checkpoint by checkpoint."""

    def __init__(self, source: PostgresSource, folder: Path, at: Any = None) -> None:
        self.source = source
        self.enumerator = source.enumerator(LocalStorage(str(folder)))
        self.at = self.enumerator.initial() if at is None else at
        self.before: Any = None

    def rows(self, end: Any = None) -> list[dict[str, Any]]:
        """Read up to where the next checkpoint may, decide nothing."""
        end = self.enumerator.latest(self.at) if end is None else end
        self.before, self.end = self.at, end
        return [] if end == self.at else self.between(self.at, end)

    def between(self, start: Any, end: Any) -> list[dict[str, Any]]:
        found = []
        source = pickle.loads(pickle.dumps(self.source))
        for split in self.enumerator.splits(start, end):
            reader = source.reader(ReaderContext(reject=None))
            found += [row for chunk in reader.read(split) for row in chunk.batch.to_pylist()]
        return found

    def decide(self) -> None:
        self.at = self.end
        self.enumerator.committed(self.at)

    def checkpoint(self) -> list[dict[str, Any]]:
        rows = self.rows()
        if self.end != self.at:
            self.decide()
        return rows

    def until(self, count: int, seconds: float = 60) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        end = time.monotonic() + seconds
        while len(found) < count:
            assert time.monotonic() < end, f"{len(found)} rows of {count}: {found[-3:]}"
            found += self.checkpoint()
        return found

    def die(self) -> None:
        self.enumerator.close()


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


# --- types ------------------------------------------------------------------------------------------------------------


def test_every_type_comes_as_it_is(pg: Any) -> None:
    pg.execute(
        "CREATE DOMAIN positive AS int CHECK (value > 0)",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        'CREATE TABLE "Every Kind" (b bool, s int2, i int4, l int8, r float4, d float8, n numeric(12,3), nn numeric, t text,'
        " v varchar(9), x bytea, day date, ts timestamp, tz timestamptz, u uuid, j jsonb, ai int[], at text[], af float8[],"
        " ad date[], p positive, m mood)",
        """INSERT INTO "Every Kind" VALUES (true, -1, 2, 9007199254740993, 1.5, 'NaN', -12.345, 123456789012345678901234567890.5,
           E'a "b"\\n,c\\\\', '', '\\x00ff', '0001-01-01', '1960-01-01 00:00:00.000001', '2020-06-01 12:00:00+02',
           '00000000-0000-0000-0000-000000000001', '{"a": [1, null]}', '{1,NULL,3}', '{"x,y",NULL,"NULL",""}', '{NaN,1.5}',
           '{2020-01-01}', 7, 'ok')""",
        'INSERT INTO "Every Kind" (i) VALUES (NULL)',
    )
    source = PostgresSource(pg.dsn, table='"Every Kind"')
    life = Life(source, Path("/nonexistent"))
    life.enumerator.close()
    from poundlock.connectors.base import Split
    from poundlock.connectors.postgres.source.reader import PostgresReader
    from poundlock.connectors.postgres.source.relation import look_up
    from poundlock.connectors.postgres.source.snapshot import copy_payload

    with source.login.connect() as connection:
        relation = look_up(connection, source)
    split = Split("1", copy_payload(relation.select(), relation.columns))
    chunks = list(PostgresReader(source.login, "t", ReaderContext(reject=None)).read(split))
    rows = [row for chunk in chunks for row in chunk.batch.to_pylist()]
    assert chunks[0].batch.schema.equals(source.schema())
    assert str(rows[0].pop("d")) == "nan"
    assert str(rows[0]["af"].pop(0)) == "nan"
    assert rows[0] == {
        "b": True, "s": -1, "i": 2, "l": 9007199254740993, "r": 1.5, "n": decimal.Decimal("-12.345"),
        "nn": "123456789012345678901234567890.5", "t": 'a "b"\n,c\\', "v": "", "x": b"\x00\xff", "day": date(1, 1, 1),
        "ts": datetime(1960, 1, 1, 0, 0, 0, 1), "tz": datetime(2020, 6, 1, 10, tzinfo=UTC),
        "u": "00000000-0000-0000-0000-000000000001", "j": '{"a": [1, null]}', "ai": [1, None, 3],
        "at": ["x,y", None, "NULL", ""], "af": [1.5], "ad": "{2020-01-01}", "p": 7, "m": "ok",
    }  # fmt: skip
    assert set(rows[1].values()) == {None}


def test_a_value_without_a_place_is_said(pg: Any, tmp_path: Path) -> None:
    pg.execute("CREATE TABLE t (ts timestamptz)", "INSERT INTO t VALUES ('infinity')")
    with pytest.raises(TerminalError, match="does not fit") as caught:
        Life(PostgresSource(pg.dsn, table="t"), tmp_path).rows()
    assert "::text" in caught.value.next


@pytest.fixture
def impatient(pg: Any) -> Iterator[None]:
    """The role's sessions are cut short after a moment, whatever they do, unless they say otherwise."""
    limits = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"]
    limits += ["transaction_timeout"] if pg.connect().info.server_version >= 170000 else []
    pg.execute(*(f"ALTER ROLE postgres SET {name} = '800ms'" for name in limits))
    yield
    pg.execute("ALTER ROLE postgres RESET ALL")


# --- snapshot ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "id", "name"])
def test_all_ranges_see_one_state(pg: Any, tmp_path: Path, key: str | None) -> None:
    pg.execute(
        "CREATE TABLE t (id bigint PRIMARY KEY, name text, version int DEFAULT 0)",
        "INSERT INTO t SELECT i, CASE WHEN i % 10 > 0 THEN md5(i::text) END FROM generate_series(1, 20000) i",
    )
    life = Life(PostgresSource(pg.dsn, table="public.t", key=key, split_size="64 KB"), tmp_path)
    end = life.enumerator.latest(life.at)
    # Every row changes, some go and some come, between the plan and the reading, and while ranges are read.
    pg.execute(
        "UPDATE t SET version = 1",
        "DELETE FROM t WHERE id % 3 = 0",
        "INSERT INTO t SELECT i FROM generate_series(-500, -1) i",
    )
    splits = life.enumerator.splits(life.at, end)
    assert len(splits) > 5
    rows = []
    for split in splits:
        pg.execute("UPDATE t SET version = version + 1 WHERE id % 100 = 1")
        rows += [r for c in life.source.reader(ReaderContext(reject=None)).read(split) for r in c.batch.to_pylist()]
    assert numbers(rows) == list(range(1, 20001))
    assert {row["version"] for row in rows} == {0}
    assert numbers(life.between(life.at, end)) == numbers(rows)  # and once more, while the snapshot is held
    life.rows(end)
    life.decide()
    assert life.enumerator.finished(life.at)
    while pg.execute("SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"):
        time.sleep(0.05)  # its backend ends in a moment; for ever if the snapshot were still held


def test_a_key_whose_value_has_only_nulls_in_it_is_read_once(pg: Any, tmp_path: Path) -> None:
    """Of a row type `IS NULL` holds for such a value, too, and yet it has a place in the order."""
    pg.execute(
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE TABLE t (id int, k pair)",
        "INSERT INTO t SELECT i, ROW(i, 'x')::pair FROM generate_series(1, 3000) i",
        "INSERT INTO t VALUES (0, NULL), (-1, ROW(NULL, NULL)::pair), (-2, ROW(5, NULL)::pair)",
    )
    rows = Life(PostgresSource(pg.dsn, table="t", key="k", split_size="16 KB"), tmp_path).rows()
    assert numbers(rows) == list(range(-2, 3001))


def test_a_name_with_a_nul_is_no_server_that_is_away(pg: Any) -> None:
    with pytest.raises(TerminalError, match="cannot contain NUL"):
        PostgresSource(pg.dsn, table="a\0b").preflight()


def test_a_table_without_columns_is_refused(pg: Any) -> None:
    pg.execute("CREATE TABLE bare ()", "INSERT INTO bare DEFAULT VALUES", "CREATE TABLE t (id int)")
    for source in (PostgresSource(pg.dsn, table="bare"), PostgresSource(pg.dsn, table="t", columns=[])):
        with pytest.raises(DefinitionError, match="no columns to read"):
            source.preflight()


@pytest.mark.parametrize("mode", ["snapshot", "incremental"])
def test_a_long_reading_is_not_cut_by_what_the_role_says(pg: Any, tmp_path: Path, impatient: None, mode: str) -> None:
    pg.execute("CREATE TABLE t (id int)", "INSERT INTO t SELECT generate_series(1, 50)")
    more: dict[str, Any] = {} if mode == "snapshot" else {"mode": mode, "column": "id", "settle": "0 s"}
    life = Life(PostgresSource(pg.dsn, table="t", where="pg_sleep(0.02)::text = ''", **more), tmp_path)
    assert numbers(life.until(50)) == list(range(1, 51))  # for which the sessions of the driver wait, too
    life.die()


def test_a_crash_before_the_decision_starts_over(pg: Any, tmp_path: Path) -> None:
    pg.execute("CREATE TABLE t (id int)", "INSERT INTO t SELECT generate_series(1, 100)")
    life = Life(PostgresSource(pg.dsn, table="t"), tmp_path)
    assert len(life.rows()) == 100
    life.die()
    pg.execute("INSERT INTO t VALUES (101)")
    again = Life(life.source, tmp_path, life.at)
    assert numbers(again.checkpoint()) == list(range(1, 102))


def test_what_is_left_of_a_lost_snapshot(pg: Any, tmp_path: Path) -> None:
    pg.execute("CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 0)", "INSERT INTO t SELECT generate_series(1, 5000)")
    settings: dict[str, Any] = {"table": "t", "split_size": "32 KB", "ranges_per_checkpoint": 2}
    life = Life(PostgresSource(pg.dsn, lost_snapshot="newer", **settings), tmp_path)
    first = life.checkpoint()
    assert 0 < len(first) < 5000
    life.die()
    pg.execute("UPDATE t SET v = 1")
    with pytest.raises(SourceGoneError, match="2 of") as caught:
        Life(PostgresSource(pg.dsn, **settings), tmp_path, life.at).rows()
    assert 'lost_snapshot="newer"' in caught.value.next
    with pytest.raises(
        SourceGoneError, match="once more"
    ):  # what was decided is not read from another state in silence
        Life(life.source, tmp_path).between(life.enumerator.initial(), life.at)
    again = Life(life.source, tmp_path, life.at)
    rest = again.until(5000 - len(first))
    assert again.enumerator.finished(again.at)
    assert numbers(first + rest) == list(range(1, 5001))
    assert {row["v"] for row in first} == {0}
    assert {row["v"] for row in rest} == {1}


def test_a_server_that_dies_takes_the_snapshot_along(pg: Any, tmp_path: Path) -> None:
    pg.execute("CREATE TABLE t (id int)", "INSERT INTO t SELECT generate_series(1, 100)")
    life = Life(PostgresSource(pg.dsn, table="t"), tmp_path)
    end = life.enumerator.latest(life.at)
    pg.restart()
    with pytest.raises(TransientError):
        life.between(life.at, end)
    life.die()
    assert len(Life(life.source, tmp_path, life.at).checkpoint()) == 100


def test_queries_partitions_empty_tables_and_conditions(pg: Any, tmp_path: Path) -> None:
    pg.execute(
        "CREATE TABLE p (id int, k int) PARTITION BY LIST (k)",
        "CREATE TABLE p0 PARTITION OF p FOR VALUES IN (0)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)",
        "INSERT INTO p SELECT i, i % 2 FROM generate_series(1, 6000) i",
        "CREATE TABLE empty (id int)",
        "CREATE VIEW w AS SELECT * FROM p WHERE id <= 10",
    )
    for source, expected in (
        (PostgresSource(pg.dsn, table="p", split_size="32 KB"), range(1, 6001)),
        (
            PostgresSource(pg.dsn, table="p", where="id::text NOT LIKE '%7%' AND id < 30", columns="id"),
            [i for i in range(1, 30) if "7" not in str(i)],
        ),
        (
            PostgresSource(pg.dsn, query="SELECT id, '%' AS s FROM p WHERE k = 1;", key="id", split_size="32 KB"),
            range(1, 6001, 2),
        ),
        (PostgresSource(pg.dsn, table="empty"), []),
        (PostgresSource(pg.dsn, table="w"), range(1, 11)),
    ):
        source.preflight()
        life = Life(source, tmp_path / str(abs(hash(source))))
        assert numbers(life.checkpoint()) == list(expected)
        assert life.enumerator.finished(life.at)


def test_options_of_the_dsn_hold_for_a_snapshot(pg: Any, tmp_path: Path) -> None:
    pg.execute("DROP SCHEMA IF EXISTS other CASCADE", "CREATE SCHEMA other", "CREATE TABLE other.t (id int)")
    pg.execute("CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)", "INSERT INTO other.t VALUES (2)")
    source = PostgresSource(f"{pg.dsn}?options=-csearch_path%3Dother", table="t")
    assert numbers(Life(source, tmp_path).checkpoint()) == [2]


def test_columns_that_changed_before_the_rest_of_a_snapshot_stop_the_job(pg: Any, tmp_path: Path) -> None:
    pg.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT i, 'x' FROM generate_series(1, 2000) i"
    )

    def source(**more: Any) -> PostgresSource:
        return PostgresSource(
            pg.dsn, table="t", lost_snapshot="newer", ranges_per_checkpoint=1, split_size="16 KB", **more
        )

    life = Life(source(), tmp_path)
    rows = life.checkpoint()
    life.die()
    pg.execute("ALTER TABLE t ADD w int")
    again = Life(source(), tmp_path, life.at)
    with pytest.raises(TerminalError, match="other columns now") as caught:
        again.rows()
    assert "columns=['id', 'v']" in caught.value.next
    again.die()
    mended = Life(source(columns=["id", "v"]), tmp_path, life.at)
    while not mended.enumerator.finished(mended.at):
        rows += mended.checkpoint()
    assert numbers(rows) == list(range(1, 2001))
    assert {tuple(row) for row in rows} == {("id", "v")}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ADD w int DEFAULT 7", ""),
        ("DROP v", "'v' of t is gone"),
        ("ALTER v TYPE int USING 1", "'v' of t was string and is int32"),
        ("RENAME v TO w", "'v' of t is gone"),
    ],
)
def test_columns_that_change_while_the_driver_has_to_connect_again(
    pg: Any, tmp_path: Path, change: str, said: str
) -> None:
    """What is read is what the job was planned with, or it stops: rows never get other columns in mid-life."""
    pg.execute("CREATE TABLE t (id int, v text)", "INSERT INTO t VALUES (1, 'a')")
    source = PostgresSource(pg.dsn, table="t", mode="incremental", column="id", settle="0 s", poll_every="0 s")
    source.schema()
    life = Life(source, tmp_path)
    assert life.until(1) == [{"id": 1, "v": "a"}]
    pg.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'poundlock'",
        f"ALTER TABLE t {change}",
        "INSERT INTO t (id) VALUES (2)",
    )
    with pytest.raises(TransientError):
        life.rows()  # the connection is broken
    if said:
        with pytest.raises(TerminalError, match=said):
            life.rows()
    else:
        assert life.until(1) == [{"id": 2, "v": None}]


# --- incremental ------------------------------------------------------------------------------------------------------


def test_rows_come_in_the_order_of_a_column(pg: Any, tmp_path: Path) -> None:
    pg.execute(
        "CREATE TABLE t (id bigserial PRIMARY KEY, v text)",
        "INSERT INTO t (v) SELECT 'x' FROM generate_series(1, 1000)",
    )
    source = PostgresSource(
        pg.dsn,
        table="t",
        mode="incremental",
        column="id",
        settle="0 s",
        poll_every="0 s",
        max_rows_per_checkpoint=300,
        rows_per_split=100,
    )
    source.preflight()
    life = Life(source, tmp_path)
    assert numbers(life.checkpoint()) == list(range(1, 301))
    assert len(life.enumerator.splits(life.before, life.at)) == 3
    assert numbers(life.between(life.before, life.at)) == list(range(1, 301))
    life.rows()
    life.die()  # not decided: the same rows come again, and none else
    again = Life(source, tmp_path, life.at)
    assert numbers(again.until(700)) == list(range(301, 1001))
    assert again.checkpoint() == []
    pg.execute("INSERT INTO t (v) VALUES ('y')")
    assert numbers(again.until(1)) == [1001]


def test_a_transaction_that_commits_late_is_not_left_out(pg: Any, tmp_path: Path) -> None:
    pg.execute("CREATE TABLE t (id bigserial PRIMARY KEY)")
    source = PostgresSource(pg.dsn, table="t", mode="incremental", column="id", settle="0 s", poll_every="0 s")
    life = Life(source, tmp_path)
    with pg.connect(autocommit=False) as late:
        late.execute("INSERT INTO t DEFAULT VALUES")  # takes 1
        pg.execute("INSERT INTO t DEFAULT VALUES")  # takes 2, and is visible first
        assert [life.checkpoint() for _ in range(3)] == [[], [], []]
        late.commit()
    assert numbers(life.until(2)) == [1, 2]


def test_settle_gives_writers_time_that_took_a_time_and_wrote_later(pg: Any, tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    pg.execute("CREATE TABLE t (id int, ts timestamptz)", "INSERT INTO t VALUES (1, '2020-01-01 00:00:00.123456+00')")
    source = PostgresSource(
        pg.dsn, table="t", mode="incremental", column="ts", settle="5 s", poll_every="0 s", clock=clock
    )
    life = Life(source, tmp_path)
    assert life.checkpoint() == []
    pg.execute("INSERT INTO t VALUES (2, '2019-12-31')")
    clock.set(1_005_000)
    assert numbers(life.checkpoint()) == [1, 2]
    assert life.at["value"] == "2020-01-01 00:00:00.123456+00"


def test_a_value_behind_which_nothing_comes_stops_the_job(pg: Any, tmp_path: Path) -> None:
    pg.execute("CREATE TABLE t (id numeric)", "INSERT INTO t VALUES (1), ('NaN')")
    source = PostgresSource(pg.dsn, table="t", mode="incremental", column="id", settle="0 s", poll_every="0 s")
    with pytest.raises(TerminalError, match="the value NaN"):
        Life(source, tmp_path).rows()


def test_incremental_ends_at_until(pg: Any, tmp_path: Path) -> None:
    pg.execute("CREATE TABLE t (id int)", "INSERT INTO t SELECT generate_series(1, 50)")
    source = PostgresSource(
        pg.dsn,
        table="t",
        mode="incremental",
        column="id",
        start=10,
        until=60,
        settle="0 s",
        poll_every="0 s",
        max_rows_per_checkpoint=25,
    )
    assert source.bounded
    life = Life(source, tmp_path)
    assert numbers(life.until(40)) == list(range(11, 51))
    assert not life.enumerator.finished(life.at)
    pg.execute("INSERT INTO t SELECT generate_series(51, 70)")
    assert numbers(life.until(10)) == list(range(51, 61))
    assert life.enumerator.finished(life.at)
    for until, there in ((65, list(range(61, 66))), (20, []), (70, list(range(66, 71)))):
        life = Life(replace(source, until=until), tmp_path, life.at)
        assert not life.enumerator.finished(life.at), "another end is looked for"
        assert numbers(life.until(len(there)) if there else life.checkpoint()) == there
        assert life.enumerator.finished(life.at)


def test_writers_while_rows_are_read_lose_nothing(pg: Any, tmp_path: Path) -> None:
    """With time to settle: a number is taken from the sequence a moment before the transaction has one of its own."""
    pg.execute("CREATE TABLE t (id bigserial PRIMARY KEY, w int)")
    source = PostgresSource(pg.dsn, table="t", mode="incremental", column="id", settle="1 s", poll_every="0 s")
    life = Life(source, tmp_path)

    def write(writer: int) -> None:
        with pg.connect(autocommit=False) as connection:
            for i in range(60):
                connection.execute("INSERT INTO t (w) SELECT %s FROM generate_series(1, 5)", [writer])
                time.sleep(0.002 * (i % 5))
                connection.rollback() if i % 7 == writer else connection.commit()

    writers = [threading.Thread(target=write, args=(w,)) for w in range(4)]
    for each in writers:
        each.start()
    rows: list[dict[str, Any]] = []
    while any(each.is_alive() for each in writers):
        rows += life.checkpoint()
    expected = [row[0] for row in pg.execute("SELECT id FROM t ORDER BY id")]
    assert len(expected) > 1000
    rows += life.until(len(expected) - len(rows)) if len(rows) < len(expected) else []
    assert numbers(rows) == expected


# --- change data capture ----------------------------------------------------------------------------------------------


def cdc(pg: Any, **more: Any) -> PostgresSource:
    settings: dict[str, Any] = {"slot": "s", "publication": "pub", "poll_every": "0 s", **more}
    return PostgresSource(pg.dsn, table="t", mode="cdc", **settings)


def changes(rows: list[dict[str, Any]]) -> list[tuple[str, Any, Any]]:
    return [(row["op"], row["before"], row["after"]) for row in rows]


@pytest.fixture
def table(pg: Any) -> Any:
    pg.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    return pg


def test_the_state_and_then_every_change(table: Any, tmp_path: Path) -> None:
    table.execute("INSERT INTO t SELECT i, 'old' FROM generate_series(1, 3) i")
    source = cdc(table)
    source.preflight()
    life = Life(source, tmp_path)
    end = life.enumerator.latest(life.at)
    table.execute("INSERT INTO t VALUES (4, 'new')")  # after the state that is read, and so a change
    first = life.rows(end)
    life.decide()
    assert changes(first) == [("read", None, {"id": i, "v": "old"}) for i in (1, 2, 3)]
    with table.connect(autocommit=False) as connection:
        connection.execute("UPDATE t SET v = 'changed' WHERE id = 1")
        connection.execute("DELETE FROM t WHERE id = 2")
        connection.execute("UPDATE t SET id = 9 WHERE id = 3")
        connection.commit()
    table.execute("TRUNCATE t")
    with table.connect(autocommit=False) as connection:
        connection.execute("INSERT INTO t VALUES (77, 'never')")
        connection.rollback()
    rows = life.until(5)
    assert changes(rows) == [
        ("insert", None, {"id": 4, "v": "new"}),
        ("update", {"id": 1, "v": "old"}, {"id": 1, "v": "changed"}),
        ("delete", {"id": 2, "v": "old"}, None),
        ("update", {"id": 3, "v": "old"}, {"id": 9, "v": "old"}),
        ("truncate", None, None),
    ]
    assert [row["number"] for row in rows] == [1, 1, 2, 3, 1]
    assert rows[1]["xid"] == rows[3]["xid"] != rows[4]["xid"]
    assert rows[0]["lsn"] < rows[1]["lsn"] == rows[2]["lsn"] < rows[4]["lsn"]
    assert first[0]["lsn"] <= rows[0]["lsn"]
    assert abs((datetime.now(UTC) - rows[0]["commit_time"]).total_seconds()) < 3600
    assert life.checkpoint() == []


def test_the_slot_moves_only_behind_decided_checkpoints(table: Any, tmp_path: Path) -> None:
    life = Life(cdc(table, initial="none"), tmp_path)
    life.checkpoint()
    ends = [life.at]
    for i in range(4):
        table.execute(f"INSERT INTO t VALUES ({i}, '')")
        start = life.at
        rows = life.rows()
        assert [row["after"]["id"] for row in rows] == [i]
        before = _confirmed(table)
        assert before <= _lsn(start)  # while it is not decided
        assert life.rows(life.end) == rows
        life.decide()
        ends.append(life.at)
        # What is decided can be read once more until the next decision: Spark may ask for it after a crash.
        assert _confirmed(table) <= _lsn(start)
        assert life.between(start, life.at) == rows
    assert _confirmed(table) == _lsn(ends[-2])
    life.die()
    table.execute("INSERT INTO t VALUES (100, '')")
    table.restart()
    again = Life(life.source, tmp_path, life.at)
    assert again.between(ends[-2], ends[-1]) == rows
    assert [row["after"]["id"] for row in again.until(1)] == [100]
    for id in (101, 102):
        table.execute(f"INSERT INTO t VALUES ({id}, '')")
        again.until(1)
    with pytest.raises(SourceGoneError, match="past this job's place"):
        Life(life.source, tmp_path, ends[0]).rows()


def _confirmed(server: Any) -> int:
    with server.connect() as connection:
        slot = find(connection, "s")
    assert slot is not None
    return slot.confirmed


def _lsn(position: dict[str, Any]) -> int:
    from poundlock.connectors.postgres.source.cdc_messages import lsn_of

    return lsn_of(position["lsn"])


def test_a_start_that_died_before_its_first_decision_makes_the_slot_anew(table: Any, tmp_path: Path) -> None:
    table.execute("INSERT INTO t VALUES (1, 'a')")
    life = Life(cdc(table), tmp_path)
    assert len(life.rows()) == 1
    life.die()
    table.execute("INSERT INTO t VALUES (2, 'b')")
    again = Life(life.source, tmp_path)
    assert [row["after"]["id"] for row in again.checkpoint()] == [1, 2]
    table.execute("INSERT INTO t VALUES (3, 'c')")
    assert changes(again.until(1)) == [("insert", None, {"id": 3, "v": "c"})]
    with pytest.raises(DefinitionError, match="is there already"):
        Life(life.source, tmp_path / "another job").rows()


def test_another_slot_in_the_job_is_told_whether_the_server_has_it_or_not(table: Any, tmp_path: Path) -> None:
    life = Life(cdc(table, initial="none"), tmp_path)
    life.checkpoint()
    table.execute("SELECT pg_create_logical_replication_slot('there', 'pgoutput')")
    for name in ("there", "absent"):
        with pytest.raises(DefinitionError, match=f"reads replication slot 's', and the source now says '{name}'"):
            Life(cdc(table, slot=name), tmp_path, life.at).rows()


def test_a_slot_that_is_gone_or_invalidated_stops_the_job(table: Any, tmp_path: Path) -> None:
    life = Life(cdc(table, initial="none"), tmp_path)
    life.checkpoint()
    table.execute("INSERT INTO t VALUES (1, '')")
    life.until(1)
    table.execute("SELECT pg_drop_replication_slot('s')")
    with pytest.raises(SourceGoneError, match="'s' is gone"):
        life.rows()
    lost = Life(cdc(table, initial="none", slot="s2"), tmp_path / "2")
    lost.checkpoint()
    table.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(4):
            table.execute(
                "SELECT pg_logical_emit_message(false, 'x', repeat('y', 1000000)) FROM generate_series(1, 17)",
                "SELECT pg_switch_wal()",
            )
        table.execute("CHECKPOINT")
        with pytest.raises(SourceGoneError, match="invalidated"):
            lost.rows()
    finally:
        table.execute("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")


def test_the_first_state_outlives_the_servers_patience(table: Any, tmp_path: Path, impatient: None) -> None:
    table.execute("INSERT INTO t VALUES (1, 'a')")
    life = Life(cdc(table), tmp_path)
    end = life.enumerator.latest(life.at)
    time.sleep(1)
    assert len(life.rows(end)) == 1
    life.decide()
    time.sleep(1)  # and so does the session that looks for changes
    table.execute("INSERT INTO t VALUES (2, 'b')")
    assert len(life.until(1)) == 1
    life.die()


@pytest.mark.parametrize("initial", ["snapshot", "none"])
def test_a_slot_waits_for_transactions_that_run(
    table: Any, tmp_path: Path, request: pytest.FixtureRequest, initial: str
) -> None:
    life = Life(cdc(table, initial=initial), tmp_path)
    with table.connect(autocommit=False) as writer, ThreadPoolExecutor(1) as pool:
        writer.execute("INSERT INTO t VALUES (1, 'a')")
        request.getfixturevalue("impatient")  # all sessions but this one
        made = pool.submit(life.checkpoint)
        with pytest.raises(TimeoutError):
            made.result(1)
        writer.commit()
        made.result(60)
    life.die()


def test_a_user_with_no_more_rights_than_the_page_asks_for_reads_changes(table: Any, tmp_path: Path) -> None:
    """docs/postgres.md: SELECT and REPLICATION. The server has tables, such as those of long values, that are not for this user."""
    table.execute(
        "INSERT INTO t VALUES (1, 'old')",
        "GRANT USAGE ON SCHEMA public TO reader",
        "GRANT SELECT ON t TO reader",
    )
    source = PostgresSource(
        table.dsn_of("reader", "open sesame"), table="t", mode="cdc", slot="s", publication="pub", poll_every="0 s"
    )
    source.preflight()
    with pytest.raises(DefinitionError, match="permission denied to start WAL sender") as caught:
        Life(source, tmp_path / "refused").checkpoint()
    assert "ALTER ROLE … REPLICATION" in caught.value.next
    table.execute("ALTER ROLE reader REPLICATION")
    try:
        life = Life(source, tmp_path)
        assert changes(life.until(1)) == [("read", None, {"id": 1, "v": "old"})]
        table.execute("UPDATE t SET v = 'new'")
        assert changes(life.until(1)) == [("update", {"id": 1, "v": "old"}, {"id": 1, "v": "new"})]
        life.die()
    finally:
        table.execute("ALTER ROLE reader NOREPLICATION")


def test_a_publication_that_leaves_out_rows_or_truncates_is_refused(table: Any) -> None:
    for options, said in (
        ("WITH (publish = 'insert, update, delete')", "leaves out"),
        ("WHERE (id > 5)", "only the rows"),
    ):
        table.execute("DROP PUBLICATION pub", f"CREATE PUBLICATION pub FOR TABLE t {options}")
        with pytest.raises(DefinitionError, match=said):
            cdc(table).preflight()


def test_a_publication_that_was_missing_for_a_while_stops_the_job(table: Any, tmp_path: Path) -> None:
    life = Life(cdc(table, initial="none"), tmp_path)
    life.checkpoint()
    table.execute("DROP PUBLICATION pub", "INSERT INTO t VALUES (1, 'a')", "CREATE PUBLICATION pub FOR TABLE t")
    table.execute("INSERT INTO t VALUES (2, 'b')")
    with pytest.raises((SourceGoneError, TerminalError), match="publication"):
        life.until(1)


@pytest.mark.parametrize(
    ("out", "back"),
    [
        ("ALTER PUBLICATION pub DROP TABLE t", "ALTER PUBLICATION pub ADD TABLE t"),
        ("ALTER PUBLICATION pub SET TABLE other", "ALTER PUBLICATION pub SET TABLE t"),
        ("ALTER PUBLICATION pub SET (publish = 'delete')", "ALTER PUBLICATION pub SET (publish = 'insert, update, delete, truncate')"),
        ("DROP PUBLICATION pub", "CREATE PUBLICATION pub FOR ALL TABLES"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("initial", ["snapshot", "none"])
def test_a_table_that_was_out_of_the_publication_for_a_moment_stops_the_job(
    table: Any, tmp_path: Path, out: str, back: str, initial: str
) -> None:
    table.execute("CREATE TABLE other (id int PRIMARY KEY)")
    life = Life(cdc(table, initial=initial), tmp_path)
    life.checkpoint()
    table.execute("INSERT INTO t VALUES (1, 'seen')")
    life.until(1)
    at = life.at
    table.execute("INSERT INTO t VALUES (2, 'seen')", out, "INSERT INTO t VALUES (3, 'lost')", back)
    table.execute("INSERT INTO t VALUES (4, 'seen')")
    for each in (life, Life(life.source, tmp_path, at)):
        with pytest.raises(SourceGoneError, match="changes that it left out meanwhile") as caught:
            each.until(1)
        assert str(caught.value).count("\n") == 1
        each.die()
    assert life.at == at, "nothing behind the gap was decided"


def test_what_else_is_done_to_a_publication_costs_nothing(table: Any, tmp_path: Path) -> None:
    table.execute("CREATE TABLE other (id int PRIMARY KEY)")
    life = Life(cdc(table, initial="none"), tmp_path)
    life.checkpoint()
    ((oid,),) = table.execute("SELECT 't'::regclass::oid::int8")
    life.at = {"slot": "s", "lsn": life.at["lsn"], "oid": oid}  # as an older version wrote it
    doings = [
        "ALTER PUBLICATION pub ADD TABLE other",
        "ALTER PUBLICATION pub DROP TABLE other",
        "VACUUM FREEZE pg_publication",
    ]
    if table.connect().info.server_version >= 150000:
        doings += ["ALTER PUBLICATION pub ADD TABLES IN SCHEMA public", "ALTER PUBLICATION pub DROP TABLE t"]
    for i, doing in enumerate(doings):
        table.execute(doing, f"INSERT INTO t VALUES ({i}, '')")
        assert [row["after"]["id"] for row in life.until(1)] == [i]
    life.die()


def test_a_publication_with_a_list_of_columns(pg: Any, tmp_path: Path) -> None:
    if pg.connect().info.server_version < 150000:
        pytest.skip("this server has no lists of columns")
    pg.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text, w text, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE PUBLICATION pub FOR TABLE t (id, v)",
        "CREATE PUBLICATION whole FOR TABLE t",
    )
    with pytest.raises(DefinitionError, match="leaves out column 'w' of t") as caught:
        cdc(pg, before="key").preflight()
    assert str(caught.value).count("\n") == 1
    cdc(pg, before="key", publication="whole").preflight()
    source = cdc(pg, before="key", columns=["v", "id"], initial="none")
    source.preflight()
    life = Life(source, tmp_path)
    life.checkpoint()
    pg.execute("INSERT INTO t VALUES (1, 'a', 'b')", "UPDATE t SET v = 'c'")
    assert [row["after"] for row in life.until(2)] == [{"v": "a", "id": 1}, {"v": "c", "id": 1}]


def test_a_table_made_anew_is_another_table(table: Any, tmp_path: Path) -> None:
    life = Life(cdc(table, initial="none"), tmp_path)
    life.checkpoint()
    life.die()
    table.execute("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, v text)")
    with pytest.raises(SourceGoneError, match="created again"):
        Life(life.source, tmp_path, life.at).rows()


def test_long_values_that_an_update_left_alone(pg: Any, tmp_path: Path) -> None:
    pg.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int, long text, raw bytea, many int[])",
        "ALTER TABLE t ALTER long SET STORAGE EXTERNAL",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE PUBLICATION pub FOR TABLE t",
        "INSERT INTO t SELECT 1, 0, repeat('x', 20000), '\\x0102', '{1,NULL}'",
    )
    life = Life(cdc(pg, initial="none"), tmp_path)
    life.checkpoint()
    pg.execute("UPDATE t SET n = 1")
    (row,) = life.until(1)
    assert row["after"] == {"id": 1, "n": 1, "long": "x" * 20000, "raw": b"\x01\x02", "many": [1, None]}
    pg.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT", "UPDATE t SET n = 2")
    with pytest.raises(TerminalError, match="as it was before its update"):
        life.rows()
    with pytest.raises(TerminalError, match="did not send"):
        Life(cdc(pg, initial="none", before="key"), tmp_path, life.at).rows()
    with pytest.raises(DefinitionError, match="as they were before"):
        cdc(pg).preflight()
    cdc(pg, before="key").preflight()


def test_a_quiet_table_on_a_busy_server_lets_go_of_the_log(table: Any, tmp_path: Path) -> None:
    table.execute("CREATE TABLE other (x text)")
    life = Life(cdc(table, initial="none"), tmp_path)
    life.checkpoint()
    at = life.at
    table.execute("INSERT INTO other VALUES ('little')")
    assert life.checkpoint() == []
    assert life.at == at  # and no checkpoint was needed for it
    for _ in range(2):
        table.execute("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 3000)")
        assert life.checkpoint() == []
    assert _confirmed(table) > _lsn(at)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_what_is_refused_before_a_start(pg: Any) -> None:
    pg.execute(
        "CREATE TABLE t (id int, v text)",
        "CREATE PUBLICATION pub FOR TABLE t WITH (publish = 'insert')",
        "CREATE PUBLICATION none",
        "GRANT USAGE ON SCHEMA public TO reader",
    )
    reader = pg.dsn_of("reader")
    for source, said in (
        (PostgresSource(reader, table="t", password="wrong horse"), "password authentication failed"),
        (PostgresSource(pg.dsn_of("reader", "wrong horse"), table="t"), "password authentication failed"),
        (PostgresSource(reader, table="t", password="open sesame"), "permission denied"),
        (PostgresSource(pg.dsn_of("postgres", database="nodb"), table="t"), '"nodb" does not exist'),
        (PostgresSource(pg.dsn, table="public.absent"), "no table public.absent"),
        (PostgresSource(pg.dsn, table="t", columns=["id", "absent"]), "no column 'absent'"),
        (PostgresSource(pg.dsn, table="t", where="absent > 1"), "absent"),
        (PostgresSource(pg.dsn, query="SELEC 1"), "syntax error"),
        (PostgresSource(pg.dsn, query="SELECT 1, 2"), "without a name"),
        (PostgresSource(pg.dsn, table="t", key="absent"), "no column 'absent'"),
        (PostgresSource(pg.dsn, table="t", lost_snapshot="newer", ranges_per_checkpoint=1), "no primary key"),
        (PostgresSource(pg.dsn, table="t", mode="incremental", column="absent"), "no column 'absent'"),
        (PostgresSource(pg.dsn, table="t", mode="incremental", column="v"), "is a text"),
        (PostgresSource(pg.dsn, table="t", mode="incremental", column="id", start="x"), "start='x' is no integer"),
        (PostgresSource(pg.dsn, table="t", mode="incremental", column="id", until="x"), "until='x' is no integer"),
        (cdc(pg, publication="absent"), "no publication 'absent'"),
        (cdc(pg), "leaves out"),
        (cdc(pg, publication="none"), "does not have table t"),
    ):
        with pytest.raises(DefinitionError, match=said) as caught:
            source.preflight()
        text = str(caught.value)
        assert text.count("\n") == 1, text
        assert "horse" not in text
        assert "sesame" not in text


def test_a_server_that_is_not_there_and_one_that_does_not_log_changes(pg: Any) -> None:
    pg.execute("CREATE TABLE t (id int)")
    pg.stop()
    try:
        began = time.monotonic()
        with pytest.raises(TransientError, match="refused") as caught:
            PostgresSource(pg.dsn, table="t").preflight()
        assert str(caught.value).count("\n") == 1
        assert time.monotonic() - began < 60
        pg.settings["wal_level"] = "replica"
        pg.start()
        with pytest.raises(DefinitionError, match="wal_level=replica"):
            cdc(pg).preflight()
    finally:
        pg.stop()
        pg.settings["wal_level"] = "logical"
        pg.start()


def test_no_password_is_ever_shown(pg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_SECRET", "open sesame")
    pg.execute("CREATE TABLE t (id int)", "GRANT USAGE ON SCHEMA public TO reader", "GRANT SELECT ON t TO reader")
    for source in (
        PostgresSource(pg.dsn_of("reader", "open sesame"), table="t"),
        PostgresSource(pg.dsn_of("reader"), table="t", password="open sesame"),
        PostgresSource(pg.dsn_of("reader"), table="t", password="env:PG_SECRET"),
        PostgresSource(f"host=127.0.0.1 port={pg.port} user=reader dbname=postgres password='open sesame'", table="t"),
    ):
        source.preflight()
        for text in (repr(source), str(source), source.place, source.describe(source.enumerator(None).initial())):
            assert "sesame" not in text
    with pytest.raises(DefinitionError, match="no connection string") as caught:
        PostgresSource("postgresql://u:open sesame@[::1/db", table="t").preflight()
    assert "sesame" not in str(caught.value)
