"""A job that runs in the background of this process, in a notebook's or a program's own Spark session, and the handle to it.

The handle only asks; the job decides between two checkpoints, as it does for the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poundlock.config import Settings, load_settings
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress, State, StopRequest
from poundlock.driver.requests import Requests
from poundlock.driver.savepoints.restore import Beginning
from poundlock.errors import DefinitionError, TransientError
from poundlock.plan.guarantees import check_required
from poundlock.plan.plan import make_plan
from poundlock.spark.launch.session import active_session, user_session
from poundlock.threads import has_ended, in_thread

if TYPE_CHECKING:
    from poundlock.job import Job
    from poundlock.spark.launch.session import Session


class JobHandle:
    """A running job. Safe to use from any thread.

    Args:
        session: where its tasks run; None = one is started for it, and ends with it.
    """

    def __init__(self, job: Job, settings: Settings, session: Session | None, beginning: Beginning | None) -> None:
        self._job, self._settings, self._session, self._beginning = job, settings, session, beginning
        self._stop, self._requests = StopRequest(), Requests()
        self._progress = Progress("INITIALIZING")
        self._ended = in_thread(self._run, f"poundlock-{job.name}")

    def _run(self) -> None:
        self._progress = run(
            self._job,
            settings=self._settings,
            on_progress=self._notice,
            stop=self._stop,
            requests=self._requests,
            beginning=self._beginning,
            session=self._session,
        )

    def _notice(self, progress: Progress) -> None:
        self._progress = progress

    @property
    def name(self) -> str:
        """Name of the job."""
        return self._job.name

    @property
    def status(self) -> State:
        """What the job is doing, in Flink's words, such as "RUNNING"."""
        return "FAILED" if self.exception is not None else self._progress.state

    @property
    def progress(self) -> Progress:
        """The newest figures: checkpoint, rows, watermark."""
        return self._progress

    @property
    def exception(self) -> BaseException | None:
        """What the job failed with; None if it has not."""
        return self._ended.exception() if self._ended.done() else None

    def stop(self) -> None:
        """Ask it to end well: the running checkpoint completes, and what is pending is finished. Returns at once."""
        self._stop.stop()

    def cancel(self) -> None:
        """Ask it to end at once: what is pending stays hidden for the next start, and nothing is lost. Returns at once."""
        self._stop.cancel()

    def savepoint(
        self, directory: str | None = None, *, stop: bool = False, drain: bool = False, timeout: float | None = None
    ) -> str:
        """Take a savepoint and return its path.

        Args:
            directory: where it is made; default: `savepoints` in the state directory.
            stop: the job ends with it.
            drain: every window is fired and all pending files are finished first; the job ends with it.
            timeout: how long to wait for it, seconds; it goes on behind that.

        Raises:
            PoundlockError: it could not be made, or took longer.
        """
        then = "stop" if stop or drain else "go on"
        trigger = self._requests.trigger("savepoint", directory=directory, then=then, drain=drain)  # type: ignore[arg-type]
        if not trigger.wait(timeout):
            raise TransientError(
                f"the savepoint is not made yet after {timeout:g} s", next="wait longer: savepoint(timeout=…)"
            )
        if trigger.failure is not None:
            raise trigger.failure
        return str(trigger.location)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended, at most so many seconds; return whether it has.

        Raises:
            PoundlockError: it failed.
        """
        ended = has_ended(self._ended, timeout)
        if ended:
            self._ended.result()
        return ended

    def __repr__(self) -> str:
        """Return the job and how it is, for a notebook."""
        now = self._progress
        checkpoint = "no checkpoint yet" if now.checkpoint is None else f"checkpoint {now.checkpoint}"
        return f"<job {self.name}: {self.status}, {checkpoint}, {now.rows_read:,} rows>"


def start(
    job: Job, spark: Any = None, *, settings: Settings | None = None, from_savepoint: str | None = None
) -> JobHandle:
    """Start a job in the background and return at once.

    Args:
        job: what to run.
        spark: the SparkSession or SparkContext to run in, which goes on when the job ends, and in which nothing is set;
            None = the active one, or where there is none, one that is started for the job.
        settings: the machine's and the run's settings; default: file and environment.
        from_savepoint: path of the savepoint, or retained checkpoint, to begin with.

    Raises:
        PoundlockError: the job cannot run so; whatever comes up later the handle says.
    """
    check_required(make_plan(job))
    session = active_session() if spark is None else user_session(spark)
    if session is not None and job.spark:
        raise DefinitionError(
            f"job {job.name} has settings for Spark ({', '.join(job.spark)}), and nothing is set in a session that exists",
            next="set them where the session is made, and leave spark= out of the job",
        )
    beginning = None if from_savepoint is None else Beginning(from_savepoint)
    return JobHandle(job, settings or load_settings(), session, beginning)
