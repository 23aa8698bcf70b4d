"""One walk over a folder that holds checkpoint folders, for all who list the jobs there: what is a job's, and what cannot be read.

Nothing is changed, and no job is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from poundlock.checkpoint.identity import Identity, read_identity
from poundlock.control.control_files import TROUBLE
from poundlock.storage import Storage, open_storage

DEPTH = 3
"""Folders by team and by environment are looked into so far; data is not."""


@dataclass(frozen=True, kw_only=True)
class CheckpointFolder:
    """A job's checkpoint folder, or a place that cannot be looked at: `trouble` says why, and there is no identity then."""

    storage: Storage
    identity: Identity | None = None
    trouble: Exception | None = None


def checkpoint_folders(root: Storage, depth: int = DEPTH) -> Iterator[CheckpointFolder]:
    """Yield the checkpoint folders in a folder, or the folder itself where it is one, in order of their names; hidden ones are left out.

    What is in a checkpoint folder is not looked into.
    """
    try:
        identity = read_identity(root)
        if identity is not None:
            yield CheckpointFolder(storage=root, identity=identity)
            return
        names = sorted(name for name in root.names(".") if not name.startswith(".")) if depth else []
    except NotADirectoryError:
        return
    except TROUBLE as error:
        yield CheckpointFolder(storage=root, trouble=error)
        return
    for name in names:
        yield from checkpoint_folders(open_storage(f"{root.root}/{name}"), depth - 1)
