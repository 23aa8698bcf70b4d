"""Kafka's zigzag varints, one or many at once: with numpy, out of words of eight bytes that begin where the numbers do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from poundlock.formats.words import SIZE, Words, byte_of_bit, words_in

SPARE = SIZE
"""Bytes that must follow the last record in a buffer: fields are read eight bytes at a time."""

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

_ONE, _EIGHT, _SEVEN_BITS = np.uint64(1), np.uint64(8), np.uint64(127)
_64_BITS = (1 << 64) - 1
_CONTINUES = np.uint64(0x8080808080808080)
_FIRST_CONTINUES = np.uint64(0x80)


class MalformedRecords(ValueError):
    """The bytes of a batch are not the records that its header promises."""


class UnusualNumber(Exception):
    """A varint has more bytes than are read at once; such records are read in another way."""


class Short(NamedTuple):
    """Numbers of at most three bytes at the low ends of words.

    Args:
        value: the numbers.
        size: how many bytes each has; one number where all have the same.
        rest: the words without those bytes, with zeros at their upper ends.
    """

    value: Integers
    size: Integers | int
    rest: Words


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


def read_varints(data: Bytes, at: Integers) -> Integers:
    """Return the zigzag varints at some positions, of up to 64 bits. At least SPARE bytes follow the last."""
    try:
        return varints(words_in(data), at)[0]
    except UnusualNumber:
        raw = bytes(data)
        return np.array([read_varint(raw, position)[0] for position in at.tolist()], np.int64)


def short_varints(words: Words) -> Short:
    """Return the zigzag varints at the low ends of words.

    Raises:
        UnusualNumber: one has more than three bytes.
    """
    low = words & _SEVEN_BITS
    more = words & _FIRST_CONTINUES
    if not more.any():
        return Short(_zigzag(low), 1, words >> _EIGHT)
    low |= (words >> _ONE) & (more * _SEVEN_BITS)
    bits = more >> np.uint64(4)  # eight for each byte behind the first
    more &= words >> _EIGHT
    if more.any():
        low |= (words >> np.uint64(2)) & (more * np.uint64(127 << 7))
        bits += more >> np.uint64(4)
        if (more & (words >> np.uint64(16))).any():
            raise UnusualNumber
    bits += _EIGHT
    return Short(_zigzag(low), (bits >> np.uint64(3)).view(np.int64), words >> bits)


def varints(words: Words, at: Integers) -> tuple[Integers, Integers]:
    """Return the zigzag varints at some positions, and the positions behind them. Raises UnusualNumber past eight bytes."""
    word = words[at]
    if not (word & _FIRST_CONTINUES).any():
        return _values(word, 1), at + 1
    length = _lengths_in_word(word)
    shift = np.uint64(64) - (length << 3).view(np.uint64)
    return _values((word << shift) >> shift, int(length.max(initial=1))), at + length


def behind_varints(words: Words, at: Integers) -> Integers:
    """Return the positions behind the varints at some positions. Raises UnusualNumber past eight bytes."""
    word = words[at]
    return at + (_lengths_in_word(word) if (word & _FIRST_CONTINUES).any() else 1)


def lengths_and_values(words: Words, most: int) -> tuple[Integers, Integers]:
    """Return how many bytes the varint at the low end of each word has, and what it is; with more than so many bytes it may be anything."""
    try:
        short = short_varints(words)
    except UnusualNumber:
        size = np.minimum(_lengths(words), most + 1)
        shift = np.uint64(64) - (size << 3).view(np.uint64)
        return size, _values((words << shift) >> shift, int(size.max(initial=1)))
    return np.full(len(words), short.size) if isinstance(short.size, int) else short.size, short.value


def _zigzag(value: Words) -> Integers:
    return (value >> _ONE).view(np.int64) ^ -(value & _ONE).view(np.int64)


def _values(word: Words, longest: int) -> Integers:
    """Return the zigzag varints of so many bytes at most that words are, with nothing above them."""
    value = word & _SEVEN_BITS
    for k in range(1, longest):
        value |= ((word >> np.uint64(8 * k)) & _SEVEN_BITS) << np.uint64(7 * k)
    return _zigzag(value)


def _lengths_in_word(word: Words) -> Integers:
    """Return how many bytes the varint at the low end of each word has. Raises UnusualNumber where one does not end within it."""
    length = _lengths(word)
    if int(length.max(initial=1)) == 8 and ((word & _CONTINUES) == _CONTINUES).any():
        raise UnusualNumber
    return length


def _lengths(word: Words) -> Integers:
    """Return how many bytes the varint at the low end of each word has; 8 where it does not end within the word."""
    stops = ~word & _CONTINUES
    return byte_of_bit(stops & (~stops + _ONE))
