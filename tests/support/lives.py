"""A job through as many lives as it takes: started again after every crash until it ends by itself, is stopped, or is stuck.

Only a death by SIGKILL is answered with a new life; any other end that was not asked for is a failure of the test at hand.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.failpoints import Failpoint, StreamFailpoint
from poundlock.storage import Storage
from poundlock.testing.job_process import JobProcess, completed, end_tagged, new_tag

__all__ = [
    "DRIVERS",
    "STATELESS",
    "JobStuck",
    "Lives",
    "failpoint_setting",
    "files_found",
    "offsets_read",
    "slow_commits",
]

STATELESS = tuple(point for point in Failpoint if point is not Failpoint.STATE_WRITING)
"""The points that a job without keyed state passes."""

DRIVERS = frozenset(Failpoint) - {
    Failpoint.TASKS_READING,
    Failpoint.SINK_WRITING,
    Failpoint.STATE_WRITING,
    Failpoint.SINK_PREPARED,
}
"""The points that the driver passes: each costs it a life, where a task's process dies alone."""

KILLED = -9
_QUICK_RESTARTS = (
    "restart-strategy.type=fixed-delay",
    "restart-strategy.fixed-delay.attempts=100",
    "restart-strategy.fixed-delay.delay=100 ms",
    # A life lasts seconds: compiling further than C1 would cost more than it gives back.
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
)


class JobStuck(AssertionError):
    """The job did not do in time what the test waits for, or ended in a way nobody asked for; the text ends with its log."""


def failpoint_setting(
    action: str, folder: Path, *, times: int = 1, points: Sequence[Failpoint | StreamFailpoint] = tuple(Failpoint)
) -> str:
    """Return a value of POUNDLOCK_FAILPOINTS that acts once at each of the points, however many processes pass them.

    Args:
        action: see `poundlock.failpoints.hit`.
        folder: where the marks of the points that were hit are kept: files called as the points.
        times: at which pass within one process.
        points: default: every point there is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return ",".join(f"{p.value}:{action}@{times};once={folder / p.value}" for p in points)


def folders_of(folder: Path, given: Path) -> dict[str, str]:
    """Return what tells a job where its input, output and checkpoints are."""
    return {"CRASH_IN": str(given), "CRASH_OUT": str(folder / "out"), "CRASH_CHECKPOINTS": str(folder / "checkpoints")}


def files_found(checkpoints: Path, source: str) -> int:
    """Return how many files a source has found: without `watch` it reads these, and does not look again."""
    log = (checkpoints / "sources" / source / "log").glob(
        "[!.]*.json"
    )  # one that is being written has a hidden name too
    return sum(len(json.loads(path.read_text())["files"]) for path in log)


def offsets_read(checkpoints: Storage) -> int:
    """Return the sum of the offsets at which the newest decided checkpoint of a job with one Kafka source ends; 0 before the first."""
    ledger = Ledger(checkpoints)
    newest = ledger.newest()
    read = next((record for record in ledger.back(newest) if record.sources), None) if newest else None
    if read is None:
        return 0
    ((_, span),) = read.sources.items()
    return sum(int(offset) for partitions in (span.end or {}).values() for offset in partitions.values())


def slow_commits(folder: Path, first: int, *, count: int = 5, step: int = 1) -> str:
    """Return a value of POUNDLOCK_FAILPOINTS with which a process sleeps at some commits, once whatever the life.

    Args:
        folder: where the marks of those that were slow are kept.
        first: the first of them, counted from 1 within one process.
        count: how many.
        step: from one to the next; 1: in a row.
    """
    folder.mkdir(parents=True, exist_ok=True)
    point = Failpoint.SINK_COMMITTING.value
    slow = range(first, first + count * step, step)
    return ",".join(f"{point}:sleep@{n};once={folder / f'slow-{n}'}" for n in slow)


class Lives:
    """The lives of one job on one checkpoint. Use it in a `with` block: at its end every process of the job is ended.

    Args:
        job: the job file.
        environment: variables of every life.
        folder: where the log goes.
        arguments: further arguments of `poundlock run`; restarts within a life are made quick.
        patience_s: how long one life may go without doing what is waited for.
        command: of `poundlock` that runs it: "sql" for a script.
    """

    def __init__(
        self,
        job: Path,
        *,
        environment: Mapping[str, str],
        folder: Path,
        arguments: Sequence[str] = (),
        patience_s: float = 300.0,
        command: Literal["run", "sql"] = "run",
    ) -> None:
        self._job, self._command = job, command
        self._environment = {"POUNDLOCK_STATE_DIR": str(folder / "state"), **environment}
        self._arguments = [*(word for setting in _QUICK_RESTARTS for word in ("-D", setting)), *arguments]
        self.folder = folder
        self.patience_s = patience_s
        self.tag = new_tag()
        self.exits: list[int] = []
        self.job: JobProcess | None = None

    def __enter__(self) -> Lives:
        return self

    def __exit__(self, *error: object) -> None:
        end_tagged(self.tag, patience_s=0)

    def add(self, *arguments: str) -> None:
        """Give every life from now on further arguments of `poundlock run`."""
        self._arguments += arguments

    def start(self, *arguments: str, **environment: str) -> JobProcess:
        """Start the next life, with further arguments and variables."""
        self.job = JobProcess(
            self._job,
            arguments=[*self._arguments, *arguments],
            environment={**self._environment, **environment},
            tag=self.tag,
            log=self.folder / "job.log",
            command=self._command,
        )
        return self.job

    def run(self, *, most: int = 25, **environment: str) -> list[int]:
        """Start the job, and again each time it is killed, until it ends with 0; return the exit codes of these lives.

        Raises:
            JobStuck: it took more than `most` lives, too long, or ended in another way.
        """
        codes: list[int] = []
        while len(codes) < most:
            codes.append(self.end(self.start(**environment)))
            if codes[-1] == 0:
                return codes
            if codes[-1] != KILLED:
                raise self._stuck(f"ended with {codes[-1]} in life {len(codes)}")
        raise self._stuck(f"did not end in {most} lives: {codes}")

    def until(self, reached: Callable[[], bool], job: JobProcess) -> JobProcess:
        """Wait until something holds while the job lives, giving it a new life each time it is killed; return the living one.

        Raises:
            JobStuck: it took more than twice the patience, or the job ended in another way.
        """
        deadline = time.monotonic() + 2 * self.patience_s
        while not reached() or job.exit_code is not None:
            if job.exit_code not in (None, KILLED):
                raise self._stuck(f"ended with {job.exit_code}")
            if job.exit_code is not None:
                job = self.start()
            if time.monotonic() > deadline:
                raise self._stuck("did not get where it should in time")
            time.sleep(0.2)
        return job

    def run_until(
        self, reached: Callable[[Mapping[str, Any]], bool], *, most: int = 25, **environment: str
    ) -> JobProcess:
        """Start the job, and again each time it is killed, until a progress line is as wanted; return the life that goes on.

        Raises:
            JobStuck: as for `run`.
        """
        for life in range(1, most + 1):
            job = self.start(**environment)
            if job.wait_line(reached, seconds=self.patience_s) is not None:
                return job
            if job.exit_code is None:
                raise self._stuck(f"did not get there in {self.patience_s:.0f} s in life {life}")
            self.exits.append(job.exit_code)
            if job.exit_code != KILLED:
                raise self._stuck(f"ended with {job.exit_code} in life {life}")
        raise self._stuck(f"was killed {most} times and did not get there")

    def stop(self, job: JobProcess) -> int:
        """Stop a life cleanly; return its exit code. Raises JobStuck if it does not end."""
        job.terminate()
        return self.end(job)

    def end(self, job: JobProcess) -> int:
        """Wait for the end of a life; return its exit code. Raises JobStuck if it does not come."""
        try:
            code = job.wait(self.patience_s)
        except subprocess.TimeoutExpired:
            raise self._stuck(f"did not end within {self.patience_s:.0f} s") from None
        self.exits.append(code)
        return code

    def checkpoints(self, job: JobProcess, count: int) -> None:
        """Wait until a life has completed `count` checkpoints of its own. Raises JobStuck."""
        seen: set[int] = set()

        def enough(value: Mapping[str, Any]) -> bool:
            if completed(value) >= 0:
                seen.add(completed(value))
            return len(seen) >= count

        if job.wait_line(enough, seconds=self.patience_s) is None:
            raise self._stuck(f"did not complete {count} checkpoints (exit code {job.exit_code})")

    def left_behind(self) -> list[str]:
        """Return the command lines of processes of the job that do not end by themselves within 20 s; they are killed."""
        return end_tagged(self.tag)

    def _stuck(self, what: str) -> JobStuck:
        tail = self.job.log_tail(6000) if self.job else ""
        return JobStuck(f"the job {what}; its log ends:\n{tail}")
