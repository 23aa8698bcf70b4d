"""What poundlock asks of a file system. Paths are plain strings below the root a storage was opened for.

The invariant all implementations keep: `create_exclusive` has exactly one winner, and a name holds its whole content.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, ClassVar, Protocol, runtime_checkable

from poundlock.errors import next_of


class OutcomeUnknown(OSError):
    """A storage did not say whether it did what it was asked for, and may still do it. `next`: what to do."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.errno, error.strerror or str(error), error.filename)
        self.next: str = next_of(error)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file below a storage's root.

    Args:
        path: path relative to the root, with forward slashes.
        bytes: size in bytes.
        modified_ms: last modification, ms since the epoch.
        tag: differs for each content of a name, as an ETag does; "" where the store has none.
    """

    path: str
    bytes: int
    modified_ms: int
    tag: str = ""


def check_below(path: str, root: str) -> str:
    """Return a path. Raises ValueError unless it stays below the root."""
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} is not a path below {root}")
    return path


def temporary_beside(path: str) -> str:
    """Return a new hidden name in the folder of a file: ".tmp-<hex>-<name>"."""
    folder, separator, name = path.rpartition("/")
    return f"{folder}{separator}.tmp-{uuid.uuid4().hex}-{name[:150]}"


class Storage(Protocol):
    """A folder on some file system. Picklable: tasks receive it with the plan and open their own handles.

    Attributes:
        moves_by_copy: whether a rename costs a copy, so that what is joined is better written to its last name at once. A file
            then appears under any name only when it is complete.
        refused_in_names: the characters that no name may have there, besides those that nobody takes.
        client_s: CPU seconds that a call costs whoever makes it, the store's own work apart; 0 where that is next to nothing.
    """

    moves_by_copy: ClassVar[bool]
    refused_in_names: ClassVar[str]
    client_s: ClassVar[float]

    @property
    def root(self) -> str:
        """Return the folder, as a person would write it."""

    def create_exclusive(self, path: str, data: bytes) -> bool:
        """Write a whole new file durably; return False, and change nothing, if the name is taken.

        A crash leaves either no file or the whole one. A leftover temporary name is ".tmp-<hex>-<name>" in that folder.
        Raises OutcomeUnknown where the file may still appear after the call: then nobody may act as if it will not.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Give a file another content, durably: a crash leaves the one or the other, whole. Raises FileNotFoundError.

        A leftover temporary name is as in `create_exclusive`.
        """

    def write(self, path: str) -> BinaryIO:
        """Open a new file for writing, making its folders. Raises FileExistsError if the name is taken.

        The caller calls `sync(handle)` and closes it. On stores where a file appears only when complete, closing
        publishes it under this (hidden) name.
        """

    def sync(self, handle: BinaryIO) -> None:
        """Make what was written to a handle of `write`, and its name, durable."""

    def settle(self, path: str) -> None:
        """Make a complete file that another process left durable. Raises FileNotFoundError.

        A process may die between giving a file its name and making the name durable; a later power failure must not
        take back what a reader has already acted upon.
        """

    def read(self, path: str) -> bytes:
        """Return the whole content. Raises FileNotFoundError."""

    def open(self, path: str) -> BinaryIO:
        """Open for reading. Raises FileNotFoundError."""

    def stat(self, path: str) -> Entry | None:
        """Return the file's entry, or None if there is none."""

    def rename(self, source: str, target: str) -> None:
        """Move a file to a new name, durably and atomically.

        The target's folder is made where it is missing. Where a file system cannot move without replacing, a crash may
        leave both names on the same content.

        Raises:
            FileExistsError: the target exists.
            FileNotFoundError: the source does not.
        """

    def concat(self, sources: Sequence[str], target: str) -> None:
        """Write the content of the sources, in order, to a new durable file: all of it or no file. The sources stay.

        Raises FileExistsError if the target exists. A leftover temporary name is as in `create_exclusive`.
        """

    def delete(self, path: str) -> bool:
        """Delete a file; return False if there was none."""

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of what is directly in a folder, hidden ones too, in any order. Empty if it is missing.

        Nothing is looked at but the folder, so that a long one is cheap.
        """

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield every file below a folder, hidden ones too, in any order. Nothing if the folder is missing."""


@runtime_checkable
class HasFolders(Protocol):
    """A storage in which folders are things of their own, and stay when their last file goes."""

    def remove_folders(self, path: str = "") -> None:
        """Remove the folders below a folder that hold no file, and the folder itself if nothing is left of it."""


@runtime_checkable
class CopiesWithin(Protocol):
    """A storage whose server copies files by itself, so that their bytes do not pass through here."""

    def copy_from(self, source: Storage, path: str, new_path: str) -> bool:
        """Copy a file of another folder; return False where the server cannot, because it does not have that folder.

        Raises FileNotFoundError, or FileExistsError where the new name is taken.
        """


@runtime_checkable
class Remote(Protocol):
    """A storage that another machine keeps, which may be away."""

    def check_reachable(self, seconds: float = 5) -> None:
        """Raise OSError unless it answers within so many seconds. That there is no such folder is an answer."""
