"""Which files of Spark's state one version needs. Spark keeps the files of many versions; a savepoint takes those of one.

What is left out is proved to be needed by no one who reads that version; where that cannot be told, everything is taken.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from poundlock.storage import Storage

__all__ = ["needed_state"]

_VERSION = re.compile(r"([0-9]+)(?:_([0-9a-f-]{36}))?\.(zip|changelog|snapshot|delta)")
_HEAD = 1 << 18
_LZ4 = b"LZ4Block"

Version = tuple[int, str | None]


def needed_state(checkpoint: Storage, paths: Sequence[str], batch: int) -> set[str]:
    """Return those of the files below spark/state that are needed to go on behind a batch.

    Args:
        checkpoint: the checkpoint folder.
        paths: every file below spark/state.
        batch: the newest one; its state has the version batch + 1.
    """
    if checkpoint.stat(f"spark/commits/{batch}") is None:
        return set(paths)  # Spark runs that batch again, and begins with the version before
    ids = _committed_ids(checkpoint, batch)
    folders: dict[str, list[str]] = {}
    needed: set[str] = set()
    for path in paths:
        parts = path.split("/")  # spark/state/<operator>/<partition>/[<store>/]<file>
        if len(parts) < 5 or not parts[3].isdigit():
            needed.add(path)
            continue
        store = "/".join(parts[:4]) if _in_default_store(parts) else "/".join(parts[:5])
        folders.setdefault(store, []).append(path)
    for store, found in folders.items():
        needed |= _of_store(checkpoint, store, found, batch + 1, ids)
    return needed


def _in_default_store(parts: Sequence[str]) -> bool:
    return len(parts) == 5 or parts[4] in ("SSTs", "logs", "_metadata")


def _committed_ids(checkpoint: Storage, batch: int) -> set[str]:
    """Return the ids of all that the batch committed; none where Spark gives state no ids."""
    try:
        value = json.loads(checkpoint.read(f"spark/commits/{batch}").decode().splitlines()[1])
    except (FileNotFoundError, IndexError, ValueError):
        return set()
    found: Any = value.get("stateUniqueIds") or {}
    return {one for partitions in found.values() for stores in partitions for one in stores}


def _of_store(checkpoint: Storage, store: str, paths: list[str], version: int, ids: Collection[str]) -> set[str]:
    """Return what one store of one partition needs; all of it where that is not known."""
    everything = set(paths)
    files: dict[Version, dict[str, str]] = {}
    for path in paths:
        match = _VERSION.fullmatch(path[len(store) + 1 :])
        if match:
            files.setdefault((int(match[1]), match[2]), {})[match[3]] = path
    lineage = _lineage(checkpoint, files, version, ids)
    if lineage is None:
        return everything
    kept, snapshot = _from_snapshot(files, lineage)
    if snapshot is None:
        return everything
    if snapshot.endswith(".zip"):
        named = _named_in(checkpoint, snapshot)
        if named is None:
            return everything
        kept |= {path for path in paths if path.rpartition("/")[2] in named}
    others = {path for path in paths if not _VERSION.fullmatch(path[len(store) + 1 :]) and not _is_bulk(path)}
    return kept | others


def _is_bulk(path: str) -> bool:
    return path.split("/")[-2] in ("SSTs", "logs")


def _lineage(
    checkpoint: Storage, files: Mapping[Version, Mapping[str, str]], version: int, ids: Collection[str]
) -> list[Version] | None:
    """Return the versions this one was made of, itself last; None if they are not known."""
    if any(one is None for _, one in files):
        return [(number, None) for number in sorted(n for n, _ in files) if number <= version]
    mine = next((key for key in files if key[0] == version and key[1] in ids), None)
    if mine is None:
        return None
    if "zip" in files[mine]:
        return [mine]
    before = _told(checkpoint, files[mine]["changelog"]) if "changelog" in files[mine] else None
    return None if before is None else [*(known for known in before if known[0] < version), mine]


def _from_snapshot(
    files: Mapping[Version, Mapping[str, str]], lineage: Sequence[Version]
) -> tuple[set[str], str | None]:
    """Return the newest snapshot of a lineage with the changes behind it, and the snapshot alone; (…, None) if a change is missing."""
    kept: set[str] = set()
    behind = lineage[-1][0] + 1
    for key in reversed(lineage):
        there = files.get(key, {})
        snapshot = there.get("zip") or there.get("snapshot")
        if snapshot is not None:
            return kept | {snapshot, *there.values()}, snapshot
        if key[0] != behind - 1 or not there:
            return kept, None
        behind = key[0]
        kept |= set(there.values())
    return kept, None


def _told(checkpoint: Storage, path: str) -> list[Version] | None:
    """Return the versions at the head of a changelog, which is compressed by LZ4; None if they cannot be read."""
    with checkpoint.open(path) as handle:
        head = handle.read(_HEAD)
    try:
        if head[:8] != _LZ4:
            return None
        token, packed, length, _ = struct.unpack_from("<Biii", head, 8)
        block = head[21 : 21 + packed]
        if token & 0xF0 != 0x10:
            import pyarrow as pa

            block = pa.Codec("lz4_raw").decompress(block, length).to_pybytes()
        name = _text(block, 0)
        told: Any = json.loads(_text(block, 2 + len(name)))
        return [(int(one["version"]), str(one["checkpointUniqueId"])) for one in told]
    except (struct.error, ValueError, KeyError, TypeError, OSError):
        return None


def _text(block: bytes, at: int) -> str:
    """Return a text as Java's writeUTF wrote it."""
    (length,) = struct.unpack_from(">H", block, at)
    if at + 2 + length > len(block):
        raise ValueError("the text goes on in another block")
    return block[at + 2 : at + 2 + length].decode()


def _named_in(checkpoint: Storage, snapshot: str) -> set[str] | None:
    """Return the names of the files a RocksDB snapshot is made of besides itself; None if it cannot be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(checkpoint.read(snapshot))) as archive:
            text = archive.read("metadata").decode()
        value = json.loads(text[text.index("{") :])
        files = [*value.get("sstFiles", ()), *value.get("logFiles", ())]
        return {str(one.get("dfsSstFileName") or one.get("dfsLogFileName")) for one in files}
    except (zipfile.BadZipFile, KeyError, ValueError):
        return None
