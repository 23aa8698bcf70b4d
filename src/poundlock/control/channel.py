"""The five things that are asked of a running job, in whatever way it can be reached: by HTTP, by files, or by signals.

Nothing is asked twice that was taken: the next way is tried only where nobody answered the first.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from poundlock.control.registry import JobEntry
from poundlock.driver.progress import StopRequest
from poundlock.driver.requests import Requests, Then, Trigger
from poundlock.errors import DefinitionError, PoundlockError, TransientError

T = TypeVar("T")
_AGAIN_S = 5.0


class NoAnswer(TransientError):
    """Nobody took what was asked for."""


class EndedMeanwhile(TransientError):
    """The job took what was asked for, and answered no more; how it ended says what became of it."""


class ControlChannel(Protocol):
    """A way to a running job. Each method raises NoAnswer where nobody took it, and PoundlockError where it failed."""

    def stop(self) -> None:
        """Ask for a clean stop; it may still be under way."""
        ...

    def cancel(self) -> None:
        """Ask for the end at once; it may still be under way."""
        ...

    def checkpoint(self) -> int:
        """Have a checkpoint taken, and return its number when it is committed."""
        ...

    def savepoint(self, directory: str | None, *, then: Then = "go on", drain: bool = False) -> str:
        """Have a savepoint taken, and return its path. Raises EndedMeanwhile where the job ended with it, or before.

        Args:
            directory, then, drain: see `Trigger`.
        """
        ...

    def status(self) -> Mapping[str, Any]:
        """Return the job's newest progress, as fields of Progress."""
        ...


@dataclass(frozen=True)
class SignalChannel:
    """A process of this machine, or its supervisor, which is there also while it starts the next process."""

    entry: JobEntry

    def stop(self) -> None:
        self._send(signal.SIGTERM)

    def cancel(self) -> None:
        # Two of one kind may arrive as one.
        self._send(signal.SIGTERM)
        self._send(signal.SIGINT)

    def checkpoint(self) -> int:
        raise self._silent()

    def savepoint(self, directory: str | None, *, then: Then = "go on", drain: bool = False) -> str:
        raise self._silent()

    def status(self) -> Mapping[str, Any]:
        raise self._silent()

    def _send(self, number: signal.Signals) -> None:
        from poundlock.control.process_id import send_signal

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
class FirstAnswer:
    """Several ways to one job, the best first."""

    ways: Sequence[ControlChannel]

    def stop(self) -> None:
        self._ask(lambda way: way.stop())

    def cancel(self) -> None:
        self._ask(lambda way: way.cancel())

    def checkpoint(self) -> int:
        return self._ask(lambda way: way.checkpoint())

    def savepoint(self, directory: str | None, *, then: Then = "go on", drain: bool = False) -> str:
        return self._ask(lambda way: way.savepoint(directory, then=then, drain=drain))

    def status(self) -> Mapping[str, Any]:
        return self._ask(lambda way: way.status())

    def _ask(self, what: Callable[[ControlChannel], T]) -> T:
        *others, last = self.ways
        for way in others:
            try:
                return what(way)
            except NoAnswer:
                continue
        return what(last)


@dataclass
class Forwarding:
    """Hands on to a job elsewhere what is asked of it here.

    Args:
        entry: of the job.
        channel: the way to it.
        stop, requests: what is asked here.
        say: gets what could not be handed on.
    """

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
        kind = "cancel" if self.stop.canceling else "stop"
        if self.stop.stopping and kind not in self._asked:
            self._asked.add(kind)
            threading.Thread(target=self._stop, args=(kind,), name=f"poundlock-{kind}", daemon=True).start()

    def _stop(self, kind: str) -> None:
        try:
            (self.channel.cancel if kind == "cancel" else self.channel.stop)()
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
    from poundlock.storage import LocalStorage, open_storage

    if not entry.here and (directory is None or isinstance(open_storage(directory), LocalStorage)):
        what = "a savepoint of it needs a folder to go to" if directory is None else f"{directory} is of one machine"
        where = "a cluster" if entry.application else entry.host
        raise DefinitionError(
            f"the driver of job {entry.job_id} ({entry.name}) runs on {where}, and {what}",
            next="name a folder that all machines share, such as hdfs://namenode/savepoints",
        )
