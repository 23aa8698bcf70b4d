"""Whose a savepoint is after a restore: its user's (NO_CLAIM), or the job's, which deletes it (CLAIM). And its deletion.

A claim is noted in the checkpoint before the job is one, so that no crash forgets it; only what the savepoint's own list
names is ever deleted.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Literal

from poundlock.errors import DefinitionError
from poundlock.savepoint.metadata import METADATA, Metadata, damaged, read_metadata, strays
from poundlock.storage import Storage, open_storage
from poundlock.storage.copying import remove_empty

ClaimMode = Literal["NO_CLAIM", "CLAIM"]
CLAIM = "claim.json"


def parse_mode(text: str) -> ClaimMode:
    """Return the claim mode a user gave, in any case. Raises DefinitionError."""
    wanted = text.strip().upper().replace("-", "_")
    if wanted == "LEGACY":
        raise DefinitionError(
            "claim mode LEGACY is not supported: Flink has removed it, because nobody owned the savepoint",
            next="use NO_CLAIM, the default, or CLAIM",
        )
    if wanted == "NO_CLAIM":
        return "NO_CLAIM"
    if wanted == "CLAIM":
        return "CLAIM"
    raise DefinitionError(f"claim mode {text!r} is not known", next="use NO_CLAIM, the default, or CLAIM")


def claim(checkpoint: Storage, savepoint: str) -> None:
    """Note that a savepoint is the job's. Nothing happens if that was noted."""
    checkpoint.create_exclusive(CLAIM, json.dumps({"v": 1, "savepoint": savepoint}).encode() + b"\n")


def claimed(checkpoint: Storage) -> str | None:
    """Return the savepoint that the job of a checkpoint folder owns and has not deleted yet, None if there is none."""
    try:
        return str(json.loads(checkpoint.read(CLAIM))["savepoint"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError):
        return None  # a savepoint that stays does no harm


def settle_claim(checkpoint: Storage) -> str | None:
    """Delete the savepoint that the job owns, where it owns one; call it when the job has a checkpoint of its own.

    Returns:
        What to say about it; None if there is none. It never raises: a savepoint that cannot be deleted stays.
    """
    path = claimed(checkpoint)
    if path is None:
        return None
    try:
        dispose(open_storage(path))
    except DefinitionError:
        message = f"The claimed savepoint {path} is no longer there"
    except OSError as error:
        message = f"The claimed savepoint {path} could not be deleted whole: {error.strerror or error}"
    else:
        message = f"Deleted the claimed savepoint {path}"
    with suppress(OSError):
        checkpoint.delete(CLAIM)
    return message


def dispose(savepoint: Storage) -> Metadata:
    """Delete what a savepoint's own list names, and nothing else.

    Raises:
        DefinitionError: it is no savepoint, or part of it is a link to elsewhere; nothing was deleted.
    """
    metadata = read_metadata(savepoint)
    for name in metadata.files:
        if strays(savepoint, name):
            raise damaged(savepoint, name, "is a link, and a savepoint has none")
    for name in (*metadata.files, METADATA):  # the list goes last: what was cut short can be gone on with
        savepoint.delete(name)
    remove_empty(savepoint, "")
    return metadata
