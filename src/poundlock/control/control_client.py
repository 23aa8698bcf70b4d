"""The other half of a job's control files: whoever asks its driver for something, and waits until it is done."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from poundlock.control.control_files import ANSWERED, ASKED, TROUBLE, Word, newest_word
from poundlock.errors import PoundlockError, TransientError
from poundlock.storage import Storage

_SILENT_S = 15.0  # so long, and the cluster is asked whether the driver is still there
_PATIENCE_S = 60.0
_POLL_S = 0.3


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
        self.storage.create_exclusive(f"{ASKED}/{name}", json.dumps(body).encode())
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
            except TROUBLE as error:
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
            said: Mapping[str, Any] = json.loads(self.storage.read(f"{ANSWERED}/{name}"))
        except FileNotFoundError:
            return None
        return said

    def _take_back(self, name: str) -> None:
        with suppress(*TROUBLE):
            self.storage.delete(f"{ASKED}/{name}")

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
