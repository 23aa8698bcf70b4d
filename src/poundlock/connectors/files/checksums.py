"""CRC-32: of what a file holds, and of a whole out of those of its pieces, without reading them again.

A CRC is a remainder of polynomials over GF(2): behind a piece come as many zero bits as the next has, then the next is added.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import BinaryIO

_BLOCK = 1 << 20
_POLYNOMIAL = 0xEDB88320  # of CRC-32 as zlib has it, lowest power first in the highest bit
_ONE = 1 << 31


def read_crc32(content: BinaryIO, most: int) -> tuple[int, int]:
    """Read on in an open file, at most so many bytes; return how many there were, and their CRC-32."""
    left, crc = most, 0
    while left and (block := content.read(min(left, _BLOCK))):
        crc, left = zlib.crc32(block, crc), left - len(block)
    return most - left, crc


def _product(a: int, b: int) -> int:
    """Return a times b modulo the polynomial."""
    product, bit = 0, _ONE
    while a:
        if a & bit:
            product ^= b
            a ^= bit
        bit >>= 1
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


def _powers() -> list[int]:
    """Return x to the power of 1, 2, 4, … 2^63."""
    powers = [1 << 30]
    for _ in range(63):
        powers.append(_product(powers[-1], powers[-1]))
    return powers


_X = _powers()


def _shift(count: int) -> int:
    """Return x to the power of 8 times a number of bytes."""
    result, bits, power = _ONE, count * 8, 0
    while bits:
        if bits & 1:
            result = _product(_X[power], result)
        bits, power = bits >> 1, power + 1
    return result


def combined(pieces: Iterable[tuple[int, int]]) -> int:
    """Return the CRC-32 of pieces one behind another, of each of which bytes and CRC-32 are given."""
    crc = 0
    for count, of_piece in pieces:
        crc = _product(_shift(count), crc) ^ of_piece if crc else of_piece
    return crc
