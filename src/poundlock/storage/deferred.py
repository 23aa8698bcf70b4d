"""A local folder in which names become durable together: one sync a folder for many renames.

Nothing that was done here may be relied on, and nothing is deleted, before `finish` has returned: a power failure may take names back,
and what was to be deleted is what they are made of.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from poundlock.storage.local import LocalStorage, move, sync_folder


@dataclass(frozen=True)
class DeferredStorage(LocalStorage):
    """A local folder whose `rename` and `delete` take effect for good in `finish`. For one thread, for a while."""

    _folders: dict[str, None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _deleted: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    def rename(self, source: str, target: str) -> None:
        """Move a file to a new name, durably behind `finish`. Raises FileExistsError or FileNotFoundError."""
        old, new = self._at(source), self._at(target)
        move(old, new)
        self._folders.update(dict.fromkeys((os.path.dirname(new), os.path.dirname(old))))

    def delete(self, path: str) -> bool:
        """Delete a file when `finish` is called; return whether there is one."""
        self._deleted.append(path)
        return self.stat(path) is not None

    def finish(self) -> None:
        """Make every rename durable, then delete. After an OSError nothing was deleted, and all of it may be done again."""
        for folder in self._folders:
            sync_folder(folder)
        self._folders.clear()
        while self._deleted:
            super().delete(self._deleted.pop())
