"""How a run is written, whatever its length: what does not fit into a set amount of memory waits in unnamed files on a local disk.

A run is one record batch, so that a look-up searches one array; its columns are written one behind the other, each as it comes.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import column_of
from poundlock.state.runs.columns import Rows, concat, is_valid
from poundlock.state.runs.run import Removal, RunIndex, Section, SectionKey, metadata_of

HELD = 8 << 20  # bytes of rows that a writer holds in memory


@dataclass
class RunWriter:
    """Takes the rows of a run, section by section, and returns the content of its file.

    Raises:
        OSError: by `add` and `content`; the folder cannot be written.
    """

    # where files without a name may be made for what is too much to be held; None: the system's folder for them
    folder: str | None = None
    held: int = HELD  # how many bytes of rows are held in memory
    rows: int = field(default=0, init=False)
    _parts: list[Rows] = field(default_factory=list, init=False)
    _bytes: int = field(default=0, init=False)  # of the parts
    _spool: _Spool | None = field(default=None, init=False)
    _sections: list[Section] = field(default_factory=list, init=False)

    def add(self, key: SectionKey, rows: Rows) -> None:
        """Take the next rows of a section; the sections come in order, and the rows of each in theirs."""
        if not len(rows):
            return
        if self._sections and self._sections[-1].key == key:
            last = self._sections.pop()
            self._sections.append(Section(*key, last.row, last.rows + len(rows)))
        else:
            self._sections.append(Section(*key, self.rows, len(rows)))
        self.rows += len(rows)
        self._parts.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self.held:
            if self._spool is None:
                if self.folder is not None:
                    os.makedirs(self.folder, exist_ok=True)
                self._spool = _Spool(self.folder)
            for part in self._parts:
                self._spool.add(part)
            self._parts, self._bytes = [], 0

    def content(
        self, cuts: Sequence[Removal], *, max_parallelism: int, operators: Mapping[int, str]
    ) -> tuple[pa.Buffer, int]:
        """Return the bytes of the run's file, mapped where they are many, and how many rows it has."""
        index = RunIndex(max_parallelism=max_parallelism, operators=operators, sections=self._sections, cuts=cuts)
        if self._spool is None:
            sink = pa.BufferOutputStream()
            _write(sink, concat(self._parts), index)
            return sink.getvalue(), self.rows
        for part in self._parts:
            self._spool.add(part)
        self._parts = []
        with tempfile.TemporaryFile(dir=self.folder) as file:
            sink = pa.PythonFile(file, "w")
            _write(sink, self._spool.rows(), index)
            self._spool = None
            return _mapped(file), self.rows


def _write(sink: Any, rows: Rows, index: RunIndex) -> None:
    columns = {"hash": column_of(rows.hashes, pa.uint64()), "key": rows.keys}
    if rows.subkeys is not None:
        columns["subkey"] = rows.subkeys
    columns["value"] = rows.values
    if rows.times is not None:
        columns["time"] = column_of(rows.times, pa.int64())
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    with pa.ipc.new_file(sink, batch.schema.with_metadata(metadata_of(index))) as writer:
        writer.write_batch(batch)


@dataclass
class _Spool:
    """Rows in files, one file for each buffer of each column."""

    folder: str | None
    _files: dict[str, IO[bytes]] = field(default_factory=dict)
    _ends: dict[str, int] = field(default_factory=dict)
    _rows: int = 0
    _deleted: int = 0
    _has_subkeys: bool = False
    _has_times: bool = False

    def add(self, rows: Rows) -> None:
        """Write rows behind those that are there."""
        self._rows += len(rows)
        self._has_subkeys |= rows.subkeys is not None
        self._has_times |= rows.times is not None
        self._deleted += rows.values.null_count
        self._put("hash", rows.hashes)
        self._put("time", rows.times_or_none())
        self._put("valid", is_valid(rows.values))
        for name, column in (("key", rows.keys), ("subkey", rows.subkeys_or_none()), ("value", rows.values)):
            _, offsets, data = column.buffers()
            ends = np.frombuffer(offsets, np.int64)[column.offset :][: len(column) + 1]
            before = self._ends.get(name)
            if before is None:
                before = 0
                self._put(f"{name}.ends", np.zeros(1, np.int64))
            self._put(f"{name}.ends", ends[1:] + (before - ends[0]))
            self._put(name, memoryview(data or b"")[ends[0] : ends[-1]])
            self._ends[name] = before + int(ends[-1] - ends[0])

    def rows(self) -> Rows:
        """Return all rows, mapped."""
        valid = None
        if self._deleted:
            valid = pa.py_buffer(np.packbits(np.frombuffer(self._get("valid"), np.uint8), bitorder="little"))
        return Rows(
            np.frombuffer(self._get("hash"), np.uint64),
            self._text("key", None, 0),
            self._text("subkey", None, 0) if self._has_subkeys else None,
            self._text("value", valid, self._deleted),
            np.frombuffer(self._get("time"), np.int64) if self._has_times else None,
        )

    def _put(self, name: str, data: Any) -> None:
        if name not in self._files:
            self._files[name] = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115
        self._files[name].write(np.ascontiguousarray(data).data)

    def _get(self, name: str) -> pa.Buffer:
        with self._files.pop(name) as file:
            return _mapped(file)

    def _text(self, name: str, valid: pa.Buffer | None, nulls: int) -> pa.Array:
        buffers = [valid, self._get(f"{name}.ends"), self._get(name)]
        return pa.Array.from_buffers(pa.large_binary(), self._rows, buffers, nulls)


def _mapped(file: IO[bytes]) -> pa.Buffer:
    """Return the content of a file, which stays there as long as it is looked at."""
    file.flush()
    size = file.tell()
    return pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")
