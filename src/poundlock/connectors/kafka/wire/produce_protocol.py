"""The topics of a Produce request as pieces of bytes, so that record batches go from where they were made to the socket without a copy."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

Piece = bytes | memoryview
Topics = Mapping[str, Sequence[tuple[int, Sequence[Piece]]]]
"""By topic the partitions, each with the pieces of its record batch."""
_FLEXIBLE = 9  # the first version with compact fields


def with_topics(frame: bytes | bytearray, topics: Topics, version: int) -> list[Piece]:
    """Return a request as it is sent: an encoded one without any topic, of a version, with these."""
    compact = version >= _FLEXIBLE
    end = b"\0" if compact else b""  # there are no tagged fields
    empty = 2 if compact else 4
    pieces: list[Piece] = []
    small = bytearray(frame[4:-empty]) + _count(len(topics), compact)
    for name, partitions in topics.items():
        coded = name.encode()
        small += (_count(len(coded), True) if compact else struct.pack(">h", len(coded))) + coded
        small += _count(len(partitions), compact)
        for number, batch in partitions:
            small += struct.pack(">i", number) + _count(sum(map(len, batch)), compact)
            pieces += [bytes(small), *batch]
            small = bytearray(end)
        small += end
    pieces.append(bytes(small + end))
    return [struct.pack(">i", sum(map(len, pieces))), *pieces]


def _count(number: int, compact: bool) -> bytes:
    if not compact:
        return struct.pack(">i", number)
    out, number = bytearray(), number + 1
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
