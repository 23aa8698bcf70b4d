"""The five bytes before a value that a registry's serializer wrote: zero, and the number of its schema, the highest byte first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from poundlock.formats.arrays import Numbers

SIZE = 5
NO_NUMBER = -1
NOT_FRAMED = "the five bytes before the value, 0 and the number of its schema, are missing"
_HEAD = np.dtype([("zero", "u1"), ("number", ">i4")])


def numbers_of(values: Sequence[bytes]) -> Numbers:
    """Return the number of each value's schema, NO_NUMBER where none stands before it."""
    heads = np.frombuffer(b"".join([value[:SIZE].ljust(SIZE, b"\xff") for value in values]), _HEAD)
    numbers = heads["number"].astype(np.int64)
    return np.where((heads["zero"] == 0) & (numbers >= 0), numbers, NO_NUMBER)


def of_each(numbers: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Yield each number with the places that it is at, in the order in which they come up."""
    different, first, of = np.unique(numbers, return_index=True, return_inverse=True)
    if len(different) == 1:
        yield int(different[0]), np.arange(len(numbers))
        return
    order = np.argsort(of, kind="stable")
    ends = np.cumsum(np.bincount(of))
    for place in np.argsort(first).tolist():
        begin = 0 if place == 0 else int(ends[place - 1])
        yield int(different[place]), order[begin : int(ends[place])]


def head(number: int) -> bytes:
    """Return the five bytes of a schema's number."""
    return b"\0" + number.to_bytes(4, "big")
