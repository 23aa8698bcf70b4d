"""What a PostgresSink may say, what it tells of itself, and the text that rows become; without a server."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, PostgresSink, TerminalError, TransientError
from poundlock.checkpoint.participant import Kind, Occasion, Prepared
from poundlock.connectors.postgres.connection import PostgresLogin, PostgresServer
from poundlock.connectors.postgres.errors import explained
from poundlock.connectors.postgres.sink.committer import PreparedTransaction, commit
from poundlock.connectors.postgres.sink.rows import RowDigest, copy_text, prepared_columns, raw_row
from poundlock.connectors.postgres.sink.table import Table, TableColumn, fits, matched
from poundlock.connectors.postgres.sink.transaction_ids import Markers, epoch_of, gid, prefix_of
from poundlock.connectors.sink_factory import rebuild_sink
from poundlock.errors import CommitUnknown, PoundlockError

DSN = "postgresql://etl:geh31m@db.example:5433/shop"


def column(name: str, base: str, category: str = "N", **more: Any) -> TableColumn:
    return TableColumn(
        **{"name": name, "quoted": name, "type": base, "base": base, "category": category, "required": False,
           "filled": False, "generated": False, **more}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dsn": ""}, "has no dsn"),
        ({"dsn": "postgresql//x"}, "is not an address"),
        ({"dsn": "hots=a password=geh31m"}, "is not an address"),
        ({"table": " "}, "is no table"),
        ({"guarantee": "twice"}, "is not known"),
        ({"guarantee": "effectively-once"}, "writes rows by key, and there is none"),
        ({"guarantee": "exactly-once", "key": ["id"]}, "rows with a key replace each other"),
        ({"key": []}, "writes rows by key"),
        ({"delete_when": "gone"}, "needs a key"),
        ({"key": ["id"], "columns": ["word"]}, "key column 'id' is not in columns="),
        ({"columns": [""]}, "does not name columns"),
        ({"marker_table": "a; DROP"}, "is not a plain name"),
        ({"lock_timeout": "0 s"}, "lock_timeout"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said) as caught:
        PostgresSink(**{"dsn": DSN, "table": "t", **settings})
    assert len(str(caught.value).splitlines()) == 2
    assert "geh31m" not in str(caught.value)


def test_a_password_is_shown_nowhere() -> None:
    for sink in (PostgresSink(DSN, "t"), PostgresSink("host=db.example user=etl", "t", password="geh31m")):
        bound = sink.bind(job_id="a" * 32, sink="out")
        said = [
            repr(bound),
            repr(bound.login),
            bound.describe(),
            bound.login.name,
            json.dumps(bound.describe_json()),
        ]
        assert "geh31m" not in "".join(said)
        assert bound.login.parameters()["password"] == "geh31m"
        assert pickle.loads(pickle.dumps(bound)) == bound
    assert PostgresSink("env:DB", "t").describe_json()["dsn"] == "env:DB"


def test_a_sink_is_made_again_from_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = PostgresSink(DSN, "s.t", key=["id"]).bind(job_id="a" * 32, sink="out")
    monkeypatch.setenv("POUNDLOCK_POSTGRES_PASSWORD", "geh31m")
    again = rebuild_sink(json.loads(json.dumps(bound.describe_json())))
    assert isinstance(again, PostgresSink)
    assert (again.table, again.key, again.prefix, again.kind) == ("s.t", ("id",), bound.prefix, Kind.IDEMPOTENT)
    assert again.login.parameters() == bound.login.parameters()
    with pytest.raises(DefinitionError, match="version 2 is not known"):
        PostgresSink.from_json({"v": 2, "kind": "postgres"})


def test_kinds_and_what_a_decision_names() -> None:
    item = Prepared("out", 0, {"v": 1, "gid": "g", "rows": 1})
    once = PostgresSink(DSN, "t")
    assert (once.kind, once.guarantee) == (Kind.TRANSACTIONAL, "exactly-once")
    assert once.stage({}, [item], Occasion.CHECKPOINT, 0).committables == [item.payload]
    by_key = PostgresSink(DSN, "t", key="id")
    assert (by_key.kind, by_key.guarantee, by_key.key) == (Kind.IDEMPOTENT, "effectively-once", ("id",))
    staged = by_key.stage({}, [Prepared("out", 0, {"v": 1, "rows": 1})], Occasion.CHECKPOINT, 0)
    assert (staged.committables, staged.state["at_once"]) == ([], True)
    assert PostgresSink(DSN, "t", guarantee="at-least-once").kind is Kind.APPEND


def test_ids_are_short_and_no_sink_has_the_beginning_of_another() -> None:
    names = ["a", "a-1", "a.b", "a b", "", "ä" * 300, "a" * 300]
    prefixes = [prefix_of("f" * 32, name) for name in names]
    assert len(set(prefixes)) == len(names)
    assert not any(a != b and a.startswith(b) for a in prefixes for b in prefixes)
    assert all(len(gid(prefix, 2**31, 2**63, 99_999, "f" * 32).encode()) <= 199 for prefix in prefixes)


def test_an_id_says_which_life_of_the_driver_it_is_of() -> None:
    prefix = prefix_of("f" * 32, "out")
    assert epoch_of(prefix, gid(prefix, 12, 7, 0, "f" * 12)) == 12
    assert epoch_of(prefix, f"{prefix}12-7-0-ffffffffffff") == 0, "as earlier versions named them"


def test_a_table_is_matched_by_name() -> None:
    table = Table(
        1,
        "public.t",
        [
            column("id", "int8", required=True),
            column("word", "text", "S"),
            column("at", "timestamptz", "D", required=True, filled=True),
            column("sum", "int8", generated=True),
        ],
        False,
    )
    assert [c.name for c in matched(table, "out", ["word", "id"])] == ["word", "id"]
    for columns, said in (
        (["id", "wrod"], "did you mean 'word'"),
        (["word"], "column 'id' of table public.t must not be null"),
        (["id", "sum"], "is generated by the server"),
    ):
        with pytest.raises(DefinitionError, match=said):
            matched(table, "out", columns)


@pytest.mark.parametrize(
    ("kind", "base", "category", "fit"),
    [
        (pa.int64(), "int2", "N", True),
        (pa.int64(), "text", "S", False),
        (pa.bool_(), "bool", "B", True),
        (pa.bool_(), "int4", "N", False),
        (pa.decimal128(9, 2), "numeric", "N", True),
        (pa.string(), "varchar", "S", True),
        (pa.string(), "jsonb", "U", True),
        (pa.string(), "bytea", "U", False),
        (pa.string(), "int4", "N", False),
        (pa.string(), "timestamptz", "D", False),
        (pa.binary(), "bytea", "U", True),
        (pa.binary(), "text", "S", True),
        (pa.binary(), "uuid", "U", False),
        (pa.date32(), "timestamptz", "D", True),
        (pa.timestamp("us"), "date", "D", False),
        (pa.timestamp("us", "UTC"), "timestamp", "D", True),
        (pa.list_(pa.int32()), "_int4", "A", True),
        (pa.list_(pa.struct({"a": pa.int8()})), "_int4", "A", False),
        (pa.struct({"a": pa.int8()}), "jsonb", "U", True),
        (pa.struct({"a": pa.int8()}), "text", "S", False),
        (pa.duration("s"), "interval", "T", False),
        (pa.null(), "int4", "N", True),
        (pa.dictionary(pa.int8(), pa.string()), "text", "S", True),
    ],
)
def test_which_type_fits_which(kind: pa.DataType, base: str, category: str, fit: bool) -> None:
    assert fits(kind, column("c", base, category)) is fit


def test_rows_as_text() -> None:
    batch = pa.record_batch(
        {
            "n": pa.array([1, None]),
            "s": ['a"b\n', ""],
            "y": pa.array([b"\x00\xfe", None]),
            "d": [decimal.Decimal("1.50"), None],
            "t": pa.array([datetime.datetime(2020, 1, 2, 3, 4, 5, 6), None], pa.timestamp("ns")),
            "j": [{"a": [1]}, None],
            "a": [["x", None, 'q"'], None],
        }
    )
    columns = [
        column("n", "int8"), column("s", "text", "S"), column("y", "bytea", "U"), column("d", "numeric"),
        column("t", "timestamp", "D"), column("j", "jsonb", "U"), column("a", "_text", "A"),
    ]  # fmt: skip
    assert copy_text(prepared_columns(batch, columns)) == (
        b'1,"a""b\n","\\x00fe","1.50",2020-01-02 03:04:05.000006,"{""a"": [1]}","{""x"",NULL,""q\\""""}"\n,"",,,,,\n'
    )


@pytest.mark.parametrize("rows", [[b"", b"\x00\x01", None, b"abc"], [None], [], [b"\xff" * 3000]])
@pytest.mark.parametrize("cut", [0, 1])
def test_bytes_as_hex(rows: list[bytes | None], cut: int) -> None:
    batch = pa.record_batch({"y": pa.array([b"first", *rows], pa.binary())}).slice(1 - cut)
    (array,) = prepared_columns(batch, [column("y", "bytea", "U")]).columns
    expected = [b"first"] * cut + rows
    assert array.to_pylist() == [None if row is None else "\\x" + row.hex() for row in expected]


def test_a_digest_is_of_the_rows_whatever_their_order() -> None:
    def digest(*batches: pa.RecordBatch) -> str:
        made = RowDigest()
        for batch in batches:
            made.add(batch, 1)
        return made.text

    batch = pa.record_batch({"a": pa.array([1, 2, None, 4]), "b": ["x", None, "", "x"], "c": [True, False, None, True]})
    turned = batch.take(pa.array([3, 1, 0, 2]))
    assert (
        digest(batch)
        == digest(turned)
        == digest(batch.slice(0, 1), batch.slice(1))
        == digest(turned.slice(2), turned.slice(0, 2))
    )
    others = [
        batch.slice(1),
        batch.set_column(0, "a", pa.array([1, 2, 0, 4])),
        batch.set_column(1, "b", pa.array(["x", "", None, "x"])),
        pa.record_batch({"a": [1, 1], "b": [2, 2]}),
        pa.record_batch({"a": [1, 2], "b": [2, 1]}),
    ]
    assert len({digest(batch), *map(digest, others)}) == 6


def test_a_row_whose_text_is_none_can_be_a_dead_letter() -> None:
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"good", b"\xff\xfe"]).buffers())
    rows = pa.record_batch({"id": [1, 2], "word": bad})
    assert raw_row(rows, 0) == b'{"id": 1, "word": "good"}'
    assert json.loads(raw_row(rows, 1)) == {"id": 2, "word": "\\xff\\xfe"}


class Answering:
    """A connection on which everything fails with one error."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.closed = self.broken = False

    def execute(self, statement: str) -> None:
        raise self._error

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("DiskFull", CommitUnknown),
        ("OutOfMemory", CommitUnknown),
        ("TooManyConnections", CommitUnknown),
        ("IoError", CommitUnknown),
        ("QueryCanceled", CommitUnknown),
        ("ReadOnlySqlTransaction", CommitUnknown),
        ("InsufficientPrivilege", TerminalError),
    ],
)
def test_what_a_server_cannot_do_now_is_asked_for_again(
    name: str, kind: type[PoundlockError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a decided transaction, whatever the server lacks at the moment: only a refusal that stays ends the job."""
    from psycopg import errors

    error = getattr(errors, name)
    made: list[Answering] = []

    def connect(login: PostgresLogin) -> Answering:
        made.append(Answering(error("could not write")))
        return made[-1]

    monkeypatch.setattr(PostgresLogin, "connect", connect)
    asked = PostgresServer(PostgresLogin(DSN))
    with pytest.raises(PoundlockError) as caught:
        commit(asked, Markers("m"), PreparedTransaction(v=1, gid="g", rows=1, bytes=1, digest="", origin="o", at_ms=0))
    assert type(caught.value) is kind
    assert len(str(caught.value).splitlines()) == 2
    assert made[0].closed == (name == "ReadOnlySqlTransaction"), "another host may be the primary now"
    if kind is CommitUnknown:
        with pytest.raises(TransientError), explained("db", "writing"):
            raise error("could not write")
