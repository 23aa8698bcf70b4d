"""The files of what was received: each is written once, whole, and read by the tasks of one checkpoint.

A position of such a source has the number of the next file under "file". A decided file stays until the checkpoint behind it is decided, too,
so that a checkpoint can be delivered once more after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from poundlock.checkpoint.participant import JSON
from poundlock.connectors.base import Split
from poundlock.errors import SourceGoneError, TransientError
from poundlock.storage import Storage

ID = "_id"
"""The column of a file that has the id of a message, of a source whose messages have one."""
_STATE = b"poundlock.state"
_FOLDER, _END = "received", ".arrow"


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """What is known of a file: how many rows and bytes it has, and what its writer gave as the state behind it."""

    rows: int
    bytes: int
    state: JSON


class Inbox:
    """Files of Arrow in a source's workspace, numbered without a gap. Used by one driver at a time; `begin` comes first.

    Args:
        workspace: the folder that `SplitSource.enumerator` is given.
    """

    def __init__(self, workspace: Storage) -> None:
        self._storage = workspace
        self._files: dict[int, ReceivedFile] = {}
        self._next = 0
        self._kept: int | None = None

    @property
    def next(self) -> int:
        """The number of the file that is written next."""
        return self._next

    def begin(self, start: int, *, keep: bool) -> None:
        """Look what an earlier life left.

        Args:
            start: "file" of the newest decided position.
            keep: whether files that no decision has stay, and are read; False removes them, for a source that is given their rows again.
        """
        numbers = sorted(int(name[: -len(_END)]) for name in self._storage.names(_FOLDER) if name.endswith(_END))
        # The last first: a crash leaves no gap.
        for number in [] if keep else reversed([each for each in numbers if each >= start]):
            self._storage.delete(_name(number))
        for number in numbers:
            if (keep or number < start) and number not in self._files:
                table = self.read(number)
                self._files[number] = ReceivedFile(table.num_rows, table.nbytes, _state_of(table.schema))
        if not keep:
            self._files = {number: file for number, file in self._files.items() if number < start}
        self._next = max([start, *(number + 1 for number in self._files)])

    def put(self, rows: pa.Table, state: Mapping[str, Any] | None = None) -> None:
        """Make rows durable as the next file.

        Args:
            rows: what one task is to read; cut what is more into several files.
            state: what the source must know to go on behind these rows; JSON.

        Raises:
            TransientError: another driver has written that file; start again from what is there.
        """
        schema = rows.schema.with_metadata({**(rows.schema.metadata or {}), _STATE: json.dumps(state or {}).encode()})
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, schema) as writer:
            writer.write_table(rows.replace_schema_metadata(schema.metadata))
        data = out.getvalue()
        if not self._storage.create_exclusive(_name(self._next), data.to_pybytes()):
            raise TransientError(
                f"{self._storage.root}/{_name(self._next)} is there already: another driver receives for this job",
                next="the job starts again from what is there; end the other driver if there is one",
            )
        self._files[self._next] = ReceivedFile(rows.num_rows, data.size, dict(state or {}))
        self._next += 1

    def end(self, start: int, most_rows: int) -> int:
        """Return up to which file a checkpoint may read: at least one if there is one, then as many as have up to so many rows."""
        number, rows = start, 0
        while number in self._files and (number == start or rows + self._files[number].rows <= most_rows):
            rows += self._files[number].rows
            number += 1
        return number

    def state(self, number: int) -> JSON | None:
        """Return what was given as the state behind the file before a number; None where that file is no longer there."""
        file = self._files.get(number - 1)
        return None if file is None else file.state

    def splits(self, start: int, end: int) -> list[Split]:
        """Return a split for each file of a range. A file that is gone is named by its reader."""
        splits = []
        for number in range(start, end):
            entry = self._storage.stat(_name(number))
            size = 0 if entry is None else entry.bytes
            splits.append(Split(f"{number:020d}", {"root": self._storage.root, "file": _name(number)}, size, size))
        return splits

    def numbers(self) -> Sequence[int]:
        """Return the numbers of the files that are there, in order."""
        return sorted(self._files)

    def read(self, number: int) -> pa.Table:
        """Return the rows of a file."""
        return read_file(self._storage, _name(number))

    def committed(self, number: int) -> list[int]:
        """Take note that all before a number is decided; return the numbers of files that nobody needs any more, for `delete`."""
        if number == self._kept:
            return []
        before, self._kept = self._kept, number
        return [] if before is None else [each for each in self.numbers() if each < before]

    def delete(self, numbers: Sequence[int]) -> None:
        """Remove files."""
        for number in numbers:
            self._storage.delete(_name(number))
            self._files.pop(number, None)


def read_file(storage: Storage, name: str) -> pa.Table:
    """Return the rows of a file. Raises SourceGoneError where it is no longer there, or not what was written."""
    try:
        return pa.ipc.open_stream(pa.py_buffer(storage.read(name))).read_all()
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise SourceGoneError(
            f"{storage.root}/{name} has messages that were received and is gone or damaged: {error}",
            next="restore the checkpoint folder from one moment; nobody else may change it",
        ) from None


def _name(number: int) -> str:
    return f"{_FOLDER}/{number:020d}{_END}"


def _state_of(schema: pa.Schema) -> JSON:
    state: JSON = json.loads((schema.metadata or {}).get(_STATE, b"{}"))
    return state
