"""What a CassandraSink may say, which types fit, and how rows of a partition are put together; no node is asked."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from poundlock import CassandraSink, DefinitionError, TransientError
from poundlock.checkpoint.participant import Kind
from poundlock.connectors.cassandra import sender
from poundlock.connectors.cassandra.statements import batches
from poundlock.connectors.cassandra.table import fits


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"contact_points": []}, "has no contact_points"),
        ({"table": "orders"}, "is not keyspace and table"),
        ({"consistency": "SERIAL"}, "is not known"),
        ({"columns": ["id", "gone"], "delete_when": "gone"}, "is a column that is written"),
        ({"password": "secret-1"}, "without user= has no effect"),
        ({"requests": 0}, "is not from 1 to 2048"),
        ({"ttl": "0 s"}, "is not from 1 second"),
        ({"retry_for": "0 s"}, "must be longer than 0"),
        ({"port": "9042"}, "is not a whole number"),
    ],
)
def test_settings_that_mean_nothing_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words) as caught:
        CassandraSink(**{"contact_points": "localhost", "table": "k.t", **given})
    assert "secret-1" not in str(caught.value)


def test_what_it_promises() -> None:
    sink = CassandraSink("localhost", "k.t", user="u", password="pw-1", ttl="2 h")
    assert sink.kind is Kind.IDEMPOTENT
    assert sink.describe() == "Cassandra table k.t (by primary key; effectively-once)"
    assert sink.ttl_s == 7200
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert "pw-1" not in repr(sink)
    assert "pw-1" not in repr(sink.login)


@pytest.mark.parametrize(
    ("kind", "cql", "does"),
    [
        (pa.int64(), "tinyint", True),
        (pa.int64(), "text", False),
        (pa.string(), "uuid", True),
        (pa.string(), "int", False),
        (pa.float64(), "float", True),
        (pa.decimal128(9, 0), "varint", True),
        (pa.decimal128(9, 2), "varint", False),
        (pa.timestamp("us", "UTC"), "timestamp", True),
        (pa.timestamp("us"), "date", False),
        (pa.list_(pa.int32()), "frozen<set<int>>", True),
        (pa.list_(pa.string()), "list<int>", False),
        (pa.map_(pa.string(), pa.int64()), "map<text, bigint>", True),
        (pa.map_(pa.string(), pa.int64()), "map<text, text>", False),
        (pa.struct({"a": pa.int64()}), "frozen<address>", False),
        (pa.dictionary(pa.int32(), pa.string()), "text", True),
    ],
)
def test_which_types_fit(kind: pa.DataType, cql: str, does: bool) -> None:
    assert fits(kind, cql) is does


@dataclass
class Statement:
    routing_key: bytes
    values: list[bytes]


def test_rows_of_a_partition_go_together_up_to_so_many_bytes() -> None:
    made = {n: Statement(b"%d" % (n % 2), [b"x" * 60]) for n in range(7)}
    assert batches(made, 250) == [[0, 2], [1, 3], [4, 6], [5]]
    assert batches(made, 0) == [[n] for n in range(7)]
    assert batches({3: Statement(b"a", [b"x" * 900])}, 250) == [[3]]


def test_what_was_not_taken_is_sent_again_and_what_is_refused_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import cassandra
    import cassandra.concurrent
    from cassandra.cluster import NoHostAvailable

    sent: list[Any] = []
    answers = iter(
        [
            [(False, cassandra.OperationTimedOut()), (False, cassandra.InvalidRequest("bad")), (True, None)],
            [(True, None), (True, None), (False, cassandra.InvalidRequest("bad"))],
        ]
    )

    def execute(session: Any, statements: Any, **more: Any) -> Any:
        sent.append([statement for statement, _ in statements])
        return next(answers)

    monkeypatch.setattr(cassandra.concurrent, "execute_concurrent", execute)
    monkeypatch.setattr(sender, "joined", lambda statements: "+".join(statements))
    waits: list[float] = []
    sink = CassandraSink("localhost", "k.t")
    monkeypatch.setattr(type(sink.login), "session", lambda self: None)
    refused = sender.StatementSender(sink.login, 4, 60.0, waits.append).send(
        {n: f"s{n}" for n in range(5)}, [[0, 1], [2, 3], [4]]
    )
    assert sent == [["s0+s1", "s2+s3", "s4"], ["s0+s1", "s2", "s3"]]
    assert list(refused) == [3]
    assert "bad" in refused[3]
    assert len(waits) == 1
    monkeypatch.setattr(
        cassandra.concurrent, "execute_concurrent", lambda *given, **more: [(False, NoHostAvailable("all away", {}))]
    )
    with pytest.raises(TransientError, match="1 rows were not taken in 0 s"):
        sender.StatementSender(sink.login, 4, 0.0, waits.append).send({0: "s0"}, [[0]])
