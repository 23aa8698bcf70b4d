"""Whether a topic has got records since a savepoint was taken: its ends at the cut, and what stands behind them now.

Only records of producers that do not use transactions and of committed transactions count: marks that end transactions
take offsets too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from poundlock.checkpoint.participant import JSON
from poundlock.checkpoint.portable import Newer
from poundlock.connectors.kafka.audit.fetching import TopicLogs
from poundlock.connectors.kafka.audit.transaction_batches import RecordBatch, batches
from poundlock.connectors.kafka.partition_ranges import Place
from poundlock.connectors.kafka.sink.transactions import Transactions
from poundlock.errors import CommitUnknown, PoundlockError, TransientError

_NOTE_S = 3.0
_SILENT_S = 30.0
_POLL_MS = 200
_PAUSE_S = 0.2
_MOST = 100_000
_NAMED = 4
_T = TypeVar("_T")


def note(asked: Transactions, topic: str) -> JSON:
    """Return where the partitions of a topic end, or why that is not known; see `Portable.note`.

    The end is that of all records, committed or not: at a checkpoint's border the broker may still be writing the marks
    of transactions that it has committed, and to a read_committed reader a partition ends before those.
    """
    topics = TopicLogs(asked)
    try:
        ends = topics.ends(topics.leaders([topic], seconds=_NOTE_S), seconds=_NOTE_S)
    except PoundlockError as error:
        return {"v": 1, "topic": topic, "unknown": error.what}
    return {"v": 1, "topic": topic, "ends": {str(number): end for (_, number), end in sorted(ends.items())}}


def newer(asked: Transactions, topic: str, said: JSON) -> Newer:
    """Look what stands behind the ends of a note; see `Portable.newer`.

    Raises:
        TransientError: no broker answers, or this user may not read the topic.
    """
    if not said or "ends" not in said:
        return Newer(unknown=str(said.get("unknown") or "the savepoint does not say where its topic ended"))
    if said["topic"] != topic:
        return Newer()  # the job writes elsewhere now, where nothing of the savepoint is
    behind = _Behind.of(TopicLogs(asked), topic, {int(number): end for number, end in said["ends"].items()})
    count = behind.count()
    if not count:
        return Newer()
    places = [f"{number}:{log.noted}" for (_, number), log in sorted(behind.logs.items()) if log.count]
    listed = ", ".join(places[:_NAMED]) + (" …" if len(places) > _NAMED else "")
    records = f"more than {_MOST:,} records" if count > _MOST else f"{count:,} records" if count > 1 else "1 record"
    return Newer(
        what=f"has {records} in topic {topic!r} behind offset {listed}, where it ended at the savepoint (of this job or others)",
        retractable=False,
    )


def unseen(sink: str) -> Newer:
    """Return what a sink says whose records choose their topics."""
    return Newer(unknown=f"{sink.partition(' (')[0]}: only a topic of a fixed name can be looked at")


@dataclass(slots=True)
class _Log:
    """One partition: its end at the cut, the offset that is read next, its end now, and what was found.

    Records of open transactions wait, by producer, for the mark that ends theirs.
    """

    noted: int
    at: int
    end: int
    count: int = 0
    waiting: dict[int, int] = field(default_factory=dict)

    def take(self, batch: RecordBatch) -> None:
        """Count a batch."""
        if batch.control:
            waited = self.waiting.pop(batch.pid, 0)
            self.count += 0 if batch.aborts else waited
        elif batch.transactional:
            self.waiting[batch.pid] = self.waiting.get(batch.pid, 0) + batch.count
        else:
            self.count += batch.count


@dataclass(slots=True)
class _Behind:
    """What stands behind the noted ends of a topic."""

    topics: TopicLogs
    topic: str
    leaders: dict[Place, int]
    logs: dict[Place, _Log]

    @classmethod
    def of(cls, topics: TopicLogs, topic: str, noted: Mapping[int, int]) -> _Behind:
        """Ask where the partitions begin and end now."""
        leaders = _now(lambda: topics.leaders([topic]))
        ends, begins = (_now(lambda ask=ask: ask(leaders)) for ask in (topics.ends, topics.begins))  # type: ignore[misc]
        logs = {}
        for place, end in ends.items():
            was = noted.get(place[1], 0)
            # A topic that ends before was made anew: all of it came since.
            logs[place] = _Log(was, max(was, begins[place]) if was <= end else begins[place], end)
        return cls(topics, topic, leaders, logs)

    def count(self) -> int:
        """Read up to the ends, or until there are more than enough; return how many records there are."""
        alive, fault = time.monotonic(), "nothing comes"
        while open_logs := {place: log for place, log in self.logs.items() if log.at < log.end}:
            if (found := sum(log.count for log in self.logs.values())) > _MOST:
                return found
            moved, fault = self._round(open_logs, fault)
            if moved:
                alive = time.monotonic()
            elif time.monotonic() - alive > _SILENT_S:
                raise TransientError(
                    f"topic {self.topic!r} cannot be read: {fault}",
                    next="see that the brokers run, and type the command again",
                )
            else:
                time.sleep(_PAUSE_S)
                self.leaders |= _now(lambda: self.topics.leaders([self.topic]))
        return sum(log.count for log in self.logs.values())

    def _round(self, open_logs: Mapping[Place, _Log], fault: str) -> tuple[bool, str]:
        """Ask each broker once; return whether anything came, and what went wrong last."""
        moved = False
        for leader in sorted({self.leaders[place] for place in open_logs}):
            offsets = {place: log.at for place, log in open_logs.items() if self.leaders[place] == leader}
            if leader < 0:
                fault = "a partition has no leader"
                continue
            ask = self.topics.fetch
            answer = _now(lambda ask=ask, leader=leader, at=offsets: ask(leader, at, wait_ms=_POLL_MS, committed=False))  # type: ignore[misc]
            for fetched in answer:
                log = self.logs[fetched.place]
                if fetched.fault == "OffsetOutOfRangeError":
                    log.at = max(log.at, self.topics.begins([fetched.place])[fetched.place])
                fault = fetched.fault or fault
                begun = log.at
                for batch in batches(fetched.data):
                    if batch.last >= log.at:
                        log.take(batch)
                        log.at = batch.last + 1
                moved |= log.at > begun
        return moved, fault


def _now(ask: Callable[[], _T]) -> _T:
    """Return an answer. Raises TransientError where none comes: a job that has not begun does not wait for one."""
    try:
        return ask()
    except CommitUnknown as error:
        raise TransientError(error.what, next="check bootstrap_servers, and that the brokers run") from error
