"""Chunks for tests, with a place for each row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from poundlock.formats.chunk import Batch, FileOrigin, Lines


def lines(*rows: bytes) -> Lines:
    """Return rows as a buffer; row i comes from offset 10 * i of file "f"."""
    data = b"".join(row + b"\n" for row in rows)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64)
    return Lines(memoryview(data), ends, FileOrigin("f", range(0, 10 * len(rows), 10)))


def values(*rows: bytes | None, **columns: list[object]) -> Batch:
    """Return rows as a binary column `value`, beside others."""
    names = ["value", *columns]
    arrays = [pa.array(rows, pa.binary()), *(pa.array(c) for c in columns.values())]
    return Batch(pa.record_batch(arrays, names=names), FileOrigin("f", range(0, 10 * len(rows), 10)))


def offsets(chunk: object) -> list[int]:
    """Return the offset each row of a chunk says it came from."""
    where = getattr(chunk, "where", None) or chunk.origin.at  # type: ignore[attr-defined]
    return [where(i)["offset"] for i in range(len(chunk))]  # type: ignore[arg-type]
