"""Buckets that are sealed by the watermark: exactly once, and never seen half, wherever the job dies."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from poundlock.failpoints import Failpoint
from support.forked_lives import KILLED
from support.sealing_lives import SealingJob
from support.stores import LOCAL_FIRST, Store

pytestmark = pytest.mark.crash

PASSED = [point for point in Failpoint if point is not Failpoint.STATE_WRITING]
"""The steps that a job without keyed state passes in each checkpoint."""
AROUND_COMMITS = [Failpoint.DECISION_RECORDED, Failpoint.SINK_COMMITTING, Failpoint.SINK_COMMITTED]
SEED = int(os.environ.get("POUNDLOCK_SEED", "20"))
TORTURE_SEED = int(os.environ.get("POUNDLOCK_TORTURE_SEED") or SEED)
CASES = [
    pytest.param("dead-letter", "1 KB", "json", id="dead-letter"),
    pytest.param("reopen", "", "json", id="reopen", marks=pytest.mark.torture),
    pytest.param("folder", "1 KB", "parquet", id="folder", marks=pytest.mark.torture),
    pytest.param("reopen", "1 KB", "parquet", id="reopen-merged", marks=pytest.mark.torture),
]


def jobs_of(
    root: Path, store: Store, late: str, target_size: str, format: str, seed: int
) -> tuple[SealingJob, SealingJob]:
    """Return a job, and another one of the same input that nobody disturbs."""
    made = []
    for name in ("killed", "calm"):
        lake = store.at(f"{name}-{root.name}/lake")
        made.append(SealingJob(root / name, lake, late, target_size, format, store.environment, seed))
        made[-1].prepare()
    return made[0], made[1]


@contextmanager
def watched(job: SealingJob) -> Iterator[list[str]]:
    """Look at what readers see, all the while."""
    wrong: list[str] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            try:
                wrong.extend(job.wrong())
            except FileNotFoundError:  # a hidden file went while the folder was listed
                continue

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield wrong
    finally:
        ended.set()
        reader.join()


@LOCAL_FIRST
@pytest.mark.parametrize(("late", "target_size", "format"), CASES)
def test_seals_are_those_of_an_undisturbed_run(
    late: str, target_size: str, format: str, store: Store, tmp_path: Path
) -> None:
    """The job dies at every step, of its first checkpoints and of those that seal; a reader looks all the while."""
    job, calm = jobs_of(tmp_path, store, late, target_size, format, SEED)
    assert calm.live() == 0
    with watched(job) as wrong:
        deaths = [f"{point.value}:kill@2" for point in (PASSED if format == "parquet" else AROUND_COMMITS)]
        deaths += [f"{Failpoint.SINK_COMMITTING.value}:kill@1"]
        codes = {death: job.live(death) for death in deaths}
        assert job.live() == 0
    assert list(codes.values()).count(KILLED) >= 4, (SEED, codes)
    assert not wrong, (SEED, codes)
    assert job.outcome() == calm.outcome(), (SEED, codes)
    expected = calm.outcome()
    assert len(expected["sealed"]) == 4
    assert (max(version for version, _ in expected["sealed"].values()) > 1) == (late == "reopen")
    assert bool(expected["dead"]) == (late == "dead-letter")
    assert bool(expected["late"]) == (late == "folder")
    assert [(bucket, version) for bucket, version, _ in expected["table"]] == [
        (bucket, version) for bucket, (newest, _) in expected["sealed"].items() for version in range(1, newest + 1)
    ]
    assert job.live() == 0
    assert job.outcome() == expected


def test_a_seal_before_its_files_would_be_seen(tmp_path: Path) -> None:
    """The control: were buckets sealed before their files are visible, this test would see it."""
    job = SealingJob(tmp_path / "job", str(tmp_path / "lake"), "dead-letter", "1 KB", "json", {}, SEED)
    job.prepare()
    codes = []
    for step in (2, 2, 3):
        codes.append(job.live(f"{Failpoint.SINK_COMMITTING.value}:kill@{step}", in_order=False))
        if job.wrong():
            break
    assert KILLED in codes
    assert job.wrong()


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(12))
def test_random_deaths(seed: int, tmp_path: Path) -> None:
    """Other inputs, and deaths at random passes of random steps."""
    chance = random.Random(TORTURE_SEED * 1000 + seed)
    print(f"POUNDLOCK_TORTURE_SEED={TORTURE_SEED}, {seed}")
    late = chance.choice(["reopen", "folder", "dead-letter"])
    target, format = chance.choice(["", "1 KB"]), chance.choice(["json", "parquet"])
    store = Store("local", str(tmp_path))
    job, calm = jobs_of(tmp_path, store, late, target, format, TORTURE_SEED * 1000 + seed)
    assert calm.live() == 0
    with watched(job) as wrong:
        deaths = [f"{chance.choice(PASSED).value}:kill@{chance.randint(1, 6)}" for _ in range(12)]
        codes = {death: job.live(death) for death in deaths}
        assert job.live() == 0
    assert not wrong, (TORTURE_SEED, seed, codes)
    assert job.outcome() == calm.outcome(), (TORTURE_SEED, seed, codes)
