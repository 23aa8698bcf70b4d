"""Files from one storage to another: a hard link where both are local and the file never changes, else its bytes.

A copy is whole and durable when this returns; a name that is taken is an error.
"""

from __future__ import annotations

import os

from poundlock.storage.base import Storage
from poundlock.storage.local import LocalStorage

__all__ = ["copy"]

_BLOCK = 1 << 20


def copy(
    source: Storage, path: str, target: Storage, new_path: str, *, link: bool = False, settle: bool = True
) -> None:
    """Copy a file.

    Args:
        source, path: what to copy.
        target, new_path: where to.
        link: whether one file under two names will do, because nobody ever writes to it again.
        settle: whether a link is made durable too; else the caller does, by `target.settle`.

    Raises:
        FileNotFoundError: there is no such file.
        FileExistsError: the new name is taken.
    """
    if link and isinstance(source, LocalStorage) and isinstance(target, LocalStorage):
        old, new = f"{source.root}/{path}", f"{target.root}/{new_path}"
        os.makedirs(os.path.dirname(new), exist_ok=True)
        try:
            os.link(old, new)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError:
            pass  # another file system, or one without links
        else:
            if settle:
                target.settle(new_path)
            return
    with source.open(path) as given, target.write(new_path) as made:
        while block := given.read(_BLOCK):
            made.write(block)
        target.sync(made)
