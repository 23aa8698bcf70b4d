"""Local copies of files that lie elsewhere: fetched once, held against the digest, no more than there is room for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from poundlock.errors import TerminalError, TransientError
from poundlock.state.manifest import RunFile
from poundlock.state.participant import damage
from poundlock.state.runs.files import LocalCopies, RunFiles
from poundlock.state.runs.run import DamagedRunError, digest_of
from poundlock.storage import Entry, LocalStorage


class Elsewhere:
    """A storage that is not a local one, and counts what is read of it."""

    def __init__(self, folder: Path) -> None:
        self._held = LocalStorage(str(folder))
        self.root = "far://away"
        self.opened: list[str] = []
        self.fails = False

    def open(self, path: str) -> BinaryIO:
        if self.fails:
            raise OSError(5, "no answer")
        self.opened.append(path)
        return self._held.open(path)

    def read(self, path: str) -> bytes:
        with self.open(path) as handle:
            return handle.read()

    def stat(self, path: str) -> Entry | None:
        return self._held.stat(path)

    def write(self, path: str) -> BinaryIO:
        return self._held.write(path)

    def sync(self, handle: BinaryIO) -> None:
        self._held.sync(handle)


@pytest.fixture
def away(tmp_path: Path) -> Elsewhere:
    return Elsewhere(tmp_path / "far")


@pytest.fixture
def copies(tmp_path: Path) -> LocalCopies:
    return LocalCopies(str(tmp_path / "copies"), limit=1000)


def put(storage: Elsewhere, name: str, data: bytes) -> RunFile:
    with storage.write(name) as handle:
        handle.write(data)
    return RunFile(name=name, digest=digest_of(data), bytes=len(data), rows=1, checkpoint=3, first=0, stop=8)


def test_a_file_is_fetched_once(away: Elsewhere, copies: LocalCopies) -> None:
    file = put(away, "state/j/a.arrow", b"content")
    path = copies.path(away, file)  # type: ignore[arg-type]
    assert Path(path).read_bytes() == b"content"
    assert copies.path(away, file) == path  # type: ignore[arg-type]
    assert away.opened == ["state/j/a.arrow"]


def test_a_copy_that_was_damaged_or_lost_costs_a_download(away: Elsewhere, copies: LocalCopies) -> None:
    file = put(away, "state/j/a.arrow", b"content")
    path = Path(copies.path(away, file))  # type: ignore[arg-type]
    for bad in (b"contenX", b"short", None):
        path.unlink() if bad is None else path.write_bytes(bad)
        assert Path(copies.path(away, file)).read_bytes() == b"content"  # type: ignore[arg-type]
    assert len(away.opened) == 4


def test_a_file_of_the_same_name_and_other_content_is_another(away: Elsewhere, copies: LocalCopies) -> None:
    one = copies.path(away, put(away, "state/j/a.arrow", b"one"))  # type: ignore[arg-type]
    os.unlink(f"{away._held.root}/state/j/a.arrow")
    other = copies.path(away, put(away, "state/j/a.arrow", b"two"))  # type: ignore[arg-type]
    assert (Path(one).read_bytes(), Path(other).read_bytes()) == (b"one", b"two")


def test_a_file_that_is_missing_or_damaged_there_is_an_error(away: Elsewhere, copies: LocalCopies) -> None:
    file = put(away, "state/j/a.arrow", b"content")
    for bad, what in ((b"contenX", "its digest differs"), (b"short", "has 5 bytes instead of 7"), (None, "is missing")):
        away._held.delete(file.name)
        if bad is not None:
            put(away, file.name, bad)
        with pytest.raises(DamagedRunError, match=f"state/j/a.arrow, written at checkpoint 3 .* {what}"):
            copies.path(away, file)  # type: ignore[arg-type]
    assert os.listdir(copies.folder) == []  # nothing that is half there


def test_a_store_that_does_not_answer_is_worth_another_try(away: Elsewhere, copies: LocalCopies) -> None:
    file = put(away, "state/j/a.arrow", b"content")
    away.fails = True
    with pytest.raises(TransientError, match=r"far://away/state/j/a.arrow: no answer"):
        copies.path(away, file)  # type: ignore[arg-type]


def test_what_was_not_used_for_longest_makes_room(away: Elsewhere, copies: LocalCopies) -> None:
    files = [put(away, f"state/j/{n}.arrow", bytes([n]) * 400) for n in range(3)]
    paths = [copies.path(away, file) for file in files[:2]]  # type: ignore[arg-type]
    os.utime(paths[0], ns=(1, 1))
    os.utime(paths[1], ns=(2, 2))
    copies.path(away, files[0])  # type: ignore[arg-type]
    last = copies.path(away, files[2])  # type: ignore[arg-type]
    assert [os.path.exists(path) for path in (*paths, last)] == [True, False, True]
    big = put(away, "state/j/big.arrow", b"x" * 3000)
    assert os.path.getsize(copies.path(away, big)) == 3000  # type: ignore[arg-type]


def test_what_a_task_wrote_is_kept_at_once(away: Elsewhere, copies: LocalCopies) -> None:
    files = RunFiles(away, copies)  # type: ignore[arg-type]
    digest, size = files.write("state/j/w.arrow", b"written")
    file = RunFile(name="state/j/w.arrow", digest=digest, bytes=size, rows=1, checkpoint=1, first=0, stop=8)
    assert Path(copies.path(away, file)).read_bytes() == b"written"  # type: ignore[arg-type]
    assert away.opened == []
    assert away._held.read("state/j/w.arrow") == b"written"


def test_without_a_folder_for_copies_it_is_said(away: Elsewhere) -> None:
    file = put(away, "state/j/a.arrow", b"content")
    with pytest.raises(TerminalError, match=r"far://away is not a local folder"):
        RunFiles(away).open(file)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_written_is_said(away: Elsewhere, tmp_path: Path) -> None:
    file = put(away, "state/j/a.arrow", b"content")
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(TransientError, match="taken"):
        LocalCopies(str(tmp_path / "taken")).path(away, file)  # type: ignore[arg-type]


def test_damage_is_seen_where_the_files_lie_and_no_long_one_is_read(
    away: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [put(away, f"state/j/{name}.arrow", b"content") for name in "abc"]
    assert list(damage(away, files, digests=True)) == []  # type: ignore[arg-type]
    Path(away._held.root, files[0].name).write_bytes(b"CONTENT")
    Path(away._held.root, files[1].name).write_bytes(b"cut")
    away._held.delete(files[2].name)
    away.opened.clear()
    gone = [(files[1], "has 3 bytes instead of 7"), (files[2], "is missing")]
    assert list(damage(away, files)) == gone  # type: ignore[arg-type]
    monkeypatch.setattr("poundlock.state.participant.VERIFIED_WHOLE", 6)
    assert list(damage(away, files, digests=True)) == gone  # type: ignore[arg-type]
    assert away.opened == []
    monkeypatch.undo()
    changed = (files[0], "is not what was written: its digest differs")
    assert list(damage(away, files, digests=True)) == [changed, *gone]  # type: ignore[arg-type]
