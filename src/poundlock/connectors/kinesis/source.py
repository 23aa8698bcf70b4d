"""KinesisStreamsSource: the records of a stream, shard by shard, a shard behind its parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from poundlock.arguments import TEXT, check_kind
from poundlock.connectors.base import ReplayPromise
from poundlock.connectors.kinesis import shards
from poundlock.connectors.kinesis.client import KinesisStream
from poundlock.connectors.kinesis.enumerator import COLUMNS, KinesisEnumerator
from poundlock.connectors.messages.reader import Format, payload_of
from poundlock.connectors.messages.source import MessageSource
from poundlock.errors import DefinitionError
from poundlock.storage import Storage
from poundlock.values import Clock, SystemClock, duration, positive_number, span_ms

_PREFLIGHT_S = 4.5


@dataclass(frozen=True, init=False)
class KinesisStreamsSource(MessageSource):
    """Read a stream of Kinesis. The driver receives the records and writes them down; tasks decode them.

    Rows have the columns `value` (binary), `partition_key`, `sequence_number`, `shard_id` and `arrival_timestamp`; with a format other than
    "raw" they have those of `schema`, then those of `metadata`.

    Args:
        stream: its name or ARN.
        region: of the service; None = AWS_REGION, AWS_DEFAULT_REGION or the profile's.
        endpoint: URL of the service; None = AWS_ENDPOINT_URL_KINESIS, AWS_ENDPOINT_URL or Amazon's of the region.
        start: where to begin on the first start: "earliest", "latest", or a time, as a datetime with a zone. Later starts go on where the
            checkpoint is.
        format: "raw", "json", "csv" or "avro": how a record's data is written.
        schema: columns of the data, for "json" and "csv".
        format_options: further options of the format.
        metadata: columns of the record that stand beside those of the format.
        poll_every: least time between two looks; a shard may be asked five times a second by all its readers.
        max_rows_per_checkpoint: most rows, about, of one checkpoint.
        clock: where the time comes from.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    stream: KinesisStream
    start: str
    poll_ms: int
    clock: Clock = field(compare=False)

    def __init__(
        self,
        stream: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        start: str | datetime = "earliest",
        format: Format = "raw",
        schema: str | None = None,
        format_options: Mapping[str, Any] | None = None,
        metadata: Sequence[str] = (),
        poll_every: str | timedelta = "1 s",
        max_rows_per_checkpoint: int = 100_000,
        clock: Clock | None = None,
    ) -> None:
        check_kind("KinesisStreamsSource", TEXT, {"stream": stream})
        check_kind("KinesisStreamsSource", TEXT, {"region": region, "endpoint": endpoint}, optional=True)
        values = {
            "stream": KinesisStream(stream, region, endpoint),
            "start": _start(start),
            "payload": payload_of("KinesisStreamsSource", COLUMNS, format, schema, format_options, metadata),
            "poll_ms": span_ms(duration(poll_every)),
            "max_rows_per_checkpoint": positive_number("max_rows_per_checkpoint", max_rows_per_checkpoint),
            "clock": clock or SystemClock(),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives: the same records."""
        return ReplayPromise(
            "exact",
            "a record is written down before it is read, with the sequence number behind which its shard goes on; records that expired "
            "unread stop the job",
        )

    @property
    def place(self) -> str:
        """What is read and where, for people."""
        return f"stream {self.stream.name} of Kinesis"

    def preflight(self) -> None:
        """Ask whether the stream is there and this user may look at it.

        Raises:
            DefinitionError: it is not, or may not.
            TransientError: the service does not answer within 5 s.
        """
        with closing(self.stream.client(seconds=_PREFLIGHT_S)) as client, self.stream.explained("looking for it"):
            client.describe_stream_summary(**self.stream.argument)

    def enumerator(self, workspace: Storage) -> KinesisEnumerator:
        """Return the driver's half."""
        return KinesisEnumerator(self, workspace)

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        read = position["shards"]
        done = sum(at == shards.DONE for at in read.values())
        return f"stream {self.stream.name}: {position['file']} files received of {len(read)} shards, {done} of them closed and read"


def _start(given: str | datetime) -> str:
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise DefinitionError(f"start={given!r} has no time zone", next="write datetime(…, tzinfo=timezone.utc)")
        return f"{shards.SINCE}{given.astimezone(UTC).timestamp()}"
    if given not in ("earliest", "latest"):
        raise DefinitionError(
            f"start={given!r} is not known", next='use "earliest", "latest" or a datetime with a zone'
        )
    return shards.EARLIEST if given == "earliest" else shards.LATEST
