"""Chunks beside PostgreSQL's log, without a server: which state is that of which place, which rows are known, and what is put back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, PostgresSource
from poundlock.connectors.changes.chunk_rows import as_they_were
from poundlock.connectors.changes.chunked_snapshot import Frontier, RowChange
from poundlock.connectors.changes.envelopes import micros_of_time
from poundlock.connectors.postgres.source.cdc_messages import Begin
from poundlock.connectors.postgres.source.cdc_rows import DecodedChange, as_batch, as_read
from poundlock.connectors.postgres.source.debezium import as_envelopes
from poundlock.connectors.postgres.source.positions import HeldState
from poundlock.connectors.postgres.source.states import Visibility, place_of
from poundlock.connectors.postgres.source.tables import PublishedTable
from poundlock.connectors.postgres.source.work import SnapshotChunkWork, inside, knows, payload_of, work_of
from poundlock.connectors.postgres.types import Column
from poundlock.errors import TerminalError

DSN = "postgresql://me@localhost/db"
CDC: dict[str, Any] = {"mode": "cdc", "slot": "s", "publication": "p"}


def table(oid: int, cut_by: str | None = "k") -> PublishedTable:
    return PublishedTable("public.t", 1, "t", (Column("v", 25), Column("k", oid)), (25, oid), ("k",), cut_by)


def test_a_state_has_the_transactions_that_the_server_says() -> None:
    seen = Visibility.of("10:20:10,14,15")
    assert [n for n in range(8, 22) if seen.sees(n)] == [8, 9, 11, 12, 13, 16, 17, 18, 19]
    assert Visibility.of("7:7:").sees(6)
    far = Visibility.of(f"{(3 << 32) + 5}:{(3 << 32) + 9}:{(3 << 32) + 6}")
    assert [far.sees_logged(n) for n in (5, 6, 8, 9, (1 << 32) - 1)] == [True, False, True, False, True]


def test_a_state_is_that_of_a_place_where_it_has_all_before_and_none_behind() -> None:
    seen = Visibility.of("10:20:12,15")
    assert place_of(seen, [], 500) == 500
    assert place_of(seen, [(100, 9), (200, 11)], 500) == 500
    assert place_of(seen, [(100, 11), (200, 12), (300, 15), (600, 25)], 500) == 200
    assert place_of(seen, [(100, 12), (200, 11)], 500) is None, "the log has them in another order than the state"
    assert place_of(seen, [(100, 11), (700, 25)], 500) == 500


def test_a_state_is_before_another_where_it_is_without_something_of_it() -> None:
    first = Visibility.of("10:20:12,15")
    assert not Visibility.of("12:30:12,25").is_before(first)
    assert Visibility.of("11:30:11,25").is_before(first)
    assert Visibility.of("10:19:12,15").is_before(first)
    assert not first.is_before(first)


@pytest.mark.parametrize(
    ("oid", "border", "below", "behind"),
    [
        (23, "10", "9", "100"), (20, "-5", "-6", "-5"), (1082, "2020-02-01", "2020-01-31", "2020-02-01"),
        (1114, "2020-01-01 00:00:00.5", "2020-01-01 00:00:00.49", "2020-01-01 00:00:01"),
        (1184, "2020-01-01 00:00:00+00", "2019-12-31 23:59:59.9+00", "2020-01-01 00:00:00.000001+00"),
        (2950, "80000000-0000-0000-0000-000000000000", "7fffffff-0000-0000-0000-000000000000", "a0000000-0000-0000-0000-000000000000"),
    ],
)  # fmt: skip
def test_rows_of_the_log_are_known_by_the_order_of_their_type(oid: int, border: str, below: str, behind: str) -> None:
    known = knows(table(oid), Frontier(border))
    assert known(("x", below))
    assert not known(("x", behind))
    assert knows(table(oid), Frontier(whole=True))(("x", behind))
    assert not knows(table(oid), Frontier())(("x", below))
    chunk = inside(table(oid), below, border)
    assert chunk(("x", below))
    assert not chunk(("x", border))


def test_a_border_of_a_value_without_a_place_is_said() -> None:
    with pytest.raises(TerminalError, match="column 'k': a value does not fit"):
        knows(table(1082), Frontier("2020-01-01"))(("x", "infinity"))


def test_a_table_that_is_not_cut_is_one_chunk() -> None:
    assert inside(table(25, None), None, None)(("x", "y"))


def test_work_is_json_on_its_way() -> None:
    work = SnapshotChunkWork(table(23), None, "9", 77, HeldState("a-1", "1:1:"), "5", "s", "p", "tables", "db")
    assert work_of(json.loads(json.dumps(payload_of(work)))) == work


def test_rows_that_changed_are_put_back_where_their_keys_are() -> None:
    def batch(*keys: str) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"k": list(keys), "v": [f"v{key}" for key in keys]})

    read = [batch("b", "d"), batch(), batch("e", "g")]
    there = pa.RecordBatch.from_pydict({"k": ["h", "a", "e", "f"], "v": ["then"] * 4})
    made = [
        row
        for each in as_they_were(read, ("k",), {("e",), ("d",), ("h",), ("a",), ("f",)}, there)
        for row in each.to_pylist()
    ]
    assert [(row["k"], row["v"]) for row in made] == [
        ("a", "then"), ("b", "vb"), ("e", "then"), ("f", "then"), ("g", "vg"), ("h", "then"),
    ]  # fmt: skip
    assert list(as_they_were([], ("k",), set(), there.slice(0, 0))) == []


def test_a_change_as_debezium_writes_it() -> None:
    columns = {
        "id": (20, -1), "n": (1700, ((9 << 16) | 2) + 4), "d": (1082, -1), "ms": (1114, 3), "us": (1114, -1), "tz": (1184, -1), "b": (17, -1),
        "t": (1083, -1), "f": (701, -1), "l": (1007, -1),
    }  # fmt: skip
    of = tuple(Column(name, oid, modifier) for name, (oid, modifier) in columns.items())
    known = PublishedTable("shop.orders", 1, "o", of, tuple(c.oid for c in of), ("id",), "id")
    time = datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    row = {
        "id": 1, "n": Decimal("1.50"), "d": date(1970, 1, 11), "ms": datetime(1970, 1, 1, 0, 0, 1), "us": datetime(1970, 1, 1, 0, 0, 1),
        "tz": time, "b": b"\x00\xff", "t": "-01:00:01.5".lstrip("-"), "f": float("inf"), "l": [1, None],
    }  # fmt: skip
    rows = pa.RecordBatch.from_pylist([row], pa.schema([(c.name, c.arrow) for c in of]))
    (made,) = as_envelopes(as_read(rows, known, 77, has_table=True), known, "db").to_pylist()
    assert (made["table"], made["key"]) == ("shop.orders", '{"id":1}')
    value = json.loads(made["value"])
    assert value["after"] == {
        "id": 1, "n": "1.50", "d": 10, "ms": 1000, "us": 1000000, "tz": "2020-01-02T03:04:05.000006Z", "b": "AP8=", "t": 3601500000,
        "f": "inf", "l": [1, None],
    }  # fmt: skip
    assert value["source"] == {
        "connector": "postgresql", "ts_ms": 0, "snapshot": "true", "db": "db", "schema": "shop", "table": "orders", "txId": None, "lsn": 77,
        "row": 0,
    }  # fmt: skip
    gone = DecodedChange("delete", known, Begin(5, time, 9), 2, RowChange(("7",) + (None,) * 9, None), True)
    (made,) = as_envelopes(as_batch([gone], has_table=True), known, "db").to_pylist()
    value = json.loads(made["value"])
    assert (value["op"], value["after"], value["before"]["id"], made["key"]) == ("d", None, 7, '{"id":7}')
    assert (value["ts_ms"], value["source"]["txId"], value["source"]["row"]) == (1577934245000, 9, 2)


def test_a_time_and_a_span_of_it() -> None:
    assert micros_of_time("-01:00:01") == -3601000000
    assert micros_of_time("00:00:00.000001") == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tables": ["a.b"], "table": "t"}, "exactly one of table and query"),
        ({"tables": []}, "is empty"),
        ({"tables": ["a.b", "a.b"]}, "names one twice"),
        ({"tables": ["a.(b"]}, "no regular expression"),
        ({"tables": ["a.b"], "mode": "snapshot", "slot": None, "publication": None}, "tables means nothing"),
        ({"table": "t", "output": "avro"}, "'avro' is not known"),
        ({"table": "t", "chunk_size": 0}, "1 or more"),
        ({"table": "t", "chunks_per_checkpoint": 0}, "1 or more"),
        ({"table": "t", "chunk_size": 9, "split_size": "1 MB"}, "both say how large"),
        ({"table": "t", "chunk_size": 9, "initial": "none"}, "chunk_size=9 has no effect"),
        ({"table": "t", "chunks_per_checkpoint": 9, "initial": "none"}, "chunks_per_checkpoint=9 has no effect"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said) as caught:
        PostgresSource(DSN, **{**CDC, **settings})
    assert str(caught.value).count("\n") == 1


def test_the_form_of_rows_goes_by_what_is_read() -> None:
    assert PostgresSource(DSN, table="t", **CDC).form == "one table"
    assert PostgresSource(DSN, tables="public.t", **CDC).form == "tables"
    assert PostgresSource(DSN, tables=["public.t", "public.u_.*"], output="debezium", **CDC).form == "debezium"
    assert PostgresSource(DSN, tables=["public.t", "public.u_.*"], **CDC).shown == "public.t, public.u_.*"
