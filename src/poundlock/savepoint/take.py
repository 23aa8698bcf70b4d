"""Taking a savepoint: while no checkpoint runs, the newest decision, Spark's checkpoint and what sinks carry are copied.

The caller holds the coordinator's lock, has seen the newest decision carried out, and Spark's log of it written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.participant import JSON
from poundlock.checkpoint.portable import Portable
from poundlock.errors import DefinitionError
from poundlock.failpoints import SavepointFailpoint, hit
from poundlock.savepoint.metadata import METADATA, Metadata, SavedFile, digest_of
from poundlock.storage import Storage
from poundlock.storage.copying import copy

__all__ = ["Cut", "finish", "take"]

LOGS = ("offsets", "commits")


class Cut:
    """A savepoint whose files are copied and whose metadata is not written yet."""

    def __init__(self, savepoint: Storage, metadata: Metadata) -> None:
        self.savepoint, self.metadata = savepoint, metadata
        self.paths: list[str] = []

    def add(self, source: Storage, path: str, new_path: str, *, link: bool) -> None:
        """Copy a file into the savepoint."""
        copy(source, path, self.savepoint, new_path, link=link)
        self.paths.append(new_path)

    def put(self, path: str, data: bytes) -> None:
        """Write a file of the savepoint."""
        with self.savepoint.write(path) as made:
            made.write(data)
            self.savepoint.sync(made)
        self.paths.append(path)


def take(
    checkpoint: Storage,
    savepoint: Storage,
    *,
    metadata: Metadata,
    sinks: Mapping[str, Any],
) -> Cut:
    """Copy what a savepoint is made of; `finish` makes it one. Quick where hard links can be made.

    Args:
        checkpoint: the job's checkpoint folder.
        savepoint: a new, empty folder.
        metadata: all but the files.
        sinks: participants by name.

    Raises:
        DefinitionError: the folder is not empty.
    """
    if next(iter(savepoint.list()), None) is not None:
        raise DefinitionError(f"{savepoint.root} is not empty", next="give another folder")
    cut = Cut(savepoint, metadata)
    newest = metadata.decision.checkpoint
    for entry in checkpoint.list("spark"):
        log, _, number = entry.path.removeprefix("spark/").partition("/")
        if _is_temporary(entry.path) or (log in LOGS and not (number.isdigit() and int(number) <= newest)):
            continue
        try:
            cut.add(checkpoint, entry.path, entry.path, link=log == "state")
        except FileNotFoundError:
            if log in LOGS:
                raise
            continue  # an old version of state that Spark has just cleaned away
    for entry in checkpoint.list("sources"):
        if not _is_temporary(entry.path):
            cut.add(checkpoint, entry.path, entry.path, link=False)
    for name, sink in sinks.items():
        state = dict(metadata.decision.sinks[name].state) if name in metadata.decision.sinks else {}
        if isinstance(sink, Portable) and state:
            sink.save(state, savepoint, f"sinks/{name}", _adder(cut))
    return cut


def _adder(cut: Cut) -> Callable[[Storage, str, str], None]:
    # Prepared data is never written to again, and is deleted by name only.
    return lambda source, path, new_path: cut.add(source, path, new_path, link=True)


def finish(cut: Cut) -> Metadata:
    """Digest the files of a cut and write the metadata, which makes it a savepoint. Needs no lock."""
    hit(SavepointFailpoint.CUT)
    files = {}
    for path in cut.paths:
        found = cut.savepoint.stat(path)
        assert found is not None
        files[path] = SavedFile(found.bytes, digest_of(cut.savepoint, path))
    whole = replace(cut.metadata, files=files)
    text = json.dumps(whole.to_json(), indent=1)
    if not cut.savepoint.create_exclusive(METADATA, text.encode() + b"\n"):
        raise DefinitionError(f"{cut.savepoint.root} is a savepoint already", next="give another folder")
    hit(SavepointFailpoint.FINISHED)
    return whole


def _is_temporary(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith(".") or name.endswith((".tmp", ".crc"))


def saved_state(decision: Decision, sink: str) -> JSON:
    """Return what a decision says a sink carries on, {} if it does not know it."""
    found = decision.sinks.get(sink)
    return dict(found.state) if found else {}
