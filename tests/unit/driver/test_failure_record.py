"""What went wrong in a job's life is known to its next driver, and a driver that was taken over changes nothing."""

from __future__ import annotations

from pathlib import Path

from poundlock.driver.failure_record import FailureRecord, Failures, read_failures
from poundlock.metrics.timeline import FailedCheckpoint
from poundlock.storage import LocalStorage

JOB = "a" * 32


def failed(number: int) -> FailedCheckpoint:
    return FailedCheckpoint(number, "verify", 1000, 2000 + number, "the disk is full")


def no_warning(text: str) -> None:
    raise AssertionError(text)


def test_the_next_driver_counts_on(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    first = FailureRecord(storage, 1, JOB, no_warning)
    first.failed(failed(3))
    first.restarted()
    second = FailureRecord(storage, 2, JOB, no_warning)
    assert second.failures == Failures(job_id=JOB, checkpoints=1, restarts=1, newest=(failed(3),))
    for number in range(30):
        second.failed(failed(number))
    first.restarted()  # it was taken over and does not know yet
    kept = read_failures(storage, JOB)
    assert (kept.checkpoints, kept.restarts, len(kept.newest)) == (31, 1, 20)
    assert kept.newest[-1] == failed(29)
    assert read_failures(storage, "b" * 32) == Failures(job_id="b" * 32), "another job's failures are not its own"


def test_only_the_newest_files_stay(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    for epoch in (9, 10, 11):
        FailureRecord(storage, epoch, JOB, no_warning).restarted()
    assert sorted(storage.names("control")) == ["failures-11.json"]
    assert read_failures(storage, JOB).restarts == 3


def test_a_folder_that_cannot_be_written_is_a_warning_and_the_counts_go_on(tmp_path: Path) -> None:
    (tmp_path / "control").write_text("no folder")
    warnings: list[str] = []
    record = FailureRecord(LocalStorage(str(tmp_path)), 1, JOB, warnings.append)
    record.restarted()
    assert record.failures.restarts == 1
    assert "failures-1.json" in warnings[0]
