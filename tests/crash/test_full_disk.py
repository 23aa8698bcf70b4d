"""A disk that is full of bytes and of names while a bucket is sealed, and while state and decisions are written: nothing is lost or seen half.

It is full from a step of a checkpoint on, until the job has said so; then there is room once more. Jobs without Spark, on a disk of their own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from poundlock import failpoints as steps
from poundlock.checkpoint import committer
from poundlock.checkpoint.committer import Retry
from poundlock.config import load_settings
from poundlock.connectors.files.partitions import policies
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress
from poundlock.driver.standby.standby import StandbyMode
from poundlock.errors import PoundlockError
from poundlock.failpoints import ENVIRONMENT, Failpoint
from support.counting_job import CountingJob
from support.forked_lives import live
from support.in_process import PATCHES, InProcess
from support.sealing_lives import SealingJob
from support.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.crash

_QUICK = (
    "restart-strategy.type=fixed-delay",
    "restart-strategy.fixed-delay.attempts=100",
    "restart-strategy.fixed-delay.delay=10 ms",
)
_AGAIN = "free some space; the job goes on from its last checkpoint, nothing is lost"
_REFUSED = 3


def life(
    job: CountingJob | SealingJob,
    disk: SmallDisk,
    failpoints: str,
    said: Path,
    freed_after: int,
    *,
    stands_by: bool = False,
) -> int:
    """Live in a process of its own, in which "fill" at a failpoint fills the disk; return its exit code.

    Args:
        said: a file for what the job says when it is started again, and when it ends with an error: a JSON list of texts each line.
        freed_after: how often it says so before the disk is freed; 0: it stays full.
        stands_by: whether it is a driver that would stand by.
    """
    return live(_live, job, disk, failpoints, said, freed_after, stands_by)


def _live(
    job: CountingJob | SealingJob, disk: SmallDisk, failpoints: str, said: Path, freed_after: int, stands_by: bool
) -> None:
    os.environ[ENVIRONMENT] = failpoints
    os.chdir(job.root)
    for module, name, other in PATCHES:
        setattr(module, name, other)
    act, pauses, write = steps._act, committer._pauses, policies.write_manifest

    def fill_or_act(action: str, point: Any) -> None:
        if action == "fill":
            disk.fill()
        else:
            act(action, point)

    def full_at_a_manifest(*arguments: Any) -> Any:
        if failpoints == "manifest" and not said.exists():
            disk.fill()
            said.touch()
        return write(*arguments)

    setattr(steps, "_act", fill_or_act)  # noqa: B010
    setattr(policies, "write_manifest", full_at_a_manifest)  # noqa: B010
    setattr(committer, "_pauses", lambda retry, sleep: pauses(Retry(attempts=2, first_s=0.01), sleep))  # noqa: B010
    times = 0

    def note(*texts: str) -> None:
        with said.open("a") as file:
            file.write(json.dumps(texts) + "\n")

    def watch(progress: Progress) -> None:
        nonlocal times
        if "(again in " in progress.message or "Tried again in " in progress.message:
            note(progress.message)
            times += 1
            if times == freed_after:
                disk.free()

    settings = load_settings([*_QUICK, f"state_dir={job.root}/.state"])
    try:
        standby = StandbyMode() if stands_by else None
        run(job.job(), settings=settings, session=InProcess(), on_progress=watch, standby=standby)
    except PoundlockError as error:
        note(error.what, error.next)
        raise SystemExit(error.exit_code) from None


def texts(said: Path) -> list[list[str]]:
    """Return what was said."""
    return [json.loads(line) for line in said.read_text().splitlines()] if said.exists() else []


POINTS = [
    Failpoint.CHECKPOINT_ENTERED,
    Failpoint.STATE_WRITING,
    Failpoint.PREPARE_VERIFIED,
    Failpoint.DECISION_RECORDED,
    Failpoint.CHECKPOINT_DONE,
]


OFTEN = (Failpoint.STATE_WRITING, Failpoint.DECISION_RECORDED)
"""The other points, and the other cases of seals, are in torture."""


def _marks(*, often: bool) -> list[pytest.MarkDecorator]:
    return [] if often else [pytest.mark.torture]


@pytest.mark.parametrize(
    "point", [pytest.param(each, marks=_marks(often=each in OFTEN), id=each.value) for each in POINTS]
)
def test_a_disk_of_state_and_decisions_that_is_full_from_a_step_on(point: Failpoint, tmp_path: Path) -> None:
    """The job says what and what to do, goes on when there is room, and one that is started meanwhile says so and is refused."""
    calm = CountingJob(tmp_path / "calm", str(tmp_path / "calm/checkpoint"))
    calm.prepare()
    with small_disk(tmp_path / "disk") as disk:
        assert life(calm, disk, "", tmp_path / "calm-said", 0) == 0
        assert len(calm.outcome()) > 20
        job = CountingJob(tmp_path / "job", str(disk.path / "checkpoint"))
        job.prepare()
        said = tmp_path / "said"
        assert life(job, disk, f"{point.value}:fill@2", said, 3) == 0
        assert not disk.is_filled
        lines = [line for (line,) in texts(said)]
        assert len(lines) == 3
        assert all(line.startswith("disk full while ") and _AGAIN in line for line in lines), lines
        assert job.outcome() == calm.outcome()


def test_a_job_that_is_started_on_a_full_disk_says_so_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """It was killed while the disk was full; the next start cannot even say whose turn it is."""
    calm = CountingJob(tmp_path / "calm", str(tmp_path / "calm/checkpoint"))
    calm.prepare()
    with small_disk(tmp_path / "disk") as disk:
        assert life(calm, disk, "", tmp_path / "calm-said", 0) == 0
        job = CountingJob(tmp_path / "job", str(disk.path / "checkpoint"))
        job.prepare()
        both = f"{Failpoint.DECISION_RECORDED.value}:fill@2,{Failpoint.DECISION_RECORDED.value}:kill@2"
        assert life(job, disk, both, tmp_path / "killed", 0) == -9
        assert disk.is_filled
        said = tmp_path / "said"
        assert life(job, disk, "", said, 0) == _REFUSED
        ((what, next),) = texts(said)
        assert what.startswith(f"disk full while taking over {job.checkpoint}")
        assert "free some space" in next
        disk.free()
        assert life(job, disk, "", said, 0) == 0
        assert job.outcome() == calm.outcome()


def test_one_that_would_go_on_waits_for_room(tmp_path: Path) -> None:
    """A driver that stands by does not end because it cannot write down that it is its turn: nobody would be left."""
    calm = CountingJob(tmp_path / "calm", str(tmp_path / "calm/checkpoint"))
    calm.prepare()
    with small_disk(tmp_path / "disk") as disk:
        assert life(calm, disk, "", tmp_path / "calm-said", 0) == 0
        job = CountingJob(tmp_path / "job", str(disk.path / "checkpoint"))
        job.prepare()
        both = f"{Failpoint.DECISION_RECORDED.value}:fill@2,{Failpoint.DECISION_RECORDED.value}:kill@2"
        assert life(job, disk, both, tmp_path / "killed", 0, stands_by=True) == -9
        said = tmp_path / "said"
        assert life(job, disk, "", said, 1, stands_by=True) == 0
        ((line,),) = texts(said)
        assert line.startswith(f"disk full while taking over {job.checkpoint}")
        assert "; free some space" in line
        assert job.outcome() == calm.outcome()


SEALS: Mapping[str, tuple[str, str, str]] = {
    "manifest": ("manifest", "dead-letter", ""),
    "merged": (f"{Failpoint.SINK_COMMITTING.value}:fill@3", "dead-letter", "1 KB"),
    "reopened": (f"{Failpoint.DECISION_RECORDED.value}:fill@5", "reopen", "1 KB"),
}


@pytest.mark.parametrize("case", [pytest.param(each, marks=_marks(often=each == "manifest")) for each in SEALS])
def test_a_disk_that_is_full_while_a_bucket_is_sealed(case: str, tmp_path: Path) -> None:
    """No manifest names a file that is not there, and none is missing in the end: seals are those of an undisturbed run."""
    full, late, target = SEALS[case]
    calm = SealingJob(tmp_path / "calm", str(tmp_path / "calm/lake"), late, target, "json", {}, 20)
    calm.prepare()
    assert calm.live() == 0
    with small_disk(tmp_path / "disk") as disk:
        job = SealingJob(tmp_path / "job", str(disk.path / "lake"), late, target, "json", {}, 20)
        job.prepare()
        said = tmp_path / "said"
        assert life(job, disk, full, said, 2) == 0
        assert not disk.is_filled
        lines = [line for (line,) in texts(said)]
        assert len(lines) == 2
        assert all("disk full while " in line and "free some space" in line for line in lines), lines
        assert not job.wrong()
        assert job.outcome() == calm.outcome()
        assert len(job.outcome()["sealed"]) == 4
