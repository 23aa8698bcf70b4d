"""A PostgresSource whose change rows do not say where in the log they are, so that they can be compared with rows known beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from poundlock import PostgresSource
from poundlock.connectors.base import ReaderContext, Split
from poundlock.formats.chunk import Batch, Chunk


@dataclass(frozen=True)
class PlacelessSource(PostgresSource):
    """Reads changes, and leaves the place of each away."""

    def schema(self) -> pa.Schema:
        schema = super().schema()
        return schema.remove(schema.get_field_index("lsn"))

    def reader(self, context: ReaderContext) -> Any:
        return _Reader(super().reader(context))


@dataclass
class _Reader:
    inner: Any

    def read(self, split: Split) -> Iterator[Chunk]:
        for chunk in self.inner.read(split):
            yield Batch(chunk.batch.drop_columns(["lsn"]))
