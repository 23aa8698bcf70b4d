"""Rows into Kafka messages: which column is what part of a message, how values are encoded, and the digest of them all.

The digest does not depend on the order of messages and is the same in every process, so that what is produced again can
be compared with what was lost.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.connectors.kafka.checks import is_topic
from poundlock.connectors.kafka.sink.message_columns import (
    as_bytes,
    as_headers,
    as_integers,
    as_times,
    column_of,
    json_bytes,
)
from poundlock.connectors.kafka.sink.transaction_ids import TO_TOPIC
from poundlock.formats.chunk import Batch, Chunk, Lines
from poundlock.formats.convert import to_batch
from poundlock.formats.encode import CsvEncoder, JsonEncoder, select
from poundlock.formats.origin import origin_of
from poundlock.formats.reject import Reject
from poundlock.formats.utf8 import row_values

_MASK = (1 << 64) - 1
Bytes = Sequence[bytes | None]


@dataclass(frozen=True)
class RowSpec:
    """What is where in a row.

    Args:
        format: "raw", "json", "csv" or "avro".
        value: raw: the one column; else the columns to encode, None = all.
        key, partition, timestamp: columns, None = none.
        headers: one column of an array of key and value or of a map, or header name to column; None = none.
        topic: the topic's name, None = in column TO_TOPIC; or a function of the record.
        options: of the format.
    """

    format: str
    value: str | Sequence[str] | None
    key: str | None
    headers: str | Mapping[str, str] | None
    partition: str | None
    timestamp: str | None
    topic: str | Callable[[Any], str] | None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Messages:
    """Messages as columns; None where no row has that part. `rows` tells which row of the chunk each came from."""

    values: Bytes
    keys: Bytes | None
    headers: Sequence[list[tuple[str, bytes | None]] | None] | None
    partitions: Sequence[int | None] | None
    timestamps: Sequence[int | None] | None
    topics: str | Sequence[str]
    rows: Sequence[int]


class Digest:
    """The sum, modulo 2**64, of a hash of each message, and how many there were."""

    __slots__ = ("_sum", "bytes", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self._sum = 0

    def add(self, value: bytes | None, *more: Any) -> None:
        """Add one message: its value, and all else that was said about it."""
        if value is not None and not more:
            digest = blake2b(value, digest_size=8)
        else:
            digest = blake2b(repr((value, *more)).encode(), digest_size=8, person=b"parts")
        self._sum += int.from_bytes(digest.digest(), "little")
        self.rows += 1
        self.bytes += len(value) if value is not None else 0

    def add_values(self, values: Sequence[bytes]) -> None:
        """Add messages of which nothing was said but the value, as `add` does one by one."""
        hashes = b"".join([blake2b(value, digest_size=8).digest() for value in values])
        self._sum += int(np.frombuffer(hashes, "<u8").sum(dtype=np.uint64))  # that it wraps is what the digest says
        self.rows += len(values)
        self.bytes += sum(map(len, values))

    @property
    def text(self) -> str:
        """The digest as 16 hex digits."""
        return f"{self._sum & _MASK:016x}"


class _Encoder(Protocol):
    def encode(self, batch: pa.RecordBatch) -> tuple[Sequence[bytes | None], Mapping[int, str]]:
        """Return one value a row (anything for a bad one), and why rows are bad."""
        ...


class MessageMaker:
    """Makes messages of chunks; rows that cannot become one are handed to `reject`.

    Args:
        spec: what is where.
        reject: takes rows that cannot be encoded, or whose topic is none.
    """

    def __init__(self, spec: RowSpec, reject: Callable[[Reject], None]) -> None:
        self._spec = spec
        self._reject = reject
        self._encoder = _encoder(spec)

    def messages(self, chunk: Chunk) -> Messages:
        """Return the messages of a chunk.

        Raises:
            DefinitionError: the rows lack a column, or one has a type that cannot be that part of a message.
        """
        if isinstance(chunk, Lines) and self._only_value:
            assert isinstance(self._spec.topic, str)
            lines = _cut(chunk.data, chunk.ends)
            return Messages(lines, None, None, None, None, self._spec.topic, range(len(lines)))
        rows = chunk if isinstance(chunk, Batch) else to_batch(chunk)
        batch, spec = rows.batch, self._spec
        values, bad = self._encoder.encode(batch)
        bad = dict(bad)
        messages = Messages(
            values=values,
            keys=None if spec.key is None else as_bytes(column_of(batch, spec.key)),
            headers=None if spec.headers is None else as_headers(batch, spec.headers),
            partitions=None if spec.partition is None else as_integers(column_of(batch, spec.partition)),
            timestamps=None if spec.timestamp is None else as_times(column_of(batch, spec.timestamp)),
            topics=self._topics(batch, bad),
            rows=range(len(values)),
        )
        if messages.partitions is not None:
            bad |= {
                i: f"partition {p} is negative" for i, p in enumerate(messages.partitions) if p is not None and p < 0
            }
        return self._without(rows, messages, bad) if bad else messages

    @property
    def _only_value(self) -> bool:
        s = self._spec
        parts = (s.key, s.headers, s.partition, s.timestamp)
        return s.format == "raw" and s.value == "value" and parts == (None,) * 4 and isinstance(s.topic, str)

    def _topics(self, batch: pa.RecordBatch, bad: dict[int, str]) -> str | Sequence[str]:
        topic = self._spec.topic
        if isinstance(topic, str):
            return topic
        if topic is None:
            names: list[Any] = column_of(batch, TO_TOPIC).to_pylist()
        else:
            names = []
            for i, record in enumerate(select(batch, None, frozenset((TO_TOPIC,))).to_pylist()):
                try:
                    names.append(topic(record))
                except Exception as error:  # the user's code may raise anything
                    names.append("")
                    bad.setdefault(i, f"the topic function raised {type(error).__name__}: {error}")
        for i, name in enumerate(names):
            if not is_topic(name):
                bad.setdefault(i, f"{name!r} is not a topic name")
        return names

    def reject(self, chunk: Chunk, row: int, reason: str) -> None:
        """Reject a row of a chunk that could not be sent after all."""
        if isinstance(chunk, Lines):
            self._reject(Reject(reason, chunk.row(row), chunk.origin.at(row)))
        else:
            self._reject_rows(chunk if isinstance(chunk, Batch) else to_batch(chunk), {row: reason})

    def _reject_rows(self, rows: Batch, bad: Mapping[int, str]) -> None:
        spec, origin = self._spec, origin_of(rows)
        for i in sorted(bad):
            row = {k: v for k, v in row_values(rows.batch, i).items() if k != TO_TOPIC}
            raw = row.get(spec.value) if spec.format == "raw" and isinstance(spec.value, str) else None
            self._reject(Reject(bad[i], raw if isinstance(raw, bytes) else json_bytes(row), origin.at(i)))

    def _without(self, rows: Batch, messages: Messages, bad: Mapping[int, str]) -> Messages:
        self._reject_rows(rows, bad)
        keep = [i for i in range(len(messages.values)) if i not in bad]

        def kept(column: Any) -> Any:
            return column if column is None or isinstance(column, str) else [column[i] for i in keep]

        return Messages(
            kept(messages.values), kept(messages.keys), kept(messages.headers), kept(messages.partitions), kept(messages.timestamps),
            kept(messages.topics), keep,
        )  # fmt: skip


def _cut(data: memoryview, ends: npt.NDArray[np.int64]) -> list[bytes]:
    """Return the rows of a buffer, each without the line end that stands at its end."""
    held, start, rows = bytes(data), 0, []
    for end in ends.tolist():
        rows.append(held[start:end])
        start = end + 1
    return rows


# --- values -----------------------------------------------------------------------------------------------------------


def _encoder(spec: RowSpec) -> _Encoder:
    if spec.format == "raw":
        return _Raw(str(spec.value))
    columns = None if spec.value is None else [spec.value] if isinstance(spec.value, str) else list(spec.value)
    if spec.format == "avro":
        return AvroValues(columns, **spec.options)
    hidden = (TO_TOPIC,)
    return _Rows(JsonEncoder(columns, hidden) if spec.format == "json" else CsvEncoder(columns, hidden))


@dataclass(frozen=True)
class _Raw:
    column: str

    def encode(self, batch: pa.RecordBatch) -> tuple[Sequence[bytes | None], Mapping[int, str]]:
        return as_bytes(column_of(batch, self.column)), {}


@dataclass(frozen=True)
class _Rows:
    """JSON and CSV as files have them, without the line ends."""

    encoder: JsonEncoder | CsvEncoder

    def encode(self, batch: pa.RecordBatch) -> tuple[Sequence[bytes | None], Mapping[int, str]]:
        encoded = self.encoder.encode(Batch(batch))
        good = _cut(encoded.data, encoded.ends)
        if not encoded.bad:
            return good, {}
        rest = iter(good)
        return [b"" if i in encoded.bad else next(rest) for i in range(batch.num_rows)], encoded.bad


class AvroValues:
    """One binary Avro record a value.

    Args:
        columns: the columns to write, None = all.
        avro_schema: of the record, as JSON text or as the object; None = made of the columns.
        schema_id: number of the schema in a registry, written in five bytes before each value; None = nothing is.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        avro_schema: str | Mapping[str, Any] | None = None,
        schema_id: int | None = None,
    ) -> None:
        self._columns = columns
        self._head = b"" if schema_id is None else b"\0" + int(schema_id).to_bytes(4, "big")
        self._schema = json.loads(avro_schema) if isinstance(avro_schema, str) else avro_schema
        self._parsed: Any = None

    def encode(self, batch: pa.RecordBatch) -> tuple[Sequence[bytes | None], Mapping[int, str]]:
        from poundlock.formats.decode_avro import load_fastavro
        from poundlock.formats.encode import values
        from poundlock.formats.encode_bulk import avro_schema

        fastavro = load_fastavro()
        batch = select(batch, self._columns, frozenset((TO_TOPIC,)))
        if self._parsed is None:
            self._parsed = fastavro.parse_schema(self._schema or avro_schema(batch.schema))
        columns = [values(column) for column in batch.columns]
        names, out, bad = batch.schema.names, [], {}
        for i, row in enumerate(zip(*columns, strict=True)):
            stream = io.BytesIO()
            stream.write(self._head)
            try:
                fastavro.schemaless_writer(stream, self._parsed, dict(zip(names, row, strict=True)))
            except Exception as error:  # fastavro raises what the value leads it to
                bad[i] = f"cannot be written as Avro: {error or type(error).__name__}"
            out.append(stream.getvalue())
        return out, bad
