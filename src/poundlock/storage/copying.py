"""Files from one storage to another: a second name of the same file where both are local and nobody writes to it again, else its bytes.

A name that is taken is an error. What is copied is durable when the caller has settled it.
"""

from __future__ import annotations

import os

from poundlock.storage.base import Storage
from poundlock.storage.local import LocalStorage

_BLOCK = 1 << 20


def link(source: Storage, path: str, target: Storage, new_path: str) -> bool:
    """Give a file that nobody ever writes to again a second name, which the caller settles; return False where that cannot be done.

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
    return True


def copy(
    source: Storage, path: str, target: Storage, new_path: str, *, linked: bool = False, settle: bool = True
) -> None:
    """Copy a file. Raises FileNotFoundError, or FileExistsError where the new name is taken.

    Args:
        source, path: what to copy.
        target, new_path: where to.
        linked: whether one file under two names will do, because nobody ever writes to it again.
        settle: whether it is durable when this returns; without, the caller settles it.
    """
    if linked and link(source, path, target, new_path):
        if settle:
            target.settle(new_path)
        return
    with source.open(path) as given, target.write(new_path) as made:
        while block := given.read(_BLOCK):
            made.write(block)
        if settle:
            target.sync(made)
