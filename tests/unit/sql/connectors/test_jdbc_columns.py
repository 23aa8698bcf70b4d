"""Columns of a server as those of a table: values as their declared types, names as PostgreSQL has them, and rows that are taken back."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from poundlock.connectors.postgres.connection import PostgresLogin
from poundlock.errors import TerminalError, TransientError
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.connectors.jdbc.columns import ServerRowsProgram, WrittenRowsProgram, declared, server_name
from poundlock.sql.connectors.jdbc.lookup import PostgresLookup, _array
from poundlock.sql.connectors.table import CacheLimits
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import BYTES, STRING, SqlType

CONTEXT = EvaluationContext(ZoneInfo("UTC"))
INT = SqlType("INT")


@pytest.mark.parametrize(
    ("given", "kind", "wanted"),
    [
        (pa.array([1, None], pa.int64()), INT, [1, None]),
        (pa.array([1], pa.int32()), SqlType("DECIMAL", (10, 2)), [Decimal("1.00")]),
        (pa.array(["1.25", None]), SqlType("DECIMAL", (10, 2)), [Decimal("1.25"), None]),
        (pa.array([Decimal("1.255")]), SqlType("DECIMAL", (10, 2)), [Decimal("1.26")]),
        (pa.array([1.5], pa.float32()), SqlType("DOUBLE"), [1.5]),
        (pa.array(["a"]), STRING, ["a"]),
        (pa.array([b"a"]), BYTES, [b"a"]),
        (pa.array([[1, None]], pa.list_(pa.int64())), SqlType("ARRAY", of=(INT,)), [[1, None]]),
        (
            pa.array([datetime(2026, 1, 5, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            SqlType("TIMESTAMP", (3,)),
            [datetime(2026, 1, 5)],
        ),
    ],
)
def test_a_value_is_of_its_declared_type(given: pa.Array, kind: SqlType, wanted: list[Any]) -> None:
    made = declared(given, kind, "t.c", CONTEXT)
    assert made.type == kind.arrow
    assert made.to_pylist() == wanted


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (pa.array([1 << 40]), INT, "a value does not fit"),
        (pa.array([Decimal("123.5")]), SqlType("DECIMAL", (4, 2)), "a value does not fit"),
        (pa.array(["many"]), SqlType("DECIMAL", (4, 2)), "CAST of the text 'many'"),
        (pa.array([True]), INT, "t.c is declared INT, and the server's column is bool"),
        (pa.array([datetime(2026, 1, 5)], pa.timestamp("us")), SqlType("DATE"), "declared DATE"),
        (pa.array([1]), STRING, "declared STRING"),
        (pa.array(["1"]), INT, "the server's column is string"),
    ],
)
def test_what_does_not_fit_ends_the_job(given: pa.Array, kind: SqlType, words: str) -> None:
    with pytest.raises(TerminalError, match=words):
        declared(given, kind, "t.c", CONTEXT)


def test_columns_get_their_names_in_batches_and_their_types() -> None:
    fields = (Field("Id", "a", INT), Field("b", "c", STRING))
    program = ServerRowsProgram(fields, {"a": "id", "c": "b"}, "t", CONTEXT)
    given = {"b": pa.array(["x", "y"]), "id": pa.array([1, 2], pa.int64())}
    rows, places = program.run(pa.RecordBatch.from_pydict(given))
    assert rows.to_pylist() == [{"a": 1, "c": "x"}, {"a": 2, "c": "y"}]
    assert rows.schema.types == [pa.int32(), pa.string()]
    assert places is None


def test_names_are_as_postgresql_has_them() -> None:
    names = ["userId", '"userId"', "two words", '"a""b"', "ünï"]
    assert list(map(server_name, names)) == ["userid", "userId", "two words", 'a"b', "ünï"]


def test_rows_of_changes_say_which_are_deleted() -> None:
    program = WrittenRowsProgram((Field("id", "a", INT),), ("id",), "t", True)
    rows = pa.RecordBatch.from_pydict(
        {"a": pa.array([1, 2, 2, 3], pa.int32()), ROW_KIND: pa.array(["+I", "-U", "+U", "-D"])}
    )
    written, places = program.run(rows)
    assert places is not None
    assert places.tolist() == [0, 2, 3]
    assert written.to_pylist() == [
        {"id": 1, "poundlock_deleted": False},
        {"id": 2, "poundlock_deleted": False},
        {"id": 3, "poundlock_deleted": True},
    ]
    assert program.leaves_out


# --- keys that are looked up -------------------------------------------------------------------------------------------


def looked_up(fails: int = 0, retries: int = 3) -> tuple[PostgresLookup, list[float]]:
    waits: list[float] = []
    program = ServerRowsProgram((Field("k", "k", STRING),), {"k": "k"}, "t", CONTEXT)
    login = PostgresLogin("host=nowhere password=Tr0mpete")
    return PostgresLookup(login, "t", ("k",), ("k",), program, CacheLimits(), retries, waits.append), waits


class Server:
    """Answers with the keys that it is asked for; at first it does not."""

    def __init__(self, fails: int) -> None:
        self.fails, self.asked = fails, 0

    def ask(self, what: Any, doing: str) -> Any:
        self.asked += 1
        if self.asked <= self.fails:
            raise TransientError("no answer")
        return what(None)


def test_a_query_that_failed_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = pa.RecordBatch.from_pydict({"k": ["a", "b\0", "c"]})
    for fails in (0, 2, 4):
        server, (lookup, waits) = Server(fails), looked_up()
        monkeypatch.setattr("poundlock.sql.connectors.jdbc.lookup.server", lambda login, server=server: server)
        monkeypatch.setattr(PostgresLookup, "_rows", lambda self, connection, keys: keys)
        if fails > 3:
            with pytest.raises(TransientError):
                lookup.rows(keys)
        else:
            assert lookup.rows(keys).to_pylist() == [{"k": "a"}, {"k": "c"}], "no server has a text with a zero byte"
        assert waits == [1, 2, 3][: min(fails, 3)]


def test_what_a_cache_is_shared_by_has_no_secret() -> None:
    lookup, _ = looked_up()
    assert "Tr0mpete" not in lookup.identity + repr(lookup)
    assert lookup.rows(pa.RecordBatch.from_pydict({"k": pa.array([], pa.string())})).schema.names == ["k"]


@pytest.mark.parametrize(
    ("column", "kind", "sql"),
    [
        (pa.array(["a", "o'b", "c\\d"]), "uuid", "ARRAY['a', 'o''b',  E'c\\\\d']::uuid[]"),
        (pa.array([1, -2], pa.int32()), "integer", "ARRAY[1, -2]::int8[]"),
        (pa.array([Decimal("1.50")]), "numeric", "ARRAY[1.50]::numeric[]"),
        (pa.array([True]), "boolean", "ARRAY[True]::bool[]"),
        (pa.array([b"\x01"]), "bytea", "ARRAY['\\x01']::bytea[]"),
        (pa.array([datetime(2026, 1, 5)], pa.timestamp("us")), "timestamp without time zone", "ARRAY['2026-01-05 00:00:00.000000']::timestamp without time zone[]"),
    ],
)  # fmt: skip
def test_keys_are_an_array_of_the_server(column: pa.Array, kind: str, sql: str) -> None:
    assert _array(column, kind) == sql
