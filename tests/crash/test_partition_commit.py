"""Partitions that are committed by the watermark: a _SUCCESS stands in each at the end, and never before all of its rows, wherever the job dies."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from poundlock.failpoints import Failpoint
from support.forked_lives import KILLED
from support.partition_lives import PartitionJob
from support.stores import LOCAL_FIRST, Store

pytestmark = pytest.mark.crash

FORMATS = ["json", pytest.param("parquet", marks=pytest.mark.torture)]
PASSED = [point for point in Failpoint if point is not Failpoint.STATE_WRITING]
"""The steps that a job without keyed state passes in each checkpoint."""


def job_on(store: Store, root: Path, format: str) -> PartitionJob:
    job = PartitionJob(root, store.at("lake"), format, store.environment)
    job.prepare()
    return job


@LOCAL_FIRST
@pytest.mark.parametrize("format", FORMATS)
def test_a_success_file_stands_behind_all_rows_of_its_partition(format: str, store: Store, tmp_path: Path) -> None:
    """The job dies at every step, of its first checkpoints and of those that commit a partition; a reader looks all the while."""
    job = job_on(store, tmp_path / "job", format)
    wrong: list[object] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.01):
            if seen := job.incomplete():
                wrong.append(seen)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        # A checkpoint later each time where it dies before the decision: the commits of the fourth and more are of partitions.
        deaths = [f"{point.value}:kill@2" for point in PASSED]
        deaths += [f"{Failpoint.SINK_COMMITTING.value}:kill@1", f"{Failpoint.SINK_COMMITTED.value}:kill@1"]
        codes = {death: job.live(death) for death in deaths}
        assert job.live() == 0
    finally:
        ended.set()
        reader.join()
    assert list(codes.values()).count(KILLED) >= 8, codes
    assert not wrong, codes
    assert (job.rows(), job.committed()) == (job.expected, set(job.expected)), codes
    assert job.live() == 0
    assert (job.rows(), job.committed()) == (job.expected, set(job.expected))


@pytest.mark.parametrize("in_order", [True, False])
def test_a_death_between_two_commits_leaves_no_success_file_too_early(in_order: bool, tmp_path: Path) -> None:
    """The control: were partitions committed before their files, this test would see it."""
    job = PartitionJob(tmp_path / "job", str(tmp_path / "lake"), "json", {})
    job.prepare()
    assert job.live(f"{Failpoint.SINK_COMMITTING.value}:kill@2", in_order=in_order) == KILLED
    assert bool(job.incomplete()) is not in_order
    assert job.live(in_order=in_order) == 0
    assert (job.rows(), job.committed()) == (job.expected, set(job.expected))
