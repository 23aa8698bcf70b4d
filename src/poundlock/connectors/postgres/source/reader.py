"""Task's half: rows of a SELECT by COPY, and changes from the slot, a few thousand at a time as Arrow columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from poundlock.connectors.base import ReaderContext, Split
from poundlock.connectors.postgres.connection import PostgresLogin
from poundlock.connectors.postgres.source.cdc_messages import parse
from poundlock.connectors.postgres.source.cdc_rows import ChangeRows, as_changes
from poundlock.connectors.postgres.source.snapshot import one_state
from poundlock.connectors.postgres.types import Column, from_csv
from poundlock.errors import SourceGoneError
from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.convert import to_records

_BLOCK = 4 << 20
_SLOT_WAIT_S = 60.0


class PostgresReader:
    """Reads the splits of one task, each over a connection of its own."""

    def __init__(
        self, login: PostgresLogin, what: str, context: ReaderContext, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._login, self._what, self._context, self._sleep = login, what, context, sleep

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a split."""
        payload = split.payload
        columns = [Column(*fields) for fields in payload["columns"]]
        batches = self._changes(payload, columns) if "changes" in payload else self._rows(payload, columns)
        for batch in batches:
            chunk = Batch(batch)
            yield to_records(chunk) if self._context.want == "records" else chunk

    def _rows(self, payload: Mapping[str, Any], columns: list[Column]) -> Iterator[pa.RecordBatch]:
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
                        yield self._batch(held, columns, payload)
                        held, size = [], 0
            if held:
                yield self._batch(held, columns, payload)

    def _batch(self, held: list[bytes], columns: list[Column], payload: Mapping[str, Any]) -> pa.RecordBatch:
        batch = from_csv(b"".join(held), columns, self._what)
        return as_changes(batch, columns, payload["lsn"]) if "lsn" in payload else batch

    def _changes(self, payload: Mapping[str, Any], columns: list[Column]) -> Iterator[pa.RecordBatch]:
        own = {name: payload[name] for name in ("oid", "declared", "whole", "start", "end")}
        rows = ChangeRows(columns=columns, full=bool(payload.get("full")), what=self._what, **own)
        with self._login.reading(f"reading changes of {self._what}") as connection:
            yield from rows.batches(parse(bytes(data)) for data in self._messages(connection, payload["changes"]))

    def _messages(self, connection: Any, function: str) -> Iterator[bytes]:
        """Yield the slot's messages. One session at a time can read a slot: the one of a dead attempt goes in a moment."""
        from psycopg.errors import ObjectInUse

        # Since version 18 the server leaves the changes out where the publication was missing, and only warns.
        missing: list[str] = []
        connection.add_notice_handler(
            lambda notice: missing.append(notice.sqlstate) if notice.sqlstate == "55000" else None
        )
        connection.execute("SET client_min_messages = warning")
        waited = 0.0
        while True:
            started = False
            try:
                for (data,) in connection.cursor().stream(f"SELECT data FROM {function}", binary=True):
                    started = True
                    yield data
                if missing:
                    raise SourceGoneError(
                        f"the publication of {self._what} was missing for a while, and changes of that time are not given",
                        next="start the job over, with an empty target, a new checkpoint and another slot",
                    )
                return
            except ObjectInUse:
                if started or waited >= _SLOT_WAIT_S:
                    raise
                self._sleep(0.5)
                waited += 0.5
