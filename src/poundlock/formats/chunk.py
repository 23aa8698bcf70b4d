"""A chunk: some rows on their way through a task, in the form that costs least.

Lines stay a buffer (the buffer already is the file's bytes), columns stay Arrow, and rows become Python dicts only where a
user's function asks for them. A chunk is never changed once made. An origin never copies the places it stands for: rows are looked up
only when a dead letter asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import ends_in

_LINE_END = ord("\n")
_PIECE = 1 << 17  # bytes


class Origin(Protocol):
    """Where the rows of a chunk came from, so that a dead letter can name the place."""

    def at(self, row: int) -> Mapping[str, Any]:
        """Return the place of a row: {"topic", "partition", "offset"}, {"file", "offset"}, or {} if it is not known."""


@dataclass(frozen=True, slots=True)
class NoOrigin:
    """The place is not known, as after an aggregation."""

    source: str = ""

    def at(self, row: int) -> Mapping[str, Any]:
        return {"source": self.source} if self.source else {}


@dataclass(frozen=True, slots=True)
class KafkaOrigin:
    """Rows of Kafka: one topic for all or one a row, partition and offset per row; what is not known is -1."""

    topic: str | Sequence[str]
    partition: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]

    def at(self, row: int) -> Mapping[str, Any]:
        partition, offset = int(self.partition[row]), int(self.offset[row])
        if partition < 0:
            return {}
        topic = self.topic if isinstance(self.topic, str) else self.topic[row]
        place: dict[str, Any] = {"topic": topic, "partition": partition}
        return place if offset < 0 else {**place, "offset": offset}


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """Rows of a file: `offset` is the byte at which each row begins, or row numbers for formats without bytes per row."""

    file: str
    offset: npt.NDArray[np.int64] | range

    def at(self, row: int) -> Mapping[str, Any]:
        return {"file": self.file, "offset": int(self.offset[row])}


@dataclass(frozen=True, slots=True)
class SubsetOrigin:
    """Some rows of another origin: row i is row `index[i]` there."""

    of: Origin
    index: npt.NDArray[np.int64] | Sequence[int]

    def at(self, row: int) -> Mapping[str, Any]:
        return self.of.at(int(self.index[row]))


@dataclass(frozen=True, slots=True)
class Lines:
    r"""Rows as one buffer of whole lines, logically a table with the one binary column `value` (without the line end).

    Args:
        data: the bytes; ends with "\n".
        ends: position of the "\n" of each row, ascending, int64. There is no other "\n" in `data`.
        origin: where the rows came from.
    """

    data: memoryview
    ends: npt.NDArray[np.int64]
    origin: Origin = field(default_factory=NoOrigin)

    def __len__(self) -> int:
        return len(self.ends)

    def row(self, i: int) -> bytes:
        """Return the bytes of a row without its line end."""
        start = int(self.ends[i - 1]) + 1 if i else 0
        return bytes(self.data[start : int(self.ends[i])])


@dataclass(frozen=True, slots=True)
class Values:
    """Byte strings as they lie in a larger buffer, in order, before they become rows. Valid as long as the buffer is left as it is.

    Args:
        data: the buffer; what is between the values may be anything.
        starts: where each value begins; `ends` where it ends.
        origin: where the values came from.
    """

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    origin: Origin = field(default_factory=NoOrigin)

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, i: int) -> bytes:
        """Return the bytes of a value."""
        return self.data[int(self.starts[i]) : int(self.ends[i])].tobytes()


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows as Arrow columns."""

    batch: pa.RecordBatch
    origin: Origin = field(default_factory=NoOrigin)

    def __len__(self) -> int:
        return int(self.batch.num_rows)


@dataclass(frozen=True, slots=True)
class Records:
    """Rows as Python dicts, column name to value.

    Args:
        rows: the dicts; a user's function may have made them, so do not change them.
        origin: where the rows came from.
        index: for each row, the row of the origin it came from; None = the same number.
    """

    rows: Sequence[dict[str, Any]]
    origin: Origin = field(default_factory=NoOrigin)
    index: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, i: int) -> Mapping[str, Any]:
        """Return the place of a row."""
        return self.origin.at(i if self.index is None else self.index[i])


Chunk = Lines | Batch | Records


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


def line_ends_in(data: npt.NDArray[np.uint8]) -> int:
    """Return how many line ends there are in bytes, which are looked at in pieces that stay in a core's cache."""
    pieces = (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
    return sum(int(np.count_nonzero(piece == _LINE_END)) for piece in pieces)


def line_starts(lines: Lines) -> npt.NDArray[np.int64]:
    """Return the position of the first byte of each row."""
    starts = np.empty(len(lines.ends), np.int64)
    if len(starts):
        starts[0] = 0
        starts[1:] = lines.ends[:-1] + 1
    return starts


def values_in(column: pa.Array, origin: Origin) -> Values | None:
    """Return the values of a column of byte strings or texts, which has no nulls, as they lie in it; None for other columns."""
    kind = column.type
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_binary(kind)):
        return None
    data, bounds = column.buffers()[2], ends_in(column)
    return None if data is None else Values(np.frombuffer(data, np.uint8), bounds[:-1], bounds[1:], origin)
