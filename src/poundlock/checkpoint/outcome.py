"""The values that go in and out of the coordinator: what tasks are told, what they report, what came of it.

All are plain and frozen.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from poundlock.checkpoint.decision import Decision, EventTime, SourceRange
from poundlock.checkpoint.participant import Counts, Orphan, Prepared
from poundlock.operators.time_values import DecidedTime


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDirectives:
    """What the sinks of a checkpoint hand to its tasks.

    Args:
        checkpoint: its number.
        epoch: of the driver's life.
        started_ms: when it began, ms since the epoch.
        decided: whether it was decided before: read everything, write nothing.
        sinks: per name, what the sink tells its tasks, JSON; empty where it is decided.
    """

    checkpoint: int
    epoch: int
    started_ms: int
    decided: bool
    sinks: Mapping[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResults:
    """What the tasks of one checkpoint report, added up.

    Args:
        prepared: everything that was prepared, of all tasks and sinks.
        counts: per sink name, the rows on the way to it.
        rows_read: per source name, rows read.
        bytes_read: per source name, how large that was; see SourceRange.
        event_time: what watermarks saw; None where there are none.
        tasks: over how many tasks splits were spread; None where there are none.
        watermarks: the watermark behind the checkpoint and what goes with it; None where the job has none.
        state: what tasks prepared of keyed state.
    """

    prepared: Sequence[Prepared]
    counts: Mapping[str, Counts] = field(default_factory=dict)
    rows_read: Mapping[str, int] = field(default_factory=dict)
    bytes_read: Mapping[str, int] = field(default_factory=dict)
    event_time: EventTime | None = None
    tasks: int | None = None
    watermarks: DecidedTime | None = None
    state: Sequence[Any] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A decision that is carried out.

    Args:
        decision: the ledger record.
        replayed: whether it had been decided before and was only delivered again.
        committed: per sink name, the details of each committable made visible now; empty for a replay.
        durations_ms: how long "run", "verify", "decide" and "commit" took.
    """

    decision: Decision
    replayed: bool = False
    committed: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    durations_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def files_made(self) -> int:
        """How many files it made visible."""
        return sum("path" in detail for details in self.committed.values() for detail in details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a start found and did.

    Args:
        newest: the newest decision before this start, None on a first start.
        checkpoint: the newest decided checkpoint, -1 if none.
        sources: per source name, what that checkpoint read; the job resumes at each `end`.
        committed: how many committables were asked for again.
        orphans: per sink name, output that no decision named, now removed.
        took_ms: how long it took.
    """

    newest: Decision | None
    checkpoint: int
    sources: Mapping[str, SourceRange]
    committed: int
    orphans: Mapping[str, Sequence[Orphan]]
    took_ms: int


class Log(Protocol):
    """Where events go, such as a structlog logger."""

    def info(self, event: str, **fields: Any) -> Any:
        """Note something a person may want to know."""
        ...

    def warning(self, event: str, **fields: Any) -> Any:
        """Note something a person should look at."""
        ...


class StandardLog:
    """Events to a logger of the standard library, fields as name=value."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("poundlock.checkpoint")

    def info(self, event: str, **fields: Any) -> None:
        self._logger.info("%s", _line(event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self._logger.warning("%s", _line(event, fields))


def _line(event: str, fields: Mapping[str, Any]) -> str:
    return " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
