"""Reads topics once from their first message to where they ended at the beginning, as read_committed readers get them.

An open transaction is waited for as long as something is missing behind it, and for some seconds at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from poundlock.connectors.kafka.audit.topic_logs import TopicLogs
from poundlock.connectors.kafka.errors import went_back
from poundlock.connectors.kafka.offsets import Partition
from poundlock.connectors.kafka.wire.record_batches import Records
from poundlock.errors import SourceGoneError

_PAUSE_S = 0.2


@dataclass(slots=True)
class PartitionLog:
    """How far a partition is read.

    Args:
        place: the partition.
        begin: its first offset; what stood before was removed.
        at: the offset that is read next.
        end: its end when reading began.
        record: number of the first ledger record whose rows were met, None if none were.
        checkpoint: the newest checkpoint whose rows were met.
    """

    place: Partition
    begin: int
    at: int
    end: int
    record: int | None = None
    checkpoint: int | None = None

    @property
    def done(self) -> bool:
        """Whether all of it is read; if not, an open transaction keeps readers from going on."""
        return self.at >= self.end

    def restart(self, begin: int) -> None:
        """Go on where the log begins now: the broker removed what stood before while it was read."""
        self.begin = self.at = begin
        self.record = None


class Scan:
    """One reading of topics.

    Args:
        topics: their partitions.
        names: the topics; those that do not exist are left out.
        take: gets the records that committed transactions, or producers without any, wrote.
        progress: takes a line after each answer.
    """

    def __init__(
        self,
        topics: TopicLogs,
        names: Iterable[str],
        *,
        take: Callable[[PartitionLog, Records], None],
        progress: Callable[[str], None],
    ) -> None:
        self._topics, self._names, self._take, self._progress = topics, sorted(names), take, progress
        places = topics.places(self._names)
        begins, ends = topics.begin(places), topics.end(places)
        self.logs = {place: PartitionLog(place, begins[place], begins[place], ends[place]) for place in places}
        """How far each partition was read."""

    def run(self, missing: Callable[[Sequence[PartitionLog]], bool], wait_s: float) -> None:
        """Read all.

        Args:
            missing: whether something was not met yet that may stand behind the open transactions in such partitions.
            wait_s: how long to wait for open transactions if so, seconds.

        Raises:
            TransientError: a partition cannot be read.
            TerminalError: it is damaged, or this user may not read it.
        """
        since = time.monotonic()
        while open_logs := [log for log in self.logs.values() if not log.done]:
            stable = self._topics.stable([log.place for log in open_logs])
            further = [self._read(log, min(stable[log.place], log.end)) for log in open_logs]
            if any(further):
                since = time.monotonic()
            elif time.monotonic() - since >= wait_s or not missing(open_logs):
                break
            else:
                names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(log.place for log in open_logs))
                self._progress(f"waiting for open transactions in {names}")
                time.sleep(_PAUSE_S)

    def _read(self, log: PartitionLog, after: int) -> bool:
        """Read a partition up to an offset; return whether that is further than before."""
        if after < log.at:
            raise went_back(*log.place, log.at, after)
        if after == log.at:
            return False
        try:
            for records in self._topics.read(log.place, log.at, after):
                self._take(log, records)
                self._tell(log, int(records.offset[-1]) + 1 - log.at)
        except SourceGoneError:
            begin = self._topics.begin([log.place])[log.place]
            if begin <= log.at:
                raise
            log.restart(begin)
            return True
        log.at = after
        self._tell(log, 0)
        return True

    def _tell(self, log: PartitionLog, more: int) -> None:
        done = sum(log.at - log.begin for log in self.logs.values()) + more
        total = sum(max(log.end, log.at) - log.begin for log in self.logs.values())
        self._progress(f"{done:,} of {total:,} offsets of {', '.join(self._names)} read")
