"""Where each record of a record batch begins: a record says how long it is, so that they are a chain from a batch's first byte to its last.

The chain is looked for by what records mostly are like, and walked one by one where they are not; it is checked either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from poundlock.connectors.kafka.wire.varints import (
    Bytes,
    Integers,
    MalformedRecords,
    Words,
    are_of_widths,
    lengths_of,
    read_varint,
    values_of,
    varint_in,
)

_FEW = 32  # so many records are compared first
_SHORT_RUN = 16  # shorter ones are no runs
_LENGTH_BYTES = 5  # a record's length has at most so many
_SHORT = 2  # and so many where the record has less than 8 kB
_MANY = 256  # fewer records are sooner read one by one than looked at for a pattern


class Span(NamedTuple):
    """The records of one batch, uncompressed: from which byte to which, and how many."""

    start: int
    end: int
    records: int


def record_starts(data: Bytes, words: Words, spans: Sequence[Span]) -> Integers:
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


def _by_zero_bytes(data: Bytes, words: Words, spans: Sequence[Span], width: int) -> list[Integers | None]:
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
    return [_followed(at[i:j], after[i:j], span) for i, j, span in zip(bounds[:-1], bounds[1:], spans, strict=True)]


def _record_lengths(word: Words) -> tuple[Integers, Integers]:
    """Return how many bytes the number at the low end of each word has, and what it is; any number where that is more than a length has.

    The lengths of records from 64 bytes to 8 kB have two bytes.
    """
    others = np.flatnonzero(~are_of_widths(word, (2,)))
    if len(others) > len(word) // 4:
        return _any_lengths(word)
    size, value = np.full(len(word), 2), varint_in(word, 0, 2)
    if len(others):
        size[others], value[others] = _any_lengths(word[others])
    return size, value


def _any_lengths(word: Words) -> tuple[Integers, Integers]:
    size = np.minimum(lengths_of(word), _LENGTH_BYTES + 1)
    shift = np.uint64(64) - (size << 3).view(np.uint64)
    return size, values_of((word << shift) >> shift, int(size.max(initial=1)))


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
