"""File systems for ledger, segments and finished files, behind one small protocol.

`open_storage` is the only place that looks at how a path is written; a file system is a line of `_BY_SCHEME`.
"""

from __future__ import annotations

import importlib
import os
from urllib.parse import unquote, urlsplit

from poundlock.errors import DefinitionError
from poundlock.storage.base import Entry, Storage
from poundlock.storage.local import LocalStorage

__all__ = ["Entry", "LocalStorage", "Storage", "below", "is_uri", "open_checkpoint", "open_storage"]

_FOR_FILES = ("poundlock.storage.objects", "open_objects")
# Per scheme the module and its function that takes the URI as it was written. Loaded when the first such path is opened.
_BY_SCHEME = {
    "hdfs": ("poundlock.storage.hdfs", "open_hdfs"),
    "s3": ("poundlock.storage.s3", "open_s3"),
    "s3a": ("poundlock.storage.s3", "open_s3"),
    **dict.fromkeys(("gs", "az", "abfs", "abfss"), _FOR_FILES),
}


def open_storage(path: str) -> Storage:
    """Return the storage of a folder. Nothing is touched, and the folder need not exist.

    Args:
        path: a local path, relative ones from the current folder and "~" as in a shell, or a URI of a file system.

    Raises:
        DefinitionError: the path is empty, names a file system this version cannot use, or a package for it is missing.
    """
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise DefinitionError(f"{path!r} is not a folder", next='give a path such as "/data/events"')
    if not is_uri(path):
        return LocalStorage(os.path.abspath(os.path.expanduser(path)))
    scheme = path.partition(":")[0].lower()
    if scheme == "file":
        parts = urlsplit(path)
        if parts.netloc not in ("", "localhost"):
            to_do = "write file:///path with three slashes"
            raise DefinitionError(f"{path}: {parts.netloc!r} is another machine", next=to_do)
        return LocalStorage(os.path.abspath(unquote(parts.path)))
    if scheme not in _BY_SCHEME:
        known = ", ".join(f"{name}://" for name in _BY_SCHEME)
        raise DefinitionError(f"{path}: there is no file system {scheme}:// here", next=f"use a local path, or {known}")
    module, function = _BY_SCHEME[scheme]
    opened: Storage = getattr(importlib.import_module(module), function)(path)
    return opened


def open_checkpoint(path: str, what: str = "checkpoint") -> Storage:
    """Return the storage of a checkpoint or savepoint, which keep what a job knows: only where that is proven on a real server.

    Raises DefinitionError as `open_storage` does, and where the store is one for files alone.
    """
    storage = open_storage(path)
    if _BY_SCHEME.get(path.partition(":")[0].lower()) == _FOR_FILES:
        raise DefinitionError(
            f"{path}: a {what} cannot be there: Google's and Azure's stores are for files of sinks and sources alone",
            next=f"keep the {what} on a local disk, HDFS or S3, such as s3://bucket/folder; sinks may stay where they are",
        )
    return storage


def below(folder: Storage, outer: Storage) -> str | None:
    """Return the path of a folder below another, "" where the two are one, None where it is elsewhere; local ones by where links lead."""
    inner, around = (
        os.path.join(os.path.realpath(each.root) if isinstance(each, LocalStorage) else each.root, "")
        for each in (folder, outer)
    )
    return inner[len(around) :].rstrip("/") if inner.startswith(around) else None


def is_uri(path: str) -> bool:
    """Return whether a path begins with a scheme, so that it is no path of the local file system as it stands."""
    head, separator, _ = path.partition(":/")
    return bool(separator) and head.isalnum() and len(head) > 1
