"""The leader of a partition is killed on a real cluster, in mid-read and in mid-write: nothing is lost, nothing is there twice."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from poundlock import KafkaSource
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.decision import SourceRange
from poundlock.checkpoint.outcome import TaskResults
from poundlock.checkpoint.participant import Counts, Prepared, WriterContext
from poundlock.connectors.base import ReaderContext
from poundlock.errors import TransientError
from poundlock.formats.chunk import Batch, Lines
from poundlock.storage import LocalStorage
from poundlock.testing.kafka import Record
from support.kafka_cluster import STAYS, TwoBrokers, two_brokers
from support.kafka_rig import Rig

pytestmark = pytest.mark.services

ROWS = 4000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TwoBrokers]:
    with two_brokers(tmp_path / "brokers") as running:
        yield running


def test_offsets_are_asked_of_the_new_leader_when_the_old_one_is_killed(cluster: TwoBrokers) -> None:
    cluster.create_topic("t", 40)
    cluster.stays.produce("t", [Record(b"%d" % n, partition=n % 40) for n in range(400)])
    places = [("t", n) for n in range(40)]
    driver = KafkaSource(bootstrap_servers=cluster.bootstrap_servers, topics="t").cluster()
    assert driver.end(places) == dict.fromkeys(places, 10)
    cluster.leads.kill()
    assert driver.end(places, timeout=60) == dict.fromkeys(places, 10)
    cluster.wait_for_leader("t", STAYS)
    cluster.lead_again("t")  # with a newer epoch, which the broker that led meanwhile refuses to answer for
    assert driver.end(places, timeout=60) == dict.fromkeys(places, 10)
    assert driver.begin(places) == dict.fromkeys(places, 0)
    driver.close()


def test_the_leader_is_killed_in_mid_read_and_in_mid_write(cluster: TwoBrokers, tmp_path: Path) -> None:
    cluster.create_topic("in", 2)
    cluster.create_topic("out", 2)
    rows = [b"%d" % n for n in range(ROWS)]
    for partition in range(2):  # in many batches, so that a range comes in many answers
        for at in range(0, ROWS // 2, 100):
            producer_rows = rows[partition * ROWS // 2 + at :][:100]
            cluster.stays.produce("in", [Record(value, partition=partition) for value in producer_rows])

    options = {"kafka.max.partition.fetch.bytes": 1000}
    source = KafkaSource(bootstrap_servers=cluster.bootstrap_servers, topics="in", options=options)
    bound = source.bind(job="j", name="n")
    enumerator = bound.enumerator(LocalStorage(str(tmp_path / "source")))
    start = enumerator.initial()
    splits = enumerator.splits(start, enumerator.latest(start))
    assert len(splits) == 2
    reader = bound.reader(ReaderContext(reject=print, columns=["value"]))

    def read(number: int, meanwhile: Callable[[], None]) -> list[bytes]:
        found: list[bytes] = []
        for chunk in reader.read(splits[number]):
            assert isinstance(chunk, Lines)
            found += [chunk.row(i) for i in range(len(chunk))]
            if len(found) >= 500:
                meanwhile, _ = _nothing, meanwhile()
        return found

    first = read(0, cluster.leads.kill)
    assert first == rows[: ROWS // 2]
    cluster.wait_for_leader("in", STAYS)
    cluster.lead_again("in")
    cluster.lead_again("out")

    rig = Rig(tmp_path / "sink", cluster.stays, "out")
    driver = rig.driver()
    checkpoint(rig, driver, 0, first, _nothing)
    second = read(1, _nothing)
    checkpoint(rig, driver, 1, second, cluster.leads.kill)
    cluster.wait_for_leader("out", STAYS)
    checkpoint(rig, driver, 2, [b"more"], _nothing)
    rig.stop()
    written = Counter(record.value for record in cluster.stays.read("out"))
    assert written == Counter([*rows, b"more"])
    assert rig.audit().agrees
    enumerator.close()


def checkpoint(rig: Rig, driver: Coordinator, n: int, rows: Sequence[bytes], in_mid_write: Callable[[], None]) -> None:
    """Write rows in one task and commit them; a task that fails is run again, as Spark does."""
    todo = [in_mid_write]

    def write() -> list[Prepared]:
        context = WriterContext(
            job_id=rig.identity.job_id, sink="out", epoch=1, checkpoint=n, subtask=0, attempt=uuid.uuid4().hex,
            directive={}, reject=print, started_ms=0,
        )  # fmt: skip
        writer = rig.sink.open_writer(context)
        for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            writer.write(Batch(pa.record_batch({"value": pa.array(part, pa.binary())})))
            if todo:
                todo.pop()()
        return [Prepared("out", 0, payload) for payload in writer.prepare()]

    def run(directive: Any) -> TaskResults:
        count = len(rows)
        for attempt in range(4):
            try:
                prepared = [] if directive.decided else write()
            except TransientError:
                if attempt == 3:
                    raise
            else:
                break
        return TaskResults(
            prepared=prepared, counts={"out": Counts(read=count, written=count)}, rows_read={"in": count}
        )

    driver.checkpoint(n, {"in": SourceRange(n, n + 1)}, run)


def _nothing() -> None:
    pass
