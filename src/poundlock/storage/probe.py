"""Whether files can be made and deleted in a folder, and what time it is there, with nothing left behind."""

from __future__ import annotations

import os
import posixpath
import uuid
from urllib.parse import urlsplit

from poundlock.storage import LocalStorage, Storage, open_storage
from poundlock.storage.base import HasFolders
from poundlock.values import Clock, SystemClock, ms_ahead

_GRAIN_MS = 1000  # object stores tell whole seconds


def standing(storage: Storage) -> Storage:
    """Return the folder itself where it is there, else the nearest one above it that is: what could be made would be made in that.

    On stores without folders it is the folder itself. Raises OSError where the store does not let anybody look.
    """
    if isinstance(storage, LocalStorage):
        folder = storage.root
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        return LocalStorage(folder)
    if not isinstance(storage, HasFolders):
        return storage
    parts = urlsplit(storage.root)
    path = parts.path or "/"
    while path != "/":
        outer, name = posixpath.split(path.rstrip("/"))
        if name in open_storage(parts._replace(path=outer).geturl()).names("."):
            break
        path = outer
    return open_storage(parts._replace(path=path).geturl())


def try_writing(storage: Storage, clock: Clock | None = None) -> int:
    """Make a file in a folder that is there, look at it and delete it; return by how many ms the store's clock is ahead of this machine's.

    The file has a hidden name that nobody has had, so that two who try at once, or a job at work there, are not in each other's way.

    Raises:
        OSError: it cannot be made, looked at or deleted.
    """
    clock = clock or SystemClock()
    name = f".poundlock-preflight-{uuid.uuid4().hex}"
    asked = clock.now_ms()
    storage.create_exclusive(name, b"\n")  # a full disk still takes an empty file
    answered = clock.now_ms()
    entry = storage.stat(name)
    storage.delete(name)
    return 0 if entry is None else ms_ahead(entry.modified_ms, asked, answered, grain_ms=_GRAIN_MS)
