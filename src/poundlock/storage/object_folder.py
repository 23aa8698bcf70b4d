"""What folders of all object stores have in common: handles, and what follows from one request being all or nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO, ClassVar, cast

from poundlock.storage.base import Entry
from poundlock.storage.object_files import ObjectWriter, Sending, open_reader


class ObjectFolder(ABC):
    """A folder of objects, of which each appears whole and at once."""

    moves_by_copy: ClassVar[bool] = True
    refused_in_names: ClassVar[str] = ""

    @property
    @abstractmethod
    def root(self) -> str:
        """The folder, as a person would write it."""

    @abstractmethod
    def stat(self, path: str) -> Entry | None:
        """Return the object's entry, or None if there is none."""

    def write(self, path: str) -> BinaryIO:
        """Open a new object, which appears when the handle is synced or closed. Raises FileExistsError if the name is taken."""
        if self.stat(path) is not None:
            raise FileExistsError(self._place(path))
        return cast(BinaryIO, ObjectWriter(self._sending(path), self._place(path)))

    def sync(self, handle: BinaryIO) -> None:
        """Let a handle's object appear; nothing can be written to it afterwards."""
        cast(ObjectWriter, handle).publish()

    def settle(self, path: str) -> None:
        """See that an object is there: what a store answers with is durable. Raises FileNotFoundError."""
        self._existing(path)

    def open(self, path: str) -> BinaryIO:
        """Open for reading. Raises FileNotFoundError."""
        size = self._existing(path).bytes
        return open_reader(size, lambda first, after: self._range(path, first, after), self._place(path))

    def _existing(self, path: str) -> Entry:
        entry = self.stat(path)
        if entry is None:
            raise FileNotFoundError(self._place(path))
        return entry

    def _place(self, path: str) -> str:
        return f"{self.root}/{path}"

    @abstractmethod
    def _range(self, path: str, first: int, after: int) -> bytes:
        """Return the bytes from `first` to before `after`."""

    @abstractmethod
    def _sending(self, path: str) -> Sending:
        """Return the way to a new object."""
