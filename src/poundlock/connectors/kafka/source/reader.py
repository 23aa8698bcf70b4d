"""Task's half of a Kafka source: the offset ranges of splits to chunks, values decoded where the source has a format.

The same split gives the same rows. A record that cannot be decoded goes to `reject` with its topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.kafka.errors import damaged
from poundlock.connectors.kafka.source.record_columns import to_batch, to_lines
from poundlock.connectors.kafka.wire.fetch_client import FetchClient
from poundlock.connectors.kafka.wire.range_fetch import OffsetRange, fetch_range, parse_kafka_id
from poundlock.connectors.kafka.wire.record_batches import DamagedBatch, Records
from poundlock.formats.chunk import Chunk

if TYPE_CHECKING:
    from poundlock.formats.decode import Decoder


VALUE = "value"


def payload(wanted: OffsetRange, topic_id: str | None) -> dict[str, str | int]:
    """Return a range as a split carries it."""
    known: dict[str, str | int] = {} if topic_id is None else {"topic_id": topic_id}
    return {"topic": wanted.topic, "partition": wanted.partition, "from": wanted.first, "to": wanted.after, **known}


class KafkaReader:
    """Reads the splits of one task.

    Args:
        client: the connections of this process.
        columns: by name, the field of the record that each column shows; without a decoder these are the rows.
        decoder: decodes the column `value`; None = rows stay as the record has them.
        committed: whether to leave out what aborted transactions wrote.
    """

    def __init__(
        self,
        client: FetchClient,
        columns: Mapping[str, str],
        decoder: Decoder | None,
        *,
        committed: bool,
        context: ReaderContext,
    ) -> None:
        self._client, self._decoder, self._committed, self._context = client, decoder, committed, context
        needed = context.columns if decoder is None and context.columns is not None else columns
        self._columns = {name: field for name, field in columns.items() if name in needed}
        self._as_lines = self._columns == {VALUE: VALUE}
        self.bytes_read = 0
        """How many bytes the values of all records had that were read; a null value has none."""

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a split. Each chunk has its own memory and stays valid.

        Raises:
            SourceGoneError: records of the range have expired, or the topic was deleted or created again.
            TerminalError: a batch is damaged or of an old format, or the user may not read.
            TransientError: nothing came for too long.
        """
        p = split.payload
        known = p.get("topic_id")
        wanted = OffsetRange(
            p["topic"], p["partition"], p["from"], p["to"], None if known is None else parse_kafka_id(known)
        )
        for records in fetch_range(self._client, wanted, committed=self._committed):
            self.bytes_read += records.value_bytes
            try:
                chunk = self._chunk(records, wanted)
            except DamagedBatch as error:
                raise damaged(wanted.topic, wanted.partition, error.offset, error.why, next=error.next) from error
            if self._decoder is not None:
                chunk = self._decoder.decode(chunk, self._context.reject, self._context.want)
            if len(chunk):
                yield chunk

    def _chunk(self, records: Records, wanted: OffsetRange) -> Chunk:
        if self._as_lines:
            lines = to_lines(records, wanted.topic, wanted.partition)
            if lines is not None:
                return lines
        return to_batch(records, wanted.topic, wanted.partition, self._columns)
