"""Where rows came from, after some of them were left out.

An origin never copies the places it stands for: rows are looked up only when a dead letter asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from poundlock.formats.chunk import Chunk, Lines, NoOrigin, Origin, Records

__all__ = ["SubsetOrigin", "origin_of", "subset"]


@dataclass(frozen=True, slots=True)
class SubsetOrigin:
    """Some rows of another origin: row i is row `index[i]` there."""

    of: Origin
    index: npt.NDArray[np.int64] | Sequence[int]

    def at(self, row: int) -> Mapping[str, Any]:
        return self.of.at(int(self.index[row]))


def subset(origin: Origin, index: npt.NDArray[np.int64]) -> Origin:
    """Return the origin of the rows `index` of a chunk that has this origin."""
    if isinstance(origin, NoOrigin):
        return origin
    if isinstance(origin, SubsetOrigin):
        return SubsetOrigin(origin.of, np.asarray(origin.index, np.int64)[index])
    return SubsetOrigin(origin, index)


def origin_of(chunk: Chunk) -> Origin:
    """Return an origin whose row i is row i of the chunk, whatever form the chunk has."""
    if isinstance(chunk, Records) and chunk.index is not None:
        return subset(chunk.origin, np.asarray(chunk.index, np.int64))
    return chunk.origin


def line_starts(lines: Lines) -> npt.NDArray[np.int64]:
    """Return the position of the first byte of each row."""
    starts = np.empty(len(lines.ends), np.int64)
    if len(starts):
        starts[0] = 0
        starts[1:] = lines.ends[:-1] + 1
    return starts
