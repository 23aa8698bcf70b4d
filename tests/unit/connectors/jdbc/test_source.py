"""JdbcSource: what is refused, how a table is cut, which values count as reached, types as columns. The database is one in this process."""

from __future__ import annotations

import datetime
import decimal
import pickle
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, JdbcSource, TerminalError, TransientError
from poundlock.connectors import ReaderContext, SourceGoneError
from poundlock.connectors.jdbc import bridge
from poundlock.connectors.jdbc.bridge import JdbcError, ResultColumn
from poundlock.connectors.jdbc.dialect import dialect_of
from poundlock.connectors.jdbc.source import columns as types
from poundlock.connectors.jdbc.source.columns import JdbcColumn, chosen
from poundlock.connectors.jdbc.source.growing import SeenValue, reached
from poundlock.connectors.jdbc.source.values import ValueUnits, borders, measure_of
from poundlock.storage import LocalStorage
from poundlock.values import ManualClock

URL = "jdbc:sqlite:memory"


class Result:
    """A query of SQLite, whose columns are numbers and texts."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.cursor = cursor
        self.columns = [
            ResultColumn(
                name,
                types.BIGINT if name in ("id", "n") else types.VARCHAR,
                "BIGINT" if name in ("id", "n") else "TEXT",
            )
            for name, *_ in cursor.description
        ]

    def batches(self, codes: Sequence[int]) -> Iterator[pa.RecordBatch]:
        rows = self.cursor.fetchall()
        kinds = [pa.int64() if code == types.BIGINT else pa.string() for code in codes]
        arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
        yield pa.RecordBatch.from_arrays(arrays, [column.name for column in self.columns])

    def close(self) -> None:
        self.cursor.close()


class Database:
    """A database of SQLite as the bridge has one; `away` makes it answer nobody."""

    product, quote, transactions = "SQLite", "`", True

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.away = False
        self.opened = 0

    def __call__(self, url: str, properties: Any, driver: Any, jars: Any, *, columns: bool = False) -> Any:
        assert columns
        if self.away:
            raise JdbcError("08001", "connection refused")
        self.opened += 1
        return self

    def run(self, statement: str, parameters: Sequence[str] = ()) -> int:
        return self._ask(statement).rowcount

    def rows(self, query: str) -> list[list[str | None]]:
        return [[None if value is None else str(value) for value in row] for row in self._ask(query)]

    def read(self, query: str, rows: int) -> Any:
        return Result(self._ask(query))

    def _ask(self, statement: str) -> sqlite3.Cursor:
        if self.away:
            raise JdbcError("08006", "the connection is gone")
        try:
            return self.connection.execute(statement)
        except sqlite3.Error as error:
            raise JdbcError("42000", str(error)) from None

    def rollback(self) -> None:
        pass

    def commit(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def db(monkeypatch: pytest.MonkeyPatch) -> Database:
    database = Database()
    monkeypatch.setattr(bridge, "_connector", [database])
    database.run("CREATE TABLE t (id BIGINT, word TEXT)")
    return database


def fill(db: Database, ids: Sequence[int | None]) -> None:
    for id in ids:
        db.run(f"INSERT INTO t VALUES ({'NULL' if id is None else id}, 'w{id}')")


def all_of(source: JdbcSource, start: Any, end: Any, folder: Path) -> list[Any]:
    reader = source.reader(ReaderContext(reject=print))
    splits = source.enumerator(LocalStorage(str(folder))).splits(start, end)
    return [row["id"] for split in splits for chunk in reader.read(split) for row in chunk.batch.to_pylist()]  # type: ignore[union-attr]


def test_a_bounded_read_is_cut_once_and_goes_on_behind_what_was_decided(db: Database, tmp_path: Path) -> None:
    fill(db, [None, *range(10, 110)])
    source = JdbcSource(URL, table="t", partition_column="ID", partitions=4, partitions_per_checkpoint=3)
    first = source.enumerator(LocalStorage(str(tmp_path)))
    start = first.initial()
    middle = first.latest(start)
    assert source.describe(middle) == "t: 3 of 4 ranges read"
    fill(db, [200, 50])  # behind what was there, and within
    again = source.enumerator(LocalStorage(str(tmp_path)))  # after a restart
    end = again.latest(middle)
    assert (again.finished(middle), again.finished(end)) == (False, True)
    assert again.latest(end) == end
    rows = [all_of(source, start, middle, tmp_path), all_of(source, middle, end, tmp_path)]
    assert sorted(map(str, [*rows[0], *rows[1]])) == sorted(map(str, [None, 50, *range(10, 110)]))
    assert rows[1] == list(range(85, 110))
    assert all_of(source, end, end, tmp_path) == []
    source.enumerator(LocalStorage(str(tmp_path))).latest(start)  # of a start that decides nothing
    assert len(list((tmp_path / "plans").iterdir())) == 2
    again.committed(end)
    assert all_of(source, middle, end, tmp_path) == list(range(85, 110))
    assert len(list((tmp_path / "plans").iterdir())) == 1


def test_rows_outside_of_given_bounds_are_not_read(db: Database, tmp_path: Path) -> None:
    fill(db, [None, *range(100)])
    bounds: dict[str, Any] = {"partition_column": "id", "partitions": 3, "lower_bound": 20, "upper_bound": "29"}
    source = JdbcSource(URL, table="t", where="word <> 'w25'", columns=["ID"], **bounds)
    source.preflight()
    enumerator = source.enumerator(LocalStorage(str(tmp_path)))
    end = enumerator.latest(enumerator.initial())
    splits = enumerator.splits(enumerator.initial(), end)
    assert [split.name for split in splits] == ["range 1 of 3", "range 2 of 3", "range 3 of 3"]
    reader = pickle.loads(pickle.dumps(JdbcSource(URL, table="t"))).reader(ReaderContext(reject=print, want="records"))
    rows = [row for split in splits for chunk in reader.read(split) for row in chunk.rows]
    assert rows == [{"ID": n} for n in range(20, 30) if n != 25]
    with pytest.raises(DefinitionError, match="lower_bound='x' is no number"):
        JdbcSource(URL, table="t", **{**bounds, "lower_bound": "x"}).preflight()


def test_an_empty_table_has_one_range(db: Database, tmp_path: Path) -> None:
    for bounds in ({}, {"lower_bound": 3}):
        source = JdbcSource(URL, table="t", partition_column="id", partitions=3, **bounds)
        enumerator = source.enumerator(LocalStorage(str(tmp_path / str(len(bounds)))))
        end = enumerator.latest(enumerator.initial())
        fill(db, [7])  # too late
        assert all_of(source, enumerator.initial(), end, tmp_path / str(len(bounds))) == []
        db.run("DELETE FROM t")


def growing(clock: ManualClock, **more: Any) -> JdbcSource:
    given: dict[str, Any] = {"lag": "5 s", "rows_per_split": 2, "max_rows_per_checkpoint": 4, **more}
    return JdbcSource(URL, table="t", mode="incremental", column="id", clock=clock, **given)


def test_rows_are_read_when_their_value_was_there_for_the_lag(db: Database, tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    source = growing(clock)
    enumerator = source.enumerator(LocalStorage(str(tmp_path)))
    start = enumerator.initial()
    assert enumerator.latest(start) == start  # nothing there
    fill(db, [1, 2, 4, 5, 6])
    assert enumerator.latest(start) == start  # it looked a moment ago
    clock.set(1_002_000)
    assert enumerator.latest(start) == start  # seen, and too young
    fill(db, [3, 9])  # 3 became visible late, within the lag
    clock.set(1_007_000)
    middle = enumerator.latest(start)
    rows = all_of(source, start, middle, tmp_path)
    end = enumerator.latest(middle)
    rows += all_of(source, middle, end, tmp_path)
    assert sorted(rows) == [1, 2, 3, 4, 5, 6]
    assert source.describe(end) == "t: id up to 6"
    assert enumerator.latest(end) == end
    clock.set(1_012_000)
    last = enumerator.latest(end)
    assert all_of(source, end, last, tmp_path) == [9]
    assert not enumerator.finished(last)


def test_a_table_that_begins_again_is_not_followed(db: Database, tmp_path: Path) -> None:
    source = growing(ManualClock(0), lag="0 s", start=3)
    enumerator = source.enumerator(LocalStorage(str(tmp_path)))
    fill(db, [1, 2])
    start = enumerator.initial()
    assert enumerator.latest(start) == start  # rows behind `start` are still to come
    fill(db, [8, 9])
    end = source.enumerator(LocalStorage(str(tmp_path))).latest(start)
    assert all_of(source, start, end, tmp_path) == [8, 9]
    db.run("DELETE FROM t")
    again = source.enumerator(LocalStorage(str(tmp_path)))
    assert again.latest(end) == end  # an empty table has lost nothing that was not read
    fill(db, [1])
    with pytest.raises(SourceGoneError, match="greatest id of t is 1, and rows up to 9 were read"):
        source.enumerator(LocalStorage(str(tmp_path))).latest(end)


def test_what_vanishes_while_the_job_runs_is_named(db: Database, tmp_path: Path) -> None:
    fill(db, range(5))
    source = JdbcSource(URL, table="t", partition_column="id", partitions=2, partitions_per_checkpoint=1)
    source.preflight()
    enumerator = source.enumerator(LocalStorage(str(tmp_path)))
    start = enumerator.initial()
    middle = enumerator.latest(start)
    db.run("ALTER TABLE t DROP COLUMN word")
    with pytest.raises(TerminalError, match=r"t has changed since the job was started.*word"):
        all_of(source, start, middle, tmp_path)
    fresh = JdbcSource(URL, table="t", partition_column="id", partitions=2, partitions_per_checkpoint=1)
    with pytest.raises(TerminalError, match="other columns now than when its ranges were planned: see 'word'"):
        fresh.enumerator(LocalStorage(str(tmp_path))).splits(start, middle)
    with pytest.raises(TerminalError, match="column 'word' of t is gone, since the job was started"):
        source.enumerator(LocalStorage(str(tmp_path / "other"))).latest(start)
    db.run("DROP TABLE t")
    with pytest.raises(TerminalError, match=r"t has changed since the job was started.*no such table"):
        source.enumerator(LocalStorage(str(tmp_path / "another"))).latest(start)
    with pytest.raises(DefinitionError, match="no such table"):
        fresh.preflight()
    (tmp_path / "plans").rename(tmp_path / "gone")
    with pytest.raises(SourceGoneError, match="has no plan"):
        source.enumerator(LocalStorage(str(tmp_path))).splits(start, middle)


def test_a_database_that_is_away_is_asked_again(db: Database, tmp_path: Path) -> None:
    source = growing(ManualClock(0), lag="0 s")
    fill(db, [1])
    enumerator = source.enumerator(LocalStorage(str(tmp_path)))
    source.preflight()
    db.away = True
    with pytest.raises(TransientError, match="nobody answers at sqlite:memory, looking for new rows of t"):
        enumerator.latest(enumerator.initial())
    db.away = False
    assert enumerator.latest(enumerator.initial()) != enumerator.initial()


def test_positions_are_of_what_is_read_and_of_its_mode(db: Database, tmp_path: Path) -> None:
    fill(db, range(4))
    source = JdbcSource(URL, table="t", partition_column="id", partitions=2)
    enumerator = source.enumerator(LocalStorage(str(tmp_path)))
    end = enumerator.latest(enumerator.initial())
    with pytest.raises(DefinitionError, match="has read t by id so far, and the source now says t"):
        JdbcSource(URL, table="t").describe(end)
    with pytest.raises(DefinitionError, match="no position of t by id in the mode"):
        growing(ManualClock(0)).describe(end)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "exactly one of table and query"),
        ({"table": "t", "query": "SELECT 1"}, "exactly one of table and query"),
        ({"table": "t; DROP"}, "not the name of a table"),
        ({"table": "t", "partition_column": "id"}, "one of them is missing"),
        ({"table": "t", "lower_bound": 3}, "lower_bound='3' has no effect"),
        ({"table": "t", "append_only": True}, "append_only=True has no effect"),
        ({"table": "t", "mode": "incremental"}, "needs a column"),
        ({"table": "t", "mode": "incremental", "column": "id", "partitions": 3}, "partitions=3 has no effect"),
        ({"table": "t", "column": "id"}, "column='id' has no effect"),
        ({"table": "t", "lag": "3 s"}, "has no effect"),
        ({"table": "t", "fetch_size": 0}, "fetch_size"),
        ({"table": "t", "mode": "changes"}, "mode='changes' is not known"),
        ({"table": "t", "partition_column": "id", "partitions": 20_000}, "too many"),
    ],
)
def test_what_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        JdbcSource(URL, **given)
    with pytest.raises(DefinitionError, match="password stands in the JDBC URL"):
        JdbcSource("jdbc:mysql://h/d?password=x", table="t")


def test_the_promise_goes_by_what_is_known_of_the_table() -> None:
    def kind(**given: Any) -> str:
        return JdbcSource(URL, table="t", **given).replay.kind

    assert kind() == kind(partition_column="id", partitions=2) == "if-unchanged"
    assert kind(partition_column="id", partitions=2, append_only=True) == "exact"
    assert kind(mode="incremental", column="id") == "if-unchanged"
    assert kind(mode="incremental", column="id", append_only=True) == "exact"
    assert kind(mode="incremental", column="id", append_only=True, lag="0 s") == "if-unchanged"
    assert "Tr0mpete" not in repr(JdbcSource(URL, table="t", password="Tr0mpete", properties={"a": "Tr0mpete"}))


def test_the_newest_look_that_is_old_enough_counts() -> None:
    looks = [SeenValue(5, 1000), SeenValue(7, 2000), SeenValue(9, 3000)]
    assert reached(looks, 1500, 1000) is None
    assert reached(looks, 3100, 1000) == SeenValue(7, 2000)
    assert reached(looks, 9000, 1000) == SeenValue(9, 3000)


@pytest.mark.parametrize(
    ("measure", "text", "units", "shown"),
    [
        (ValueUnits("number"), "-12", -12, "-12"),
        (ValueUnits("number", 3), "1.25", 1250, "1.250"),
        (ValueUnits("number"), "9" * 38, int("9" * 38), "9" * 38),
        (ValueUnits("date"), "1969-12-31", -1, "1969-12-31"),
        (ValueUnits("time"), "1970-01-01 00:00:01.5", 1_500_000_000, "1970-01-01 00:00:01.5"),
        (ValueUnits("time"), "1970-01-01T02:00:00+02:00", 0, "1970-01-01 00:00:00"),
        (ValueUnits("time"), "1969-12-31 23:59:59.999999999", -1, "1969-12-31 23:59:59.999999999"),
        (ValueUnits("time"), "1970-01-02", 86_400_000_000_000, "1970-01-02 00:00:00"),
    ],
)
def test_values_are_counted_and_shown_again(measure: ValueUnits, text: str, units: int, shown: str) -> None:
    assert measure.units(text) == units
    assert measure.text(units) == shown
    assert measure.units(shown) == units


@pytest.mark.parametrize(
    ("measure", "text"),
    [(ValueUnits("number"), "1.5"), (ValueUnits("time"), "infinity"), (ValueUnits("number"), "NaN")],
)
def test_what_is_no_value_is_refused(measure: ValueUnits, text: str) -> None:
    with pytest.raises((ValueError, ArithmeticError)):
        measure.units(text)


def test_borders_cut_what_lies_between() -> None:
    assert borders(0, 99, 4) == [24, 49, 74]
    assert borders(5, 5, 8) == []
    assert borders(1, 3, 8) == [1, 2]
    assert borders(-10, 10, 1) == []


def test_literals_are_those_of_the_dialect() -> None:
    at = ValueUnits("time").units("2024-02-29 12:00:00.5")
    assert ValueUnits("time").literal(at, dialect_of("PostgreSQL", '"')) == "{ts '2024-02-29 12:00:00.5'}"
    assert ValueUnits("date").literal(0, dialect_of("Microsoft SQL Server", '"')) == "CAST('1970-01-01' AS date)"
    assert ValueUnits("number").literal(7, dialect_of("Apache Derby", '"')) == "7"


COLUMNS = [
    (ResultColumn("c", -6, "TINYINT UNSIGNED", 3, 0, False), pa.int16(), 5),
    (ResultColumn("c", -5, "BIGINT UNSIGNED", 20, 0, False), pa.decimal128(20, 0), 12),
    (ResultColumn("c", -5, "oid", 10, 0, False), pa.int64(), -5),
    (ResultColumn("c", 16, "BOOLEAN", 1), pa.bool_(), 16),
    (ResultColumn("c", -7, "bit", 5), pa.string(), 12),
    (ResultColumn("c", 7, "float4", 8, 8), pa.float32(), 7),
    (ResultColumn("c", 6, "FLOAT", 15), pa.float64(), 8),
    (ResultColumn("c", 8, "money", 99), pa.string(), 12),
    (ResultColumn("c", 3, "DECIMAL", 9, 3), pa.decimal128(9, 3), 12),
    (ResultColumn("c", 2, "numeric", 0, 0), pa.string(), 12),
    (ResultColumn("c", 3, "DECIMAL", 50, 3), pa.string(), 12),
    (ResultColumn("c", 91, "date", 10), pa.date32(), 12),
    (ResultColumn("c", 91, "YEAR", 4), pa.int32(), 12),
    (ResultColumn("c", 93, "timestamptz", 35, 6), pa.timestamp("us", "UTC"), 12),
    (ResultColumn("c", 93, "TIMESTAMP", 29, 9), pa.timestamp("us"), 12),
    (ResultColumn("c", 2004, "BLOB"), pa.binary(), -3),
    (ResultColumn("c", 2003, "_int4"), pa.string(), 12),
]


@pytest.mark.parametrize(("column", "kind", "asked"), COLUMNS)
def test_types_are_arrows(column: ResultColumn, kind: pa.DataType, asked: int) -> None:
    made = JdbcColumn.of(column, "c")
    assert (made.arrow, made.asked) == (kind, asked)


def test_texts_become_values() -> None:
    def read(column: ResultColumn, *texts: str | None) -> list[Any]:
        (made,) = chosen([column], None, "t", "mysql")
        return list(made.read(pa.array(texts, pa.string()), "t").to_pylist())

    moment = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456)
    assert read(ResultColumn("c", 93, "DATETIME"), "2024-02-29 12:00:00.123456789", None) == [moment, None]
    utc = moment.replace(tzinfo=datetime.UTC)
    assert read(ResultColumn("c", 93, "TIMESTAMP"), "2024-02-29 12:00:00.123456") == [utc]
    assert read(ResultColumn("c", 93, "timestamptz"), "2024-02-29 14:00:00.123456+02") == [utc]
    assert read(ResultColumn("c", 2014, "TIMESTAMP WITH TIME ZONE"), "2024-02-29 14:00:00.123456 +02:00") == [utc]
    assert read(ResultColumn("c", 3, "DECIMAL", 9, 3), "-1.250") == [decimal.Decimal("-1.250")]
    assert read(ResultColumn("c", 91, "date"), "2024-02-29") == [datetime.date(2024, 2, 29)]
    with pytest.raises(TerminalError, match="column 'c' of t has a value that is no date"):
        read(ResultColumn("c", 91, "date"), "infinity")


def test_columns_are_found_in_any_case_and_refused_by_name() -> None:
    found = [
        ResultColumn("ID", 4, "INTEGER"),
        ResultColumn("Id", 12, "VARCHAR"),
        ResultColumn("NAME", 12, "VARCHAR"),
        ResultColumn("R", 8, "DOUBLE"),
    ]
    assert [(c.name, c.source) for c in chosen(found, ["Id", "name"], "t", "derby")] == [("Id", "Id"), ("name", "NAME")]
    for wanted, words in (
        (["id"], "has no column 'id'"),
        (["what"], "it has ID, Id, NAME, R"),
        ([], "has no columns to read"),
    ):
        with pytest.raises(DefinitionError, match=words):
            chosen(found, wanted, "t", "derby")
    with pytest.raises(DefinitionError, match="two of one name"):
        chosen([found[0], found[0]], None, "t", "derby")
    with pytest.raises(DefinitionError, match="column 'R' of t is DOUBLE"):
        measure_of(chosen(found, ["R"], "t", "derby")[0], "t")
