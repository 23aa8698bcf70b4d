"""The compressions of Kafka's record batches, undone: gzip, snappy, lz4 and zstd.

Damaged data is a ValueError; that all records came out is checked by whoever counts them.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa

from poundlock.errors import DefinitionError

NAMES: Mapping[int, str] = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16  # the magic, a version and the oldest version that can read it


def decompress(codec: int, data: memoryview) -> bytes:
    """Return the bytes that a batch's records are, compressed by the codec of a number that is not 0.

    Raises:
        ValueError: the bytes are damaged, or the compression is not known.
        DefinitionError: this pyarrow was built without the compression.
    """
    if codec not in _CODECS:
        raise ValueError(f"compression {codec} is not known")
    name = NAMES[codec]
    if not pa.Codec.is_available(name):
        raise DefinitionError(
            f"this pyarrow cannot read {name}, which records are compressed with",
            next="pip install --force-reinstall --only-binary :all: pyarrow",
        )
    try:
        return _CODECS[codec](data)
    except (zlib.error, EOFError, IndexError, OSError) as error:
        raise ValueError(f"its {name} data is damaged: {error}") from error


def _snappy(data: memoryview) -> bytes:
    """Java's clients cut the records into blocks behind a header of their own, librdkafka's do not."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(data)
    blocks, at = [], _XERIAL_HEADER
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise ValueError("its last snappy block ends early")
        blocks.append(_snappy_block(data[at + 4 : end]))
        at = end
    return b"".join(blocks)


def _snappy_block(data: memoryview) -> bytes:
    size = shift = at = 0
    while True:
        size |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return pa.Codec("snappy").decompress(data, size, asbytes=True)  # type: ignore[no-any-return]


def _stream(name: str, data: memoryview) -> bytes:
    return pa.CompressedInputStream(pa.py_buffer(data), name).read()  # type: ignore[no-any-return]


_CODECS: Mapping[int, Callable[[memoryview], bytes]] = {
    1: gzip.decompress, 2: _snappy, 3: partial(_stream, "lz4"), 4: partial(_stream, "zstd")
}  # fmt: skip
