"""The replication protocol's messages, byte by byte, and the rows they become."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest

from poundlock.connectors.postgres.source.cdc_messages import (
    UNCHANGED,
    Begin,
    Change,
    Commit,
    Message,
    RelationMessage,
    Truncate,
    lsn_of,
    lsn_text,
    parse,
)
from poundlock.connectors.postgres.source.cdc_rows import DecodedChanges, as_batch, change_schema
from poundlock.connectors.postgres.source.tables import PublishedTable
from poundlock.connectors.postgres.types import Column
from poundlock.errors import TerminalError

OID = 16385
COLUMNS = [Column("id", 23), Column("v", 25)]
DESCRIBED = RelationMessage(OID, "public", "t", "f", (("id", 23, -1), ("v", 25, -1)))
TIME = datetime(2000, 1, 1, 0, 0, 1, tzinfo=UTC)


def text(value: str) -> bytes:
    return b"t" + struct.pack("!i", len(value.encode())) + value.encode()


def row(*values: bytes) -> bytes:
    return struct.pack("!h", len(values)) + b"".join(values)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"B" + struct.pack("!qqI", 1000, 1_000_000, 7), Begin(1000, TIME, 7)),
        (b"C" + struct.pack("!bqqq", 0, 1000, 1040, 1_000_000), Commit(1000, 1040)),
        (
            b"R" + struct.pack("!I", OID) + b"public\0t\0f" + struct.pack("!h", 2)
            + b"\1id\0" + struct.pack("!Ii", 23, -1) + b"\0v\0" + struct.pack("!Ii", 25, -1),
            DESCRIBED,
        ),
        (b"I" + struct.pack("!I", OID) + b"N" + row(text("1"), text("ä")), Change("insert", OID, None, ("1", "ä"), False)),
        (b"U" + struct.pack("!I", OID) + b"N" + row(text("1"), b"u"), Change("update", OID, None, ("1", UNCHANGED), False)),
        (
            b"U" + struct.pack("!I", OID) + b"O" + row(text("1"), b"n") + b"N" + row(text("2"), text("")),
            Change("update", OID, ("1", None), ("2", ""), False),
        ),
        (b"D" + struct.pack("!I", OID) + b"K" + row(text("1"), b"n"), Change("delete", OID, ("1", None), None, True)),
        (b"T" + struct.pack("!IbII", 2, 0, 1, OID), Truncate((1, OID))),
        (b"O" + struct.pack("!q", 1) + b"origin\0", None),
        (b"Y" + struct.pack("!I", 1) + b"public\0mood\0", None),
    ],
)  # fmt: skip
def test_each_kind(data: bytes, message: Message | None) -> None:
    assert parse(data) == message


@pytest.mark.parametrize(
    "data", [b"B123", b"Z", b"I" + struct.pack("!I", OID) + b"N" + struct.pack("!h", 1) + b"b\0\0\0\1x"]
)
def test_what_is_no_message_is_said(data: bytes) -> None:
    with pytest.raises(TerminalError, match="cannot be read"):
        parse(data)


@pytest.mark.parametrize("written", ["0/0", "0/16B3748", "1/0", "FF/FFFFFFFF"])
def test_places_are_written_as_the_server_does(written: str) -> None:
    assert lsn_text(lsn_of(written)) == written


TABLE = PublishedTable("public.t", OID, '"public"."t"', tuple(COLUMNS), (23, 25), ("id",), "id")


def rows(
    messages: list[Message | None],
    start: int = 0,
    end: int = 10_000,
    *,
    full: bool = False,
    table: PublishedTable = TABLE,
) -> list[dict[str, Any]]:
    found = list(DecodedChanges([table], full=full, start=start, end=end).of(messages))
    if not found:
        return []
    batch = as_batch(found, has_table=False)
    assert batch.schema.equals(change_schema(table.columns))
    return list(batch.to_pylist())


def insert(commit: int, *values: str, oid: int = OID) -> list[Message | None]:
    changes: list[Message | None] = [Change("insert", oid, None, (v, f"v{v}"), False) for v in values]
    return [Begin(commit, TIME, commit), *changes, Commit(commit, commit + 10)]


def test_a_transaction_belongs_to_the_range_in_which_its_commit_begins() -> None:
    messages = [DESCRIBED, *insert(100, "1"), *insert(200, "2", "3"), *insert(300, "4")]
    ranges = [(0, 100), (100, 200), (200, 205), (205, 300), (300, 301)]
    found = [[row["after"]["id"] for row in rows(messages, a, b)] for a, b in ranges]
    assert found == [[], [1], [2, 3], [], [4]]


def test_other_tables_of_the_publication_are_left_out() -> None:
    other = RelationMessage(1, "public", "other", "f", ())
    messages = [
        other,
        DESCRIBED,
        *insert(1, "9", oid=1),
        Begin(2, TIME, 2),
        Truncate((1,)),
        Truncate((1, OID)),
        Commit(2, 3),
    ]
    assert [row["op"] for row in rows(messages)] == ["truncate"]


def test_long_values_come_from_the_old_row() -> None:
    change = Change("update", OID, ("1", "long"), ("2", UNCHANGED), False)
    (row,) = rows([DESCRIBED, Begin(1, TIME, 1), change])
    assert (row["before"], row["after"]) == ({"id": 1, "v": "long"}, {"id": 2, "v": "long"})
    for old in (None, ("1", UNCHANGED)):
        with pytest.raises(TerminalError, match="'v'"):
            rows([DESCRIBED, Begin(1, TIME, 1), change._replace(old=old)])


@pytest.mark.parametrize(("old", "is_key"), [(None, False), (("1", None), True)])
def test_a_row_before_that_the_server_no_longer_logs_stops_the_job(old: Any, is_key: bool) -> None:
    for op, new in (("update", ("1", "b")), ("delete", None)):
        change = Change(op, OID, old, new, is_key)
        assert len(rows([DESCRIBED, Begin(1, TIME, 1), change])) == 1
        with pytest.raises(TerminalError, match=f"before its {op}"):
            rows([DESCRIBED, Begin(1, TIME, 1), change], full=True)


def test_an_old_key_has_no_long_values() -> None:
    change = Change("update", OID, ("1", None), ("2", UNCHANGED), True)
    with pytest.raises(TerminalError, match="'v'"):
        rows([DESCRIBED, Begin(1, TIME, 1), change])
    (row,) = rows([DESCRIBED, Begin(1, TIME, 1), change._replace(old=("1", "long"))])  # v is of the key, too
    assert row["after"] == {"id": 2, "v": "long"}


def test_columns_that_changed_stop_where_a_row_has_them() -> None:
    for columns in ((("id", 20, -1), ("v", 25, -1)), (("v", 25, -1),)):
        changed = RelationMessage(OID, "public", "t", "f", columns)
        assert len(rows([DESCRIBED, *insert(1, "1"), changed])) == 1
        with pytest.raises(TerminalError, match=r"columns of public\.t changed before 0/2: column .id."):
            rows([DESCRIBED, *insert(1, "1"), changed, *insert(2, "2")])
        assert rows([changed, *insert(2, "2"), DESCRIBED, *insert(5, "5")], start=3)[0]["after"]["id"] == 5


def test_a_column_that_came_later_is_null_and_one_that_is_not_read_is_passed_over() -> None:
    before = RelationMessage(OID, "public", "t", "f", (("id", 23, -1),))
    after = RelationMessage(OID, "public", "t", "f", (("w", 25, -1), ("id", 23, -1), ("v", 25, -1)))
    change = Change("insert", OID, None, ("1",), False)
    later = Change("insert", OID, None, ("x", "2", "b"), False)
    found = rows([before, Begin(1, TIME, 1), change, after, Begin(2, TIME, 2), later])
    assert [row["after"] for row in found] == [{"id": 1, "v": None}, {"id": 2, "v": "b"}]
    # What is undone has to be whole.
    with pytest.raises(TerminalError, match="column 'v' is not as it was"):
        list(DecodedChanges([TABLE], start=0, later=False).of([before, Begin(1, TIME, 1), change]))


def test_changes_of_several_tables_are_numbered_within_their_transaction() -> None:
    other = PublishedTable("public.o", 7, '"public"."o"', tuple(COLUMNS), (23, 25), ("id",), "id")
    described = RelationMessage(7, "public", "o", "f", (("id", 23, -1), ("v", 25, -1)))
    mixed = [Change("insert", oid, None, ("1", "v"), False) for oid in (OID, 7, 9, OID)]
    made = DecodedChanges([TABLE, other], start=0).of(
        [DESCRIBED, described, Begin(5, TIME, 1), *mixed, Truncate((7, OID))]
    )
    assert [(change.table.name, change.op, change.number) for change in made] == [
        ("public.t", "insert", 1), ("public.o", "insert", 2), ("public.t", "insert", 3), ("public.o", "truncate", 4), ("public.t", "truncate", 5),
    ]  # fmt: skip


def test_chosen_columns_are_found_by_name() -> None:
    described = RelationMessage(OID, "public", "t", "f", (("w", 25, -1), ("id", 23, -1), ("v", 25, -1)))
    change = Change("insert", OID, None, ("w", "1", UNCHANGED), False)
    chosen = PublishedTable("public.t", OID, '"public"."t"', (Column("id", 23),), (23,))
    (row,) = rows([described, Begin(1, TIME, 1), change], table=chosen)
    assert row["after"] == {"id": 1}
    assert (row["op"], row["lsn"], row["number"], row["xid"], row["commit_time"], row["before"]) == (
        "insert", 1, 1, 1, TIME, None
    )  # fmt: skip
