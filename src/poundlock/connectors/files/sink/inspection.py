"""How what a file sink made compares with what was decided, without its job's code.

Nothing is changed here; a file that a driver makes visible at this very moment is never called missing. The segments of a file are
its bytes in order, so a checksum that differs says which checkpoint's rows are not what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from poundlock.audit.read_back import AuditScope, Decided, Disagreement, ReadBack
from poundlock.checkpoint.participant import Finding
from poundlock.connectors.files.checksums import read_crc32
from poundlock.connectors.files.file_values import FileCommittable, FileSegment
from poundlock.connectors.files.partitions.manifests import sealed_by
from poundlock.connectors.files.sink.committer import grows, holds
from poundlock.connectors.files.sink.multipart import inspect_upload
from poundlock.connectors.files.sink.names import join
from poundlock.storage import Storage

if TYPE_CHECKING:
    from poundlock.formats.encode_bulk import BulkMerger

_LOOKS = 2
"""So often something may change while a file is looked at: it gets its name, and its segments go."""


def inspect(storage: Storage, committable: FileCommittable, merger: BulkMerger) -> Sequence[Finding]:
    """Compare one decided file with what is there, in the folder it was staged in."""
    if committable.mark is not None:
        paths = [join(committable.bucket, name) for name in committable.mark.files]
        missing = [path for path in paths if storage.stat(path) is None]
        seal = committable.mark.seal
        if seal is not None and sealed_by(storage, committable.bucket, committable.tag, seal) is None:
            missing.insert(0, join(committable.bucket, seal.manifest))
        return [Finding("pending", f"{storage.root}/{path}", 0) for path in missing]
    if not committable.segments:
        return []
    if committable.upload is not None:
        return inspect_upload(storage, committable)
    for _ in range(_LOOKS):
        with suppress(FileNotFoundError):  # a segment went while it was read: the file is there
            findings = _inspect(storage, committable, merger)
            if all(finding.problem == "pending" for finding in findings):
                return findings
    return _inspect(storage, committable, merger)


def _inspect(storage: Storage, committable: FileCommittable, merger: BulkMerger) -> list[Finding]:
    final, segments = committable.final, committable.segments
    path = f"{storage.root}/{final}"
    expected = None if committable.merged_by_record else committable.bytes
    status = storage.stat(final)
    left = [segment for segment in segments if storage.stat(segment.path) is not None]
    if status is None and len(left) == len(segments):
        return _inspect_pieces(storage, committable) or [Finding("pending", path, expected)]
    if status is None:
        return [Finding("missing", path, expected)]
    if not holds(storage, committable, merger):
        problem = expected is not None and status.bytes != expected
        return [Finding("size" if problem else "foreign", path, expected, status.bytes)]
    return [Finding("pending", path, expected, status.bytes)] if left else []


def _inspect_pieces(storage: Storage, committable: FileCommittable) -> list[Finding]:
    """Compare the segments of a file that has no name yet; a driver that died may have begun to put the others behind the first."""
    first, *others = committable.segments
    more = committable.bytes - first.bytes if grows(storage, committable) else 0
    return inspect_segments(storage, [first], more) + inspect_segments(storage, others)


def inspect_segments(storage: Storage, segments: Sequence[FileSegment], more: int = 0) -> list[Finding]:
    """Compare segments that wait with what is there; each may have so many bytes more."""
    findings = []
    for segment in segments:
        path, expected = f"{storage.root}/{segment.path}", segment.bytes
        status = storage.stat(segment.path)
        if status is None:
            findings.append(Finding("missing", path, expected))
        elif not expected <= status.bytes <= expected + more:
            findings.append(Finding("size", path, expected, status.bytes))
    return findings


class FileReading:
    """The audit of one file sink: each file is compared as soon as it is named."""

    whole = False

    def __init__(self, scope: AuditScope, open_root: Callable[[str], Storage]) -> None:
        self._scope, self._open = scope, open_root
        self._compared, self._wrong = 0, list[Disagreement]()

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
        """Return the result."""
        return ReadBack(compared=self._compared, disagreements=self._wrong)


def _waits(storage: Storage, committable: FileCommittable) -> bool:
    """Return whether all is there that a file is made of, which has no name yet."""
    if committable.upload is not None:
        return any(finding.problem == "pending" for finding in inspect_upload(storage, committable))
    return all(storage.stat(segment.path) is not None for segment in committable.segments)


def audit(storage: Storage, committable: FileCommittable) -> Sequence[Disagreement]:
    """Compare a finished file with its committable, in the folder it was staged in."""
    final, segments = committable.final, committable.segments
    if not segments:
        return []
    path = f"{storage.root}/{final}"
    checkpoint = segments[-1].checkpoint
    if storage.stat(final) is None:
        if _waits(storage, committable):
            what = "it is decided and not visible yet: a job that runs makes it so, or poundlock fsck --fix"
            return [Disagreement(checkpoint, path, what)]
        if storage.stat(final) is None:  # its segments may have become the file since the first look
            return [Disagreement(checkpoint, path, f"the file is gone, with {committable.rows} rows")]
    if committable.merged_by_record:
        from poundlock.formats.encode_bulk import count_rows

        with storage.open(final) as handle:
            rows, expected = count_rows(committable.kind, handle), committable.rows
        wrong_count = Disagreement(checkpoint, path, f"the file has {rows} rows instead of {expected}")
        return [] if rows == expected else [wrong_count]
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
