"""Whose a savepoint is: NO_CLAIM leaves it alone and needs it no more, CLAIM deletes it once, and only what it lists."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from poundlock import DefinitionError
from poundlock.checkpoint.identity import new_job_id, open_identity
from poundlock.cli.jobs.run import _beginning, typed_beginning
from poundlock.cli.main import main
from poundlock.savepoint.metadata import METADATA, Operator
from poundlock.savepoint.restore import CLAIM, check, claim, claimed, dispose, parse_mode, restore, settle_claim
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock
from support.saved import EVENTS, files_of, save

OPERATORS = {"clicks": Operator("source"), "out": Operator("sink"), "win": Operator("stateful")}


@pytest.fixture
def savepoint(tmp_path: Path) -> LocalStorage:
    query = ("sources/clicks/query/offsets/3", b"what Spark writes to")
    return save(tmp_path / "saved", positions={"clicks": EVENTS}, state=["win"], more=[query])


def restored(savepoint: LocalStorage, folder: Path) -> LocalStorage:
    """Restore without Spark and without the sink, whose data is then left behind."""
    checkpoint = LocalStorage(str(folder))
    found = check(savepoint, checkpoint, job="made", operators=OPERATORS, sinks={})
    restore(found, checkpoint, job_id=new_job_id(), sinks={}, newer="refuse", now_ms=0)
    return checkpoint


@pytest.mark.parametrize("gone", ["disposed", "removed", "overwritten"])
def test_a_restored_job_needs_the_savepoint_no_more(savepoint: LocalStorage, tmp_path: Path, gone: str) -> None:
    checkpoint = restored(savepoint, tmp_path / "checkpoint")
    before = files_of(checkpoint.root)
    assert any(path.startswith("state/") for path in before)
    if gone == "disposed":
        assert main(["savepoint", "-d", savepoint.root]) == 0
        assert not Path(savepoint.root).exists()
    elif gone == "removed":
        shutil.rmtree(savepoint.root)
    else:  # as a sync tool does it: a new file under the old name
        for path in [p for p in Path(savepoint.root).rglob("*") if p.is_file()]:
            path.with_name(".new").write_bytes(b"other")
            path.with_name(".new").rename(path)
    assert files_of(checkpoint.root) == before


def test_only_what_is_written_once_is_shared(savepoint: LocalStorage, tmp_path: Path) -> None:
    checkpoint = restored(savepoint, tmp_path / "checkpoint")
    inodes = {p.stat().st_ino: p for p in Path(savepoint.root).rglob("*") if p.is_file()}
    shared = [p for p in Path(checkpoint.root).rglob("*") if p.is_file() and p.stat().st_ino in inodes]
    assert shared, "state is linked, not copied: a large one is restored at once"
    assert all(path.is_relative_to(Path(checkpoint.root, "state")) for path in shared), (
        "of files that are written once, under a name once given"
    )


def test_the_job_deletes_what_it_claimed_once(savepoint: LocalStorage, tmp_path: Path) -> None:
    checkpoint = LocalStorage(str(tmp_path / "checkpoint"))
    assert settle_claim(checkpoint) is None
    claim(checkpoint, savepoint.root)
    Path(savepoint.root, "mine.txt").write_text("a user's note")
    assert settle_claim(checkpoint) == f"Deleted the claimed savepoint {savepoint.root}"
    assert files_of(savepoint.root) == {"mine.txt": b"a user's note"}
    assert claimed(checkpoint) is None
    assert settle_claim(checkpoint) is None


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_a_link_leads_to_is_neither_read_nor_deleted(
    savepoint: LocalStorage, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "x").write_bytes(b"precious")
    inside = Path(savepoint.root, "sources/evil")
    inside.symlink_to(victim / "x" if what == "file" else victim)
    listed = Path(savepoint.root, METADATA)
    said = json.loads(listed.read_text())
    said["files"]["sources/evil" + ("" if what == "file" else "/x")] = {
        "bytes": 8, "sha256": hashlib.sha256(b"precious").hexdigest()
    }  # fmt: skip
    listed.write_text(json.dumps(said))
    before = files_of(savepoint.root)
    assert main(["savepoint", "-d", savepoint.root]) == 2
    assert "is a link, and a savepoint has none" in capsys.readouterr().err
    with pytest.raises(DefinitionError, match="is a link"):
        restored(savepoint, tmp_path / "checkpoint")
    assert (victim / "x").read_bytes() == b"precious"
    assert files_of(savepoint.root) == before
    assert not (tmp_path / "checkpoint").exists()


def test_a_savepoint_may_lie_behind_a_link(savepoint: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(savepoint.root)
    restored(LocalStorage(str(tmp_path / "link")), tmp_path / "checkpoint")


def test_a_claimed_savepoint_that_is_gone_is_told_and_forgotten(tmp_path: Path) -> None:
    checkpoint = LocalStorage(str(tmp_path / "checkpoint"))
    claim(checkpoint, str(tmp_path / "nowhere"))
    assert settle_claim(checkpoint) == f"The claimed savepoint {tmp_path / 'nowhere'} is no longer there"
    assert claimed(checkpoint) is None


def test_a_deletion_that_was_cut_short_is_gone_on_with(
    savepoint: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete, count = LocalStorage.delete, 0

    def dying(self: LocalStorage, path: str) -> bool:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return delete(self, path)

    monkeypatch.setattr(LocalStorage, "delete", dying)
    with pytest.raises(KeyboardInterrupt):
        dispose(savepoint)
    assert METADATA in files_of(savepoint.root), "it still is one, and can be disposed of"
    dispose(savepoint)
    assert not Path(savepoint.root).exists()


def test_a_claim_of_a_killed_restore_is_not_kept(savepoint: LocalStorage, tmp_path: Path) -> None:
    checkpoint = restored(savepoint, tmp_path / "checkpoint")
    claim(checkpoint, savepoint.root)  # and killed before the identity
    again = restored(savepoint, tmp_path / "checkpoint")
    open_identity(again, name="made", clock=SystemClock())
    assert claimed(again) is None
    assert not again.stat(CLAIM)


@pytest.mark.parametrize("text", ["claim", "CLAIM"])
def test_modes_are_flink_s(text: str) -> None:
    assert parse_mode(text) == "CLAIM"
    assert parse_mode("no-claim") == parse_mode("NO_CLAIM") == "NO_CLAIM"
    with pytest.raises(DefinitionError, match="LEGACY is not supported"):
        parse_mode("legacy")
    with pytest.raises(DefinitionError, match="claim mode 'mine' is not known"):
        parse_mode("mine")


def test_a_mode_goes_along_to_the_background() -> None:
    beginning = _beginning("p", False, None, "claim", ["a=b", "b=a"])
    assert beginning is not None
    words = typed_beginning(beginning)
    assert words[words.index("--claim-mode") + 1] == "CLAIM"
    assert [words[i + 1] for i, word in enumerate(words) if word == "--rename-operator"] == ["a=b", "b=a"]
    assert _beginning("p", False, None, None, ()) == _beginning("p", False, None, "no_claim", ())
    for mode, renamed in (("CLAIM", ()), (None, ["a=b"])):
        with pytest.raises(DefinitionError, match="none is given"):
            _beginning(None, False, None, mode, renamed)


@pytest.mark.parametrize("flag", ["--claim-mode=LEGACY", "-claim=LEGACY", "--claimMode=legacy", "--restoreMode=LEGACY"])
def test_every_spelling_of_the_flag(flag: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words: list[Any] = ["run", str(tmp_path / "no.py"), "-s", "x", *flag.split("=")]
    assert main(words) == 2
    assert "LEGACY is not supported" in capsys.readouterr().err


def test_a_savepoint_that_says_nonsense_is_not_deleted(tmp_path: Path) -> None:
    checkpoint = LocalStorage(str(tmp_path))
    checkpoint.create_exclusive(CLAIM, json.dumps({"v": 1}).encode())
    assert settle_claim(checkpoint) is None
