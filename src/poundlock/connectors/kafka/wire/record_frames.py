"""Where each record of a batch begins and ends, found for all of them at once and checked as a chain from the batch's first byte to its last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from poundlock.connectors.kafka.wire.varints import (
    Bytes,
    Integers,
    MalformedRecords,
    lengths_and_values,
    read_varint,
)
from poundlock.formats.words import Words

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


class Frames(NamedTuple):
    """Where records are, in order.

    Args:
        begin: the byte behind the length of each.
        end: the byte behind each.
    """

    begin: Integers
    end: Integers


def frames_of(data: Bytes, words: Words, spans: Sequence[Span]) -> Frames:
    """Return where the records of some batches are.

    Raises:
        MalformedRecords: lengths do not lead from a batch's first byte to its last.
    """
    chains: list[Frames | None] = [_equal_lengths(data, span) for span in spans]
    rest = [i for i, frames in enumerate(chains) if frames is None]
    for width in (_SHORT, _LENGTH_BYTES):
        if sum(spans[i].records for i in rest) >= _MANY:
            by_zeros = _by_zero_bytes(data, words, [spans[i] for i in rest], width)
            for i, frames in zip(rest, by_zeros, strict=True):
                chains[i] = frames
            rest = [i for i in rest if chains[i] is None]
    return _joined([_walk(data, span) if each is None else each for span, each in zip(spans, chains, strict=True)])


def _joined(pieces: Sequence[Frames]) -> Frames:
    return pieces[0] if len(pieces) == 1 else Frames(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


# -- records of one length ---------------------------------------------------------------------------------------------


def _equal_lengths(data: Bytes, span: Span) -> Frames | None:
    """Return the records of a batch where they come in long runs of one length, else None.

    Records of one size still grow by a byte when the numbers in front of their fields do, so a batch has a few runs.
    """
    if span.records < _MANY or not _begins_evenly(data, span):
        return None
    runs: list[Frames] = []
    at, left = span.start, span.records
    while left:
        size, width = _size_at(data, at)
        if not size or at + size > span.end:
            return None
        count = _same_length(data, at, size, width, min(left, (span.end - at) // size))
        if count < min(_SHORT_RUN, left):
            return None
        starts = np.arange(at, at + count * size, size, dtype=np.int64)
        runs.append(Frames(starts + width, starts + size))
        at, left = at + count * size, left - count
    return _joined(runs) if at == span.end else None


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
        count, look = upto, 16 * look
    return count


# -- records without headers -------------------------------------------------------------------------------------------


def _by_zero_bytes(data: Bytes, words: Words, spans: Sequence[Span], width: int) -> list[Frames | None]:
    """Return the records of each batch, or None for those where this way fails, as where a length has more than `width` bytes.

    A record without headers ends with a zero byte, and each begins with its length and a zero byte. Positions of which that is
    true are followed from each batch's first byte.
    """
    low, high = spans[0].start, spans[-1].end
    begins = np.array([span.start for span in spans], np.int64)
    zero = data[low : high + _LENGTH_BYTES] == 0  # what follows the last span is there, see SPARE
    mask = zero[1 : 1 + high - low] | zero[2 : 2 + high - low]
    for behind in range(3, width + 1):
        mask |= zero[behind : behind + high - low]
    mask[1:] &= zero[: high - low - 1]
    mask[begins - low] = True
    at = np.flatnonzero(mask) + low
    size, value = lengths_and_values(words[at], _LENGTH_BYTES)
    begin = at + size
    after = begin + value
    good = (value > 5) & (size <= _LENGTH_BYTES)
    if not good.all():
        at, begin, after = at[good], begin[good], after[good]
    bounds = np.searchsorted(at, np.append(begins, high))
    return [
        _followed(at[i:j], Frames(begin[i:j], after[i:j]), span)
        for i, j, span in zip(bounds[:-1], bounds[1:], spans, strict=True)
    ]


def _followed(at: Integers, frames: Frames, span: Span) -> Frames | None:
    """Return the records that a chain from a batch's first byte to its last goes through; None if there is no such chain.

    Nearly all positions are of records, so the chain is a few runs of neighbours; with many breaks a walk is cheaper.

    Args:
        at: where the length of each would be.
    """
    if len(at) < span.records or not len(at) or at[0] != span.start:
        return None
    breaks = np.append(np.flatnonzero(frames.end[:-1] != at[1:]), len(at) - 1)
    if len(breaks) > _FEW + (len(at) >> 6):
        return None
    runs: list[Frames] = []
    i, end = 0, span.start
    while end != span.end:
        if i == len(at) or at[i] != end:
            return None
        last = int(breaks[np.searchsorted(breaks, i)])
        runs.append(Frames(frames.begin[i : last + 1], frames.end[i : last + 1]))
        end = int(frames.end[last])
        i = int(np.searchsorted(at, end))
    chain = _joined(runs)
    return chain if len(chain.end) == span.records else None


# -- one after another -------------------------------------------------------------------------------------------------


def _walk(data: Bytes, span: Span) -> Frames:
    """Return a batch's records, one after another."""
    raw = data[span.start : span.end].tobytes()
    begins, ends, at = [], [], 0
    try:
        for _ in range(span.records):
            byte = raw[at]
            length, at = (byte >> 1 if not byte & 1 else -1, at + 1) if byte < 128 else read_varint(raw, at)
            begins.append(at)
            at = at + length if length >= 0 else len(raw) + 1
            ends.append(at)
    except IndexError:
        at = len(raw) + 1
    if at != len(raw):
        raise MalformedRecords(f"its {span.records} records do not fill its {len(raw)} bytes")
    return Frames(np.array(begins, np.int64) + span.start, np.array(ends, np.int64) + span.start)
