"""Secrets that are given as themselves, or as the place where they are.

Read when they are needed, and never kept.
"""

from __future__ import annotations

import os
from pathlib import Path

from poundlock.errors import DefinitionError


def secret(text: str, what: str) -> str:
    """Return a secret given as itself, as "env:NAME" or as "file:PATH" (without the file's last line end).

    Raises:
        DefinitionError: the variable is not set or the file cannot be read.
    """
    kind, colon, where = text.partition(":")
    if colon and kind == "env":
        value = os.environ.get(where)
        if value is None:
            raise DefinitionError(f"{what}: environment variable {where} is not set", next=f"export {where}=…")
        return value
    if colon and kind == "file":
        return content(where, what).rstrip("\r\n")
    return text


def content(path: str, what: str) -> str:
    """Return what is in a file. Raises DefinitionError if it cannot be read."""
    try:
        return Path(path).expanduser().read_text()
    except OSError as error:
        raise DefinitionError(
            f"{what}: cannot read {path}: {error.strerror}", next="give the path of a file this user can read"
        ) from error
