"""Driver's half of a Kinesis source: it receives records shard by shard into an inbox, and each file knows how far the shards were behind it.

Kinesis says where records end only by giving them, so the driver reads them, once; what is written down gives the same rows whenever it is read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.checkpoint.participant import JSON
from poundlock.connectors.base import Split
from poundlock.connectors.kinesis import shards as positions_of
from poundlock.connectors.kinesis.client import BUSY, EXPIRED, GONE, code_of
from poundlock.connectors.kinesis.shards import DONE, Shard
from poundlock.connectors.messages.inbox import Inbox
from poundlock.errors import SourceGoneError
from poundlock.storage import Storage
from poundlock.values import utc_text

if TYPE_CHECKING:
    from poundlock.connectors.kinesis.source import KinesisStreamsSource

COLUMNS = pa.schema(
    [
        ("value", pa.binary()),
        ("partition_key", pa.string()),
        ("sequence_number", pa.string()),
        ("shard_id", pa.string()),
        ("arrival_timestamp", pa.timestamp("us", "UTC")),
    ]
)
"""What a record has."""
_A_FILE = 5_000  # rows
_MOST_RECORDS = 10_000  # of one answer, which is the service's own limit
_LIST_EVERY_S = 60.0
_CAUGHT_UP = "caught-up"
_WRITE_DOWN_MS = 600_000  # how often it is written down that nothing waits: retention is a day or more


@dataclass
class _Read:
    """Records that came and are not written down, and how far their shards are behind them."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)


class KinesisEnumerator:
    """Receives, and plans. A position has the number of the next file, and of each shard the sequence number of its last record."""

    def __init__(self, source: KinesisStreamsSource, workspace: Storage) -> None:
        self._source, self._storage = source, workspace
        self._inbox = Inbox(workspace)
        self._client: Any = None
        self._positions: dict[str, str] | None = None
        self._shards: dict[str, Shard] = {}
        self._listed_s = 0.0
        self._iterators: dict[str, str] = {}
        self._seen_ms: dict[str, int] = {}  # all that arrived in a shard before is read
        self._kept_ms = 0
        self._retention_ms = 0
        self._behind: dict[str, int] = {}
        self._asked_ms: int | None = None

    def initial(self) -> JSON:
        return {"file": 0, "shards": {}}

    def latest(self, start: JSON) -> JSON:
        number, now = int(start["file"]), self._source.clock.now_ms()
        if self._positions is None:
            self._begin(start)
        end = self._inbox.end(number, self._source.max_rows_per_checkpoint)
        if end == number and (self._asked_ms is None or now - self._asked_ms >= self._source.poll_ms):
            self._receive()
            self._asked_ms = now
            end = self._inbox.end(number, self._source.max_rows_per_checkpoint)
        state = self._inbox.state(end)
        return start if end == number or state is None else {"file": end, "shards": state["shards"]}

    def splits(self, start: JSON, end: JSON) -> Sequence[Split]:
        return self._inbox.splits(int(start["file"]), int(end["file"]))

    def finished(self, position: JSON) -> bool:
        return False

    def committed(self, position: JSON) -> None:
        """Delete what is not needed any more: all but what the newest checkpoint read, which may be delivered again."""
        self._inbox.delete(self._inbox.committed(int(position["file"])))

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- where it goes on ----------------------------------------------------------------------------------------------

    def _begin(self, start: JSON) -> None:
        source = self._source
        self._inbox.begin(int(start["file"]), keep=True)
        state = self._inbox.state(self._inbox.next)
        known: Mapping[str, str] = start["shards"] if state is None else state["shards"]
        self._seen_ms = {} if state is None else {id: int(ms) for id, ms in state["seen"].items()}
        if self._storage.stat(_CAUGHT_UP) is not None:
            noted: dict[str, int] = json.loads(self._storage.read(_CAUGHT_UP))
            for id, ms in noted.items():
                if id in known:
                    self._seen_ms[id] = max(self._seen_ms.get(id, 0), ms)
        with source.stream.explained("looking for its shards"):
            self._client = self._client or source.stream.client()
            summary = self._client.describe_stream_summary(**source.stream.argument)["StreamDescriptionSummary"]
            self._retention_ms = int(summary["RetentionPeriodHours"]) * 3_600_000
            self._shards = positions_of.list_shards(self._client, source.stream)
        self._listed_s = time.monotonic()
        first = positions_of.first_positions(self._shards, source.start)
        self._positions = positions_of.with_new(known, self._shards) if known else first

    # --- receiving ---------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Ask each shard that may be read once, and write down what came."""
        assert self._positions is not None
        with self._source.stream.explained("reading"):
            if time.monotonic() - self._listed_s > _LIST_EVERY_S:
                self._look_for_shards()
            read, total = _Read(), 0
            for id in positions_of.readable(self._positions, self._shards):
                total += self._ask(id, read)
                if len(read.rows) >= _A_FILE:
                    self._write_down(read)
                    read = _Read()
                if total >= self._source.max_rows_per_checkpoint:
                    break
        if read.rows:
            self._write_down(read)
        elif self._source.clock.now_ms() - self._kept_ms > _WRITE_DOWN_MS:
            self._note_caught_up()

    def _look_for_shards(self) -> None:
        assert self._positions is not None
        self._shards = positions_of.list_shards(self._client, self._source.stream)
        self._positions = positions_of.with_new(self._positions, self._shards)
        self._listed_s = time.monotonic()

    def _ask(self, id: str, read: _Read) -> int:
        """Take what a shard has next; return how many records."""
        from botocore.exceptions import ClientError

        assert self._positions is not None
        self._check_retention(id)
        asked_ms = self._source.clock.now_ms()
        try:
            if id not in self._iterators:
                arguments = positions_of.iterator_arguments(self._positions[id])
                answer = self._client.get_shard_iterator(**self._source.stream.argument, ShardId=id, **arguments)
                self._iterators[id] = answer["ShardIterator"]
            most = min(_MOST_RECORDS, self._source.max_rows_per_checkpoint)
            named = {key: value for key, value in self._source.stream.argument.items() if key == "StreamARN"}
            answer = self._client.get_records(ShardIterator=self._iterators[id], Limit=most, **named)
        except ClientError as error:
            if (
                code_of(error) == EXPIRED
            ):  # it is valid for five minutes; the next look makes another behind the last record
                del self._iterators[id]
                return 0
            if code_of(error) in BUSY:
                return 0
            if code_of(error) == GONE:
                raise SourceGoneError(
                    f"shard {id} of stream {self._source.stream.name!r} is no longer there, and was not read to its end",
                    next="start the job over with a new checkpoint; records that nobody read in time are lost",
                ) from error
            raise
        return self._take(id, answer, asked_ms, read)

    def _take(self, id: str, answer: Mapping[str, Any], asked_ms: int, read: _Read) -> int:
        assert self._positions is not None
        records = answer["Records"]
        behind = int(answer.get("MillisBehindLatest") or 0)
        self._seen_ms[id], self._behind[id] = asked_ms - behind, behind
        for each in records:
            row = (
                each["Data"],
                each["PartitionKey"],
                each["SequenceNumber"],
                id,
                each.get("ApproximateArrivalTimestamp"),
            )
            read.rows.append(row)
        following = answer.get("NextShardIterator")
        closed = id in self._shards and self._shards[id].closed
        if records:
            self._positions[id] = records[-1]["SequenceNumber"]
        if following is None or (closed and not records and not behind):
            self._positions[id] = DONE
            self._iterators.pop(id, None)
            self._look_for_shards()  # its children
        else:
            self._iterators[id] = following
        return len(records)

    def _write_down(self, read: _Read) -> None:
        columns = zip(*read.rows, strict=True)
        arrays = [pa.array(values, kind.type) for values, kind in zip(columns, COLUMNS, strict=True)]
        self._inbox.put(pa.table(arrays, schema=COLUMNS), {"shards": self._positions, "seen": self._seen_ms})

    # --- what may be lost ----------------------------------------------------------------------------------------------

    def _check_retention(self, id: str) -> None:
        """Raise SourceGoneError if what was not read of a shard may have expired; the service would go on behind it without a word."""
        seen, now = self._seen_ms.get(id), self._source.clock.now_ms()
        if seen is not None and now - seen > self._retention_ms:
            raise SourceGoneError(
                f"shard {id} of stream {self._source.stream.name!r} was read up to {utc_text(seen)}, and the stream keeps"
                f" records for {self._retention_ms // 3_600_000} h: some may be gone unread",
                next="start the job over with a new checkpoint; a longer retention gives more time for the next stop",
            )

    def _note_caught_up(self) -> None:
        """Write down that nothing waits, so that a job that is started after a quiet day is not taken for one that missed something."""
        self._kept_ms = self._source.clock.now_ms()
        data = json.dumps(self._seen_ms).encode()
        if not self._storage.create_exclusive(_CAUGHT_UP, data):
            self._storage.replace(_CAUGHT_UP, data)
