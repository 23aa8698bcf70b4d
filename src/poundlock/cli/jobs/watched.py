"""A job that runs in this process while others watch it: in a thread of its own, with its checkpoints and its end in the log.

The main thread is left to signals, which Spark would otherwise take for itself.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from poundlock.errors import PoundlockError
from poundlock.threads import has_ended, in_thread

if TYPE_CHECKING:
    from poundlock.cli.job_endpoint import Presence
    from poundlock.cli.signals import Signals
    from poundlock.config import Settings
    from poundlock.control.logs import JobLog
    from poundlock.driver.progress import Progress
    from poundlock.driver.savepoints.restore import Beginning
    from poundlock.job import Job
    from poundlock.spark.launch.session import Session

_TELL_S = 1.0


def run_watched(
    job: Job,
    settings: Settings,
    log: JobLog,
    presence: Presence,
    update: Callable[[Progress], None],
    beginning: Beginning | None,
    session: Session | None = None,
) -> Progress:
    """Run a job until it ends, and return how it ended; whoever handles signals asks `presence.stop`.

    Args:
        update: is called with every change, from the job's threads.
        session: the Spark session to run in; None = the job has one of its own.

    Raises:
        PoundlockError: it cannot run, or failed for good; where its next step is to read the log, it names that.
    """
    from poundlock.driver.driver import run

    completed = _Completed(log)

    def report(progress: Progress) -> None:
        if progress.message:
            log.logger.info(progress.message, state=progress.state, checkpoint=progress.checkpoint)
        completed.update(progress)
        presence.update(progress)
        update(progress)

    job_itself = partial(
        run,
        job,
        settings=settings,
        on_progress=report,
        stop=presence.stop,
        requests=presence.requests,
        on_claim=presence.claimed,
        beginning=beginning,
        session=session,
    )
    try:
        driver = in_thread(job_itself, "poundlock-driver")
        while not has_ended(driver, 0.25):  # signals are handled between two waits
            pass
        progress = driver.result()
    except BaseException as error:
        code = {"code": error.code} if isinstance(error, PoundlockError) else {}
        log.logger.error("the job failed", exc_info=error, **code)
        if isinstance(error, PoundlockError) and error.next.startswith("see the log"):
            error.next = f"read {log.path}"
        raise
    log.logger.info("the job ended", state=progress.state, checkpoint=progress.checkpoint)
    return progress


def exit_code_of(progress: Progress, signals: Signals) -> int:
    """Return the exit code of a job that has ended."""
    if progress.state == "CANCELED":
        return 128 + (signals.newest or signal.SIGINT)
    return 1 if progress.state == "FAILED" else 0


@dataclass(slots=True)
class _Completed:
    """Writes completed checkpoints into the log: all at level debug, and one a second, at most, at level info."""

    log: JobLog
    _newest: int | None = None
    _logged_at: float = -_TELL_S

    def update(self, progress: Progress) -> None:
        if progress.checkpoint == self._newest:
            return
        self._newest = progress.checkpoint
        now = time.monotonic()
        logger = self.log.logger
        due = now - self._logged_at >= _TELL_S
        if due:
            self._logged_at = now
        (logger.info if due else logger.debug)(
            "completed checkpoint",
            checkpoint=progress.checkpoint,
            ms=progress.last_ms,
            rows_read=progress.rows_read,
            rows_written=progress.rows_written,
            files_finished=progress.files_finished,
        )
