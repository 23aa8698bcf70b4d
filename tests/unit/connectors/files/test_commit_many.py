"""Many files are committed at once as each would be by itself, and a store that is slow is asked many things at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.capabilities import CommitsMany
from poundlock.checkpoint.participant import JSON, Committed, Prepared
from poundlock.connectors.files.file_values import FileCommittable, FileSinkState
from poundlock.connectors.files.sink.committer import abort_many, commit, commit_many, leftovers, remove, verify_many
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import CommitUnknown, TerminalError, TransientError
from poundlock.formats.encode_bulk import BulkMerger
from poundlock.storage import LocalStorage, Storage
from poundlock.storage import local as local_storage
from poundlock.storage.base import Entry

MERGER = BulkMerger()


def committable(root: Path, final: str, *segments: str) -> JSON:
    """Return what makes one file of some hidden ones, which are written here."""
    described = []
    for name in segments:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{name}\n".encode())
        described.append({"path": name, "bytes": len(name) + 1, "rows": 1})
    size = sum(segment["bytes"] for segment in described)
    return {
        "v": 1, "root": str(root), "final": final, "segments": described, "rows": len(segments), "bytes": size,
        "kind": "json", "tag": "t", "bucket": final.rpartition("/")[0], "min_ms": None, "max_ms": None,
    }  # fmt: skip


def content(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): p.read_text() for p in root.rglob("*") if p.is_file()}


def several(root: Path) -> list[JSON]:
    """Files of one segment and of two, in two buckets; one is done, one was done by half, one is taken, one is gone."""
    made = [committable(root, f"b{n % 2}/part-{n}", f"b{n % 2}/.seg-{n}") for n in range(4)]
    made += [committable(root, "b0/part-joined", "b0/.seg-a", "b0/.seg-b")]
    done = committable(root, "b1/part-done", "b1/.seg-done")
    (root / "b1/.seg-done").rename(root / "b1/part-done")
    half = committable(root, "b1/part-half", "b1/.seg-x", "b1/.seg-y")
    (root / "b1/part-half").write_text("b1/.seg-x\nb1/.seg-y\n")
    taken = committable(root, "b0/part-taken", "b0/.seg-taken")
    (root / "b0/part-taken").write_text("somebody else's\n")
    gone = committable(root, "b0/part-gone", "b0/.seg-gone")
    (root / "b0/.seg-gone").unlink()
    return [*made, done, taken, half, gone]


def outcome_of(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return error


def shown(outcomes: Sequence[Any], root: Path) -> list[str]:
    return [f"{type(o).__name__} {o}".replace(str(root), "") for o in outcomes]


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_many_at_once_are_committed_as_each_by_itself(tmp_path: Path, kind: str) -> None:
    one, many = tmp_path / "one", tmp_path / "many"
    alone = [
        outcome_of(lambda c=c: commit(LocalStorage(str(one)), FileCommittable.of(c), MERGER)) for c in several(one)
    ]  # type: ignore[misc]
    storage = LocalStorage(str(many)) if kind == "local" else Slow(str(many))
    together = list(commit_many(lambda root: storage, iter(several(many)), MERGER))  # type: ignore[arg-type, return-value]
    assert shown(together, many) == shown(alone, one)
    assert sum(isinstance(outcome, TerminalError) for outcome in together) == 2
    assert content(many) == content(one)


def test_a_folder_is_synced_once_for_all_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("poundlock.storage.deferred.sync_folder", lambda folder: synced.append(folder))
    monkeypatch.setattr(local_storage, "sync_folder", lambda folder: synced.append(folder))
    files = [committable(tmp_path, f"b{n % 3}/part-{n}", f"b{n % 3}/.seg-{n}") for n in range(300)]
    outcomes = list(commit_many(LocalStorage, files, MERGER))
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert sorted(synced) == [str(tmp_path / f"b{n}") for n in range(3)]


def test_nothing_is_known_and_nothing_deleted_before_names_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: str) -> None:
        raise OSError("the disk is away")

    monkeypatch.setattr("poundlock.storage.deferred.sync_folder", fail)
    files = [committable(tmp_path, f"part-{n}", f".seg-{n}-a", f".seg-{n}-b") for n in range(2)]
    outcomes = list(commit_many(LocalStorage, files, MERGER))
    assert all(isinstance(outcome, CommitUnknown) for outcome in outcomes)
    assert {f"{name}-{n}" for n in range(2) for name in ("part", ".seg")} == {
        x.removesuffix("-b") for x in os.listdir(tmp_path)
    }
    for n in range(2):  # as a power failure may leave it
        os.rename(tmp_path / f"part-{n}", tmp_path / f".seg-{n}-a")
    monkeypatch.undo()
    assert all(isinstance(outcome, Committed) for outcome in commit_many(LocalStorage, files, MERGER))
    assert set(content(tmp_path)) == {"part-0", "part-1"}


def test_a_file_is_begun_as_soon_as_it_is_asked_for(tmp_path: Path) -> None:
    seen: list[int] = []

    def asked() -> Iterator[JSON]:
        for n in range(3):
            seen.append(sum(not name.startswith(".") for name in os.listdir(tmp_path)))
            yield committable(tmp_path, f"part-{n}", f".seg-{n}")

    list(commit_many(LocalStorage, asked(), MERGER))
    assert seen == [0, 1, 2]


class Slow:
    """A folder on another machine: a call goes on only when `together` calls are under way, or nobody else comes."""

    def __init__(self, root: str, together: int = 1) -> None:
        self._local = LocalStorage(root)
        self._barrier = threading.Barrier(together)
        self.calls, self.most, self.now, self._lock = 0, 0, 0, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def stat(self, path: str) -> Entry | None:
        self._wait()
        return self._local.stat(path)

    def rename(self, source: str, target: str) -> None:
        self._wait()
        self._local.rename(source, target)

    def delete(self, path: str) -> bool:
        self._wait()
        return self._local.delete(path)

    def _wait(self) -> None:
        with self._lock:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            self._barrier.wait(30)
        finally:
            with self._lock:
                self.now -= 1


def prepared_segments(root: Path, count: int, tag: str = "t") -> list[Prepared]:
    """Return what tasks would have prepared; the segments are written here."""
    prepared = []
    for n in range(count):
        made = committable(root, f"part-{n}", f".part-{n}-0.inprogress.{tag}-a-0")
        piece = {"k": 0, "kind": "json", "new_part": True, "min_ms": None, "max_ms": None, "tag": tag, "at_ms": 0}
        prepared.append(Prepared("out", n, {"v": 1, "bucket": "", **piece, **made["segments"][0]}))
    return prepared


def test_a_slow_store_is_asked_for_many_segments_at_once(tmp_path: Path) -> None:
    storage: Any = Slow(str(tmp_path), together=16)
    prepared = prepared_segments(tmp_path, 64)
    verify_many(storage, prepared)
    assert storage.most >= 16
    verify_many(storage, [])
    (tmp_path / ".part-7-0.inprogress.t-a-0").unlink()
    with pytest.raises(TransientError, match=r"\.part-7-0\S+ is gone"):
        verify_many(Slow(str(tmp_path)), prepared)  # type: ignore[arg-type]


def test_a_slow_store_is_told_of_many_aborts_at_once_and_one_that_fails_keeps_none_back(tmp_path: Path) -> None:
    storage: Any = Slow(str(tmp_path), together=16)
    prepared = prepared_segments(tmp_path, 64)
    (tmp_path / ".part-7-0.inprogress.t-a-0").unlink()
    (tmp_path / ".part-7-0.inprogress.t-a-0").mkdir()  # so that it cannot be deleted
    failed = [type(outcome) for outcome in abort_many(storage, prepared)]
    assert [n for n, kind in enumerate(failed) if kind is TransientError] == [7]
    assert storage.most >= 16
    assert content(tmp_path) == {}


def test_a_slow_store_is_swept_by_many_calls_at_once(tmp_path: Path) -> None:
    storage: Any = Slow(str(tmp_path), together=16)
    prepared_segments(tmp_path, 64, tag="ours")
    prepared_segments(tmp_path, 3, tag="theirs")
    (tmp_path / "part-0").write_text("finished\n")
    left = leftovers(storage, "ours", FileSinkState.of({}))
    assert len(left) == 64
    assert len(content(tmp_path)) == 68, "what is found is not removed yet"
    remove(lambda root: storage, left)
    assert storage.most >= 16
    assert set(content(tmp_path)) == {"part-0", *(f".part-{n}-0.inprogress.theirs-a-0" for n in range(3))}


def test_a_slow_store_is_given_many_commits_at_once(tmp_path: Path) -> None:
    storage: Any = Slow(str(tmp_path), together=16)
    files = [committable(tmp_path, f"part-{n}", f".seg-{n}") for n in range(64)]
    folder: Callable[[str], Storage] = lambda root: storage  # noqa: E731
    assert all(isinstance(outcome, Committed) for outcome in commit_many(folder, files, MERGER))
    assert storage.most >= 16
    assert storage.calls == 64, "a file of one segment is one call"
    assert len(content(tmp_path)) == 64


def test_the_sink_declares_it() -> None:
    assert isinstance(FileSink("/out", row="value"), CommitsMany)
