"""A folder that is tried keeps nothing of it, and its store's clock is compared with ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from poundlock.storage import LocalStorage
from poundlock.storage.probe import standing, try_writing
from poundlock.values import ManualClock, SystemClock, ms_ahead


@pytest.mark.parametrize(
    ("shown", "grain", "ahead"),
    [(100, 1, 0), (150, 1, 0), (200, 1, 0), (201, 1, 1), (99, 1, -1), (99, 2, 0), (0, 50, -51), (9_000, 1, 8_800)],
)
def test_a_clock_is_ahead_by_what_the_answers_time_does_not_explain(shown: int, grain: int, ahead: int) -> None:
    assert ms_ahead(shown, 100, 200, grain) == ahead


def test_a_folder_that_is_there_is_tried_itself(tmp_path: Path) -> None:
    assert standing(LocalStorage(str(tmp_path))).root == str(tmp_path)
    assert try_writing(LocalStorage(str(tmp_path))) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    there = standing(LocalStorage(str(tmp_path / "a" / "b")))
    assert there.root == str(tmp_path)
    try_writing(there)
    assert list(tmp_path.iterdir()) == []


def test_a_store_whose_clock_differs_is_seen(tmp_path: Path) -> None:
    now = SystemClock().now_ms()
    assert 50_000 < try_writing(LocalStorage(str(tmp_path)), ManualClock(now - 60_000)) < 120_000
    assert -120_000 < try_writing(LocalStorage(str(tmp_path)), ManualClock(now + 60_000)) < -50_000


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        try_writing(LocalStorage(str(tmp_path)))


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        try_writing(standing(LocalStorage(str(tmp_path / "file"))))
