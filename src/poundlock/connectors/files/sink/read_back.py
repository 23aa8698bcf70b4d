"""Reads a finished file back and compares it with the decision that named it, segment by segment.

The segments of a file are its bytes in order, so a checksum that differs says which checkpoint's rows are not what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from poundlock.audit.read_back import AuditScope, Decided, Disagreement, ReadBack
from poundlock.connectors.files.checksums import read_crc32
from poundlock.connectors.files.file_values import FileCommittable, FileSegment
from poundlock.formats.encode_bulk import count_rows
from poundlock.storage.base import Storage


class FileReading:
    """The audit of one file sink: each file is compared as soon as it is named.

    Args:
        scope: of the audit.
        open_root: opens the folder that a committable names.
    """

    whole = False

    def __init__(self, scope: AuditScope, open_root: Callable[[str], Storage]) -> None:
        self._scope, self._open = scope, open_root
        self._compared = 0
        self._wrong: list[Disagreement] = []

    def take(self, decided: Decided) -> None:
        """Compare a file."""
        if decided.compared:
            self._compared += 1
            committable = FileCommittable.of(decided.committable)
            self._wrong += audit(self._open(committable.root), committable)
            self._scope.progress(f"{self._compared:,} files read")

    def read(self) -> None:
        """Do nothing: all is read."""

    def result(self) -> ReadBack:
        """Return what was found."""
        return ReadBack(compared=self._compared, disagreements=self._wrong)


def audit(storage: Storage, committable: FileCommittable) -> Sequence[Disagreement]:
    """Compare a finished file with its committable.

    Args:
        storage: the folder it was staged in.
        committable: as `staging.stage` made it.
    """
    final, segments = committable.final, committable.segments
    path = f"{storage.root}/{final}"
    checkpoint = segments[-1].checkpoint
    status = storage.stat(final)
    if status is None:
        return [Disagreement(checkpoint, path, f"the file is gone, with {committable.rows} rows")]
    if committable.merged_by_record:
        with storage.open(final) as handle:
            rows = count_rows(committable.kind, handle)
        return [] if rows == committable.rows else [_rows(checkpoint, path, rows, committable.rows)]
    with storage.open(final) as handle:
        wrong = [_segment(path, segment, handle) for segment in segments]
        more = len(handle.read(1))
    differ = [each for each in wrong if each is not None]
    if more:
        differ.append(Disagreement(checkpoint, path, f"the file has more than the {committable.bytes} bytes decided"))
    return differ


def _segment(path: str, segment: FileSegment, handle: BinaryIO) -> Disagreement | None:
    size, crc = read_crc32(handle, segment.bytes)
    left, checkpoint = segment.bytes - size, segment.checkpoint
    if left:
        return Disagreement(checkpoint, path, f"the file ends {left} bytes too early")
    if segment.crc32 not in (None, crc):
        return Disagreement(
            checkpoint, path, f"{segment.rows} rows are not the ones that were written: checksum {crc:08x}"
        )
    return None


def _rows(checkpoint: int | None, path: str, rows: int, expected: int) -> Disagreement:
    return Disagreement(checkpoint, path, f"the file has {rows} rows instead of {expected}")
