"""Spark notes where the columns of an operator's state are described by a whole path, which is another one in another folder.

Where state is copied to, the notes are written anew; what was copied by linking is replaced, never written to.
"""

from __future__ import annotations

import json
import re
from typing import Any

from poundlock.storage import Storage

__all__ = ["settle_schemas"]

_PATHS = "stateSchemaFilePaths"


def settle_schemas(storage: Storage) -> None:
    """Have the notes of a checkpoint folder, which may have been copied or moved there, name the files of that folder."""
    for operator in storage.names("spark/state"):
        folder = f"spark/state/{operator}/_metadata/v2"
        for name in storage.names(folder):
            if name.isdigit():
                path = f"{folder}/{name}"
                text = storage.read(path).decode()
                settled = _settled(text, storage.root)
                if settled != text:
                    storage.delete(f"{folder}/.{name}.crc")  # Hadoop's checksum of what was there
                    storage.replace(path, settled.encode())


def _settled(text: str, root: str) -> str:
    version, _, body = text.partition("\n")
    try:
        said: Any = json.loads(body)
        stores = said["stateStoreInfo"]
    except (ValueError, KeyError, TypeError):
        return text  # of another version of Spark's
    place = f"file:{root}" if root.startswith("/") else root
    for store in stores:
        if store.get(_PATHS):
            store[_PATHS] = [re.sub(r"^.*/spark/state/", f"{place}/spark/state/", old) for old in store[_PATHS]]
    return f"{version}\n{json.dumps(said, separators=(',', ':'))}"
