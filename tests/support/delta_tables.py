"""Delta tables as another reader sees them, by the SQL engine of the library, which goes by the log alone; and a sink that is driven by hand."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from poundlock import DeltaSink
from poundlock.checkpoint.participant import Occasion, Prepared, WriterContext
from poundlock.connectors.delta.loading import open_folder, open_table
from poundlock.formats.chunk import Batch
from poundlock.formats.reject import Reject

__all__ = ["SinkRig", "append", "rows_of", "table_of"]


def table_of(path: str, version: int | None = None, order: Sequence[str] = ()) -> pa.Table:
    """Return the rows of a table."""
    from deltalake import QueryBuilder

    engine = QueryBuilder().register("t", open_table(open_folder(path), version))
    by = f" ORDER BY {', '.join(order)}" if order else ""
    return pa.table(engine.execute(f"SELECT * FROM t{by}").read_all())


def rows_of(path: str, order: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the rows of a table as dicts."""
    rows: list[dict[str, Any]] = table_of(path, order=order).to_pylist()
    return rows


class SinkRig:
    """A DeltaSink as the coordinator drives it, without a ledger: tasks write, a decision is staged and committed."""

    def __init__(self, sink: DeltaSink, job_id: str = "a" * 32) -> None:
        self.sink = sink.bind(job_id=job_id, sink="out")
        self.sink.preflight()
        self.state: dict[str, Any] = {}
        self.rejects: list[Reject] = []
        self.checkpoint = 0

    def context(self, subtask: int = 0) -> WriterContext:
        return WriterContext(
            job_id=self.sink.app.split("/")[1], sink="out", epoch=1, checkpoint=self.checkpoint, subtask=subtask,
            attempt=uuid.uuid4().hex, directive=json.loads(json.dumps(self.sink.directive(self.state))),
            reject=self.rejects.append, started_ms=1_700_000_000_000,
        )  # fmt: skip

    def prepare(self, *tasks: Mapping[str, Any]) -> list[Prepared]:
        """Write each task's columns."""
        prepared = []
        for subtask, columns in enumerate(tasks):
            writer = self.sink.open_writer(self.context(subtask))
            arrays = {name: each if isinstance(each, pa.Array) else pa.array(each) for name, each in columns.items()}
            writer.write(Batch(pa.record_batch(arrays)))
            prepared += [Prepared("out", subtask, json.loads(json.dumps(each))) for each in writer.prepare()]
        return prepared

    def decide(self, *tasks: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what a decision makes visible, which is still to be committed."""
        prepared = self.prepare(*tasks)
        self.sink.verify(prepared)
        staged = self.sink.stage(self.state, prepared, Occasion.CHECKPOINT, 0)
        self.state = dict(staged.state)
        self.checkpoint += 1
        return [json.loads(json.dumps(each)) for each in staged.committables]

    def end(self, *tasks: Mapping[str, Any]) -> None:
        """Take a whole checkpoint."""
        for committable in self.decide(*tasks):
            self.sink.commit(committable)


def append(path: str, rows: pa.Table) -> None:
    """Commit rows to a table as a program that knows nothing of poundlock does; it is made where it is missing."""
    from deltalake import write_deltalake

    write_deltalake(path, rows, mode="append")
