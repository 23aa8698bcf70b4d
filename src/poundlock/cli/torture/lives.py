"""The lives of a job in a sandbox: it is started, killed as planned, and started again, until its input is read.

Every process of a life carries a tag, by which what a killed driver leaves behind is waited for, and ended.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from poundlock.cli.torture.kills import SERVICE, Kill, lives_of, one_of
from poundlock.errors import PoundlockError
from poundlock.failpoints import ENVIRONMENT
from poundlock.testing.job_parts import kill_part
from poundlock.testing.job_process import JobProcess, completed, end_tagged, new_tag

_KILLED = -9
_LOOK_S = 0.02
_MOST_FAILURES = 3


@dataclass(frozen=True, kw_only=True)
class Struck:
    """A kill that was carried out, and in which life of the driver, from 1."""

    kill: Kill
    life: int


@dataclass(kw_only=True)
class Lives:
    """What became of a job in one run.

    Args:
        lives: how many drivers were started.
        missed: kills that came to nothing: the job had ended before, or did not come to that step.
        seconds: how long it took.
    """

    lives: int = 0
    struck: list[Struck] = field(default_factory=list)
    missed: list[Kill] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Service:
    """The commands that stop a broker or a database, and start it again; a kill is one behind the other with a pause."""

    stop: Sequence[str]
    start: Sequence[str]
    pause_s: float = 2.0

    def outage(self) -> None:
        """Stop it, wait, and start it again.

        Raises:
            PoundlockError: one of the commands failed.
        """
        for command, pause_s in ((self.stop, self.pause_s), (self.start, 0.0)):
            try:
                done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
            except (OSError, subprocess.SubprocessError) as error:
                raise _outage_failed(str(error)) from error
            if done.returncode:
                words = (done.stderr or done.stdout).strip()[-300:]
                raise _outage_failed(f"{shlex.join(command)} ended with {done.returncode}" + (words and f": {words}"))
            time.sleep(pause_s)


def _outage_failed(why: str) -> PoundlockError:
    return PoundlockError(f"the service could not be stopped and started: {why}", next="run the command by hand")


@dataclass(kw_only=True)
class LivesOfJob:
    """Runs the file of a sandbox to the end of its input.

    Args:
        arguments: behind `poundlock run FILE --json`.
        patience_s: how long one life may take.
        say: takes a line for each kill.
    """

    file: Path
    arguments: Sequence[str]
    patience_s: float
    say: Callable[[str], None]
    services: Sequence[Service] = ()

    def run(self, kills: Sequence[Kill] = ()) -> Lives:
        """Live and die as planned, and then live to the end.

        Raises:
            PoundlockError: the job fails by itself, or a life takes too long; names its log.
        """
        done, began, failures = Lives(), time.monotonic(), 0
        planned = lives_of(kills)
        marks = self.file.parent / "struck"
        marks.mkdir(exist_ok=True)
        while True:
            group = planned.pop(0) if planned else []
            done.lives += 1
            code = self._life(group, done, marks)
            if code == 0:
                done.missed += [kill for each in planned for kill in each]
                done.seconds = time.monotonic() - began
                return done
            died = code == _KILLED and group and group[-1].ends_life
            # What a killed JVM or worker costs is for the restart strategy; where that is none, the next life goes on.
            failures = 0 if died else failures + 1
            if failures >= _MOST_FAILURES or (failures and not group):
                raise PoundlockError(
                    f"the job failed by itself in life {done.lives}, with exit code {code}{self._why()}",
                    next=f"read {self._log}",
                )

    @property
    def _log(self) -> Path:
        return self.file.parent / "lives.log"

    def _why(self) -> str:
        """Return the last error that the job has printed, behind a colon."""
        errors = [line for line in self._log.read_text(errors="replace").splitlines() if line.startswith("error: ")]
        return f": {errors[-1].removeprefix('error: ')}" if errors else ""

    def _life(self, group: Sequence[Kill], done: Lives, marks: Path) -> int:
        """Live one life, and return its exit code."""
        settings = [kill.setting(marks) for kill in group if kill.at_failpoint]
        environment: Mapping[str, str] = {ENVIRONMENT: ",".join(settings)}
        tag = new_tag()
        job = JobProcess(self.file, arguments=self.arguments, environment=environment, tag=tag, log=self._log)
        end = time.monotonic() + self.patience_s
        try:
            for kill in group:
                if not kill.at_failpoint and self._at_its_moment(job, kill, end) and self._strike(job, kill):
                    self._note(kill, done)
            while job.exit_code is None:
                if time.monotonic() > end:
                    raise PoundlockError(
                        f"life {done.lives} took longer than {self.patience_s:.0f} s", next=f"read {self._log}"
                    )
                time.sleep(_LOOK_S)
        finally:
            job.kill()
            end_tagged(tag)
        for kill in group:
            if kill.at_failpoint and kill.mark(marks).exists():
                self._note(kill, done)
        known = {each.kill for each in done.struck}
        done.missed += [kill for kill in group if kill not in known]
        return int(job.exit_code or 0)

    def _note(self, kill: Kill, done: Lives) -> None:
        done.struck.append(Struck(kill=kill, life=done.lives))
        self.say(f"kill {kill.number} in life {done.lives}: {kill}")

    def _at_its_moment(self, job: JobProcess, kill: Kill, end: float) -> bool:
        """Wait until a kill of chance is due; return False if the job ended before."""
        if kill.from_start:
            due = job.started + kill.after_s
        else:
            seen = job.wait_line(lambda value: completed(value) >= 0, seconds=max(0.0, end - time.monotonic()))
            if seen is None:
                return False
            due = time.monotonic() + kill.after_s
        while time.monotonic() < due:
            if job.exit_code is not None:
                return False
            time.sleep(_LOOK_S)
        return job.exit_code is None

    def _strike(self, job: JobProcess, kill: Kill) -> bool:
        """Carry out a kill of chance; return False where there was nothing to kill."""
        if kill.what == SERVICE:
            self.services[one_of(kill.choice, len(self.services))].outage()
            return True
        if kill.what == "driver":
            return job.kill()
        return kill_part(job, kill.what, lambda some: some[int(kill.choice * len(some))])  # type: ignore[arg-type]


def in_order(lives: Lives) -> Iterator[str]:
    """Yield the kills that were carried out as lines, and those that came to nothing."""
    for each in lives.struck:
        yield f"life {each.life}: {each.kill}"
    for kill in lives.missed:
        yield f"came to nothing: {kill}"
