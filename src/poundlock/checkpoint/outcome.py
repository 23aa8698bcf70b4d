"""The values that go in and out of the coordinator: what tasks are given, what they report, what came of it.

All are plain and frozen.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from poundlock.checkpoint.capabilities import SinkTime
from poundlock.checkpoint.decision import Decision, EventTime, SourceRange
from poundlock.checkpoint.participant import Counts, Orphan, Prepared
from poundlock.checkpoint.skew import Skew
from poundlock.metrics.timeline import CommitCall
from poundlock.metrics.user_totals import UserMetrics
from poundlock.operators.time_values import DecidedTime


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDirectives:
    """What the sinks of a checkpoint hand to its tasks."""

    checkpoint: int
    epoch: int
    started_ms: int
    decided: bool  # whether it was decided before: read everything, write nothing
    sinks: Mapping[str, dict[str, Any]]  # per name, what the sink tells its tasks, JSON; empty where it is decided


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResults:
    """What the tasks of one checkpoint report, added up."""

    prepared: Sequence[Prepared]
    counts: Mapping[str, Counts] = field(default_factory=dict)  # per sink name, the rows on the way to it
    rows_read: Mapping[str, int] = field(default_factory=dict)
    bytes_read: Mapping[str, int] = field(default_factory=dict)  # per source name, how large that was; see SourceRange
    event_time: EventTime | None = None
    tasks: int | None = None  # over how many tasks splits were spread; None where there are none
    parallelism: int | None = None  # how many tasks a keyed stage had, and the first stage at most
    # the watermark behind the checkpoint and what goes with it; None where the job has none
    watermarks: DecidedTime | None = None
    sink_times: Mapping[str, SinkTime] = field(
        default_factory=dict
    )  # per sink name, how far event time has come for its rows
    state: Sequence[Any] = ()
    skew: Skew = field(default_factory=Skew)
    metrics: UserMetrics = field(default_factory=UserMetrics)  # what the job's functions have counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A decision that is carried out."""

    decision: Decision
    replayed: bool = False  # whether it had been decided before and was only delivered again
    # per sink name, the details of each committable made visible now; empty for a replay
    committed: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    # how long "run", "verify", "decide" and "commit" took
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    calls: Sequence[CommitCall] = ()  # per sink, when and how often it was asked to commit

    @property
    def files_made(self) -> int:
        """How many files it made visible."""
        return sum("path" in detail for details in self.committed.values() for detail in details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What there was at a start, and what it did."""

    newest: Decision | None
    checkpoint: int  # the newest decided checkpoint, -1 if none
    sources: Mapping[str, SourceRange]  # per source name, what that checkpoint read; the job resumes at each `end`
    committed: int  # how many committables were asked for again
    files: int  # how many of them are files
    orphans: Mapping[str, Sequence[Orphan]]  # per sink name, output that no decision named, now removed
    took_ms: int


class Log(Protocol):
    """Where events go, such as a structlog logger."""

    def info(self, event: str, **fields: Any) -> Any:
        """Note something a person may want to know."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Note something a person should look at."""


class StandardLog:
    """Events to a logger of the standard library, fields as name=value."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("poundlock.checkpoint")

    def info(self, event: str, **fields: Any) -> None:
        self._logger.info("%s", _line(event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self._logger.warning("%s", _line(event, fields))


def _line(event: str, fields: Mapping[str, Any]) -> str:
    return " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
