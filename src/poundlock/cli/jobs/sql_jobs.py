"""The jobs of scripts and shells on the command line: others see and ask them as they do those of `run`, and statements ask others' jobs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from poundlock.cli.job_lookup import SAVED, await_end, find_running, take_savepoint
from poundlock.cli.options import Call
from poundlock.cli.output import Output
from poundlock.errors import PoundlockError
from poundlock.values import utc_text

if TYPE_CHECKING:
    from poundlock.cli.signals import Signals
    from poundlock.config import Settings
    from poundlock.driver.progress import Progress
    from poundlock.driver.savepoints.restore import Beginning
    from poundlock.job import Job
    from poundlock.spark.launch.session import Session
    from poundlock.sql.statements.results import StopsJob


class JobTerminal(Protocol):
    """Where people see the jobs of a script or a shell, and stop them. All but `asking` is called from threads of the job, too."""

    def say(self, line: str) -> None:
        """Show a line."""

    def update(self, progress: Progress) -> None:
        """Take how a job goes."""

    def asking(self, job: Job) -> AbstractContextManager[Signals]:
        """Have signals ask a job to stop, as long as it is entered."""


@dataclass(frozen=True)
class ScriptTerminal:
    """The terminal of a script: what is worth a line goes to standard error, signals stop the job that runs."""

    output: Output

    def say(self, line: str) -> None:
        """Note a line."""
        self.output.note(line)

    def update(self, progress: Progress) -> None:
        """Note what is worth a line; how many rows come and go is in the log."""
        if progress.message:
            self.output.note(f"{progress.state}  {progress.message}")

    def asking(self, job: Job) -> AbstractContextManager[Signals]:
        """Have SIGINT and SIGTERM ask a job to stop."""
        from poundlock.cli.signals import signals_asking
        from poundlock.driver.progress import StopRequest

        return signals_asking(StopRequest(), self.output.note, job)


@dataclass
class SqlJobs:
    """Runs the jobs of a script or a shell in this process: listed, served and logged as those of `run`, one behind the other.

    Args:
        arguments: the command line behind `sql`, with which the script runs again.
        target: what the script is: a file, or where it was typed.
        spark: gives the Spark session that a job runs in; None: it has one of its own.
        is_shell: whether the process goes on when a job has ended, so that signals to it are not meant for the job.
        exit_code: of the newest job that has ended.
    """

    settings: Settings
    arguments: Sequence[str]
    target: str
    terminal: JobTerminal
    spark: Callable[[], Session | None] = lambda: None
    is_shell: bool = False
    exit_code: int = 0

    def launch(self, job: Job, beginning: Beginning | None) -> bool:
        """Run a job until it ends; return whether it came to the end of its input, and nobody stopped it before.

        Raises:
            PoundlockError: it cannot run, or failed for good.
        """
        from poundlock.cli.job_endpoint import Presence
        from poundlock.cli.jobs.watched import exit_code_of, run_watched
        from poundlock.control.logs import open_log
        from poundlock.driver.requests import Requests

        settings, session = self.settings, self.spark()
        job.command, job.script = "sql", shlex.join(self.arguments)
        with (
            self.terminal.asking(job) as signals,
            open_log(job.name, settings.logs, level=settings.log_level, secrets=settings.secrets()) as log,
        ):
            log.logger.info("run", file=self.target, settings=settings.shown())
            presence = Presence(
                job=job,
                settings=settings,
                log=log,
                stop=signals.stop,
                requests=Requests(),
                job_file=self.target,
                arguments=self.arguments,
                command="sql",
                is_shell=self.is_shell,
            )
            presence.take_port()
            self.terminal.say(f"job {job.name}, log {log.path}")
            try:
                progress = run_watched(job, settings, log, presence, self.terminal.update, beginning, session)
                self.exit_code = exit_code_of(progress, signals)
            except BaseException as error:
                presence.end(error.exit_code if isinstance(error, PoundlockError) else 1, error)
                raise
            presence.end(self.exit_code)
        is_whole = progress.state == "FINISHED" and not signals.stop.stopping
        return is_whole and not progress.message.startswith(SAVED)


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
            raise PoundlockError(
                f"job {ended.job_id} failed: {what}", next=next or f"read {ended.log}", code=ended.failure_code
            )
        return None
