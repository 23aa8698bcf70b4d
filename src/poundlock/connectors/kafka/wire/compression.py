"""The records of a batch compressed and read again, as all of Kafka's clients have it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping

import pyarrow as pa

from poundlock.errors import DefinitionError, pip_install

CODECS: Mapping[str, int] = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The number of each compression in a batch; 0 is none."""
_NAMES = {number: name for name, number in CODECS.items()}
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16  # the magic, a version and the oldest version that can read it
# A frame of blocks of 64 kB that stand for themselves, which is all that Java's clients read, with the checksum of just that.
_LZ4_FRAME, _LZ4_BLOCK, _LZ4_END, _LZ4_PLAIN = b"\x04\x22\x4d\x18\x60\x40\x82", 1 << 16, bytes(4), 1 << 31


def compress(name: str, data: memoryview, level: int | None = None) -> bytes:
    """Return bytes compressed.

    Raises:
        DefinitionError: this pyarrow was built without the compression.
    """
    _check_available(name)
    if name == "gzip":
        return gzip.compress(data, -1 if level is None else level, mtime=0)
    if name == "lz4":
        return _lz4_frame(data)
    codec = pa.Codec(name) if level is None or name == "snappy" else pa.Codec(name, level)
    return codec.compress(data, asbytes=True)  # type: ignore[no-any-return]


def _lz4_frame(data: memoryview) -> bytes:
    codec = pa.Codec("lz4_raw")
    out: list[bytes | memoryview] = [_LZ4_FRAME]
    for first in range(0, len(data), _LZ4_BLOCK):
        block = data[first : first + _LZ4_BLOCK]
        packed = codec.compress(block, asbytes=True)
        if len(packed) < len(block):
            out += [len(packed).to_bytes(4, "little"), packed]
        else:
            out += [(len(block) | _LZ4_PLAIN).to_bytes(4, "little"), block]
    return b"".join([*out, _LZ4_END])


def _check_available(name: str) -> None:
    if name != "gzip" and not pa.Codec.is_available(name):
        raise DefinitionError(
            f"this pyarrow cannot read or write {name}, which records are compressed with",
            next=pip_install("--force-reinstall", "--only-binary", ":all:", "pyarrow"),
        )


def decompress(codec: int, data: memoryview) -> bytes:
    """Return the bytes that a batch's records are, compressed by the codec of a number that is not 0.

    Raises:
        ValueError: the bytes are damaged, or the compression is not known.
        DefinitionError: this pyarrow was built without the compression.
    """
    if codec not in _NAMES:
        raise ValueError(f"compression {codec} is not known")
    name = _NAMES[codec]
    _check_available(name)
    try:
        if name == "gzip":
            return gzip.decompress(data)
        if name == "snappy":
            return _snappy(data)
        return pa.CompressedInputStream(pa.py_buffer(data), name).read()  # type: ignore[no-any-return]
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
