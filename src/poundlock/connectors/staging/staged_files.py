"""The files that tasks leave in a folder for the driver, whose names begin with the sink's own prefix."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from poundlock.checkpoint.participant import Orphan, Prepared
from poundlock.storage import Storage


def is_as_left(storage: Storage, prepared: Prepared) -> bool:
    """Return whether a file is there with all the bytes that its task wrote."""
    status = storage.stat(prepared.payload["file"])
    return status is not None and status.bytes == prepared.payload["bytes"]


def sweep(
    storage: Storage, folder: str, prefix: str, *, remove: bool, check: Callable[[], None], ending: str = ""
) -> Sequence[Orphan]:
    """Return the files of a sink that are left over, and remove them if asked.

    Args:
        folder: what the sink calls the storage.
        prefix: how its files begin; "": it is not known whose they are, and none is its.
        remove: whether they are removed.
        check: called before the first is; raises where another driver has taken over.
        ending: how their names end.
    """
    if not prefix:
        return []
    left = [entry for entry in storage.list() if entry.path.startswith(prefix) and entry.path.endswith(ending)]
    if remove and left:
        check()
        for entry in left:
            storage.delete(entry.path)
    return [Orphan(f"{folder}/{entry.path}", entry.bytes, entry.modified_ms) for entry in left]
