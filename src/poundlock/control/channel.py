"""The five things that are asked of a running job, in whatever way it can be reached: by HTTP, by files, or by signals.

Nothing is asked twice that was taken: the next way is tried only where nobody answered the first.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from poundlock.control.registry import JobEntry
from poundlock.driver.requests import Then
from poundlock.errors import DefinitionError, TransientError

T = TypeVar("T")


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
