"""Objects that are written in parts and appear at once: what is asked of a store that has multipart uploads, and what writes to one.

An upload belongs to whoever has its id; what it will show is invisible until `complete`, and an aborted one shows nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from poundlock.storage.object_files import ObjectWriter

LEAST_PART = 5 << 20  # bytes; every part but the last has at least so many
_PAUSES_S = (0.1, 0.4, 1.0, 2.0, 4.0)


class UploadGone(FileNotFoundError):
    """There is no such upload: it was completed, or aborted."""


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that was begun and neither completed nor aborted."""

    path: str  # the object it is for, below the storage's root
    id: str  # the store's name for it
    begun_ms: int  # when it was begun, ms since the epoch


@runtime_checkable
class Uploads(Protocol):
    """What a storage offers besides, where an object can be made of parts."""

    def begin_upload(self, path: str, mark: str) -> str:
        """Begin an upload for an object that will carry a mark, and return its id. Nothing is visible."""

    def upload_part(self, path: str, upload: str, number: int, data: bytes) -> str:
        """Write a part, numbered from 1, durably; return its tag. Raises UploadGone."""

    def uploaded(self, path: str, upload: str) -> Sequence[tuple[int, str, int]] | None:
        """Return number, tag and bytes of the parts that are there; None if there is no such upload."""

    def complete_upload(self, path: str, upload: str, tags: Sequence[str]) -> None:
        """Let the object appear, durably and at once; it replaces nothing.

        Raises:
            UploadGone: there is no such upload, such as after an earlier call.
            FileExistsError: the name is taken; the upload may still be there.
        """

    def abort_upload(self, path: str, upload: str) -> bool:
        """Drop an upload and its parts; return False if the store says that there was none."""

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        """Yield the uploads below a folder that were begun, of whomever they are, in any order."""

    def mark_of(self, path: str) -> str | None:
        """Return the mark an object carries, "" for none, None if there is no such object."""


class PartsWriter(ObjectWriter):
    """Writes an object that carries a mark, by an upload that is begun with its first part."""

    def __init__(self, uploads: Uploads, path: str, mark: str, name: str) -> None:
        super().__init__(name)
        self.uploads, self.path, self.mark = uploads, path, mark
        self.tags: list[str] = []
        self._id: str | None = None

    def begin(self) -> str:
        """Return the id of the upload, which is begun where it was not."""
        if self._id is None:
            self._id = self.uploads.begin_upload(self.path, self.mark)
        return self._id

    def part(self, number: int, data: bytes) -> None:
        self.tags.append(self.uploads.upload_part(self.path, self.begin(), number, data))

    def drop(self) -> None:
        if self._id is not None:
            with suppress(Exception):
                self.uploads.abort_upload(self.path, self._id)
            self._id = None


def shown_mark(uploads: Uploads, path: str, sleep: Callable[[float], None] | None = None) -> str | None:
    """Return the mark of an object whose upload is gone; None if it does not appear within some seconds.

    Where the answer to a completion got lost the object may be there already and not be shown yet: not every store answers
    at once with what it just did. `sleep` waits so many seconds; None = time.sleep.
    """
    mark = uploads.mark_of(path)
    for pause in _PAUSES_S:
        if mark is not None:
            break
        (sleep or time.sleep)(pause)
        mark = uploads.mark_of(path)
    return mark
