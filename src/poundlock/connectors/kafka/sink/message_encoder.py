"""Rows into Kafka messages by columns: which column is what part of a message, and how values are encoded.

A column's type that has no plain meaning as a part of a message is refused; no value is changed in silence.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.kafka.checks import is_topic
from poundlock.connectors.kafka.schemas.encoder import RegistryEncoder
from poundlock.connectors.kafka.schemas.formats import RegistryFormat
from poundlock.connectors.kafka.sink.digest import NO_TIME
from poundlock.connectors.kafka.sink.sink import KafkaSink, TopicExpression
from poundlock.connectors.kafka.sink.transaction_ids import TO_TOPIC
from poundlock.connectors.kafka.wire.byte_strings import ByteStrings, Integers, joined, of_column, of_lines, of_list
from poundlock.connectors.kafka.wire.record_encoder import encode_headers, encode_named_headers
from poundlock.errors import DefinitionError
from poundlock.formats.arrays import column_of, numbers_in, valid_in
from poundlock.formats.chunk import Batch, Chunk, Lines, origin_of
from poundlock.formats.convert import row_values, to_batch
from poundlock.formats.encode import CsvEncoder, JsonEncoder, select
from poundlock.formats.reject import Reject, as_json

_Encoded = tuple[ByteStrings, Mapping[int, str]]  # one value a row (anything for a bad one), and why rows are bad
_Topics = str | Sequence[str]  # that of all rows, or that of each
_Encode = Callable[[pa.RecordBatch, _Topics], _Encoded]


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages as columns; None where no row has that part. `rows` tells which row of the chunk each came from."""

    values: ByteStrings
    keys: ByteStrings | None
    headers: ByteStrings | None  # as `encode_headers` gives them
    partitions: Integers | None  # -1 where a row names none
    times_ms: Integers | None  # NO_TIME where a row gives none
    topics: str | Sequence[str]
    rows: Integers

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes(self) -> Integers:
        """How many bytes each message has in its value, its key and its headers."""
        length = self.values.length
        if self.keys is not None:
            length = length + self.keys.length
        return length if self.headers is None else length + self.headers.length - 1

    def take(self, rows: Integers | slice) -> Messages:
        """Return some of them in an order of one's own."""
        topics = self.topics
        if not isinstance(topics, str):
            topics = topics[rows] if isinstance(rows, slice) else [topics[row] for row in rows.tolist()]
        return Messages(
            self.values.take(rows),
            None if self.keys is None else self.keys.take(rows),
            None if self.headers is None else self.headers.take(rows),
            None if self.partitions is None else self.partitions[rows],
            None if self.times_ms is None else self.times_ms[rows],
            topics,
            self.rows[rows],
        )


def joined_messages(parts: Sequence[Messages]) -> Messages:
    """Return the messages of one sink one behind the other; their rows mean nothing any more."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, Any] = {}
    for field in fields(Messages):
        column = [getattr(part, field.name) for part in parts]
        if column[0] is None or isinstance(column[0], str):
            columns[field.name] = column[0]
        elif isinstance(column[0], ByteStrings):
            columns[field.name] = joined(column)
        elif isinstance(column[0], np.ndarray):
            columns[field.name] = np.concatenate(column)
        else:
            columns[field.name] = [topic for topics in column for topic in topics]
    return Messages(**columns)


class MessageMaker:
    """Makes messages of chunks as a sink says; rows that cannot become one are handed to `reject`."""

    def __init__(self, sink: KafkaSink, reject: Callable[[Reject], None]) -> None:
        self._sink = sink
        self._reject = reject
        self._encoder = _encoder(sink)
        self._key_encoder = (
            None if sink.key_format is None else _registered(sink, sink.key_format, sink.key, is_key=True)
        )

    def messages(self, chunk: Chunk) -> Messages:
        """Return the messages of a chunk.

        Raises:
            DefinitionError: the rows lack a column, or one has a type that cannot be that part of a message.
        """
        sink = self._sink
        if isinstance(chunk, Lines) and sink.needs_only_value:
            assert isinstance(sink.topic, str)
            return Messages(of_lines(chunk.data, chunk.ends), None, None, None, None, sink.topic, np.arange(len(chunk)))
        rows = chunk if isinstance(chunk, Batch) else to_batch(chunk)
        batch = rows.batch
        bad: dict[int, str] = {}
        topics = self._topics(batch, bad)
        good = _good_topics(topics, bad)
        values, failed = self._encoder(batch, good)
        bad = {**failed, **bad}
        messages = Messages(
            values=values,
            keys=self._keys(batch, good, bad),
            headers=None if sink.headers is None else _as_headers(batch, sink.headers, bad),
            partitions=None if sink.partition is None else _as_partitions(_column(batch, sink.partition), bad),
            times_ms=None if sink.timestamp is None else _as_times(_column(batch, sink.timestamp)),
            topics=topics,
            rows=np.arange(batch.num_rows),
        )
        return self._without(rows, messages, bad) if bad else messages

    def _keys(self, batch: pa.RecordBatch, topics: _Topics, bad: dict[int, str]) -> ByteStrings | None:
        if self._key_encoder is not None:
            keys, failed = self._key_encoder(batch, topics)
            for row, why in failed.items():
                bad.setdefault(row, f"key: {why}")
            return keys
        return _as_bytes(_column(batch, self._sink.key)) if isinstance(self._sink.key, str) else None

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

    def reject(self, chunk: Chunk, bad: Mapping[int, str]) -> None:
        """Reject rows of a chunk that cannot be sent after all, for reasons."""
        if isinstance(chunk, Lines):
            for row in sorted(bad):
                self._reject(Reject(bad[row], chunk.row(row), chunk.origin.at(row)))
        else:
            self._reject_rows(chunk if isinstance(chunk, Batch) else to_batch(chunk), bad)

    def _reject_rows(self, rows: Batch, bad: Mapping[int, str]) -> None:
        sink, origin = self._sink, origin_of(rows)
        for i in sorted(bad):
            row = {k: v for k, v in row_values(rows.batch, i).items() if k != TO_TOPIC}
            raw = row.get(sink.value) if sink.format == "raw" and isinstance(sink.value, str) else None
            self._reject(Reject(bad[i], raw if isinstance(raw, bytes) else as_json(row), origin.at(i)))

    def _without(self, rows: Batch, messages: Messages, bad: Mapping[int, str]) -> Messages:
        self._reject_rows(rows, bad)
        return messages.take(np.setdiff1d(messages.rows, list(bad)))


# --- values -----------------------------------------------------------------------------------------------------------


def _encoder(sink: KafkaSink) -> _Encode:
    if sink.format == "raw":
        return lambda batch, topics: (_as_bytes(_column(batch, str(sink.value))), {})
    if isinstance(sink.format, RegistryFormat):
        return _registered(sink, sink.format, sink.value, is_key=False)
    columns = None if sink.value is None else [sink.value] if isinstance(sink.value, str) else list(sink.value)
    if sink.format == "avro":
        return _avro(columns, **sink.format_options)
    if sink.format == "protobuf":
        return _protobuf(columns, sink.format_options)
    return _rows((JsonEncoder if sink.format == "json" else CsvEncoder)(columns, (TO_TOPIC,)))


def _rows(encoder: JsonEncoder | CsvEncoder) -> _Encode:
    """Return what makes JSON and CSV as files have them, without the line ends."""

    def encode(batch: pa.RecordBatch, topics: _Topics) -> _Encoded:
        encoded = encoder.encode(Batch(batch))
        good = of_lines(encoded.data, encoded.ends)
        if not encoded.bad:
            return good, {}
        piece = np.zeros(batch.num_rows, np.int64)
        piece[np.setdiff1d(np.arange(batch.num_rows), list(encoded.bad))] = good.piece
        bounds = good.bounds if len(good) else np.zeros(2, np.int64)
        return ByteStrings(good.data, bounds, piece, bounds[piece + 1] - bounds[piece]), encoded.bad

    return encode


def _registered(
    sink: KafkaSink, format: RegistryFormat, columns: str | Sequence[str] | None, *, is_key: bool
) -> _Encode:
    """Return what makes values with the number of their schema. A column that is named alone is the value itself; null is no value then."""
    is_single = isinstance(columns, str)
    answers = sink.answers.get(format.registry)
    encoder = RegistryEncoder(format, is_key=is_key, is_single=is_single, answers=answers)
    names = [columns] if isinstance(columns, str) else None if columns is None else list(columns)

    def encode(batch: pa.RecordBatch, topics: _Topics) -> _Encoded:
        rows = select(batch, names, frozenset((TO_TOPIC,)))
        made, bad = encoder.encode(rows, topics)
        there = valid_in(rows.column(0)) if is_single else None
        if there is not None:
            made = pc.if_else(column_of(there, pa.bool_()), made, pa.nulls(len(made), made.type))
            bad = {row: why for row, why in bad.items() if there[row]}
        return of_column(made), bad

    return encode


def _good_topics(topics: _Topics, bad: Mapping[int, str]) -> _Topics:
    """Return topics with another one in place of those that are none: nothing is asked or registered for such."""
    if isinstance(topics, str) or not bad:
        return topics
    other = next((name for row, name in enumerate(topics) if row not in bad), None)
    return [] if other is None else [other if row in bad else name for row, name in enumerate(topics)]


def _protobuf(columns: Sequence[str] | None, options: Mapping[str, Any]) -> _Encode:
    """Return what makes one message a value."""
    from poundlock.connectors.kafka.schemas.kinds.protobuf import ProtobufWriter
    from poundlock.formats.protobuf.messages import ProtobufCodec

    writer = ProtobufWriter(ProtobufCodec(**options).descriptor, framed=False)

    def encode(batch: pa.RecordBatch, topics: _Topics) -> _Encoded:
        made = writer.encode(select(batch, columns, frozenset((TO_TOPIC,))), b"")
        return of_column(made.column()), made.bad

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

    def encode(batch: pa.RecordBatch, topics: _Topics) -> _Encoded:
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
        return of_list(out), bad

    return encode


# --- parts of messages -------------------------------------------------------------------------------------------------


def _as_bytes(column: pa.Array) -> ByteStrings:
    """Return a column's values as bytes: binary as it is, text as UTF-8, numbers, booleans and dates as their text.

    Raises:
        DefinitionError: the type has no text.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.large_binary())
    elif not any(is_kind(kind) for is_kind in _TEXTS):
        if pa.types.is_nested(kind) or (pa.types.is_temporal(kind) and not pa.types.is_date(kind)):
            raise DefinitionError(
                f"a column of type {kind} cannot be a Kafka key or raw value",
                next='cast it to text before the sink, or write the value with format="json"',
            )
        column = column.cast(pa.large_string())
    return of_column(column)


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def _as_partitions(column: pa.Array, bad: dict[int, str]) -> Integers:
    """Return a column of whole numbers, -1 for null, and note negative ones. Raises DefinitionError for another type."""
    if not pa.types.is_integer(column.type):
        raise DefinitionError(f"a partition column of type {column.type}", next="cast it to int before the sink")
    numbers = _or(column.cast(pa.int64(), safe=False), 0)
    for row in np.flatnonzero(numbers < 0).tolist():
        bad[row] = f"partition {numbers[row]} is negative"
    return _or(column.cast(pa.int64(), safe=False), -1)


def _as_times(column: pa.Array) -> Integers:
    """Return a column of timestamps, or of milliseconds, as ms since the epoch, NO_TIME for null. Raises DefinitionError for another type."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    elif not pa.types.is_integer(column.type):
        raise DefinitionError(
            f"a timestamp column of type {column.type}", next="cast it to timestamp, or to bigint milliseconds"
        )
    return _or(column.cast(pa.int64()), NO_TIME)


def _or(column: pa.Array, null: int) -> Integers:
    """Return numbers, with one for null."""
    numbers, valid = numbers_in(column), valid_in(column)
    return numbers if valid is None else np.where(valid, numbers, null)


def _as_headers(batch: pa.RecordBatch, headers: str | Mapping[str, str], bad: dict[int, str]) -> ByteStrings:
    """Return the headers of each row: of one column of arrays or maps, or of several columns by header name; note rows with one that has no name."""
    if not isinstance(headers, str):
        return encode_named_headers(
            {name: _as_bytes(_column(batch, column, " for headers")) for name, column in headers.items()}
        )
    column = _column(batch, headers, " for headers")
    kind = column.type
    rows: list[list[tuple[str, bytes | None]]]
    if pa.types.is_map(kind):
        rows = [[(str(k), _bytes(v)) for k, v in row or ()] for row in column.to_pylist()]
        return of_list([encode_headers(row) for row in rows])
    inner = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    if inner is None or not pa.types.is_struct(inner) or {f.name for f in inner} != {"key", "value"}:
        raise DefinitionError(
            f"a headers column of type {kind}",
            next="make it an array of struct<key, value> or a map, or name columns: headers={'trace': 'trace_id'}",
        )
    lists = column.to_pylist()
    for number, row in enumerate(lists):
        if any(h is not None and h["key"] is None for h in row or ()):
            bad[number] = "a header has no name"
    rows = [[(str(h["key"]), _bytes(h["value"])) for h in row or () if h is not None] for row in lists]
    return of_list([encode_headers(row) for row in rows])


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
