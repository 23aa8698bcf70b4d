"""Reads the topics back, each once from where the first wanted transaction may stand, and compares every decided transaction with what read_committed readers see of it.

A batch names its producer, and a transaction has a producer id and epoch of its own, so sums per producer are all that is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from poundlock.audit.read_back import AuditScope, Decided, Disagreement, ReadBack
from poundlock.connectors.kafka.audit.topic_logs import PartitionLog, Scan, TopicLogs
from poundlock.connectors.kafka.offsets import Partition, to_places
from poundlock.connectors.kafka.sink.digest import Digest
from poundlock.connectors.kafka.sink.transaction_ids import TransactionNames, transaction_name
from poundlock.connectors.kafka.sink.transactions import Transactions
from poundlock.connectors.kafka.wire.byte_strings import ByteStrings, Integers, of_spans
from poundlock.connectors.kafka.wire.record_batches import BatchHeader, Records
from poundlock.values import utc_text

_OPEN = ("Ongoing", "PrepareCommit")


@dataclass(slots=True)
class _Nobodys:
    """A committed transaction of the sink's own producers that no decision names, as far as is known."""

    places: set[Partition] = field(default_factory=set)
    rows: int = 0
    follows: bool = False  # whether it stands behind one that a decision names
    checkpoint: int | None = None


@dataclass
class KafkaReading:
    """One audit of one sink."""

    whole = True

    scope: AuditScope
    _: KW_ONLY
    asked: Transactions
    topics: TopicLogs
    names: TransactionNames  # the sink's
    topic: str | None  # the sink's; None where it has several
    wait_s: float  # how long to wait for open transactions that hold readers up
    _transactions: dict[tuple[int, int], TransactionSums] = field(default_factory=dict, init=False)
    _tids: dict[int, str] = field(default_factory=dict, init=False)  # of each producer of this sink
    _nobodys: dict[tuple[int, int], _Nobodys] = field(default_factory=dict, init=False)
    _logs: dict[Partition, PartitionLog] = field(default_factory=dict, init=False)
    _compacted: set[str] = field(default_factory=set, init=False)
    _twice: list[Disagreement] = field(default_factory=list, init=False)
    _others: int = field(default=0, init=False)
    _places: dict[str, frozenset[Partition] | None] = field(default_factory=dict, init=False)

    def take(self, decided: Decided) -> None:
        """Note a transaction."""
        places = decided.committable.get("places")
        text = str(places)  # most transactions of a task write to the same partitions
        if text not in self._places:
            self._places[text] = None if places is None else to_places(places)
        sums = TransactionSums.of(decided, self._places[text])
        name = (sums.pid, sums.epoch)
        if name in self._transactions:
            self._twice.append(self._wrong(sums, "two decisions name this transaction"))
        self._transactions[name] = sums

    def read(self) -> None:
        """Read the topics."""
        self._tids = {pid: t.tid for (pid, _), t in self._transactions.items()}
        if not any(t.compared for t in self._transactions.values()):
            return
        self._tids |= {pid: tid for tid, pid in self.asked.producers().items() if self.names.ours(tid)}
        topics = {topic for t in self._transactions.values() for topic, _ in t.places or ()}
        topics |= {self.topic} if self.topic is not None else set()
        self._compacted = self.topics.compacted(topics)
        scan = Scan(self.topics, topics - self._compacted, take=self._take, progress=self.scope.progress)
        self._logs = scan.logs
        first = min(t.record for t in self._transactions.values() if t.compared)
        if any(t.record < first for t in self._transactions.values()):
            scan.skip_before(first, self._record_of)
        scan.run(self._missing, self.wait_s)

    def _record_of(self, header: BatchHeader) -> int | None:
        """Return the number of the record that decided a batch, None where none did or it is not known."""
        name = (header.producer_id, header.producer_epoch)
        sums = self._transactions.get(name) if header.is_transactional else None
        return None if sums is None else sums.record

    def _take(self, log: PartitionLog, records: Records) -> None:
        times_ms = records.timestamp_ms
        for header, rows in records.by_batch():
            sums = self._met(log, header, rows.stop - rows.start)
            if sums is not None and sums.compared:
                sums.add(log.place, records, rows, times_ms[rows], broker_time=header.is_log_append_time)

    def _met(self, log: PartitionLog, header: BatchHeader, count: int) -> TransactionSums | None:
        """Note whose so many messages are; return the sums of the transaction if it is a decided one."""
        name = (header.producer_id, header.producer_epoch)
        sums = self._transactions.get(name) if header.is_transactional else None
        if sums is not None:
            log.record = sums.record if log.record is None else log.record
            log.checkpoint = sums.checkpoint
        elif header.is_transactional and header.producer_id in self._tids:
            nobodys = self._nobodys.setdefault(name, _Nobodys())
            nobodys.places.add(log.place)
            nobodys.rows += count
            if log.record is not None:
                nobodys.follows, nobodys.checkpoint = True, log.checkpoint
        else:
            self._others += count
        return sums

    def _missing(self, held: Sequence[PartitionLog]) -> bool:
        return any(
            transaction.left > 0
            and any(self._may_be_behind(transaction, log) for log in held)
            and not self._was_removed(transaction)
            for transaction in self._compared()
        )

    def _may_be_behind(self, transaction: TransactionSums, log: PartitionLog) -> bool:
        """Return whether its rows may stand where a partition was not read: not before those of an earlier decision."""
        earlier = log.checkpoint is None or transaction.checkpoint >= log.checkpoint
        return earlier and transaction.may_be_in(log.place)

    def _compared(self) -> Iterator[TransactionSums]:
        """Yield the transactions that are compared and can be."""
        for transaction in self._transactions.values():
            topics: Sequence[str | None] = transaction.topics or [self.topic]
            if transaction.compared and None not in topics and self._compacted.isdisjoint(topics):
                yield transaction

    def result(self) -> ReadBack:
        """Return the result. Asks who holds readers up, where somebody does."""
        wrong, removed, compared = list(self._twice), 0, 0
        holders = self._holders()
        for transaction in self._compared():
            compared += 1
            if transaction.left > 0 and self._was_removed(transaction):
                removed += transaction.left
            elif what := self._what_differs(transaction, holders):
                wrong.append(self._wrong(transaction, what))
        room = sum(log.begin for log in self._logs.values())
        if removed > room:
            what = f"{removed} rows are gone, and the brokers removed {room} at most"
            wrong.append(Disagreement(None, f"topic {self._topic_names()}", what))
        return ReadBack(
            compared=compared,
            disagreements=[*wrong, *self._undecided()],
            removed=removed,
            others=self._others,
            uncompared=list(self._uncompared()),
        )

    def _what_differs(self, transaction: TransactionSums, holders: dict[Partition, str]) -> str:
        rows, left = transaction.rows, transaction.left
        if left > 0:
            missing = f"{left} of its {rows} rows are missing" if transaction.seen else f"its {rows} rows are missing"
            return f"{missing}: {self._why(transaction, holders)}"
        if left < 0:
            return f"it has {transaction.seen} rows instead of the {rows} decided"
        if transaction.differs:
            return f"its {rows} rows are not the ones that were written: other content than digest {transaction.digest}"
        return ""

    def _why(self, transaction: TransactionSums, holders: dict[Partition, str]) -> str:
        status = None if transaction.committed else self.asked.describe(transaction.tid)
        if status is not None and status.pid == transaction.pid and status.epoch - transaction.epoch in (0, 1):
            if status.state in _OPEN:
                return "it is decided and not committed yet; start the job, or type poundlock fsck --fix"
            if status.state == "CompleteAbort":
                return "it was aborted before it was committed; the next start of the job produces it again"
        held = [text for place, text in sorted(holders.items()) if self._may_be_behind(transaction, self._logs[place])]
        if held:
            return held[0]
        gone = [topic for topic in transaction.topics if all(place[0] != topic for place in self._logs)]
        return f"topic {', '.join(gone)} does not exist" if gone else "no read_committed reader sees them"

    def _holders(self) -> dict[Partition, str]:
        """Return, for each partition that was not read to its end, who keeps readers from going on."""
        held = [log for log in self._logs.values() if not log.done]
        if not held:
            return {}
        described = [(tid, status) for tid in self.asked.ongoing() if (status := self.asked.describe(tid)) is not None]
        texts = {}
        for log in held:
            topic, partition = log.place
            open_here = [(d.started_ms, tid) for tid, d in described if partition in d.places.get(topic, ())]
            started_ms, tid = min(open_here, default=(0, ""))
            who = f"transactional id {tid}, open since {utc_text(started_ms)}," if tid else "a transaction of nobody's"
            texts[log.place] = f"{who} holds readers of {topic}-{partition} up at offset {log.at}"
        return texts

    def _was_removed(self, transaction: TransactionSums) -> bool:
        """Return whether the broker may have removed a part of it, as it does with what is older than the retention.

        Decisions follow one another, and so do their rows in each partition: what was decided after the first rows that are
        still there is there whole.
        """
        return any(
            log.begin > 0 and (log.done if log.record is None else transaction.record <= log.record)
            for place, log in self._logs.items()
            if transaction.may_be_in(place)
        )

    def _undecided(self) -> Iterator[Disagreement]:
        for name, nobodys in self._nobodys.items():
            # Of a ledger that has forgotten its beginning the first transactions have no decision any more.
            if name in self._transactions or not (self.scope.complete or nobodys.follows):
                continue
            topics = ", ".join(sorted({topic for topic, _ in nobodys.places}))
            where = "" if nobodys.checkpoint is None else f", behind those of checkpoint {nobodys.checkpoint}"
            what = f"{nobodys.rows} rows of this sink's producers are visible{where}, and no decision names them"
            yield Disagreement(
                None, f"topic {topics}, transaction/{transaction_name(self._tids[name[0]], *name)}", what
            )

    def _uncompared(self) -> Iterator[str]:
        for topic in sorted(self._compacted):
            yield f"topic {topic} is compacted: the broker keeps the newest row of a key only, so nothing in it can be compared"
        old = sum(t.rows for t in self._transactions.values() if t.places is None and t.compared)
        if old and self.topic is None:
            yield f"{old} rows were decided by a version that did not note their topics"

    def _wrong(self, transaction: TransactionSums, what: str) -> Disagreement:
        place = f"topic {', '.join(transaction.topics) or self._topic_names()}, transaction/{transaction.name}"
        return Disagreement(transaction.checkpoint, place, what)

    def _topic_names(self) -> str:
        return self.topic or ", ".join(sorted({topic for topic, _ in self._logs}))


@dataclass(slots=True, kw_only=True)
class TransactionSums:
    """One decided transaction, and the sums of what was met of it; small, for there are many, and no message is kept."""

    record: int  # with `checkpoint`, where it was decided
    checkpoint: int
    compared: bool  # whether it is to be compared
    committed: bool  # whether it is known to have been committed
    tid: str
    pid: int
    epoch: int
    rows: int  # how many messages it should have
    digest: str  # of them
    hashed: tuple[str, ...] | None  # what the digest is of beside the values, None if that cannot be made again
    plain: str | None  # the digest without partitions and times, None where it is the same
    places: frozenset[Partition] | None  # that it wrote to; None: decided by a version that did not note them
    seen: int = 0
    broker_time: bool = False
    _full: Digest | None = None
    _plain: Digest | None = None

    @classmethod
    def of(cls, decided: Decided, places: frozenset[Partition] | None) -> TransactionSums:
        """Return the sums of a committable of which nothing was met yet."""
        committable = decided.committable
        hashed = committable.get("hashed")
        return cls(
            record=decided.record,
            checkpoint=decided.checkpoint,
            compared=decided.compared,
            committed=decided.committed,
            tid=sys.intern(committable["tid"]),
            pid=int(committable["pid"]),
            epoch=int(committable["epoch"]),
            rows=int(committable["rows"]),
            digest=committable["digest"],
            plain=committable.get("plain"),
            places=places,
            hashed=None if hashed is None else tuple(map(sys.intern, hashed)),
        )

    @property
    def name(self) -> str:
        """What decisions call it."""
        return transaction_name(self.tid, self.pid, self.epoch)

    @property
    def left(self) -> int:
        """How many of its messages were not met."""
        return self.rows - self.seen

    @property
    def topics(self) -> list[str]:
        """The topics it wrote to, as far as is known."""
        return sorted({topic for topic, _ in self.places or ()})

    def may_be_in(self, place: Partition) -> bool:
        """Return whether it may have written to a partition."""
        return self.places is None or place in self.places

    def add(self, place: Partition, records: Records, rows: slice, times_ms: Integers, *, broker_time: bool) -> None:
        """Add some records, the time of each, and whether it is the broker's."""
        full = self._full = self._full or (Digest() if self.hashed is not None else None)
        plain = self._plain = self._plain or (Digest() if self.plain is not None else None)
        hashed, count = self.hashed or (), rows.stop - rows.start
        self.seen += count
        self.broker_time |= broker_time
        values = _strings(records, "value", rows)
        more: dict[str, Any] = {"keys": _strings(records, "key", rows), "headers": _headers(records, rows)}
        if "topic" in hashed:
            more["topics"] = place[0]
        if plain is not None:
            plain.add(values, **more)
        if full is not None:
            partitions = np.full(count, place[1], np.int64) if "partition" in hashed else None
            full.add(values, **more, partitions=partitions, times_ms=times_ms if "timestamp" in hashed else None)

    @property
    def differs(self) -> bool:
        """Whether its messages, all of which were met, are others than the ones that were written."""
        if self._plain is not None and self._plain.text != self.plain:
            return True
        timed = self.hashed is not None and "timestamp" in self.hashed
        return self._full is not None and not (timed and self.broker_time) and self._full.text != self.digest


def _strings(records: Records, name: str, rows: slice) -> ByteStrings:
    """Return the keys or values of some records."""
    length = records.column(f"{name}_length")[rows]
    start = records.column(f"{name}_start")[rows]
    null = length < 0
    return of_spans(records.data, start, start + np.maximum(length, 0), null if null.any() else None)


def _headers(records: Records, rows: slice) -> ByteStrings:
    """Return how some records end: the number of their headers and these."""
    return of_spans(records.data, records.column("headers_start")[rows], records.column("end")[rows], None)
