"""Where the fields of records are in the bytes of record batches: the varints of all records at once, with numpy.

Every way of finding the records is checked as a chain from the first byte of a batch to its last; what does not add up is a
MalformedRecords, never rows. What is unusual (varints of more than eight bytes) is read one record at a time instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SPARE = 8
"""Bytes that must follow the last record in a buffer: fields are read eight bytes at a time."""

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]
_ONE, _SEVEN_BITS = np.uint64(1), np.uint64(127)
_64_BITS = (1 << 64) - 1
_CONTINUES = np.uint64(0x8080808080808080)
_FIRST_CONTINUES = np.uint64(0x80)
_FEW = 32  # so many records are compared first
_SHORT_RUN = 16  # shorter ones are no runs
_LENGTH_BYTES = 5  # a record's length has at most so many
_SHORT = 2  # and so many where the record has less than 8 kB
_LONGEST_HEAD = 1 << 12  # of a record whose key is short enough to be looked at
_MANY = 256  # fewer records are sooner read one by one than looked at for a pattern


class MalformedRecords(ValueError):
    """The bytes of a batch are not the records that its header promises."""


class Span(NamedTuple):
    """The records of one batch, uncompressed: from which byte to which, and how many."""

    start: int
    end: int
    records: int


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The positions of the fields of some records; all arrays have one element a record. A length of -1 is null."""

    timestamp_start: Integers  # where what is added to the batch's first timestamp is; `read_varints` gives it, in ms
    offset_delta: Integers  # what is added to the batch's first offset
    key_start: Integers
    key_length: Integers
    value_start: Integers
    value_length: Integers
    headers_start: Integers  # where the number of headers is; one byte behind the value in any case
    end: Integers  # the byte behind the record


def read_fields(data: Bytes, spans: Sequence[Span]) -> RecordFields:
    """Return the fields of all records of some batches, whose spans ascend, in order. At least SPARE bytes follow the last span.

    Raises:
        MalformedRecords: the bytes are not the records that the spans promise.
    """
    words = _words(data)
    starts = _record_starts(data, words, spans)
    last = np.cumsum([span.records for span in spans])
    ends = np.array([span.end for span in spans], np.int64)
    limits = np.repeat(ends, [span.records for span in spans])
    try:
        fields = _vectorised(data, words, starts, limits)
    except _Unusual:
        fields = _one_by_one(bytes(data), spans)
    if (fields.end[last - 1] != ends).any():
        raise MalformedRecords("the last record of a batch does not end where the batch ends")
    return fields


def read_varints(data: Bytes, at: Integers) -> Integers:
    """Return the zigzag varints at some positions, of up to 64 bits. At least SPARE bytes follow the last."""
    try:
        return _varints(_words(data), at)[0]
    except _Unusual:
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


def _words(data: Bytes) -> _Words:
    """Return the eight bytes from each position on as one number, without a copy."""
    return np.ndarray((len(data) - SPARE + 1,), np.dtype("<u8"), buffer=data, strides=(1,))


class _Unusual(Exception):
    """A varint has more than eight bytes; such records are read one by one."""


@dataclass(slots=True)
class _Numbers:
    """The numbers of some records as they are read, unchecked; positions are those of RecordFields."""

    length: Integers
    behind_length: Integers
    offset_delta: Integers
    key_length: Integers
    key_start: Integers
    value_length: Integers
    value_start: Integers


def _vectorised(data: Bytes, words: _Words, starts: Integers, limits: Integers) -> RecordFields:
    """Return the fields of records that begin at `starts`, in batches that end at `limits`. Raises MalformedRecords; _Unusual where a number is too long."""
    numbers = _numbers_of(data, words, starts, limits)
    end = numbers.behind_length + numbers.length
    if (numbers.length < 6).any() or (end > limits).any() or (end[:-1] > starts[1:]).any():
        raise MalformedRecords("a record is longer than its batch")
    _within(_behind(numbers.key_start, numbers.key_length), end)
    _within(numbers.value_start, end)
    headers_start = _within(_behind(numbers.value_start, numbers.value_length), end)
    plain = data[headers_start] == 0
    if (headers_start[plain] + 1 != end[plain]).any():
        raise MalformedRecords("a record does not end behind its value")
    return RecordFields(
        numbers.behind_length + 1,  # behind the attributes, which no version of Kafka uses
        numbers.offset_delta,
        numbers.key_start,
        numbers.key_length,
        numbers.value_start,
        numbers.value_length,
        headers_start,
        end,
    )


def _numbers_of(data: Bytes, words: _Words, starts: Integers, limits: Integers) -> _Numbers:
    return _numbers_alike(data, words, starts, limits) or _numbers(words, starts, limits)


def _numbers(words: _Words, starts: Integers, limits: Integers) -> _Numbers:
    """Return the numbers of records, whatever lengths they have."""
    length, behind_length = _varints(words, starts)
    end = np.minimum(behind_length + np.maximum(length, 0), limits)  # where that is wrong, it shows later
    offset_delta, at = _varints(words, np.minimum(_behind_varints(words, behind_length + 1), end))
    key_length, key_start = _varints(words, np.minimum(at, end))
    value_at = np.minimum(key_start + np.maximum(key_length, 0), end)
    value_length, value_start = _varints(words, value_at)
    return _Numbers(length, behind_length, offset_delta, key_length, key_start, value_length, value_start)


def _numbers_alike(data: Bytes, words: _Words, starts: Integers, limits: Integers) -> _Numbers | None:
    """Return the numbers of records of which most are as long as in the middle one: they all lie at the same distances.

    None where too few records are alike.
    """
    middle = len(starts) // 2
    widths = _widths(data, int(starts[middle]), int(limits[middle])) if len(starts) >= _FEW else ()
    if not widths or sum(widths[:3]) > SPARE or sum(widths[3:5]) > SPARE:
        return None
    width, _, timestamp, offset, key, value = widths
    word, behind = words[starts], width + 1 + timestamp
    alike = _of_widths(word, widths[:3], attributes=True)
    if behind + offset + key <= SPARE:
        rest_word = word >> np.uint64(8 * behind)
    else:
        rest_word = words[np.minimum(starts + behind, limits)]
    alike &= _of_widths(rest_word, (offset, key))
    key_length = _varint_in(rest_word, offset, key)
    key_start = starts + (behind + offset + key)
    at = key_start if int(key_length.max()) <= 0 else key_start + np.maximum(key_length, 0)
    value_word = words[np.minimum(at, limits)]
    alike &= _of_widths(value_word, (value,))
    others = np.flatnonzero(~alike)
    if len(others) > len(starts) // 4:
        return None
    numbers = _Numbers(
        _varint_in(word, 0, width),
        starts + width,
        _varint_in(rest_word, 0, offset),
        key_length,
        key_start,
        _varint_in(value_word, 0, value),
        at + value,
    )
    if len(others):
        rest = _numbers_of(data, words, starts[others], limits[others])  # the first of each batch, say
        for name in _Numbers.__slots__:
            getattr(numbers, name)[others] = getattr(rest, name)
    return numbers


def _widths(data: Bytes, start: int, limit: int) -> tuple[int, ...]:
    """Return how many bytes the numbers of a record have: length, attributes, time, offset, length of key and of value; () if it is damaged."""
    raw = data[start : min(limit, start + _LONGEST_HEAD)].tobytes()
    widths = []
    at = 0
    try:
        for place in range(6):
            if place == 1:
                behind = at + 1
            else:
                number, behind = read_varint(raw, at)
            widths.append(behind - at)
            at = behind + (max(number, 0) if place == 4 else 0)
    except (IndexError, MalformedRecords):
        return ()
    return tuple(widths) if max(widths) < SPARE else ()


def _of_widths(word: _Words, widths: Sequence[int], *, attributes: bool = False) -> npt.NDArray[np.bool_]:
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


def _varint_in(word: _Words, at: int, width: int) -> Integers:
    """Return the zigzag varints of so many bytes that begin at a byte of each word."""
    value = (word >> np.uint64(8 * at)) & _SEVEN_BITS
    for k in range(1, width):
        value |= (word >> np.uint64(8 * (at + k) - 7 * k)) & np.uint64(127 << 7 * k)
    return (value >> _ONE).view(np.int64) ^ -(value & _ONE).view(np.int64)


def _behind(start: Integers, length: Integers) -> Integers:
    """Return the positions behind fields that begin somewhere; a length of -1 is null and takes no bytes."""
    least = int(length.min(initial=0))
    if least < -1:
        raise MalformedRecords("a key or value has a negative length")
    return start + (length if least == 0 else np.maximum(length, 0))


def _within(at: Integers, end: Integers) -> Integers:
    """Return positions, each of which must be before the end of its record."""
    if (at >= end).any() or (at < 0).any():
        raise MalformedRecords("a field of a record goes beyond the record")
    return at


# -- varints -----------------------------------------------------------------------------------------------------------


def _varints(words: _Words, at: Integers) -> tuple[Integers, Integers]:
    """Return the zigzag varints at some positions, and the positions behind them. Raises _Unusual past eight bytes."""
    word = words[at]
    if not (word & _FIRST_CONTINUES).any():
        return _values(word, 1), at + 1
    length = _lengths_in_word(word)
    shift = np.uint64(64) - (length << 3).view(np.uint64)
    return _values((word << shift) >> shift, int(length.max(initial=1))), at + length


def _behind_varints(words: _Words, at: Integers) -> Integers:
    """Return the positions behind the varints at some positions. Raises _Unusual past eight bytes."""
    word = words[at]
    return at + (_lengths_in_word(word) if (word & _FIRST_CONTINUES).any() else 1)


def _values(word: _Words, longest: int) -> Integers:
    """Return the zigzag varints of so many bytes at most that words are, with nothing above them."""
    value = word & _SEVEN_BITS
    for k in range(1, longest):
        value |= ((word >> np.uint64(8 * k)) & _SEVEN_BITS) << np.uint64(7 * k)
    return (value >> _ONE).view(np.int64) ^ -(value & _ONE).view(np.int64)


def _lengths_in_word(word: _Words) -> Integers:
    """Return how many bytes the varint at the low end of each word has. Raises _Unusual where one does not end within it."""
    length = _lengths(word)
    if int(length.max(initial=1)) == 8 and ((word & _CONTINUES) == _CONTINUES).any():
        raise _Unusual
    return length


def _lengths(word: _Words) -> Integers:
    """Return how many bytes the varint at the low end of each word has; 8 where it does not end within the word."""
    stops = ~word & _CONTINUES
    return _low_bytes(stops & (~stops + _ONE))


if hasattr(np, "bitwise_count"):

    def _low_bytes(lowest: _Words) -> Integers:
        """Return the number of bytes up to the one bit of each word, its top bit in each byte; 8 for no bit."""
        lengths: Integers = ((np.bitwise_count(lowest - _ONE) + np.uint8(1)) >> np.uint8(3)).astype(np.int64)
        return lengths

else:  # numpy 1

    def _low_bytes(lowest: _Words) -> Integers:
        exponent = np.frexp(lowest.astype(np.float64))[1].astype(np.int64)  # exact: a power of two, or zero
        lengths: Integers = np.where(exponent == 0, 8, exponent >> 3)
        return lengths


# -- where each record begins ------------------------------------------------------------------------------------------


def _record_starts(data: Bytes, words: _Words, spans: Sequence[Span]) -> Integers:
    """Return the position of each record's length, checked as a chain through each batch."""
    chains: list[Integers | None] = [_equal_lengths(data, span) for span in spans]
    rest = [i for i, starts in enumerate(chains) if starts is None]
    for width in (_SHORT, _LENGTH_BYTES):
        if sum(spans[i].records for i in rest) >= _MANY:
            by_zeros = _by_zero_bytes(data, words, [spans[i] for i in rest], width)
            for i, starts in zip(rest, by_zeros, strict=True):
                chains[i] = starts
            rest = [i for i in rest if chains[i] is None]
    pieces = [_walk(data, span) if starts is None else starts for span, starts in zip(spans, chains, strict=True)]
    return np.concatenate(pieces)


def _equal_lengths(data: Bytes, span: Span) -> Integers | None:
    """Return the starts where the records of a batch come in long runs of one length, else None.

    Records of one size still grow by a byte when the numbers in front of their fields do, so a batch has a few runs.
    """
    if span.records < _MANY or not _begins_evenly(data, span):
        return None
    runs: list[Integers] = []
    at, left = span.start, span.records
    while left:
        size, width = _size_at(data, at)
        if not size or at + size > span.end:
            return None
        count = _same_length(data, at, size, width, min(left, (span.end - at) // size))
        if count < min(_SHORT_RUN, left):
            return None
        runs.append(np.arange(at, at + count * size, size, dtype=np.int64))
        at, left = at + count * size, left - count
    return np.concatenate(runs) if at == span.end else None


def _begins_evenly(data: Bytes, span: Span) -> bool:
    """Return whether the first records of a batch have the same length: a cheap look before a dear one."""
    at, sizes = span.start, set()
    for _ in range(4):
        size, _ = _size_at(data, at)
        sizes.add(size)
        at += size
    return len(sizes) == 1 and at <= span.end


def _size_at(data: Bytes, at: int) -> tuple[int, int]:
    """Return how many bytes a record has with its length in front, and how many of them are its length; 0 if that is none."""
    try:
        length, width = read_varint(data[at : at + 5].tobytes(), 0)
    except (IndexError, MalformedRecords):
        return 0, 0
    return (width + length, width) if length > 0 else (0, 0)


def _same_length(data: Bytes, at: int, size: int, width: int, most: int) -> int:
    """Return how many records from a position on have the length of the first, at most so many as are in the batch."""
    count, look = 1, _FEW
    while count < most:
        upto = min(most, count + look)
        same = np.ones(upto - count, np.bool_)
        for k in range(at, at + width):
            same &= data[k + count * size : k + (upto - 1) * size + 1 : size] == data[k]
        if not same.all():
            return count + int(same.argmin())
        count, look = upto, 4 * look
    return count


def _by_zero_bytes(data: Bytes, words: _Words, spans: Sequence[Span], width: int) -> list[Integers | None]:
    """Return the starts for each batch, or None for those where this way fails, as where a length has more than `width` bytes.

    A record without headers ends with a zero byte, and each begins with its length and a zero byte. Positions of which that is
    true, and whose length leads to such a position, are followed from each batch's first byte.
    """
    low, high = spans[0].start, spans[-1].end
    begins = np.array([span.start for span in spans], np.int64)
    zero = data[low : high + _LENGTH_BYTES] == 0  # what follows the last span is there, see SPARE
    mask = zero[1 : 1 + high - low].copy()
    for behind in range(2, width + 1):
        mask |= zero[behind : behind + high - low]
    mask[1:] &= zero[: high - low - 1]
    mask[begins - low] = True
    at = np.flatnonzero(mask) + low
    bounds = np.append(np.searchsorted(at, begins), len(at))
    limit = np.repeat(np.array([span.end for span in spans], np.int64), np.diff(bounds))
    word = words[at]
    size, value = _record_lengths(word)
    after = at + size + value
    good = (value > 5) & (size <= _LENGTH_BYTES) & (after <= limit) & (data[np.minimum(at + size, high)] == 0)
    at, after = at[good], after[good]
    bounds = np.searchsorted(at, np.append(begins, high))
    return [
        _followed(at[i:j], after[i:j], span) for i, j, span in zip(bounds[:-1], bounds[1:], spans, strict=True)
    ]  # fmt: skip


def _record_lengths(word: _Words) -> tuple[Integers, Integers]:
    """Return how many bytes the number at the low end of each word has, and what it is; any number where that is more than a length has.

    The lengths of records from 64 bytes to 8 kB have two bytes.
    """
    others = np.flatnonzero(~_of_widths(word, (2,)))
    if len(others) > len(word) // 4:
        return _any_lengths(word)
    size, value = np.full(len(word), 2), _varint_in(word, 0, 2)
    if len(others):
        size[others], value[others] = _any_lengths(word[others])
    return size, value


def _any_lengths(word: _Words) -> tuple[Integers, Integers]:
    size = np.minimum(_lengths(word), _LENGTH_BYTES + 1)
    shift = np.uint64(64) - (size << 3).view(np.uint64)
    return size, _values((word << shift) >> shift, int(size.max(initial=1)))


def _followed(at: Integers, after: Integers, span: Span) -> Integers | None:
    """Return the positions that a chain from a batch's first byte to its last goes through; None if there is no such chain.

    Nearly all positions are of records, so the chain is a few runs of neighbours; with many breaks a walk is cheaper.
    """
    if len(at) < span.records or not len(at) or at[0] != span.start:
        return None
    breaks = np.append(np.flatnonzero(after[:-1] != at[1:]), len(at) - 1)
    if len(breaks) > _FEW + (len(at) >> 6):
        return None
    runs: list[Integers] = []
    i, end = 0, span.start
    while end != span.end:
        if i == len(at) or at[i] != end:
            return None
        last = int(breaks[np.searchsorted(breaks, i)])
        runs.append(at[i : last + 1])
        end = int(after[last])
        i = int(np.searchsorted(at, end))
    starts = runs[0] if len(runs) == 1 else np.concatenate(runs)
    return starts if len(starts) == span.records else None


def _walk(data: Bytes, span: Span) -> Integers:
    """Return the starts of a batch's records, one after another."""
    raw = data[span.start : span.end].tobytes()
    starts, at = [], 0
    try:
        for _ in range(span.records):
            starts.append(at)
            byte = raw[at]
            if byte < 128:
                at += 1 + (byte >> 1) if not byte & 1 else len(raw) + 1
            else:
                length, behind = read_varint(raw, at)
                at = behind + length if length >= 0 else len(raw) + 1
    except IndexError:
        at = len(raw) + 1
    if at != len(raw):
        raise MalformedRecords(f"its {span.records} records do not fill its {len(raw)} bytes")
    return np.array(starts, np.int64) + span.start


# -- one by one --------------------------------------------------------------------------------------------------------


def _one_by_one(data: bytes, spans: Sequence[Span]) -> RecordFields:
    """Return what `_vectorised` returns, for records that it does not read."""
    rows: list[tuple[int, ...]] = []
    try:
        for span in spans:
            at = span.start
            for _ in range(span.records):
                row = _one(data, at, span.end)
                rows.append(row)
                at = row[-1]
    except IndexError as error:
        raise MalformedRecords("a record goes beyond its batch") from error
    return RecordFields(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


def _one(data: bytes, at: int, limit: int) -> tuple[int, ...]:
    length, at = read_varint(data, at)
    end, timestamp_start = at + length, at + 1
    _, at = read_varint(data, timestamp_start)
    offset_delta, at = read_varint(data, at)
    key_length, key_start = read_varint(data, at)
    value_length, value_start = read_varint(data, key_start + max(key_length, 0))
    headers_start = value_start + max(value_length, 0)
    if end > limit or headers_start >= end or min(key_length, value_length) < -1:
        raise MalformedRecords("a field of a record goes beyond the record")
    if data[headers_start] == 0 and headers_start + 1 != end:
        raise MalformedRecords("a record does not end behind its value")
    return timestamp_start, offset_delta, key_start, key_length, value_start, value_length, headers_start, end
