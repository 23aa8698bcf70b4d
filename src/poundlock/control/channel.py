"""The five things that are asked of a running job, in whatever way it can be reached: by HTTP, by files, or by signals.

Nothing is asked twice that was taken: the next way is tried only where nobody answered the first.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import signal
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from poundlock import errors
from poundlock.control.control_files import ANSWERS, REQUESTS, TROUBLE, newest_entry
from poundlock.control.process_id import send_signal
from poundlock.control.registry import JobEntry, now_ms
from poundlock.driver.progress import StopRequest
from poundlock.driver.requests import Requests, Then, Trigger
from poundlock.errors import DefinitionError, PoundlockError, TransientError
from poundlock.storage import LocalStorage, Storage, open_storage

T = TypeVar("T")
Kind = Literal["stop", "cancel", "checkpoint", "savepoint"]
Answer = str | int | None  # the path of a savepoint, the number of a checkpoint
_AGAIN_S = 5.0
_SILENT_S = 15.0  # so long, and the cluster is asked whether the driver is still there
_PATIENCE_S = 60.0
TELL_S = 8.0  # so long, and whoever waits for an answer learns that there is none yet
_POLL_S = 0.3


class NoAnswer(TransientError):
    """Nobody took what was asked for."""


Say = Callable[[NoAnswer], None]
"""Shows somebody who waits that no answer has come yet."""


def unanswered(entry: JobEntry, what: str) -> NoAnswer:
    """Return what a driver does that does not answer, such as "does not answer", and where to look for why."""
    if entry.application is not None:
        look = f"see whether it runs: yarn application -status {entry.application}"
        return NoAnswer(f"the driver of job {entry.name} {what}", next=look)
    look = f"ps -o stat,args -p {entry.process} (T: stopped, it goes on by kill -CONT {entry.process})"
    return NoAnswer(
        f"process {entry.process} on {entry.host}, the driver of job {entry.name}, {what}",
        next=f"see what it does there: {look}; and its log: poundlock logs {entry.job_id[:8]}",
    )


class EndedMeanwhile(TransientError):
    """The job took what was asked for, and answered no more; how it ended says what became of it."""


class ControlChannel(ABC):
    """A way to a running job. Each method raises NoAnswer where nobody took it, and PoundlockError where it failed."""

    @abstractmethod
    def ask(self, kind: Kind, *, directory: str | None = None, then: Then = "go on", drain: bool = False) -> Answer:
        """Ask for something; return the number of a checkpoint or the path of a savepoint when it is taken.

        A stop or cancel may still be under way. See `Trigger` for what a savepoint says.

        Raises:
            EndedMeanwhile: the job ended with it, or before.
        """

    @abstractmethod
    def status(self) -> Mapping[str, Any]:
        """Return the job's newest progress, as fields of Progress."""

    def checkpoint(self) -> int:
        """Have a checkpoint taken, and return its number when it is committed."""
        return int(self.ask("checkpoint") or 0)

    def savepoint(self, directory: str | None, *, then: Then = "go on", drain: bool = False) -> str:
        """Have a savepoint taken, and return its path."""
        return str(self.ask("savepoint", directory=directory, then=then, drain=drain))


@dataclass(frozen=True)
class SignalChannel(ControlChannel):
    """A process of this machine, or its supervisor, which is there also while it starts the next process."""

    entry: JobEntry

    def ask(self, kind: Kind, *, directory: str | None = None, then: Then = "go on", drain: bool = False) -> Answer:
        if kind not in ("stop", "cancel"):
            raise self._silent()
        if kind == "cancel" and self.entry.cancel_signal is not None:
            self._send(signal.Signals(self.entry.cancel_signal))
            return None
        self._send(signal.SIGTERM)
        if kind == "cancel":
            self._send(signal.SIGINT)  # two of one kind may arrive as one
        return None

    def status(self) -> Mapping[str, Any]:
        raise self._silent()

    def _send(self, number: signal.Signals) -> None:
        if not self.entry.here:
            raise NoAnswer(f"{self._who} runs on {self.entry.host}", next=f"type it on {self.entry.host}")
        try:
            send_signal(self.entry.pid, self.entry.process_start, number)
        except PermissionError as error:
            raise DefinitionError(
                f"process {self.entry.pid} of {self._who} is another user's", next="type it as that user"
            ) from error

    @property
    def _who(self) -> str:
        return f"job {self.entry.job_id} ({self.entry.name})"

    def _silent(self) -> NoAnswer:
        return NoAnswer(
            f"{self._who} is being started again, and nobody answers until then"
            if self.entry.between
            else f"{self._who} answers nobody but signals",
            next=f"ask again when it runs: poundlock info {self.entry.job_id[:8]}",
        )


@dataclass(frozen=True)
class FolderChannel(ControlChannel):
    """A way to a job through the files in its checkpoint folder.

    Args:
        lost: says why the driver is gone for good, None as long as it may be there; asked when it is silent.
        say: is called once where it is silent, and it is waited on.
    """

    storage: Storage
    name: str
    lost: Callable[[], str | None] = lambda: None
    say: Say = lambda error: None

    def status(self) -> Mapping[str, Any]:
        entry = newest_entry(self.storage)
        if entry is None:
            return {}
        silent = (now_ms() - (entry.written_ms or 0)) / 1000
        if entry.here and not entry.ended and silent > self._quiet_s:
            self.say(unanswered(entry, f"has written nothing for {silent:.0f} s"))
        return entry.progress

    @property
    def _quiet_s(self) -> float:
        """How long a driver may be silent before that is reported, s; into a store it writes less often."""
        return TELL_S if isinstance(self.storage, LocalStorage) else _PATIENCE_S / 2

    def ask(self, kind: Kind, *, directory: str | None = None, then: Then = "go on", drain: bool = False) -> Answer:
        name = f"{secrets.token_hex(16)}.json"
        body = {"kind": kind, "directory": directory, "then": then, "drain": drain, "by": _user()}
        # Before it is asked: a driver that begins in between forgets what the one before it was asked.
        seen = first = newest_entry(self.storage)
        self.storage.create_exclusive(f"{REQUESTS}/{name}", json.dumps(body).encode())
        silent, quiet = time.monotonic(), self._quiet_s
        while True:
            entry = newest_entry(self.storage)
            if entry is not None and entry != seen:
                seen, silent = entry, time.monotonic()
            why = None
            if entry is not None and entry.ended:
                why = f"ended before this was done ({entry.state})"
            elif entry is not None and first is not None and entry.driver != first.driver:
                why = "was started again before this was done"
            elif time.monotonic() - silent > _SILENT_S and (lost := self.lost()) is not None:
                why = f"is gone: {lost}"
            trouble = None
            try:  # behind the entry: an answer is there before a last entry is
                answer = self._answer(name)
            except TROUBLE as error:
                answer, trouble = None, error
            if answer is not None:
                return self._understood(answer)
            if why is not None and trouble is None:
                self._revoke(name)
                raise PoundlockError(
                    f"job {self.name} {why}", next=f"see how it goes, then ask again: poundlock info {self.name}"
                )
            if time.monotonic() - silent > _PATIENCE_S:
                self._revoke(name)
                raise self._silence(entry, trouble)
            if entry is not None and time.monotonic() - silent > quiet:
                waits = f"has not answered by {self.storage.root} yet; it is waited for, up to {_PATIENCE_S:.0f} s"
                self.say(unanswered(entry, waits))
                quiet = _PATIENCE_S
            time.sleep(_POLL_S)

    def _answer(self, name: str) -> Mapping[str, Any] | None:
        """Return the answer to a request, None where there is none yet. Raises what a storage does that is away."""
        try:
            answer: Mapping[str, Any] = json.loads(self.storage.read(f"{ANSWERS}/{name}"))
        except FileNotFoundError:
            return None
        return answer

    def _revoke(self, name: str) -> None:
        with suppress(*TROUBLE):
            self.storage.delete(f"{REQUESTS}/{name}")

    def _silence(self, entry: JobEntry | None, trouble: Exception | None) -> TransientError:
        nothing = f"has written nothing into {self.storage.root} for {_PATIENCE_S:.0f} s"
        if entry is not None and trouble is None:
            return unanswered(entry, nothing)
        what = f"the driver of job {self.name} {nothing}"
        if trouble is not None:
            what = f"the answer of job {self.name} in {self.storage.root} cannot be read: {trouble}"
        how = f"yarn application -status {entry.application}" if entry and entry.application else "poundlock list -a"
        return TransientError(what, next=f"see whether it runs: {how}")

    def _understood(self, answer: Mapping[str, Any]) -> str | int | None:
        if answer["failure"] is not None:
            kind, what, next = answer["failure"]
            raise getattr(errors, kind, PoundlockError)(what, next=next, code=answer.get("failure_code", ""))
        location: str | int | None = answer["location"]
        return location


def _user() -> str:
    """Return who asks, for the log of operations; nobody checks it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # an id without a name, as containers have it
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


@dataclass(frozen=True)
class FirstAnswer(ControlChannel):
    """Several ways to one job, the best first."""

    ways: Sequence[ControlChannel]

    def ask(self, kind: Kind, *, directory: str | None = None, then: Then = "go on", drain: bool = False) -> Answer:
        return self._first(lambda way: way.ask(kind, directory=directory, then=then, drain=drain))

    def status(self) -> Mapping[str, Any]:
        return self._first(lambda way: way.status())

    def _first(self, what: Callable[[ControlChannel], T]) -> T:
        *others, last = self.ways
        for way in others:
            with suppress(NoAnswer):
                return what(way)
        return what(last)


@dataclass
class Forwarding:
    """Hands on to a job elsewhere what is asked of it here, and says what could not be handed on."""

    entry: JobEntry
    channel: ControlChannel
    stop: StopRequest
    requests: Requests = field(default_factory=Requests)
    say: Callable[[str], None] = lambda line: None
    _asked: set[str] = field(default_factory=set)

    def hand_on(self) -> None:
        """Hand on what is new; returns at once."""
        while (trigger := self.requests.take()) is not None:
            threading.Thread(target=self._trigger, args=(trigger,), name="poundlock-request", daemon=True).start()
        kind: Literal["stop", "cancel"] = "cancel" if self.stop.canceling else "stop"
        if self.stop.stopping and kind not in self._asked:
            self._asked.add(kind)
            threading.Thread(target=self._stop, args=(kind,), name=f"poundlock-{kind}", daemon=True).start()

    def _stop(self, kind: Literal["stop", "cancel"]) -> None:
        try:
            self.channel.ask(kind)
        except (TransientError, OSError) as error:
            self.say(f"the driver could not be asked to {kind}: {error}")
            time.sleep(_AGAIN_S)
        except PoundlockError:
            pass  # it ended before that, or failed, which is shown; or the next attempt began, which is asked then
        else:
            return
        self._asked.discard(kind)

    def _trigger(self, trigger: Trigger) -> None:
        try:
            if trigger.kind == "checkpoint":
                trigger.complete(self.channel.checkpoint())
            else:
                check_shared(self.entry, trigger.directory)
                path = self.channel.savepoint(trigger.directory, then=trigger.then, drain=trigger.drain)
                trigger.complete(path)
        except PoundlockError as error:
            trigger.fail(error)
        except OSError as error:
            trigger.fail(TransientError(str(error), next="ask again"))


def check_shared(entry: JobEntry, directory: str | None) -> None:
    """Raise DefinitionError if a savepoint would be on the machine of a driver elsewhere, and of nobody else."""
    if not entry.here and (directory is None or isinstance(open_storage(directory), LocalStorage)):
        what = "a savepoint of it needs a folder to go to" if directory is None else f"{directory} is of one machine"
        where = "a cluster" if entry.application else entry.host
        raise DefinitionError(
            f"the driver of job {entry.job_id} ({entry.name}) runs on {where}, and {what}",
            next="name a folder that all machines share, such as hdfs://namenode/savepoints",
        )
