"""The other half of a job's control files: whoever asks its driver for something, and waits until it is done."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from poundlock.control.control_files import ANSWERS, REQUESTS, TROUBLE, newest_entry
from poundlock.control.registry import JobEntry
from poundlock.driver.requests import Then
from poundlock.errors import PoundlockError, TransientError
from poundlock.storage import Storage

_SILENT_S = 15.0  # so long, and the cluster is asked whether the driver is still there
_PATIENCE_S = 60.0
_POLL_S = 0.3


@dataclass(frozen=True)
class FolderChannel:
    """A way to a job through its checkpoint folder; see `ControlChannel`.

    Args:
        storage: the checkpoint folder.
        name: the job's name, for errors.
        lost: says why the driver is gone for good, None as long as it may be there; asked when it is silent.
    """

    storage: Storage
    name: str
    lost: Callable[[], str | None] = lambda: None

    def stop(self) -> None:
        self.ask("stop")

    def cancel(self) -> None:
        self.ask("cancel")

    def checkpoint(self) -> int:
        return int(self.ask("checkpoint") or 0)

    def savepoint(self, directory: str | None, *, then: Then = "go on", drain: bool = False) -> str:
        return str(self.ask("savepoint", directory=directory, then=then, drain=drain))

    def status(self) -> Mapping[str, Any]:
        entry = newest_entry(self.storage)
        return {} if entry is None else entry.progress

    def ask(
        self, kind: str, *, directory: str | None = None, then: Then = "go on", drain: bool = False
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
        seen = first = newest_entry(self.storage)
        self.storage.create_exclusive(f"{REQUESTS}/{name}", json.dumps(body).encode())
        silent = time.monotonic()
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
        what = (
            f"the driver of job {self.name} has written nothing into {self.storage.root} for {_PATIENCE_S:.0f} s"
            if trouble is None
            else f"the answer of job {self.name} in {self.storage.root} cannot be read: {trouble}"
        )
        how = f"yarn application -status {entry.application}" if entry and entry.application else "poundlock list -a"
        return TransientError(what, next=f"see whether it runs: {how}")

    def _understood(self, answer: Mapping[str, Any]) -> str | int | None:
        if answer["failure"] is not None:
            from poundlock import errors

            kind, what, next = answer["failure"]
            raise getattr(errors, kind, PoundlockError)(what, next=next)
        location: str | int | None = answer["location"]
        return location
