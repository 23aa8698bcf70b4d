"""Reads the topics back, each once, and compares every decided transaction with what read_committed readers see of it.

A batch names its producer, and a transaction has a producer id and epoch of its own, so sums per producer are all that is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime

from poundlock.checkpoint.auditable import AuditScope, Decided, Disagreement, ReadBack
from poundlock.checkpoint.participant import JSON
from poundlock.connectors.kafka.batches import RecordBatch
from poundlock.connectors.kafka.fetching import TopicLogs
from poundlock.connectors.kafka.names import TransactionNames
from poundlock.connectors.kafka.places import Place, to_places
from poundlock.connectors.kafka.producer import transaction_name
from poundlock.connectors.kafka.rows import Digest
from poundlock.connectors.kafka.scan import PartitionLog, Scan
from poundlock.connectors.kafka.transactions import Transactions

__all__ = ["KafkaReading"]

_OPEN = ("Ongoing", "PrepareCommit")


@dataclass(slots=True)
class _Transaction:
    """A decided transaction: what it should be, and what was met of it."""

    decided: Decided
    places: frozenset[Place] | None  # None: decided before this was noted
    rows: int = 0
    broker_time: bool = False
    full: Digest | None = None
    plain: Digest | None = None

    @property
    def said(self) -> JSON:
        return self.decided.committable

    @property
    def left(self) -> int:
        return int(self.said["rows"]) - self.rows

    def add(self, place: Place, batch: RecordBatch, begin: int) -> None:
        """Add the messages of a batch, but for those before the log's begin."""
        hashed = self.said.get("hashed") or ()
        topic = place[0] if "topic" in hashed else None
        for offset, time_ms, key, value, headers in batch.messages():
            if offset < begin:
                continue
            self.rows += 1
            if self.full is not None:
                if not hashed and key is None and not headers:
                    self.full.add(value)
                else:
                    partition = place[1] if "partition" in hashed else None
                    self.full.add(
                        value, topic, key, headers or None, partition, time_ms if "timestamp" in hashed else None
                    )
            if self.plain is not None:
                self.plain.add(value, topic, key, headers or None, None, None)
        self.broker_time |= batch.broker_time

    @property
    def differs(self) -> bool:
        """Whether its messages are others than the ones that were written."""
        if self.plain is not None and self.plain.text != self.said["plain"]:
            return True
        comparable = self.full is not None and not (self.broker_time and "timestamp" in self.said["hashed"])
        return comparable and self.full is not None and self.full.text != self.said["digest"]


@dataclass(slots=True)
class _Nobodys:
    """A committed transaction of the sink's own producers that no decision names, as far as is known."""

    places: set[Place] = field(default_factory=set)
    rows: int = 0
    follows: bool = False  # whether it stands behind one that a decision names
    checkpoint: int | None = None


class KafkaReading:
    """One audit of one sink.

    Args:
        scope: of the audit.
        asked: the cluster.
        names: the sink's transactional ids.
        topic: the sink's topic, None where it has several.
        wait_s: how long to wait for open transactions that hold readers up, seconds.
    """

    whole = True

    def __init__(
        self, scope: AuditScope, *, asked: Transactions, names: TransactionNames, topic: str | None, wait_s: float
    ) -> None:
        self._scope, self._asked, self._names, self._topic, self._wait_s = scope, asked, names, topic, wait_s
        self._transactions: dict[tuple[int, int], _Transaction] = {}
        self._tids: dict[int, str] = {}  # of each producer of this sink
        self._nobodys: dict[tuple[int, int], _Nobodys] = {}
        self._logs: dict[Place, PartitionLog] = {}
        self._compacted: set[str] = set()
        self._twice: list[Disagreement] = []
        self._others = 0

    def take(self, decided: Decided) -> None:
        """Note a transaction."""
        said = decided.committable
        places = to_places(said["places"]) if "places" in said else None
        found = _Transaction(decided, places)
        if decided.compared:
            found.full = Digest() if said.get("hashed") is not None else None
            found.plain = Digest() if "plain" in said else None
        name = (int(said["pid"]), int(said["epoch"]))
        if name in self._transactions:
            self._twice.append(self._wrong(found, "two decisions name this transaction"))
        self._transactions[name] = found

    def read(self) -> None:
        """Read the topics."""
        self._tids = {pid: t.said["tid"] for (pid, _), t in self._transactions.items()}
        if not any(t.decided.compared for t in self._transactions.values()):
            return
        self._tids |= {pid: tid for tid, pid in self._asked.producers().items() if self._names.ours(tid)}
        topics = {topic for t in self._transactions.values() for topic, _ in t.places or ()}
        topics |= {self._topic} if self._topic is not None else set()
        logs = TopicLogs(self._asked)
        self._compacted = logs.compacted(topics)
        scan = Scan(logs, topics - self._compacted, take=self._batch, progress=self._scope.progress)
        self._logs = scan.logs
        scan.run(self._missing, self._wait_s)

    def _batch(self, log: PartitionLog, batch: RecordBatch) -> None:
        name, count = (batch.pid, batch.epoch), min(batch.count, batch.last - log.begin + 1)
        found = self._transactions.get(name) if batch.transactional else None
        if found is not None:
            log.record = found.decided.record if log.record is None else log.record
            log.checkpoint = found.decided.checkpoint
            if found.decided.compared:
                found.add(log.place, batch, log.begin)
        elif batch.transactional and batch.pid in self._tids:
            nobodys = self._nobodys.setdefault(name, _Nobodys())
            nobodys.places.add(log.place)
            nobodys.rows += count
            if log.record is not None:
                nobodys.follows, nobodys.checkpoint = True, log.checkpoint
        else:
            self._others += count

    def _missing(self, held: Sequence[PartitionLog]) -> bool:
        return any(
            transaction.left > 0
            and any(self._may_be_behind(transaction, log) for log in held)
            and not self._was_removed(transaction)
            for transaction in self._compared()
        )

    def _may_be_behind(self, transaction: _Transaction, log: PartitionLog) -> bool:
        """Return whether its rows may stand where a partition was not read: not before those of an earlier decision."""
        earlier = log.checkpoint is None or transaction.decided.checkpoint >= log.checkpoint
        return earlier and self._may_be_in(transaction, {log.place})

    def _may_be_in(self, transaction: _Transaction, places: Set[Place]) -> bool:
        return transaction.places is None or not transaction.places.isdisjoint(places)

    def _compared(self) -> Iterator[_Transaction]:
        """Yield the transactions that are compared and can be."""
        for transaction in self._transactions.values():
            topics = {topic for topic, _ in transaction.places or ()} | (
                {self._topic} if not transaction.places else set()
            )
            if transaction.decided.compared and None not in topics and topics.isdisjoint(self._compacted):
                yield transaction

    def result(self) -> ReadBack:
        """Return what was found. Asks who holds readers up, where somebody does."""
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
            wrong.append(
                Disagreement(
                    None,
                    f"topic {self._topic_names()}",
                    f"{removed} rows are gone, and the brokers removed {room} at most",
                )
            )
        return ReadBack(
            compared=compared,
            disagreements=[*wrong, *self._undecided()],
            removed=removed,
            others=self._others,
            uncompared=list(self._uncompared()),
        )

    def _what_differs(self, transaction: _Transaction, holders: dict[Place, str]) -> str:
        said, left = transaction.said, transaction.left
        if left > 0:
            missing = (
                f"its {left} rows are missing"
                if not transaction.rows
                else f"{left} of its {said['rows']} rows are missing"
            )
            return f"{missing}: {self._why(transaction, holders)}"
        if left < 0:
            return f"it has {transaction.rows} rows instead of the {said['rows']} decided"
        if transaction.differs:
            return f"its {said['rows']} rows are not the ones that were written: other content than digest {said['digest']}"
        return ""

    def _why(self, transaction: _Transaction, holders: dict[Place, str]) -> str:
        said = transaction.said
        told = None if transaction.decided.carried_out else self._asked.describe(said["tid"])
        if told is not None and told.pid == said["pid"] and told.epoch - said["epoch"] in (0, 1):
            if told.state in _OPEN:
                return "it is decided and not committed yet; start the job, or type poundlock fsck --fix"
            if told.state == "CompleteAbort":
                return "it was aborted before it was committed; the next start of the job produces it again"
        held = [text for place, text in sorted(holders.items()) if self._may_be_behind(transaction, self._logs[place])]
        if held:
            return held[0]
        gone = sorted(
            {topic for topic, _ in transaction.places or () if not any(place[0] == topic for place in self._logs)}
        )
        return f"topic {', '.join(gone)} does not exist" if gone else "no read_committed reader sees them"

    def _holders(self) -> dict[Place, str]:
        """Return, for each partition that was not read to its end, who keeps readers from going on."""
        held = [log for log in self._logs.values() if log.held and not log.done]
        if not held:
            return {}
        told = [(tid, found) for tid in self._asked.ongoing() if (found := self._asked.describe(tid)) is not None]
        texts = {}
        for log in held:
            topic, partition = log.place
            open_here = [(d.started_ms, tid) for tid, d in told if partition in d.places.get(topic, ())]
            started_ms, tid = min(open_here, default=(0, ""))
            since = datetime.fromtimestamp(started_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            who = f"transactional id {tid}, open since {since}," if tid else "a transaction of nobody's"
            texts[log.place] = f"{who} holds readers of {topic}-{partition} up at offset {log.at}"
        return texts

    def _was_removed(self, transaction: _Transaction) -> bool:
        """Return whether the broker may have removed a part of it, as it does with what is older than the retention.

        Decisions follow one another, and so do their rows in each partition: what was decided after the first rows that are
        still there is there whole.
        """
        return any(
            log.begin > 0 and (log.record is None or transaction.decided.record <= log.record)
            for place, log in self._logs.items()
            if self._may_be_in(transaction, {place})
        )

    def _undecided(self) -> Iterator[Disagreement]:
        for name, found in self._nobodys.items():
            # Of a ledger that has forgotten its beginning the first transactions have no decision any more.
            if name in self._transactions or not (self._scope.complete or found.follows):
                continue
            topics = ", ".join(sorted({topic for topic, _ in found.places}))
            where = "" if found.checkpoint is None else f", behind those of checkpoint {found.checkpoint}"
            yield Disagreement(
                None,
                f"topic {topics}, transaction/{transaction_name(self._tids[name[0]], *name)}",
                f"{found.rows} rows of this sink's producers are visible{where}, and no decision names them",
            )

    def _uncompared(self) -> Iterator[str]:
        for topic in sorted(self._compacted):
            yield f"topic {topic} is compacted: the broker keeps the newest row of a key only, so nothing in it can be compared"
        old = sum(int(t.said["rows"]) for t in self._transactions.values() if t.places is None and t.decided.compared)
        if old and self._topic is None:
            yield f"{old} rows were decided by a version that did not note their topics"

    def _wrong(self, transaction: _Transaction, what: str) -> Disagreement:
        topics: Sequence[str] = sorted({topic for topic, _ in transaction.places or ()})
        place = f"topic {', '.join(topics) or self._topic_names()}, transaction/{transaction.said['transaction']}"
        return Disagreement(transaction.decided.checkpoint, place, what)

    def _topic_names(self) -> str:
        return self._topic or ", ".join(sorted({topic for topic, _ in self._logs}))
