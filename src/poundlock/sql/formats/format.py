"""What a format is to a table: bytes of records to columns, and columns to bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of
from poundlock.sql.functions.function import BadRecord, EvaluationError
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


class RecordDecoder(Protocol):
    """Makes rows of records. Picklable."""

    @property
    def is_updating(self) -> bool:
        """Whether rows have kinds of change, in a column `ROW_KIND` behind the others."""

    @property
    def leaves_out(self) -> bool:
        """Whether each row is one record, and records without a row are left out; else a record may have several rows."""

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return rows, and of which record each is; None where each record is the row at its place.

        Args:
            records: binary; null where there is none, as of a tombstone.
            wanted: the columns of batches that are needed.

        Raises:
            TerminalError: a record does not parse, and the options do not say that it is left out.
        """


class RecordEncoder(Protocol):
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
        topic: of Kafka that records are written to; "" where there is none.
        is_key: whether it is the format of keys.
        metadata: columns that show what a record has beside its rows, named by the keys of the format; see `change_metadata.KEYS`.
    """

    table: str
    columns: tuple[FormatColumn, ...]
    zone: ZoneInfo
    topic: str = ""
    is_key: bool = False
    metadata: tuple[FormatColumn, ...] = ()


def bad_record(table: str, what: str, option: str) -> EvaluationError:
    """Return the error of a record that cannot be read.

    Args:
        what: how it begins, and what is wrong.
        option: that leaves such records out.
    """
    return BadRecord(
        f"{table}: a record cannot be read: {what}",
        next=f"mend the record, or write '{option}' = 'true' in WITH",
    )


def rows_in_order(
    parts: Sequence[tuple[pa.RecordBatch, Numbers]], records: int
) -> tuple[pa.RecordBatch, Numbers | None]:
    """Return rows in the order of their records, and of which record each is; None where each record is the row at its place.

    Args:
        parts: rows, and of which record each is, ascending; one at least.
        records: how many there are.
    """
    full = [part for part in parts if part[0].num_rows] or list(parts[:1])
    if len(full) == 1:
        ((rows, places),) = full
    else:
        every = np.concatenate([places for _, places in full])
        order = np.argsort(every, kind="stable")
        whole = pa.Table.from_batches([rows for rows, _ in full]).combine_chunks().to_batches()[0]
        rows, places = whole.take(indices_of(order)), every[order]
    return rows, None if len(places) == records else places
