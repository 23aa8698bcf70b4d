"""MySqlSource on a real MariaDB, its two halves without Spark: chunks beside the log, restarts, writers meanwhile, refusals."""

from __future__ import annotations

import json
import pickle
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from poundlock import DefinitionError, MySqlSource, TransientError
from poundlock.connectors.base import ReaderContext
from poundlock.connectors.mysql.source.log import ServerIds
from poundlock.errors import SourceGoneError, TerminalError
from poundlock.storage import LocalStorage
from poundlock.testing import source_conformance
from poundlock.testing.databases.mariadb import EmbeddedMariaDb

pytestmark = pytest.mark.services


@pytest.fixture
def db(mariadb_server: EmbeddedMariaDb) -> Iterator[EmbeddedMariaDb]:
    server = mariadb_server
    server.start()
    server.execute("DROP DATABASE IF EXISTS test", "CREATE DATABASE test")
    yield server
    server.start()


def source_of(db: EmbeddedMariaDb, **settings: Any) -> MySqlSource:
    given = {"tables": "t", "poll_every": "0 s", **settings}
    return MySqlSource(f"mysql://root@127.0.0.1:{db.port}/test", **given)


class Life:
    """One life of a driver that reads a source, checkpoint by checkpoint."""

    def __init__(self, source: MySqlSource, at: Any = None) -> None:
        self.source = source
        self.enumerator = source.enumerator(LocalStorage("/nonexistent"))
        self.at = self.enumerator.initial() if at is None else at
        self.ways: list[tuple[Any, Any, list[dict[str, Any]]]] = []

    def checkpoint(self) -> list[dict[str, Any]]:
        end = self.enumerator.latest(self.at)
        if end == self.at:
            return []
        rows = self.between(self.at, end)
        self.ways.append((self.at, end, rows))
        self.at = end
        return rows

    def between(self, start: Any, end: Any) -> list[dict[str, Any]]:
        found = []
        source = pickle.loads(pickle.dumps(self.source))
        for split in self.enumerator.splits(start, end):
            for chunk in source.reader(ReaderContext(reject=None)).read(split):
                found += chunk.batch.to_pylist()
        return found

    def rest(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while rows := self.checkpoint():
            found += rows
        return found


def materialised(rows: Sequence[dict[str, Any]], table: dict[Any, Any] | None = None) -> dict[Any, Any]:
    """Return the table that changes lead to, in the order they came; each has to fit what the ones before it made."""
    table = {} if table is None else table
    for row in rows:
        before, after = row["before"], row["after"]
        if row["op"] in ("update", "delete"):
            assert table.pop(before["id"]) == before, row
        if after is not None:
            assert after["id"] not in table, row
            table[after["id"]] = after
    return table


def table_of(db: EmbeddedMariaDb, columns: Sequence[str] = ("id", "v")) -> dict[Any, Any]:
    rows = db.execute(f"SELECT {', '.join(columns)} FROM t")
    return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}


# --- types ------------------------------------------------------------------------------------------------------------

EVERY_KIND = """CREATE TABLE t (id int PRIMARY KEY, a tinyint, b smallint unsigned, c mediumint, d int unsigned,
 e bigint unsigned, f float, g double, h decimal(12,3), h2 decimal(60,2), y year, dt date, ts datetime(6), tz timestamp(3) NULL,
 tm time, ch char(5), vc varchar(20), tx text, en enum('x','y','z'), st set('r','q','p'), bi binary(6), vb varbinary(9), bl blob,
 b1 bit(1), b12 bit(12), js json, lt varchar(9) CHARACTER SET latin1, sc int GENERATED ALWAYS AS (id + 2) STORED,
 vi int GENERATED ALWAYS AS (id + 3) VIRTUAL)"""
NAMES = "id,a,b,c,d,e,f,g,h,h2,y,dt,ts,tz,tm,ch,vc,tx,en,st,bi,vb,bl,b1,b12,js,lt"
VALUES = r"""(1,-5,65535,-8388608,4294967295,18446744073709551615,1.1,0.1,-12.345,-123456789012345678901234567890.12,2020,
 '2020-02-29','2020-01-02 03:04:05.678901','2021-05-06 07:08:09.123','-123:04:05','ab ','äöü€','tx\\t','y','p,r',
 x'01020000',x'00ff',x'00ff00',1,x'0abc','{"a": 1}','äö'),
 (2,127,0,8388607,0,0,16777217,-1e300,0.001,0,0,'1000-01-01','9999-12-31 23:59:59.999999','2038-01-19 03:14:07.999','838:59:59',
 '','','','x','',x'000000000000','','',0,0,'null','')"""


def test_a_value_is_the_same_whether_it_was_selected_or_logged(db: EmbeddedMariaDb) -> None:
    db.execute(EVERY_KIND)
    logged, before = Life(source_of(db, start="latest")), Life(source_of(db))
    logged.checkpoint()
    db.execute(f"INSERT INTO t ({NAMES}) VALUES {VALUES}", "INSERT INTO t (id) VALUES (3)")
    changes, read = logged.rest(), before.rest()
    assert [row["op"] for row in changes] == ["insert"] * 3
    assert [row["op"] for row in read] == ["read"] * 3
    assert [row["after"] for row in changes] == [row["after"] for row in read]
    assert "vi" not in read[0]["after"]
    first = read[0]["after"]
    assert (first["e"], first["st"], first["bi"]) == (18446744073709551615, "r,p", b"\1\2\0\0\0\0")
    assert set(read[2]["after"].values()) == {3, 5, None}


def test_what_has_no_counterpart_is_refused_by_name(db: EmbeddedMariaDb) -> None:
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, u uuid, w time(3), z varchar(9) CHARACTER SET ucs2, k text COMPRESSED)"
    )
    for name in "uwzk":
        with pytest.raises(DefinitionError, match=f"column '{name}' of test.t"):
            source_of(db, columns=["id", name]).preflight()
    source_of(db, columns=["id"]).preflight()


def test_a_date_of_zeros_stops_the_job(db: EmbeddedMariaDb) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, d date)")
    life = Life(source_of(db))
    life.checkpoint()
    with db.connect().cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("INSERT INTO t VALUES (1, '0000-00-00')")
    with pytest.raises(TerminalError, match="column 'd'"):
        life.checkpoint()
    with pytest.raises(TerminalError, match="column 'd'"):
        Life(source_of(db)).checkpoint()


# --- chunks beside the log --------------------------------------------------------------------------------------------


def write(db: EmbeddedMariaDb, chance: random.Random, most: int) -> None:
    """Change a few rows in a few transactions, some of which are rolled back, and some of which move keys."""
    connection = db.connect(autocommit=False)
    for _ in range(chance.randrange(1, 4)):
        with connection.cursor() as cursor:
            for _ in range(chance.randrange(1, 6)):
                a, b = chance.randrange(most), chance.randrange(most)
                cursor.execute(
                    chance.choice(
                        [
                            f"INSERT IGNORE INTO t VALUES ({a}, 'new{b}')",
                            f"UPDATE t SET v = CONCAT(LEFT(v, 20), '{b % 7}') WHERE id BETWEEN {a} AND {a + 3}",
                            f"UPDATE IGNORE t SET id = {b} WHERE id = {a}",
                            f"DELETE FROM t WHERE id = {a}",
                            f"REPLACE INTO t VALUES ({a}, 'put{b}')",
                        ]
                    )
                )
        connection.rollback() if chance.random() < 0.2 else connection.commit()
    connection.close()


def filled(db: EmbeddedMariaDb, count: int) -> None:
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(99))", f"INSERT INTO t SELECT seq, seq FROM seq_1_to_{count}"
    )


def test_chunks_and_changes_lead_to_the_table_and_come_twice_alike(db: EmbeddedMariaDb) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    filled(db, 300)
    source = source_of(db, chunk_size=17, chunks_per_checkpoint=2)
    source.preflight()
    life, made = Life(source), dict[Any, Any]()
    ways: list[tuple[Any, Any, list[dict[str, Any]]]] = []
    for _ in range(11):
        write(db, chance, 330)
        end = life.enumerator.latest(life.at)
        write(db, chance, 330)  # behind the place that is read up to, before the chunks are
        if chance.random() < 0.3:  # a driver dies before the decision, and another plans
            life = Life(source, life.at)
            continue
        rows = life.between(life.at, end) if end != life.at else []
        ways.append((life.at, end, rows))
        life.at = end
        materialised(rows, made)
        if chance.random() < 0.3:
            life = Life(source, life.at)
    materialised(life.rest(), made)
    assert made == table_of(db)
    write(db, chance, 330)
    for start, end, rows in ways:
        assert Life(source).between(start, end) == rows
    assert len({str(at["tables"]) for _, at, _ in ways}) > 3


@pytest.mark.parametrize("key", ["a varchar(9)", "a char(3), b int"])
def test_tables_by_texts_and_by_several_columns(db: EmbeddedMariaDb, key: str) -> None:
    names = [part.split()[0] for part in key.split(", ")]
    db.execute(f"CREATE TABLE t ({key}, id int, PRIMARY KEY ({', '.join(names)}))")
    for n in range(9):
        db.execute(f"INSERT INTO t VALUES ('k{n % 3 if len(names) == 2 else n}', {f'{n}, ' * (len(names) - 1)}{n})")
    life = Life(source_of(db, chunk_size=2))
    first = life.checkpoint()
    db.execute("UPDATE t SET id = 99 WHERE id = 4", "DELETE FROM t WHERE id = 7")
    assert {row["after"]["id"] for row in first} == set(range(9))
    assert [(row["op"], row["before"]["id"]) for row in life.checkpoint()] == [("update", 4), ("delete", 7)]
    # Read again behind the changes, it is what it was.
    assert Life(source_of(db, chunk_size=2)).between(*life.ways[0][:2]) == first


def test_several_values_of_the_first_column_of_a_key(db: EmbeddedMariaDb) -> None:
    db.execute(
        "CREATE TABLE t (a int, b int, id int, PRIMARY KEY (a, b))",
        "INSERT INTO t SELECT seq DIV 7, seq, seq FROM seq_0_to_60",
    )
    life = Life(source_of(db, chunk_size=3, chunks_per_checkpoint=2))
    assert sorted(row["after"]["id"] for row in life.rest()) == list(range(61))
    assert len(life.ways) > 3


def test_several_tables_of_one_source(db: EmbeddedMariaDb) -> None:
    for name in ("t1", "t2"):
        db.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v varchar(9))",
            f"INSERT INTO {name} SELECT seq, '{name}' FROM seq_1_to_9",
        )
    life = Life(source_of(db, tables=["t1", "test.t2"], chunk_size=4, chunks_per_checkpoint=1))
    rows = life.rest()
    assert sorted((row["table"], row["after"]["id"]) for row in rows) == sorted(
        (f"test.{t}", n) for t in ("t1", "t2") for n in range(1, 10)
    )
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE t2 SET v = 'x' WHERE id = 1")
        cursor.execute("DELETE FROM t1 WHERE id = 2")
        connection.commit()
    changes = life.checkpoint()
    assert [(row["table"], row["op"], row["number"]) for row in changes] == [
        ("test.t2", "update", 1),
        ("test.t1", "delete", 2),
    ]
    assert changes[0]["pos"] == changes[1]["pos"]
    db.execute("CREATE TABLE other (id int PRIMARY KEY, w int)")
    with pytest.raises(DefinitionError, match=r"test.other has other columns than test.t1"):
        source_of(db, tables=["t1", "other"]).preflight()


def test_tables_of_unlike_columns_come_as_debezium_writes_them(db: EmbeddedMariaDb) -> None:
    db.execute(
        "CREATE TABLE a (id int PRIMARY KEY, at datetime(6), n decimal(9,2), b blob)",
        "CREATE TABLE b (k varchar(9) PRIMARY KEY, tz timestamp NULL, d date, tm time, u bigint unsigned)",
        "INSERT INTO a VALUES (1, '2020-01-02 03:04:05.000006', 1.50, x'00ff')",
    )
    life = Life(source_of(db, tables=["a", "b"], output="debezium"))
    (read,) = life.rest()
    assert (read["table"], json.loads(read["key"])) == ("test.a", {"id": 1})
    value = json.loads(read["value"])
    assert (value["op"], value["before"], value["source"]["snapshot"]) == ("r", None, "true")
    assert value["after"] == {"id": 1, "at": 1577934245000006, "n": "1.50", "b": "AP8="}
    with db.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO b VALUES ('x', '2021-05-06 07:08:09', '1970-01-11', '-01:00:01', 18446744073709551615)"
        )
        cursor.execute("DELETE FROM a")
        connection.commit()
    for start, end, seen in life.ways:
        assert Life(life.source).between(start, end) == seen
    db.execute("TRUNCATE TABLE b")
    rows = life.rest()
    values = [json.loads(row["value"]) for row in rows]
    assert [(row["table"], value["op"]) for row, value in zip(rows, values, strict=True)] == [
        ("test.b", "c"), ("test.a", "d"), ("test.b", "t"),
    ]  # fmt: skip
    assert values[0]["after"] == {
        "k": "x", "tz": "2021-05-06T07:08:09Z", "d": 10, "tm": -3601000000, "u": 18446744073709551615,
    }  # fmt: skip
    assert (values[1]["source"]["row"], values[1]["after"], rows[2]["key"]) == (2, None, None)
    first, *_ = life.ways
    with pytest.raises(TransientError, match=r"TRUNCATE TABLE b"):  # a chunk of b cannot be had any more as it was
        Life(life.source).between(*first[:2])


def test_a_backlog_is_cut_between_transactions(db: EmbeddedMariaDb) -> None:
    filled(db, 1)
    life = Life(source_of(db, start="latest", max_log_per_checkpoint="20 KB"))
    life.checkpoint()
    for n in range(40):
        db.execute(f"INSERT INTO t SELECT seq, REPEAT('x', 90) FROM seq_{n * 100 + 2}_to_{n * 100 + 40}")
        if n % 15 == 7:
            db.execute("FLUSH BINARY LOGS")
    rows = life.rest()
    assert len(rows) == 40 * 39
    assert len({(row["file"], row["pos"]) for row in rows}) == 40
    assert len(life.ways) > 5


def test_a_snapshot_ends_and_is_of_one_moment(db: EmbeddedMariaDb) -> None:
    filled(db, 50)
    source = source_of(db, start="snapshot", chunk_size=10, chunks_per_checkpoint=1)
    life, made = Life(source), dict[Any, Any]()
    chance = random.Random(5)
    while not life.enumerator.finished(life.at):
        expected = table_of(db)
        materialised(life.checkpoint(), made)
        write(db, chance, 60)
    assert made == expected
    assert life.enumerator.latest(life.at) == life.at
    assert source.bounded


def test_a_table_at_rest_makes_no_checkpoints(db: EmbeddedMariaDb) -> None:
    filled(db, 5)
    life = Life(source_of(db))
    life.rest()
    db.execute("CREATE TABLE other (id int PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    assert life.enumerator.latest(life.at) == life.at
    db.execute("DELETE FROM t WHERE id = 3")
    assert [row["op"] for row in life.checkpoint()] == ["delete"]


# --- changes of the schema --------------------------------------------------------------------------------------------


def test_a_column_added_goes_on_and_comes_with_the_next_start(db: EmbeddedMariaDb) -> None:
    filled(db, 3)
    life = Life(source_of(db))
    life.rest()
    db.execute(
        "ALTER TABLE t ADD COLUMN w int DEFAULT 7 FIRST, ADD INDEX (v)", "INSERT INTO t (id, v, w) VALUES (9, 'n', 8)"
    )
    assert [row["after"] for row in life.checkpoint()] == [{"id": 9, "v": "n"}]
    db.execute("UPDATE t SET v = 'm' WHERE id = 9")
    (row,) = Life(source_of(db), life.at).checkpoint()
    assert row["after"] == {"w": 8, "id": 9, "v": "m"}


def test_other_changes_stop_or_go_on_as_is_chosen(db: EmbeddedMariaDb) -> None:
    filled(db, 3)
    life = Life(source_of(db))
    life.rest()
    db.execute("ALTER TABLE t DROP COLUMN v", "INSERT INTO t VALUES (9)")
    with pytest.raises(TerminalError, match=r"test.t was altered.*DROP COLUMN v"):
        life.checkpoint()
    (row,) = Life(source_of(db, on_schema_change="go-on"), life.at).checkpoint()
    assert row["after"] == {"id": 9}


def test_a_truncate_is_a_row_and_a_table_that_goes_is_refused(db: EmbeddedMariaDb) -> None:
    filled(db, 3)
    life = Life(source_of(db))
    life.rest()
    db.execute("TRUNCATE TABLE t", "INSERT INTO t VALUES (1, 'a')")
    assert [row["op"] for row in life.checkpoint()] == ["truncate", "insert"]
    db.execute("RENAME TABLE t TO old, old TO t")
    with pytest.raises(SourceGoneError, match="renamed"):
        life.checkpoint()


def test_rows_that_were_logged_as_text_or_without_columns_are_refused(db: EmbeddedMariaDb) -> None:
    filled(db, 3)
    life = Life(source_of(db))
    life.rest()
    with db.connect().cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = STATEMENT")
        cursor.execute("UPDATE t SET v = 'x' WHERE id = 1")
    with pytest.raises(TerminalError, match="logged as text"):
        life.checkpoint()
    life = Life(source_of(db))
    life.rest()
    with db.connect().cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_image = MINIMAL")
        cursor.execute("UPDATE t SET v = 'x2' WHERE id = 1")
    with pytest.raises(TerminalError, match="no value for it"):
        life.checkpoint()


def test_compressed_events_are_refused_and_not_passed_over(db: EmbeddedMariaDb) -> None:
    filled(db, 3)
    life = Life(source_of(db))
    life.rest()
    db.execute("SET GLOBAL log_bin_compress = ON, GLOBAL log_bin_compress_min_len = 10")
    try:
        db.execute("INSERT INTO t VALUES (9, REPEAT('x', 90))")
    finally:
        db.execute("SET GLOBAL log_bin_compress = OFF")
    db.execute("DELETE FROM t WHERE id = 1")
    with pytest.raises(TerminalError, match="an event of kind 16"):
        life.checkpoint()


def test_a_chunk_is_of_one_state_whatever_the_server_is_set_to(db: EmbeddedMariaDb) -> None:
    db.execute("SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED")
    try:
        with source_of(db).login.reading("asking") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@session.tx_isolation, @@session.time_zone")
            assert cursor.fetchone() == ("REPEATABLE-READ", "+00:00")
    finally:
        db.execute("SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ")


# --- what is gone -----------------------------------------------------------------------------------------------------


def test_a_log_that_was_purged_or_reset_is_refused_by_name(db: EmbeddedMariaDb) -> None:
    filled(db, 3)
    life = Life(source_of(db))
    life.rest()
    db.execute("INSERT INTO t VALUES (7, 'x')", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (8, 'x')")
    # Of itself MariaDB 11.4 keeps what a reader may want, as long as none is connected; and what a reader has that just went.
    db.execute("SET GLOBAL slave_connections_needed_for_purge = 0")
    first, end = life.at["log"]["file"], time.monotonic() + 60
    while first in {name for name, *_ in db.execute("SHOW BINARY LOGS")}:
        assert time.monotonic() < end, db.execute("SHOW PROCESSLIST")
        (last, *_), *_ = db.execute("FLUSH BINARY LOGS", "SHOW MASTER STATUS")
        db.execute(f"PURGE BINARY LOGS TO '{last}'")
        time.sleep(0.2)
    with pytest.raises(SourceGoneError, match="was removed"):
        life.checkpoint()
    life = Life(source_of(db))
    life.rest()
    db.execute("RESET MASTER", *(f"INSERT INTO t VALUES ({n}, 'x')" for n in range(100, 130)))
    with pytest.raises(SourceGoneError, match=r"another one than the job has read|was removed|was lost"):
        life.checkpoint()


def test_another_server_is_refused(db: EmbeddedMariaDb) -> None:
    filled(db, 3)
    life = Life(source_of(db))
    life.rest()
    at = {**life.at, "server": 4711}
    with pytest.raises(SourceGoneError, match="server 4711"):
        Life(source_of(db), at).checkpoint()


def test_a_position_of_other_tables_is_refused(db: EmbeddedMariaDb) -> None:
    filled(db, 3)
    db.execute("CREATE TABLE t2 LIKE t")
    life = Life(source_of(db))
    life.rest()
    with pytest.raises(DefinitionError, match=r"has read test\.t so far"):
        Life(source_of(db, tables="t2"), life.at).checkpoint()


def test_the_server_goes_away_and_comes_back(db: EmbeddedMariaDb) -> None:
    filled(db, 3)
    life = Life(source_of(db))
    life.rest()
    db.execute("INSERT INTO t VALUES (7, 'x')")
    db.kill()
    with pytest.raises(TransientError):
        Life(source_of(db), life.at).checkpoint()
    db.start()
    db.execute("INSERT INTO t VALUES (8, 'x')")
    assert [row["after"]["id"] for row in Life(source_of(db), life.at).rest()] == [7, 8]


# --- refusals before anything runs ------------------------------------------------------------------------------------


def test_what_a_server_must_log_is_checked(db: EmbeddedMariaDb) -> None:
    filled(db, 1)
    for name, other, right in (
        ("binlog_format", "MIXED", "ROW"), ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_metadata", "NO_LOG", "FULL"), ("log_bin_compress", "ON", "OFF"), ("binlog_checksum", "NONE", "CRC32"),
    ):  # fmt: skip
        db.execute(f"SET GLOBAL {name} = {other}")
        try:
            with pytest.raises(DefinitionError, match=name):
                source_of(db).preflight()
        finally:
            db.execute(f"SET GLOBAL {name} = {right}")
    source_of(db).preflight()


def test_tables_that_cannot_be_read_are_refused(db: EmbeddedMariaDb) -> None:
    db.execute(
        "CREATE TABLE aria (id int PRIMARY KEY) ENGINE = Aria", "CREATE TABLE keyless (id int)",
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent (id) ON DELETE CASCADE)",
        "CREATE TABLE versioned (id int PRIMARY KEY) WITH SYSTEM VERSIONING", "CREATE VIEW seen AS SELECT * FROM parent",
    )  # fmt: skip
    for table, why in (
        ("aria", "only tables of InnoDB"), ("keyless", "no primary key"), ("child", "foreign key"), ("versioned", "system versioned"),
        ("seen", "view"), ("absent", "no table"),
    ):  # fmt: skip
        with pytest.raises(DefinitionError, match=why):
            source_of(db, tables=table).preflight()
    db.execute(
        "CREATE USER IF NOT EXISTS reader@'127.0.0.1' IDENTIFIED BY 'secret'",
        "GRANT SELECT ON test.* TO reader@'127.0.0.1'",
    )
    where = f"mysql://reader@127.0.0.1:{db.port}/test"
    with pytest.raises(DefinitionError, match=r"refuses|Access denied"):
        MySqlSource(where, tables="parent", password="wrong").preflight()
    with pytest.raises(DefinitionError) as caught:
        MySqlSource(where, tables="parent", password="secret").preflight()
    assert "GRANT" in caught.value.next
    db.execute("GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO reader@'127.0.0.1'")
    source = MySqlSource(where, tables="parent", password="secret", poll_every="0 s")
    source.preflight()
    db.execute("INSERT INTO parent VALUES (1)")
    assert [row["after"]["id"] for row in Life(source).rest()] == [1]


def test_readers_have_numbers_of_their_own() -> None:
    ids = ServerIds(5400, 5419)
    assert len({ids.of(reader) for reader in range(18)}) == 18
    with pytest.raises(DefinitionError, match="has 3 numbers, and 18 readers"):
        MySqlSource("mysql://h/db", tables="t", server_id="5400-5402")


# --- contract ---------------------------------------------------------------------------------------------------------

ROWS = [{"id": n, "v": f"w{n}"} for n in range(12)]


def checked(db: EmbeddedMariaDb, only: Sequence[str] | None) -> Any:
    def make(folder: Any) -> MySqlSource:
        table = "c_" + "".join(c if c.isalnum() else "_" for c in folder.name).lower()
        db.execute(f"CREATE TABLE IF NOT EXISTS {table} (id int PRIMARY KEY, v varchar(9))")
        for row in ROWS:
            db.execute(f"INSERT IGNORE INTO {table} VALUES ({row['id']}, '{row['v']}')")
        return source_of(db, tables=table, chunk_size=3, chunks_per_checkpoint=2)

    def change(source: MySqlSource) -> None:
        db.execute(
            f"UPDATE {source.names[0]} SET v = 'changed' WHERE id = 3", f"DELETE FROM {source.names[0]} WHERE id = 8"
        )

    def rows(source: MySqlSource) -> list[dict[str, Any]]:
        (file, pos, *_), *_ = db.execute("SHOW MASTER STATUS")
        head = {"op": "read", "file": file, "pos": pos, "number": None, "gtid": None, "commit_time": None}
        return [{**head, "table": source.names[0], "before": None, "after": row} for row in ROWS]

    return source_conformance(make, rows=rows, change=change, patience_s=5, only=only)


def test_it_keeps_its_contract(db: EmbeddedMariaDb) -> None:
    only = ("reads-all", "splits-pure", "replay-promise")
    assert set(checked(db, only).passed) == set(only)


@pytest.mark.torture
def test_it_keeps_all_of_its_contract(db: EmbeddedMariaDb) -> None:
    assert not checked(db, None).failed
