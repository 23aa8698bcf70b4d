"""A file sink driven in one process as the checkpoint coordinator drives it: writers, stage, decide, commit, crash.

The state after each decision is the only thing that survives a crash here, passed through JSON as the ledger does.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.checkpoint.capabilities import SinkTime
from poundlock.checkpoint.participant import Occasion, Prepared, Writer, WriterContext
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.formats.chunk import Batch, Chunk, FileOrigin, Lines
from poundlock.formats.reject import Reject
from poundlock.values import ManualClock

__all__ = ["JOB", "FileSinkHarness", "batch", "hidden", "lines"]

JOB = "0123456789abcdef0123456789abcdef"


def lines(*rows: bytes) -> Lines:
    """Return rows as a chunk of lines."""
    data = b"".join(row + b"\n" for row in rows)
    ends = np.cumsum([len(row) + 1 for row in rows], dtype=np.int64) - 1
    return Lines(memoryview(data), ends, FileOrigin("in", ends))


def batch(**columns: Any) -> Batch:
    """Return columns as a chunk."""
    return Batch(pa.record_batch({k: v if isinstance(v, pa.Array) else pa.array(v) for k, v in columns.items()}))


class FileSinkHarness:
    """One sink, its carried state, and a clock."""

    def __init__(self, sink: FileSink, *, now_ms: int = 0) -> None:
        self.sink = sink
        self.root = Path(sink.path)
        self.clock = ManualClock(now_ms)
        self.state: dict[str, Any] = {}
        self.checkpoint = 0
        self.rejects: list[Reject] = []
        self.writers: dict[int, Writer] = {}
        self.committables: list[dict[str, Any]] = []

    def writer(self, subtask: int = 0) -> Writer:
        """Return the open writer of a subtask, opened now if there is none."""
        if subtask not in self.writers:
            context = WriterContext(
                job_id=JOB,
                sink="out",
                epoch=1,
                checkpoint=self.checkpoint,
                subtask=subtask,
                attempt=uuid.uuid4().hex,
                directive=json.loads(json.dumps(self.sink.directive(self.state))),
                reject=self.rejects.append,
                started_ms=self.clock.now_ms(),
            )
            self.writers[subtask] = self.sink.open_writer(context)
        return self.writers[subtask]

    def write(self, chunk: Chunk, subtask: int = 0) -> int:
        """Write a chunk in the running checkpoint."""
        return self.writer(subtask).write(chunk)

    def prepare(self) -> list[Prepared]:
        """End the tasks of the running checkpoint."""
        prepared = [
            Prepared("out", subtask, json.loads(json.dumps(payload)))
            for subtask, writer in self.writers.items()
            for payload in writer.prepare()
        ]
        self.writers = {}
        return prepared

    def decide(
        self,
        occasion: Occasion = Occasion.CHECKPOINT,
        prepared: Sequence[Prepared] | None = None,
        time: SinkTime | None = None,
    ) -> list[dict[str, Any]]:
        """End the checkpoint and decide it; return what it makes visible, not yet committed. `time`: how far event time has come."""
        if prepared is None:
            prepared = self.prepare()
        self.sink.verify(prepared)
        staging = self.state, prepared, occasion, self.clock.now_ms()
        staged = self.sink.stage(*staging) if time is None else self.sink.stage_at(*staging, time)
        self.state = json.loads(json.dumps(staged.state))
        self.checkpoint += 1
        found: list[dict[str, Any]] = json.loads(json.dumps(list(staged.committables)))
        self.committables += found
        return found

    def commit(self, committables: Sequence[dict[str, Any]]) -> None:
        """Make decided files visible."""
        for committable in committables:
            self.sink.commit(committable)

    def end_checkpoint(
        self, occasion: Occasion = Occasion.CHECKPOINT, time: SinkTime | None = None
    ) -> list[dict[str, Any]]:
        """Decide and commit."""
        found = self.decide(occasion, time=time)
        self.commit(found)
        return found

    def crash(self) -> None:
        """Lose the running checkpoint's tasks without a word to them."""
        self.writers = {}

    def finished(self) -> dict[str, bytes]:
        """Return the visible files, path to content."""
        return {path: (self.root / path).read_bytes() for path in self.paths() if not hidden(path)}

    def hidden(self) -> list[str]:
        """Return the hidden files."""
        return [path for path in self.paths() if hidden(path)]

    def paths(self) -> list[str]:
        """Return every file below the sink's folder."""
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file())


def hidden(path: str) -> bool:
    """Return whether readers ignore a file."""
    return path.rpartition("/")[2].startswith(".")
