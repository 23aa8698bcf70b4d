"""What a sink or source may offer beside what each must have: declared here, and asked for by `isinstance`, never by an attribute's name.

Whatever lacks one of these works all the same. What is declared is held to its contract by the conformance suites.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from poundlock.arguments import check_object
from poundlock.checkpoint.participant import (
    JSON,
    CommitOutcome,
    Finding,
    Leftover,
    Occasion,
    Participant,
    Prepared,
    Staged,
)

if TYPE_CHECKING:
    import pyarrow as pa


# --- before a job starts, and when it has ended ------------------------------------------------------------------------


@runtime_checkable
class Preflight(Protocol):
    """It can be asked whether it can work."""

    def preflight(self) -> None:
        """Raise DefinitionError, with what to change, if it cannot; TransientError if nobody answers. Takes some seconds at most."""


@runtime_checkable
class LimitsTasks(Protocol):
    """A sink whose system takes only so many tasks at once."""

    def check_tasks(self, tasks: int, sinks: int) -> None:
        """Raise DefinitionError unless it takes so many tasks, of so many sinks that limit them."""


def check_tasks(sinks: Mapping[str, Any], tasks: int) -> None:
    """Raise DefinitionError unless each of a job's sinks takes so many tasks."""
    limited = [sink for sink in sinks.values() if isinstance(sink, LimitsTasks)]
    for sink in limited:
        sink.check_tasks(tasks, len(limited))


@runtime_checkable
class Closable(Protocol):
    """It holds something in the driver, such as a connection."""

    def close(self) -> None:
        """Release it. Called when a job has ended; what is called afterwards makes it again."""


@runtime_checkable
class Describable(Protocol):
    """A sink that has a line for `explain`."""

    def describe(self) -> str:
        """Return the line. What stands before the first " (" names the sink."""


@runtime_checkable
class HasPlace(Protocol):
    """A source that says for `explain` what it reads."""

    @property
    def place(self) -> str:
        """Such as a folder or topics; "" = nothing to be named."""


@runtime_checkable
class KnowsColumns(Protocol):
    """A source that can say which columns it gives before anything is asked."""

    @property
    def known_columns(self) -> pa.Schema | None:
        """The columns, as `schema()` gives them; None where only files or a server know."""


@runtime_checkable
class NeedsJvm(Protocol):
    """A sink whose driver half calls Java, or a source whose driver and tasks do."""

    @property
    def jvm(self) -> bool:
        """Whether it does."""


@runtime_checkable
class TaskModules(Protocol):
    """Its tasks import what need not be installed together with poundlock."""

    @property
    def task_modules(self) -> Sequence[str]:
        """The modules."""


@runtime_checkable
class TaskFolders(Protocol):
    """Its tasks work in folders that the driver has to see as well."""

    @property
    def task_folders(self) -> Sequence[str]:
        """The folders."""


# --- the rows that a sink is given -------------------------------------------------------------------------------------


@runtime_checkable
class TakesColumns(Protocol):
    """A sink that works on columns."""

    @property
    def bulk(self) -> bool:
        """Whether its writers are to get no records as dicts."""


def takes_columns(sink: object) -> bool:
    """Return whether a sink's writers are to get no records as dicts."""
    return isinstance(sink, TakesColumns) and sink.bulk


@runtime_checkable
class ReadsOnlyValue(Protocol):
    """A sink that may read nothing but the bytes of the column `value`."""

    @property
    def needs_only_value(self) -> bool:
        """Whether it does so as it is configured; sources then decode no more than that."""


@runtime_checkable
class ComputesColumns(Protocol):
    """A sink that wants columns computed by Spark SQL in front of it."""

    @property
    def computed_columns(self) -> Mapping[str, str]:
        """Column name to expression."""


@runtime_checkable
class ChecksColumns(Protocol):
    """A sink that can refuse rows by their columns before anything runs."""

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows with these columns can be written by the sink of this name."""


@runtime_checkable
class ChecksSchema(Protocol):
    """A sink that can refuse rows by the types of their columns before anything runs."""

    def check_schema(self, sink: str, schema: pa.Schema) -> None:
        """Raise DefinitionError unless rows of these types can be written by the sink of this name."""


def check_rows(sink: object, name: str, schema: pa.Schema) -> None:
    """Raise DefinitionError if a sink refuses rows with these columns, or of these types."""
    if isinstance(sink, ChecksColumns):
        sink.check_columns(name, list(schema.names))
    if isinstance(sink, ChecksSchema):
        sink.check_schema(name, schema)


# --- what tasks write, and how it is committed -------------------------------------------------------------------------


@runtime_checkable
class MakesParticipant(Protocol):
    """What a user gives to `sink_to` and something else takes part in checkpoints for."""

    def as_participant(self) -> Participant:
        """Return what does."""


def participant_of(sink: Any) -> Any:
    """Return what takes part in checkpoints for a sink: mostly itself. Raises DefinitionError where it is no sink."""
    check_object(sink, "sink", (Participant, MakesParticipant), "give a FileSink, KafkaSink, PostgresSink or your own")
    return sink.as_participant() if isinstance(sink, MakesParticipant) else sink


@runtime_checkable
class HoldsReaders(Participant, Protocol):
    """A sink whose open transactions hold up those who read its system."""

    @property
    def holds_readers(self) -> bool:
        """Whether they do; those of a dead job are then aborted when another goes on from its checkpoint."""


@runtime_checkable
class LimitedWriter(Protocol):
    """A writer that wants no more than so many rows."""

    @property
    def full(self) -> bool:
        """Whether further rows would be of no use: a task that has only such writers stops reading."""


@runtime_checkable
class OpensEarly(Protocol):
    """A sink whose writers begin something in the background that takes a while, such as a transaction."""

    @property
    def opens_early(self) -> bool:
        """Whether a task opens its writer before it has a row for it; one that gets none prepares nothing."""


def opens_early(participant: Participant) -> bool:
    """Return whether a task opens a participant's writer before it has a row for it."""
    return isinstance(participant, OpensEarly) and participant.opens_early


@runtime_checkable
class CommitsMany(Protocol):
    """A participant that commits many committables at once, faster than one by one. It may be called from any thread."""

    @abstractmethod
    def commit_many(self, committables: Iterable[JSON]) -> Iterator[CommitOutcome]:
        """Commit all of them, as `commit` does each, and yield an outcome for each in the same order.

        What `commit` would raise is yielded: a failure of one must not keep another from becoming visible. The committables
        are made as they are asked for, so do not ask for all before the first is begun where there may be very many.
        """


@runtime_checkable
class AbortsMany(Protocol):
    """A participant that aborts many at once, faster than one by one."""

    @abstractmethod
    def abort_many(self, prepared: Iterable[Prepared]) -> Iterator[Exception | None]:
        """Abort all of them, as `abort` does each, and yield what that would raise, or None, in the same order.

        A failure of one must not keep another from being removed.
        """


@runtime_checkable
class SweepsMany(Protocol):
    """A participant whose leftovers may be found by the driver and removed by any process, where there are very many."""

    @abstractmethod
    def leftovers(self, state: JSON) -> Sequence[Leftover]:
        """Return what `sweep` would remove. Nobody may need it later: names are unique to their attempt."""

    @abstractmethod
    def remove(self, leftovers: Sequence[Leftover]) -> None:
        """Remove all of them; what is gone is no error. Raises what the first that stays does."""


@runtime_checkable
class InTasks(Protocol):
    """A participant that tasks may commit, abort and verify for, where there is so much of it that the driver would be in the way."""

    @abstractmethod
    def pieces(self, calls: int) -> int:
        """Return into how many pieces so many calls are best cut, a task each; 1 = the driver is as quick by itself."""


@runtime_checkable
class CommitsBehind(Protocol):
    """A participant some of whose committables say that the others of their decision are visible."""

    @abstractmethod
    def comes_behind(self, committable: JSON) -> bool:
        """Return whether it is committed, by the driver, only when all the others of the participant's part of the decision are."""


@dataclass(frozen=True, slots=True)
class SinkTime:
    """How far event time has come behind a checkpoint, for the rows that a sink is given.

    Args:
        watermark: ms; None = none yet. Behind the end of the input 2^63 - 1.
        ended: whether nothing can come any more.
    """

    watermark: int | None = None
    ended: bool = False


@runtime_checkable
class FollowsTime(Protocol):
    """A participant for which it counts how far event time has come, such as one that commits partitions that are complete."""

    @property
    @abstractmethod
    def needs_event_time(self) -> bool:
        """Whether it waits for a watermark, set up as it is."""

    @abstractmethod
    def stage_at(
        self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int, time: SinkTime
    ) -> Staged:
        """Do what `stage` does, for a checkpoint behind which event time has come so far. What it needs of that later is in the state."""

    @abstractmethod
    def next_watermark(self, state: JSON) -> int | None:
        """Return the watermark, ms, from which `stage_at` would commit something though no row came; None = from none."""


@runtime_checkable
class PreparesAhead(Protocol):
    """A participant whose tasks can prepare the next checkpoint while this one is committed.

    Names of neighbouring checkpoints must differ, and nothing that is prepared may keep what is committed waiting. Where all sinks
    of a job can, the next checkpoint's tasks run beside the commit; it is verified and decided behind it all the same.
    """

    @property
    def prepares_ahead(self) -> bool:
        """Whether it can, set up as it is."""


def prepares_ahead(participant: Participant) -> bool:
    """Return whether a participant's tasks need not wait for the commit before theirs."""
    return isinstance(participant, PreparesAhead) and participant.prepares_ahead


@runtime_checkable
class Inspectable(Protocol):
    """What a participant may offer besides, so that `fsck` can work without the user's code."""

    @abstractmethod
    def describe_json(self) -> JSON:
        """Return what it takes to sweep, inspect and commit again: {"v", "kind", ...}. Kept with each driver start."""

    @abstractmethod
    def inspect(self, committable: JSON) -> Sequence[Finding]:
        """Compare what a committable makes visible with what is there; touch nothing. Empty if all is as decided."""

    def inspect_state(self, state: JSON) -> Sequence[Finding]:
        """Compare what the state carries on, and what is still to become visible, with what is there; touch nothing."""
        return []


@runtime_checkable
class Measurable(Protocol):
    """A participant that can tell what it would write without writing it, for `poundlock replay`."""

    @abstractmethod
    def measuring(self, folder: str) -> Participant:
        """Return a participant whose writers prepare the same payloads and reach nobody.

        Args:
            folder: a folder of this machine for it alone, removed afterwards; the only place it may write to.
        """

    def places(self, committables: Sequence[JSON], state: JSON, checkpoint: int) -> Mapping[str, int]:
        """Return the rows that a checkpoint wrote per place, such as a bucket, by what its decision says; {} if it has none."""
        return {}


@runtime_checkable
class Repeatable(Protocol):
    """A participant whose prepared data can be aborted from outside after the decision, such as by a broker's timeout."""

    @abstractmethod
    def match(
        self, again: Sequence[JSON], done: Sequence[JSON], prepared: Sequence[Prepared]
    ) -> tuple[Sequence[Prepared], Sequence[Prepared]]:
        """Tell, of what a checkpoint's tasks prepared once more, what replaces aborted data and what is visible already.

        Args:
            again: the committables that were aborted.
            done: the committables of the same checkpoint that are visible.
            prepared: what the tasks prepared now; all of the sink's part of the checkpoint.

        Returns:
            What the next decision names, and what is to be aborted.

        Raises:
            TerminalError: the tasks did not produce the same data again.
        """


@runtime_checkable
class Early(Protocol):
    """A participant whose tasks may make rows visible before the decision."""

    @abstractmethod
    def verify_nothing(self, checkpoint: int) -> None:
        """Driver, before the decision, where no task prepared anything: raise TerminalError if rows of it are visible."""


@runtime_checkable
class Bindable(Protocol):
    """A participant that marks what it writes with its job and name, so that it never takes another's for its own."""

    @abstractmethod
    def bind(self, *, job_id: str, sink: str) -> Participant:
        """Return this participant for one job.

        Args:
            job_id: 32 hex digits.
            sink: name of the sink in the job.
        """


def bound(participant: Participant, *, job_id: str, sink: str) -> Participant:
    """Return a participant as a job owns it, whether or not it wants to know."""
    return participant.bind(job_id=job_id, sink=sink) if isinstance(participant, Bindable) else participant
