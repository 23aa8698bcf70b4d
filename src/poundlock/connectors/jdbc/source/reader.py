"""Task's half: the rows of a SELECT as Arrow columns, over a JVM that the task's process keeps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import pyarrow as pa

from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.jdbc.bridge import Connect, Result
from poundlock.connectors.jdbc.login import JdbcLogin
from poundlock.connectors.jdbc.source.columns import JdbcColumn
from poundlock.connectors.jdbc.source.session import JdbcSession, explained
from poundlock.errors import TerminalError
from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.convert import to_records


class JdbcReader:
    """Reads the splits of one task, each over a connection of its own.

    Args:
        way: what makes connections.
        rows: how many are fetched at a time.
    """

    def __init__(self, login: JdbcLogin, way: Connect, what: str, rows: int, context: ReaderContext) -> None:
        self._login, self._way, self._what, self._rows, self._context = login, way, what, rows, context

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a split."""
        columns = [JdbcColumn(*fields) for fields in split.payload["columns"]]
        with explained(self._login, f"reading {self._what}", self._what):
            session = JdbcSession.open(self._login, self._way)
            try:
                result = session.connection.read(split.payload["select"], self._rows)
                try:
                    self._compare(result, columns)
                    for batch in result.batches([column.asked for column in columns]):
                        chunk = Batch(self._as_planned(batch, columns))
                        yield to_records(chunk) if self._context.want == "records" else chunk
                finally:
                    result.close()
            finally:
                session.close()

    def _compare(self, result: Result, columns: list[JdbcColumn]) -> None:
        """Raise TerminalError if a column has another type than when its range was planned."""
        for now, planned in zip_longest(result.columns, columns):
            if now.code != planned.code or (now.precision, now.scale) != (planned.precision, planned.scale):
                raise TerminalError(
                    f"column {planned.name!r} of {self._what} was {planned.type} when it was planned, and is {now.type}"
                    f" ({now.precision}, {now.scale}) now",
                    next="start the job again: it then reads the columns that there are",
                )

    def _as_planned(self, batch: pa.RecordBatch, columns: list[JdbcColumn]) -> pa.RecordBatch:
        values = [column.read(batch.column(i), self._what) for i, column in enumerate(columns)]
        return pa.RecordBatch.from_arrays(values, names=[column.name for column in columns])
