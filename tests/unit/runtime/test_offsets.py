"""Spark's log must not be ahead of the ledger: what only lost records name would be taken for orphans."""

from __future__ import annotations

from pathlib import Path

import pytest

from poundlock.checkpoint.decision import Decision
from poundlock.errors import TerminalError
from poundlock.runtime.offsets import SparkLog
from poundlock.storage import LocalStorage


def newest(checkpoint: int) -> Decision:
    return Decision(
        number=checkpoint + 1,
        occasion="checkpoint",
        checkpoint=checkpoint,
        job_id="0" * 32,
        epoch=1,
        time_ms=5,
        sources={},
        sinks={},
    )


def spark_log(folder: Path, *, planned: int, finished: int) -> SparkLog:
    storage = LocalStorage(str(folder / "spark"))
    for name, last in (("offsets", planned), ("commits", finished)):
        for batch in range(last + 1):
            storage.create_exclusive(f"{name}/{batch}", b"v1\n{}")
            storage.create_exclusive(f"{name}/.{batch}.crc", b"crc")
    return SparkLog(storage)


@pytest.mark.parametrize(
    ("planned", "finished", "decided"),
    [
        (-1, -1, None),  # a first start
        (-1, -1, -1),  # it ended before its first batch
        (0, -1, -1),  # planned, not decided: Spark delivers it again
        (3, 2, 3),  # decided, not yet in Spark's log
        (3, 3, 3),
        (3, -1, 3),  # Spark's commits were deleted: the ledger knows better
        (-1, -1, 3),
    ],
)
def test_spark_may_be_level_or_behind(tmp_path: Path, planned: int, finished: int, decided: int | None) -> None:
    log = spark_log(tmp_path, planned=planned, finished=finished)
    log.check_within(None if decided is None else newest(decided))


@pytest.mark.parametrize(
    ("planned", "finished", "decided", "said"),
    [
        (5, 5, None, "is empty"),
        (0, -1, None, "is empty"),
        (5, 5, 4, "ends with checkpoint 4"),
        (6, 5, -1, "checkpoint -1"),
    ],
)
def test_spark_ahead_of_the_ledger_is_refused(
    tmp_path: Path, planned: int, finished: int, decided: int | None, said: str
) -> None:
    log = spark_log(tmp_path, planned=planned, finished=finished)
    with pytest.raises(TerminalError, match=said) as caught:
        log.check_within(None if decided is None else newest(decided))
    assert "restore ledger/" in caught.value.next


def test_the_batch_before_the_newest_must_be_there(tmp_path: Path) -> None:
    log = spark_log(tmp_path, planned=3, finished=2)
    log.check_within(newest(2))
    (tmp_path / "spark/offsets/2").unlink()
    with pytest.raises(TerminalError, match="batch 3, but batch 2 is missing"):
        log.check_within(newest(2))


def test_only_the_newest_need_be_there(tmp_path: Path) -> None:
    """Spark itself removes old ones."""
    log = spark_log(tmp_path, planned=3, finished=2)
    (tmp_path / "spark/offsets/0").unlink()
    log.check_within(newest(2))


def test_commits_without_offsets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match="commits has batch 2, but offsets beside it is empty"):
        spark_log(tmp_path, planned=-1, finished=2).check_within(newest(2))
