"""Checkpoints of many files on a far store: the run proves itself, its figures follow from what it found, and the store keeps its contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.far_store import FarStore, FarUploads
from benchmarks.jobs.many_commits import Band
from benchmarks.many_commits import figures_of, growth
from poundlock.storage.uploads import UploadGone

ONE = Band(
    files=10, verify_s=1, commit_s=2, cpu_s=1, record_bytes=3000, peak_kb=40, abort_s=1, sweep_s=1, few_ms=5, touch_ms=6,
    touch_bytes=700, pending_bytes=2000, end_s=2, most_calls=9,
)  # fmt: skip


def test_growth_is_that_of_the_costliest_measure_a_file() -> None:
    ten = replace(
        ONE, files=100, verify_s=10, commit_s=10, cpu_s=10, record_bytes=30_000, peak_kb=100, abort_s=30, sweep_s=10,
        pending_bytes=20_000, end_s=20,
    )  # fmt: skip
    assert growth(ONE, ten) == pytest.approx(3)
    figures = figures_of([ONE, replace(ten, touch_bytes=1400)])
    assert figures["growth"] == pytest.approx(3)
    assert figures["touch bytes growth"] == 2
    assert figures["record bytes a file at 100"] == 300
    assert figures["commit s at 10"] == 2


@pytest.mark.parametrize("kind", [FarStore, FarUploads])
def test_a_name_is_given_once_and_sources_stay(tmp_path: Path, kind: Callable[[str, float], FarStore]) -> None:
    store = kind(str(tmp_path / "s"), 0.0)
    assert store.create_exclusive("a", b"1")
    assert not store.create_exclusive("a", b"2")
    store.create_exclusive("b", b"2")
    store.concat(["a", "b"], "x/c")
    assert store.read("x/c") == b"12"
    for again in (lambda: store.concat(["b"], "x/c"), lambda: store.rename("b", "a")):
        with pytest.raises(FileExistsError):
            again()
    with pytest.raises(FileNotFoundError):
        store.rename("gone", "d")
    assert sorted(entry.path for entry in store.list()) == ["a", "b", "x/c"]


def test_an_upload_appears_once_with_its_mark_or_is_gone(tmp_path: Path) -> None:
    store = FarUploads(str(tmp_path / "s"), 0.0)
    upload = store.begin_upload("x/part-0", "0af3")
    tags = [store.upload_part("x/part-0", upload, n, data) for n, data in ((1, b"ab"), (2, b"c"))]
    assert store.uploaded("x/part-0", upload) == [(1, tags[0], 2), (2, tags[1], 1)]
    assert [(each.path, each.id) for each in store.uploads()] == [("x/part-0", upload)]
    assert store.stat("x/part-0") is None
    store.complete_upload("x/part-0", upload, tags)
    assert store.read("x/part-0") == b"abc"
    assert store.mark_of("x/part-0") == "0af3"
    assert list(store.uploads()) == []
    with pytest.raises(UploadGone):
        store.complete_upload("x/part-0", upload, tags)
    other = store.begin_upload("x/part-1", "")
    assert store.abort_upload("x/part-1", other)
    assert not store.abort_upload("x/part-1", other)
    assert store.uploaded("x/part-1", other) is None
