"""Records of format 2 made of columns: the numbers of all records at once with numpy, the bytes between them by Arrow.

What is made here is what `record_fields` reads. A batch's sequence is given when it is made and never changes, so that a broker
knows one that is sent again.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from poundlock.connectors.kafka.client_loader import google_crc32c
from poundlock.connectors.kafka.wire.byte_strings import ByteStrings, interleaved, of_bytes
from poundlock.connectors.kafka.wire.compression import CODECS, compress

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
MOST_OVERHEAD = 36
"""Bytes that the numbers of one record take at most."""
_BEFORE_CRC, _AFTER_CRC = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
_NOT_COUNTED = 12  # bytes of a batch that its length does not count: the first offset, and the length
_TRANSACTIONAL = 0x10
_NULL = 1  # the varint of -1
_NO_HEADERS = of_bytes(b"\0", 1)


@dataclass(frozen=True, slots=True)
class BatchKind:
    """What all batches of a producer have in common."""

    producer_id: int = -1
    producer_epoch: int = -1
    transactional: bool = False
    compression: str = "none"
    level: int | None = None


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Some records of one partition, one behind the other: which rows, and their bytes."""

    rows: slice
    records: npt.NDArray[np.uint8]
    first_ms: int
    last_ms: int  # the greatest

    @property
    def count(self) -> int:
        """How many records there are."""
        return int(self.rows.stop - self.rows.start)


def encode_runs(
    values: ByteStrings,
    keys: ByteStrings | None,
    headers: ByteStrings | None,
    times_ms: Integers | int,
    starts: Sequence[int],
) -> list[RecordRun]:
    """Return the records of batches, each of the rows from one start to before the next.

    Args:
        values: of the messages, null for a tombstone.
        keys: null where a message has none.
        headers: the number of headers and the headers of each message, as `encode_headers` gives them; None: no message has any.
        times_ms: the time of each, or of all.
        starts: the first row of each batch; ascending, the first is 0.
    """
    n = len(values)
    after = [*starts[1:], n]
    sizes = np.diff([*starts, n])
    if isinstance(times_ms, int):
        first_ms = last_ms = np.full(len(starts), times_ms)
        since = _ZERO
    else:
        first_ms, last_ms = np.minimum.reduceat(times_ms, starts), np.maximum.reduceat(times_ms, starts)
        since = _Varint.of(times_ms - np.repeat(first_ms, sizes))
    number = _Varint.of(np.arange(n) - np.repeat(starts, sizes))
    # Without headers each record ends with the number of them, 0: it stands in front of the next record's numbers.
    behind = 1 if headers is None else 0
    data, at = interleaved(_columns(values, keys, headers, since, number), _NO_HEADERS)
    return [
        RecordRun(slice(i, j), data[at[i] + behind : at[j] + behind], int(low), int(high))
        for i, j, low, high in zip(starts, after, first_ms, last_ms, strict=True)
    ]


def _columns(
    values: ByteStrings, keys: ByteStrings | None, headers: ByteStrings | None, since: _Varint, number: _Varint
) -> list[ByteStrings]:
    """Return what records consist of, in order: their numbers, their bytes."""
    end = [] if headers is None else [headers]
    tail = np.ones(len(values), np.int64) if headers is None else headers.length
    sizes = [since, number]
    value_length, value_size = _lengths(values)
    if keys is None:
        sizes += [value_size]
        body = 2 + sum(size.width for size in sizes) + value_length + tail
        front = [_Varint.of(body), _ZERO, *sizes[:2], _MINUS_ONE, value_size]
        return [_packed(front if end else [_ZERO, *front], len(values)), values, *end]
    key_length, key_size = _lengths(keys)
    sizes += [key_size, value_size]
    body = 1 + sum(size.width for size in sizes) + key_length + value_length + tail
    front = [_Varint.of(body), _ZERO, *sizes[:3]]
    return [
        _packed(front if end else [_ZERO, *front], len(values)),
        keys,
        _packed([value_size], len(values)),
        values,
        *end,
    ]


def _lengths(strings: ByteStrings) -> tuple[Integers, _Varint]:
    length = strings.length
    return length, _Varint.of(length if strings.null is None else np.where(strings.null, -1, length))


@dataclass(frozen=True, slots=True)
class _Varint:
    """A zigzag varint of each record, or one of all of them: the bits, how many bytes each takes, and the least and most of these."""

    bits: npt.NDArray[np.uint64]
    width: Integers | int
    least: int
    most: int

    @classmethod
    def of(cls, numbers: Integers) -> _Varint:
        bits = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        least, most = _width(int(bits.min())), _width(int(bits.max()))
        if least == most:
            return cls(bits, least, least, most)
        width = np.full(len(bits), least, np.int64)
        for k in range(least, most):
            width += bits >= np.uint64(1 << 7 * k)
        return cls(bits, width, least, most)


_ZERO = _Varint(np.zeros(1, np.uint64), 1, 1, 1)
_MINUS_ONE = _Varint(np.full(1, _NULL, np.uint64), 1, 1, 1)


def _width(bits: int) -> int:
    return max(1, -(-bits.bit_length() // 7))


def _packed(fields: Sequence[_Varint], n: int) -> ByteStrings:
    """Return the bytes of varints that follow one another, a row each."""
    out = np.empty((n, sum(field.most for field in fields)), np.uint8)
    used = None if all(field.least == field.most for field in fields) else np.ones(out.shape, np.bool_)
    at = 0
    for field in fields:
        width = np.asarray(field.width)
        for k in range(field.most):
            byte: Bytes = (field.bits >> np.uint64(7 * k)).astype(np.uint8)
            if k + 1 < field.least:
                byte |= np.uint8(128)
            elif k + 1 < field.most:
                byte = (byte & np.uint8(127)) | (np.greater(width, k + 1).astype(np.uint8) << np.uint8(7))
            if k >= field.least and used is not None:
                used[:, at] = width > k
            out[:, at] = byte
            at += 1
    if used is None:
        return ByteStrings(out.reshape(-1), np.arange(0, n * at + 1, at), np.arange(n), np.full(n, at))
    bounds, widths = np.zeros(n + 1, np.int64), used.sum(axis=1)
    np.cumsum(widths, out=bounds[1:])
    return ByteStrings(out[used], bounds, np.arange(n), widths)


def encode_batch(run: RecordRun, kind: BatchKind, sequence: int) -> tuple[bytes, bytes | memoryview]:
    """Return a record batch in two pieces, its header and its records; `sequence` is the number of its first record for this producer in its partition."""
    plain = kind.compression == "none"
    records: Any = run.records if plain else compress(kind.compression, run.records.data, kind.level)
    attributes = CODECS.get(kind.compression, 0) | (_TRANSACTIONAL if kind.transactional else 0)
    behind = _AFTER_CRC.pack(
        attributes, run.count - 1, run.first_ms, run.last_ms, kind.producer_id, kind.producer_epoch, sequence, run.count
    )
    crc = google_crc32c()
    size = _BEFORE_CRC.size + len(behind) + len(records) - _NOT_COUNTED
    front = _BEFORE_CRC.pack(0, size, -1, 2, crc.extend(crc.value(behind), records))
    return front + behind, records if isinstance(records, bytes) else records.data


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Return the number of headers and the headers, as a record ends with them."""
    out = [varint(len(headers))]
    for name, value in headers:
        coded = name.encode()
        out += [varint(len(coded)), coded, varint(-1) if value is None else varint(len(value)), value or b""]
    return b"".join(out)


def encode_named_headers(named: Mapping[str, ByteStrings]) -> ByteStrings:
    """Return headers of these names, one of each a message, as `encode_headers` gives them."""
    columns: list[ByteStrings] = []
    for name, values in named.items():
        coded, n = name.encode(), len(values)
        front = (b"" if columns else varint(len(named))) + varint(len(coded)) + coded
        _, size = _lengths(values)
        columns += [of_bytes(front, n), _packed([size], n), values]
    data, bounds = interleaved(columns, _NO_HEADERS)
    return ByteStrings(data, bounds, np.arange(len(bounds) - 1), np.diff(bounds))


def varint(number: int) -> bytes:
    """Return a number of up to 64 bits as a zigzag varint."""
    bits, out = (number << 1) ^ (number >> 63), bytearray()
    while bits > 127:
        out.append(bits & 127 | 128)
        bits >>= 7
    out.append(bits)
    return bytes(out)
