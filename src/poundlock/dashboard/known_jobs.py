"""The jobs that a dashboard shows: those of the registry, and those whose checkpoint folders lie in the roots it was given.

A job is a checkpoint's: of several runs the newest is shown. A job of the registry is asked as the command line asks it; one of a
root by the files in its folder alone, for whoever may write there must not choose whom this machine sends a token to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from poundlock.control.channel import ControlChannel
from poundlock.control.checkpoint_root import CheckpointFolder, checkpoint_folders
from poundlock.control.control_files import DRIVER, TROUBLE
from poundlock.control.driver_status import in_folder
from poundlock.control.registry import JobEntry, Registry
from poundlock.errors import PoundlockError
from poundlock.rest.observed import Gateway, Observed
from poundlock.storage import open_storage

_LOOK_S = 1.0
_LIST_S = 3.0
_ROOT_S = 10.0
_TICK_S = 0.3

Way = Callable[[JobEntry], ControlChannel]


@dataclass
class _Known:
    """A job: `local` = the registry has it, so that its own server may be asked."""

    gateway: Gateway
    local: bool
    looked: float = 0.0
    seen: float = 0.0  # when somebody asked for it last


@dataclass
class KnownJobs:
    """Follows the jobs there are.

    Args:
        roots: checkpoint folders, or folders that have some in them, see `checkpoint_folders`.
        local, shared: the way to a job of the registry, and to one of a root.
    """

    registry: Registry
    roots: Sequence[str]
    local: Way
    shared: Way
    _known: dict[str, _Known] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _listed: float = -_LIST_S
    _rooted: float = -_ROOT_S
    _unreadable: dict[str, str] = field(default_factory=dict)

    def all(self) -> Sequence[Observed]:
        self._list()
        with self._lock:
            return [known.gateway.observed for known in self._known.values()]

    def find(self, job_id: str) -> Observed | None:
        with self._lock:
            known = self._known.get(job_id)
        if known is None:
            self._list()
            with self._lock:
                known = self._known.get(job_id)
        if known is None:
            return None
        known.seen = time.monotonic()
        return known.gateway.observed

    def where(self) -> str:
        return "see the jobs there are: GET /jobs"

    def unreadable(self) -> Sequence[str]:
        return [f"{place}: {why}" for place, why in sorted(self._unreadable.items())]

    def run(self, ended: threading.Event) -> None:
        """Follow the jobs until `ended` is set: those that run are looked at, and what is asked of them is handed on."""
        while not ended.wait(_TICK_S):
            self._list()
            with self._lock:
                known = list(self._known.values())
            for each in known:
                each.gateway.hand_on()
                if not each.gateway.observed.ended and time.monotonic() - each.looked >= _LOOK_S:
                    self._look(each)

    def _look(self, known: _Known) -> None:
        """Take how a job goes: by its folder, and where it answers by itself, by that."""
        known.looked = time.monotonic()
        job = known.gateway.observed
        with suppress(*TROUBLE):
            known.gateway.look()
        if known.local and not job.ended:
            with suppress(PoundlockError, OSError):
                progress = self.local(job.entry).status()
                if progress:
                    job.entry = replace(job.entry, progress=progress, state=progress.get("state", job.entry.state))

    def _list(self) -> None:
        """Look which jobs there are, unless that was done a moment ago."""
        now = time.monotonic()
        with self._lock:
            due, rooted = now - self._listed >= _LIST_S, now - self._rooted >= _ROOT_S
            if due:
                self._listed = now
            if rooted:
                self._rooted = now
        if due:
            for entry in self._newest_of_each():
                self._take(entry, local=True)
        if rooted:
            for entry in self._in_roots():
                self._take(entry, local=False)

    def _newest_of_each(self) -> Sequence[JobEntry]:
        newest: dict[str, JobEntry] = {}
        for entry in self.registry.entries():  # the newest start first
            newest.setdefault(entry.job_id, entry)
        return list(newest.values())

    def _in_roots(self) -> Iterator[JobEntry]:
        unreadable: dict[str, str] = {}
        for root in self.roots:
            empty = True
            for folder in checkpoint_folders(open_storage(root)):
                try:
                    entry = _entry_in(folder)
                except TROUBLE as error:
                    unreadable[folder.storage.root] = _why(error)
                    empty = False
                    continue
                if entry is not None:
                    empty = False
                    yield entry
            if empty:
                unreadable[root] = "no job has written how it goes into it"
        self._unreadable = unreadable

    def _take(self, entry: JobEntry, *, local: bool) -> None:
        with self._lock:
            known = self._known.get(entry.job_id)
        if known is not None and (
            (known.local and not local) or known.gateway.observed.entry.started_ms > entry.started_ms
        ):
            return
        if known is None or (local and not known.local):
            try:
                gateway = Gateway(open_storage(entry.checkpoint_dir), entry, self.local if local else self.shared)
            except TROUBLE:
                return
            with self._lock:
                self._known[entry.job_id] = _Known(gateway, local)
            return
        job = known.gateway.observed
        if job.entry.driver != entry.driver or (entry.ended and not job.ended):
            with suppress(*TROUBLE):
                known.gateway.look()
            if entry.ended and not job.ended:  # its folder knows less than the registry
                job.entry = entry


def _entry_in(folder: CheckpointFolder) -> JobEntry | None:
    """Return the entry of a checkpoint folder's newest driver; None where none has written one. Raises one of TROUBLE: it is damaged."""
    if folder.trouble is not None:
        raise folder.trouble
    entry = in_folder(folder.storage)
    if entry is None and folder.storage.stat(DRIVER) is not None:
        raise ValueError(f"{DRIVER} is damaged, or of a version that is not known")
    return entry


def _why(error: Exception) -> str:
    return error.what if isinstance(error, PoundlockError) else str(error)
