"""Rows that belong together, by slice of time and key: one sort of numbers gives their order, their groups and their first rows.

Groups stand in the order of slice and hash, as state files have them; the rows of a group stand in the order they came, which is
what first, last, lists and sums of floating point numbers depend on. Keys with one hash are distinguished by the keys themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, ends_in, indices_of, ranks_of
from poundlock.formats.words import words_in

Hashes = npt.NDArray[np.uint64]

_MASK = np.array([0, *((1 << 8 * i) - 1 for i in range(1, 9))], np.uint64)
_LEAST_HASH_BITS = 16  # with fewer in a word nearly every hash would have to be looked at again


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows in groups.

    Args:
        order: the rows' numbers, group after group.
        starts: where in `order` each group begins; the first begins at 0, and none is empty.
    """

    order: Numbers
    starts: Numbers

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def firsts(self) -> Numbers:
        """The number of the first row of each group."""
        return self.order[self.starts]

    @property
    def counts(self) -> Numbers:
        """How many rows each group has."""
        return np.diff(self.starts, append=len(self.order))

    @property
    def are_single(self) -> bool:
        """Whether every group is one row."""
        return len(self.starts) == len(self.order)

    @property
    def numbers(self) -> Numbers:
        """The number of each row's group, where every row is in one."""
        numbers = np.empty(len(self.order), np.int64)
        numbers[self.order] = np.repeat(np.arange(len(self)), self.counts)
        return numbers

    def of_rows(self, kept: Flags) -> Groups:
        """Return the groups of some of the rows; one of which no row is kept goes.

        Args:
            kept: of each row.
        """
        if kept.all():
            return self
        in_order = kept[self.order]
        counts = np.diff(np.append(0, np.cumsum(in_order))[np.append(self.starts, len(self.order))])
        counts = counts[counts > 0]
        return Groups(self.order[in_order], np.cumsum(counts) - counts)


def grouped(hashes: Hashes, keys: pa.Array | None, slices: Numbers | None = None, width: int = 1) -> Groups:
    """Return the groups of some rows.

    Args:
        hashes: of the keys.
        keys: the keys' bytes, binary or large_binary; None where equal hashes are equal keys.
        slices: the slice of time of each row; None where all are of one.
        width: what the distance of two slices is a multiple of.
    """
    if not len(hashes):
        return Groups(np.empty(0, np.int64), np.empty(0, np.int64))
    ranks = None if slices is None else _ranks(slices, width)
    order = _order(hashes, ranks)
    new = np.ones(len(order), np.bool_)
    sorted_hashes = hashes[order]
    new[1:] = sorted_hashes[1:] != sorted_hashes[:-1]
    if ranks is not None:
        sorted_ranks = ranks[order]
        new[1:] |= sorted_ranks[1:] != sorted_ranks[:-1]
    if keys is not None and not new.all():
        unlike = _unlike(keys, order, new)
        if len(unlike):
            return _by_key(keys, order, new, unlike)
    return Groups(order, np.flatnonzero(new))


def grouped_by_code(
    codes: npt.NDArray[np.int32], hashes: Hashes, keys: pa.Array, slices: Numbers, width: int = 1
) -> Groups | None:
    """Return the groups of rows whose keys are numbered: those that `grouped` gives, without a look at any row's key.

    None where slices and keys are so many that their pairs do not fit into 16 bits, which are sorted in two passes.

    Args:
        codes: the number of each row's key.
        hashes: of each key; `keys` likewise, none of them twice.
        slices: as in `grouped`, and `width` too.
    """
    if not len(codes):
        return grouped(hashes, keys)
    in_order = grouped(hashes, keys).order
    rank = np.empty(len(in_order), np.int64)
    rank[in_order] = np.arange(len(in_order))
    places, ranks = rank[codes], _ranks(slices, width)
    if ranks is not None:
        places += ranks * len(in_order)
    if int(places.max(initial=0)) >= 1 << 16:
        return None
    counts = np.bincount(places)
    counts = counts[counts > 0]
    return Groups(np.argsort(places.astype(np.uint16), kind="stable"), np.cumsum(counts) - counts)


def overlapping(hashes: Hashes, keys: pa.Array | None, starts: Numbers, ends: Numbers) -> Groups:
    """Return as groups the stretches of time of one key that overlap or touch, by hash and time.

    Args:
        keys: as in `grouped`.
        starts: when the stretch of each row begins; `ends` likewise.
    """
    if not len(hashes):
        return grouped(hashes, keys)
    order = _order(hashes, starts - starts.min(), by_rank=False)
    new = np.ones(len(order), np.bool_)
    sorted_hashes = hashes[order]
    new[1:] = sorted_hashes[1:] != sorted_hashes[:-1]
    if keys is not None and not new.all():
        unlike = _unlike(keys, order, new)
        if len(unlike):
            by_key = _by_key(keys, order, new, unlike)
            order, new = by_key.order, np.zeros(len(order), np.bool_)
            new[by_key.starts] = True
    number = np.cumsum(new) - 1
    base, span = int(starts.min()), int(ends.max()) - int(starts.min()) + 1
    if span * (int(number[-1]) + 1) >= 1 << 62:
        places = np.unique(np.concatenate([starts, ends]), return_inverse=True)[1]
        return overlapping(hashes, keys, places[: len(starts)], places[len(starts) :])
    # The latest end so far of the same key: keys are moved apart, so that none reaches into the next.
    latest = np.maximum.accumulate(ends[order] - base + number * span) - number * span
    new[1:] |= starts[order][1:] - base > latest[:-1]
    return Groups(order, np.flatnonzero(new))


def _ranks(slices: Numbers, width: int) -> Numbers | None:
    """Return small numbers in the order of slices; None where all are the same."""
    low, high = int(slices.min()), int(slices.max())
    if low == high:
        return None
    if (high - low) // width < 1 << 16:
        return slices - low if width == 1 else (slices - low) // width
    return np.unique(slices, return_inverse=True)[1].astype(np.int64)


def _order(hashes: Hashes, ranks: Numbers | None, *, by_rank: bool = True) -> Numbers:
    """Return the rows in the order of rank, hash and number; or of hash, rank and number.

    Rank, as many bits of the hash as there is room for, and the row's number are one word each: sorting words is several times as
    fast as sorting rows, and no two are equal, so any sort will do.
    """
    place_bits = max(len(hashes) - 1, 1).bit_length()
    rank_bits = 0 if ranks is None else int(ranks.max()).bit_length()
    hash_bits = 64 - place_bits - rank_bits
    if hash_bits < _LEAST_HASH_BITS:
        columns = (hashes,) if ranks is None else (hashes, ranks) if by_rank else (ranks, hashes)
        order: Numbers = np.lexsort(columns)
        return order
    below = place_bits if by_rank else place_bits + rank_bits
    words = (hashes >> np.uint64(64 - hash_bits)) << np.uint64(below)
    if ranks is not None:
        words |= ranks.astype(np.uint64) << np.uint64(64 - rank_bits if by_rank else place_bits)
    words |= np.arange(len(hashes), dtype=np.uint64)
    words.sort()
    order = (words & np.uint64((1 << place_bits) - 1)).astype(np.int64)
    hashes = hashes[order]
    prefixes = words >> np.uint64(below)
    unlike = hashes[1:] < hashes[:-1] if by_rank else hashes[1:] != hashes[:-1]
    mixed = (prefixes[1:] == prefixes[:-1]) & unlike
    if mixed.any():
        _put_in_order(order, hashes, prefixes, np.unique(prefixes[1:][mixed]))
    return order


def _put_in_order(order: Numbers, hashes: Hashes, prefixes: Hashes, mixed: Hashes) -> None:
    """Sort by their whole hash the rows of which the bits in the words are the same though their hashes are not."""
    first, stop = (np.searchsorted(prefixes, mixed, side).tolist() for side in ("left", "right"))
    for start, end in zip(first, stop, strict=True):
        order[start:end] = order[start:end][np.argsort(hashes[start:end], kind="stable")]


def _unlike(keys: pa.Array, order: Numbers, new: Flags) -> Numbers:
    """Return the places in `order` whose row has another key than the one before, though both have one hash."""
    ends = ends_in(keys)
    length = np.diff(ends)
    shortest, longest = int(length.min()), int(length.max())
    differs = np.zeros(len(order), np.bool_)
    if shortest != longest:
        sorted_lengths = length[order]
        differs[1:] = sorted_lengths[1:] != sorted_lengths[:-1]
    for word in _words(_padded(keys), ends[:-1], length, shortest, longest):
        sorted_words = word[order]
        differs[1:] |= sorted_words[1:] != sorted_words[:-1]
    differs[new] = False
    places: Numbers = np.flatnonzero(differs)
    return places


def _words(
    data: npt.NDArray[np.uint8], starts: Numbers, length: Numbers, shortest: int, longest: int
) -> Iterator[Hashes]:
    """Yield keys as words of eight bytes: of keys of one length, the words are equal if and only if the keys are."""
    if 8 <= shortest == longest:  # they lie at equal distances, so no place of a word need be calculated
        for at in (*range(0, longest - 7, 8), *([longest - 8] if longest % 8 else [])):
            yield np.ascontiguousarray(np.ndarray((len(starts),), "<u8", data, int(starts[0]) + at, (longest,)))
        return
    words = words_in(data)
    if shortest < 8:
        yield words[starts] & _MASK[np.minimum(length, 8)]
    for at in range(0 if shortest >= 8 else 8, longest, 8):
        if at + 8 <= shortest:
            yield words[starts + at]
        else:  # the last eight bytes, which overlap those before them; of a shorter key its first word once more
            yield words[starts + np.clip(length - 8, 0, at)] if shortest >= 8 else _ending(words, starts, length, at)


def _ending(words: Hashes, starts: Numbers, length: Numbers, at: int) -> Hashes:
    left = length - at
    some: Hashes = words[starts + np.where(left > 0, at, 0)]
    masked: Hashes = some & _MASK[np.clip(left, 0, 8)]
    return masked


def _by_key(keys: pa.Array, order: Numbers, new: Flags, unlike: Numbers) -> Groups:
    """Return the groups where some keys have one hash: among those, rows by key, then in the order they had."""
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(order))
    for group in np.unique(np.searchsorted(starts, unlike, "right") - 1).tolist():
        start, end = int(starts[group]), int(ends[group])
        rows = order[start:end].copy()
        ranks, _ = ranks_of(keys.take(indices_of(rows)))
        within = np.argsort(ranks, kind="stable")
        order[start:end] = rows[within]
        new[start + 1 : end] = np.diff(ranks[within]) != 0
    return Groups(order, np.flatnonzero(new))


def _padded(keys: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of keys with eight more behind the last, so that a word can be read from each of them."""
    data = keys.buffers()[2]
    held = np.frombuffer(b"" if data is None else data, np.uint8)
    end = int(ends_in(keys)[-1])
    return held if len(held) >= end + 8 else np.concatenate([held[:end], np.zeros(8, np.uint8)])
