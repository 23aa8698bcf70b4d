"""The driver's half of a job's control files: it tells how it goes, and carries out what it is asked."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from poundlock.checkpoint.epoch import newest_life
from poundlock.control.control_files import (
    ANSWERED,
    ASKED,
    DRIVER,
    FOLDER,
    TROUBLE,
    Word,
    newest_word,
    put,
    say,
    say_aside,
)
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.requests import Requests, Then, Trigger
from poundlock.errors import FencedError
from poundlock.storage import Storage

_LOOK_S = 1.0
_BEAT_S = 5.0
_PATIENCE_S = 60.0
_FIRST_S = 10.0  # so long after it has taken over, and a driver has said its first word
_LAST_S = 30.0  # so long a last word is tried
_POLL_S = 0.3


@dataclass
class Reachable:
    """The driver: says how the job goes, and looks for requests, in a thread of its own.

    Args:
        storage: the checkpoint folder.
        word: the first word.
        stop, requests: how the job is asked.
        log: told of what could not be written or read.
        taken_over: called where another driver has begun on this checkpoint; from then on nothing is said any more.
    """

    storage: Storage
    word: Word
    stop: StopRequest
    requests: Requests
    log: Callable[[str], None] = lambda line: None
    taken_over: Callable[[], None] = lambda: None
    _triggers: dict[str, Trigger] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)
    _news: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _said: float | None = None
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Say the first word, forget what an earlier driver was asked, and begin to look."""
        for folder in (ASKED, ANSWERED):
            with suppress(*TROUBLE):
                names = self.storage.names(folder)
                if folder == ASKED:
                    self._taken.update(names)  # which cannot be deleted now is not carried out later either
                for name in names:
                    self.storage.delete(f"{folder}/{name}")
                    self._taken.discard(name)
        self._say()
        with suppress(*TROUBLE):  # its next attempt sees by this that it has been a driver here, whoever is it by then
            say_aside(self.storage, self.word)
        self._thread = threading.Thread(target=self._serve, name="poundlock-control", daemon=True)
        self._thread.start()

    def update(self, progress: Progress) -> None:
        """Be told how the job goes; a change of state is said at once, the rest now and then."""
        from poundlock.control.registry import ENDED

        if progress.state in ENDED:
            return  # the last word has the exit code
        changed = progress.state != self.word.state
        with self._lock:
            self.word = dataclasses.replace(self.word, state=progress.state, progress=dataclasses.asdict(progress))
        if changed:
            self._news.set()

    def end(self, state: str, exit_code: int, *, failure: tuple[str, str] | None, progress: Mapping[str, Any]) -> None:
        """Answer what is answered by the end, and say the last word; where that cannot be written, again for a while.

        A driver that was taken over leaves the word to the newer one, which may be another attempt of the same application.
        """
        self._over.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
        if exit_code == FencedError.exit_code and self._another_speaks():
            self._answer()
            return
        with self._lock:
            now = _now_ms()
            self.word = dataclasses.replace(
                self.word, state=state, exit_code=exit_code, failure=failure, progress=dict(progress), ended_ms=now
            )
        deadline = time.monotonic() + _LAST_S
        for write in (self._answer, self._say):  # in this order: behind a last word nobody waits for an answer
            while not write() and time.monotonic() < deadline:
                time.sleep(_LOOK_S)

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                asked = [name for name in self.storage.names(ASKED) if name.endswith(".json") and name[0] != "."]
                if asked and self._newest():
                    for name in asked:
                        self._take(name)
            except TROUBLE as error:
                self.log(f"requests in {self.storage.root}/{FOLDER} cannot be read: {error}")
            self._answer()
            if self._news.is_set() or time.monotonic() - (self._said or 0) > _BEAT_S:
                self._news.clear()
                self._say()
            self._news.wait(_LOOK_S)

    def _newest(self) -> bool:
        """Whether this is still the driver that is asked and heard. Tells `taken_over` where it is not."""
        found = newest_word(self.storage)
        if found is None or found.driver == self.word.driver:
            return True
        life = newest_life(self.storage)  # the word may be that of an older driver, which did not know of this one yet
        if life is None or (life.host, life.pid) == (self.word.host, self.word.pid):
            return True
        if not self._over.is_set():
            self.taken_over()
        return False

    def _another_speaks(self) -> bool:
        """Wait a moment for the first word of whoever has taken over; return whether it came. A driver elsewhere says none."""
        deadline = time.monotonic() + _FIRST_S
        while time.monotonic() < deadline:
            with suppress(*TROUBLE):
                if not self._newest():
                    return True
            time.sleep(_POLL_S)
        return False

    def _take(self, name: str) -> None:
        path = f"{ASKED}/{name}"
        if name not in self._taken:  # else it was taken, and only could not be deleted
            with suppress(ValueError, KeyError, TypeError, FileNotFoundError):  # nothing that we wrote
                asked = json.loads(self.storage.read(path))
                self._triggers[name] = self._carry_out(asked["kind"], asked)
            self._taken.add(name)
        self.storage.delete(path)
        self._taken.discard(name)

    def _carry_out(self, kind: str, asked: Mapping[str, Any]) -> Trigger:
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
            said = {
                "location": trigger.location,
                "failure": None if failure is None else [type(failure).__name__, failure.what, failure.next],
            }
            try:
                put(self.storage, f"{ANSWERED}/{name}", json.dumps(said).encode())
                del self._triggers[name]
            except TROUBLE as error:
                self.log(f"an answer in {self.storage.root}/{FOLDER} cannot be written: {error}")
                written = False
        return written

    def _say(self) -> bool:
        """Say the word as it is now, if this is the driver that is heard; return False where it could not be written."""
        with self._lock:
            self.word = dataclasses.replace(self.word, said_ms=_now_ms())
            word = self.word
        try:
            if self._said is not None and not self._newest():
                return True
            say(self.storage, word)
            if word.ended:  # the checkpoint may be another application's before anybody listens
                say_aside(self.storage, word)
            self._said = time.monotonic()
        except TROUBLE as error:
            self.log(f"{self.storage.root}/{DRIVER} cannot be written: {error}")
            return False
        return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
