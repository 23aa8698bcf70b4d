"""Adds up what a job has done since this process started, and tells the watcher about it.

Called under the coordinator's lock or from the driver's main thread; values are replaced whole, so a reader never sees half.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from poundlock.checkpoint.participant import Counts
from poundlock.driver.progress import Progress, State
from poundlock.operators.time_values import MIN
from poundlock.plan.plan import DEAD_LETTER

_FINAL = ("FINISHED", "CANCELED", "FAILED")


class Tracker:
    """Keeps the newest Progress and hands every change to `listener`."""

    def __init__(self, listener: Callable[[Progress], None] | None) -> None:
        self._listener = listener
        self._recent: deque[tuple[float, int]] = deque(maxlen=16)
        self.progress = Progress("INITIALIZING")

    def _set(self, progress: Progress) -> None:
        if self.progress.state in _FINAL and progress.state not in _FINAL:
            return  # a callback that was under way when the job was cancelled
        self.progress = progress
        if self._listener is not None:
            self._listener(progress)

    def state(self, state: State, message: str = "", restarts: int = 0) -> None:
        """Note a change of state; `restarts` are added."""
        self._set(replace(self.progress, state=state, message=message, restarts=self.progress.restarts + restarts))

    def application(self, id: str) -> None:
        """Note the cluster's id of the application that the tasks belong to."""
        if id != self.progress.application:
            self._set(replace(self.progress, application=id, message=f"Application {id}"))

    def lag(self, lag: int | None, state_bytes: int | None = None) -> None:
        """Note how many records wait, and how much memory state takes."""
        self._set(replace(self.progress, lag=lag, state_bytes=state_bytes, message=""))

    def event_time(self, watermark: int, held_by: object | None) -> None:
        """Note the watermark, ms, and who holds it back."""
        shown = None if watermark == MIN else watermark
        who = None if held_by is None else str(held_by)
        if (shown, who) != (self.progress.watermark, self.progress.held_by):
            self._set(replace(self.progress, watermark=shown, held_by=who, message=""))

    def rolled(self, files: int) -> None:
        """Note files that became visible between checkpoints."""
        if files:
            self._set(replace(self.progress, files_finished=self.progress.files_finished + files, message=""))

    def checkpoint(self, number: int, read: int, counts: Mapping[str, Counts], files: int, took_ms: int) -> None:
        """Note a completed checkpoint."""
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
            replace(
                was,
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
                message="",
            )
        )
