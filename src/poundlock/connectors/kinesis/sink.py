"""KinesisStreamsSink: rows as records of a stream, taken by the service before the decision."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa

from poundlock.arguments import TEXT, check_kind
from poundlock.checkpoint.participant import WriterContext
from poundlock.connectors.kinesis.client import BUSY, KinesisStream
from poundlock.connectors.messages.append import AppendSink, AppendWriter
from poundlock.connectors.messages.encoding import EncodedFormat, MessageFormat
from poundlock.errors import TerminalError, TransientError
from poundlock.values import duration

# The limits of PutRecords: records and bytes of a request, bytes of a record, its partition key among them, and characters of a key.
_MOST, _MOST_BYTES, _LARGEST, _LONGEST_KEY = 500, 5 << 20, 1 << 20, 256
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
_PREFLIGHT_S = 4.5
_PASSING = BUSY | {"InternalFailure"}


@dataclass(frozen=True, init=False)
class KinesisStreamsSink(AppendSink):
    """Put each row into a stream. At-least-once: records are visible at once, and come again when a checkpoint is repeated.

    A request whose records were taken in part is repeated for the others, so records of one key may change places then.

    Args:
        stream: its name or ARN.
        partition_key: the column that has each record's key; None = any shard for each record.
        region: of the service; None = AWS_REGION, AWS_DEFAULT_REGION or the profile's.
        endpoint: URL of the service; None = AWS_ENDPOINT_URL_KINESIS, AWS_ENDPOINT_URL or Amazon's of the region.
        format: "json", "csv", or "raw": one column as it is.
        value: the columns that are written; None = all, and with "raw" the column `value`.
        retry_for: how long records that the stream does not take for now are tried; then the checkpoint fails, and is repeated.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    task_modules: ClassVar[Sequence[str]] = ("botocore",)

    stream: KinesisStream
    partition_key: str | None
    content: MessageFormat
    retry_for: timedelta

    def __init__(
        self,
        stream: str,
        *,
        partition_key: str | None = None,
        region: str | None = None,
        endpoint: str | None = None,
        format: EncodedFormat = "json",
        value: str | Sequence[str] | None = None,
        retry_for: str | timedelta = "1 min",
    ) -> None:
        check_kind("KinesisStreamsSink", TEXT, {"stream": stream})
        names = {"partition_key": partition_key, "region": region, "endpoint": endpoint}
        check_kind("KinesisStreamsSink", TEXT, names, optional=True)
        values = {
            "stream": KinesisStream(stream, region, endpoint),
            "partition_key": partition_key,
            "content": MessageFormat(format, value),
            "retry_for": duration(retry_for),
        }
        for name, given in values.items():
            object.__setattr__(self, name, given)

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        return f"stream {self.stream.name} of Kinesis (PutRecords; at-least-once)"

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows have the columns that are named."""
        self.content.check(sink, columns, also=[] if self.partition_key is None else [self.partition_key])

    def preflight(self) -> None:
        """Ask whether the stream is there.

        Raises:
            DefinitionError: it is not, or this user may not look at it.
            TransientError: the service does not answer within 5 s.
        """
        with closing(self.stream.client(seconds=_PREFLIGHT_S)) as client, self.stream.explained("looking for it"):
            client.describe_stream_summary(**self.stream.argument)

    def open_writer(self, context: WriterContext) -> AppendWriter:
        """Begin to put records, in a task."""
        return AppendWriter(context, self.content.encoder(context.reject), RecordSender(self))


class RecordSender:
    """A task's client. Records are collected until a request is full."""

    def __init__(self, sink: KinesisStreamsSink) -> None:
        self._sink = sink
        self._client: Any = None
        self._held: list[dict[str, Any]] = []
        self._bytes = 0

    def faults(self, messages: Sequence[bytes], rows: pa.RecordBatch) -> Mapping[int, str]:
        keys = self._keys(messages, rows)
        bad: dict[int, str] = {}
        for i, (message, key) in enumerate(zip(messages, keys, strict=True)):
            if not key or len(key) > _LONGEST_KEY:
                bad[i] = f"{self._sink.partition_key} is {'empty' if not key else 'longer than 256 characters'}"
            elif len(message) + len(key.encode()) > _LARGEST:
                bad[i] = f"a record of {len(message):,} bytes is larger than Kinesis takes: {_LARGEST:,}"
        return bad

    def send(self, messages: Sequence[bytes], rows: pa.RecordBatch) -> None:
        for message, key in zip(messages, self._keys(messages, rows), strict=True):
            size = len(message) + len(key.encode())
            if len(self._held) == _MOST or self._bytes + size > _MOST_BYTES:
                self._flush()
            self._held.append({"Data": message, "PartitionKey": key})
            self._bytes += size

    def finish(self) -> None:
        self._flush()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _keys(self, messages: Sequence[bytes], rows: pa.RecordBatch) -> list[Any]:
        if self._sink.partition_key is None:
            return [uuid.uuid4().hex for _ in messages]
        keys: list[Any] = rows.column(self._sink.partition_key).cast(pa.string()).to_pylist()
        return keys

    def _flush(self) -> None:
        """Put what is held; what the service does not take for now is put again, with growing pauses."""
        stream, waiting = self._sink.stream, self._held
        self._held, self._bytes = [], 0
        end, pause = time.monotonic() + self._sink.retry_for.total_seconds(), _FIRST_PAUSE_S
        while waiting:
            with stream.explained("putting records"):
                self._client = self._client or stream.client()
                answer = self._client.put_records(**stream.argument, Records=waiting)
            if not answer.get("FailedRecordCount"):
                return
            results = answer["Records"]
            waiting = [record for record, result in zip(waiting, results, strict=True) if result.get("ErrorCode")]
            last = next(result for result in reversed(results) if result.get("ErrorCode"))
            what = f"stream {stream.name!r} of Kinesis does not take records: {last['ErrorCode']}: {last.get('ErrorMessage')}"
            if last["ErrorCode"] not in _PASSING:
                raise TerminalError(what, next="see docs/kinesis.md")
            if time.monotonic() + pause > end:
                raise TransientError(what, next="add shards, or give retry_for more time")
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, _LONGEST_PAUSE_S)
