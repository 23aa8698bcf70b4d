"""Formats of the user's: an encoder of rows, whose bytes stand one behind the other, and a writer of files that are written as a whole.

Both are given Arrow columns, many rows at a time. What they write is as exactly once as any other format, since where the bytes go is not theirs to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


BULK = ("parquet", "orc", "avro", "custom-bulk")
"""What formats are called of files that are written as a whole, each in one checkpoint; the last is one of the user's."""


class Encoder(ABC):
    """Rows into bytes, such as lines: Flink's `Encoder`. Files may be cut and joined between any two rows. Picklable, and without a state."""

    suffix: str = ""
    """What names of files end with."""

    @abstractmethod
    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the bytes of each row, line end included, as binary or text; null makes the row a bad record.

        Args:
            rows: the columns that are written, at least one row.
        """


class BulkWriter(Protocol):
    """One file that is being written."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows. All of them have the columns that the file was begun with."""

    def finish(self) -> None:
        """Write the rest to the file, and leave it open."""


class BulkWriterFactory(ABC):
    """Files with a begin and an end of their own: Flink's `BulkWriter.Factory`. Each is finished at a checkpoint, and never joined with another. Picklable."""

    suffix: str = ""
    """What names of files end with."""

    @abstractmethod
    def create(self, file: BinaryIO, schema: pa.Schema) -> BulkWriter:
        """Return a writer of one file.

        Args:
            file: takes bytes by `write`, and can neither be read nor moved in.
            schema: of the columns that are written.
        """
