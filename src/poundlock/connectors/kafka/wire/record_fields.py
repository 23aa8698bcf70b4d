"""Where the fields of records are in the bytes of record batches: the numbers of all records at once, with numpy.

What does not add up is a MalformedRecords, never rows. Unusual numbers are read in a way that costs more, and those of more than
eight bytes one record at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poundlock.connectors.kafka.wire.record_frames import Frames, Span, frames_of
from poundlock.connectors.kafka.wire.varints import (
    SPARE,
    Bytes,
    Integers,
    MalformedRecords,
    UnusualNumber,
    behind_varints,
    read_varint,
    short_varints,
    varints,
)
from poundlock.formats.words import Words, words_in

_LEAST = 6  # bytes of a record without its length: attributes, two numbers, two lengths, the number of headers
_LONGEST_SHORT = 3  # bytes of what `short_varints` reads


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


@dataclass(slots=True)
class _Numbers:
    """The numbers of some records as they are read, unchecked; positions are those of RecordFields."""

    offset_delta: Integers
    key_length: Integers
    key_start: Integers
    value_length: Integers
    value_start: Integers


def read_fields(data: Bytes, spans: Sequence[Span]) -> RecordFields:
    """Return the fields of all records of some batches, whose spans ascend, in order. At least SPARE bytes follow the last span.

    Raises:
        MalformedRecords: the bytes are not the records that the spans promise.
    """
    words = words_in(data)
    frames = frames_of(data, words, spans)
    if (frames.end - frames.begin < _LEAST).any():
        raise MalformedRecords("a record is shorter than its fields")
    try:
        return _checked(data, frames, _numbers(words, frames))
    except UnusualNumber:
        return _one_by_one(bytes(data), frames)


def _checked(data: Bytes, frames: Frames, numbers: _Numbers) -> RecordFields:
    """Return the fields of records. Raises MalformedRecords."""
    end = frames.end
    _within(_behind(numbers.key_start, numbers.key_length), end)
    _within(numbers.value_start, end)
    headers_start = _within(_behind(numbers.value_start, numbers.value_length), end)
    without = headers_start + 1 == end
    if not without.all():
        rest = headers_start[~without]
        if (data[rest] == 0).any():
            raise MalformedRecords("a record does not end behind its value")
    if data[headers_start[without]].any():
        raise MalformedRecords("a record ends before its headers")
    return RecordFields(
        frames.begin + 1,  # behind the attributes, which no version of Kafka uses
        numbers.offset_delta,
        numbers.key_start,
        numbers.key_length,
        numbers.value_start,
        numbers.value_length,
        headers_start,
        end,
    )


def _numbers(words: Words, frames: Frames) -> _Numbers:
    """Return the numbers of records. Raises UnusualNumber past eight bytes."""
    try:
        return _short_numbers(words, frames)
    except UnusualNumber:
        return _long_numbers(words, frames)


def _short_numbers(words: Words, frames: Frames) -> _Numbers:
    """Return the numbers of records, which are of few bytes. Raises UnusualNumber: one is not.

    Mostly they all stand within one word, for a record has no key, or a long one.
    """
    at = frames.begin + 1
    _, time_size, rest = short_varints(words[at])
    offset_delta, offset_size, rest = short_varints(rest)
    if _most(time_size) + _most(offset_size) + _LONGEST_SHORT > SPARE:
        raise UnusualNumber
    key_length, key_size, rest = short_varints(rest)
    key_start = at + (time_size + offset_size + key_size)
    value_at: Integers = key_start
    if int(key_length.max()) > 0 or _most(time_size) + _most(offset_size) + _most(key_size) + _LONGEST_SHORT > SPARE:
        value_at = np.minimum(key_start + np.maximum(key_length, 0), frames.end)
        rest = words[value_at]
    value_length, value_size, _ = short_varints(rest)
    value_start: Integers = value_at + value_size
    return _Numbers(offset_delta, key_length, key_start, value_length, value_start)


def _most(size: Integers | int) -> int:
    return size if isinstance(size, int) else int(size.max())


def _long_numbers(words: Words, frames: Frames) -> _Numbers:
    """Return the numbers of records, whatever lengths they have. Raises UnusualNumber past eight bytes."""
    end = frames.end  # a number that reaches beyond it is seen when all is checked
    offset_delta, at = varints(words, np.minimum(behind_varints(words, frames.begin + 1), end))
    key_length, key_start = varints(words, np.minimum(at, end))
    value_at = np.minimum(key_start + np.maximum(key_length, 0), end)
    value_length, value_start = varints(words, value_at)
    return _Numbers(offset_delta, key_length, key_start, value_length, value_start)


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


def _one_by_one(data: bytes, frames: Frames) -> RecordFields:
    """Return what `_checked` returns, for records with numbers of more than eight bytes."""
    rows: list[tuple[int, ...]] = []
    try:
        for begin, end in zip(frames.begin.tolist(), frames.end.tolist(), strict=True):
            rows.append(_one(data, begin + 1, end))
    except IndexError as error:
        raise MalformedRecords("a record goes beyond its batch") from error
    return RecordFields(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


def _one(data: bytes, timestamp_start: int, end: int) -> tuple[int, ...]:
    _, at = read_varint(data, timestamp_start)
    offset_delta, at = read_varint(data, at)
    key_length, key_start = read_varint(data, at)
    value_length, value_start = read_varint(data, key_start + max(key_length, 0))
    headers_start = value_start + max(value_length, 0)
    if headers_start >= end or min(key_length, value_length) < -1:
        raise MalformedRecords("a field of a record goes beyond the record")
    if (data[headers_start] == 0) != (headers_start + 1 == end):
        raise MalformedRecords("a record does not end behind its value")
    return timestamp_start, offset_delta, key_start, key_length, value_start, value_length, headers_start, end
