"""What poundlock asks of a file system. Paths are plain strings below the root a storage was opened for.

The invariant every implementation keeps: `create_exclusive` has exactly one winner, and a name it made holds its whole content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

__all__ = ["Entry", "Storage"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One file below a storage's root.

    Args:
        path: path relative to the root, with forward slashes.
        bytes: size in bytes.
        modified_ms: last modification, ms since the epoch.
    """

    path: str
    bytes: int
    modified_ms: int


class Storage(Protocol):
    """A folder on some file system. Picklable: tasks receive it with the plan and open their own handles."""

    root: str

    def create_exclusive(self, path: str, data: bytes) -> bool:
        """Write a whole new file durably; return False, and change nothing, if the name is taken.

        A crash leaves either no file or the whole one. Any leftover temporary name starts with ".tmp-".
        """
        ...

    def write(self, path: str) -> BinaryIO:
        """Open a new file for writing, making its folders. Raises FileExistsError if the name is taken.

        The caller calls `sync(handle)` and closes it. On stores where a file appears only when complete, closing publishes
        it under this (hidden) name.
        """
        ...

    def sync(self, handle: BinaryIO) -> None:
        """Make what was written to a handle of `write` durable."""
        ...

    def read(self, path: str) -> bytes:
        """Return the whole content. Raises FileNotFoundError."""
        ...

    def open(self, path: str) -> BinaryIO:
        """Open for reading. Raises FileNotFoundError."""
        ...

    def stat(self, path: str) -> Entry | None:
        """Return the file's entry, or None if there is none."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file to a new name, durably and atomically. Raises FileExistsError if the target exists, FileNotFoundError if the source does not."""
        ...

    def concat(self, sources: Sequence[str], target: str) -> None:
        """Write the content of the sources, in order, to a new durable file. The sources stay."""
        ...

    def delete(self, path: str) -> bool:
        """Delete a file; return False if there was none."""
        ...

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield every file below a folder, hidden ones too, in any order. Nothing if the folder is missing."""
        ...
