"""Removing whole folders. A storage knows files only; where folders are things of their own, empty ones go as well.

What cannot be removed because somebody put something in meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from poundlock.storage.base import HasFolders, Storage


def remove_tree(storage: Storage, path: str, *, first: Sequence[str] = ()) -> None:
    """Remove all files below a folder, and the folder; those of some names in it go before all others."""
    for name in first:
        storage.delete(f"{path}/{name}" if path else name)
    for entry in list(storage.list(path)):
        storage.delete(entry.path)
    remove_empty(storage, path)


def remove_empty(storage: Storage, path: str) -> None:
    """Remove the folders below a folder that hold no file, and the folder itself if nothing is left of it."""
    if isinstance(storage, HasFolders):
        storage.remove_folders(path)


def remove_root(storage: Storage) -> None:
    """Remove a storage's own folder if there is nothing in it."""
    if isinstance(storage, HasFolders) and not storage.names("."):
        storage.remove_folders()
