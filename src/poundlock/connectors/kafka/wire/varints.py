"""Zigzag varints in a buffer, many at once, with numpy: eight bytes from each position on are one number, and what is not of the varint is
masked away.

A varint of more than eight bytes, which only large numbers have, is read one byte at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SPARE = 8
"""Bytes that must follow the last record in a buffer: fields are read eight bytes at a time."""

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
_ONE, _SEVEN_BITS = np.uint64(1), np.uint64(127)
_64_BITS = (1 << 64) - 1
_CONTINUES = np.uint64(0x8080808080808080)
_FIRST_CONTINUES = np.uint64(0x80)


class MalformedRecords(ValueError):
    """The bytes of a batch are not the records that its header promises."""


class LongVarint(Exception):
    """A varint has more than eight bytes, and is to be read one byte at a time."""


def read_varints(data: Bytes, at: Integers) -> Integers:
    """Return the zigzag varints at some positions, of up to 64 bits. At least SPARE bytes follow the last."""
    try:
        return varints_at(words_of(data), at)[0]
    except LongVarint:
        raw = bytes(data)
        return np.array([read_varint(raw, position)[0] for position in at.tolist()], np.int64)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return a zigzag varint and the position behind it. Raises IndexError at the end of the bytes, MalformedRecords past 64 bits."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            number &= _64_BITS
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > 63:
            raise MalformedRecords("a number of a record has more than 64 bits")


def words_of(data: Bytes) -> Words:
    """Return the eight bytes from each position on as one number, without a copy."""
    return np.ndarray((len(data) - SPARE + 1,), np.dtype("<u8"), buffer=data, strides=(1,))


def are_of_widths(word: Words, widths: Sequence[int], *, attributes: bool = False) -> npt.NDArray[np.bool_]:
    """Return in which words numbers of these widths follow one another: all bytes but the last of each have their top bit set.

    Args:
        attributes: whether the second is a record's attributes, which are any byte.
    """
    tops = [byte < width - 1 for width in widths for byte in range(width)]
    mask = int.from_bytes(bytes([0x80] * len(tops)), "little")
    if attributes:
        mask &= ~(0x80 << 8 * widths[0])
    pattern = int.from_bytes(bytes(0x80 * top for top in tops), "little")
    same: npt.NDArray[np.bool_] = (word & np.uint64(mask)) == np.uint64(pattern)
    return same


def varint_in(word: Words, at: int, width: int) -> Integers:
    """Return the zigzag varints of so many bytes that begin at a byte of each word."""
    value = (word >> np.uint64(8 * at)) & _SEVEN_BITS
    for k in range(1, width):
        value |= (word >> np.uint64(8 * (at + k) - 7 * k)) & np.uint64(127 << 7 * k)
    return (value >> _ONE).view(np.int64) ^ -(value & _ONE).view(np.int64)


def varints_at(words: Words, at: Integers) -> tuple[Integers, Integers]:
    """Return the zigzag varints at some positions, and the positions behind them. Raises LongVarint past eight bytes."""
    word = words[at]
    if not (word & _FIRST_CONTINUES).any():
        return values_of(word, 1), at + 1
    length = _lengths_in_word(word)
    shift = np.uint64(64) - (length << 3).view(np.uint64)
    return values_of((word << shift) >> shift, int(length.max(initial=1))), at + length


def behind_varints(words: Words, at: Integers) -> Integers:
    """Return the positions behind the varints at some positions. Raises LongVarint past eight bytes."""
    word = words[at]
    return at + (_lengths_in_word(word) if (word & _FIRST_CONTINUES).any() else 1)


def values_of(word: Words, longest: int) -> Integers:
    """Return the zigzag varints of so many bytes at most that words are, with nothing above them."""
    value = word & _SEVEN_BITS
    for k in range(1, longest):
        value |= ((word >> np.uint64(8 * k)) & _SEVEN_BITS) << np.uint64(7 * k)
    return (value >> _ONE).view(np.int64) ^ -(value & _ONE).view(np.int64)


def _lengths_in_word(word: Words) -> Integers:
    """Return how many bytes the varint at the low end of each word has. Raises LongVarint where one does not end within it."""
    length = lengths_of(word)
    if int(length.max(initial=1)) == 8 and ((word & _CONTINUES) == _CONTINUES).any():
        raise LongVarint
    return length


def lengths_of(word: Words) -> Integers:
    """Return how many bytes the varint at the low end of each word has; 8 where it does not end within the word."""
    stops = ~word & _CONTINUES
    return _low_bytes(stops & (~stops + _ONE))


if hasattr(np, "bitwise_count"):

    def _low_bytes(lowest: Words) -> Integers:
        """Return the number of bytes up to the one bit of each word, its top bit in each byte; 8 for no bit."""
        lengths: Integers = ((np.bitwise_count(lowest - _ONE) + np.uint8(1)) >> np.uint8(3)).astype(np.int64)
        return lengths

else:  # numpy 1

    def _low_bytes(lowest: Words) -> Integers:
        exponent = np.frexp(lowest.astype(np.float64))[1].astype(np.int64)  # exact: a power of two, or zero
        lengths: Integers = np.where(exponent == 0, 8, exponent >> 3)
        return lengths
