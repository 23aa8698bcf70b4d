"""The seam between the checkpoint coordinator and whatever can take part in a checkpoint (a sink).

A participant prepares in the tasks and commits in the driver. Nothing it prepares is visible to a reader before a
durable decision names it; everything a decision names becomes visible. All values are JSON with a version.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from poundlock.formats.reject import Reject

if TYPE_CHECKING:
    from poundlock.formats.chunk import Chunk

JSON = dict[str, Any]

DEAD_LETTER = "dead-letter"
"""The name of the sink that takes the records which cannot be decoded, placed or written."""


class Kind(Enum):
    """What a participant can promise; the guarantee analysis reads this and nothing else does."""

    TRANSACTIONAL = "transactional"  # exactly-once
    IDEMPOTENT = "idempotent"  # effectively once, by key
    SKIPPING = "skipping"  # effectively once, by task and checkpoint
    APPEND = "append"  # at-least-once
    FORGETFUL = "forgetful"  # no promise: nobody waits for an answer


class Occasion(Enum):
    """Why a decision is being made."""

    CHECKPOINT = "checkpoint"  # a micro-batch was prepared
    ROLL = "roll"  # between two batches: only time has passed
    END = "end"  # end of input, or a clean stop: everything pending is finished


@dataclass(slots=True)
class Counts:
    """Rows on the way to one sink in one task or checkpoint.

    read + produced = written + filtered + late + dead_lettered + skipped.
    `produced` is what user functions added (flat_map) less what they, or windows, merged away; it may be negative.
    `late` is what windows dropped because it came behind the watermark, as Spark counts it.
    """

    read: int = 0
    produced: int = 0
    written: int = 0
    filtered: int = 0
    dead_lettered: int = 0
    skipped: int = 0
    late: int = 0

    def add(self, other: Counts) -> None:
        """Add another task's counts to these."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def balanced(self) -> bool:
        """Return whether every row that came in is accounted for."""
        gone = self.filtered + self.late + self.dead_lettered + self.skipped
        return self.read + self.produced == self.written + gone

    def account(self) -> str:
        """Return the sum for people; what windows and functions merged into fewer rows is taken away."""
        made = f"+ {self.produced:,} made" if self.produced >= 0 else f"- {-self.produced:,} merged"
        return (
            f"{self.read:,} in {made} = {self.written:,} written + {self.filtered:,} filtered + {self.late:,} late"
            f" + {self.dead_lettered:,} dead-lettered + {self.skipped:,} skipped"
        )

    def to_json(self) -> dict[str, int]:
        """Return the counts as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Prepared:
    """What one task prepared for one sink, to be named, or not, by the decision.

    Args:
        sink: name of the sink in the job.
        subtask: index of the task, a label only: never rely on it being the same on a replay.
        payload: what the participant needs to verify, commit or abort it from any process; has "v".
    """

    sink: str
    subtask: int
    payload: JSON


@dataclass(frozen=True, slots=True)
class Staged:
    """What a participant wants the next decision to say.

    Args:
        state: all it must remember after this decision (JSON with "v"); it is kept in the newest decision only.
            What still waits to become visible stands under "pending", empty when there is nothing: a sink may be taken
            out of a job only then. "at_once" is true where rows become visible without a committable that names them.
        committables: what this decision makes visible, each a JSON object with "v" that `commit` understands. It names
            every prepared file it is made of, so that fsck can tell these from orphans.
    """

    state: JSON
    committables: Sequence[JSON]


@dataclass(frozen=True, slots=True)
class Committed:
    """The committable is visible. `detail` goes to the log and the ledger's reader, not into decisions."""

    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Aborted:
    """The committable is proven never to become visible; its part of the checkpoint must be produced again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """Output of this job that no decision names.

    Args:
        path: where it is, in words a person can use.
        bytes: its size.
        modified_ms: when it was last written, ms since the epoch.
    """

    path: str
    bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as a decision says.

    Args:
        problem: "pending" = decided, and the commit has not ended; "missing" = neither there nor prepared; "size" = not
            as long as decided; "foreign" = a file of another origin, or a damaged one, has the name; "damaged" = a file
            of keyed state is gone or not what was written.
        path: where it should be, in words a person can use; of keyed state, whose it is and what is wrong with it, too.
        expected_bytes: what the decision says.
        found_bytes: what is there, None if nothing.
    """

    problem: Literal["pending", "missing", "size", "foreign", "damaged"]
    path: str
    expected_bytes: int | None = None
    found_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WriterContext:
    """What a writer knows about the task it runs in.

    Args:
        job_id: 32 hex digits.
        sink: name of the sink in the job.
        epoch: the driver's life that planned this task.
        checkpoint: number of the checkpoint being written.
        subtask: index of the task.
        attempt: unique to this attempt of the task; put it in every name that is created.
        directive: what `Participant.directive` returned for this checkpoint.
        reject: hand over a record that cannot be written; it raises where the job says on_error="fail".
        started_ms: the driver's clock when the checkpoint began, ms since the epoch. Use it, not the machine's clock.
    """

    job_id: str
    sink: str
    epoch: int
    checkpoint: int
    subtask: int
    attempt: str
    directive: JSON
    reject: Callable[[Reject], None]
    started_ms: int


class Writer(Protocol):
    """The task's half. One writer per task attempt and sink; used by one thread."""

    def write(self, chunk: Chunk) -> int:
        """Write a chunk's rows to attempt-unique, invisible output; return how many were written (not rejected)."""

    def prepare(self) -> Sequence[JSON]:
        """Make all that was written durable and return the payloads that describe it. Called once, last.

        Empty if nothing was written. A payload with "rows" is counted against the rows written. The ledger keeps, per
        checkpoint, the sums of "rows", of "bytes" and of "digest" (16 hex digits, the same for the same rows), and the
        bounds of "min_ms" and "max_ms" (event times).
        """

    def abandon(self) -> None:
        """Drop what was written; called instead of `prepare` when the task fails. Must not raise.

        A crash may skip it: sweep finds the rest.
        """


def unchecked() -> None:
    """Stand for a check where nobody else can be at work."""


@runtime_checkable
class Participant(Protocol):
    """A sink's two halves. Picklable; the driver's half keeps no state in memory that recovery would need.

    A class that derives from it has to say `kind`, `open_writer` and `commit`; what the others do by themselves is right for a sink
    that carries nothing from one checkpoint to the next and whose dead attempts leave nothing behind.
    """

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """What it can promise."""

    @abstractmethod
    def open_writer(self, context: WriterContext) -> Writer:
        """Task side: begin output for one attempt. Creates nothing visible."""

    def directive(self, state: JSON) -> JSON:
        """Driver: what the tasks of the next checkpoint should know of the carried state. Keep it below 32 KB."""
        return {}

    def verify(self, prepared: Sequence[Prepared]) -> None:
        """Driver, before the decision: raise TransientError unless all of it can still be committed."""
        return

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        """Driver, before the decision: fold what was prepared into the carried state and say what becomes visible now.

        A pure function: the same arguments give the same answer, nothing outside is touched. `state` is {} at first.
        """
        return Staged({"v": 1, "pending": []}, [dict(item.payload) for item in prepared])

    def next_roll_ms(self, state: JSON) -> int | None:
        """Driver: when, by the clock, `stage(state, [], ROLL, now)` would commit or change anything; None = not by time."""
        return None

    @abstractmethod
    def commit(self, committable: JSON) -> Committed | Aborted:
        """Driver, after the decision: make it visible. Idempotent, from any process, any number of times.

        Raises:
            CommitUnknown: the outcome is not known; it will be asked for again. Never raised for anything proven.
            TerminalError: what the decision names is neither there nor already visible.
        """

    def abort(self, prepared: Prepared) -> None:
        """Driver: remove what an attempt prepared that no decision names. Idempotent; unknown names are no error."""
        return

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        """Driver, on start with no task running, or fsck: find this job's output that no one needs.

        That is what is neither finished nor named by `state`. Everything decided has been committed before. Remove what
        is listed if asked.

        `check` is called when everything is known and before anything is removed; it raises if a newer driver has taken
        over. What is known was there before that driver could write anything, so it is nobody's.
        """
        return []


CommitOutcome = Committed | Aborted | Exception
