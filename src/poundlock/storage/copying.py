"""Files copied from one storage to another, and whole folders removed.

A copy is a second name of the same file where both are local and who writes to it looks at its names first, else its bytes, which a store copies by
itself where both are in it; a name that is taken is an
error. A storage knows files only: where folders are things of their own, empty ones go as well, and what somebody put in meanwhile stays.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from shutil import copyfileobj

from poundlock.storage.base import CopiesWithin, HasFolders, Storage
from poundlock.storage.local import LocalStorage

_BLOCK = 1 << 20


def link(source: Storage, path: str, target: Storage, new_path: str) -> bool:
    """Give a file a second name, which the caller settles; return False where that cannot be done.

    Nobody writes to it again, or only behind a look at how many names it has.

    Raises FileNotFoundError, or FileExistsError where the new name is taken.
    """
    if not isinstance(source, LocalStorage) or not isinstance(target, LocalStorage):
        return False
    new = f"{target.root}/{new_path}"
    os.makedirs(os.path.dirname(new), exist_ok=True)
    try:
        os.link(f"{source.root}/{path}", new)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError:  # another file system, or one without links
        return False
    if os.stat(new).st_nlink < 2:  # as sshfs has it: who looks for other names before writing would see none
        os.unlink(new)
        return False
    return True


def copy(
    source: Storage, path: str, target: Storage, new_path: str, *, linked: bool = False, settle: bool = True
) -> None:
    """Copy a file. Raises FileNotFoundError, or FileExistsError where the new name is taken.

    Args:
        source, path: what to copy.
        target, new_path: where to.
        linked: whether one file under two names will do, see `link`.
        settle: whether it is durable when this returns; without, the caller settles it.
    """
    if linked and link(source, path, target, new_path):
        if settle:
            target.settle(new_path)
        return
    if isinstance(target, CopiesWithin) and target.copy_from(source, path, new_path):
        return
    with source.open(path) as given, target.write(new_path) as made:
        copyfileobj(given, made, _BLOCK)
        if settle:
            target.sync(made)


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
