"""A run: one immutable Arrow file with the rows of state that one task wrote at one checkpoint, and how it is read.

Rows lie by operator, table and namespace, and in each such section by hash (timers by time); the index of sections is in the
file's schema. A run is written once and never changes, so every process of a host maps the same pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from poundlock.errors import TerminalError
from poundlock.formats.arrays import numbers_in
from poundlock.state.hashing import first_hash, groups_of
from poundlock.state.manifest import RunFile
from poundlock.state.runs.columns import Hashes, Rows
from poundlock.state.runs.paging import leave_memory, read_as_asked

SectionKey = tuple[int, str, tuple[int, int] | None]  # operator, table, window as (start, end) in ms
FORMAT = 1
_INDEX = b"poundlock.state"
_MAGIC = b"ARROW1\0\0"
_COUNTED = 1 << 20  # timers whose groups are counted, and not guessed
# In bytes: a longer run is held against its digest when it is copied. Of each key group there are a few shorter ones at most, so a
# start reads little of a state, whatever its size.
VERIFIED_WHOLE = 4 << 20


class Section(msgspec.Struct, frozen=True):
    """Where the rows of one table are."""

    operator: int  # number of the operator in the manifest
    table: str
    # the window whose table it is, (start, end) in ms; None for a table of all windows
    namespace: tuple[int, int] | None
    row: int  # the first row
    rows: int

    @property
    def key(self) -> SectionKey:
        """What the section is looked up by."""
        return self.operator, self.table, self.namespace


class Removal(msgspec.Struct, frozen=True):
    """What older runs hold of a table is gone: a window that was dropped, timers that have fired."""

    # as of a section
    operator: int
    table: str
    namespace: tuple[int, int] | None
    first: int  # the first key group it is true of
    stop: int  # the one behind the last
    before: int | None = None  # of timers: up to which time in ms, that included. None: all of the table.

    @property
    def key(self) -> SectionKey:
        """The section it is about."""
        return self.operator, self.table, self.namespace


class RunIndex(msgspec.Struct, frozen=True, kw_only=True):
    """What a run says of itself; JSON in the file's schema, for people too."""

    format: int = FORMAT
    max_parallelism: int
    operators: Mapping[int, str]  # the operators' ids by number, as they were when it was written
    sections: Sequence[Section]  # in the order of their rows
    cuts: Sequence[Removal]


_encode_index = msgspec.json.Encoder().encode
_decode_index = msgspec.json.Decoder(RunIndex).decode


class RunningDigest(Protocol):
    """A digest that is being made."""

    def update(self, data: Any, /) -> None:
        """Take more bytes."""

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far, in hex."""


class DamagedRunError(TerminalError):
    """A state file is missing, cut short, or not what was written."""


def metadata_of(index: RunIndex) -> dict[bytes, bytes]:
    """Return what the schema of a run's file says of it."""
    return {_INDEX: _encode_index(index)}


def digest_of(data: Any) -> str:
    """Return the digest of a file's content."""
    digest = new_digest()
    digest.update(data)
    return digest.hexdigest()


def new_digest() -> RunningDigest:
    """Return what makes the digest of a run, piece by piece."""
    return hashlib.blake2b(digest_size=16)


def rank(hashes: Hashes, group: int, max_parallelism: int) -> int:
    """Return how many of some ascending hashes are of groups before one."""
    end = first_hash(group, max_parallelism)
    return len(hashes) if end >> 64 else int(np.searchsorted(hashes, np.uint64(end)))


class Run:
    """A run that is open, mapped into memory.

    Raises:
        DamagedRunError: it is missing, of another length, has another digest, or cannot be read.
    """

    def __init__(self, file: RunFile, path: str) -> None:
        self.file = file
        self.path = path
        try:
            mapped = pa.memory_map(path)
        except OSError as error:
            raise damaged(file, f"cannot be opened: {error}") from None
        content = mapped.read_buffer()
        mapped.close()  # what is mapped stays as long as it is looked at, and takes no file handle
        self._content = content
        digest = digest_of(content) if content.size <= VERIFIED_WHOLE else file.digest
        if how := difference(file, content.size, digest):
            raise damaged(file, how)
        try:
            # An Arrow file is a stream between its magic and its footer. Read as a file it goes through Arrow's pool of threads,
            # which costs more than all the rest on a machine that is busy.
            reader = pa.ipc.open_stream(content.slice(len(_MAGIC)))
            self.index = _decode_index(reader.schema.metadata[_INDEX])
            batch = reader.read_next_batch()
            self.rows = _rows(batch)
        except (pa.ArrowException, OSError, KeyError, TypeError, msgspec.MsgspecError) as error:
            raise damaged(file, f"cannot be read: {error}") from None
        if self.index.format > FORMAT:
            raise TerminalError(
                f"{file.name} has format {self.index.format}; this version reads up to {FORMAT}",
                next="run the version of poundlock that wrote it, or a newer one",
            )
        if content.size > VERIFIED_WHOLE:
            read_as_asked(content)
        self.sections = {section.key: section for section in self.index.sections}
        self._counted: dict[tuple[int, int, int], int] = {}
        self.cuts: dict[SectionKey, list[Removal]] = {}
        for cut in self.index.cuts:
            self.cuts.setdefault(cut.key, []).append(cut)

    def rows_between(self, section: Section, first: int, stop: int) -> int:
        """Return how many rows of a section are in some key groups; of many timers, which do not lie by group, about how many.

        What was counted once is known from then on.
        """
        if first <= self.file.first and self.file.stop <= stop:
            return section.rows
        place = section.row, first, stop
        known = self._counted.get(place)
        if known is None:
            hashes = self.rows.hashes[section.row : section.row + section.rows]
            if not section.table.startswith("timers:"):  # sorted by hash
                groups = self.index.max_parallelism
                return rank(hashes, stop, groups) - rank(hashes, first, groups)
            if len(hashes) > _COUNTED:  # so that a job of another parallelism begins without a look at them
                common = min(stop, self.file.stop) - max(first, self.file.first)
                return max(len(hashes) * common // (self.file.stop - self.file.first), 0)
            counted = groups_of(hashes, self.index.max_parallelism)
            known = int(np.count_nonzero((counted >= first) & (counted < stop)))
            self._counted[place] = known
        return known

    def leave_memory(self) -> None:
        """Have the pages that were looked at no longer count as this process's; what is looked at again is mapped again."""
        leave_memory(self._content)

    def section_rows(self, key: SectionKey) -> Rows | None:
        """Return the rows of a section, None if there is none."""
        section = self.sections.get(key)
        return None if section is None else self.rows.slice(section.row, section.row + section.rows)


def _rows(batch: pa.RecordBatch) -> Rows:
    names = batch.schema.names
    return Rows(
        numbers_in(batch.column("hash")),
        batch.column("key"),
        batch.column("subkey") if "subkey" in names else None,
        batch.column("value"),
        numbers_in(batch.column("time")) if "time" in names else None,
    )


def difference(file: RunFile, size: int, digest: str) -> str:
    """Return in words how what is there, of so many bytes, differs from what was written; "" if it does not."""
    if size != file.bytes:
        return f"has {size} bytes instead of {file.bytes}"
    return "is not what was written: its digest differs" if digest != file.digest else ""


def damaged(file: RunFile, how: str, operators: Sequence[str] = ()) -> DamagedRunError:
    """Return the error of a file that cannot be used; who knows more adds operators and the newest whole checkpoint."""
    whose = f" of {', '.join(operators)}" if operators else ""
    groups = "all key groups" if file.first < 0 else f"key groups {file.first} to {file.stop - 1}"
    return DamagedRunError(
        f"the state file {file.name}{whose}, written at checkpoint {file.checkpoint} for {groups}, {how}",
        next="restore the job from a savepoint, or from a checkpoint whose files are whole (poundlock fsck names them)",
    )


def from_whole(checkpoint: int, path: str, script: str = "JOB.PY", command: str = "run") -> str:
    """Return what to do about it where a copy of an older checkpoint is whole."""
    return (
        f"checkpoint {checkpoint} is whole; go on from it: poundlock {command} {script} -s {path} -D checkpoint_dir=NEW"
    )
