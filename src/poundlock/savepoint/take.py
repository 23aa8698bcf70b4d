"""Taking a savepoint: while no checkpoint runs, the newest decision, its keyed state and what sources and sinks carry are copied.

The caller has seen the newest decision carried out, and sees to it that no other begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from poundlock.checkpoint.decision import Decision
from poundlock.checkpoint.ledger.records import state_of
from poundlock.checkpoint.portable import Portable
from poundlock.errors import DefinitionError
from poundlock.savepoint.metadata import METADATA, Metadata, SavedFile, damaged, digest_of
from poundlock.state.decided_state import manifests_of
from poundlock.storage import Storage
from poundlock.storage.copying import copy, link, remove_root, remove_tree


class Cut:
    """A savepoint whose files are copied, most of them, and whose metadata is not written yet."""

    def __init__(self, savepoint: Storage, metadata: Metadata) -> None:
        self.savepoint, self.metadata = savepoint, metadata
        self.paths: list[str] = []
        self._later: list[tuple[Storage, str, str]] = []

    def add(self, source: Storage, path: str, new_path: str, *, linked: bool, stays: bool = False) -> None:
        """Copy a file into the savepoint.

        Args:
            linked: whether a second name of it will do.
            stays: whether it will be there for a while, so that its bytes need not be copied while the job waits.
        """
        if not (linked and link(source, path, self.savepoint, new_path)):
            if stays:
                self._later.append((source, path, new_path))
            else:
                copy(source, path, self.savepoint, new_path, settle=False)
        self.paths.append(new_path)

    def copy_rest(self) -> None:
        """Copy what could wait. Raises DefinitionError if it did not stay long enough."""
        for source, path, new_path in self._later:
            try:
                copy(source, path, self.savepoint, new_path, settle=False)
            except FileNotFoundError:
                raise DefinitionError(
                    f"{source.root}/{path} was deleted while it was copied",
                    next="take the savepoint again; if it happens twice, look who else deletes files of the checkpoint",
                ) from None

    def discard(self) -> None:
        """Remove what there is of it: half of a savepoint is of use to nobody, and may be what fills the disk."""
        with suppress(OSError):
            remove_tree(self.savepoint, "", first=[METADATA])  # so that half of it is never taken for one
            remove_root(self.savepoint)

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
    linked: bool = False,
    noting: bool = True,
) -> Cut:
    """Copy what a savepoint is made of; `finish` makes it one. Quick where hard links can be made.

    Args:
        linked: whether it stays with the checkpoint: all that can be linked is. Else small files are copied, for a
            savepoint's user may open them in an editor.
        noting: whether the sinks are asked for what they want noted; where the cut was long ago it is too late for that.

    Raises:
        DefinitionError: the folder is not empty.
    """
    if next(iter(savepoint.list()), None) is not None:
        raise DefinitionError(f"{savepoint.root} is not empty", next="give another folder")
    portable = {name: sink for name, sink in sinks.items() if isinstance(sink, Portable)}
    noted = {name: note for name, sink in portable.items() if noting and (note := sink.note())}
    cut = Cut(savepoint, replace(metadata, noted=noted))
    try:
        _fill(cut, checkpoint, portable, linked=linked)
    except BaseException:
        cut.discard()
        raise
    return cut


def _fill(cut: Cut, checkpoint: Storage, portable: Mapping[str, Portable], *, linked: bool) -> None:
    metadata = cut.metadata
    for path in state_files(metadata.decision):
        cut.add(checkpoint, path, path, linked=True, stays=True)
    for entry in checkpoint.list("sources"):
        if not is_temporary(entry.path):
            cut.add(checkpoint, entry.path, entry.path, linked=linked)
    for name, sink in portable.items():
        carried = state_of(metadata.decision, name)
        if carried:
            # Prepared data is deleted by name only, and what grows to a file is copied before that where it has other names.
            sink.save(carried, cut.savepoint, f"sinks/{name}", partial(cut.add, linked=True))


def finish(
    cut: Cut,
    *,
    known: Callable[[str], SavedFile | None] = lambda path: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Metadata:
    """Make the files of a cut durable, digest those whose digest is not known, and write the metadata, which makes it a savepoint. Needs no lock.

    Args:
        known: tells what a file is, by its path, where that is known and need not be read again.
        progress: takes how many files of how many are digested, often.
    """
    files: dict[str, SavedFile] = {}
    settled: set[str] = set()
    cut.copy_rest()
    for number, path in enumerate(cut.paths):
        progress(number, len(cut.paths))
        before, folder = known(path), path.rpartition("/")[0]
        if before is None or folder not in settled:
            cut.savepoint.settle(path)
            settled.add(folder)
        status = cut.savepoint.stat(path)
        assert status is not None
        run = cut.metadata.runs.get(path)
        if run is not None and status.bytes != run.bytes:
            raise damaged(cut.savepoint, path, f"has {status.bytes} bytes instead of {run.bytes}")
        files[path] = before or SavedFile(status.bytes, None if run is not None else digest_of(cut.savepoint, path))
    whole = replace(cut.metadata, files=files)
    text = json.dumps(whole.to_json(), indent=1)
    if not cut.savepoint.create_exclusive(METADATA, text.encode() + b"\n"):
        raise DefinitionError(f"{cut.savepoint.root} is a savepoint already", next="give another folder")
    return whole


def is_temporary(path: str) -> bool:
    """Return whether a file of a checkpoint folder is half of one or Hadoop's checksum of one, which no copy takes along."""
    name = path.rpartition("/")[2]
    return name.startswith(".") or name.endswith((".tmp", ".crc"))


def state_files(decision: Decision) -> list[str]:
    """Return the files of the keyed state that a decision names whole: paths below the checkpoint folder."""
    manifests = manifests_of(decision.state).values()
    return list(dict.fromkeys(file.name for manifest in manifests for file in manifest.files))
