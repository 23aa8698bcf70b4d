"""What a format is to a table: bytes of records to columns, and columns to bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from zoneinfo import ZoneInfo

import pyarrow as pa

from poundlock.formats.arrays import Numbers
from poundlock.sql.types import SqlType


@dataclass(frozen=True, slots=True)
class FormatColumn:
    """A column of a table that stands in the data.

    Args:
        name: as it is called there.
        column: as it is called in batches.
    """

    name: str
    column: str
    type: SqlType


class Decoder(Protocol):
    """Makes rows of records. Picklable."""

    @property
    def is_updating(self) -> bool:
        """Whether rows have kinds of change, in a column `ROW_KIND` behind the others."""

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return rows, and of which record each is; None where each record is the row at its place.

        Args:
            records: binary; null where there is none, as of a tombstone.
            wanted: the columns of batches that are needed.

        Raises:
            TerminalError: a record does not parse, and the options do not say that it is left out.
        """


class Encoder(Protocol):
    """Makes records of rows. Picklable."""

    @property
    def takes_updates(self) -> bool:
        """Whether it can write rows that are taken back."""

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return a record for each row, binary.

        Args:
            rows: the columns, and `ROW_KIND` behind them where rows change.
        """


@dataclass(frozen=True, slots=True)
class FormatContext:
    """What formats are made for.

    Args:
        table: its name, for errors.
        zone: of the session.
    """

    table: str
    columns: tuple[FormatColumn, ...]
    zone: ZoneInfo
