"""Record batches of format 2, made field by field, so that tests can make what no producer makes: gaps, wrong lengths, old formats.

The numbers are written one at a time, by other code than the one that reads them.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import google_crc32c
import numpy as np
import pyarrow as pa

from poundlock.connectors.kafka.wire.varints import SPARE

HEAD = 61
TRANSACTIONAL, CONTROL, LOG_APPEND = 0x10, 0x20, 0x08
Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Made:
    """A record: its offset within the batch, its time within the batch, and what it holds."""

    offset: int
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = b""
    headers: Sequence[Header] = field(default=())


def varint(number: int) -> bytes:
    """Return a zigzag varint of up to 64 bits."""
    number = (number << 1) ^ (number >> 63)
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def sized(data: bytes | None) -> bytes:
    """Return bytes with their length in front."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(made: Made) -> bytes:
    """Return a record with its length in front."""
    body = b"\0" + varint(made.timestamp) + varint(made.offset) + sized(made.key) + sized(made.value)
    body += varint(len(made.headers)) + b"".join(sized(k.encode()) + sized(v) for k, v in made.headers)
    return varint(len(body)) + body


def batch(
    records: Sequence[Made],
    *,
    base: int = 0,
    last_delta: int | None = None,
    codec: int = 0,
    attributes: int = 0,
    producer: int = -1,
    time: int = 1_545_184_226_000,
    max_time: int = 1_545_184_229_000,
    count: int | None = None,
    body: bytes | None = None,
    magic: int = 2,
) -> bytes:
    """Return a batch; `body`, `count` and `last_delta` stand for what its records would give."""
    body = b"".join(record(made) for made in records) if body is None else body
    last = max((made.offset for made in records), default=0) if last_delta is None else last_delta
    number = len(records) if count is None else count
    rest = struct.pack(">hiqqqhii", attributes | codec % 8, last, time, max_time, producer, 0, -1, number)
    rest += packed(body, codec)
    return struct.pack(">qiibI", base, len(rest) + 9, 0, magic, google_crc32c.value(rest)) + rest


def marker(producer: int, *, abort: bool, base: int) -> bytes:
    """Return the batch that ends a transaction."""
    key = struct.pack(">hh", 0, 0 if abort else 1)
    return batch([Made(0, 0, key, b"\0" * 6)], base=base, attributes=TRANSACTIONAL | CONTROL, producer=producer)


def packed(body: bytes, codec: int) -> bytes:
    """Compress as a producer does; 10 is snappy as Java's clients write it."""
    if codec == 10:
        return xerial(body)
    if codec == 0:
        return body
    if codec == 1:
        return gzip.compress(body)
    name = {2: "snappy", 3: "lz4", 4: "zstd"}[codec]
    return bytes(pa.Codec(name).compress(body, asbytes=True))


def xerial(body: bytes) -> bytes:
    """Return snappy as Java's clients write it: a head, and blocks of at most 32 KB."""
    parts = [b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)]
    for start in range(0, len(body), 1 << 15):
        block = pa.Codec("snappy").compress(body[start : start + (1 << 15)], asbytes=True)
        parts.append(struct.pack(">i", len(block)) + block)
    return b"".join(parts)


def padded(data: bytes) -> np.ndarray:
    """Return an answer as the decoder takes it, with spare bytes that are no zeros behind it."""
    return np.frombuffer(bytearray(data + b"\xff" * SPARE), np.uint8)
