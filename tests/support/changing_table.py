"""A table that is looked up in, and gives other rows each time that it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from poundlock.sql.connectors.table import CacheLimits

__all__ = ["ChangingTable"]


@dataclass(frozen=True)
class ChangingTable:
    """A table of which nothing is as it was before: a key below 3 has as many rows as it says, any other none.

    Args:
        columns: those of the rows, of id, version and word; `types`: theirs.
        asked: the file that the keys which it was asked for are written into, one a line; the number of its line is the version.
    """

    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    asked: Path
    cache: CacheLimits = field(default_factory=CacheLimits)
    identity: str = "changing"

    def rows(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        rows = []
        for key in keys.column(0).to_pylist():
            with self.asked.open("a", encoding="utf-8") as file:
                file.write(f"{key}\n")
            version = len(self.asked.read_text("utf-8").splitlines())
            values = {"id": key, "version": version, "word": f"word {version}"}
            rows += [[values[name.split("_")[0]] for name in self.columns]] * (key if key < 3 else 0)
        columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(self.types)]
        return pa.RecordBatch.from_arrays(columns, [*self.columns])

    def describe(self) -> str:
        return "a table that changes"
