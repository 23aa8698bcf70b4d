"""Numbers as JSON writes them, of up to sixteen characters, read eight digits at a time; a column has them all or is left to others.

Floating point numbers come out as the nearest there is: up to fifteen digits are a whole number that a float holds exactly, as is the
power of ten that it is divided by, and a division of two exact numbers is rounded once (Clinger, How to read floating point
numbers accurately, 1990).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of
from poundlock.formats.words import SIZE, Words, byte_of_bit, words_at, words_in

_LONGEST = 16  # characters, without the sign
_EXACT_DIGITS = 15  # of a whole number that a float holds
_POWERS: npt.NDArray[np.float64] = np.power(10.0, np.arange(_LONGEST), dtype=np.float64)


def _all_bytes(byte: int) -> np.uint64:
    return np.uint64(int.from_bytes(bytes([byte]) * 8, "little"))


_LOW_BYTE = np.uint64(0xFF)
_MINUS, _DOT, _ZERO = (np.uint64(ord(character)) for character in "-.0")
_DOTS, _ZEROS, _ONES, _TOPS = map(_all_bytes, b".0\x01\x80")
_ABOVE_NINE, _DIGIT = map(_all_bytes, b"\x46\x0f")  # 0x46 + "9" is the last below 0x80
_ONE, _SEVEN, _EIGHT, _WORD = (np.uint64(n) for n in (1, 7, 8, 64))
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
# Ten times a digit and the next, a hundred times a pair and the next, ten thousand times four and the next four.
_TENS, _HUNDREDS, _MYRIADS = (np.uint64(base << bits | 1) for base, bits in ((10, 8), (100, 16), (10000, 32)))


class _Parsed(NamedTuple):
    """Numbers.

    Args:
        value: their digits.
        scale: the power of ten that each is divided by; one for all where they are alike, None where no number has a point.
        digits: the most that one has.
    """

    value: Numbers
    scale: npt.NDArray[np.float64] | np.float64 | None
    digits: int


def number_column(data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers, kind: pa.DataType) -> pa.Array | None:
    """Return the numbers from each start to each end, ascending, as a column of a type; None where one of them is not plain.

    Plain is what JSON allows without an exponent, of so few digits and so small that the type holds it exactly; a whole number for whole
    types, and no -0, which is another number than 0 in some readers.
    """
    whole = pa.types.is_signed_integer(kind)
    if not whole and kind != pa.float64():
        return None
    length = ends - starts
    first = words_at(data, starts)
    negative = (first & _LOW_BYTE) == _MINUS
    signed = bool(negative.any())
    if signed:
        starts, length = starts + negative, length - negative
        first = words_at(data, starts)
    longest = int(length.max())
    if int(length.min()) < 1 or longest > _LONGEST or not _begin_well(first, length, negative):
        return None
    parsed = _alike(data, first, longest, starts) if longest == int(length.min()) else None
    if parsed is None:
        parsed = _one_word(first, length) if longest <= SIZE else _two_words(data, first, length, ends)
    if parsed is None:
        return None
    if whole:
        return None if parsed.scale is not None else _whole_column(parsed.value, negative if signed else None, kind)
    if parsed.digits > _EXACT_DIGITS:
        return None
    result = parsed.value.astype(np.float64)
    if parsed.scale is not None:
        result /= parsed.scale
    if signed:
        np.negative(result, out=result, where=negative)
    return column_of(result, kind)


def _whole_column(value: Numbers, negative: Flags | None, kind: pa.DataType) -> pa.Array | None:
    if negative is not None:
        value = np.where(negative, -value, value)
    if kind == pa.int64():
        return column_of(value, kind)
    top = 1 << (kind.bit_width - 1)
    if int(value.min()) < -top or int(value.max()) >= top:
        return None
    return column_of(value.astype(kind.to_pandas_dtype()), kind)


def _begin_well(first: Words, length: Numbers, negative: Flags) -> bool:
    """Return whether no number begins with a point, or with a zero that more digits follow, or is -0."""
    begin = first & _LOW_BYTE
    if (begin == _DOT).any():
        return False
    zero = begin == _ZERO
    if not zero.any():
        return True
    rest = np.flatnonzero(zero & (((first >> _EIGHT) & _LOW_BYTE) != _DOT))
    return not ((length[rest] > 1) | negative[rest]).any()


def _alike(data: npt.NDArray[np.uint8], first: Words, length: int, starts: Numbers) -> _Parsed | None:
    """Return numbers of one length, all with the point at one place, or all without; None where they are not."""
    text = data[int(starts[0]) : int(starts[0]) + length].tobytes()
    point = text.find(b".")
    if point == length - 1:
        return None
    behind = length - 1 - point if point >= 0 else 0
    if length > SIZE:
        low, high = words_in(data)[starts + (length - SIZE)], _at_the_top(first, length - SIZE)
    else:
        low, high = _at_the_top(first, length), None
    if behind:
        where = low if behind < SIZE else high
        place = np.uint64(8 * (SIZE - 1 - behind % SIZE))
        if where is None or (((where >> place) & _LOW_BYTE) != _DOT).any():
            return None
        below = (_ONE << place) - _ONE
        kept = ~((below << _EIGHT) | _LOW_BYTE)
        moved = ((where & below) << _EIGHT) | (where & kept)
        if behind >= SIZE:
            high = moved | _ZERO
        elif high is None:
            low = moved | _ZERO
        else:
            low, high = moved | (high >> np.uint64(56)), (high << _EIGHT) | _ZERO
    value = _digits(low, high)
    scale = np.float64(10.0**behind) if behind else None
    return None if value is None else _Parsed(value, scale, length - (behind > 0))


def _at_the_top(word: Words, count: int) -> Words:
    """Return the first characters of words, so many, at the upper end of zeros."""
    bits = np.uint64(8 * count)
    return (word << (_WORD - bits)) | (_ZEROS >> bits)


def _one_word(first: Words, length: Numbers) -> _Parsed | None:
    """Return numbers of up to eight characters."""
    bits = (length << 3).view(np.uint64)
    word = (first << (_WORD - bits)) | (_ZEROS >> bits)  # the last character comes to the top
    if _end_in_points(word):
        return None
    dot = _dots(word)
    pointed = _flags(dot)
    scale = None
    if pointed.any():
        word = _without(word, dot, pointed) | (pointed * _ZERO)
        scale, length = _POWERS[8 - byte_of_bit(dot)], length - pointed.view(np.int64)
    value = _digits(word, None)
    return None if value is None else _Parsed(value, scale, int(length.max()))


def _two_words(data: npt.NDArray[np.uint8], first: Words, length: Numbers, ends: Numbers) -> _Parsed | None:
    """Return numbers of up to sixteen characters."""
    bits = (length << 3).view(np.uint64)
    low, high = words_in(data)[np.maximum(ends - SIZE, 0)], first << (_WORD + _WORD - bits)
    high |= _ZEROS >> (bits - _WORD)
    if int(length.min()) < SIZE:
        short = length < SIZE
        low, high = (
            np.where(short, (first << (_WORD - bits)) | (_ZEROS >> bits), low),
            np.where(short, _ZEROS, high),
        )
    if _end_in_points(low):
        return None
    dot, high_dot = _dots(low), _dots(high)
    pointed = _flags(dot)
    high_pointed = _flags(high_dot) & (pointed ^ _ONE)
    scale = None
    if pointed.any():
        low = _without(low, dot, pointed) | ((high >> np.uint64(56)) * pointed)
        high = (high << (pointed * _EIGHT)) | (pointed * _ZERO)
        scale, length = 8 - byte_of_bit(dot), length - pointed.view(np.int64)
    if high_pointed.any():
        high = _without(high, high_dot * high_pointed, high_pointed) | (high_pointed * _ZERO)
        scale = np.where(high_pointed != 0, 16 - byte_of_bit(high_dot), 0 if scale is None else scale)
        length = length - high_pointed.view(np.int64)
    value = _digits(low, high)
    return None if value is None else _Parsed(value, None if scale is None else _POWERS[scale], int(length.max()))


def _end_in_points(word: Words) -> bool:
    return bool(((word >> np.uint64(56)) == _DOT).any())


def _dots(word: Words) -> Words:
    """Return the top bit of the lowest byte of each word that is a point; 0 where none is."""
    word = word ^ _DOTS
    dots = (word - _ONES) & ~word & _TOPS
    lowest: Words = dots & -dots
    return lowest


def _flags(bits: Words) -> Words:
    """Return 1 for each word that is not 0."""
    flags: Words = (bits != 0).view(np.uint8).astype(np.uint64)
    return flags


def _without(word: Words, dot: Words, pointed: Words) -> Words:
    """Return words without their points: what is below one comes up by a byte, and the lowest byte is 0 then."""
    below = (dot >> _SEVEN) - pointed
    kept = ~((below << _EIGHT) | (pointed * _LOW_BYTE))
    return ((word & below) << _EIGHT) | (word & kept)


def _digits(low: Words, high: Words | None) -> Numbers | None:
    """Return the numbers that words are, the first of eight digits at the lowest byte; None where something is no digit."""
    strange = _strange(low) if high is None else _strange(low) | _strange(high)
    if np.bitwise_or.reduce(strange) & _TOPS:
        return None
    value = _eight(low)
    if high is not None:
        value += _eight(high) * np.uint64(10**8)
    return value.view(np.int64)


def _strange(word: Words) -> Words:
    """Return words in which the top bit of each byte that is no digit is set."""
    return (word + _ABOVE_NINE) | (word - _ZEROS)


def _eight(word: Words) -> Words:
    word = word & _DIGIT
    word *= _TENS
    word >>= _EIGHT
    word &= _PAIRS
    word *= _HUNDREDS
    word >>= np.uint64(16)
    word &= _FOURS
    word *= _MYRIADS
    word >>= np.uint64(32)
    return word
