"""The checksum of a whole out of those of its pieces is the one of the whole."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.files.checksums import combined


@given(st.lists(st.binary(max_size=300), max_size=12))
def test_pieces_give_the_checksum_of_the_whole(pieces: list[bytes]) -> None:
    assert combined((len(piece), zlib.crc32(piece)) for piece in pieces) == zlib.crc32(b"".join(pieces))


def test_large_pieces() -> None:
    pieces = [b"a" * 3_000_001, b"\0" * 4_194_304, b"end"]
    assert combined((len(piece), zlib.crc32(piece)) for piece in pieces) == zlib.crc32(b"".join(pieces))
