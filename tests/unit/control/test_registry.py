"""The registry of job processes: what is listed, what is recognised as gone, what a name means, what is forgotten."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poundlock.checkpoint.epoch import DriverLock
from poundlock.control.control_files import put_entry
from poundlock.control.process_id import is_alive, process_start, send_signal
from poundlock.control.registry import JobEnd, JobEntry, Registry, now_ms, registered, write_whole
from poundlock.errors import DefinitionError, TransientError
from poundlock.storage import LocalStorage
from poundlock.values import SystemClock

ONE, TWO = "ab" + "1" * 30, "ab" + "2" * 30


def entry(job_id: str = ONE, **changes: Any) -> JobEntry:
    made = registered(
        job_id=job_id,
        name="orders",
        checkpoint_dir="c",
        log=Path("orders.log"),
        job_file="job.py",
        arguments=["job.py"],
    )
    return replace(made, **changes)


def ended(registry: Registry, job_id: str = ONE, **changes: Any) -> None:
    registry.register(entry(job_id, **changes)).end(JobEnd(state="FINISHED", exit_code=0, progress={"checkpoint": 3}))


def test_a_job_is_listed_from_its_start_to_after_its_end(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    mine = registry.register(entry(), "secret")
    (found,) = registry.running()
    assert (found.job_id, found.pid, found.state, found.name) == (ONE, os.getpid(), "INITIALIZING", "orders")
    assert found == mine.entry
    mine.update(state="RUNNING")
    assert [each.state for each in registry.entries()] == ["RUNNING"]
    mine.end(JobEnd(state="FAILED", exit_code=3, failure=("a broker is away", "start it"), progress={"checkpoint": 7}))
    assert registry.running() == []
    (last,) = registry.entries()
    assert (last.state, last.exit_code, last.failure, last.gone) == (
        "FAILED",
        3,
        ("a broker is away", "start it"),
        False,
    )
    assert last.progress == {"checkpoint": 7}
    mine.update(state="RUNNING")
    assert registry.entries() == [last], "nobody speaks after the last word"


def test_only_the_user_can_read_the_token_and_it_goes_with_the_job(tmp_path: Path) -> None:
    before = os.umask(0)  # as careless as can be
    try:
        mine = Registry(tmp_path).register(entry(), "secret")
    finally:
        os.umask(before)
    token = Path(mine.entry.token_file or "")
    assert token.read_text() == "secret"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
    assert "secret" not in next(token.parent.glob("*.json")).read_text()
    mine.end(JobEnd(state="FINISHED", exit_code=0))
    assert not token.exists()


def test_a_process_that_is_gone_without_a_last_word_has_failed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        start = process_start(child.pid)
        assert start is not None
        registry = Registry(tmp_path)
        registry.register(entry(pid=child.pid, process_start=start), "secret")
        assert [each.state for each in registry.running()] == ["INITIALIZING"]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is a zombie
        assert registry.running() == []
    (found,) = registry.entries()
    assert (found.state, found.gone) == ("FAILED", True)
    assert found.failure is not None
    assert str(child.pid) in found.failure[0]
    registry.prune()
    assert list(registry.folder.glob("*.token")) == []
    assert [each.gone for each in registry.entries()] == [True], "it stays listed"


def test_a_process_id_that_was_given_to_another_process_is_not_the_job(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.register(entry(process_start="another boot/1"))
    assert registry.running() == [], "this very process has the id, and is not the job"
    assert registry.entries()[0].gone
    assert is_alive(os.getpid(), process_start(os.getpid()) or "")
    assert not send_signal(os.getpid(), "another boot/1", __import__("signal").SIGKILL), "or this test would be dead"


def test_another_hosts_processes_are_left_as_they_said(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.register(entry(process_start="x", host=f"not-{socket.gethostname()}", state="RUNNING"))
    assert [each.state for each in registry.running()] == ["RUNNING"]


def of_before(registry: Registry, folder: Path, **changes: Any) -> tuple[JobEntry, LocalStorage]:
    """List a job that ran here before the machine had its name, with its checkpoint folder."""
    storage = LocalStorage(str(folder))
    made = entry(host="the-name-before", checkpoint_dir=storage.root, state="RUNNING")
    registry.register(made)
    put_entry(storage, replace(made, started_ms=made.started_ms + 5, written_ms=now_ms(), **changes))
    return made, storage


def test_a_job_of_before_the_machine_had_another_name_does_not_run(tmp_path: Path) -> None:
    """A container that is started again has a new name, and the state directory of the one before."""
    registry = Registry(tmp_path / "state")
    _, storage = of_before(registry, tmp_path / "checkpoint")
    with DriverLock.acquire(storage, clock=SystemClock()):
        (listed,) = registry.entries()
        assert listed.state == "RUNNING", "a driver is at work there"
    (listed,) = registry.entries()
    assert (listed.state, listed.gone) == ("FAILED", True)
    assert listed.failure is not None
    assert "on the-name-before is gone, without a last word" in listed.failure[0]


def test_a_job_elsewhere_stands_as_its_last_word_says_or_the_driver_after_it(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "state")
    made, storage = of_before(registry, tmp_path / "checkpoint", state="FINISHED", ended_ms=7, exit_code=0)
    (listed,) = registry.entries()
    assert (listed.state, listed.gone, listed.ended_ms) == ("FINISHED", False, 7)
    put_entry(storage, replace(made, host="another", pid=1, started_ms=made.started_ms + 9, written_ms=now_ms()))
    (listed,) = registry.entries()
    assert (listed.state, listed.gone) == ("FAILED", True), "another driver has begun there since"


def test_terminated_jobs_stay_listed_in_a_bounded_number(tmp_path: Path) -> None:
    registry = Registry(tmp_path, kept=3)
    for number in range(6):
        ended(registry, job_id=f"{number:032x}", started_ms=1000 + number)
    living = registry.register(entry(TWO, started_ms=1))
    assert [each.started_ms for each in registry.entries()] == [1005, 1004, 1003, 1]
    assert [each.job_id for each in registry.running()] == [living.entry.job_id], "however old, what lives stays"


def test_many_processes_write_at_once_and_readers_see_whole_entries(tmp_path: Path) -> None:
    registry = Registry(tmp_path, kept=5)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                mine = registry.register(entry(f"{number:032x}", started_ms=number * 100 + turn), "secret")
                for state in ("RUNNING", "RESTARTING", "RUNNING"):
                    mine.update(state=state)
                    assert mine.entry in registry.entries()
                mine.end(JobEnd(state="FINISHED", exit_code=0))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    registry.prune()
    assert len(registry.entries()) == 5
    assert sorted({path.suffix for path in registry.folder.iterdir()}) == [".json"], "no token, no half a file is left"


def test_a_damaged_entry_does_not_hide_the_others(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.register(entry())
    for number, text in enumerate(("", "{", "[]", '{"v": 1}', '{"v": 2, "pid": 1}', '{"v": 1, "pid": "x"}')):
        (registry.folder / f"{TWO}-{number}-1.json").write_text(text)
    assert [each.job_id for each in registry.entries()] == [ONE]
    value = json.loads(next(registry.folder.glob(f"{ONE}*.json")).read_text())
    assert JobEntry.from_json({**value, "a field of a later version": 1}).job_id == ONE


@pytest.mark.parametrize(
    "wrong",
    [{"pid": "7"}, {"pid": None}, {"started_ms": 10**30}, {"started_ms": True}, {"name": 7}, {"state": None}, {"rest": [1]},
     {"rest": "x"}, {"failure": "broken"}, {"progress": [1]}, {"ended_ms": "z"}, {"token_file": 3}],
)  # fmt: skip
def test_an_entry_of_other_types_does_not_hide_the_others(tmp_path: Path, wrong: dict[str, Any]) -> None:
    registry = Registry(tmp_path)
    ended(registry)
    ended(registry, TWO)
    [path] = (tmp_path / "jobs").glob(f"{TWO}-*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
    assert [each.job_id for each in registry.entries()] == [ONE]


def test_a_job_is_found_by_id_prefix_and_name(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.register(entry(ONE, name="orders"))
    registry.register(entry(TWO, name="clicks"))
    for wanted in (ONE, ONE.upper(), ONE[:3], "orders"):
        assert registry.resolve(wanted).job_id == ONE
    with pytest.raises(DefinitionError) as refused:
        registry.resolve("ab")
    assert ONE in refused.value.what
    assert TWO in refused.value.what
    with pytest.raises(DefinitionError, match="no job 'ff'") as unknown:
        registry.resolve("ff")
    assert "poundlock list -a" in unknown.value.next
    with pytest.raises(DefinitionError):
        registry.resolve("")


def test_two_living_jobs_of_one_name_are_told_apart_and_the_living_goes_before_the_dead(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    ended(registry, TWO, started_ms=2**46)
    registry.register(entry(ONE))
    assert registry.resolve("orders").job_id == ONE
    assert registry.resolve("ab").job_id == ONE
    assert registry.resolve(TWO).job_id == TWO
    registry.register(entry(TWO))
    with pytest.raises(DefinitionError, match="means two jobs"):
        registry.resolve("orders")


def test_a_name_means_the_newest_of_the_jobs_that_had_it_and_ended(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    ended(registry, ONE, started_ms=1)
    ended(registry, TWO, started_ms=2)
    assert registry.resolve("orders").job_id == TWO
    with pytest.raises(DefinitionError, match="means two jobs"):
        registry.resolve("ab")


def test_processes_of_one_job_are_one_job(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    ended(registry, ONE, started_ms=1)
    ended(registry, ONE, started_ms=2)
    assert registry.resolve("ab").started_ms == 2


def test_of_the_drivers_of_one_job_the_active_one_is_meant(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.register(entry(ONE, started_ms=1))
    standby = registry.register(entry(ONE, started_ms=2, role="standby"))
    assert registry.resolve("orders").started_ms == 1
    standby.update(role="active")
    assert registry.resolve("orders").started_ms == 2


def test_a_folder_that_cannot_be_written_is_refused_in_two_lines(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DefinitionError, match="cannot be written") as refused:
        Registry(tmp_path / "file").register(entry())
    assert "state_dir" in refused.value.next


def test_a_full_disk_is_told_at_the_start_and_is_no_reason_to_fail_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    registry = Registry(tmp_path)
    mine = registry.register(entry())
    monkeypatch.setattr(os, "fsync", full)
    mine.update(state="RUNNING")
    with pytest.raises(TransientError, match="disk full"):
        registry.register(entry(TWO), "secret")
    monkeypatch.undo()
    assert [(each.job_id, each.state) for each in registry.entries()] == [(ONE, "INITIALIZING")]
    assert len(list(registry.folder.iterdir())) == 1, "nothing half written is left"


def test_a_file_is_replaced_whole_and_a_pipe_or_a_link_stays_what_it_is(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    write_whole(file, b"one")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    link.symlink_to(file)
    write_whole(link, b"two")
    assert (link.is_symlink(), file.read_bytes()) == (True, b"two")
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"three")
    assert (pipe.is_fifo(), os.read(reading, 10)) == (True, b"three")
    os.close(reading)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]
