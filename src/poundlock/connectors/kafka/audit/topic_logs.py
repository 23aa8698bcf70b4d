"""The partitions of a cluster's topics, looked at by the driver: where they begin and end, and what stands in them.

Nothing is changed, no group is joined; records are read as tasks read them, checksums included. A scan reads topics once from their
first message to where they ended at the beginning, as read_committed readers get them. An open transaction is waited for as long as
something is missing behind it, and for some seconds at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from poundlock.connectors.kafka.cluster import Cluster
from poundlock.connectors.kafka.errors import went_back
from poundlock.connectors.kafka.login import login
from poundlock.connectors.kafka.offsets import Partition, names
from poundlock.connectors.kafka.security import KafkaSecurity
from poundlock.connectors.kafka.source.client_properties import FetchSettings
from poundlock.connectors.kafka.wire.fetch_client import FetchClient, fetch_client
from poundlock.connectors.kafka.wire.range_fetch import OffsetRange, fetch_headers, fetch_range
from poundlock.connectors.kafka.wire.record_batches import BatchHeader, Records
from poundlock.errors import SourceGoneError

_SETTINGS = FetchSettings(patience_s=30)
_PAUSE_S = 0.2
_FEW = 10_000  # so many offsets are read rather than searched
_PROBE = 500  # so many offsets are looked at to learn whose rows stand there


class TopicLogs(Cluster):
    """A cluster that is asked for records too; "end" is the offset after the last record, committed or not."""

    def __init__(self, servers: str, security: KafkaSecurity, *, seconds: float = 10) -> None:
        super().__init__(servers, security.confluent(), committed_only=False, timeout=seconds)
        self._security = security

    def places(self, topics: Iterable[str]) -> list[Partition]:
        """Return the partitions of topics; those that are gone, or that this user may not know of, have none."""
        known = self.partitions()
        return [(topic, number) for topic in sorted(topics) for number in known.get(topic, ())]

    def read(self, place: Partition, first: int, after: int) -> Iterator[Records]:
        """Yield the records of a range as a read_committed reader gets them; see `fetch_range`."""
        return fetch_range(self._fetch, OffsetRange(*place, first, after), committed=True)

    def headers(self, place: Partition, first: int, after: int) -> Iterator[tuple[BatchHeader, bool]]:
        """Yield what stands in a range, of open and aborted transactions too; see `fetch_headers`."""
        return fetch_headers(self._fetch, OffsetRange(*place, first, after))

    @property
    def _fetch(self) -> FetchClient:
        return fetch_client(self.servers, login(self._security), _SETTINGS)


@dataclass(slots=True)
class PartitionLog:
    """How far a partition is read: what stood before `begin` was removed, `at` is read next, and `end` was its end when reading began.

    Rows were met of the ledger record with the number `record` first, and of `checkpoint` as the newest one. Where reading does
    not begin at `begin`, `record` is the one whose rows stand right before.
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
    """One reading of those topics of some names that exist.

    `take` gets the records that committed transactions, or producers without any, wrote; `progress` a line after each answer.
    """

    def __init__(
        self,
        topics: TopicLogs,
        topic_names: Iterable[str],
        *,
        take: Callable[[PartitionLog, Records], None],
        progress: Callable[[str], None],
    ) -> None:
        self._topics, self._names, self._take, self._progress = topics, sorted(topic_names), take, progress
        places = topics.places(self._names)
        begins, ends = topics.begin(places), topics.end(places)
        self.logs = {place: PartitionLog(place, begins[place], begins[place], ends[place]) for place in places}
        """How far each partition was read."""

    def skip_before(self, record: int, record_of: Callable[[BatchHeader], int | None]) -> None:
        """Begin each partition where rows of a ledger record, or of a later one, may stand first.

        Decisions follow one another, and so do their rows in a partition; so a few batches are looked at, by halves. What is
        not known, as where others write to the topic too, is read.

        Args:
            record: the number of the first record whose rows are wanted.
            record_of: returns the number of the record that decided a batch; None where that is not known.
        """
        for log in self.logs.values():
            low, high = log.at, log.end
            while high - low > _FEW:
                middle = (low + high) // 2
                met = self._first_known(log.place, middle, min(middle + _PROBE, high), record_of)
                if met is None or met[0] >= record:
                    high = middle
                else:
                    log.record, low = met
            log.at = low

    def _first_known(
        self, place: Partition, first: int, after: int, record_of: Callable[[BatchHeader], int | None]
    ) -> tuple[int, int] | None:
        """Return the record of the first batch from an offset on of which it is known, and the offset behind the batch."""
        try:
            batches = [header for header, _ in self._topics.headers(place, first, after)]
        except SourceGoneError:  # the broker removed it a moment ago: what is there still is read
            return None
        known = ((record_of(header), header.last_offset + 1) for header in batches)
        return next(((record, behind) for record, behind in known if record is not None), None)

    def run(self, missing: Callable[[Sequence[PartitionLog]], bool], wait_s: float) -> None:
        """Read all; raises as `fetch_range` does.

        Open transactions in some partitions are waited for so many seconds if something is `missing` that may stand behind them.
        """
        since = time.monotonic()
        while open_logs := [log for log in self.logs.values() if not log.done]:
            stable = self._topics.end([log.place for log in open_logs], committed=True)
            further = [self._read(log, min(stable[log.place], log.end)) for log in open_logs]
            if any(further):
                since = time.monotonic()
            elif time.monotonic() - since >= wait_s or not missing(open_logs):
                break
            else:
                self._progress(f"waiting for open transactions in {names(sorted(log.place for log in open_logs))}")
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
