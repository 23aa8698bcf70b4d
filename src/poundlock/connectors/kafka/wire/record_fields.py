"""Where the fields of records are in the bytes of record batches: those of all records at once, with numpy.

What does not add up is a MalformedRecords, never rows. What is unusual (varints of more than eight bytes) is read one record at a time
instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poundlock.connectors.kafka.wire.record_starts import Span, record_starts
from poundlock.connectors.kafka.wire.varints import (
    SPARE,
    Bytes,
    Integers,
    LongVarint,
    MalformedRecords,
    Words,
    are_of_widths,
    behind_varints,
    read_varint,
    varint_in,
    varints_at,
    words_of,
)

_FEW = 32  # fewer records are not compared
_LONGEST_HEAD = 1 << 12  # of a record whose key is short enough to be looked at


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
    words = words_of(data)
    starts = record_starts(data, words, spans)
    last = np.cumsum([span.records for span in spans])
    ends = np.array([span.end for span in spans], np.int64)
    limits = np.repeat(ends, [span.records for span in spans])
    try:
        fields = _vectorised(data, words, starts, limits)
    except LongVarint:
        fields = _one_by_one(bytes(data), spans)
    if (fields.end[last - 1] != ends).any():
        raise MalformedRecords("the last record of a batch does not end where the batch ends")
    return fields


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


def _vectorised(data: Bytes, words: Words, starts: Integers, limits: Integers) -> RecordFields:
    """Return the fields of records that begin at `starts`, in batches that end at `limits`. Raises MalformedRecords; LongVarint where a number is too long."""
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


def _numbers_of(data: Bytes, words: Words, starts: Integers, limits: Integers) -> _Numbers:
    return _numbers_alike(data, words, starts, limits) or _numbers(words, starts, limits)


def _numbers(words: Words, starts: Integers, limits: Integers) -> _Numbers:
    """Return the numbers of records, whatever lengths they have."""
    length, behind_length = varints_at(words, starts)
    end = np.minimum(behind_length + np.maximum(length, 0), limits)  # where that is wrong, it is found out later
    offset_delta, at = varints_at(words, np.minimum(behind_varints(words, behind_length + 1), end))
    key_length, key_start = varints_at(words, np.minimum(at, end))
    value_at = np.minimum(key_start + np.maximum(key_length, 0), end)
    value_length, value_start = varints_at(words, value_at)
    return _Numbers(length, behind_length, offset_delta, key_length, key_start, value_length, value_start)


def _numbers_alike(data: Bytes, words: Words, starts: Integers, limits: Integers) -> _Numbers | None:
    """Return the numbers of records of which most are as long as in the middle one: they all lie at the same distances.

    None where too few records are alike.
    """
    middle = len(starts) // 2
    widths = _widths(data, int(starts[middle]), int(limits[middle])) if len(starts) >= _FEW else ()
    if not widths or sum(widths[:3]) > SPARE or sum(widths[3:5]) > SPARE:
        return None
    width, _, timestamp, offset, key, value = widths
    word, behind = words[starts], width + 1 + timestamp
    alike = are_of_widths(word, widths[:3], attributes=True)
    if behind + offset + key <= SPARE:
        rest_word = word >> np.uint64(8 * behind)
    else:
        rest_word = words[np.minimum(starts + behind, limits)]
    alike &= are_of_widths(rest_word, (offset, key))
    key_length = varint_in(rest_word, offset, key)
    key_start = starts + (behind + offset + key)
    at = key_start if int(key_length.max()) <= 0 else key_start + np.maximum(key_length, 0)
    value_word = words[np.minimum(at, limits)]
    alike &= are_of_widths(value_word, (value,))
    others = np.flatnonzero(~alike)
    if len(others) > len(starts) // 4:
        return None
    numbers = _Numbers(
        varint_in(word, 0, width),
        starts + width,
        varint_in(rest_word, 0, offset),
        key_length,
        key_start,
        varint_in(value_word, 0, value),
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
