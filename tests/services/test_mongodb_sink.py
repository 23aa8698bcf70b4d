"""MongoSink on servers that speak MongoDB's protocol: its contract with processes killed, attempts that were given up, foreign writers, lost answers."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, MongoSink, TransientError
from poundlock.checkpoint.participant import JSON, Prepared, WriterContext
from poundlock.formats.chunk import Batch
from poundlock.formats.reject import Reject
from poundlock.testing import sink_conformance
from support.by_key_lives import FOREIGN, KEYS, ByKeyLives
from support.cutting_proxy import CuttingProxy
from support.fixtures import running_or_skipped
from support.mongodb import FerretDb, MongoJavaServer, MongoServer

pytestmark = pytest.mark.services

ROWS = [{"id": n, "word": f"w{n}"} for n in range(16)]
SOME = ("commits", "rejects", "crash.sink.prepared")
BEGUN = 1_790_000_000_000


SERVERS: dict[str, type[MongoServer]] = {"mongo-java-server": MongoJavaServer, "FerretDB": FerretDb}


@pytest.fixture(scope="module", params=["mongo-java-server", pytest.param("FerretDB", marks=pytest.mark.torture)])
def server(request: pytest.FixtureRequest) -> Iterator[MongoServer]:
    with running_or_skipped(request.param, SERVERS[request.param]) as running:
        yield running


@pytest.fixture
def collection() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


class Attempt:
    """One attempt of a task, in this process."""

    def __init__(self, sink: MongoSink, started_ms: int, state: JSON | None = None, subtask: int = 0) -> None:
        self.rejects: list[Reject] = []
        self.sink = sink
        self.writer = sink.open_writer(
            WriterContext(
                job_id="0" * 32, sink="out", epoch=1, checkpoint=1, subtask=subtask, attempt=uuid.uuid4().hex[:12],
                directive=sink.directive(state or {}), reject=self.rejects.append, started_ms=started_ms,
            )
        )  # fmt: skip

    def write(self, *rows: Mapping[str, Any], schema: pa.Schema | None = None) -> int:
        return self.writer.write(Batch(pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)))

    def state(self) -> JSON:
        """End it, and return what a decision would say."""
        return self.sink.stage({}, [Prepared("out", 0, payload) for payload in self.writer.prepare()], None, 0).state  # type: ignore[arg-type]


def rows_of(server: MongoServer, collection: str) -> dict[Any, dict[str, Any]]:
    """Return documents by their ids, without versions."""
    return {
        each["_id"]: {name: value for name, value in each.items() if name not in ("_id", "_version")}
        for each in server.documents(collection)
    }


def test_the_contract(server: MongoServer) -> None:
    conform(server, ["id"], SOME)


@pytest.mark.torture
@pytest.mark.parametrize("key", [["id"], None], ids=["by id", "added"])
def test_all_of_the_contract(server: MongoServer, key: list[str] | None) -> None:
    conform(server, key, None)


def conform(server: MongoServer, key: list[str] | None, only: Sequence[str] | None) -> None:
    def make(folder: Path) -> MongoSink:
        name = "c-" + "".join(c if c.isalnum() else "-" for c in folder.name)
        return MongoSink(server.uri, "test", name, key=key, guarantee=None if key else "at-least-once")

    def read(sink: MongoSink) -> list[dict[str, Any]]:
        return list(rows_of(server, sink.collection).values())

    bad = [{"id": 99, "word": "x" * (17 << 20)}]  # a document has 16 MB
    report = sink_conformance(make, read=read, rows=ROWS, bad_rows=bad, only=only)
    assert report.passed


@pytest.mark.parametrize("deletes", ["remove", "mark"])
@pytest.mark.parametrize("update", ["replace", "set"])
def test_an_attempt_that_was_given_up_replaces_nothing_newer(
    server: MongoServer, collection: str, update: Any, deletes: Any
) -> None:
    sink = MongoSink(server.uri, "test", collection, key="id", delete_when="gone", update=update, deletes=deletes)
    old, repeated, later = (Attempt(sink, BEGUN + n) for n in (0, 5_000, 9_000))
    row = {"id": 1, "word": "old", "gone": False}
    assert old.write(row, {**row, "id": 2}) == 2
    assert repeated.write({**row, "word": "repeated"}, {**row, "id": 2, "word": "repeated"}) == 2
    assert later.write({**row, "word": "later"}, {**row, "id": 2, "gone": True}) == 2
    for zombie in (old, repeated):
        with pytest.raises(TransientError, match="and this checkpoint was begun 2026"):
            zombie.write({**row, "word": "too late"})
        if deletes == "remove":
            assert zombie.write({**row, "gone": True}) == 1  # which deletes nothing
        else:
            with pytest.raises(TransientError, match="and this checkpoint was begun 2026"):
                zombie.write({**row, "gone": True})
    found = rows_of(server, collection)
    assert found.pop(1) == {"id": 1, "word": "later"}
    if deletes == "remove":
        assert found == {}
        return
    with pytest.raises(TransientError, match="and this checkpoint was begun 2026"):
        old.write({**row, "id": 2, "word": "back again"})
    assert list(found[2]) == ["_deleted"]
    assert Attempt(sink, BEGUN + 10_000).write({**row, "id": 2, "word": "new"}) == 1
    assert rows_of(server, collection)[2] == {"id": 2, "word": "new"}


def test_a_repeated_attempt_may_have_its_rows_in_any_order_and_other_batches(
    server: MongoServer, collection: str
) -> None:
    sink = MongoSink(server.uri, "test", collection, key="id")
    first = Attempt(sink, BEGUN)
    for n in range(5):
        first.write({"id": 1, "n": n})
    again = Attempt(sink, BEGUN + 1)
    again.write({"id": 1, "n": 3}, {"id": 1, "n": 4})
    assert rows_of(server, collection)[1] == {"id": 1, "n": 4}
    # Two tasks of one checkpoint have no order: one of the rows stays, and nothing fails.
    again.write({"id": 2, "n": 1})
    again.write({"id": 2, "n": 2})
    assert Attempt(sink, BEGUN + 1, subtask=1).write({"id": 2, "n": 7}) == 1
    assert rows_of(server, collection)[2] == {"id": 2, "n": 2}


def test_a_clock_that_went_back_does_not_hold_up_the_next_checkpoint(server: MongoServer, collection: str) -> None:
    sink = MongoSink(server.uri, "test", collection, key="id")
    ahead = Attempt(sink, BEGUN + 3_600_000)
    ahead.write({"id": 1, "n": 1})
    behind = Attempt(sink, BEGUN, ahead.state())
    assert behind.write({"id": 1, "n": 2}) == 1
    assert rows_of(server, collection)[1] == {"id": 1, "n": 2}
    assert behind.state()["begun_ms"] == BEGUN + 3_600_001


def test_a_foreign_writer_wins_or_is_replaced_as_it_comes(server: MongoServer, collection: str) -> None:
    sink = MongoSink(server.uri, "test", collection, key="id", update="set")
    theirs = server.client["test"][collection]
    theirs.insert_one({"_id": 1, "word": "theirs", "more": 5})
    attempt = Attempt(sink, BEGUN)
    attempt.write({"id": 1, "word": "ours"}, {"id": 2, "word": "ours"})
    theirs.replace_one({"_id": 2}, {"word": "theirs"})
    assert attempt.write({"id": 3, "word": "ours"}) == 1
    assert rows_of(server, collection) == {
        1: {"id": 1, "word": "ours", "more": 5},
        2: {"word": "theirs"},
        3: {"id": 3, "word": "ours"},
    }
    Attempt(MongoSink(server.uri, "test", collection, key="id"), BEGUN + 1).write({"id": 1, "word": "alone"})
    assert rows_of(server, collection)[1] == {"id": 1, "word": "alone"}


def test_poison_is_rejected_and_the_row_before_it_stays(server: MongoServer, collection: str) -> None:
    if isinstance(server, FerretDb):
        pytest.skip("FerretDB 1 fails as a whole where an index of its own refuses an update")
    server.client["test"][collection].create_index("word", unique=True)
    attempt = Attempt(MongoSink(server.uri, "test", collection, key="id"), BEGUN)
    rows = [{"id": n, "word": f"w{n}"} for n in range(200)]
    poison = [{"id": None, "word": "no key"}, {"id": 9, "word": "x" * (17 << 20)}]
    assert attempt.write(*rows, *poison, {"id": 7, "word": "newer"}) == 201
    assert attempt.write({"id": 300, "word": "w3"}, {"id": 4, "word": "mine"}, {"id": 4, "word": "w3"}) == 1
    assert [json.loads(each.value)["id"] for each in attempt.rejects] == [None, 9, 300, 4]
    assert [each.reason.split(",")[0].split(":")[0] for each in attempt.rejects[:2]] == [
        "column 'id' is null",
        "the document is longer than 16 MB",
    ]
    assert all("E11000" in each.reason for each in attempt.rejects[2:])
    found = rows_of(server, collection)
    assert len(found) == 200
    assert (found[4]["word"], found[7]["word"], found[9]["word"]) == ("mine", "newer", "w9")


@pytest.mark.parametrize("key", ["id", None], ids=["by id", "added"])
def test_an_answer_that_was_lost_changes_nothing(server: MongoServer, collection: str, key: str | None) -> None:
    with CuttingProxy(server.port) as proxy:
        uri = f"mongodb://127.0.0.1:{proxy.port}"
        guarantee: Any = None if key else "at-least-once"
        sink = MongoSink(uri, "test", collection, key=key, guarantee=guarantee, bulk_size=400, timeout="5 s")
        proxy.cut(3, b"lost-answer")
        assert Attempt(sink, BEGUN).write(*({"id": n, "word": f"lost-answer {n}"} for n in range(40))) == 40
        assert proxy.done == 3
        sink.close()
    found = rows_of(server, collection).values()
    assert sorted(each["id"] for each in found) == list(range(40))
    assert all(each["word"] == f"lost-answer {each['id']}" for each in found)


def test_a_server_that_is_away_is_asked_again_for_so_long(collection: str) -> None:
    sink = MongoSink("mongodb://127.0.0.1:1", "test", collection, key="id", timeout="1 s", retry_for="1 s")
    with pytest.raises(TransientError, match=r"did not take 1 documents in 1 s: MongoDB at 127\.0\.0\.1:1, writing: "):
        Attempt(sink, BEGUN).write({"id": 1})
    sink.close()


def test_values_of_every_type_are_read_back(server: MongoServer, collection: str) -> None:
    if isinstance(server, FerretDb):
        pytest.skip("FerretDB 1 has no Decimal128")
    moment = datetime.datetime(2026, 2, 3, 4, 5, 6, 7000)
    row = {
        "p": "ä", "c": moment, "d": decimal.Decimal("1.50"), "e": 0.5, "f": True, "g": b"\0x", "h": datetime.date(2026, 2, 3),
        "i": 1 << 62, "j": 5, "l": [1, None], "m": [("x", 5)], "s": {"a": [{"b": "deep"}], "n": None}, "n": None,
    }  # fmt: skip
    schema = pa.schema(
        {
            "p": pa.string(), "c": pa.timestamp("us"), "d": pa.decimal128(38, 2), "e": pa.float64(), "f": pa.bool_(),
            "g": pa.binary(), "h": pa.date32(), "i": pa.int64(), "j": pa.int32(), "l": pa.list_(pa.int32()),
            "m": pa.map_(pa.string(), pa.int64()), "n": pa.string(),
            "s": pa.struct({"a": pa.list_(pa.struct({"b": pa.string()})), "n": pa.int64()}),
        }
    )  # fmt: skip
    sink = MongoSink(server.uri, "test", collection, key=["p", "c"])
    sink.preflight()
    sink.check_columns("out", schema.names)
    sink.check_schema("out", schema)
    attempt = Attempt(sink, BEGUN)
    bad = [
        {**row, "d": decimal.Decimal("999999999999999999999999999999999999.99")},
        {**row, "m": [("a\0b", 1)]},
        {**row, "c": moment.replace(microsecond=7001)},
    ]
    assert attempt.write(row, *bad, schema=schema) == 1
    assert len(attempt.rejects) == 3
    (found,) = server.documents(collection)
    assert found.pop("_id") == {"p": "ä", "c": moment}
    assert found.pop("_version") >> 20 == BEGUN
    found["d"] = found["d"].to_decimal()
    assert found == {**row, "h": datetime.datetime(2026, 2, 3), "m": {"x": 5}}


def test_what_cannot_work_is_refused_before_anything_is_written(
    server: MongoServer, collection: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = MongoSink(server.uri, "test", collection, key="id", delete_when="gone", deletes="mark")
    with caplog.at_level(logging.WARNING):
        sink.preflight()
    assert f"db.{collection}.createIndex({{_deleted: 1}}, {{expireAfterSeconds: 3600}})" in caplog.text
    assert server.documents(collection) == []
    with caplog.at_level(logging.WARNING):
        MongoSink(server.uri, "test", collection, key="id", delete_when="gone").preflight()
    assert "a deleted document leaves nothing behind" in caplog.text
    with pytest.raises(DefinitionError, match="have a column '_version', which the sink itself writes"):
        sink.check_columns("out", ["id", "_version", "gone"])
    with pytest.raises(TransientError, match=r"MongoDB at 127\.0\.0\.1:1, asking what it is: "):
        MongoSink("mongodb://127.0.0.1:1", "test", collection, key="id", timeout="1 s").preflight()


def lives_of(
    server: MongoServer, root: Path, collection: str, uri: str | None = None, sink: str = "mongodb", **given: Any
) -> ByKeyLives:
    environment = {"CRASH_SINK": sink, "CRASH_URL": uri or server.uri, "CRASH_PLACE": collection}

    def read() -> dict[int, int]:
        return {each["_id"]: each["n"] for each in server.documents(collection) if "_deleted" not in each}

    return ByKeyLives(root, environment, read, **given)


@pytest.mark.engine
def test_a_job_to_its_end(server: MongoServer, collection: str, tmp_path: Path) -> None:
    lives_of(server, tmp_path, collection, checkpoints=3).to_the_end()


@pytest.mark.crash
@pytest.mark.torture
def test_a_job_killed_at_every_failpoint(server: MongoServer, collection: str, tmp_path: Path) -> None:
    lives_of(server, tmp_path, collection, sink="mongodb-mark", checkpoints=30).through_failpoints()


@pytest.mark.crash
@pytest.mark.torture
def test_a_job_killed_at_random_beside_a_foreign_writer_while_answers_are_lost(
    server: MongoServer, collection: str, tmp_path: Path
) -> None:
    theirs: list[int] = []
    numbers = itertools.count()
    written = server.client["test"][collection]
    with CuttingProxy(server.port) as proxy:

        def disturb() -> None:
            n = next(numbers)
            for id in (KEYS + n, n % KEYS):
                written.replace_one({"_id": id}, {"id": id, "n": FOREIGN, "word": "theirs"}, upsert=True)
            theirs.append(KEYS + n)
            if n % 10 == 0:
                proxy.cut(1, b"updates")

        uri = f"mongodb://127.0.0.1:{proxy.port}"
        lives_of(server, tmp_path, collection, uri, checkpoints=200, rate=1000).through_random_kills(10, disturb)
        print(f"{proxy.done} answers were lost, {len(theirs)} rows are somebody else's")
        assert proxy.done
    assert [each["_id"] for each in written.find({"n": FOREIGN}).sort("_id")] == theirs
