"""Task's half of a Kafka source: the offset ranges of splits to chunks, values decoded where the source has a format.

The same split gives the same rows. A record that cannot be decoded goes to `reject` with its topic, partition and offset. What is
made of decoded record batches owns its memory: the buffer of the answer may be used again afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.kafka.errors import damaged
from poundlock.connectors.kafka.wire.fetch_client import FetchClient
from poundlock.connectors.kafka.wire.range_fetch import OffsetRange, fetch_range, parse_kafka_id
from poundlock.connectors.kafka.wire.record_batches import DamagedBatch, Records
from poundlock.connectors.kafka.wire.varints import MalformedRecords, read_varint
from poundlock.formats.arrays import copied
from poundlock.formats.chunk import Batch, Chunk, KafkaOrigin, Lines, Values, line_ends_in
from poundlock.formats.decode import Decoder, ValuesDecoder

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": HEADERS,
    "timestamp_type": pa.string(),
}
"""The fields of a record, and what kind of column each becomes."""
VALUE = "value"
_NEWLINE = 10
_LATEST_MS = (1 << 63) // 1000 - 1


def payload(wanted: OffsetRange, topic_id: str | None) -> dict[str, str | int]:
    """Return a range as a split carries it."""
    known: dict[str, str | int] = {} if topic_id is None else {"topic_id": topic_id}
    return {"topic": wanted.topic, "partition": wanted.partition, "from": wanted.first, "to": wanted.after, **known}


class KafkaReader:
    """Reads the splits of one task. `committed` leaves out what aborted transactions wrote.

    `columns` are by name the field of the record that each shows; without a decoder, of the column `value`, these are the rows.
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
        in_place = self._as_lines and context.want == "batch"
        self._in_place = decoder if in_place and isinstance(decoder, ValuesDecoder) else None
        self.bytes_read = 0
        """How many bytes the values of all records had that were read; a null value has none."""

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a split; raises as `fetch_range` does. Each chunk has its own memory and stays valid."""
        p = split.payload
        known = p.get("topic_id")
        wanted = OffsetRange(
            p["topic"], p["partition"], p["from"], p["to"], None if known is None else parse_kafka_id(known)
        )
        for records in fetch_range(self._client, wanted, committed=self._committed):
            self.bytes_read += records.value_bytes
            chunk = self._decoded_in_place(records, wanted)
            if chunk is None:
                try:
                    chunk = self._chunk(records, wanted)
                except DamagedBatch as error:
                    raise damaged(wanted.topic, wanted.partition, error.offset, error.why, next=error.next) from error
                if self._decoder is not None:
                    chunk = self._decoder.decode(chunk, self._context.reject, self._context.form)
            if len(chunk):
                yield chunk

    def _decoded_in_place(self, records: Records, wanted: OffsetRange) -> Chunk | None:
        """Return rows whose values were decoded where they lie in the answer; None where that cannot be."""
        if self._in_place is None:
            return None
        start, length = records.column("value_start"), records.column("value_length")
        if (length < 0).any():
            return None
        origin = _origin(records, wanted.topic, wanted.partition)
        return self._in_place.decode_values(Values(records.data, start, start + length, origin), self._context.reject)

    def _chunk(self, records: Records, wanted: OffsetRange) -> Chunk:
        if self._as_lines:
            lines = to_lines(records, wanted.topic, wanted.partition)
            if lines is not None:
                return lines
        return to_batch(records, wanted.topic, wanted.partition, self._columns)


# -- columns -----------------------------------------------------------------------------------------------------------


def to_lines(records: Records, topic: str, partition: int) -> Lines | None:
    """Return the values as lines; None where a value is null or has a line end in it."""
    start, length = records.column("value_start"), records.column("value_length")
    n = len(start)
    if (length < 0).any():
        return None
    # Each is copied with the byte behind it, which begins the record's headers, and that is the line's end then.
    joined = copied(records.data, start, start + length + 1, pa.binary())
    bounds = np.frombuffer(joined.buffers()[1], np.int32, n + 1)
    text = np.frombuffer(joined.buffers()[2], np.uint8)[: int(bounds[-1])]
    ends = bounds[1:].astype(np.int64)
    ends -= 1
    text[ends] = _NEWLINE
    if line_ends_in(text) != n:
        return None
    return Lines(text.data, ends, _origin(records, topic, partition))


def to_batch(records: Records, topic: str, partition: int, columns: Mapping[str, str]) -> Batch:
    """Return some columns of the records of a partition: by the name that each is to have, the field that it shows."""
    made = {field: _MAKERS[field](records, topic, partition) for field in set(columns.values())}
    fields = [pa.field(name, TYPES[field]) for name, field in columns.items()]
    arrays = [made[field] for field in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    return Batch(batch, _origin(records, topic, partition))


def _origin(records: Records, topic: str, partition: int) -> KafkaOrigin:
    # One number stands for all rows: a broadcast array takes no memory of its own.
    return KafkaOrigin(topic, np.broadcast_to(np.int32(partition), len(records)), records.offset)


def _binary(records: Records, field: str) -> pa.Array:
    start, length = records.column(f"{field}_start"), records.column(f"{field}_length")
    column = copied(records.data, start, start + np.maximum(length, 0), pa.binary())
    valid = length >= 0
    if valid.all():
        return column
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(start), [bits, *column.buffers()[1:]])


def _timestamps(records: Records, topic: str, partition: int) -> pa.Array:
    ms = records.timestamp_ms
    if len(ms) and (int(ms.max()) > _LATEST_MS or int(ms.min()) < -_LATEST_MS):
        row = int(np.argmax(np.abs(ms)))
        raise DamagedBatch(
            int(records.offset[row]),
            f"has the timestamp {int(ms[row])}, which is not in milliseconds",
            next="correct the producer; start behind that record with StartingOffsets.offsets({…})",
        )
    return _numbers(ms * 1000, TYPES["timestamp"])


def _timestamp_types(records: Records, topic: str, partition: int) -> pa.Array:
    kinds = _numbers(records.is_log_append_time.astype(np.int8), pa.int8())
    names = _parts([b"CreateTime", b"LogAppendTime"], pa.string())
    return pa.DictionaryArray.from_arrays(kinds, names).dictionary_decode()


def _same_text(value: str, rows: int) -> pa.Array:
    # pa.repeat, like pa.array of a list, would import pandas, which costs a task a second.
    coded = value.encode()
    bounds = np.arange(0, len(coded) * rows + 1, len(coded), dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(bounds), pa.py_buffer(coded * rows)])


def _headers(records: Records, topic: str, partition: int) -> pa.Array:
    """Return the headers of each record, in order; null where there are none, as Spark's connector has it."""
    data = records.data
    at, end = records.column("headers_start"), records.column("end")
    counts = np.zeros(len(at), np.int32)
    keys: list[bytes] = []
    values: list[bytes | None] = []
    for row in np.flatnonzero(data[at] != 0).tolist():
        try:
            headers = _headers_of(data[at[row] : end[row]].tobytes())
        except (IndexError, MalformedRecords) as error:
            raise DamagedBatch(int(records.offset[row]), "is damaged: the headers of a record are not whole") from error
        counts[row] = len(headers)
        keys += [key for key, _ in headers]
        values += [value for _, value in headers]
    bounds = np.zeros(len(at) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    content = pa.StructArray.from_arrays([_parts(keys, pa.string()), _parts(values, pa.binary())], ["key", "value"])
    valid = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(HEADERS, len(at), [valid, pa.py_buffer(bounds)], children=[content])


def _headers_of(data: bytes) -> list[tuple[bytes, bytes | None]]:
    """Return the headers of one record, whose bytes from their number to the record's end are given."""
    count, at = read_varint(data, 0)
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        length, at = read_varint(data, at)
        key = str(data[at : at + length], "utf-8", "replace").encode()  # as Java's clients do
        at += length
        size, at = read_varint(data, at)
        headers.append((key, None if size < 0 else data[at : at + size]))
        if length < 0 or size < -1:
            raise MalformedRecords("a header has a negative length")
        at += max(size, 0)
    if at != len(data) or count < 0:
        raise MalformedRecords("the headers do not end where the record ends")
    return headers


def _parts(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    """Return a column of text or bytes."""
    bounds = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=bounds[1:])
    valid = None
    if None in values:
        valid = pa.py_buffer(np.packbits(np.array([value is not None for value in values]), bitorder="little"))
    data = pa.py_buffer(b"".join(value or b"" for value in values))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(bounds), data])


def _numbers(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


_MAKERS: Mapping[str, Callable[[Records, str, int], pa.Array]] = {
    "key": lambda records, topic, partition: _binary(records, "key"),
    "value": lambda records, topic, partition: _binary(records, "value"),
    "topic": lambda records, topic, partition: _same_text(topic, len(records)),
    "partition": lambda records, topic, partition: _numbers(np.full(len(records), partition, np.int32), pa.int32()),
    "offset": lambda records, topic, partition: _numbers(records.offset, pa.int64()),
    "timestamp": _timestamps,
    "headers": _headers,
    "timestamp_type": _timestamp_types,
}
