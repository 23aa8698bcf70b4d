"""A job that runs on a machine nobody can reach is asked, and tells how it goes, through files in its checkpoint folder.

`control/driver.json` is written by the driver alone; a request and its answer are a file each. Who may write there may ask.
Beside it each application has a file of its own, with the first and the last word of its newest driver, or why that one did
not begin.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from poundlock.checkpoint.epoch import newest_life
from poundlock.errors import FencedError, PoundlockError, TransientError
from poundlock.runtime.progress import Progress, StopRequest
from poundlock.runtime.requests import Requests, Then, Trigger
from poundlock.storage import Storage

__all__ = ["FolderClient", "Reachable", "Word", "last_word", "newest_word", "say_aside", "word_of"]

FOLDER = "control"
_WORD, _ASKED, _ANSWERED = f"{FOLDER}/driver.json", f"{FOLDER}/requests", f"{FOLDER}/answers"
_FORMAT = 1
_LOOK_S = 1.0
_BEAT_S = 5.0
_SILENT_S = 15.0  # so long, and the cluster is asked whether the driver is still there
_PATIENCE_S = 60.0
_FIRST_S = 10.0  # so long after it has taken over, and a driver has said its first word
_LAST_S = 30.0  # so long a last word is tried
_POLL_S = 0.3

# A file system that does not answer for a moment must not end a job, nor the look at one.
_TROUBLE = (OSError, ValueError, RuntimeError, PoundlockError)


@dataclass(frozen=True, kw_only=True)
class Word:
    """The driver's newest word.

    Args:
        job_id, name: which job.
        application: the cluster's id of it.
        attempt: which of the cluster's attempts, from 1.
        host, pid: the driver's process, as its epoch names it.
        state: of the job.
        started_ms: when this driver started, ms since the epoch.
        said_ms: when it said this.
        ended_ms: when it ended; None while it runs.
        exit_code: how it ended.
        failure: the two lines it failed with.
        progress: as fields of Progress.
    """

    job_id: str
    name: str
    application: str
    state: str
    started_ms: int
    said_ms: int
    ended_ms: int | None = None
    exit_code: int | None = None
    failure: tuple[str, str] | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1
    host: str = ""
    pid: int = 0

    @property
    def ended(self) -> bool:
        """Whether it is a driver's last word."""
        return self.ended_ms is not None

    @property
    def driver(self) -> tuple[str, int, int]:
        """Whose word it is: another driver's is different."""
        return self.application, self.attempt, self.started_ms

    def to_bytes(self) -> bytes:
        """Return it as it is kept."""
        return json.dumps({"v": _FORMAT, **dataclasses.asdict(self)}, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def of(cls, data: bytes) -> Word:
        """Return what was kept. Raises ValueError, KeyError or TypeError if it is something else."""
        value = json.loads(data)
        if value.pop("v") != _FORMAT:
            raise ValueError("of another version")
        value["failure"] = tuple(value["failure"]) if value.get("failure") else None
        return cls(**{each.name: value[each.name] for each in dataclasses.fields(cls) if each.name in value})


def newest_word(storage: Storage) -> Word | None:
    """Return the newest word of a job's driver; None if there is none that can be read.

    Args:
        storage: the job's checkpoint folder.
    """
    try:
        return Word.of(storage.read(_WORD))
    except (*_TROUBLE, KeyError, TypeError):
        return None


def _put(storage: Storage, path: str, data: bytes) -> None:
    """Give a file its content, whether it is there or not."""
    if not storage.create_exclusive(path, data):
        storage.replace(path, data)


def word_of(storage: Storage, application: str) -> Word | None:
    """Return the newest word of one application's drivers; None where it has said none, or another one has spoken since."""
    for path in (_WORD, f"{FOLDER}/{application}.json"):
        try:
            word = Word.of(storage.read(path))
        except (*_TROUBLE, KeyError, TypeError):
            continue
        if word.application == application:
            return word
    return None


def last_word(storage: Storage, application: str) -> Word | None:
    """Return the last word of an application that is over, else its newest; None where it has said none.

    Args:
        storage: the job's checkpoint folder.
        application: the cluster's id of it.

    Raises:
        OSError, RuntimeError, PoundlockError: the folder cannot be read, and there may be one.
    """
    found = []
    for path in (_WORD, f"{FOLDER}/{application}.json"):
        with suppress(FileNotFoundError):
            data = storage.read(path)
            with suppress(ValueError, KeyError, TypeError):
                found.append(Word.of(data))
    # An attempt that failed before it was a driver has said so aside, where an earlier one's is the newest.
    its = [word for word in found if word.application == application]
    return max(its, key=lambda word: (word.attempt, word.ended), default=None)


def say_aside(storage: Storage, word: Word) -> None:
    """Leave a word of a driver beside the newest, which may be another's: its first and its last, or why it did not
    begin. Raises OSError."""
    _put(storage, f"{FOLDER}/{word.application}.json", word.to_bytes())


# --- the driver's half -----------------------------------------------------------------------------------------------


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
        for folder in (_ASKED, _ANSWERED):
            with suppress(*_TROUBLE):
                names = self.storage.names(folder)
                if folder == _ASKED:
                    self._taken.update(names)  # which cannot be deleted now is not carried out later either
                for name in names:
                    self.storage.delete(f"{folder}/{name}")
                    self._taken.discard(name)
        self._say()
        with suppress(*_TROUBLE):  # its next attempt sees by this that it has been a driver here, whoever is it by then
            say_aside(self.storage, self.word)
        self._thread = threading.Thread(target=self._serve, name="poundlock-control", daemon=True)
        self._thread.start()

    def update(self, progress: Progress) -> None:
        """Be told how the job goes; a change of state is said at once, the rest now and then."""
        from poundlock.runtime.registry import ENDED

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
                asked = [name for name in self.storage.names(_ASKED) if name.endswith(".json") and name[0] != "."]
                if asked and self._newest():
                    for name in asked:
                        self._take(name)
            except _TROUBLE as error:
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
            with suppress(*_TROUBLE):
                if not self._newest():
                    return True
            time.sleep(_POLL_S)
        return False

    def _take(self, name: str) -> None:
        path = f"{_ASKED}/{name}"
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
                _put(self.storage, f"{_ANSWERED}/{name}", json.dumps(said).encode())
                del self._triggers[name]
            except _TROUBLE as error:
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
            _put(self.storage, _WORD, word.to_bytes())
            if word.ended:  # the checkpoint may be another application's before anybody listens
                say_aside(self.storage, word)
            self._said = time.monotonic()
        except _TROUBLE as error:
            self.log(f"{self.storage.root}/{_WORD} cannot be written: {error}")
            return False
        return True


# --- the other half --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FolderClient:
    """A way to a job through its checkpoint folder.

    Args:
        storage: the checkpoint folder.
        name: the job's name, for errors.
        lost: says why the driver is gone for good, None as long as it may be there; asked when it is silent.
    """

    storage: Storage
    name: str
    lost: Callable[[], str | None] = lambda: None

    def ask(
        self, kind: str, *, directory: str | None = None, then: str = "go on", drain: bool = False
    ) -> str | int | None:
        """Ask for something and wait until it is done; return the path of a savepoint or the number of a checkpoint.

        Args:
            kind: "stop", "cancel", "checkpoint" or "savepoint".
            directory, then, drain: of a savepoint; see `Trigger`.

        Raises:
            PoundlockError: it failed.
            TransientError: the driver does not answer.
        """
        name = f"{secrets.token_hex(16)}.json"
        body = {"kind": kind, "directory": directory, "then": then, "drain": drain}
        # Before it is asked: a driver that begins in between forgets what the one before it was asked.
        heard = first = newest_word(self.storage)
        self.storage.create_exclusive(f"{_ASKED}/{name}", json.dumps(body).encode())
        silent = time.monotonic()
        while True:
            word = newest_word(self.storage)
            if word is not None and word != heard:
                heard, silent = word, time.monotonic()
            why = None
            if word is not None and word.ended:
                why = f"ended before this was done ({word.state})"
            elif word is not None and first is not None and word.driver != first.driver:
                why = "was started again before this was done"
            elif time.monotonic() - silent > _SILENT_S and (lost := self.lost()) is not None:
                why = f"is gone: {lost}"
            trouble = None
            try:  # behind the word: an answer is there before a last word is
                said = self._said(name)
            except _TROUBLE as error:
                said, trouble = None, error
            if said is not None:
                return self._understood(said)
            if why is not None and trouble is None:
                self._take_back(name)
                raise PoundlockError(
                    f"job {self.name} {why}", next=f"see how it goes, then ask again: poundlock info {self.name}"
                )
            if time.monotonic() - silent > _PATIENCE_S:
                self._take_back(name)
                raise self._unheard(word, trouble)
            time.sleep(_POLL_S)

    def _said(self, name: str) -> Mapping[str, Any] | None:
        """Return the answer to a request, None where there is none yet. Raises what a storage does that is away."""
        try:
            said: Mapping[str, Any] = json.loads(self.storage.read(f"{_ANSWERED}/{name}"))
        except FileNotFoundError:
            return None
        return said

    def _take_back(self, name: str) -> None:
        with suppress(*_TROUBLE):
            self.storage.delete(f"{_ASKED}/{name}")

    def _unheard(self, word: Word | None, trouble: Exception | None) -> TransientError:
        where = "" if word is None else f" {word.application}"
        what = (
            f"the driver of job {self.name} has written nothing into {self.storage.root} for {_PATIENCE_S:.0f} s"
            if trouble is None
            else f"the answer of job {self.name} in {self.storage.root} cannot be read: {trouble}"
        )
        return TransientError(what, next=f"see whether it runs: yarn application -status{where}")

    def _understood(self, said: Mapping[str, Any]) -> str | int | None:
        if said["failure"] is not None:
            from poundlock import errors

            kind, what, next = said["failure"]
            found = getattr(errors, kind, PoundlockError)
            raise found(what, next=next)
        location: str | int | None = said["location"]
        return location


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
