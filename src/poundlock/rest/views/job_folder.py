"""A job's checkpoint folder as the dashboard reads it: the newest decisions, a few of which stay in memory. It only reads."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, Request

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.ledger.records import state_parts
from poundlock.errors import PoundlockError
from poundlock.rest.answers import JobCalled, refusal
from poundlock.state.decided_state import Manifests, manifests_of, state_behind
from poundlock.storage import Storage, is_uri, open_storage
from poundlock.storage.storage_errors import explained

_KEPT = 200  # decisions in memory, of each job that is looked at
_FOLDERS = 50


class JobFolder:
    """The folder of one job. A ledger's readers keep what they read last, so that one thread reads at a time."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._ledger = Ledger(storage)
        self._lock = threading.Lock()
        self._known: OrderedDict[int, Decision] = OrderedDict()

    def newest(self) -> Decision | None:
        """Return the newest decision; None before the first."""
        with self._lock, explained(f"reading the ledger in {self.storage.root}"):
            return self._ledger.newest()

    def first(self) -> int:
        """Return the number of the oldest decision that is kept."""
        with self._lock, explained(f"reading the ledger in {self.storage.root}"):
            return self._ledger.first()

    def decision(self, number: int) -> Decision:
        """Return one decision. Raises TerminalError: it is missing or damaged."""
        with self._lock, explained(f"reading the ledger in {self.storage.root}"):
            return self._read(number)

    def newest_first(self, most: int, before: int | None = None) -> Sequence[Decision]:
        """Return at most so many decisions, the newest first; with `before` those with a lower number."""
        newest = self.newest()
        if newest is None:
            return []
        last = newest.number if before is None else min(newest.number, before - 1)
        with self._lock, explained(f"reading the ledger in {self.storage.root}"):
            first = max(self._ledger.first(), last - most + 1)
            return [self._read(number) for number in range(last, first - 1, -1)]

    def committed(self, number: int) -> bool | None:
        """Return whether all that the newest decision names is known to be visible; None for older ones, where nobody notes it."""
        newest = self.newest()
        if newest is None or newest.number != number:
            return None
        with explained(f"reading the ledger in {self.storage.root}"):
            return self._ledger.is_committed(number)

    def manifests(self) -> Manifests:
        """Return which files hold the keyed state behind the newest decision, by stage; none where there is no state."""
        newest = self.newest()
        with self._lock, explained(f"reading the ledger in {self.storage.root}"):
            return {} if newest is None else manifests_of(state_behind(state_parts(self._ledger, newest)))

    def _read(self, number: int) -> Decision:
        decision = self._known.get(number)
        if decision is None:
            decision = self._known[number] = self._ledger.read(number)
        self._known.move_to_end(number)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return decision


class JobFolders:
    """The folders that were looked at last, of an application."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], JobFolder] = OrderedDict()

    def of(self, job_id: str, checkpoint_dir: str) -> JobFolder:
        """Return the folder of a job; another job's in the same place is another one."""
        with self._lock:
            key = (job_id, checkpoint_dir)
            if key not in self._known:
                path = checkpoint_dir if is_uri(checkpoint_dir) else os.path.abspath(checkpoint_dir)
                self._known[key] = JobFolder(open_storage(path))
            self._known.move_to_end(key)
            while len(self._known) > _FOLDERS:
                self._known.popitem(last=False)
            return self._known[key]


def _folder(request: Request, job: JobCalled) -> JobFolder:
    folders: JobFolders = request.app.state.folders
    with answered():
        return folders.of(job.job_id, job.entry.checkpoint_dir)


FolderOfJob = Annotated[JobFolder, Depends(_folder)]


@contextmanager
def answered() -> Iterator[None]:
    """Answer what cannot be read with 503 and two lines."""
    try:
        yield
    except PoundlockError as error:
        raise refusal(503, error.what, error.next) from error
