"""Reads topics once from their first message to where they ended at the beginning, as read_committed readers get them.

An open transaction is waited for as long as something is missing behind it, and for some seconds at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from poundlock.connectors.kafka.audit.fetching import Fetched, TopicLogs
from poundlock.connectors.kafka.audit.transaction_batches import RecordBatch, batches, committed
from poundlock.connectors.kafka.partition_ranges import Place
from poundlock.errors import TerminalError, TransientError

_POLL_MS = 200
_SILENT_S = 30.0
_PAUSE_S = 0.2


@dataclass(slots=True)
class PartitionLog:
    """How far a partition is read.

    Args:
        place: the partition.
        begin: its first offset; what stood before was removed.
        at: the offset that is read next.
        end: its end when reading began; None before the first answer.
        held: whether an open transaction keeps readers from going on.
        record: number of the first ledger record whose rows were met, None if none were.
        checkpoint: the newest checkpoint whose rows were met.
    """

    place: Place
    begin: int
    at: int
    end: int | None = None
    held: bool = False
    record: int | None = None
    checkpoint: int | None = None

    @property
    def done(self) -> bool:
        """Whether all of it is read."""
        return self.end is not None and self.at >= self.end

    def restart(self, begin: int) -> None:
        """Go on where the log begins now: the broker removed what stood before while it was read."""
        self.begin = self.at = begin
        self.record = None


class Scan:
    """One reading of topics.

    Args:
        topics: their partitions.
        names: the topics; those that do not exist are left out.
        take: gets each batch that committed transactions, or producers without any, wrote.
        progress: takes a line after each answer.
    """

    def __init__(
        self,
        topics: TopicLogs,
        names: Iterable[str],
        *,
        take: Callable[[PartitionLog, RecordBatch], None],
        progress: Callable[[str], None],
    ) -> None:
        self._topics, self._names, self._take, self._progress = topics, sorted(names), take, progress
        self._leaders = topics.leaders(self._names)
        begins = topics.begins(self._leaders)
        self.logs = {place: PartitionLog(place, begins[place], begins[place]) for place in self._leaders}
        """How far each partition was read."""
        self._alive = time.monotonic()
        self._fault = ""

    def run(self, missing: Callable[[Sequence[PartitionLog]], bool], wait_s: float) -> None:
        """Read all.

        Args:
            missing: whether something was not met yet that may stand behind the open transactions in such partitions.
            wait_s: how long to wait for open transactions if so, seconds.

        Raises:
            TransientError: a partition cannot be read.
            TerminalError: what a broker answered is damaged.
        """
        moved, held_since = True, 0.0
        while open_logs := [log for log in self.logs.values() if not log.done]:
            moved = self._round(open_logs, wait_ms=0 if moved else _POLL_MS)
            held = [log for log in open_logs if log.held]
            if moved or len(held) < len(open_logs):
                held_since = 0.0
                self._check_alive(moved, open_logs)
                continue
            held_since = held_since or time.monotonic()
            if time.monotonic() - held_since >= wait_s or not missing(held):
                break
            self._progress(f"waiting for open transactions in {_names(log.place for log in held)}")

    def _round(self, open_logs: list[PartitionLog], *, wait_ms: int) -> bool:
        """Ask each broker once; return whether anything new came."""
        moved, fault = False, ""
        for leader in sorted({self._leaders[log.place] for log in open_logs}):
            offsets = {log.place: log.at for log in open_logs if self._leaders[log.place] == leader}
            if leader < 0:
                fault = f"{_names(offsets)} has no leader"
                continue
            for fetched in self._topics.fetch(leader, offsets, wait_ms=wait_ms):
                log = self.logs[fetched.place]
                if fetched.fault == "OffsetOutOfRangeError" and self._trimmed(log):
                    moved = True
                elif fetched.fault:
                    fault = f"{_names([log.place])}: {fetched.fault}"
                else:
                    moved |= self._advance(log, fetched)
        if fault:
            self._fault = fault
            time.sleep(_PAUSE_S)
            self._leaders |= self._topics.leaders(self._names)
        done = sum(log.at - log.begin for log in self.logs.values())
        total = sum(max(log.end or 0, log.at) - log.begin for log in self.logs.values())
        self._progress(f"{done:,} of {total:,} offsets of {', '.join(self._names)} read")
        return moved

    def _trimmed(self, log: PartitionLog) -> bool:
        """Go on behind what the broker removed; return False if it did not, and the log became shorter at its end."""
        begin = self._topics.begins([log.place])[log.place]
        if begin <= log.at:
            return False
        log.restart(begin)
        return True

    def _advance(self, log: PartitionLog, fetched: Fetched) -> bool:
        begun = log.at
        try:
            # A batch may be fetched from its middle: after records were deleted.
            found = [batch for batch in batches(fetched.data) if batch.last >= log.at]
            for batch in committed(found, fetched.aborted):
                self._take(log, batch)
        except ValueError as error:
            raise TerminalError(
                f"{_names([log.place])} cannot be read: {error}", next="look at the broker's disk; nothing was changed"
            ) from error
        log.at = max((batch.last + 1 for batch in found), default=log.at)
        log.end = fetched.end if log.end is None else log.end
        log.held = log.at >= fetched.stable and not log.done
        return log.at > begun or log.done

    def _check_alive(self, moved: bool, open_logs: list[PartitionLog]) -> None:
        if moved:
            self._alive = time.monotonic()
        elif time.monotonic() - self._alive > _SILENT_S:
            log = next(log for log in open_logs if not log.held)
            raise TransientError(
                f"{_names([log.place])} cannot be read on from offset {log.at}: {self._fault or 'nothing comes'}",
                next="see that the brokers run, and type the command again",
            )


def _names(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places))
