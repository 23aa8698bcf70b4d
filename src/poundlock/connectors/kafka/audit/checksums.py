"""One decided transaction in an audit: what it should be, and the sums of what was met of it in the topics.

Small, for there is one for each transaction that the ledger names; no message is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from poundlock.audit.read_back import Decided
from poundlock.connectors.kafka.offsets import Partition
from poundlock.connectors.kafka.sink.message_encoder import Digest
from poundlock.connectors.kafka.sink.transaction_ids import transaction_name


@dataclass(slots=True, kw_only=True)
class TransactionSums:
    """A transaction: where it was decided, whether it is to be compared and is known to have been committed, and what names it.

    Args:
        rows: how many messages it should have.
        digest: of them; with `hashed`, what it is of beside the values, None if that cannot be made again.
        plain: the digest without partitions and times, None where it is the same.
        places: the partitions it wrote to; None: decided by a version that did not note them.
    """

    record: int
    checkpoint: int
    compared: bool
    committed: bool
    tid: str
    pid: int
    epoch: int
    rows: int
    digest: str
    hashed: tuple[str, ...] | None
    plain: str | None
    places: frozenset[Partition] | None
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
            record=decided.record, checkpoint=decided.checkpoint, compared=decided.compared, committed=decided.committed,
            tid=sys.intern(committable["tid"]), pid=int(committable["pid"]), epoch=int(committable["epoch"]),
            rows=int(committable["rows"]), digest=committable["digest"], plain=committable.get("plain"), places=places,
            hashed=None if hashed is None else tuple(map(sys.intern, hashed)),
        )  # fmt: skip

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

    def add(self, place: Partition, messages: pa.RecordBatch, times_ms: Sequence[int], *, broker_time: bool) -> None:
        """Add messages: columns value, key and headers, the time of each, and whether it is the broker's."""
        full = self._full = self._full or (Digest() if self.hashed is not None else None)
        plain = self._plain = self._plain or (Digest() if self.plain is not None else None)
        hashed = self.hashed or ()
        topic = place[0] if "topic" in hashed else None
        partition = place[1] if "partition" in hashed else None
        timed, only_value = "timestamp" in hashed, not hashed
        self.seen += len(messages)
        self.broker_time |= broker_time
        values, keys, named = (messages.column(name).to_pylist() for name in ("value", "key", "headers"))
        for value, key, given, time_ms in zip(values, keys, named, times_ms, strict=True):
            headers = None if given is None else [(header["key"], header["value"]) for header in given]
            if full is not None:
                if only_value and key is None and not headers:
                    full.add(value)
                else:
                    full.add(value, topic, key, headers, partition, time_ms if timed else None)
            if plain is not None:
                plain.add(value, topic, key, headers, None, None)

    @property
    def differs(self) -> bool:
        """Whether its messages, all of which were met, are others than the ones that were written."""
        if self._plain is not None and self._plain.text != self.plain:
            return True
        timed = self.hashed is not None and "timestamp" in self.hashed
        return self._full is not None and not (timed and self.broker_time) and self._full.text != self.digest
