"""CassandraSink on a real node: its contract with processes killed, attempts that were given up, foreign writers, lost answers."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import CassandraSink, DefinitionError, TransientError
from poundlock.checkpoint.participant import JSON, Prepared, WriterContext
from poundlock.connectors.cassandra import checks
from poundlock.formats.chunk import Batch
from poundlock.formats.reject import Reject
from poundlock.testing import EmbeddedCassandra, sink_conformance
from support.by_key_lives import FOREIGN, KEYS, ByKeyLives
from support.cutting_proxy import CuttingProxy

pytestmark = pytest.mark.services

ROWS = [{"id": n, "word": f"w{n}"} for n in range(16)]
SOME = ("commits", "rejects", "crash.sink.prepared")
BEGUN = 1_790_000_000_000


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedCassandra]:
    with EmbeddedCassandra() as running:
        running.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        yield running


@pytest.fixture
def table(node: EmbeddedCassandra) -> str:
    return made(node, "id bigint PRIMARY KEY, word text, n int")


def made(node: EmbeddedCassandra, columns: str, name: str | None = None) -> str:
    name = name or f"t_{uuid.uuid4().hex[:8]}"
    node.execute(f"CREATE TABLE IF NOT EXISTS k.{name} ({columns})")
    return f"k.{name}"


def sink_to(node: EmbeddedCassandra, table: str, **given: Any) -> CassandraSink:
    return CassandraSink("127.0.0.1", table, **{"port": node.port, **given})


class Attempt:
    """One attempt of a task, in this process."""

    def __init__(self, sink: CassandraSink, started_ms: int, state: JSON | None = None) -> None:
        self.rejects: list[Reject] = []
        self.sink = sink
        self.writer = sink.open_writer(
            WriterContext(
                job_id="0" * 32, sink="out", epoch=1, checkpoint=1, subtask=0, attempt=uuid.uuid4().hex[:12],
                directive=sink.directive(state or {}), reject=self.rejects.append, started_ms=started_ms,
            )
        )  # fmt: skip

    def write(self, *rows: Mapping[str, Any], schema: pa.Schema | None = None) -> int:
        return self.writer.write(Batch(pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)))

    def state(self) -> JSON:
        """End it, and return what a decision would say."""
        return self.sink.stage({}, [Prepared("out", 0, payload) for payload in self.writer.prepare()], None, 0).state  # type: ignore[arg-type]


def rows_of(node: EmbeddedCassandra, table: str, columns: str = "id, word") -> list[tuple[Any, ...]]:
    return sorted(node.execute(f"SELECT {columns} FROM {table}"))


def test_the_contract(node: EmbeddedCassandra) -> None:
    conform(node, SOME)


@pytest.mark.torture
def test_all_of_the_contract(node: EmbeddedCassandra) -> None:
    conform(node, None)


def conform(node: EmbeddedCassandra, only: Sequence[str] | None) -> None:
    def make(folder: Path) -> CassandraSink:
        name = "c_" + "".join(c if c.isalnum() else "_" for c in folder.name).lower()
        return sink_to(node, made(node, "id bigint PRIMARY KEY, word text", name))

    def read(sink: CassandraSink) -> list[dict[str, Any]]:
        return [{"id": id, "word": word} for id, word in node.execute(f"SELECT id, word FROM {sink.table}")]

    report = sink_conformance(make, read=read, rows=ROWS, bad_rows=[{"id": None, "word": "no key"}], only=only)
    assert report.passed


def test_an_attempt_that_was_given_up_replaces_nothing_newer(node: EmbeddedCassandra, table: str) -> None:
    sink = sink_to(node, table, delete_when="gone")
    old, repeated, later = (Attempt(sink, BEGUN + n) for n in (0, 5_000, 9_000))
    row = {"id": 1, "word": "old", "gone": False}
    old.write(row, {**row, "id": 2}, {**row, "id": 3})
    repeated.write(*({**row, "id": id, "word": "repeated"} for id in (1, 2, 3)))
    later.write({**row, "word": "later"}, {**row, "id": 2, "gone": True})
    for zombie in (old, repeated, old):
        assert zombie.write(*({**row, "id": id, "word": "too late"} for id in (1, 2))) == 2
    assert old.write({**row, "id": 3, "word": "too late"}) == 1
    assert rows_of(node, table) == [(1, "later"), (3, "repeated")]


def test_the_newest_row_of_a_key_counts_over_batches_and_attempts(node: EmbeddedCassandra, table: str) -> None:
    sink = sink_to(node, table, delete_when="gone")
    first = Attempt(sink, BEGUN)
    for n in (5, 4, 3):
        first.write({"id": 1, "n": n, "gone": False}, {"id": 2, "n": n, "gone": n == 4})
    assert rows_of(node, table, "id, n") == [(1, 3), (2, 3)]
    ahead = Attempt(sink, BEGUN + 3_600_000)
    ahead.write({"id": 1, "n": 1, "gone": False})
    behind = Attempt(sink, BEGUN, ahead.state())
    behind.write({"id": 1, "n": 0, "gone": False}, {"id": 1, "n": 8, "gone": False}, {"id": 1, "n": 7, "gone": False})
    assert rows_of(node, table, "id, n") == [(1, 7), (2, 3)]
    assert behind.state()["begun_ms"] == BEGUN + 3_600_001


def test_a_foreign_writer_wins_where_it_wrote_after_the_checkpoint_was_begun(
    node: EmbeddedCassandra, table: str
) -> None:
    sink = sink_to(node, table, columns=["id", "word"])
    now = round(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
    node.execute(f"INSERT INTO {table} (id, word) VALUES (1, 'theirs')")
    Attempt(sink, now - 60_000).write({"id": 1, "word": "begun before"})
    Attempt(sink, now + 60_000).write({"id": 2, "word": "begun later"})
    node.execute(f"INSERT INTO {table} (id, word) VALUES (2, 'theirs')")
    assert rows_of(node, table) == [(1, "theirs"), (2, "begun later")]


def test_values_of_every_type_are_read_back(node: EmbeddedCassandra) -> None:
    table = made(
        node,
        "p text, c timestamp, a tinyint, b varint, d decimal, e double, f boolean, g blob, h date, i time, j uuid, k inet,"
        ' l list<int>, m map<text, bigint>, s set<text>, "Mixed" int, PRIMARY KEY ((p), c)',
    )
    moment = datetime.datetime(2026, 2, 3, 4, 5, 6, 7000, tzinfo=datetime.UTC)
    one = uuid.uuid4()
    row = {
        "p": "ä", "c": moment, "a": 3, "b": 1 << 62, "d": decimal.Decimal("1.50"), "e": 0.5, "f": True, "g": b"\0x",
        "h": datetime.date(2026, 2, 3), "i": datetime.time(1, 2, 3), "j": str(one), "k": "10.0.0.1", "l": [1, 2],
        "m": [("x", 5)], "s": ["b", "a"], "Mixed": 7,
    }  # fmt: skip
    schema = pa.schema(
        {
            "p": pa.string(), "c": pa.timestamp("us", "UTC"), "a": pa.int64(), "b": pa.int64(), "d": pa.decimal128(9, 2),
            "e": pa.float64(), "f": pa.bool_(), "g": pa.binary(), "h": pa.date32(), "i": pa.time64("us"), "j": pa.string(),
            "k": pa.string(), "l": pa.list_(pa.int32()), "m": pa.map_(pa.string(), pa.int64()), "s": pa.list_(pa.string()),
            "Mixed": pa.int32(),
        }
    )  # fmt: skip
    sink = sink_to(node, table)
    sink.preflight()
    sink.check_schema("out", schema)
    attempt = Attempt(sink, BEGUN)
    bad = [{**row, "p": "bad", "a": 300}, {**row, "p": "bad", "j": "no uuid"}, {**row, "p": None}, {**row, "p": ""}]
    assert attempt.write(row, *bad, schema=schema) == 1
    assert len(attempt.rejects) == 4
    ((p, c, a, b, d, e, f, g, h, i, j, k, li, m, s, mixed),) = node.execute(
        f'SELECT p, c, a, b, d, e, f, g, h, i, j, k, l, m, s, "Mixed" FROM {table}'
    )
    assert (p, c, a, b, d, e, f, g) == ("ä", moment.replace(tzinfo=None), 3, 1 << 62, row["d"], 0.5, True, b"\0x")
    assert (str(h), str(i)[:8], j, k, li, dict(m), set(s), mixed) == (
        "2026-02-03", "01:02:03", one, "10.0.0.1", [1, 2], {"x": 5}, {"a", "b"}, 7,
    )  # fmt: skip


def test_a_row_that_is_refused_does_not_take_its_batch_along(node: EmbeddedCassandra) -> None:
    table = made(node, "p int, c text, v text, PRIMARY KEY (p, c)")
    attempt = Attempt(sink_to(node, table), BEGUN)
    rows = [{"p": n % 3, "c": f"c{n}", "v": f"v{n}"} for n in range(300)]
    long = "x" * 70_000  # a clustering key has 65,535 bytes
    assert attempt.write(*rows, {"p": 1, "c": long, "v": "bad"}) == 300
    assert [json.loads(each.value)["v"] for each in attempt.rejects] == ["bad"]
    assert sorted(node.execute(f"SELECT p, c, v FROM {table}")) == sorted((r["p"], r["c"], r["v"]) for r in rows)


def test_nulls_and_a_time_to_live(node: EmbeddedCassandra, table: str) -> None:
    Attempt(sink_to(node, table), BEGUN).write({"id": 1, "word": "a", "n": 1}, {"id": 2, "word": "b", "n": 2})
    Attempt(sink_to(node, table, ignore_null_fields=True, ttl="1 h"), BEGUN + 1).write({"id": 1, "word": None, "n": 5})
    schema = pa.schema({"id": pa.int64(), "word": pa.string(), "n": pa.int64()})
    Attempt(sink_to(node, table), BEGUN + 1).write({"id": 2, "word": None, "n": 6}, schema=schema)
    assert rows_of(node, table, "id, word, n") == [(1, "a", 5), (2, None, 6)]
    ((left, other),) = node.execute(f"SELECT ttl(n), ttl(word) FROM {table} WHERE id = 1")
    assert 3000 < left <= 3600
    assert other is None


def test_an_answer_that_was_lost_changes_nothing(node: EmbeddedCassandra, table: str) -> None:
    with CuttingProxy(node.port) as proxy:
        sink = CassandraSink("127.0.0.1", table, port=proxy.port, requests=4, timeout="3 s")
        attempt = Attempt(sink, BEGUN)
        attempt.write({"id": 0, "word": "first"})
        proxy.cut(1, b"lost-answer")
        assert attempt.write(*({"id": n, "word": f"lost-answer {n}"} for n in range(1, 40))) == 39
        assert proxy.done == 1
        sink.close()
    assert [word for _, word in rows_of(node, table)] == ["first", *(f"lost-answer {n}" for n in range(1, 40))]


def test_what_cannot_work_is_refused_before_anything_is_written(
    node: EmbeddedCassandra, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_to(node, table)
    sink.preflight()
    sink.check_columns("out", ["id", "word"])
    with pytest.raises(DefinitionError, match="have a column 'colour'"):
        sink.check_columns("out", ["id", "colour"])
    with pytest.raises(DefinitionError, match="lack 'id', which is in the primary key"):
        sink.check_columns("out", ["word"])
    with pytest.raises(DefinitionError, match=r"column 'word' is int64, and in table .* it is text"):
        sink.check_schema("out", pa.schema({"id": pa.int64(), "word": pa.int64()}))
    with pytest.raises(DefinitionError, match=r"no table k\.nope"):
        sink_to(node, "k.nope").preflight()
    with pytest.raises(DefinitionError, match="no keyspace 'nope'"):
        sink_to(node, "nope.t").preflight()
    with pytest.raises(DefinitionError, match="counters"):
        sink_to(node, made(node, "id int PRIMARY KEY, n counter")).preflight()
    static = sink_to(node, made(node, "id int, c int, s int STATIC, PRIMARY KEY (id, c)"))
    static.preflight()
    with pytest.raises(DefinitionError, match="is static"):
        static.check_columns("out", ["id", "c", "s"])
    with pytest.raises(TransientError):
        CassandraSink("127.0.0.1", table, port=1).preflight()
    clock = checks.time.time
    monkeypatch.setattr(checks.time, "time", lambda: clock() + 90)
    with pytest.raises(DefinitionError, match=r"are (89|9\d)\.\d s apart"):
        sink.preflight()


def lives_of(node: EmbeddedCassandra, root: Path, table: str, port: int | None = None, **given: Any) -> ByKeyLives:
    environment = {"CRASH_SINK": "cassandra", "CRASH_URL": str(port or node.port), "CRASH_PLACE": table}
    return ByKeyLives(root, environment, lambda: dict(rows_of(node, table, "id, n")), **given)


@pytest.fixture
def numbers(node: EmbeddedCassandra) -> str:
    return made(node, "id bigint PRIMARY KEY, n bigint, word text")


@pytest.mark.engine
def test_a_job_to_its_end(node: EmbeddedCassandra, numbers: str, tmp_path: Path) -> None:
    lives_of(node, tmp_path, numbers, checkpoints=3).to_the_end()


@pytest.mark.crash
@pytest.mark.torture
def test_a_job_killed_at_every_failpoint(node: EmbeddedCassandra, numbers: str, tmp_path: Path) -> None:
    lives_of(node, tmp_path, numbers, checkpoints=30).through_failpoints()


@pytest.mark.crash
@pytest.mark.torture
def test_a_job_killed_at_random_beside_a_foreign_writer_while_answers_are_lost(
    node: EmbeddedCassandra, numbers: str, tmp_path: Path
) -> None:
    theirs: list[int] = []
    counter = itertools.count()
    with CuttingProxy(node.port) as proxy:

        def disturb() -> None:
            n = next(counter)
            for id in (KEYS + n, n % KEYS):
                node.execute(f"INSERT INTO {numbers} (id, n, word) VALUES ({id}, {FOREIGN}, 'theirs')")
            theirs.append(KEYS + n)
            if n % 20 == 0:
                proxy.cut(1, b"row ")

        lives = lives_of(node, tmp_path, numbers, proxy.port, checkpoints=200, rate=1000)
        lives.through_random_kills(10, disturb)
        print(f"{proxy.done} answers were lost, {len(theirs)} rows are somebody else's")
        assert proxy.done
    foreign = {id for id, n in rows_of(node, numbers, "id, n") if n == FOREIGN}
    assert foreign == set(theirs)
