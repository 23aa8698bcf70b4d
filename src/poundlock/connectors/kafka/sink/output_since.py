"""Whether a topic has got records since a savepoint was taken: its ends at the cut, and what stands behind them now.

Only records of producers that do not use transactions and of committed transactions count: marks that end transactions
take offsets too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from poundlock.checkpoint.participant import JSON
from poundlock.checkpoint.portable import Newer
from poundlock.connectors.kafka.audit.topic_logs import TopicLogs
from poundlock.connectors.kafka.offsets import Partition
from poundlock.connectors.kafka.wire.record_batches import BatchHeader
from poundlock.errors import PoundlockError, SourceGoneError

NOTE_S = 3.0
"""How long a savepoint waits for the ends of a topic, seconds."""
_MOST = 100_000
_NAMED = 4


def note(topics: TopicLogs, topic: str) -> JSON:
    """Return where the partitions of a topic end, or why that is not known; see `Portable.note`.

    The end is that of all records, committed or not: at a checkpoint's border the broker may still be writing the marks
    of transactions that it has committed, and to a read_committed reader a partition ends before those.
    """
    try:
        ends = topics.end(topics.places([topic]))
    except PoundlockError as error:
        return {"v": 1, "topic": topic, "unknown": error.what}
    return {"v": 1, "topic": topic, "ends": {str(number): end for (_, number), end in sorted(ends.items())}}


def newer(topics: TopicLogs, topic: str, recorded: JSON) -> Newer:
    """Look what stands behind the ends of a note; see `Portable.newer`.

    Raises:
        TransientError: no broker answers, or none sends what stands there.
        TerminalError: this user may not read the topic, or it is damaged.
    """
    if not recorded or "ends" not in recorded:
        return Newer(unknown=str(recorded.get("unknown") or "the savepoint does not say where its topic ended"))
    if recorded["topic"] != topic:
        return Newer()  # the job writes elsewhere now, where nothing of the savepoint is
    logs, count = list(_logs(topics, topic, {int(number): end for number, end in recorded["ends"].items()})), 0
    for log in logs:
        if count <= _MOST:
            _read(topics, log, _MOST - count)
            count += log.count
    if not count:
        return Newer()
    places = [f"{log.place[1]}:{log.noted}" for log in logs if log.count]
    listed = ", ".join(places[:_NAMED]) + (" …" if len(places) > _NAMED else "")
    records = f"more than {_MOST:,} records" if count > _MOST else f"{count:,} records" if count > 1 else "1 record"
    return Newer(
        what=f"has {records} in topic {topic!r} behind offset {listed}, where it ended at the savepoint (of this job or others)",
        retractable=False,
    )


@dataclass(slots=True)
class _Log:
    """One partition: its end at the cut, the offset that is read next, its end now, and what was met.

    Records of open transactions wait, by producer, for the mark that ends theirs.
    """

    place: Partition
    noted: int
    at: int
    end: int
    count: int = 0
    waiting: dict[int, int] = field(default_factory=dict)

    def take(self, batch: BatchHeader, *, aborts: bool) -> None:
        """Count a batch."""
        if batch.is_control:
            waited = self.waiting.pop(batch.producer_id, 0)
            self.count += 0 if aborts else waited
        elif batch.is_transactional:
            self.waiting[batch.producer_id] = self.waiting.get(batch.producer_id, 0) + batch.record_count
        else:
            self.count += batch.record_count
        self.at = batch.last_offset + 1


def _logs(topics: TopicLogs, topic: str, noted: dict[int, int]) -> Iterator[_Log]:
    """Ask where the partitions begin and end now."""
    places = topics.places([topic])
    begins, ends = topics.begin(places), topics.end(places)
    for place in places:
        was, end = noted.get(place[1], 0), ends[place]
        # A topic that ends before was created again: all of it came since.
        yield _Log(place, was, max(was, begins[place]) if was <= end else begins[place], end)


def _read(topics: TopicLogs, log: _Log, most: int) -> None:
    """Read a partition up to its end, or until there are more records than so many."""
    while log.at < log.end and log.count <= most:
        try:
            for batch, aborts in topics.headers(log.place, log.at, log.end):
                log.take(batch, aborts=aborts)
                if log.count > most:
                    return
        except SourceGoneError:
            begin = topics.begin([log.place])[log.place]
            if begin <= log.at:
                raise
            log.at = begin
