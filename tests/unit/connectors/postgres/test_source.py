"""What can be said of a PostgresSource without a server: settings, ranges, types, what is never shown."""

from __future__ import annotations

import decimal
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

from poundlock import DefinitionError, PostgresSource
from poundlock.checkpoint.capabilities import HasPlace
from poundlock.connectors.base import SplitSource
from poundlock.connectors.changes.chunked_snapshot import Frontier
from poundlock.connectors.postgres.connection import identifier, literal
from poundlock.connectors.postgres.errors import Use, explain
from poundlock.connectors.postgres.source.incremental import Seen, settled
from poundlock.connectors.postgres.source.positions import (
    ColumnPosition,
    HeldState,
    KnownTable,
    LogPosition,
    PostgresPosition,
    Publication,
    SnapshotPosition,
)
from poundlock.connectors.postgres.source.relation import by_place, conditions_between
from poundlock.connectors.postgres.types import Column, array_elements, from_csv, from_texts
from poundlock.errors import TerminalError, TransientError
from poundlock.storage import LocalStorage

DSN = "postgresql://me@localhost/db"
CDC: dict[str, Any] = {"table": "t", "mode": "cdc", "slot": "s", "publication": "p"}


def test_it_is_a_split_source_and_a_value() -> None:
    source = PostgresSource(DSN, table="t")
    assert isinstance(source, SplitSource)
    assert source == PostgresSource(DSN, table="t")
    assert pickle.loads(pickle.dumps(source)) == source
    assert source != PostgresSource(DSN, table="u")
    assert source.bounded
    assert not PostgresSource(DSN, table="t", mode="incremental", column="id").bounded
    assert not PostgresSource(DSN, **CDC).bounded


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "exactly one of table and query"),
        ({"table": "t", "query": "SELECT 1"}, "exactly one of table and query"),
        ({"table": "t", "mode": "tail"}, "'tail' is not known"),
        ({"table": "t", "column": "id"}, "column means nothing"),
        ({"table": "t", "slot": "s"}, "slot means nothing"),
        ({"table": "t", "mode": "incremental"}, "needs a column"),
        ({"table": "t", "mode": "incremental", "column": "id", "key": "id"}, "key means nothing"),
        ({"table": "t", "ranges_per_checkpoint": 0}, "1 or more"),
        ({"table": "t", "lost_snapshot": "newer"}, "several checkpoints"),
        ({"table": "t", "split_size": 0}, "limit"),
        ({"table": "t", "mode": "cdc"}, "slot and a publication"),
        ({**CDC, "slot": "Upper"}, "no name for a replication slot"),
        ({**CDC, "where": "id > 1"}, "reads a table, whole"),
        ({**CDC, "table": None, "query": "SELECT 1"}, "reads a table, whole"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said) as caught:
        PostgresSource(DSN, **settings)
    assert str(caught.value).count("\n") == 1


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:hunter22@localhost/db",
        "postgresql://localhost/db?user=me&password=hunter22",
        "postgresql://localhost/db?password=hunter22&user=me",
        "host=localhost user=me password=hunter22 dbname=db",
        "host=localhost user=me password='hunter22 \\' x' dbname=db",
    ],
)
def test_a_password_in_the_dsn_is_not_shown(dsn: str) -> None:
    source = PostgresSource(dsn, table="t")
    for text in (repr(source), source.place, repr(source.login)):
        assert "hunter22" not in text
        assert "localhost" in text


def test_pages_are_cut_without_a_gap() -> None:
    assert by_place(0, 10) == [""]
    assert by_place(10, 10) == [""]
    assert by_place(25, 10) == [
        "ctid < '(10,0)'::tid",
        "ctid >= '(10,0)'::tid AND ctid < '(20,0)'::tid",
        "ctid >= '(20,0)'::tid",
    ]
    assert len(by_place(10_000_000, 1)) <= 4096


def test_values_are_cut_without_a_gap() -> None:
    assert conditions_between("id", "bigint", [None, "5", "9"]) == [
        "\"id\" <= '5'::bigint",
        "\"id\" > '5'::bigint AND \"id\" <= '9'::bigint",
    ]


def test_names_and_texts_are_quoted() -> None:
    assert identifier('a"b') == '"a""b"'
    assert literal("it's") == "'it''s'"
    assert literal("a\\'b") == " E'a\\\\''b'"


@pytest.mark.parametrize(
    ("oldest", "now", "expected"), [(10, 1000, None), (11, 1000, "1"), (12, 1000, "2"), (12, 150, "1"), (99, 50, None)]
)
def test_a_value_is_reached_when_all_that_ran_has_ended(oldest: int, now: int, expected: str | None) -> None:
    found = settled([Seen("1", 11, 0), Seen("2", 12, 100), Seen("3", 200, 200)], oldest, now, 100)
    assert (found and found.value) == expected


def test_decimals_by_what_their_type_says() -> None:
    assert Column("n", 1700, ((12 << 16) | 2) + 4).arrow == pa.decimal128(12, 2)
    assert Column("n", 1700, -1).arrow == pa.string()
    assert Column("n", 1700, ((50 << 16) | 2) + 4).arrow == pa.string()
    assert Column("n", 1700, ((2 << 16) | 5) + 4).arrow == pa.string()  # 0.00012
    assert Column("x", 12345).arrow == pa.string()


def test_csv_tells_null_from_empty() -> None:
    columns = [Column("t", 25), Column("x", 17), Column("a", 1007), Column("b", 16)]
    data = b',,,\n"",01ff,"[1,null]",t\n"a\n""b""","",[],f\n'
    assert from_csv(data, columns, "t").to_pylist() == [
        {"t": None, "x": None, "a": None, "b": None},
        {"t": "", "x": b"\x01\xff", "a": [1, None], "b": True},
        {"t": 'a\n"b"', "x": b"", "a": [], "b": False},
    ]


def test_one_column_of_nulls() -> None:
    assert from_csv(b"\n1\n\n", [Column("i", 23)], "t").to_pylist() == [{"i": None}, {"i": 1}, {"i": None}]
    assert from_csv(b'\n""\n', [Column("s", 25)], "t").to_pylist() == [{"s": None}, {"s": ""}]


def test_texts_of_changes_become_the_same_types() -> None:
    decimals = Column("n", 1700, ((6 << 16) | 2) + 4)
    for column, texts, values in (
        (Column("b", 16), ["t", "f", None], [True, False, None]),
        (Column("i", 20), ["9007199254740993", None], [9007199254740993, None]),
        (Column("d", 701), ["1.5", "-Infinity", None], [1.5, float("-inf"), None]),
        (decimals, ["-1.50", None], [decimal.Decimal("-1.50"), None]),
        (Column("x", 17), ["\\x00ff", "\\x", None], [b"\x00\xff", b"", None]),
        (Column("z", 1184), ["2020-06-01 12:00:00.5+02", None], [datetime(2020, 6, 1, 10, 0, 0, 500_000, UTC), None]),
        (Column("a", 1009), ['{a,NULL,"NULL","b\\"c,"}', "{}", None], [["a", None, "NULL", 'b"c,'], [], None]),
        (Column("l", 1000), ["{t,f,NULL}"], [[True, False, None]]),
        (Column("u", 2950), ["00", None], ["00", None]),
    ):
        array = from_texts(texts, column, "t")
        assert array.type == column.arrow
        assert array.to_pylist() == values


def test_a_value_that_does_not_fit_is_said() -> None:
    with pytest.raises(TerminalError, match="does not fit"):
        from_csv(b"infinity\n", [Column("z", 1184)], "t")
    with pytest.raises(TerminalError, match="column 'z'"):
        from_texts(["infinity"], Column("z", 1184), "t")
    with pytest.raises(TerminalError, match="several dimensions"):
        from_texts(["{{1,2},{3,4}}"], Column("a", 1007), "t")


def test_elements_of_an_array_that_does_not_begin_at_one() -> None:
    assert array_elements("[2:3]={7,8}") == ["7", "8"]


def test_the_address_of_a_source_may_stand_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHOP", "postgresql://etl:geh31m@db.example:5433/shop")
    source = PostgresSource("env:SHOP", table="t")
    assert source.login.name == "db.example:5433/shop"
    assert source.login.parameters()["password"] == "geh31m"
    assert isinstance(source, HasPlace), "explain names it"
    assert source.place == "t of env:SHOP (snapshot)"
    (tmp_path / "dsn").write_text("host=db.example dbname=shop user=etl password=geh31m\n")
    other = PostgresSource(f"file:{tmp_path}/dsn", table="t", password="env:OTHER")
    monkeypatch.setenv("OTHER", "an0ther")
    assert other.login.parameters()["password"] == "an0ther"
    for shown in (repr(source), repr(other), source.login.open_text(), other.login.open_text()):
        assert "geh31m" not in shown
        assert "an0ther" not in shown
    monkeypatch.delenv("SHOP")
    with pytest.raises(DefinitionError, match="environment variable SHOP is not set"):
        _ = source.login.name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("InsufficientPrivilege", DefinitionError),
        ("InvalidPassword", DefinitionError),
        ("UndefinedTable", DefinitionError),
        ("NumericValueOutOfRange", TerminalError),
        ("UniqueViolation", TerminalError),
        ("ReadOnlySqlTransaction", TransientError),
        ("LockNotAvailable", TransientError),
        ("SerializationFailure", TransientError),
        ("AdminShutdown", TransientError),
        ("InternalError_", TerminalError),
    ],
)
def test_an_error_of_the_server_is_of_one_kind_for_who_reads_and_who_writes(name: str, kind: type[Exception]) -> None:
    from psycopg import errors

    error = getattr(errors, name)("it said geh31m")
    for use in get_args(Use):
        result = explain(error, "db.example:5432/shop", "looking up t", use=use, secrets=["geh31m"])
        assert type(result) is kind
        assert "PostgreSQL at db.example:5432/shop, looking up t" in result.what
        assert "geh31m" not in str(result)
        assert result.next


@pytest.mark.parametrize(
    ("name", "said", "next"),
    [
        ("OutOfMemory", "maximum number of prepared transactions reached", "max_prepared_transactions"),
        ("ObjectNotInPrerequisiteState", "prepared transactions are disabled", "max_prepared_transactions"),
        ("ConfigurationLimitExceeded", "all replication slots are in use", "max_replication_slots"),
        ("OutOfMemory", "out of memory", "see that the server runs"),
        ("UndefinedTable", 'relation "poundlock_commits" does not exist', "start the job again: it makes its table of"),
        ("UndefinedColumn", 'column "a" of relation "t" does not exist', "compare the table with the rows"),
    ],
)
def test_who_writes_is_told_what_helps(name: str, said: str, next: str) -> None:
    from psycopg import errors

    assert next in explain(getattr(errors, name)(said), "db.example:5432/shop", "writing to table t").next


POSITIONS: list[tuple[PostgresPosition, dict[str, Any]]] = [
    (SnapshotPosition(None, 0), {"plan": None, "next": 0}),
    (SnapshotPosition("p", 2, 8, "s"), {"plan": "p", "next": 2, "of": 8, "snapshot": "s"}),
    (ColumnPosition(None, (), False), {"value": None, "cuts": [], "done": False}),
    (ColumnPosition("90", ("10", "50"), True), {"value": "90", "cuts": ["10", "50"], "done": True}),
    (
        ColumnPosition("90", (), True, read="public_t by id"),
        {"value": "90", "cuts": [], "done": True, "read": "public_t by id"},
    ),
    (LogPosition("slot", None), {"slot_name": "slot", "lsn": None}),
    (
        LogPosition(
            "slot",
            "0/16B3748",
            {"public.t": KnownTable(16390, Frontier("7", False, ("5",)), "88", Publication("7.1", ("all",)))},
            HeldState("3-1", "1:2:"),
        ),
        {
            "slot_name": "slot",
            "lsn": "0/16B3748",
            "state": {"name": "3-1", "seen": "1:2:"},
            "tables": {
                "public.t": {
                    "oid": 16390,
                    "known": {"below": "7", "cuts": ["5"]},
                    "files": "88",
                    "published": {"version": "7.1", "by": ["all"]},
                }
            },
        },
    ),
]


@pytest.mark.parametrize(("position", "plain"), POSITIONS)
def test_a_position_is_a_value_inside_and_json_where_people_read_it(
    position: PostgresPosition, plain: dict[str, Any]
) -> None:
    assert position.to_json() == plain
    assert type(position).from_json(plain, position.read or "t") == position


@pytest.mark.parametrize(("position", "plain"), POSITIONS)
@pytest.mark.parametrize("kind", [SnapshotPosition, ColumnPosition, LogPosition])
def test_a_position_of_another_mode_is_refused(
    position: PostgresPosition, plain: dict[str, Any], kind: type[PostgresPosition]
) -> None:
    if isinstance(position, kind):
        return
    with pytest.raises(
        DefinitionError, match="is no position of public_t in the mode that the source is in now"
    ) as caught:
        kind.from_json(plain, "public_t")
    assert str(caught.value).count("\n") == 1


def test_a_position_that_an_earlier_version_wrote_is_of_a_table_all_of_which_is_known() -> None:
    old = {
        "slot": "s",
        "lsn": "0/2",
        "oid": 7,
        "published": {"version": "7.1", "by": ["all"]},
        "plan": "p",
        "snapshot": "x",
        "of": 3,
    }
    assert LogPosition.from_json(old, "t") == LogPosition(
        "s", "0/2", {"": KnownTable(7, Frontier(whole=True), "", Publication("7.1", ("all",)))}
    )
    assert LogPosition.from_json({"slot": "s", "lsn": None}, "t") == LogPosition("s", None)
    assert "slot" not in LogPosition("s", "0/2").to_json(), "an earlier version refuses what it would misread"


def test_a_whole_table_is_read_when_no_range_is_left() -> None:
    assert not SnapshotPosition(None, 0).is_whole
    assert not SnapshotPosition("p", 7, 8).is_whole
    assert SnapshotPosition("p", 8, 8).is_whole
    assert SnapshotPosition("p", 0, 0).is_whole


BY_ID: dict[str, Any] = {"mode": "incremental", "column": "id", "until": 90}


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ({"table": "t"}, {"table": "other"}),
        ({"table": "t", **BY_ID}, {"table": "other", **BY_ID}),
        ({"table": "t", **BY_ID}, {"table": "t", **BY_ID, "column": "at"}),
        ({"query": "SELECT 1", **BY_ID}, {"query": "SELECT 1", **BY_ID, "column": "at"}),
    ],
)
def test_a_position_of_another_table_or_column_is_refused_before_it_asks_the_server(
    was: dict[str, Any], now: dict[str, Any], tmp_path: Path
) -> None:
    sources = [PostgresSource("postgresql://u@127.0.0.1:1/d", **each) for each in (was, now)]
    of = sources[0].reads
    end = ColumnPosition("90", (), True, read=of) if "mode" in was else SnapshotPosition("p", 8, 8, "s", read=of)
    before, after = (source.enumerator(LocalStorage(tmp_path)) for source in sources)
    assert before.finished(end.to_json())
    unknown = {name: value for name, value in end.to_json().items() if name != "read"}
    assert after.finished(unknown), "an older version did not write it down"
    for refused in (after.latest, after.finished, sources[1].describe):
        with pytest.raises(DefinitionError, match=f"the job has read {of} so far, and the source now says"):
            refused(end.to_json())


def test_a_source_whose_mode_was_changed_says_so_before_it_asks_the_server(tmp_path: Path) -> None:
    source = PostgresSource("postgresql://u@127.0.0.1:1/d", table="t", mode="incremental", column="id")
    with pytest.raises(DefinitionError, match="is no position of t"):
        source.enumerator(LocalStorage(tmp_path)).latest({"plan": "p", "next": 1, "of": 8, "snapshot": "s"})
    with pytest.raises(DefinitionError, match="is no position of t"):
        source.describe({"slot": "s", "lsn": "0/1"})
