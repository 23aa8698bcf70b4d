"""Whose checkpoint, and whose turn: another job's checkpoint, a second driver and an overtaken one are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from poundlock.checkpoint.epoch import DriverLock, Epoch, described_sinks
from poundlock.checkpoint.identity import open_identity, read_identity, rename
from poundlock.checkpoint.participant import JSON
from poundlock.errors import DefinitionError, FencedError, TerminalError
from poundlock.storage import LocalStorage, objects
from poundlock.values import ManualClock

CLOCK = ManualClock(1_545_184_226_432)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "checkpoint"))


def test_identity_is_made_once(storage: LocalStorage) -> None:
    assert read_identity(storage) is None
    first = open_identity(storage, name="event-log", clock=CLOCK)
    assert len(first.job_id) == 32
    assert first.created_ms == CLOCK.now_ms()
    assert open_identity(storage, name="event-log", clock=ManualClock(9)) == first
    assert open_identity(storage, name="event-log", clock=CLOCK, job_id=first.job_id) == first


def test_two_jobs_never_get_the_same_id(tmp_path: Path) -> None:
    ids = {open_identity(LocalStorage(str(tmp_path / str(n))), name="same", clock=CLOCK).job_id for n in range(5)}
    assert len(ids) == 5


def test_a_given_id_is_used_on_a_first_run(storage: LocalStorage) -> None:
    assert open_identity(storage, name="j", clock=CLOCK, job_id="ab" * 16).job_id == "ab" * 16
    with pytest.raises(DefinitionError, match="not a job id"):
        open_identity(storage, name="j", clock=CLOCK, job_id="xyz")


def test_a_jobs_name_may_change_and_its_id_may_not(storage: LocalStorage) -> None:
    first = open_identity(storage, name="event-log", clock=CLOCK)
    assert open_identity(storage, name="clicks", clock=CLOCK) == first, "who it is to be is for the driver to say"
    named = rename(storage, first, "clicks")
    assert (named.name, named.job_id, named.created_ms) == ("clicks", first.job_id, first.created_ms)
    assert read_identity(storage) == rename(storage, named, "clicks") == named
    with pytest.raises(DefinitionError, match="with id"):
        open_identity(storage, name="clicks", clock=CLOCK, job_id="ab" * 16)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"v": 2}'])
def test_a_damaged_identity_is_refused(storage: LocalStorage, content: bytes) -> None:
    storage.create_exclusive("job.json", content)
    with pytest.raises(TerminalError, match=r"job\.json cannot be read"):
        open_identity(storage, name="j", clock=CLOCK)


def test_an_unwritable_folder_says_so_in_two_lines(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    storage = LocalStorage(str(tmp_path / "file" / "checkpoint"))
    for start in (
        lambda: open_identity(storage, name="j", clock=CLOCK),
        lambda: Epoch.claim(storage, clock=CLOCK),
    ):
        with pytest.raises(DefinitionError) as caught:
            start()
        assert len(str(caught.value).splitlines()) == 2


def test_epochs_rise_and_remember_the_sinks(storage: LocalStorage) -> None:
    with Epoch.claim(storage, clock=CLOCK, sinks={"out": {"v": 1, "kind": "files"}}) as first:
        assert first.number == 1
        first.check()
    with Epoch.claim(storage, clock=CLOCK) as second:
        assert second.number == 2
        life = second.life
        assert (life.epoch, life.pid, life.started_ms) == (2, os.getpid(), CLOCK.now_ms())
        assert first.life.sinks == {"out": {"v": 1, "kind": "files"}}
        with pytest.raises(FencedError, match=r"epoch 1 is over: process \d+ on .* took over"):
            first.check()
        second.check()


@pytest.mark.parametrize("content", [b"", b'{"v": 1, "epo', b"\xff\x00x", b"[1]", b"{}", b"null"])
def test_a_damaged_epoch_is_said_by_its_name(storage: LocalStorage, content: bytes) -> None:
    Epoch.claim(storage, clock=ManualClock(), sinks={"out": {"v": 1}}).release()
    Path(storage.root, "epochs/00000001.json").write_bytes(content)
    with pytest.raises(TerminalError, match=r"epochs/00000001\.json cannot be read"):
        described_sinks(storage)


def test_what_a_sink_said_last_is_found_again(storage: LocalStorage) -> None:
    assert described_sinks(storage, ["out"]) == {}
    lives: list[dict[str, JSON]] = [{"out": {"n": 1}, "gone": {"n": 1}}, {"out": {"n": 2}, "unused": {}}, {"late": {}}]
    for sinks in lives:
        Epoch.claim(storage, clock=CLOCK, sinks=sinks).release()
    assert described_sinks(storage) == {"late": {}}
    assert described_sinks(storage, ["out", "gone", "never"]) == {"late": {}, "out": {"n": 2}, "gone": {"n": 1}}
    storage.delete("epochs/00000001.json")
    assert described_sinks(storage, ["out", "gone"]) == {"late": {}, "out": {"n": 2}}


def test_a_second_driver_in_the_same_process_is_refused(storage: LocalStorage) -> None:
    with Epoch.claim(storage, clock=CLOCK) as first:
        with pytest.raises(DefinitionError, match=f"process {os.getpid()} on ") as caught:
            Epoch.claim(storage, clock=CLOCK)
        assert caught.value.next.startswith("stop the handle that runs it: handle.stop()")
        assert "kill" not in caught.value.next
        first.check()
    Epoch.claim(storage, clock=CLOCK).release()


@pytest.mark.parametrize("then", ["gone", "empty", "anothers"])
def test_a_driver_whose_folder_was_taken_away_stops(storage: LocalStorage, tmp_path: Path, then: str) -> None:
    """In an empty folder, such as one below a mount that is gone, it would decide everything once more."""
    with Epoch.claim(storage, clock=CLOCK) as mine:
        os.rename(storage.root, tmp_path / "away")
        if then == "empty":
            os.mkdir(storage.root)
        if then == "anothers":
            Epoch.claim(storage, clock=CLOCK).release()
        with pytest.raises(TerminalError, match="checkpoint was removed, moved or unmounted while its job ran"):
            mine.check()
        if then != "gone":
            os.rename(storage.root, tmp_path / "another")
        os.rename(tmp_path / "away", storage.root)
        mine.check()
    mine.check()


HOLD = """
import sys, time
from poundlock.checkpoint.epoch import Epoch
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock
epoch = Epoch.claim(LocalStorage(sys.argv[1]), clock=SystemClock())
print("held", flush=True)
time.sleep(60)
"""


def test_a_living_driver_is_named_and_a_killed_one_makes_room(storage: LocalStorage) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, storage.root], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            assert DriverLock.holder(storage) == f"process {other.pid} on {os.uname().nodename}"
            with pytest.raises(DefinitionError, match=rf"process {other.pid} on .*\nNext: .*kill {other.pid}"):
                Epoch.claim(storage, clock=CLOCK)
        finally:
            other.kill()
    assert DriverLock.holder(storage) is None
    with Epoch.claim(storage, clock=CLOCK) as mine:
        assert mine.number == 2


def test_looking_for_the_holder_touches_nothing(storage: LocalStorage) -> None:
    assert DriverLock.holder(storage) is None
    assert not os.path.exists(storage.root)


def test_a_store_that_replaces_what_is_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr(objects, "_stores", {})
    storage = objects.open_objects("memory://bucket/checkpoint")
    assert Epoch.claim(storage, clock=CLOCK).number == 1
    assert Epoch.claim(storage, clock=CLOCK).number == 2

    def put(self: objects.ObjectStorage, path: str, data: bytes) -> bool:
        if self.stat(path) is not None:
            self.delete(path)
        return real(self, path, data)

    real = objects.ObjectStorage.create_exclusive
    monkeypatch.setattr(objects.ObjectStorage, "create_exclusive", put)
    with pytest.raises(DefinitionError, match="replaces what is there"):
        Epoch.claim(storage, clock=CLOCK)
