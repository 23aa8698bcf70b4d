"""A stream that Spark reads, as a source of a job: a query of Spark's stages its batches, and the job's tasks read what is staged.

The query keeps its own checkpoint in the source's workspace, and a batch of it is staged once: files of the attempt's own, then a
create-exclusive manifest under the batch's number. So a position is a number of batches, and means the same rows for ever, whatever
Spark's connector gives when it is asked twice. The query begins its next batch when the job asks for it.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import ipc

from poundlock.checkpoint.participant import JSON
from poundlock.connectors.base import ReaderContext, ReplayPromise, SparkSource, Split, replay_of
from poundlock.errors import PoundlockError, SourceGoneError, TerminalError, TransientError
from poundlock.failpoints import StreamFailpoint, hit
from poundlock.formats.chunk import Batch, NoOrigin
from poundlock.spark.foreach_batch import query_id, run_for_state
from poundlock.spark.frames import arrow_schema, map_arrow
from poundlock.spark.private import check_callbacks
from poundlock.spark.segments import apply_step
from poundlock.storage import Storage, open_storage
from poundlock.storage.json_record import parsed, read_record
from poundlock.storage.s3 import S3Storage
from poundlock.stream.nodes import Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from poundlock.spark.launch.session import Session


_QUERY = "query"
_BATCHES = "batches"
_POLL_S = 0.02
_PATIENCE_S = 30.0
_RESTORE = "restore that folder, or begin again in another checkpoint_dir"
_MANIFEST = re.compile(r"([0-9]{12})\.json")


def stream_source(name: str, source: SparkSource, steps: Sequence[Node], session: Session) -> StreamSource:
    """Return a stream of Spark's as a source whose tasks read what its query staged.

    Raises:
        DefinitionError: a column is of a type that tasks do not know.
        AnalysisException: Spark does not know the format, or a column is not there.
    """
    read = source.spark_read()
    reader = session.sql.readStream.format(read.format).options(**read.options)
    if read.schema is not None:
        reader = reader.schema(read.schema)
    frame = reader.load()
    if read.columns is not None:
        frame = frame.selectExpr(*read.columns)
    for node in steps:
        frame = apply_step(node, [frame], streaming=True)
    return StreamSource(name, source, arrow_schema(frame, name), frame)


@dataclass(frozen=True)
class StreamSource:
    """A stream of Spark's, read by way of staged batches; a task has no frame."""

    name: str
    source: SparkSource
    columns: pa.Schema
    frame: DataFrame | None

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels to tasks: nothing of Spark's."""
        return {**self.__dict__, "frame": None}

    @property
    def bounded(self) -> bool:
        return self.source.bounded

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives."""
        return replay_of(self.source)

    def schema(self) -> pa.Schema:
        return self.columns

    def preflight(self) -> None:
        """Do nothing: that was done with the source."""

    def enumerator(self, workspace: Storage) -> StreamEnumerator:
        assert self.frame is not None
        return StreamEnumerator(self.name, self.frame, self.columns, workspace, bounded=self.bounded)

    def reader(self, context: ReaderContext) -> _StagedReader:
        return _StagedReader(self.name, context)

    def describe(self, position: JSON) -> str:
        return self.source.describe(position)


class StreamEnumerator:
    """Driver's half: runs the query, and knows which of its batches are staged; both are kept in the workspace."""

    def __init__(self, name: str, frame: DataFrame, columns: pa.Schema, workspace: Storage, *, bounded: bool) -> None:
        self._name, self._frame, self._columns = name, frame, columns
        self._workspace, self._bounded = workspace, bounded
        self._changed = threading.Condition()
        self._query: Any = None
        self._staged = 0
        """The first batch that is not staged."""
        self._wanted = 0
        """The first batch that is not asked for: the query waits behind the one before it."""
        self._stopping = False
        self._staging = False
        self._ended = False
        self._failure: Exception | None = None

    # --- what the planner asks ---------------------------------------------------------------------------------------

    def initial(self) -> JSON:
        """Return the position before the first batch."""
        return {"batch": 0}

    def latest(self, start: JSON) -> JSON:
        """Return the position behind the next batch, once it is staged; `start` if Spark has nothing new."""
        first = int(start["batch"])
        if self._query is None and not self._ended:
            self._start(first)
        # What is all there already is staged one batch ahead; else a batch has all rows up to when it was asked for.
        self._want(first + 1 if self._bounded else first)
        deadline = time.monotonic() + _PATIENCE_S
        while self._staged <= first and not self._ended and time.monotonic() < deadline:
            if self._is_idle():
                break
            with self._changed:
                self._changed.wait(_POLL_S)
        return {"batch": first + 1} if self._staged > first else start

    def splits(self, start: JSON, end: JSON) -> Sequence[Split]:
        """Return the staged files between two positions."""
        splits = []
        for batch in range(int(start["batch"]), int(end["batch"])):
            for i, file in enumerate(self._manifest(batch)["files"]):
                payload = {"root": self._workspace.root, **file}
                splits.append(Split(f"{batch:012d}-{i:06d}", payload, file["rows"], file["bytes"], f"batch {batch}"))
        return splits

    def finished(self, position: JSON) -> bool:
        """Return whether the query has ended and all its batches were read."""
        return self._ended and int(position["batch"]) >= self._staged

    def committed(self, position: JSON) -> None:
        """Remove what was staged, but for the newest batch: a part of it may be produced once more."""
        for name in self._workspace.names(_BATCHES):
            number = name[:12]
            if number.isdigit() and int(number) < int(position["batch"]) - 1:
                self._workspace.delete(f"{_BATCHES}/{name}")

    def check_range(self, start: JSON, end: JSON, identity: Any) -> None:
        """Raise SourceGoneError where a batch is not staged any more."""
        for batch in range(int(start["batch"]), int(end["batch"])):
            self._manifest(batch)

    def pause(self) -> None:
        """End the query between two batches, so that its checkpoint can be copied; the next `latest` starts it again.

        A batch that is being staged is waited for: its tasks may hold state of Spark's that the next start needs.
        """
        query, self._query = self._query, None
        if query is None:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            ended = self._changed.wait_for(lambda: not self._staging, _PATIENCE_S)
        try:
            query.stop()
            if not ended:
                raise TransientError(f"a batch of source {self._name} does not end", next="try again when it has")
        finally:
            self._stopping = False

    def close(self) -> None:
        with suppress(Exception):  # the JVM may be gone
            self.pause()

    # --- the query ---------------------------------------------------------------------------------------------------

    def _start(self, first: int) -> None:
        check_callbacks()
        matches = (_MANIFEST.fullmatch(name) for name in self._workspace.names(_BATCHES))
        numbers = {int(match[1]) for match in matches if match}
        self._staged = first
        while self._staged in numbers:
            self._staged += 1
        self._failure = None
        writer = self._frame.writeStream.foreachBatch(self._stage).queryName(f"{self._name}-{secrets.token_hex(4)}")
        writer = writer.option("checkpointLocation", f"{_hadoop_path(self._workspace)}/{_QUERY}")
        if self._bounded:
            writer = writer.trigger(availableNow=True)
        self._query = writer.start()

    def _want(self, batch: int) -> None:
        with self._changed:
            self._wanted = max(self._wanted, batch)
            self._changed.notify_all()

    def _is_idle(self) -> bool:
        """Return whether the query has looked for rows since it was asked, and there were none. Raises what it failed with."""
        query = self._query
        if not query.isActive:
            self._query = None
            failed = self._failure or query.exception()
            if failed is not None:
                raise failed
            if not self._bounded:
                raise TransientError(f"the query that reads {self._name} was stopped", next="start the job again")
            self._ended = True
            return True
        status = query.status
        looking = status["isTriggerActive"] or status["isDataAvailable"]
        return not looking and not str(status["message"]).startswith("Initializing")

    def _stage(self, frame: DataFrame, batch: int) -> None:
        """Stage a batch, then wait until the job asks for the next one. Idempotent by the batch's number."""
        with self._changed:
            self._staging = True
        try:
            if not self._stopping:
                self._check(frame, batch)
                if batch == self._staged:
                    self._write(frame, batch)
                    hit(StreamFailpoint.STAGED)
                    self._staged = batch + 1
                else:
                    run_for_state(frame)
        except Exception as error:
            if isinstance(error, PoundlockError):
                self._failure = error
            raise
        finally:
            with self._changed:
                self._staging = False
                self._changed.notify_all()
        with self._changed:
            self._changed.wait_for(lambda: self._wanted > batch or self._stopping)
        if self._stopping:
            raise InterruptedError("the query is stopped")  # Spark delivers this batch again, and it is staged already

    def _check(self, frame: DataFrame, batch: int) -> None:
        """Raise SourceGoneError unless the batch is the next one, or the newest that was staged, of the same query."""
        query = query_id(frame)
        known = self._workspace_query(query)
        if query == known and batch in (self._staged - 1, self._staged):
            return
        raise SourceGoneError(
            f"source {self._name}: Spark's checkpoint in {self._workspace.root}/{_QUERY} does not go on behind batch"
            f" {self._staged - 1}, it begins with batch {batch}",
            next=_RESTORE,
        )

    def _workspace_query(self, query: str) -> str:
        """Return the id of the query that this source is read by; the first one is kept."""
        if self._workspace.create_exclusive("query.json", json.dumps({"v": 1, "query": query}).encode()):
            return query
        known = read_record(self._workspace, "query.json", parsed(dict[str, Any]), next=_RESTORE)
        return "" if known is None else str(known.get("query"))

    def _write(self, frame: DataFrame, batch: int) -> None:
        context = frame.sparkSession.sparkContext
        context.setJobDescription(f"{self._name}: batch {batch}, staged")
        prefix = f"{_BATCHES}/{batch:012d}-{secrets.token_hex(6)}"
        task = partial(_stage_rows, root=self._workspace.root, prefix=prefix, schema=self._columns)
        rows = map_arrow(frame, task, "path string, rows long, bytes long").collect()
        hit(StreamFailpoint.WRITTEN)
        files = [{"path": row[0], "rows": row[1], "bytes": row[2]} for row in sorted(rows)]
        text = json.dumps({"v": 1, "files": files}).encode()
        self._workspace.create_exclusive(f"{_BATCHES}/{batch:012d}.json", text)

    def _manifest(self, batch: int) -> dict[str, Any]:
        staged = read_record(self._workspace, f"{_BATCHES}/{batch:012d}.json", parsed(dict[str, Any]), next=_RESTORE)
        if staged is None:
            raise SourceGoneError(
                f"batch {batch} of source {self._name} is not in {self._workspace.root}/{_BATCHES} any more",
                next="a batch of a SparkSource can be read until it is committed, not once more",
            )
        return staged


class _StagedReader:
    """Task's half: reads staged files."""

    def __init__(self, name: str, context: ReaderContext) -> None:
        self._origin, self._context = NoOrigin(name), context

    def read(self, split: Split) -> Iterator[Batch]:
        """Yield the rows of a file."""
        path, rows = split.payload["path"], 0
        try:
            with open_storage(split.payload["root"]).open(path) as handle, ipc.open_stream(handle) as batches:
                for batch in batches:
                    rows += batch.num_rows
                    columns = self._context.columns
                    yield Batch(batch if columns is None else batch.select(list(columns)), self._origin)
        except pa.ArrowInvalid as error:
            raise self._damaged(split, str(error)) from error
        if rows != split.payload["rows"]:
            raise self._damaged(split, f"{rows:,} rows instead of {split.payload['rows']:,}")

    def _damaged(self, split: Split, why: str) -> TerminalError:
        place = f"{split.payload['root']}/{split.payload['path']}"
        return TerminalError(f"staged file {place} is damaged: {why}", next="start again from a savepoint")


def _hadoop_path(storage: Storage) -> str:
    """Return a folder as Hadoop's clients write it."""
    return f"s3a://{storage.root.removeprefix('s3://')}" if isinstance(storage, S3Storage) else storage.root


def _stage_rows(
    batches: Iterator[pa.RecordBatch], *, root: str, prefix: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Write the rows of one partition to a file of this attempt's own; yield its path, rows and bytes, nothing without rows."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    path = f"{prefix}-{secrets.token_hex(6)}.arrow"
    storage = open_storage(root)
    rows = 0
    with storage.write(path) as handle:
        options = ipc.IpcWriteOptions(compression="lz4")
        with ipc.new_stream(handle, schema, options=options) as writer:
            for batch in chain([first], filled):
                writer.write_batch(batch.cast(schema))
                rows += batch.num_rows
        hit(StreamFailpoint.WRITING)
        storage.sync(handle)
    entry = storage.stat(path)
    size = 0 if entry is None else entry.bytes
    yield pa.RecordBatch.from_pydict({"path": [path], "rows": [rows], "bytes": [size]})
