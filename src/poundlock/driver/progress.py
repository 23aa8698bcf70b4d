"""What a running job tells whoever watches it: a plain value per checkpoint and state change."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec

import msgspec

from poundlock.checkpoint.participant import DEAD_LETTER, Counts
from poundlock.checkpoint.skew import NO_SKEW, Skew
from poundlock.metrics.load import NO_LOAD, CommitLoad, JobLoad
from poundlock.metrics.timeline import FailedCheckpoint, Timeline, UnderWay
from poundlock.operators.time_values import MIN
from poundlock.storage.json_record import ready

State = Literal["INITIALIZING", "RUNNING", "RESTARTING", "FINISHED", "CANCELED", "FAILED"]
_FINAL = ("FINISHED", "CANCELED", "FAILED")


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
        skew: how unevenly the rows of the newest checkpoint that had any lay over key groups and splits.
        parallelism: how many tasks the next checkpoint has at most; None before it is known.
        state_locality: of the key groups that the newest checkpoint worked, the part that was on the same executor at the one before;
            None where there is no cluster or no state.
        message: the newest thing worth a line: restored offsets, a restart with its cause.
        load: what decided checkpoints did since this process started, by operator, task and sink.
        under_way: the checkpoints that have begun and not ended, a second old at most.
        failed_checkpoints: how many were begun and never decided, in the job's whole life.
        failed_before: how many of them before this process.
        newest_failed: those of them that failed last, the newest last.
        all_restarts: how often the job was restarted in its whole life, by drivers; starts of processes are not among them.
        timeline: of the checkpoint that completed or failed last in this process, None before the first.
        lags: records waiting, by source and partition; of sources that know it.
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
    skew: Skew = NO_SKEW
    parallelism: int | None = None
    state_locality: float | None = None
    message: str = ""
    load: JobLoad = NO_LOAD
    under_way: tuple[UnderWay, ...] = ()
    failed_checkpoints: int = 0
    failed_before: int = 0
    newest_failed: tuple[FailedCheckpoint, ...] = ()
    all_restarts: int = 0
    timeline: Timeline | None = None
    lags: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Progress:
        """Return what fields say that were written as JSON, by this version or a newer one."""
        known = {name: value for name, value in values.items() if name in cls.__slots__}
        made = {name: msgspec.convert(known[name], kind) for name, kind in _MADE.items() if known.get(name) is not None}
        return cls(**{**{name: value for name, value in known.items() if name not in _MADE}, **made})

    @classmethod
    def check(cls, values: Mapping[str, Any]) -> None:
        """Raise ValueError if `of` cannot make anything of what was written: whoever may write into a folder may have written it."""
        given = {name: value for name, value in values.items() if value is not None or name not in _MADE}
        msgspec.convert({**given, "state": "RUNNING"}, ready(cls))

    def line(self) -> dict[str, Any]:
        """Return the fields that do not grow with operators and tasks, for a line of a log."""
        short = asdict(replace(self, load=NO_LOAD, timeline=None, newest_failed=()))
        return {name: value for name, value in short.items() if name not in ("load", "timeline", "newest_failed")}


_MADE: Mapping[str, Any] = {
    "skew": Skew,
    "load": JobLoad,
    "under_way": tuple[UnderWay, ...],
    "newest_failed": tuple[FailedCheckpoint, ...],
    "timeline": Timeline,
}


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


P = ParamSpec("P")


def _alone(method: Callable[Concatenate[Tracker, P], None]) -> Callable[Concatenate[Tracker, P], None]:
    """Have a method called by one thread at a time: each makes the next progress of the one that is there."""

    @wraps(method)
    def called(tracker: Tracker, /, *given: P.args, **named: P.kwargs) -> None:
        with tracker._lock:
            method(tracker, *given, **named)

    return called


class Tracker:
    """Keeps the newest Progress and hands every change to `listener`, one at a time: the loop's thread and that of checkpoints both tell it."""

    def __init__(self, listener: Callable[[Progress], None] | None) -> None:
        self._listener = listener
        self._recent: deque[tuple[float, int]] = deque(maxlen=16)
        self._lock = threading.RLock()
        self.progress = Progress("INITIALIZING")

    def _set(self, **changes: Any) -> None:
        progress = replace(self.progress, **changes)
        if self.progress.state in _FINAL and progress.state not in _FINAL:
            return  # a callback that was under way when the job was cancelled
        self.progress = progress
        if self._listener is not None:
            self._listener(progress)

    @_alone
    def state(self, state: State, message: str = "", restarts: int = 0) -> None:
        """Note a change of state; `restarts` are added."""
        was = self.progress
        over: dict[str, Any] = {} if state == "RUNNING" else {"under_way": ()}
        self._set(
            state=state,
            message=message,
            restarts=was.restarts + restarts,
            all_restarts=was.all_restarts + restarts,
            **over,
        )

    @_alone
    def failures_before(self, checkpoints: int, newest: tuple[FailedCheckpoint, ...], restarts: int) -> None:
        """Note what went wrong in the job's life before this process."""
        if (checkpoints, restarts) != (0, 0):
            self._set(
                failed_checkpoints=checkpoints,
                failed_before=checkpoints,
                newest_failed=newest,
                all_restarts=restarts,
                message="",
            )

    @_alone
    def failed(self, checkpoints: int, newest: tuple[FailedCheckpoint, ...], timeline: Timeline) -> None:
        """Note how a checkpoint went that failed, and how many have in all."""
        self._set(failed_checkpoints=checkpoints, newest_failed=newest, timeline=timeline, message="")

    @_alone
    def under_way(self, checkpoints: tuple[UnderWay, ...]) -> None:
        """Note the checkpoints that have begun and not ended."""
        if checkpoints != self.progress.under_way:
            self._set(under_way=checkpoints, message="")

    @_alone
    def application(self, id: str) -> None:
        """Note the cluster's id of the application that the tasks belong to."""
        if id != self.progress.application:
            self._set(application=id, message=f"Application {id}")

    @_alone
    def parallelism(self, parallelism: int) -> None:
        """Note how many tasks the next checkpoint has."""
        if parallelism != self.progress.parallelism:
            self._set(parallelism=parallelism, message="")

    @_alone
    def locality(self, share: float | None) -> None:
        """Note which part of the key groups was worked where it was before."""
        if share is not None and share != self.progress.state_locality:
            self._set(state_locality=share, message="")

    @_alone
    def lag(
        self, lag: int | None, state_bytes: int | None = None, lags: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Note how many records wait, in all and by source and partition, and how much memory state takes."""
        self._set(lag=lag, state_bytes=state_bytes, lags=lags or {}, message="")

    @_alone
    def event_time(self, watermark: int, held_by: object | None) -> None:
        """Note the watermark, ms, and who holds it back."""
        shown = None if watermark == MIN else watermark
        who = None if held_by is None else str(held_by)
        if (shown, who) != (self.progress.watermark, self.progress.held_by):
            self._set(watermark=shown, held_by=who, message="")

    @_alone
    def rolled(self, files: int, commits: Mapping[str, CommitLoad] | None = None) -> None:
        """Note files that became visible between checkpoints, and the commits that made them so."""
        if files or commits:
            was = self.progress
            load = was.load.plus(JobLoad(sinks=commits or {}))
            self._set(files_finished=was.files_finished + files, load=load, message="")

    @_alone
    def decided(self, load: JobLoad) -> None:
        """Note what the tasks of a checkpoint did, now that it counts; it is shown with what comes next."""
        self.progress = replace(self.progress, load=self.progress.load.plus(load))

    @_alone
    def checkpoint(
        self,
        number: int,
        read: int,
        counts: Mapping[str, Counts],
        files: int,
        took_ms: int,
        skew: Skew = NO_SKEW,
        load: JobLoad = NO_LOAD,
        timeline: Timeline | None = None,
    ) -> None:
        """Note a completed checkpoint. `load`: what is known of it now, besides what its tasks did."""
        now = time.monotonic()
        self._recent.append((now, read))
        first = self._recent[0][0]
        elapsed = now - first
        rate = (
            sum(rows for _, rows in list(self._recent)[1:]) / elapsed
            if elapsed > 0
            else read / max(took_ms / 1000, 0.001)
        )
        sinks = [c for name, c in counts.items() if name != DEAD_LETTER]
        was = self.progress
        self._set(
            state="RUNNING",
            checkpoint=number,
            rows_read=was.rows_read + read,
            rows_written=was.rows_written + sum(c.written for c in sinks),
            dead_lettered=was.dead_lettered + counts.get(DEAD_LETTER, Counts()).written,
            skipped=was.skipped + sum(c.skipped for c in sinks),
            filtered=was.filtered + sum(c.filtered for c in sinks),
            rows_per_s=rate,
            last_ms=took_ms,
            files_finished=was.files_finished + files,
            skew=skew or was.skew,
            load=was.load.plus(load),
            timeline=timeline,
            under_way=tuple(each for each in was.under_way if each.checkpoint > number),
            message="",
        )
