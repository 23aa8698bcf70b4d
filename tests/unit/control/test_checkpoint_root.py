"""One walk for all who list the jobs of a checkpoint root."""

from __future__ import annotations

from pathlib import Path

import pytest

from poundlock.checkpoint.identity import open_identity
from poundlock.control.checkpoint_root import DEPTH, checkpoint_folders
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock


def begun(folder: Path) -> str:
    return open_identity(LocalStorage(str(folder)), name=folder.name, clock=SystemClock()).job_id


def seen(root: Path) -> dict[str, str]:
    """Return by the path of each checkpoint folder the job's id, or the class of what stands in the way."""
    return {
        str(Path(each.storage.root).relative_to(root)): (
            type(each.trouble).__name__ if each.identity is None else each.identity.job_id
        )
        for each in checkpoint_folders(LocalStorage(str(root)))
    }


def test_a_checkpoint_folder_is_its_own_root(tmp_path: Path) -> None:
    job = begun(tmp_path)
    begun(tmp_path / "inner")  # what is in one is not looked into
    assert seen(tmp_path) == {".": job}


def test_folders_are_looked_into_to_a_depth_and_files_are_not(tmp_path: Path) -> None:
    names = ["b", "a/c", "a/b/c", "a/b/d/e", ".hidden"]
    jobs = {name: begun(tmp_path / name) for name in names}
    (tmp_path / "file").write_text("")
    reached = [name for name in names if len(Path(name).parts) <= DEPTH and not name.startswith(".")]
    assert seen(tmp_path) == {name: jobs[name] for name in reached}
    assert list(seen(tmp_path)) == sorted(reached)


def test_nothing_is_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert seen(tmp_path / "nowhere") == {}
    (tmp_path / "file").write_text("")
    assert list(checkpoint_folders(LocalStorage(str(tmp_path / "file")))) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"v": 99}'])
def test_what_cannot_be_read_is_named_and_hides_no_other(text: str, tmp_path: Path) -> None:
    job = begun(tmp_path / "b")
    begun(tmp_path / "a")
    (tmp_path / "a" / "job.json").write_text(text)
    assert seen(tmp_path) == {"a": "TerminalError", "b": job}
