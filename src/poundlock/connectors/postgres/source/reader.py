"""Task's half: rows of a SELECT by COPY, a few thousand at a time as Arrow columns; changes and chunks by another reader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.postgres.connection import PostgresLogin
from poundlock.connectors.postgres.source.cdc_reader import CdcReader
from poundlock.connectors.postgres.source.states import one_state
from poundlock.connectors.postgres.source.work import work_of
from poundlock.connectors.postgres.types import Column, from_csv
from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.convert import to_records

_BLOCK = 4 << 20


class PostgresReader:
    """Reads the splits of one task, each over a connection of its own."""

    def __init__(
        self, login: PostgresLogin, what: str, context: ReaderContext, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._login, self._what, self._context = login, what, context
        self._changes = CdcReader(login, what, sleep)

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a split."""
        payload = split.payload
        batches = self._changes.batches(work_of(payload)) if "type" in payload else self._rows(payload)
        for batch in batches:
            chunk = Batch(batch)
            yield to_records(chunk) if self._context.want == "records" else chunk

    def _rows(self, payload: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        columns = [Column(*fields) for fields in payload["columns"]]
        with self._login.reading(f"reading {self._what}") as connection:
            if "snapshot" in payload:
                for statement in one_state(payload["snapshot"]):
                    connection.execute(statement)
            held: list[bytes] = []
            size = 0
            with connection.cursor().copy(f"COPY ({payload['select']}) TO STDOUT (FORMAT csv)") as copy:
                for row in copy:  # one message of the protocol is one row
                    held.append(row)
                    size += len(row)
                    if size >= _BLOCK:
                        yield from_csv(b"".join(held), columns, self._what)
                        held, size = [], 0
            if held:
                yield from_csv(b"".join(held), columns, self._what)
