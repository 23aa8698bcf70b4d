"""A chunk: some rows on their way through a task, in the form that costs least.

Lines stay a buffer (the buffer already is the file's bytes), columns stay Arrow, and rows become Python dicts only where a
user's function asks for them. A chunk is never changed once made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class Origin(Protocol):
    """Where the rows of a chunk came from, so that a dead letter can name the place."""

    def at(self, row: int) -> Mapping[str, Any]:
        """Return the place of a row: {"topic", "partition", "offset"}, {"file", "offset"}, or {} if it is not known."""
        ...


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
