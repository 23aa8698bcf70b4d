"""The two kinds of source. A split-planned source is read by our own readers in the tasks; a Spark source by a query of Spark's.

Positions are plain JSON, so that the ledger, savepoints and log lines show them alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.checkpoint.participant import JSON
    from poundlock.formats.chunk import Chunk
    from poundlock.storage.base import Storage


@dataclass(frozen=True, slots=True)
class Split:
    """One piece of work for one task.

    Args:
        id: unique within the source, the same on every replay.
        payload: JSON that the reader understands.
        weight: how much work it is, in bytes or rows; used to spread splits evenly over tasks.
        bytes: how much is read for it at the source; None where that is not known.
        name: what people know it by; "" = its id. Splits of one name are pieces of one partition, and share its event time.
    """

    id: str
    payload: Mapping[str, Any]
    weight: int = 1
    bytes: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """What a reader knows about its task. `reject` takes a record that cannot be decoded."""

    reject: Any  # Callable[[Reject], None]
    columns: Sequence[str] | None = None  # the columns that are needed; None = all
    want: Literal["batch", "records"] = "batch"  # the form the next step works on; a reader may ignore it
    straight: bool = False  # whether the next step makes objects of records, see ObjectSource; a reader may ignore it

    @property
    def form(self) -> Literal["batch", "records", "objects"]:
        """The form that a decoder is asked for."""
        return "objects" if self.straight and self.want == "records" else self.want


@runtime_checkable
class ObjectSource(Protocol):
    """A source whose readers may decode to objects, where no step behind it looks at a dict."""

    @property
    def decodes_objects(self) -> bool:
        """Whether they do."""


class Enumerator(Protocol):
    """Driver's half of a split-planned source. Lives in one process; what it must remember it keeps in its workspace."""

    def initial(self) -> JSON:
        """Return the position before the first record."""

    def latest(self, start: JSON) -> JSON:
        """Return how far the next checkpoint may read from `start`: at most the source's own limit per checkpoint. `start` if nothing is new."""

    def splits(self, start: JSON, end: JSON) -> Sequence[Split]:
        """Return the work between two positions. A pure function of them and the workspace, so that a replay plans the same."""

    def finished(self, position: JSON) -> bool:
        """Return whether nothing can come after this position (bounded input is read to its end)."""

    def committed(self, position: JSON) -> None:
        """Take note that everything before this position is decided and committed; what follows may be planned already. Idempotent."""


@runtime_checkable
class PartitionedEnumerator(Protocol):
    """An enumerator whose source has partitions that can be held back one by one, as watermark alignment does.

    A partition's name is also the `Split.name` of all its splits, and stays the same for the life of a job. To hold a partition
    back is a wish of one call: nothing is remembered of it.
    """

    def partitions(self, position: JSON) -> Sequence[str]:
        """Return the names of the partitions that are read from a position on, in order. Asks nobody; may be called often."""

    def latest(self, start: JSON, held: Collection[str] = ()) -> JSON:
        """Return how far the next checkpoint may read, as `Enumerator.latest` does.

        Args:
            start: the newest decided position.
            held: names of partitions that are to stay where they are; what the limit of a checkpoint allows goes to the
                others. Names that are not known change nothing.
        """


@runtime_checkable
class IdentifyingEnumerator(Protocol):
    """An enumerator that can tell whether the data behind a position is still the data that was read before."""

    def identity(self, start: JSON, end: JSON, previous: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what names the very data of a range, such as topic ids: JSON, kept in the decision beside the range.

        Called twice for a checkpoint: before its tasks run, so that nothing is read of data that is not the same, and after
        they ran and before the decision, so that nothing of it is committed. Must ask the system each time, and answer alike if
        nothing has changed.

        Args:
            start, end: the range.
            previous: what it returned for the newest decision; {} if there is none.

        Raises:
            SourceGoneError: the data is not what `previous` names.
            TransientError: the system does not answer.
        """


@runtime_checkable
class RangeCheckingEnumerator(Protocol):
    """An enumerator that can tell whether a range that was decided long ago can be read once more, as a replay does."""

    def check_range(self, start: JSON, end: JSON, identity: Mapping[str, Any]) -> None:
        """Raise SourceGoneError unless all records of a range are still there, and are those that were read.

        Args:
            start, end: the range, as the decision has it.
            identity: what `IdentifyingEnumerator.identity` returned for that decision; {} if there is none.
        """


@runtime_checkable
class LagReportingEnumerator(Protocol):
    """An enumerator that knows how much waits."""

    def lag(self, position: JSON) -> int | None:
        """Return how many records wait behind a position, None if it is not known.

        May be called about once a second, also beside the other methods; takes 2 s at most and raises nothing.
        """


@runtime_checkable
class PartitionLagEnumerator(LagReportingEnumerator, Protocol):
    """One that knows it by partition, too."""

    def partition_lags(self, position: JSON) -> Mapping[str, int]:
        """Return how many records wait behind a position in each partition, as far as `lag` has learnt it; asks nobody, and is quick."""


@dataclass(slots=True)
class PartitionRead:
    """What was read of a partition: the weight of its splits, and how many bytes the values of its records had."""

    weight: int = 0
    bytes: int = 0

    def add(self, other: PartitionRead) -> None:
        """Add what was read in other splits."""
        self.weight += other.weight
        self.bytes += other.bytes


@runtime_checkable
class MeasuringEnumerator(Protocol):
    """An enumerator that plans by how wide records were, of a source whose readers count bytes, see `MeteredReader`."""

    def measured(self, sizes: Mapping[str, PartitionRead]) -> None:
        """Take note of what the tasks of a checkpoint read of each partition, by the name of its splits; before the next `latest`.

        Called for the checkpoints of this start alone. What it remembers must not grow with checkpoints.
        """


@runtime_checkable
class ClosableEnumerator(Protocol):
    """An enumerator that holds something, such as a connection."""

    def close(self) -> None:
        """Release what it holds. Called once, at the end of the start, whatever the outcome."""


@runtime_checkable
class PausableEnumerator(Protocol):
    """An enumerator that writes into its workspace beside the checkpoints, as a streaming query does."""

    def pause(self) -> None:
        """Leave the workspace alone until the next `latest`, so that a savepoint can copy it."""


@runtime_checkable
class PreviewRefused(Protocol):
    """A source that may not be read just to look at it: reading makes, or moves, something on the server."""

    def refuse_preview(self) -> None:
        """Raise DefinitionError if that is so as the source is configured."""


@runtime_checkable
class ExplainsErrors(Protocol):
    """A source that knows what errors of its connector mean."""

    def explain_error(self, message: str) -> Exception | None:
        """Return a PoundlockError for an error text that this source knows, or None."""


@runtime_checkable
class TaskPerPartition(Protocol):
    """A source that can have one task read a partition's whole part of a checkpoint, where a sink asks for that."""

    def read_twice(self, other: object) -> str | None:
        """Return the name of partitions that another source, or this one once more, reads as well; None if there are none."""


@runtime_checkable
class PositionChecking(Protocol):
    """A source that can tell a position it could have had from one that it could not, for savepoints that people edit."""

    def check_position(self, position: JSON, workspace: Storage) -> None:
        """Raise DefinitionError unless the source can be read from a position on. Asks nobody; nothing is changed.

        Args:
            position: what a person wrote; of the form of the one that was there.
            workspace: the source's folder in the savepoint.
        """


class Reader(Protocol):
    """Task's half of a split-planned source."""

    def read(self, split: Split) -> Iterator[Chunk]:
        """Yield the rows of a split. The same split gives the same rows. Bad records go to `context.reject` and are counted as read."""


@runtime_checkable
class MeteredReader(Protocol):
    """A reader of splits whose `Split.bytes` is not known beforehand: it counts while it reads."""

    @property
    def bytes_read(self) -> int:
        """How many bytes the values of all records had that it read since it was made, bad records included."""


@runtime_checkable
class SplitSource(Protocol):
    """A source our own readers read. A frozen dataclass the user makes; picklable."""

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""

    def schema(self) -> pa.Schema:
        """Return the columns of the rows. Chunks of `Lines` count as one binary column `value`."""

    def preflight(self) -> None:
        """Raise DefinitionError, within 5 s, if the source cannot be read as it is described."""

    def enumerator(self, workspace: Storage) -> Enumerator:
        """Return the driver's half. `workspace` is a durable folder of this source within the job's checkpoint."""

    def reader(self, context: ReaderContext) -> Reader:
        """Return the task's half."""

    def describe(self, position: JSON) -> str:
        """Return a position for the log, as Flink prints restored state."""


@dataclass(frozen=True, slots=True)
class SparkRead:
    """How Spark reads a source: `spark.readStream.format(format).options(**options).load()`, then `.selectExpr(*columns)` where given."""

    format: str
    options: Mapping[str, str]
    columns: Sequence[str] | None = None
    schema: str | None = None


@runtime_checkable
class SparkSource(ExplainsErrors, Protocol):
    """A source that a streaming query of Spark's reads, by one of Spark's connectors."""

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""

    def preflight(self) -> None:
        """Raise DefinitionError, within 5 s, if the source cannot be read as it is described."""

    def spark_read(self) -> SparkRead:
        """Return how Spark reads it."""

    def describe(self, position: JSON) -> str:
        """Return a position, a number of batches, for the log."""


@runtime_checkable
class BindableSource(Protocol):
    """A source that wants to know for whom it reads. The driver binds it once per start and uses what it gets."""

    def bind(self, *, job: str, name: str, previous: Mapping[str, Any] | None = None) -> SplitSource:
        """Return the source for one start.

        Args:
            job: name of the job.
            name: name of the source in the job.
            previous: the identity in the newest decision that names this source; None on a first start.
        """


ReplayKind = Literal["exact", "if-unchanged", "redelivered", "received-once", "unknown"]


@dataclass(frozen=True, slots=True)
class ReplayPromise:
    """What a second reading of a range gives.

    Args:
        kind: "exact": the same rows, or an error that names the range, whatever happens at the other system in between;
            "if-unchanged": the same rows as long as nobody changes what was written there before, and the source does not notice
            if somebody does; "redelivered": the same rows, but what was not acknowledged when the driver died is delivered a
            second time, and is then read as further rows; "received-once": what was received comes again, and what was on its way when the driver
            died is lost; "unknown": nobody knows.
        reason: one clause that says why, for people; it follows the name of the source in `explain`.
    """

    kind: ReplayKind
    reason: str


@runtime_checkable
class DeclaresReplay(Protocol):
    """A source that says what a second reading of a range gives."""

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives. A pure function of the source's arguments; asks no server."""


UNDECLARED = ReplayPromise("unknown", "it does not declare what a range gives when it is read again")


def replay_of(source: object) -> ReplayPromise:
    """Return what a source declares; a promise of the kind "unknown" if it declares nothing."""
    return source.replay if isinstance(source, DeclaresReplay) else UNDECLARED
