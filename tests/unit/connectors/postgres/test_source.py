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
from poundlock.connectors.postgres.connection import identifier, literal
from poundlock.connectors.postgres.errors import Use, explain
from poundlock.connectors.postgres.source.incremental import Seen, settled
from poundlock.connectors.postgres.source.relation import by_place, conditions_between
from poundlock.connectors.postgres.types import Column, array_elements, from_csv, from_texts
from poundlock.errors import TerminalError, TransientError

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
        ({"table": "t", "ranges_per_checkpoint": 0}, "not a positive number"),
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
