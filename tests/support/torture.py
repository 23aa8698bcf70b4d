"""Seeded torture: SIGKILL the driver, the JVM or a Python worker of a running job again and again, at random moments.

The plan depends on the seed alone and is printed with it, so that a failure can be run again; what the kill really hit is
in the report. Whether anything was lost is for `poundlock.testing.audit` to say.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from poundlock.testing.job_parts import Victim, kill_part
from poundlock.testing.job_process import JobProcess, completed

__all__ = ["Kill", "Struck", "Torture", "TortureReport", "kept_ahead", "plan_kills", "tortured"]


@dataclass(frozen=True, slots=True)
class Kill:
    """One planned kill.

    Args:
        victim: which part of the job.
        anchor: what the delay counts from: the start of the driver's process (or the last kill), or the first checkpoint after it.
        after_s: the delay, s.
        choice: 0 to 1, picks one of several workers.
    """

    victim: Victim
    anchor: Literal["start", "checkpoint"]
    after_s: float
    choice: float


@dataclass(frozen=True, slots=True)
class Struck:
    """One kill as it happened: the plan, the part that really was hit, and the driver's life (from 1)."""

    kill: Kill
    victim: Victim
    life: int


@dataclass(slots=True)
class TortureReport:
    """What was done to a job.

    Args:
        seed: of the plan.
        struck: the kills, in order.
        lives: how many drivers were started.
        exits: exit codes of the drivers that ended, in order; -9 is SIGKILL.
        recovery_s: from each kill to the next completed checkpoint, s.
    """

    seed: int
    struck: list[Struck] = field(default_factory=list)
    lives: int = 0
    exits: list[int] = field(default_factory=list)
    recovery_s: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        by_victim = ", ".join(f"{n} {v}" for v, n in sorted(Counter(s.victim for s in self.struck).items()))
        slowest = f", slowest recovery {max(self.recovery_s):.1f} s" if self.recovery_s else ""
        return f"seed {self.seed}: {len(self.struck)} kills ({by_victim}), {self.lives} lives{slowest}"


def plan_kills(
    seed: int, kills: int, *, weights: Sequence[float] = (5, 2, 3), spread_s: float = 2.0
) -> tuple[Kill, ...]:
    """Return the plan of a seed.

    Args:
        seed: the same seed gives the same plan.
        kills: how many.
        weights: how often driver, JVM and worker are chosen, relative to each other.
        spread_s: delays after a checkpoint are 0 to this. One kill in six counts from the start instead, to hit start-up and
            recovery, and waits up to 12 s.
    """
    rng = random.Random(seed)
    victims: tuple[Victim, ...] = ("driver", "jvm", "worker")
    plan = []
    for _ in range(kills):
        victim = rng.choices(victims, weights)[0]
        from_start = rng.random() < 1 / 6 and victim == "driver"
        after_s = rng.uniform(1.0, 12.0) if from_start else rng.uniform(0.0, spread_s)
        plan.append(Kill(victim, "start" if from_start else "checkpoint", round(after_s, 3), rng.random()))
    return tuple(plan)


class Torture:
    """Carries out a plan on a job that is started again whenever it ends.

    Args:
        start: starts the job's next life; called with its number, from 1.
        seed: of the plan, for the report.
        plan: the kills.
        patience_s: how long a life may take to its next checkpoint before the torture gives up on it.
        say: told of each kill, one line.
    """

    def __init__(
        self,
        start: Callable[[int], JobProcess],
        seed: int,
        plan: Sequence[Kill],
        *,
        patience_s: float = 300.0,
        say: Callable[[str], None] = print,
    ) -> None:
        self._start = start
        self._plan = plan
        self._patience_s = patience_s
        self._say = say
        self.report = TortureReport(seed)
        self.job: JobProcess | None = None

    def run(self) -> TortureReport:
        """Carry out every kill, then wait for one more checkpoint; the job is left running in `job`.

        Raises:
            RuntimeError: the job ended with success before the plan did (give it more input), made no checkpoint in time, or ended by
                itself three times in a row without one.
        """
        self._say(f"torture: seed {self.report.seed}, {len(self._plan)} kills")
        killed_at: float | None = None
        for number, kill in enumerate(self._plan, 1):
            job = self._living()
            if kill.anchor == "checkpoint":
                job = self._checkpoint(killed_at)
                killed_at = None
            self._sleep(job, kill.after_s)
            victim = self._strike(kill)
            if killed_at is None:
                killed_at = time.monotonic()
            self.report.struck.append(Struck(kill, victim, self.report.lives))
            self._say(
                f"torture: kill {number}/{len(self._plan)} {victim} in life {self.report.lives} ({kill.anchor} + {kill.after_s} s)"
            )
        self._checkpoint(killed_at)
        return self.report

    def _living(self) -> JobProcess:
        job = self.job
        if job is None or job.exit_code is not None:
            if job is not None and job.exit_code is not None:
                self.report.exits.append(job.exit_code)
                if job.exit_code == 0:
                    raise RuntimeError(f"the job ended after {len(self.report.struck)} kills: give it more input")
            self.report.lives += 1
            job = self.job = self._start(self.report.lives)
        return job

    def _checkpoint(self, killed_at: float | None) -> JobProcess:
        """Wait until a checkpoint is completed after the last kill, starting the job again where it ended."""
        for _ in range(3):
            job = self._living()
            lines = job.lines()
            done = max((completed(line.value) for line in lines), default=-1)
            line = job.wait_line(_newer_than(done), seconds=self._patience_s, after=len(lines))
            if line is not None:
                if killed_at is not None:
                    self.report.recovery_s.append(line.at - killed_at)
                return job
            if job.exit_code is None:
                raise RuntimeError(f"no checkpoint within {self._patience_s:.0f} s; log:\n{job.log_tail()}")
        assert self.job is not None
        raise RuntimeError(f"the job ended three times without a checkpoint; log:\n{self.job.log_tail()}")

    def _sleep(self, job: JobProcess, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while job.exit_code is None and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))

    def _strike(self, kill: Kill) -> Victim:
        """Kill the planned part, or the driver where that part does not exist at this moment."""
        job = self._living()
        if kill.victim != "driver" and kill_part(job, kill.victim, lambda some: some[int(kill.choice * len(some))]):
            return kill.victim
        job.kill()
        return "driver"


def _newer_than(done: int) -> Callable[[Mapping[str, Any]], bool]:
    return lambda value: completed(value) > done


def kept_ahead(produce: Callable[[], None], waiting: Callable[[], int], most: int) -> Callable[[], None]:
    """Return what produces only while fewer than `most` records wait: on a slow machine a job would never catch up with what came by the clock."""

    def produce_some() -> None:
        if waiting() < most:
            produce()

    return produce_some


def tortured(
    start: Callable[[], JobProcess],
    produce: Callable[[], None],
    kills: int,
    *,
    spread_s: float = 2.0,
    patience_s: float = 300.0,
) -> JobProcess:
    """Kill a job so often while more input is produced, and return the life that goes on.

    Args:
        start: starts the job's next life.
        produce: produces a little more input; called about three times a second, from a thread of its own.
        kills: how many. The seed is that of POUNDLOCK_TORTURE_SEED, else of the clock; it is printed.
        spread_s: as `plan_kills` takes it.
        patience_s: as of `Torture`.

    Raises:
        RuntimeError: as `Torture.run`, or a kill hit nothing.
    """
    done = threading.Event()

    def feed() -> None:
        while not done.is_set():
            produce()
            done.wait(0.3)

    seed = int(os.environ.get("POUNDLOCK_TORTURE_SEED") or time.time_ns() // 1000 % 1_000_000_000)
    torturer = Torture(lambda _: start(), seed, plan_kills(seed, kills, spread_s=spread_s), patience_s=patience_s)
    feeder = threading.Thread(target=feed, name="feeder", daemon=True)
    feeder.start()
    try:
        report = torturer.run()
    finally:
        done.set()
        feeder.join(60)
    print(report)
    if len(report.struck) != kills or torturer.job is None:
        raise RuntimeError(f"{kills} kills were planned, {len(report.struck)} were carried out")
    return torturer.job
