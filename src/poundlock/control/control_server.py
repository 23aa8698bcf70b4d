"""The driver's half of a job's control files: it says how it goes, copies its log, and does what it is asked.

A folder on a store is looked at less often where the driver has other ways to be asked: the store counts every look.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from poundlock.checkpoint.epoch import newest_life
from poundlock.control.control_files import (
    ANSWERS,
    DRIVER,
    FOLDER,
    REQUESTS,
    TROUBLE,
    newest_entry,
    put,
    put_aside,
    put_entry,
)
from poundlock.control.control_logs import LogCopy
from poundlock.control.operations_log import OperationsLog
from poundlock.control.registry import ENDED, JobEnd, JobEntry, now_ms
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests, Then, Trigger
from poundlock.errors import FencedError
from poundlock.storage import LocalStorage, Storage

_LOOK_S = 1.0
_BEAT_S = 5.0
_SPARING = 5
_PATIENCE_S = 60.0
_FIRST_S = 10.0  # so long after it has taken over, and a driver of a cluster has written its first entry
_LAST_S = 30.0  # so long a last entry is tried where there is no other record of the end
_POLL_S = 0.3
_FOLDER = "checkpoint folder"  # who may write there may ask; the name that a request gives is its own word


@dataclass
class ControlServer:
    """The driver: writes how the job goes, and looks for requests, in a thread of its own.

    Args:
        log: gets what could not be written or read.
        taken_over: called where another driver has begun on this checkpoint; from then on nothing is written any more.
        copy: of the driver's log; None = who is on its machine reads the log itself.
        operations: gets a line for what is asked; None = nobody wants to know.
    """

    storage: Storage
    entry: JobEntry
    stop: StopRequest
    requests: Requests
    log: Callable[[str], None] = lambda line: None
    taken_over: Callable[[], None] = lambda: None
    copy: LogCopy | None = None
    operations: OperationsLog | None = None
    _triggers: dict[str, Trigger] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _troubles: dict[str, str] = field(default_factory=dict)  # of the look before, by the request's name
    _over: threading.Event = field(default_factory=threading.Event)
    _news: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _written: float | None = None
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Write the first entry, forget what an earlier driver was asked, and begin to look."""
        for folder in (REQUESTS, ANSWERS):
            with suppress(*TROUBLE):
                names = self.storage.names(folder)
                if folder == REQUESTS:
                    self._taken.update(names)  # which cannot be deleted now is not done later either
                for name in names:
                    self.storage.delete(f"{folder}/{name}")
                    self._taken.discard(name)
        self._write()
        with suppress(*TROUBLE):  # its next attempt sees by this that it has been a driver here, whoever is it by then
            put_aside(self.storage, self.entry)
        self._thread = threading.Thread(target=self._serve, name="poundlock-control", daemon=True)
        self._thread.start()

    def update(self, progress: Progress) -> None:
        """Take newer progress; a change of state is written at once, the rest now and then."""
        if progress.state in ENDED:
            return  # the last entry has the exit code
        changed = progress.state != self.entry.state
        with self._lock:
            self.entry = self.entry.after(progress)
        if changed:
            self._news.set()

    def end(self, end: JobEnd) -> None:
        """Answer what is answered by the end, and write the last entry; where that fails on a cluster, again for a while.

        A driver that was taken over leaves the file to the newer one, which may be another attempt of the same application.
        """
        self._over.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
        if self.entry.application is not None and end.exit_code == FencedError.exit_code and self._another_writes():
            self._answer()
            return
        with self._lock:
            self.entry = self.entry.ended_with(end)
        deadline = time.monotonic() + (0 if self.entry.application is None else _LAST_S)
        for write in (self._answer, self._write):  # in this order: behind a last entry nobody waits for an answer
            while not write() and time.monotonic() < deadline:
                time.sleep(_LOOK_S)

    def _serve(self) -> None:
        sparing = 1 if self.entry.application or isinstance(self.storage, LocalStorage) else _SPARING
        while not self._over.is_set():
            try:
                asked = [name for name in self.storage.names(REQUESTS) if name.endswith(".json") and name[0] != "."]
                if asked and self._newest():
                    self._take_all(asked)
            except TROUBLE as error:
                self.log(f"requests in {self.storage.root}/{FOLDER} cannot be read: {error}")
            self._answer()
            if self._news.is_set() or time.monotonic() - (self._written or 0) > _BEAT_S * sparing:
                self._news.clear()
                self._write()
            self._news.wait(_LOOK_S * sparing)

    def _newest(self) -> bool:
        """Whether this is still the driver that is asked and read. Calls `taken_over` where it is not."""
        other = newest_entry(self.storage)
        if other is None or other.driver == self.entry.driver:
            return True
        life = newest_life(self.storage)  # the entry may be that of an older driver, which did not know of this one yet
        if life is None or (life.host, life.pid) == (self.entry.host, self.entry.process):
            return True
        if not self._over.is_set():
            self.taken_over()
        return False

    def _another_writes(self) -> bool:
        """Wait a moment for the first entry of whoever has taken over; return whether it came."""
        deadline = time.monotonic() + _FIRST_S
        while time.monotonic() < deadline:
            with suppress(*TROUBLE):
                if not self._newest():
                    return True
            time.sleep(_POLL_S)
        return False

    def _take_all(self, names: Sequence[str]) -> None:
        """Take requests; one that cannot be taken is no reason to leave the others, and is logged once."""
        troubles = {}
        for name in names:
            try:
                self._take(name)
            except TROUBLE as error:
                troubles[name] = f"the request {self.storage.root}/{REQUESTS}/{name} cannot be taken: {error}"
        for name, line in troubles.items():
            if self._troubles.get(name) != line:
                self.log(line)
        self._troubles = troubles

    def _take(self, name: str) -> None:
        path = f"{REQUESTS}/{name}"
        if name not in self._taken:  # else it was taken, and only could not be deleted
            with suppress(ValueError, KeyError, TypeError, RecursionError, FileNotFoundError):  # nothing that we wrote
                asked = json.loads(self.storage.read(path))
                self._triggers[name] = trigger = self._begin(asked["kind"], asked)
                self._note(asked, trigger)
            self._taken.add(name)
        self.storage.delete(path)
        self._taken.discard(name)

    def _note(self, asked: Mapping[str, Any], trigger: Trigger) -> None:
        if self.operations is not None:
            known = {name: value for name in ("directory", "then", "drain") if (value := asked.get(name))}
            self.operations.note(
                asked["kind"],
                "accepted",
                who=_FOLDER,
                source=asked.get("by"),
                arguments=known or None,
                request_id=trigger.id,
            )
            self.operations.follow(asked["kind"], trigger, who=_FOLDER)

    def _begin(self, kind: str, asked: Mapping[str, Any]) -> Trigger:
        if kind == "cancel":
            made = Trigger(kind="stop")
            made.complete()
            self.stop.cancel()
            return made
        if kind == "stop":
            made = self.requests.trigger("stop")
            self.stop.stop()
            return made
        if kind == "checkpoint":
            return self.requests.trigger("checkpoint")
        then: Then = {"stop": "stop", "cancel": "cancel"}.get(asked.get("then", ""), "go on")  # type: ignore[assignment]
        return self.requests.trigger(
            "savepoint", directory=asked.get("directory"), then=then, drain=bool(asked.get("drain"))
        )

    def _answer(self) -> bool:
        """Answer what is done; return whether all of that was written."""
        written = True
        for name, trigger in list(self._triggers.items()):
            if trigger.status == "IN_PROGRESS":
                continue
            failure = trigger.failure
            answer = {
                "location": trigger.location,
                "failure": None if failure is None else [type(failure).__name__, failure.what, failure.next],
                "failure_code": "" if failure is None else failure.code,
            }
            try:
                put(self.storage, f"{ANSWERS}/{name}", json.dumps(answer).encode())
                del self._triggers[name]
            except TROUBLE as error:
                self.log(f"an answer in {self.storage.root}/{FOLDER} cannot be written: {error}")
                written = False
        return written

    def _write(self) -> bool:
        """Write the entry as it is now, if this is the driver that is read; return False where it could not be written."""
        with self._lock:
            self.entry = entry = replace(self.entry, written_ms=now_ms())
        try:
            if self._written is not None and not self._newest():
                return True
            if self.copy is not None:
                self.copy.bring(self.storage)
            put_entry(self.storage, entry)
            if entry.ended:  # the checkpoint may be another application's before anybody looks
                put_aside(self.storage, entry)
            self._written = time.monotonic()
        except TROUBLE as error:
            self.log(f"{self.storage.root}/{DRIVER} cannot be written: {error}")
            return False
        return True
