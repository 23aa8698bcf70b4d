"""The jobs of scripts on the command line: others see and ask them as they do those of `run`, and statements ask others' jobs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poundlock.cli.job_lookup import SAVED, await_end, find_running, take_savepoint
from poundlock.cli.options import Call
from poundlock.cli.output import Output
from poundlock.errors import PoundlockError
from poundlock.values import utc_text

if TYPE_CHECKING:
    from poundlock.config import Settings
    from poundlock.driver.progress import Progress
    from poundlock.driver.savepoints.restore import Beginning
    from poundlock.job import Job
    from poundlock.spark.launch.session import Session
    from poundlock.sql.statements.results import StopsJob


@dataclass
class SqlJobs:
    """Runs the jobs of a script in this process: listed, served and logged as those of `run`, one behind the other.

    Args:
        arguments: the command line behind `sql`, with which the script runs again.
        target: what the script is: a file, or where it was typed.
        spark: the Spark session that jobs run in; None: each has one of its own.
        exit_code: of the newest job that has ended.
    """

    output: Output
    settings: Settings
    arguments: Sequence[str]
    target: str
    spark: Session | None = None
    exit_code: int = 0

    def launch(self, job: Job, beginning: Beginning | None) -> bool:
        """Run a job until it ends; return whether it came to the end of its input, and nobody stopped it before.

        Raises:
            PoundlockError: it cannot run, or failed for good.
        """
        from poundlock.cli.job_endpoint import Presence
        from poundlock.cli.jobs.watched import exit_code_of, run_watched
        from poundlock.cli.signals import signals_asking
        from poundlock.control.logs import open_log
        from poundlock.driver.progress import StopRequest
        from poundlock.driver.requests import Requests

        settings = self.settings
        job.command, job.script = "sql", shlex.join(self.arguments)
        with open_log(job.name, settings.logs, level=settings.log_level, secrets=settings.secrets()) as log:
            log.logger.info("run", file=self.target, settings=settings.shown())
            presence = Presence(
                job=job,
                settings=settings,
                log=log,
                stop=StopRequest(),
                requests=Requests(),
                job_file=self.target,
                arguments=self.arguments,
                command="sql",
            )
            presence.take_port()
            self.output.note(f"job {job.name}, log {log.path}")
            try:
                with signals_asking(presence.stop, self.output.note, job) as signals:
                    progress = run_watched(job, settings, log, presence, self._note, beginning, self.spark)
                    self.exit_code = exit_code_of(progress, signals)
            except BaseException as error:
                presence.end(error.exit_code if isinstance(error, PoundlockError) else 1, error)
                raise
            presence.end(self.exit_code)
        is_whole = progress.state == "FINISHED" and not presence.stop.stopping
        return is_whole and not progress.message.startswith(SAVED)

    def _note(self, progress: Progress) -> None:
        """Note what is worth a line; how many rows come and go is in the log."""
        if progress.message:
            self.output.note(f"{progress.state}  {progress.message}")


@dataclass(frozen=True)
class ListedJobs:
    """The jobs of this user, as statements ask them."""

    call: Call

    def running(self) -> Sequence[tuple[str, str, str, str]]:
        """Return id, name, state and start of each, the newest first."""
        from poundlock.control.registry import Registry

        entries = Registry(self.call.settings().state_dir).running()
        return [(each.job_id, each.name, each.state, utc_text(each.started_ms)) for each in entries]

    def check(self, job: str) -> None:
        """Check that a job runs. Raises DefinitionError if it does not."""
        find_running(job, self.call)

    def stop(self, stopped: StopsJob) -> str | None:
        """Stop a job and wait for its end; return the path of the savepoint, None where none is asked for.

        Raises:
            PoundlockError: it does not run, failed, or the savepoint was not taken.
        """
        known = find_running(stopped.job, self.call)
        if stopped.with_savepoint:
            return take_savepoint(known, stopped.directory, then="stop", drain=stopped.with_drain)
        known.channel().ask("stop")
        ended = await_end(known, self.call.output)
        if ended is not None and ended.state == "FAILED":
            what, next = ended.failure or ("it failed", f"read {ended.log}")
            raise PoundlockError(f"job {ended.job_id} failed: {what}", next=next or f"read {ended.log}")
        return None
