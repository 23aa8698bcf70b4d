"""The audit of topics without a broker: what a broker may answer while it is read, and what a running job decides meanwhile."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from kafka.record.memory_records import MemoryRecordsBuilder

from poundlock.audit.read_back import AuditScope, Decided, ReadBack
from poundlock.connectors.kafka.audit import topic_logs as scan
from poundlock.connectors.kafka.audit.read_back import KafkaReading
from poundlock.connectors.kafka.errors import expired
from poundlock.connectors.kafka.sink.digest import Digest
from poundlock.connectors.kafka.sink.transaction_ids import TransactionNames
from poundlock.connectors.kafka.wire.byte_strings import of_list
from poundlock.connectors.kafka.wire.record_batches import Records, decode, read_headers, visible
from poundlock.connectors.kafka.wire.varints import SPARE
from poundlock.errors import SourceGoneError

PID = 7
NAMES = TransactionNames("p", "0" * 8, "1" * 8)


def batch(offset: int, epoch: int, values: Iterable[bytes], pid: int = PID) -> bytes:
    builder = MemoryRecordsBuilder(
        2, 0, 1 << 20, transactional=True, producer_id=pid, producer_epoch=epoch, base_sequence=0
    )
    for value in values:
        builder.append(1, None, value, [])
    builder.close()
    data = bytearray(builder.buffer())
    data[:8] = struct.pack(">q", offset)
    return bytes(data)


class Cluster:
    """One topic of one partition, a batch an answer; `before` is called with the number of each answer."""

    def __init__(self, log: list[bytes], *, begin: int = 0) -> None:
        self.log, self.first = log, begin
        self.stable_at = 2 * len(log)
        self.before: Callable[[int], None] = lambda number: None
        self.answered = self.looked_up = 0

    # Transactions
    def producers(self) -> dict[str, int]:
        return {NAMES.at("host", 0): PID, "another": 99}

    def ongoing(self) -> list[str]:
        return []

    def describe(self, tid: str) -> None:
        return None

    # TopicLogs
    def places(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        self.looked_up += 1
        return [("t", 0)]

    def begin(self, places: Iterable[Any]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.first)

    def end(self, places: Iterable[Any], *, committed: bool = False) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.stable_at if committed else 2 * len(self.log))

    def compacted(self, topics: Iterable[str]) -> set[str]:
        return set()

    def read(self, place: Any, first: int, after: int) -> Iterator[Records]:
        for at in range(first - first % 2, after, 2):
            self.before(self.answered)
            self.answered += 1
            if at < self.first:
                raise expired(*place, at, after)
            data = memoryview(self.log[at // 2] + bytes(SPARE))
            shown = visible(data[:-SPARE], read_headers(data[:-SPARE]), ())
            yield from decode(np.frombuffer(data, np.uint8), shown, max(first, at), after)


def logs(count: int) -> list[bytes]:
    """Return so many transactions of two rows, one batch each."""
    return [batch(2 * n, n, [b"%d a" % n, b"%d b" % n]) for n in range(count)]


def decided(n: int, *, compared: bool = True, **said: Any) -> Decided:
    digest = Digest()
    digest.add(of_list([b"%d a" % n, b"%d b" % n]))
    committable = {
        "tid": NAMES.at("host", 0), "pid": PID, "epoch": n, "transaction": f"tid@{PID}:{n}", "rows": 2,
        "digest": digest.text, "hashed": [], "places": {"t": "0"}, **said,
    }  # fmt: skip
    return Decided(record=n, checkpoint=n, committable=committable, compared=compared, committed=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_PAUSE_S", 0.0)


def read(
    cluster: Cluster, items: Iterable[Decided], later: Iterable[Decided] = (), *, complete: bool = True
) -> ReadBack:
    said: list[str] = []
    scope = AuditScope(complete=complete, progress=said.append)
    reading = KafkaReading(scope, asked=cluster, topics=cluster, names=NAMES, topic="t", wait_s=0)  # type: ignore[arg-type]
    for item in items:
        reading.take(item)
    reading.read()
    for item in later:
        reading.take(item)
    return reading.result()


def test_what_a_running_job_decides_meanwhile_is_not_taken_for_nobodys() -> None:
    cluster = Cluster(logs(4))
    found = read(cluster, [decided(n) for n in range(3)], [decided(3, compared=False)])
    assert (found.disagreements, found.compared) == ([], 3)
    found = read(cluster, [decided(n) for n in range(3)])
    assert [wrong.what.split(",")[0] for wrong in found.disagreements] == [
        "2 rows of this sink's producers are visible"
    ]


def test_a_topic_is_not_read_where_nothing_is_compared() -> None:
    cluster = Cluster(logs(2))
    assert read(cluster, [decided(0, compared=False)]).compared == 0
    assert cluster.looked_up == 0


def test_what_retention_removes_while_it_is_read_is_no_fault() -> None:
    cluster = Cluster(logs(8))

    def trim(answer: int) -> None:
        cluster.first = 10 if answer == 2 else cluster.first

    cluster.before = trim
    found = read(cluster, [decided(n) for n in range(8)])
    assert (found.disagreements, found.removed) == ([], 6)  # the first answers held the first two transactions
    # what was decided later than what is still there is missed
    cluster = Cluster(logs(8), begin=10)
    cluster.log[7] = batch(14, 0, [b"x", b"y"], pid=99)
    assert [w.checkpoint for w in read(cluster, [decided(n) for n in range(8)]).disagreements] == [7]


def test_one_transaction_in_two_decisions_is_told() -> None:
    found = read(Cluster(logs(1)), [decided(0), decided(1, epoch=0, digest=decided(0).committable["digest"])])
    assert [(w.checkpoint, w.what) for w in found.disagreements] == [(1, "two decisions name this transaction")]


def test_a_key_that_nobody_wrote_is_other_content() -> None:
    builder = MemoryRecordsBuilder(
        2, 0, 1 << 20, transactional=True, producer_id=PID, producer_epoch=0, base_sequence=0
    )
    builder.append(1, b"key", b"0 a", [])
    builder.append(1, None, b"0 b", [])
    builder.close()
    (found,) = read(Cluster([bytes(builder.buffer())]), [decided(0)]).disagreements
    assert "its 2 rows are not the ones that were written" in found.what


def test_a_log_that_became_shorter_is_not_read_twice() -> None:
    cluster = Cluster(logs(4))
    cluster.stable_at = 6

    def shorten(answer: int) -> None:
        cluster.stable_at = 4

    cluster.before = shorten
    with pytest.raises(SourceGoneError, match="partition 0 was read to 6 and ends at 4"):
        read(cluster, [decided(n) for n in range(4)])


def test_what_is_lost_is_not_put_down_to_whoever_holds_readers_up() -> None:
    cluster = Cluster(logs(5))
    cluster.log[1] = batch(2, 0, [b"x", b"y"], pid=99)
    cluster.stable_at = 6
    found = read(cluster, [decided(n) for n in range(5)])
    assert [(wrong.checkpoint, wrong.what) for wrong in found.disagreements] == [
        (1, "its 2 rows are missing: no read_committed reader sees them"),
        (3, "its 2 rows are missing: a transaction of nobody's holds readers of t-0 up at offset 6"),
        (4, "its 2 rows are missing: a transaction of nobody's holds readers of t-0 up at offset 6"),
    ]
    assert found.others == 2


def test_what_was_not_read_is_not_said_to_be_removed() -> None:
    cluster = Cluster(logs(3), begin=2)
    cluster.stable_at = 2
    found = read(cluster, [decided(2)])
    assert found.removed == 0
    (wrong,) = found.disagreements
    assert wrong.what.endswith("holds readers of t-0 up at offset 2")
