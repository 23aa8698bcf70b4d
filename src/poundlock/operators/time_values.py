"""Event time as values: what tasks report of the splits they read, what a checkpoint begins with, and the state in its decision.

Times are whole milliseconds since 1970. In JSON no watermark yet is null, and the one behind the end of the input is 2^63 - 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from poundlock.errors import TerminalError
from poundlock.storage.json_record import typed

MIN, MAX = -(1 << 63), (1 << 63) - 1
"""The watermark before any, and the one behind the end of the input."""
STATE_FORMAT, DECIDED_FORMAT = 1, 2
SUMMARY = -1
"""The sequence of a report that stands for all reports of its source at its assigner."""
UNKNOWN = "(not known)"
"""The source and the partition of rows of which nobody knows where they were read, as behind windows."""


class TimeValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of the values here: immutable, and in JSON without what is as it usually is."""


class GeneratorReport(TimeValue, frozen=True):
    """What a generator that looks at each record made of a partition's rows.

    Args:
        watermark: the greatest that it emitted so far, ms; None = none yet.
        snapshot: what the next task that reads the partition goes on from, as JSON.
    """

    watermark: int | None = None
    idle: bool = False
    snapshot: Any = None


class SplitTimes(TimeValue, frozen=True):
    """What one task saw of one split at one watermark assigner; of a split without event times there is none.

    Args:
        source: the id of the source; UNKNOWN behind steps that lose the place of a row.
        partition: the source's partition, such as "clicks-0", or the name of a split that is read to its end.
        sequence: tells the splits of a partition apart; the same whichever task reads it. SUMMARY: of all of them.
        greatest: the greatest event time, ms.
        generator: of a strategy whose generator looks at each record.
    """

    assigner: str
    source: str
    partition: str
    sequence: int
    greatest: int
    count: int
    generator: GeneratorReport | None = None


class SourceInput(TimeValue, frozen=True):
    """What the driver knows of a source when it plans a checkpoint.

    Args:
        partitions: all that may have rows after this checkpoint, so without those that it reads to their end; None = each
            split is read to its end within its checkpoint, as files are.
        ended: whether nothing can come after this checkpoint.
    """

    partitions: tuple[str, ...] | None = None
    ended: bool = False


class PartitionTime(TimeValue, frozen=True):
    """A partition: its watermark, whether it is waited for, since when a look had nothing new, its generator's snapshot."""

    watermark: int | None = None
    idle: bool = False
    silent_since: int | None = None
    generator: Any = None


class SourceTime(TimeValue, frozen=True):
    """A source at an assigner: its watermark, and the partition that holds it back."""

    watermark: int | None = None
    idle: bool = False
    held_by: str | None = None
    silent_since: int | None = None
    partitions: dict[str, PartitionTime] = {}


class ChannelTime(TimeValue, frozen=True):
    """One of several inputs of a stream; `behind`: it woke up, and counts again once it has caught up."""

    watermark: int | None = None
    idle: bool = False
    behind: bool = False


class StreamTime(TimeValue, frozen=True):
    """The watermark of a stream.

    Args:
        watermark: behind the newest checkpoint; None = none yet.
        before: the one that the rows of that checkpoint were judged by.
        before_end: behind the end of the input, the last watermark that was not the end's.
        channels: its inputs, or the sources of an assigner, where there are several.
    """

    watermark: int | None = None
    before: int | None = None
    before_end: int | None = None
    idle: bool = False
    channels: dict[str, ChannelTime] = {}


class TimeState(TimeValue, frozen=True):
    """Event time of a whole job behind a checkpoint, as its decision has it.

    Args:
        v: the version of this form.
        clock: the clock of the newest checkpoint, ms; it never goes back.
        streams: by the id of a step; steps that only pass a watermark on have none of their own.
        sources: by the id of an assigner and of a source.
    """

    v: int = STATE_FORMAT
    clock: int = 0
    streams: dict[str, StreamTime] = {}
    sources: dict[str, dict[str, SourceTime]] = {}


class TimeDirective(TimeValue, frozen=True):
    """What every task of a checkpoint is given of event time.

    Args:
        state: behind the checkpoint before.
        clock: the checkpoint's, ms.
        drain: whether the input ends for good with this checkpoint, whatever the sources still have.
    """

    state: TimeState
    clock: int
    sources: dict[str, SourceInput]
    drain: bool = False


@dataclass(frozen=True, slots=True)
class StreamHolder:
    """Who holds a watermark back: a source, and of that a partition, where one is known."""

    source: str
    partition: str | None = None

    def __str__(self) -> str:
        return self.source if self.partition is None else f"{self.partition} of {self.source}"


class DecidedTime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Event time behind a checkpoint.

    Args:
        v: the version of this form.
        watermark: of the job, ms; None = none yet.
        held_by: what the slowest stream waits for; None where nothing is waited for.
        state: what the next checkpoint goes on from.
        directive: what the tasks began with; those that run once more begin with it, too.
    """

    v: int
    watermark: int | None
    held_by: StreamHolder | None = None
    state: TimeState
    directive: TimeDirective

    def to_json(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))

    @classmethod
    def from_json(cls, value: Any) -> DecidedTime:
        """Return what a JSON object says. Raises TerminalError if it is of another version, ValueError if it is damaged."""
        decided = typed(value, cls)
        for format, known in ((decided.v, DECIDED_FORMAT), (decided.state.v, STATE_FORMAT)):
            if format != known:
                raise TerminalError(
                    f"the event time in the ledger has format {format}, and this version knows {known}",
                    next="run the job with the version of poundlock that wrote it",
                )
        return decided


def known(watermark: int | None) -> int:
    """Return a watermark to calculate with: MIN for none yet."""
    return MIN if watermark is None else watermark


def shown(watermark: int) -> int | None:
    """Return a watermark as the state has it: None for none yet."""
    return None if watermark == MIN else watermark


def renamed_state(state: TimeState, names: Mapping[str, str]) -> TimeState:
    """Return the state of a job whose steps or sources have other names now.

    Args:
        state: behind the newest checkpoint.
        names: the new name of each old one; what is not there keeps its name.
    """

    def new(name: str) -> str:
        return names.get(name, name)

    streams = {
        new(name): msgspec.structs.replace(each, channels={new(n): c for n, c in each.channels.items()})
        for name, each in state.streams.items()
    }
    sources = {new(a): {new(n): each for n, each in known_of.items()} for a, known_of in state.sources.items()}
    return msgspec.structs.replace(state, streams=streams, sources=sources)
