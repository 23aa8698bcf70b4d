"""Drivers that stand by on a store, without Spark: the active one is killed or stopped, and one of the others decides next; two never both do.

The lease is on a real server: what a store says of a name that was just written, and which of two writers of one name wins, is its word.
Jobs on Spark are killed so in tests/crash/test_standby.py.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.epoch import newest_life
from poundlock.checkpoint.ledger.ledger import Ledger
from support.stores import Store, make_store

pytestmark = [pytest.mark.services, pytest.mark.crash]

DRIVER = Path(__file__).parent / "jobs/standby_driver.py"
LEASE_S, DRIVERS, PATIENCE_S = 2.0, 3, 120.0
FENCED, KILLED = 5, -signal.SIGKILL


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return make_store(request.param, request, tmp_path)


ON_STORES = pytest.mark.parametrize(
    "store",
    ["local", "s3", *(pytest.param(name, marks=pytest.mark.torture) for name in ("hdfs", "minio"))],
    indirect=True,
)


class Drivers:
    """Some drivers on one folder, of which one is active."""

    def __init__(self, store: Store) -> None:
        self.storage = store.storage("checkpoints")
        self.ledger = Ledger(self.storage)
        self._command = [sys.executable, str(DRIVER), store.at("checkpoints"), str(LEASE_S)]
        self._environment = {**os.environ, **store.environment}
        self.all: dict[int, subprocess.Popen[bytes]] = {}
        self.stopped: list[int] = []

    def fill_up(self) -> None:
        """Start more until so many live as there are to be; a busy machine may cost one its lease, and so its life."""
        codes = {pid: process.poll() for pid, process in self.all.items() if pid not in self.stopped}
        assert set(codes.values()) <= {None, FENCED, KILLED}
        for _ in range(DRIVERS - list(codes.values()).count(None)):
            process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            self.all[process.pid] = process

    def decided_by_another(self, than: int) -> Decision:
        """Wait for a checkpoint of an epoch beyond that one and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            newest = self.ledger.newest()
            if newest is not None and newest.epoch > than and newest.occasion == "checkpoint":
                return newest
            self.fill_up()
            time.sleep(0.05)
        raise AssertionError(f"nobody succeeded epoch {than}")

    def lose(self, how: signal.Signals) -> None:
        """Take the active driver away, and return when another one has decided."""
        life = newest_life(self.storage)
        assert life is not None
        self.all[life.pid].send_signal(how)
        if how == signal.SIGSTOP:
            self.stopped.append(life.pid)
        self.decided_by_another(life.epoch)

    def wake(self) -> None:
        """Let those that were stopped go on: each finds that it was succeeded."""
        for pid in self.stopped:
            self.all[pid].send_signal(signal.SIGCONT)
            assert self.all.pop(pid).wait(PATIENCE_S) == FENCED
        self.stopped.clear()

    def end(self) -> None:
        """Kill all of them."""
        for process in self.all.values():
            process.kill()
        for process in self.all.values():
            process.wait()


@contextmanager
def drivers(store: Store) -> Iterator[Drivers]:
    """Yield drivers of which one has decided; see behind the block that no two decided at once."""
    those = Drivers(store)
    try:
        those.decided_by_another(0)
        yield those
    finally:
        those.end()
    decisions = list(those.ledger)
    epochs = [decision.epoch for decision in decisions]
    assert epochs == sorted(epochs), "a driver decided that had been succeeded"
    checkpoints = [decision.checkpoint for decision in decisions if decision.occasion == "checkpoint"]
    assert checkpoints == list(range(checkpoints[0], checkpoints[0] + len(checkpoints)))


@ON_STORES
def test_of_drivers_that_stand_by_one_goes_on_and_who_was_stopped_decides_nothing_more(store: Store) -> None:
    with drivers(store) as those:
        those.lose(signal.SIGSTOP)
        those.lose(signal.SIGKILL)
        those.wake()


@pytest.mark.parametrize(
    ("store", "times"),
    [
        ("local", 3),
        *(pytest.param(name, 10, marks=pytest.mark.torture) for name in ("local", "hdfs", "s3", "minio")),
    ],
    indirect=["store"],
)
def test_of_drivers_that_start_at_the_same_moment_on_an_empty_folder_one_runs_and_the_others_wait(
    store: Store, times: int, tmp_path: Path
) -> None:
    """Nobody is taken for dead between its claim and its first lease: there is one life, and nobody ends."""
    for each in range(times):
        _start_at_once(store, f"checkpoints-{each}", tmp_path / f"round-{each}")


def _start_at_once(store: Store, folder: str, place: Path) -> None:
    """Start drivers on a folder, which wait for each other until all have been started; see that one runs and nobody ends."""
    place.mkdir()
    outputs, ledger = [place / f"driver-{number}" for number in range(DRIVERS)], Ledger(store.storage(folder))
    command = [sys.executable, str(DRIVER), store.at(folder), "30", str(place / "start")]
    environment = {**os.environ, **store.environment}
    processes = []
    try:
        for output in outputs:
            with output.open("wb") as out:
                processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out))
        _until(lambda: [output.read_text() for output in outputs] == ["ready\n"] * DRIVERS)
        (place / "start").touch()
        _until(lambda: all(output.read_text().count("\n") >= 2 for output in outputs))
        waiting = ["ready\nstands by\n"] * (DRIVERS - 1)
        assert sorted(output.read_text() for output in outputs) == ["ready\nactive 1\n", *waiting]
        _until(lambda: ledger.newest() is not None)
        assert [process.poll() for process in processes] == [None] * DRIVERS
        assert sorted(store.storage(folder).names("epochs")) == ["00000001.json"]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.torture
@pytest.mark.parametrize("store", ["local", "hdfs", "s3", "minio"], indirect=True)
def test_many_drivers_are_killed_and_stopped_in_turn(store: Store) -> None:
    seed = int(os.environ.get("POUNDLOCK_TORTURE_SEED") or time.time_ns() // 1000 % 1_000_000_000)
    print(f"POUNDLOCK_TORTURE_SEED={seed}")
    chance = random.Random(seed)
    with drivers(store) as those:
        for _ in range(20):
            time.sleep(chance.random() / 2)
            those.lose(chance.choice([signal.SIGSTOP, signal.SIGKILL]))
            if chance.random() < 0.4:
                those.wake()
        those.wake()
