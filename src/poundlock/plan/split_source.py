"""A split-planned source as a Spark Python data source: the enumerator plans in one process, readers run in the tasks.

Fused, the task does the whole stage inside `read` and Spark sees only what was prepared; otherwise Spark sees the rows.
The position is the Spark offset, so that a replay plans the same splits.
"""

from __future__ import annotations

import base64
import heapq
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from poundlock.connectors.base import ReaderContext, Split, SplitSource
from poundlock.formats.chunk import Chunk
from poundlock.formats.reject import Reject
from poundlock.plan.rows import BAD, arrow_rows, record_batch
from poundlock.plan.stage import PROPERTY, Stage, TaskIdentity
from poundlock.storage.base import Storage

__all__ = ["FORMAT", "SplitDataSource", "SplitSpec", "directive_of_task"]

FORMAT = "poundlock"


@dataclass(frozen=True)
class SplitSpec:
    """All the data source knows; travels pickled in its one option.

    Args:
        name: of the source in the job.
        source: the user's source.
        workspace: durable folder of this source in the job's checkpoint.
        parallelism: greatest number of tasks.
        ddl: Spark schema of the rows, hidden columns included.
        stage: the whole stage where fused, else None.
        want: the form of rows the next step works on, "batch" or "records".
    """

    name: str
    source: SplitSource
    workspace: Storage
    parallelism: int
    ddl: str
    stage: Stage | None
    want: Literal["batch", "records"] = "batch"

    def option(self) -> str:
        """Return the text for the data source's option."""
        packed: bytes = cloudpickle.dumps(self)  # type: ignore[no-untyped-call]
        return base64.b64encode(packed).decode("ascii")


def directive_of_task() -> dict[str, Any]:
    """Return what the driver says of the checkpoint this task belongs to."""
    context = TaskContext.get()
    text = context.getLocalProperty(PROPERTY) if context is not None else None
    if text is None:
        raise RuntimeError("this plan was started outside a poundlock job")
    directive: dict[str, Any] = json.loads(text)
    return directive


def task_identity() -> TaskIdentity:
    """Return the identity of this attempt."""
    context = TaskContext.get()
    return TaskIdentity.of(context.partitionId() if context is not None else 0)


class SplitDataSource(DataSource):
    """Spark's entry; made by name with the pickled spec as option."""

    def __init__(self, options: Any) -> None:
        self.spec: SplitSpec = cloudpickle.loads(base64.b64decode(options["spec"]))

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return self.spec.ddl

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return SplitStreamReader(self.spec)


class SplitStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans with the source's enumerator; reads one task's splits."""

    def __init__(self, spec: SplitSpec) -> None:
        self.spec = spec
        self._enumerator: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"spec": self.spec, "_enumerator": None}

    @property
    def enumerator(self) -> Any:
        """The driver's half, made on first use: only the planning process has one."""
        if self._enumerator is None:
            self._enumerator = self.spec.source.enumerator(self.spec.workspace)
        return self._enumerator

    def initialOffset(self) -> dict[str, Any]:
        return dict(self.enumerator.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: a bounded job ends when the enumerator says so."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return dict(self.enumerator.latest(start))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        splits = self.enumerator.splits(start, end)
        return [InputPartition(group) for group in spread(splits, self.spec.parallelism)]

    def commit(self, end: dict[str, Any]) -> None:
        self.enumerator.committed(end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        splits: Sequence[Split] = partition.value
        if self.spec.stage is not None:
            texts = list(self.spec.stage.run(self._reading(splits), directive_of_task(), task_identity()))
            if texts:
                yield record_batch(texts)
            return
        bad: list[Reject] = []
        chunks = self._reading(splits)(bad.append)
        yield from arrow_rows(chunks, self.spec.source.schema(), [BAD], bad, self.spec.name)

    def _reading(self, splits: Sequence[Split]) -> Callable[[Callable[[Reject], None]], Iterator[Chunk]]:
        def read(reject: Callable[[Reject], None]) -> Iterator[Chunk]:
            reader = self.spec.source.reader(ReaderContext(reject=reject, want=self.spec.want))
            for split in splits:
                yield from reader.read(split)

        return read


def spread(splits: Sequence[Split], tasks: int) -> list[list[Split]]:
    """Return the splits in at most so many groups of about equal weight; the same for the same splits."""
    count = min(tasks, len(splits))
    groups: list[list[Split]] = [[] for _ in range(count)]
    heap = [(0, i) for i in range(count)]
    for split in sorted(splits, key=lambda s: (-s.weight, s.id)):
        weight, i = heapq.heappop(heap)
        groups[i].append(split)
        heapq.heappush(heap, (weight + split.weight, i))
    return [sorted(group, key=lambda s: s.id) for group in groups]
