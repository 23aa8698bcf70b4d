"""Iceberg tables of a catalog in a file of SQLite, and checkpoints of a sink taken step by step in this process."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from poundlock.checkpoint.participant import JSON, Committed, Occasion, Prepared, WriterContext
from poundlock.connectors.iceberg.sink.sink import IcebergSink
from poundlock.formats.chunk import Batch
from poundlock.formats.reject import Reject

__all__ = ["JOB", "SCHEMA", "SinkSteps", "catalog_in", "rows_of", "table_with"]

JOB = "ab" * 16
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])


def catalog_in(folder: Path) -> dict[str, str]:
    """Return the properties of a catalog whose tables are below a folder."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def table_with(
    properties: Mapping[str, str], *appended: Sequence[Mapping[str, Any]], schema: pa.Schema = SCHEMA
) -> Any:
    """Return a new table db.t into which rows were appended, a snapshot each."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("poundlock", **properties)
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table("db.t", schema=schema)
    for rows in appended:
        table.append(pa.Table.from_pylist([dict(row) for row in rows], schema=schema))
    return table


def rows_of(sink: IcebergSink, **scan: Any) -> list[dict[str, Any]]:
    """Return the rows that a reader of a sink's table sees, by their ids."""
    rows: list[dict[str, Any]] = sink.place.load().scan(**scan).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


class SinkSteps:
    """The checkpoints of a sink that a driver and its tasks would take."""

    def __init__(self, sink: IcebergSink, *, epoch: int = 1, state: JSON | None = None, job_id: str = JOB) -> None:
        self.sink: IcebergSink = sink.bind(job_id=job_id, sink="out")
        self.epoch, self.state = epoch, dict(state or {})
        self.rejects: list[Reject] = []
        self.sink.preflight()

    def write(
        self, checkpoint: int, rows: pa.RecordBatch | Sequence[Mapping[str, Any]], subtask: int = 0
    ) -> list[Prepared]:
        """Be one attempt of a task; return what it prepared."""
        batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist([dict(r) for r in rows])
        context = WriterContext(
            job_id=self.sink.job_id,
            sink="out",
            epoch=self.epoch,
            checkpoint=checkpoint,
            subtask=subtask,
            attempt=uuid.uuid4().hex[:12],
            directive=self.sink.directive(self.state),
            reject=self.rejects.append,
            started_ms=0,
        )
        writer = self.sink.open_writer(context)
        writer.write(Batch(batch))
        return [Prepared("out", subtask, payload) for payload in writer.prepare()]

    def decide(self, prepared: Sequence[Prepared]) -> JSON:
        """Verify and stage what was prepared; return what the decision makes visible."""
        self.sink.verify(prepared)
        staged = self.sink.stage(self.state, prepared, Occasion.CHECKPOINT, 0)
        self.state = dict(staged.state)
        (committable,) = staged.committables
        return dict(committable)

    def take(self, checkpoint: int, *tasks: Any) -> Committed:
        """Take a checkpoint to its end, with the rows of each task."""
        prepared = [each for n, rows in enumerate(tasks) for each in self.write(checkpoint, rows, n)]
        done = self.sink.commit(self.decide(prepared))
        assert isinstance(done, Committed)
        return done
