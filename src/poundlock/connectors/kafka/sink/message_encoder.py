"""Rows into Kafka messages: which column is what part of a message, how values are encoded, and the digest of them all.

The digest does not depend on the order of messages and is the same in every process, so that what is produced again can
be compared with what was lost. A column's type that has no plain meaning as a part of a message is refused; no value is changed in
silence.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.connectors.kafka.checks import is_topic
from poundlock.connectors.kafka.sink.sink import KafkaSink, TopicExpression
from poundlock.connectors.kafka.sink.transaction_ids import TO_TOPIC
from poundlock.connectors.reconcile import SumDigest
from poundlock.errors import DefinitionError
from poundlock.formats.chunk import Batch, Chunk, Lines, origin_of
from poundlock.formats.convert import row_values, to_batch
from poundlock.formats.encode import CsvEncoder, JsonEncoder, select
from poundlock.formats.reject import Reject, as_json

_MASK = (1 << 64) - 1
Bytes = Sequence[bytes | None]
_Encoded = tuple[Bytes, Mapping[int, str]]  # one value a row (anything for a bad one), and why rows are bad
_Encode = Callable[[pa.RecordBatch], _Encoded]


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

    def each(self) -> Iterator[tuple[Any, ...]]:
        """Yield topic, value, key, headers, partition and timestamp of each message."""
        n = len(self.values)
        columns = (self.topics, self.values, self.keys, self.headers, self.partitions, self.timestamps)
        return zip(*(repeat(c, n) if c is None or isinstance(c, str) else c for c in columns), strict=True)


class Digest(SumDigest):
    """The digest of messages."""

    __slots__ = ()

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


class MessageMaker:
    """Makes messages of chunks as a sink says; rows that cannot become one are handed to `reject`."""

    def __init__(self, sink: KafkaSink, reject: Callable[[Reject], None]) -> None:
        self._sink = sink
        self._reject = reject
        self._encoder = _encoder(sink)

    def messages(self, chunk: Chunk) -> Messages:
        """Return the messages of a chunk.

        Raises:
            DefinitionError: the rows lack a column, or one has a type that cannot be that part of a message.
        """
        sink = self._sink
        if isinstance(chunk, Lines) and sink.needs_only_value:
            assert isinstance(sink.topic, str)
            lines = _cut(chunk.data, chunk.ends)
            return Messages(lines, None, None, None, None, sink.topic, range(len(lines)))
        rows = chunk if isinstance(chunk, Batch) else to_batch(chunk)
        batch = rows.batch
        values, bad = self._encoder(batch)
        bad = dict(bad)
        messages = Messages(
            values=values,
            keys=None if sink.key is None else _as_bytes(_column(batch, sink.key)),
            headers=None if sink.headers is None else _as_headers(batch, sink.headers),
            partitions=None if sink.partition is None else _as_integers(_column(batch, sink.partition)),
            timestamps=None if sink.timestamp is None else _as_times(_column(batch, sink.timestamp)),
            topics=self._topics(batch, bad),
            rows=range(len(values)),
        )
        if messages.partitions is not None:
            bad |= {
                i: f"partition {p} is negative" for i, p in enumerate(messages.partitions) if p is not None and p < 0
            }
        return self._without(rows, messages, bad) if bad else messages

    def _topics(self, batch: pa.RecordBatch, bad: dict[int, str]) -> str | Sequence[str]:
        topic = self._sink.topic
        if isinstance(topic, str):
            return topic
        if isinstance(topic, TopicExpression):
            names: list[Any] = _column(batch, TO_TOPIC).to_pylist()
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
        sink, origin = self._sink, origin_of(rows)
        for i in sorted(bad):
            row = {k: v for k, v in row_values(rows.batch, i).items() if k != TO_TOPIC}
            raw = row.get(sink.value) if sink.format == "raw" and isinstance(sink.value, str) else None
            self._reject(Reject(bad[i], raw if isinstance(raw, bytes) else as_json(row), origin.at(i)))

    def _without(self, rows: Batch, messages: Messages, bad: Mapping[int, str]) -> Messages:
        self._reject_rows(rows, bad)
        keep = [i for i in range(len(messages.values)) if i not in bad]
        parts = ((part.name, getattr(messages, part.name)) for part in fields(messages))
        kept: dict[str, Any] = {
            name: part if part is None or isinstance(part, str) else [part[i] for i in keep] for name, part in parts
        }
        return Messages(**kept)


def _cut(data: memoryview, ends: npt.NDArray[np.int64]) -> list[bytes]:
    """Return the rows of a buffer, each without the line end that stands at its end."""
    held, start, rows = bytes(data), 0, []
    for end in ends.tolist():
        rows.append(held[start:end])
        start = end + 1
    return rows


# --- values -----------------------------------------------------------------------------------------------------------


def _encoder(sink: KafkaSink) -> _Encode:
    if sink.format == "raw":
        return lambda batch: (_as_bytes(_column(batch, str(sink.value))), {})
    columns = None if sink.value is None else [sink.value] if isinstance(sink.value, str) else list(sink.value)
    if sink.format == "avro":
        return _avro(columns, **sink.format_options)
    return _rows((JsonEncoder if sink.format == "json" else CsvEncoder)(columns, (TO_TOPIC,)))


def _rows(encoder: JsonEncoder | CsvEncoder) -> _Encode:
    """Return what makes JSON and CSV as files have them, without the line ends."""

    def encode(batch: pa.RecordBatch) -> _Encoded:
        encoded = encoder.encode(Batch(batch))
        good = _cut(encoded.data, encoded.ends)
        if not encoded.bad:
            return good, {}
        rest = iter(good)
        return [b"" if i in encoded.bad else next(rest) for i in range(batch.num_rows)], encoded.bad

    return encode


def _avro(
    columns: Sequence[str] | None, *, avro_schema: str | Mapping[str, Any] | None = None, schema_id: int | None = None
) -> _Encode:
    """Return what makes one binary Avro record a value.

    Args:
        columns: the columns to write, None = all.
        avro_schema: of the record, as JSON text or as the object; None = made of the columns.
        schema_id: number of the schema in a registry, written in five bytes before each value; None = nothing is.
    """
    head = b"" if schema_id is None else b"\0" + int(schema_id).to_bytes(4, "big")
    given = json.loads(avro_schema) if isinstance(avro_schema, str) else avro_schema
    parsed: Any = None

    def encode(batch: pa.RecordBatch) -> _Encoded:
        from poundlock.formats.decode_avro import load_fastavro
        from poundlock.formats.encode import values
        from poundlock.formats.encode_bulk import avro_schema as schema_of

        nonlocal parsed
        fastavro = load_fastavro()
        batch = select(batch, columns, frozenset((TO_TOPIC,)))
        if parsed is None:
            parsed = fastavro.parse_schema(given or schema_of(batch.schema))
        names, out, bad = batch.schema.names, [], {}
        for i, row in enumerate(zip(*(values(column) for column in batch.columns), strict=True)):
            stream = io.BytesIO()
            stream.write(head)
            try:
                fastavro.schemaless_writer(stream, parsed, dict(zip(names, row, strict=True)))
            except Exception as error:  # fastavro raises what the value leads it to
                bad[i] = f"cannot be written as Avro: {error or type(error).__name__}"
            out.append(stream.getvalue())
        return out, bad

    return encode


# --- parts of messages -------------------------------------------------------------------------------------------------


def _as_bytes(column: pa.Array) -> list[bytes | None]:
    """Return a column's values as bytes: binary as it is, text as UTF-8, numbers, booleans and dates as their text.

    Raises:
        DefinitionError: the type has no text.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        if pa.types.is_nested(kind) or (pa.types.is_temporal(kind) and not pa.types.is_date(kind)):
            raise DefinitionError(
                f"a column of type {kind} cannot be a Kafka key or raw value",
                next='cast it to text before the sink, or write the value with format="json"',
            )
        column = column.cast(pa.large_string()).cast(pa.large_binary())
    return column.to_pylist()  # type: ignore[no-any-return]


def _as_integers(column: pa.Array) -> list[int | None]:
    """Return a column of whole numbers. Raises DefinitionError for another type."""
    if not pa.types.is_integer(column.type):
        raise DefinitionError(f"a partition column of type {column.type}", next="cast it to int before the sink")
    return column.to_pylist()  # type: ignore[no-any-return]


def _as_times(column: pa.Array) -> list[int | None]:
    """Return a column of timestamps, or of milliseconds, as ms since the epoch. Raises DefinitionError for another type."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise DefinitionError(
            f"a timestamp column of type {column.type}", next="cast it to timestamp, or to bigint milliseconds"
        )
    return column.to_pylist()  # type: ignore[no-any-return]


def _as_headers(
    batch: pa.RecordBatch, headers: str | Mapping[str, str]
) -> Sequence[list[tuple[str, bytes | None]] | None]:
    """Return the headers of each row: of one column of arrays or maps, or of several columns by header name."""
    if not isinstance(headers, str):
        named = [(name, _as_bytes(_column(batch, column, " for headers"))) for name, column in headers.items()]
        return [[(name, values[i]) for name, values in named] for i in range(batch.num_rows)]
    column = _column(batch, headers, " for headers")
    kind = column.type
    if pa.types.is_map(kind):
        return [None if row is None else [(str(k), _bytes(v)) for k, v in row] for row in column.to_pylist()]
    inner = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    if inner is None or not pa.types.is_struct(inner) or {f.name for f in inner} != {"key", "value"}:
        raise DefinitionError(
            f"a headers column of type {kind}",
            next="make it an array of struct<key, value> or a map, or name columns: headers={'trace': 'trace_id'}",
        )
    return [
        None if row is None else [(str(h["key"]), _bytes(h["value"])) for h in row if h is not None]
        for row in column.to_pylist()
    ]


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def _column(batch: pa.RecordBatch, name: str, use: str = "") -> pa.Array:
    """Return a column. Raises DefinitionError, which says what it is for, if there is none of that name."""
    if name not in batch.schema.names:
        raise DefinitionError(
            f"the Kafka sink needs a column {name!r}{use}, and the rows have {', '.join(batch.schema.names)}",
            next="select it before the sink, or name another",
        )
    return batch.column(name)
