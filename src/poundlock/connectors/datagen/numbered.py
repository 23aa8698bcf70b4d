"""What sources of rows that are made up have in common: row i is a function of i, and a position is a number of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa

from poundlock.connectors.base import ReplayPromise


class NumberedSource(ABC):
    """A source whose rows are told by their numbers."""

    @property
    @abstractmethod
    def row_count(self) -> int | None:
        """How many rows there are; None: there is no end."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the columns of the rows."""

    @property
    def known_columns(self) -> pa.Schema:
        """The columns of the rows."""
        return self.schema()

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""
        return self.row_count is not None

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives."""
        return ReplayPromise("exact", "its position is in the decision, and a position always means the same rows")

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        return f"generated rows: {position['row']}" + (f" of {self.row_count}" if self.row_count is not None else "")
