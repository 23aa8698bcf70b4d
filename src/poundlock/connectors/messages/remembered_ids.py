"""The ids of messages that were received, so that a message that comes a second time is known, also after a start.

Those of messages whose file is there are read from it. When a file goes, its ids are kept in small files of their own, the newest of which
is written again until it has enough.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from poundlock.connectors.messages.inbox import ID, Inbox
from poundlock.storage import Storage

_FOLDER = "ids"
_A_FILE = 1_000  # ids; so many small files are few, and so much is cheap to write again


class RememberedIds:
    """Which file each known message is in; used by one driver at a time.

    Args:
        storage: the workspace of the inbox.
        remember: how many ids at least are kept of messages whose file is gone.
    """

    def __init__(self, storage: Storage, inbox: Inbox, remember: int) -> None:
        self._storage, self._inbox, self._remember = storage, inbox, remember
        self._file: dict[str, int] = {}
        self._kept: dict[str, list[str]] = {}  # by the name of a small file, the oldest first

    def file_of(self, id: str) -> int | None:
        """Return the number of the file that has a message, None if it is not known."""
        return self._file.get(id)

    def add(self, ids: Mapping[str, int]) -> None:
        """Take note of messages that were written, by their ids, each with the number of its file."""
        self._file |= ids

    def load(self) -> None:
        """Read all that is known."""
        for name in sorted(f"{_FOLDER}/{each}" for each in self._storage.names(_FOLDER) if each.isdigit()):
            self._kept[name] = json.loads(self._storage.read(name))
            # Which file it was is not needed: all that are gone were decided.
            self._file |= dict.fromkeys(self._kept[name], int(name.removeprefix(f"{_FOLDER}/")))
        for number in self._inbox.numbers():
            self._file |= dict.fromkeys(self._of(number), number)

    def keep(self, numbers: Sequence[int]) -> None:
        """Keep the ids of files that are about to go, and forget the oldest where enough are newer."""
        for number in numbers:
            ids = self._of(number)
            newest = next(reversed(self._kept), None)
            if newest is not None and len(self._kept[newest]) + len(ids) <= _A_FILE:
                self._kept[newest] = list(dict.fromkeys([*self._kept[newest], *ids]))
                self._storage.replace(newest, self._text(newest))
            elif ids:
                name = f"{_FOLDER}/{number:020d}"
                self._kept[name] = ids
                self._storage.create_exclusive(name, self._text(name))
        self._forget()

    def _forget(self) -> None:
        kept = sum(map(len, self._kept.values()))
        for name in list(self._kept):
            kept -= len(self._kept[name])
            if kept < self._remember:
                return
            for id in self._kept.pop(name):
                self._file.pop(id, None)
            self._storage.delete(name)

    def _text(self, name: str) -> bytes:
        return json.dumps(self._kept[name]).encode()

    def _of(self, number: int) -> list[str]:
        return [id for id in self._inbox.read(number).column(ID).to_pylist() if id is not None]
