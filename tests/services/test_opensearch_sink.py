"""OpenSearchSink on a real node: its contract with processes killed, attempts that were given up, foreign writers, lost answers."""

from __future__ import annotations

import itertools
import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import DefinitionError, OpenSearchSink, TransientError
from poundlock.checkpoint.participant import JSON, Prepared, WriterContext
from poundlock.formats.chunk import Batch
from poundlock.formats.reject import Reject
from poundlock.testing import EmbeddedOpenSearch, sink_conformance
from support.by_key_lives import FOREIGN, KEYS, ByKeyLives
from support.cutting_proxy import CuttingProxy

pytestmark = pytest.mark.services

ROWS = [{"id": n, "word": f"w{n}"} for n in range(16)]
SOME = ("commits", "rejects", "crash.sink.prepared")
KILLS = ("crash.sink.writing", "crash.sink.prepared", "crash.decision.recorded")
MAPPING = {"properties": {"id": {"type": "long"}, "word": {"type": "keyword"}, "n": {"type": "long"}}}
BEGUN = 1_790_000_000_000


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedOpenSearch]:
    with EmbeddedOpenSearch() as running:
        yield running


@pytest.fixture
def index(node: EmbeddedOpenSearch) -> str:
    return made_index(node, f"t-{uuid.uuid4().hex[:8]}")


def made_index(node: EmbeddedOpenSearch, name: str, **settings: Any) -> str:
    given = {"number_of_replicas": 0, "number_of_shards": 2, **settings}
    node.ask("PUT", f"/{name}", {"settings": given, "mappings": MAPPING})
    return name


class Attempt:
    """One attempt of a task, in this process."""

    def __init__(self, sink: OpenSearchSink, started_ms: int, state: JSON | None = None, subtask: int = 0) -> None:
        self.rejects: list[Reject] = []
        self.sink = sink
        self.writer = sink.open_writer(
            WriterContext(
                job_id="0" * 32, sink="out", epoch=1, checkpoint=1, subtask=subtask, attempt=uuid.uuid4().hex[:12],
                directive=sink.directive(state or {}), reject=self.rejects.append, started_ms=started_ms,
            )
        )  # fmt: skip

    def write(self, *rows: Mapping[str, Any]) -> int:
        return self.writer.write(Batch(pa.RecordBatch.from_pylist([dict(row) for row in rows])))

    def state(self) -> JSON:
        """End it, and return what a decision would say."""
        return self.sink.stage({}, [Prepared("out", 0, payload) for payload in self.writer.prepare()], None, 0).state  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [["id"], None], ids=["by id", "added"])
def test_the_contract(node: EmbeddedOpenSearch, key: list[str] | None) -> None:
    conform(node, key, SOME)


@pytest.mark.torture
@pytest.mark.parametrize("key", [["id"], None], ids=["by id", "added"])
def test_all_of_the_contract(node: EmbeddedOpenSearch, key: list[str] | None) -> None:
    conform(node, key, None)


def conform(node: EmbeddedOpenSearch, key: list[str] | None, only: Sequence[str] | None) -> None:
    def make(folder: Path) -> OpenSearchSink:
        name = "c-" + "".join(c if c.isalnum() else "-" for c in folder.name).lower()
        if node.ask("GET", f"/{name}") is None:
            made_index(node, name)
        return OpenSearchSink(node.url, name, key=key, guarantee=None if key else "at-least-once")

    def read(sink: OpenSearchSink) -> list[dict[str, Any]]:
        return list(node.documents(sink.index).values())

    bad = [{"id": 99, "word": "x" * 40_000}]  # a keyword has 32,766 bytes
    report = sink_conformance(make, read=read, rows=ROWS, bad_rows=bad, only=only)
    assert report.passed


def test_an_attempt_that_was_given_up_replaces_nothing_newer(node: EmbeddedOpenSearch, index: str) -> None:
    sink = OpenSearchSink(node.url, index, key="id", delete_when="gone")
    old, repeated, later = (Attempt(sink, BEGUN + n) for n in (0, 5_000, 9_000))
    row = {"id": 1, "word": "old", "gone": False}
    assert old.write(row, {**row, "id": 2}) == 2
    assert repeated.write({**row, "word": "repeated"}, {**row, "id": 2, "word": "repeated"}) == 2
    assert later.write({**row, "word": "later"}, {**row, "id": 2, "gone": True}) == 2
    for zombie in (old, repeated):
        for id in (1, 2):
            with pytest.raises(TransientError, match="and this checkpoint was begun 2026"):
                zombie.write({**row, "id": id, "word": "too late"})
    assert node.documents(index) == {"1": {"id": 1, "word": "later"}}


def test_a_repeated_attempt_may_have_its_rows_in_any_order_and_other_batches(
    node: EmbeddedOpenSearch, index: str
) -> None:
    sink = OpenSearchSink(node.url, index, key="id")
    first = Attempt(sink, BEGUN)
    for n in range(5):
        first.write({"id": 1, "n": n})
    again = Attempt(sink, BEGUN + 1)
    again.write({"id": 1, "n": 3}, {"id": 1, "n": 4})
    assert node.documents(index)["1"] == {"id": 1, "n": 4}
    # Two tasks of one checkpoint have no order: one of the rows stays, and nothing fails.
    assert Attempt(sink, BEGUN + 1, subtask=1).write({"id": 1, "n": 7}) == 1


def test_a_clock_that_went_back_does_not_hold_up_the_next_checkpoint(node: EmbeddedOpenSearch, index: str) -> None:
    sink = OpenSearchSink(node.url, index, key="id")
    ahead = Attempt(sink, BEGUN + 3_600_000)
    ahead.write({"id": 1, "n": 1})
    behind = Attempt(sink, BEGUN, ahead.state())
    assert behind.write({"id": 1, "n": 2}) == 1
    assert node.documents(index)["1"] == {"id": 1, "n": 2}
    assert behind.state()["begun_ms"] == BEGUN + 3_600_001


def test_a_foreign_writer_wins_or_is_replaced_as_it_comes(node: EmbeddedOpenSearch, index: str) -> None:
    sink = OpenSearchSink(node.url, index, key="id")
    node.ask("PUT", f"/{index}/_doc/1", {"word": "theirs"})
    attempt = Attempt(sink, BEGUN)
    attempt.write({"id": 1, "word": "ours"}, {"id": 2, "word": "ours"})
    node.ask("PUT", f"/{index}/_doc/2", {"word": "theirs"})
    assert attempt.write({"id": 3, "word": "ours"}) == 1
    assert {id: found["word"] for id, found in node.documents(index).items()} == {
        "1": "ours",
        "2": "theirs",
        "3": "ours",
    }
    assert Attempt(sink, BEGUN + 1).write({"id": 2, "word": "ours again"}) == 1
    assert node.documents(index)["2"]["word"] == "ours again"


def test_poison_is_rejected_and_the_row_before_it_stays(node: EmbeddedOpenSearch, index: str) -> None:
    attempt = Attempt(OpenSearchSink(node.url, index, key="id"), BEGUN)
    rows = [{"id": n, "word": f"w{n}"} for n in range(200)]
    long = "y" * 40_000
    assert attempt.write(*rows, {"id": 5, "word": long}, {"id": 300, "word": long}, {"id": 7, "word": "newer"}) == 201
    assert sorted(json.loads(each.value)["id"] for each in attempt.rejects) == [5, 300]
    assert all(each.reason.startswith(f"{index}: ") and "immense term" in each.reason for each in attempt.rejects)
    found = node.documents(index)
    assert len(found) == 200
    assert found["5"]["word"] == "w5"
    assert found["7"]["word"] == "newer"


def test_an_answer_that_was_lost_changes_nothing(node: EmbeddedOpenSearch, index: str) -> None:
    with CuttingProxy(node.port) as proxy:
        sink = OpenSearchSink(f"http://127.0.0.1:{proxy.port}", index, key="id", bulk_size=200)
        proxy.cut(3, b"_bulk")
        attempt = Attempt(sink, BEGUN)
        assert attempt.write(*({"id": n, "word": f"w{n}"} for n in range(40))) == 40
        assert proxy.done == 3
    assert {int(id): found["word"] for id, found in node.documents(index).items()} == {n: f"w{n}" for n in range(40)}


def test_rows_go_to_indices_by_their_columns_and_deletions_too(node: EmbeddedOpenSearch) -> None:
    prefix = f"d-{uuid.uuid4().hex[:8]}"
    sink = OpenSearchSink(
        node.url, prefix + "-{where}", key=["id", "where"], columns=["id", "where"], delete_when="gone"
    )
    sink.preflight()
    attempt = Attempt(sink, BEGUN)
    attempt.write(*({"id": n % 4, "where": f"x{n % 2}", "gone": n == 6} for n in range(8)))
    attempt.write({"id": 9, "where": None, "gone": False}, {"id": 9, "where": "Not Small", "gone": False})
    reasons = [each.reason for each in attempt.rejects]
    assert reasons[0] == "column 'where' is null, and must not be"
    assert "invalid_index_name_exception" in reasons[1]
    assert set(node.documents(f"{prefix}-x0")) == {"0_x0"}
    assert set(node.documents(f"{prefix}-x1")) == {"1_x1", "3_x1"}


def test_what_cannot_work_is_refused_before_anything_is_written(
    node: EmbeddedOpenSearch, caplog: pytest.LogCaptureFixture
) -> None:
    lazy = made_index(node, f"lazy-{uuid.uuid4().hex[:8]}", **{"translog.durability": "async"})
    with pytest.raises(DefinitionError, match="durability is async"):
        OpenSearchSink(node.url, lazy, key="id").preflight()
    strict = f"strict-{uuid.uuid4().hex[:8]}"
    node.ask("PUT", f"/{strict}", {"mappings": {**MAPPING, "dynamic": "strict"}})
    sink = OpenSearchSink(node.url, strict, key="id", delete_when="gone")
    with caplog.at_level(logging.WARNING):
        sink.preflight()
    assert "forgets the version of a deleted document after 60s" in caplog.text
    sink.check_columns("out", ["id", "word", "gone"])
    with pytest.raises(DefinitionError, match="have a column 'colour'"):
        sink.check_columns("out", ["id", "colour", "gone"])
    node.ask("PUT", f"/_index_template/{strict}", {"index_patterns": [f"s{strict}"], "data_stream": {}})
    node.ask("PUT", f"/_data_stream/s{strict}")
    with pytest.raises(DefinitionError, match="is a data stream"):
        OpenSearchSink(node.url, f"s{strict}", key="id").preflight()
    added = OpenSearchSink(node.url, f"s{strict}", guarantee="at-least-once")
    added.preflight()
    assert Attempt(added, BEGUN).write({"@timestamp": 5, "a": 1}, {"@timestamp": 6, "a": 1}) == 2
    assert len(node.documents(f"s{strict}")) == 2
    with pytest.raises(TransientError, match="no OpenSearch answers"):
        OpenSearchSink("http://127.0.0.1:1", "orders", key="id").preflight()


@pytest.mark.torture
def test_a_node_that_is_too_busy_has_every_row_in_the_end() -> None:
    with EmbeddedOpenSearch(settings={"indexing_pressure.memory.limit": "64kb"}) as busy:
        index = made_index(busy, "busy")
        sink = OpenSearchSink(busy.url, index, key="id", bulk_size="16 KB", requests=16, retry_for="300 s")
        rows = [{"id": n, "word": f"{n:0200d}"} for n in range(9_000)]
        assert Attempt(sink, BEGUN).write(*rows) == 9_000
        assert {int(id): found["word"] for id, found in busy.documents(index).items()} == {
            row["id"]: row["word"] for row in rows
        }
        nodes = busy.ask("GET", "/_nodes/stats/indexing_pressure")["nodes"].values()
        refusals = [node["indexing_pressure"]["memory"]["total"] for node in nodes]
        print(refusals)
        assert sum(each["coordinating_rejections"] + each["primary_rejections"] for each in refusals)


def lives_of(node: EmbeddedOpenSearch, root: Path, index: str, url: str | None = None, **given: Any) -> ByKeyLives:
    environment = {"CRASH_SINK": "opensearch", "CRASH_URL": url or node.url, "CRASH_PLACE": index}
    read = lambda: {d["id"]: d["n"] for d in node.documents(index).values()}  # noqa: E731
    return ByKeyLives(root, environment, read, poison="long", **given)


@pytest.mark.engine
def test_a_job_to_its_end(node: EmbeddedOpenSearch, index: str, tmp_path: Path) -> None:
    lives_of(node, tmp_path, index, checkpoints=3).to_the_end()


@pytest.mark.crash
@pytest.mark.torture
def test_a_job_killed_at_every_failpoint(node: EmbeddedOpenSearch, index: str, tmp_path: Path) -> None:
    lives_of(node, tmp_path, index, checkpoints=30).through_failpoints()


@pytest.mark.crash
@pytest.mark.torture
def test_a_job_killed_at_random_beside_a_foreign_writer_while_answers_are_lost(
    node: EmbeddedOpenSearch, index: str, tmp_path: Path
) -> None:
    theirs: list[int] = []
    counter = itertools.count()
    with CuttingProxy(node.port) as proxy:

        def disturb() -> None:
            n = next(counter)
            for id in (KEYS + n, n % KEYS):
                node.ask("PUT", f"/{index}/_doc/{id}", {"id": id, "n": FOREIGN, "word": "theirs"})
            theirs.append(KEYS + n)
            if n % 10 == 0:
                proxy.cut(1, b"_bulk")

        url = f"http://127.0.0.1:{proxy.port}"
        lives_of(node, tmp_path, index, url, checkpoints=200, rate=1000).through_random_kills(10, disturb)
        print(f"{proxy.done} answers were lost, {len(theirs)} rows are somebody else's")
        assert proxy.done
    foreign = {d["id"] for d in node.documents(index).values() if d["n"] == FOREIGN}
    assert foreign == set(theirs)
