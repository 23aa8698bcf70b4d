"""How a job stands by its folder where its driver was killed: on a disk, whose lock tells, and on a store, which has none."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.epoch import DriverLock
from poundlock.control import driver_status
from poundlock.control.control_files import DRIVER, put_entry
from poundlock.control.driver_status import in_folder
from poundlock.control.process_id import process_start
from poundlock.control.registry import JobEntry, now_ms, registered
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock


class Store:
    """A store without locks, kept in a folder."""

    def __init__(self, folder: Path) -> None:
        self._kept, self.root = LocalStorage(str(folder)), "store://bucket"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept, name)


def entry(**known: Any) -> JobEntry:
    """Return the entry of a running driver, which has just written it."""
    made = registered(job_id="a" * 32, name="job", checkpoint_dir="c", log=Path("log"), job_file="j.py", arguments=())
    return replace(made, state="RUNNING", written_ms=now_ms(), **known)


@pytest.fixture
def killed() -> JobEntry:
    """The entry of a process that was killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        start = process_start(process.pid)
        assert start is not None
        process.kill()
    return entry(pid=process.pid, process_start=start)


@pytest.fixture(params=["disk", "store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return LocalStorage(str(tmp_path)) if request.param == "disk" else Store(tmp_path)


def seen(storage: Any, written: JobEntry) -> tuple[str, bool]:
    put_entry(storage, written)
    now = in_folder(storage)
    assert now is not None
    return now.state, now.gone


def test_a_driver_that_was_killed_on_this_machine_is_gone_at_once(storage: Any, killed: JobEntry) -> None:
    assert seen(storage, killed) == ("FAILED", True)
    assert seen(storage, entry()) == ("RUNNING", False)
    assert seen(storage, replace(killed, state="FINISHED", ended_ms=1)) == ("FINISHED", False)


def test_on_a_disk_the_lock_tells_of_a_driver_elsewhere(tmp_path: Path, killed: JobEntry) -> None:
    storage = LocalStorage(str(tmp_path))
    with DriverLock.acquire(storage, clock=SystemClock()):
        assert seen(storage, replace(killed, host="elsewhere", written_ms=0)) == ("RUNNING", False)
    assert seen(storage, replace(killed, host="elsewhere")) == ("FAILED", True)


def test_on_a_store_a_driver_elsewhere_is_gone_when_it_has_been_silent_for_long(
    tmp_path: Path, killed: JobEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, there = Store(tmp_path), replace(killed, host="elsewhere")
    long_ago = now_ms() - 400_000
    assert seen(storage, there) == ("RUNNING", False)
    assert seen(storage, replace(there, written_ms=long_ago)) == ("RUNNING", False), "its clock is slow"
    later = now_ms() + 400_000
    monkeypatch.setattr(driver_status, "now_ms", lambda: later)
    put_entry(storage, there)
    now = in_folder(storage)
    assert now is not None
    assert (now.state, now.gone) == ("FAILED", True)
    assert now.failure is not None
    assert now.failure[0] == f"process {killed.pid} on elsewhere is gone, without a last word"
    storage.delete(DRIVER)
    assert in_folder(storage) is None


def test_another_boot_of_the_machine_is_another_machine_where_there_is_no_lock(
    tmp_path: Path, killed: JobEntry
) -> None:
    """So it is with containers that are called alike: their processes are not seen, and may well be there."""
    assert seen(Store(tmp_path), replace(killed, process_start="0-0/1")) == ("RUNNING", False)
