"""What a running job tells whoever watches it: a plain value per checkpoint and state change."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

State = Literal["INITIALIZING", "RUNNING", "RESTARTING", "FINISHED", "CANCELED", "FAILED"]


@dataclass(frozen=True, slots=True)
class Progress:
    """A job at one moment. Names of states are Flink's.

    Args:
        state: what the job is doing.
        checkpoint: newest completed checkpoint, None before the first.
        rows_read: rows read since this process started.
        rows_written: rows written to sinks since this process started.
        dead_lettered, skipped, filtered: rows that went elsewhere since this process started.
        rows_per_s: rows read per second over the last checkpoints.
        lag: records waiting in the sources, None where it is not known.
        last_ms: how long the newest checkpoint took, ms.
        files_finished: files made visible since this process started.
        restarts: how often the job was restarted.
        state_bytes: memory that keyed state takes, as Spark tells it; None where there is no state.
        watermark: event time behind the newest checkpoint, ms since the epoch; None where there is none.
        held_by: who holds the watermark back, such as "clicks-1 of visits": a partition, and the source that reads it;
            the step that gives rows their time where no source is known behind it; None where nobody does.
        application: the cluster's id of the application that the tasks belong to; None where they run on this machine.
        message: the newest thing worth a line: restored offsets, a restart with its cause.
    """

    state: State
    checkpoint: int | None = None
    rows_read: int = 0
    rows_written: int = 0
    dead_lettered: int = 0
    skipped: int = 0
    filtered: int = 0
    rows_per_s: float = 0.0
    lag: int | None = None
    last_ms: int | None = None
    files_finished: int = 0
    restarts: int = 0
    state_bytes: int | None = None
    watermark: int | None = None
    held_by: str | None = None
    application: str | None = None
    message: str = ""


@dataclass(slots=True)
class StopRequest:
    """How a watcher asks a running job to stop; safe to set from a signal handler.

    `stop()` finishes the running checkpoint and every pending file. `cancel()` ends at once: pending data stays hidden for
    the next start, and nothing is lost.
    """

    _stop: threading.Event = field(default_factory=threading.Event)
    _cancel: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Ask for a clean stop."""
        self._stop.set()

    def cancel(self) -> None:
        """Ask for an end at once."""
        self._cancel.set()
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether either was asked for."""
        return self._stop.is_set()

    @property
    def canceling(self) -> bool:
        """Whether an end at once was asked for."""
        return self._cancel.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until either is asked for, at most so long; return whether it was."""
        return self._stop.wait(seconds)
