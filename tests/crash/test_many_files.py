"""A driver that commits, aborts and sweeps many files at once dies between any two of them; nothing is lost, doubled or left behind."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from poundlock.failpoints import Failpoint
from support.far_lives import FILES, FarJob
from support.forked_lives import KILLED

pytestmark = pytest.mark.crash

SHAPES = [("moves", False), ("moves", True), ("uploads", False), ("uploads", True)]


@pytest.fixture(params=SHAPES, ids=lambda shape: f"{shape[0]}-{'pending' if shape[1] else 'each'}")
def shape(request: pytest.FixtureRequest) -> tuple[str, bool]:
    kind, pending = request.param
    return kind, pending


def assert_exact(job: FarJob, why: str) -> None:
    """Live to the end, and assert that each row is in one finished file, and nothing else is there."""
    assert job.live() == 0, why
    assert job.rows() == job.expected, why
    assert job.leftovers() == [], why


def calls_of_a_life(folder: Path, shape: tuple[str, bool]) -> int:
    """Return how many calls a life makes that nobody kills."""
    job = FarJob(folder, *shape)
    assert_exact(FarJob(folder, *shape), "without a kill")
    return job.calls()


def killed_twice(root: Path, shape: tuple[str, bool], kills: Iterator[tuple[int, int]]) -> int:
    """Kill a job at a call, its next life at another one, and let the third live to the end; return how many were killed twice."""
    twice = 0
    for number, (first, second) in enumerate(kills):
        job, why = FarJob(root / str(number), *shape), f"killed at call {first}, then at {second}"
        job.folder.mkdir()
        if job.live(first) == KILLED:
            twice += job.live(second) == KILLED
        assert_exact(job, why)
    return twice


def test_killed_between_any_two_calls(tmp_path: Path, shape: tuple[str, bool]) -> None:
    """Some calls of a life, by chance, and the recovery from each; all of them in torture."""
    seed = int(os.environ.get("POUNDLOCK_CRASH_SEED", random.randrange(1 << 30)))
    print(f"seed {seed}: POUNDLOCK_CRASH_SEED={seed} kills at the same calls")
    chance = random.Random(seed)
    (tmp_path / "whole").mkdir()
    calls = calls_of_a_life(tmp_path / "whole", shape)
    steps = range(1, calls, calls // 4)
    kills = ((first + chance.randrange(calls // 4), chance.randrange(1, calls)) for first in steps)
    killed_twice(tmp_path, shape, kills)


@pytest.mark.torture
def test_killed_at_every_call(tmp_path: Path, shape: tuple[str, bool]) -> None:
    (tmp_path / "whole").mkdir()
    calls = calls_of_a_life(tmp_path / "whole", shape)
    chance = random.Random(calls)
    assert killed_twice(tmp_path, shape, ((n, chance.randrange(1, calls)) for n in range(1, calls))) > 0


@pytest.mark.parametrize("point", [Failpoint.SINK_COMMITTING, Failpoint.SINK_COMMITTED], ids=lambda p: p.value)
@pytest.mark.parametrize("store", ["moves", "uploads"])
def test_killed_between_two_of_many_commits(tmp_path: Path, store: str, point: Failpoint) -> None:
    """The driver dies when it has begun, or knows, so many of them; the next life dies at the same place of what is left."""
    for times in (FILES // 2, FILES):
        job = FarJob(tmp_path / str(times), store, False)
        job.folder.mkdir()
        setting = f"{point.value}:kill@{times}"
        assert job.live(failpoints=setting) == KILLED
        job.live(failpoints=setting)
        assert_exact(job, setting)


def test_a_sweep_and_an_abort_are_what_is_killed(tmp_path: Path) -> None:
    """The kills do reach them: a life that is killed behind its tasks leaves hidden files, which the next one removes in part."""
    job = FarJob(tmp_path, "moves", False)
    seen = set()
    for last in range(40, 200, 9):
        if job.live(last) == 0:
            break
        seen.add(len(job.leftovers()))
    assert any(0 < left < FILES for left in seen), seen
    assert_exact(job, "killed again and again")
