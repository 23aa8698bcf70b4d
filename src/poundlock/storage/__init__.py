"""File systems for ledger, segments and finished files, behind one small protocol.

`open_storage` is the only place that looks at how a path is written.
"""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from poundlock.errors import DefinitionError
from poundlock.storage.base import Entry, Storage
from poundlock.storage.local import LocalStorage

__all__ = ["Entry", "LocalStorage", "Storage", "open_storage"]


def open_storage(path: str) -> Storage:
    """Return the storage of a folder. Nothing is touched, and the folder need not exist.

    Args:
        path: a local path, relative ones from the current folder and "~" as in a shell, or a file:// URI.

    Raises:
        DefinitionError: the path is empty, or names a file system this version cannot use.
    """
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise DefinitionError(f"{path!r} is not a folder", next='give a path such as "/data/events"')
    head, separator, _ = path.partition(":/")
    if not separator or not head.isalnum() or len(head) == 1:
        return LocalStorage(os.path.abspath(os.path.expanduser(path)))
    parts = urlsplit(path)
    if parts.scheme != "file":
        raise DefinitionError(
            f"{path}: the file system {parts.scheme}:// arrives with a later release", next="use a local path"
        )
    if parts.netloc not in ("", "localhost"):
        raise DefinitionError(
            f"{path}: {parts.netloc!r} is another machine", next="write file:///path with three slashes"
        )
    return LocalStorage(os.path.abspath(unquote(parts.path)))
