"""Copies of the newest checkpoints, each a savepoint in `retained/chk-<n>` of the checkpoint folder, made of hard links.

A copy counts once its metadata is written, which is last; one that goes loses its metadata first. So a crash leaves whole
copies, and leftovers that the next life removes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress

from poundlock.errors import DefinitionError, PoundlockError
from poundlock.savepoint.metadata import METADATA, SavedFile, check_files, read_metadata
from poundlock.savepoint.take import Cut, finish
from poundlock.storage import Storage, open_storage
from poundlock.storage.copying import remove_tree
from poundlock.storage.local import LocalStorage

FOLDER = "retained"
_NAME = re.compile(r"chk-([0-9]+)")


def copy_name(checkpoint: int) -> str:
    """Return the name of a checkpoint's copy."""
    return f"chk-{checkpoint}"


def copies(storage: Storage) -> dict[int, str]:
    """Return the copies in a checkpoint folder by number of checkpoint: the path of each, below it. Whole ones only."""
    paths = {}
    for name in storage.names(FOLDER):
        match = _NAME.fullmatch(name)
        if match and storage.stat(f"{FOLDER}/{name}/{METADATA}") is not None:
            paths[int(match[1])] = f"{FOLDER}/{name}"
    return paths


def newest_whole(storage: Storage) -> tuple[int, str] | None:
    """Return the newest copy in a checkpoint folder whose files are all as they were written: its checkpoint, and its path.

    Reads the files of copies until one is whole: for a checkpoint that is damaged.
    """
    for number, path in sorted(copies(storage).items(), reverse=True):
        copy = open_storage(f"{storage.root}/{path}")
        with suppress(OSError, PoundlockError):
            check_files(copy, read_metadata(copy))
            return number, copy.root
    return None


class Retained:
    """The copies of one job.

    Args:
        job_id: of the job; copies of one that had the folder before go.
        keep: how many; below two there are none.
        cut: copies what the newest checkpoint is made of into a directory, under a name; called at a checkpoint's border.
        say: called with a line on a copy that could not be made. The job goes on without it.
    """

    def __init__(
        self, storage: Storage, *, job_id: str, keep: int, cut: Callable[[str, str], Cut], say: Callable[[str], None]
    ) -> None:
        self._storage, self._keep, self._cut, self._say = storage, keep, cut, say
        self._known: Mapping[str, SavedFile] = {}
        self._before: Storage | None = None
        self._newest = -1
        self._tidy(job_id)

    def due(self, checkpoint: int) -> bool:
        """Return whether a checkpoint is newer than the newest that was copied."""
        return self._keep > 1 and checkpoint > self._newest

    def copy(self, checkpoint: int) -> None:
        """Copy what the newest checkpoint is made of, at its border, and remove the copies that are too many."""
        self._newest = checkpoint
        try:
            cut = self._cut(f"{self._storage.root}/{FOLDER}", copy_name(checkpoint))
            metadata = finish(cut, known=lambda path: self._same(cut.savepoint, path))
        except (OSError, PoundlockError) as error:
            self._say(f"Checkpoint {checkpoint} was not copied to {self._storage.root}/{FOLDER}: {error}")
            self._remove(copy_name(checkpoint))
            return
        self._known, self._before = metadata.files, cut.savepoint
        for old in sorted(copies(self._storage))[: -self._keep]:
            self._remove(copy_name(old))

    def _same(self, copy: Storage, path: str) -> SavedFile | None:
        """Return what is known of a file that the copy before has too, under another name: its content never changes."""
        file = self._known.get(path)
        if file is None or not (isinstance(copy, LocalStorage) and isinstance(self._before, LocalStorage)):
            return None
        with suppress(OSError):
            if os.path.samefile(f"{copy.root}/{path}", f"{self._before.root}/{path}"):
                return file
        return None

    def _tidy(self, job_id: str) -> None:
        for name in list(self._storage.names(FOLDER)):
            number = _NAME.fullmatch(name)
            if number is None:
                continue  # not ours
            metadata = None
            with suppress(OSError, DefinitionError):  # one without metadata is no copy
                metadata = read_metadata(open_storage(f"{self._storage.root}/{FOLDER}/{name}"))
            if metadata is None or metadata.job_id != job_id or self._keep < 2:
                self._remove(name)
            else:
                self._newest = max(self._newest, int(number[1]))

    def _remove(self, name: str) -> None:
        remove_tree(self._storage, f"{FOLDER}/{name}", first=[METADATA])
