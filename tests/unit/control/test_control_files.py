"""A driver that is asked through files: what it is asked is done and answered once, and its word is always its newest."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from poundlock.control import channel
from poundlock.control import control_server as control
from poundlock.control.channel import FolderChannel
from poundlock.control.control_files import newest_entry
from poundlock.control.control_server import ControlServer
from poundlock.control.operations_log import OperationsLog
from poundlock.control.registry import JobEnd, Registry, registered
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests
from poundlock.errors import DefinitionError, PoundlockError, TransientError
from poundlock.storage import LocalStorage

pytestmark = pytest.mark.slow

FIRST = replace(
    registered(job_id="a" * 32, name="job", checkpoint_dir="c", log=Path("log"), job_file="job.py", arguments=()),
    application="application_1_2", state="RUNNING", started_ms=1, host="", pid=0,
)  # fmt: skip


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


@pytest.fixture
def driver(storage: LocalStorage) -> Iterator[ControlServer]:
    made = ControlServer(storage, FIRST, StopRequest(), Requests())
    made.start()
    yield made
    made.requests.close()
    made.end(JobEnd(state="FINISHED", exit_code=0))


def asked(ask: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Ask in a thread; the list gets what came of it."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(ask())
        except (PoundlockError, OSError) as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def taken(driver: ControlServer) -> Any:
    while (trigger := driver.requests.take()) is None:
        time.sleep(0.01)
    return trigger


def test_a_savepoint_is_asked_for_and_answered(driver: ControlServer, storage: LocalStorage) -> None:
    thread, found = asked(
        lambda: FolderChannel(storage, "job").ask("savepoint", directory="/there", then="cancel", drain=True)
    )
    trigger = taken(driver)
    assert (trigger.kind, trigger.directory, trigger.then, trigger.drain) == ("savepoint", "/there", "cancel", True)
    trigger.complete("/there/savepoint-1")
    thread.join(30)
    assert found == ["/there/savepoint-1"]
    assert list(storage.names("control/requests")) == []


def test_what_is_asked_leaves_a_line_with_who_says_that_they_ask(tmp_path: Path) -> None:
    storage, log = LocalStorage(str(tmp_path / "checkpoint")), tmp_path / "operations.log"
    operations = OperationsLog(path=log, job_id="a" * 32, job="job", say=lambda line: None)
    made = ControlServer(storage, FIRST, StopRequest(), Requests(), operations=operations)
    made.start()
    thread, found = asked(lambda: FolderChannel(storage, "job").savepoint("s3://bucket/saved", then="stop"))
    while (trigger := made.requests.take()) is None:
        time.sleep(0.01)
    trigger.complete("s3://bucket/saved/savepoint-1")
    thread.join()
    assert found == ["s3://bucket/saved/savepoint-1"]
    first, second = (json.loads(line) for line in log.read_text().splitlines())
    assert first["source"].endswith(f"@{socket.gethostname()}")
    assert first["arguments"] == {"directory": "s3://bucket/saved", "then": "stop"}
    for line, outcome in ((first, "accepted"), (second, "completed")):
        assert (line["who"], line["operation"], line["outcome"]) == ("checkpoint folder", "savepoint", outcome)
    assert second["result"] == "s3://bucket/saved/savepoint-1"
    made.requests.close()
    made.end(JobEnd(state="FINISHED", exit_code=0))


def test_a_failure_comes_back_as_it_was(driver: ControlServer, storage: LocalStorage) -> None:
    thread, found = asked(lambda: FolderChannel(storage, "job").ask("checkpoint"))
    taken(driver).fail(DefinitionError("no such folder", next="make it"))
    thread.join(30)
    assert isinstance(found[0], DefinitionError)
    assert (found[0].what, found[0].next) == ("no such folder", "make it")


def test_stop_is_answered_by_the_end_and_cancel_at_once(driver: ControlServer, storage: LocalStorage) -> None:
    thread, found = asked(lambda: FolderChannel(storage, "job").ask("stop"))
    while not driver.stop.stopping:
        time.sleep(0.01)
    assert not found
    assert FolderChannel(storage, "job").ask("cancel") is None
    assert driver.stop.canceling
    driver.requests.close()
    driver.end(JobEnd(state="CANCELED", exit_code=0, progress={"message": "ended"}))
    thread.join(30)
    assert found == [None]
    word = newest_entry(storage)
    assert word is not None
    assert (word.state, word.exit_code, dict(word.progress)) == ("CANCELED", 0, {"message": "ended"})


def test_what_an_earlier_driver_was_asked_is_forgotten(storage: LocalStorage) -> None:
    storage.create_exclusive("control/requests/1.json", b'{"kind": "cancel"}')
    storage.create_exclusive("control/answers/1.json", b"{}")
    made = ControlServer(storage, FIRST, StopRequest(), Requests())
    made.start()
    made.end(JobEnd(state="FINISHED", exit_code=0))
    assert not made.stop.canceling
    assert [*storage.names("control/requests"), *storage.names("control/answers")] == []


def test_what_an_earlier_driver_was_asked_is_forgotten_although_it_cannot_be_deleted(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOOK_S", 0.01)
    storage.create_exclusive("control/requests/1.json", b'{"kind": "cancel"}')
    storage.create_exclusive("control/requests/2.json", b'{"kind": "cancel"}')
    made = ControlServer(Troubled(storage.root, "delete", "requests/", [1]), FIRST, StopRequest(), Requests())
    made.start()
    deadline = time.monotonic() + 60
    while storage.names("control/requests") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list(storage.names("control/requests")) == []
    assert not made.stop.canceling
    made.end(JobEnd(state="FINISHED", exit_code=0))


def test_what_is_no_request_is_dropped(driver: ControlServer, storage: LocalStorage) -> None:
    storage.create_exclusive("control/requests/1.json", b"[]")
    storage.create_exclusive("control/requests/2.json", b"{")
    storage.create_exclusive("control/requests/3.json", b"[" * 100_000)
    deadline = time.monotonic() + 60
    while storage.names("control/requests") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list(storage.names("control/requests")) == []


def test_what_cannot_be_taken_holds_up_nobody_behind_it_and_is_said_once(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder where a request should be: whoever looks at it first must not keep a stop from the job."""
    monkeypatch.setattr(control, "_LOOK_S", 0.01)
    names = LocalStorage.names
    monkeypatch.setattr(LocalStorage, "names", lambda self, folder: sorted(names(self, folder)))
    said: list[str] = []
    made = ControlServer(storage, FIRST, StopRequest(), Requests(), log=said.append)
    (Path(storage.root) / "control/requests/0.json").mkdir(parents=True)
    made.start()
    thread, found = asked(lambda: FolderChannel(storage, "job").ask("savepoint", directory="/there"))
    taken(made).complete("/there/savepoint-1")
    thread.join(30)
    assert found == ["/there/savepoint-1"]
    assert [line for line in said if "0.json" in line] == said[:1]
    assert "requests/0.json cannot be taken" in said[0]
    made.end(JobEnd(state="FINISHED", exit_code=0))


@dataclass(frozen=True)
class Troubled(LocalStorage):
    """A folder on a store that does not answer `times` calls of a kind whose path contains a text."""

    call: str
    text: str
    times: list[int]

    def _trouble(self, call: str, path: str) -> None:
        if self.times[0] and call == self.call and self.text in path:
            self.times[0] -= 1
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), f"{self.root}/{path}")

    def read(self, path: str) -> bytes:
        self._trouble("read", path)
        return super().read(path)

    def create_exclusive(self, path: str, data: bytes) -> bool:
        self._trouble("create_exclusive", path)
        return super().create_exclusive(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._trouble("replace", path)
        super().replace(path, data)

    def delete(self, path: str) -> bool:
        self._trouble("delete", path)
        return super().delete(path)


def test_a_request_that_cannot_be_deleted_is_carried_out_once(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOOK_S", 0.01)
    troubled = Troubled(storage.root, "delete", "requests/", [3])
    made = ControlServer(troubled, FIRST, StopRequest(), Requests())
    made.start()
    thread, found = asked(lambda: FolderChannel(storage, "job").ask("savepoint", directory="/there"))
    taken(made).complete("/there/savepoint-1")
    deadline = time.monotonic() + 60
    while storage.names("control/requests") and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.join(30)
    assert found == ["/there/savepoint-1"]
    assert troubled.times == [0]
    assert made.requests.take() is None
    made.end(JobEnd(state="FINISHED", exit_code=0))


def test_a_last_word_is_said_again_where_it_could_not_be_written(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOOK_S", 0.01)
    monkeypatch.setattr(control, "_BEAT_S", 600)
    made = ControlServer(Troubled(storage.root, "replace", "driver.json", [2]), FIRST, StopRequest(), Requests())
    made.start()
    made.end(JobEnd(state="FINISHED", exit_code=0))
    word = newest_entry(storage)
    assert word is not None
    assert (word.state, word.ended) == ("FINISHED", True)


def test_a_last_word_that_can_never_be_written_does_not_hold_the_driver(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOOK_S", 0.01)
    monkeypatch.setattr(control, "_LAST_S", 0.1)
    told: list[str] = []
    away = Troubled(storage.root, "replace", "driver.json", [1_000_000])
    made = ControlServer(away, FIRST, StopRequest(), Requests(), told.append)
    made.start()
    made.end(JobEnd(state="FINISHED", exit_code=0))
    assert "control/driver.json cannot be written" in told[-1]


def test_an_answer_that_can_never_be_written_holds_back_no_last_word(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOOK_S", 0.01)
    monkeypatch.setattr(control, "_LAST_S", 0.1)
    made = ControlServer(
        Troubled(storage.root, "create_exclusive", "answers/", [1_000_000]), FIRST, StopRequest(), Requests()
    )
    made.start()
    thread, found = asked(lambda: FolderChannel(storage, "job").ask("cancel"))
    made.stop.wait(60)
    made.end(JobEnd(state="CANCELED", exit_code=0))
    thread.join(30)
    assert "ended before this was done (CANCELED)" in found[0].what


def test_a_driver_that_was_taken_over_leaves_the_word_to_the_next(storage: LocalStorage) -> None:
    """Whoever follows the application would take a last word for its end, while its next attempt goes on."""
    made = ControlServer(storage, replace(FIRST, host="here", pid=1), StopRequest(), Requests())
    made.start()
    life = {"v": 1, "epoch": 2, "host": "here", "pid": 2, "started_ms": 1}
    storage.create_exclusive("epochs/00000002.json", json.dumps(life).encode())  # and has not said anything yet
    thread, _ = asked(lambda: made.end(JobEnd(state="FAILED", exit_code=5, failure=("taken over", ""))))
    time.sleep(0.5)
    word = newest_entry(storage)
    assert word is not None
    assert not word.ended
    later = replace(word, attempt=2, pid=2)
    storage.replace("control/driver.json", later.to_bytes())
    thread.join(30)
    assert newest_entry(storage) == later


def test_a_driver_that_was_taken_over_by_one_that_says_nothing(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_FIRST_S", 0.1)
    made = ControlServer(storage, FIRST, StopRequest(), Requests())
    made.start()
    made.end(JobEnd(state="FAILED", exit_code=5, failure=("taken over", "")))
    word = newest_entry(storage)
    assert word is not None
    assert (word.exit_code, word.failure) == (5, ("taken over", ""))


def test_a_driver_that_is_silent_is_not_waited_for(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_PATIENCE_S", 0.2)
    with pytest.raises(TransientError, match="has written nothing into"):
        FolderChannel(storage, "job").ask("stop")
    assert list(storage.names("control/requests")) == []  # it must not be found by a driver that comes later
    storage.create_exclusive("control/driver.json", replace(FIRST, state="FINISHED", ended_ms=5).to_bytes())
    with pytest.raises(PoundlockError, match=r"ended before this was done \(FINISHED\)"):
        FolderChannel(storage, "job").ask("stop")


def test_the_registry_hears_the_driver(tmp_path: Path, driver: ControlServer, storage: LocalStorage) -> None:
    entry = registered(
        job_id="a" * 32, name="job", checkpoint_dir=str(tmp_path), log=tmp_path / "log", job_file="job.py", arguments=[]
    )
    registry = Registry(tmp_path / "state")
    registry.register(replace(entry, application="application_1_2", host="cluster", state="INITIALIZING"))
    registry.register(replace(entry, application="application_1_1", host="cluster", state="FAILED", pid=1))
    driver.update(Progress("RESTARTING", message="why"))
    deadline = time.monotonic() + 60
    while registry.running()[0].state != "RESTARTING" and time.monotonic() < deadline:
        time.sleep(0.01)
    (found,) = registry.running()
    assert (found.state, found.progress["message"]) == ("RESTARTING", "why")


def test_a_driver_that_was_taken_over_is_silent_and_told(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_LOOK_S", 0.01)
    monkeypatch.setattr(control, "_BEAT_S", 0.01)
    told = threading.Event()
    first = replace(FIRST, host="here", pid=1)
    older = ControlServer(storage, first, StopRequest(), Requests(), taken_over=told.set)
    older.start()
    life = {"v": 1, "epoch": 1, "host": "here", "pid": 1, "started_ms": 1}
    storage.create_exclusive("epochs/00000001.json", json.dumps(life).encode())
    other = replace(first, application="application_1_3", pid=2, written_ms=5)
    storage.replace("control/driver.json", other.to_bytes())  # by one that does not know yet that it is over
    deadline = time.monotonic() + 60
    while newest_entry(storage) == other and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not told.is_set()
    storage.create_exclusive("epochs/00000002.json", json.dumps({**life, "epoch": 2, "pid": 2}).encode())
    while not told.wait(0.05) and time.monotonic() < deadline:
        storage.replace("control/driver.json", other.to_bytes())  # said again and again, as a driver does
    assert told.is_set()
    storage.replace("control/driver.json", other.to_bytes())
    older.requests.close()
    older.end(JobEnd(state="FAILED", exit_code=5))
    assert newest_entry(storage) == other


def test_what_an_older_driver_was_asked_is_not_waited_for(storage: LocalStorage) -> None:
    storage.create_exclusive("control/driver.json", FIRST.to_bytes())
    thread, found = asked(lambda: FolderChannel(storage, "job").ask("stop"))
    deadline = time.monotonic() + 60
    while not storage.names("control/requests") and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    storage.replace("control/driver.json", replace(FIRST, attempt=2).to_bytes())
    thread.join(60)
    assert "was started again before this was done" in found[0].what


def test_a_driver_that_begins_while_it_is_asked_has_forgotten_it(storage: LocalStorage) -> None:
    class Begun(LocalStorage):
        def create_exclusive(self, path: str, data: bytes) -> bool:
            made = super().create_exclusive(path, data)
            ControlServer(storage, replace(FIRST, attempt=2), StopRequest(), Requests()).start()
            return made

    storage.create_exclusive("control/driver.json", FIRST.to_bytes())
    thread, found = asked(lambda: FolderChannel(Begun(storage.root), "job").ask("stop"))
    thread.join(10)
    assert "was started again before this was done" in found[0].what


def test_an_answer_that_cannot_be_read_for_a_moment_is_waited_for(driver: ControlServer, storage: LocalStorage) -> None:
    away = Troubled(storage.root, "read", "answers/", [2])
    thread, found = asked(lambda: FolderChannel(away, "job").ask("checkpoint"))
    taken(driver).complete(7)
    thread.join(30)
    assert (found, away.times) == ([7], [0])


def test_an_answer_that_cannot_be_read_at_all(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_PATIENCE_S", 0.2)
    away = Troubled(storage.root, "read", "answers/", [1000])
    with pytest.raises(TransientError, match=r"the answer of job job in .* cannot be read: .*timed out"):
        FolderChannel(away, "job").ask("stop")


def test_a_driver_that_is_gone_is_asked_no_longer(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_SILENT_S", 0.0)
    with pytest.raises(PoundlockError, match="job job is gone: it was killed"):
        FolderChannel(storage, "job", lambda: "it was killed").ask("stop")
    assert list(storage.names("control/requests")) == []


def test_no_word(storage: LocalStorage) -> None:
    assert newest_entry(storage) is None
    storage.create_exclusive("control/driver.json", b'{"v": 7}')
    assert newest_entry(storage) is None
