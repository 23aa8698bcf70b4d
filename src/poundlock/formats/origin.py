"""Where rows came from, after some of them were left out.

An origin never copies the places it stands for: rows are looked up only when a dead letter asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from poundlock.formats.chunk import Chunk, KafkaOrigin, Lines, NoOrigin, Origin, Records


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


def within(origin: Origin, rows: int) -> Origin:
    """Return the origin of rows that were made out of those of another origin, nobody knows which: at most its partition."""
    of, index = (origin.of, origin.index) if isinstance(origin, SubsetOrigin) else (origin, None)
    if not isinstance(of, KafkaOrigin):
        return NoOrigin()
    partitions = np.asarray(of.partition) if index is None else np.asarray(of.partition)[np.asarray(index, np.int64)]
    if not len(partitions) or (partitions != partitions[0]).any():
        return NoOrigin()
    topic = of.topic if isinstance(of.topic, str) else of.topic[0 if index is None else int(index[0])]
    return KafkaOrigin(topic, np.full(rows, partitions[0], np.int32), np.full(rows, -1, np.int64))


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
