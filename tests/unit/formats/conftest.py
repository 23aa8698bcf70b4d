"""Makers of chunks for tests, with a place for each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poundlock.formats.chunk import Batch, FileOrigin, Lines


def make_lines(*rows: bytes) -> Lines:
    """Return rows as a buffer; row i comes from offset 10 * i of file "f"."""
    data = b"".join(row + b"\n" for row in rows)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64)
    return Lines(memoryview(data), ends, FileOrigin("f", range(0, 10 * len(rows), 10)))


def make_values(*rows: bytes | None, **columns: list[Any]) -> Batch:
    """Return rows as a binary column `value`, beside others."""
    names = ["value", *columns]
    arrays = [pa.array(rows, pa.binary()), *(pa.array(c) for c in columns.values())]
    return Batch(pa.record_batch(arrays, names=names), FileOrigin("f", range(0, 10 * len(rows), 10)))


def offsets_of(chunk: Any) -> list[int]:
    """Return the offset each row of a chunk says it came from."""
    where = getattr(chunk, "where", None) or chunk.origin.at
    return [where(i)["offset"] for i in range(len(chunk))]


@pytest.fixture(scope="session")
def lines() -> Callable[..., Lines]:
    """Return the function that makes Lines of rows."""
    return make_lines


@pytest.fixture(scope="session")
def values() -> Callable[..., Batch]:
    """Return the function that makes a Batch with the column `value` of rows."""
    return make_values


@pytest.fixture(scope="session")
def offsets() -> Callable[[Any], list[int]]:
    """Return the function that tells where the rows of a chunk came from."""
    return offsets_of
