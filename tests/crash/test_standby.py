"""Drivers that stand by: the active one is killed or stopped, and one of the others goes on; two at once never both decide.

Times are printed and not asserted: from the signal to the record of the next life's first checkpoint.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.failpoints import ENVIRONMENT, Failpoint
from poundlock.testing.job_process import JobProcess
from support.lives import failpoint_setting
from support.stores import LOCAL_FIRST, STORES

if TYPE_CHECKING:
    from tests.crash.conftest import FileScene

pytestmark = pytest.mark.crash

_PATIENCE_S = 600.0
_FENCED = 5
_STEPS = (
    Failpoint.PREPARE_VERIFIED,
    Failpoint.DECISION_RECORDED,
    Failpoint.SINK_COMMITTING,
    Failpoint.SINK_COMMITTED,
    Failpoint.CHECKPOINT_DONE,
)
ON_ALL = pytest.mark.parametrize("store", list(STORES), indirect=True)


class Drivers:
    """The drivers of one scene: one that runs the job, one that stands by, and those that were stopped."""

    def __init__(self, scene: FileScene, *lease: str, failpoints: str = "", two: bool = False) -> None:
        """Start a driver, and another one that stands by: when the first has decided, or at the same moment."""
        self.scene, self.lease, self.failpoints = scene, lease, failpoints
        self.ledger = Ledger(scene.store.storage("checkpoints"))
        self.stopped: list[tuple[JobProcess, list[psutil.Process]]] = []
        self.took_s: list[tuple[str, float]] = []
        self.active, second = self._start(), self._start() if two else None
        self.decision(1)
        self.standby: JobProcess | None = self.stand_by() if second is None else self._which_waits(second)

    def _start(self) -> JobProcess:
        return self.scene.lives.start("--standby", *self.lease, CRASH_WATCH="1", **{ENVIRONMENT: self.failpoints})

    def stand_by(self) -> JobProcess:
        """Start another, and wait until its Spark is warm."""
        job = self._start()
        assert self._waits(job, _PATIENCE_S), job.log_tail()
        return job

    def _which_waits(self, second: JobProcess) -> JobProcess:
        """Return which of the first two stands by, and take the other one for the active driver."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            for active, other in ((self.active, second), (second, self.active)):
                if self._waits(other, 1.0):
                    assert (active.exit_code, other.exit_code) == (None, None), other.log_tail()
                    assert not self._waits(active, 0.0)
                    self.active = active
                    return other
        raise AssertionError(second.log_tail())

    @staticmethod
    def _waits(job: JobProcess, seconds: float) -> bool:
        """Whether a driver says within so long that its Spark is warm and waits."""
        return (
            job.wait_line(lambda value: "waits for the job" in str(value.get("message")), seconds=seconds) is not None
        )

    def decision(self, epoch: int) -> Decision:
        """Wait for a checkpoint of that epoch, giving the job something to read."""
        deadline, fed = time.monotonic() + _PATIENCE_S, False
        while time.monotonic() < deadline:
            newest = self.ledger.newest()
            if newest is not None and newest.epoch >= epoch:
                if newest.occasion == "checkpoint":
                    return newest
                if not fed:
                    self.scene.produce(200, files=1)
                    fed = True
            time.sleep(0.05)
        raise AssertionError(f"no decision of epoch {epoch}: {self.scene.lives._stuck('stands still')}")

    def all_is_read(self) -> bool:
        """Whether every record that was produced is in a decided checkpoint."""
        read = [decision.sources["events"].rows or 0 for decision in self.ledger if decision.occasion == "checkpoint"]
        return sum(read) == len(self.scene.produced)

    def lose(self, how: str, *, whole: bool = False, again: bool = True) -> None:
        """Take the active driver away; return when the standby has decided.

        Args:
            how: "killed" or "stopped".
            whole: whether its JVM and its tasks are stopped with it.
            again: whether another one then stands by.
        """
        newest = self.ledger.newest()
        assert newest is not None
        assert self.standby is not None
        victim = self.active
        began = time.monotonic()
        if how == "killed":
            victim.kill()
        else:
            process = psutil.Process(victim.pid)
            its = [process, *(process.children(recursive=True) if whole else [])]
            for each in its:
                each.send_signal(signal.SIGSTOP)
            self.stopped.append((victim, its))
        self.decision(newest.epoch + 1)
        self.took_s.append((how, time.monotonic() - began))
        self.active, self.standby = self.standby, self.stand_by() if again else None

    def lose_by_itself(self) -> None:
        """Wait until the active driver has stopped itself at a failpoint; return when the standby has decided, or has stopped itself as well."""
        assert self.standby is not None
        newest, victim = self.ledger.newest(), psutil.Process(self.active.pid)
        assert newest is not None
        self._feed_until(lambda: victim.status() == psutil.STATUS_STOPPED)
        self.stopped.append((self.active, [victim]))
        began, epoch, self.active = time.monotonic(), newest.epoch + 1, self.standby
        heir = psutil.Process(self.active.pid)
        self._feed_until(lambda: self._decided_by(epoch) or heir.status() == psutil.STATUS_STOPPED)
        self.took_s.append(("stopped", time.monotonic() - began))
        self.standby = self.stand_by()

    def _decided_by(self, epoch: int) -> bool:
        newest = self.ledger.newest()
        return newest is not None and newest.epoch >= epoch and newest.occasion == "checkpoint"

    def _feed_until(self, reached: Callable[[], bool]) -> None:
        """Wait until something holds, giving the job something to read whenever it has read all."""
        deadline = time.monotonic() + _PATIENCE_S
        while not reached():
            assert self.active.exit_code is None, self.active.log_tail(6000)
            assert time.monotonic() < deadline, self.active.log_tail(6000)
            if self.all_is_read():
                self.scene.produce(200, files=1)
            time.sleep(0.5)

    def wake(self) -> None:
        """Let those that were stopped go on: each has to find that it was succeeded, and has decided nothing since."""
        for job, its in self.stopped:
            while job.exit_code is None:  # it may stop itself once more, at a later failpoint
                for each in reversed(its):
                    with suppress(psutil.NoSuchProcess):
                        each.send_signal(signal.SIGCONT)
                time.sleep(0.2)
            assert self.scene.lives.end(job) == _FENCED, job.log_tail(6000)
        self.stopped.clear()

    def end(self) -> None:
        """End the job by its folder: who stands by ends with it. Then all that was produced is in finished files, once."""
        lives = self.scene.lives
        lives.until(self.all_is_read, self.active)
        storage = self.scene.store.storage("checkpoints")
        storage.create_exclusive(f"control/requests/{'0' * 32}.json", b'{"kind": "stop"}')
        for job in (self.active, self.standby):
            assert job is None or lives.end(job) == 0, job.log_tail(6000)
        assert lives.run() == [0]
        epochs = [decision.epoch for decision in self.ledger]
        assert epochs == sorted(epochs), "a driver decided that had been succeeded"
        self.scene.assert_exact()
        print("\n".join(f"{how}: {took:.1f} s to the next decision" for how, took in self.took_s))


def drivers(scene: FileScene, *lease: str, failpoints: str = "") -> Drivers:
    scene.produce(2000)
    return Drivers(scene, *lease, failpoints=failpoints)


@LOCAL_FIRST
def test_one_that_stands_by_goes_on_for_a_driver_that_is_killed_and_for_one_that_is_stopped(
    file_scene: FileScene,
) -> None:
    job = drivers(file_scene, "-D", "lease_duration=3 s" if file_scene.store.name == "local" else "lease_duration=10 s")
    job.lose("stopped")
    job.wake()
    job.lose("killed", again=False)
    job.end()


@pytest.mark.torture
@ON_ALL
def test_of_two_that_start_at_the_same_moment_on_an_empty_root_one_decides_and_the_other_waits(
    file_scene: FileScene,
) -> None:
    """Neither ends, and there is one life. Then the one that decides is killed, started again, and stopped."""
    file_scene.produce(2000)
    job = Drivers(file_scene, "-D", "lease_duration=10 s", two=True)
    assert sorted(file_scene.store.storage("checkpoints").names("epochs")) == ["00000001.json"]
    assert {decision.epoch for decision in job.ledger} == {1}
    job.lose("killed")
    job.lose("stopped", again=False)
    job.wake()
    job.end()


@pytest.mark.torture
@ON_ALL
def test_a_driver_that_stops_within_a_checkpoint_decides_nothing_when_it_goes_on(file_scene: FileScene) -> None:
    """At each step between its tasks and the end of a checkpoint, where it has looked at its epoch and may be about to write."""
    failpoints = failpoint_setting("stop", file_scene.hit, times=2, points=_STEPS)
    job = drivers(file_scene, "-D", "lease_duration=10 s", failpoints=failpoints)
    while len(list(file_scene.hit.iterdir())) < len(_STEPS):
        job.lose_by_itself()
        job.wake()
    job.end()


@pytest.mark.torture
@ON_ALL
def test_many_changes_of_the_active_driver(file_scene: FileScene) -> None:
    seed = int(os.environ.get("POUNDLOCK_TORTURE_SEED") or time.time_ns() // 1000 % 1_000_000_000)
    print(f"POUNDLOCK_TORTURE_SEED={seed}")
    chance = random.Random(seed)
    job = drivers(file_scene, "-D", f"lease_duration={'6 s' if file_scene.store.name == 'local' else '10 s'}")
    for _ in range(int(os.environ.get("POUNDLOCK_TORTURE_KILLS") or 12)):
        file_scene.produce(chance.randrange(200, 4000))
        time.sleep(chance.random() * 2)  # anywhere in a checkpoint
        job.lose(chance.choice(["killed", "stopped"]), whole=chance.random() < 0.5)
        wakes: list[Callable[[], None]] = [job.wake, lambda: None]
        chance.choice(wakes)()
    job.wake()
    job.end()
