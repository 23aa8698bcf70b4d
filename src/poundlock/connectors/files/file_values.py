"""What a file sink prepares, carries from checkpoint to checkpoint and commits, as frozen values of its own with a version.

They cross the seam to the coordinator as JSON and are made of it where they come in; see `checkpoint.sink_values`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import msgspec

from poundlock.checkpoint.participant import JSON
from poundlock.checkpoint.sink_values import SinkValue

DIRECTIVE_BYTES = 32_000


class SentParts(msgspec.Struct, frozen=True):
    """What it takes to complete an upload, or to find that it is.

    Args:
        id: of the upload, as the store gave it.
        mark: that the object carries.
        tags: of its parts, in order.
    """

    id: str
    mark: str
    tags: Sequence[str]


class FileSegment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a segment: what it takes to join and delete it, and for the audit to tell whose rows it has.

    Args:
        path: below the sink's folder: of a hidden file, or the finished name that an upload will have.
        bytes, rows: how much it holds.
        crc32: of its bytes.
        checkpoint: whose rows it has; None where an older version wrote it.
        upload: None = a hidden file.
    """

    path: str
    bytes: int
    rows: int
    crc32: int | None = None
    checkpoint: int | None = None
    upload: SentParts | None = None

    @property
    def known_as(self) -> str:
        """What stands for it in the state: the path of a hidden file, the id of an upload."""
        return self.path if self.upload is None else f"upload {self.upload.id}"


class _FileValue(SinkValue, frozen=True, kw_only=True, omit_defaults=True):
    def to_json(self) -> JSON:
        """Return it as a JSON object; a name of a bucket need not be UTF-8."""
        made: JSON = msgspec.to_builtins(self)
        return made


class PreparedFile(_FileValue, frozen=True, kw_only=True, omit_defaults=True):
    """A segment that a task prepared.

    Args:
        tag: stands for job and sink in hidden names.
        at_ms: when its checkpoint began, by the driver's clock.
        floor: the least counter that the subtask may give.
        path, bytes, rows, crc32, checkpoint, upload: see `FileSegment`.
        bucket: it is of; "" = the sink's folder.
        k: its number within the attempt.
        kind: files of unlike kinds never become one.
        new_part: whether a part begins with it.
        min_ms, max_ms: bounds of its event times, ms since the epoch; None where there are none.
        counter: of the name that an upload has.
        digest: 16 hex digits, the same for the same rows; None where the format does not allow one.
    """

    tag: str
    at_ms: int
    floor: int = 0
    path: str
    bucket: str
    k: int
    kind: str
    new_part: bool
    rows: int
    bytes: int
    crc32: int | None = None
    min_ms: int | None
    max_ms: int | None
    checkpoint: int | None = None
    upload: SentParts | None = None
    counter: int | None = None
    digest: str | None = None

    @property
    def segment(self) -> FileSegment:
        """What is kept of it."""
        return FileSegment(
            path=self.path, bytes=self.bytes, rows=self.rows, crc32=self.crc32, checkpoint=self.checkpoint,
            upload=self.upload,
        )  # fmt: skip


class OpenPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part that is not finished.

    Args:
        bucket, subtask: whose it is.
        name: that it will have.
        created_ms, last_write_ms: ms since the epoch, by the driver's clock.
        bytes, rows, min_ms, max_ms: of all its segments.
        kind: of its segments.
        segments: in order.
        closed: whether the next decision finishes it whatever the policy says.
    """

    bucket: str
    subtask: int
    name: str
    created_ms: int
    last_write_ms: int
    bytes: int
    rows: int
    min_ms: int | None
    max_ms: int | None
    kind: str
    segments: Sequence[FileSegment]
    closed: bool = False

    def grown(self, piece: PreparedFile) -> OpenPart:
        """Return the part with one more segment."""
        sums = totals([self, piece])
        return msgspec.structs.replace(
            self, last_write_ms=max(self.last_write_ms, piece.at_ms), segments=[*self.segments, piece.segment], **sums
        )


def totals(pieces: Iterable[OpenPart | PreparedFile]) -> dict[str, Any]:
    """Return `bytes`, `rows`, `min_ms` and `max_ms` of all of them together."""
    bytes = rows = 0
    low: list[int] = []
    high: list[int] = []
    for piece in pieces:
        bytes, rows = bytes + piece.bytes, rows + piece.rows
        low += [] if piece.min_ms is None else [piece.min_ms]
        high += [] if piece.max_ms is None else [piece.max_ms]
    return {"bytes": bytes, "rows": rows, "min_ms": min(low, default=None), "max_ms": max(high, default=None)}


class WaitingFile(OpenPart, frozen=True, kw_only=True, omit_defaults=True):
    """A finished part that waits to be merged with others.

    Args:
        file: where it is; hidden where its name starts with ".".
        queued_ms: since when, ms since the epoch.
    """

    file: str
    queued_ms: int = 0


class Waiting(msgspec.Struct, frozen=True):
    """One file of a bucket that waits."""

    bucket: str
    file: WaitingFile


class CompactionState(msgspec.Struct, frozen=True):
    """What waits to be merged, and how many checkpoints were counted."""

    checkpoints: int = 0
    waiting: Sequence[Waiting] = ()


class FinishedFile(msgspec.Struct, frozen=True):
    """The newest file that a subtask has finished.

    Args:
        path: below the sink's folder.
        bytes, crc32: None where it was joined record by record.
        finished_ms: when it was decided, ms since the epoch.
    """

    path: str
    bytes: int | None
    crc32: int | None
    finished_ms: int


class FileSinkState(_FileValue, frozen=True, kw_only=True, omit_defaults=True):
    """What a file sink carries from decision to decision.

    Args:
        tag: stands for job and sink in hidden names; "" before anything was prepared.
        root: the sink's folder; "" before the first decision.
        counters: per subtask, the counter of its next name.
        parts: that are not finished.
        closing: of the newest decision's files, what their segments are known as: a sweep before the commits spares them.
        newest: per subtask, the finished file of the highest counter.
        compaction: what waits to be merged; None where nothing is.
        joined: the files that the newest decision makes of several hidden ones, where an upload joins them.
        pending: how many segments are still to become visible.
    """

    tag: str
    root: str
    counters: Mapping[str, int]
    parts: Sequence[OpenPart]
    closing: Sequence[str]
    newest: Mapping[str, FinishedFile]
    compaction: CompactionState | None = None
    joined: Sequence[str] | None = None
    pending: int

    @classmethod
    def of(cls, value: JSON) -> Self:
        """Return the state of a JSON object, which is empty before the first decision. Raises TerminalError."""
        empty = {"v": 1, "tag": "", "root": "", "counters": {}, "parts": [], "closing": [], "newest": {}, "pending": 0}
        return super().of({**empty, **value})

    @property
    def files(self) -> list[OpenPart]:
        """The parts that are not visible: open ones, and those that wait to be merged."""
        return [*self.parts, *(each.file for each in (self.compaction.waiting if self.compaction else ()))]

    @property
    def segments(self) -> list[FileSegment]:
        """The segments that are to become visible with a later decision."""
        return [segment for part in self.files for segment in part.segments]

    @property
    def known(self) -> set[str]:
        """Every hidden file, by its path, and every upload, by its id, that the state names."""
        return {segment.known_as for segment in self.segments} | set(self.closing)


class FileCommittable(_FileValue, frozen=True, kw_only=True, omit_defaults=True):
    """A file that a decision makes visible.

    Args:
        tag: stands for job and sink in hidden names.
        root: the folder it was staged in.
        bucket: it is in.
        final: its path below the folder.
        kind: of its segments.
        bytes, rows, min_ms, max_ms: of all its segments.
        segments: in order.
    """

    tag: str
    root: str
    bucket: str
    final: str
    kind: str
    bytes: int
    rows: int
    min_ms: int | None
    max_ms: int | None
    segments: Sequence[FileSegment]

    @property
    def upload(self) -> FileSegment | None:
        """The upload that becomes the file; None where it is made of hidden ones."""
        return self.segments[0] if self.segments[0].upload is not None else None

    @property
    def merged_by_record(self) -> bool:
        """Whether the file is made by reading and writing records, so that its size is not the sum of its parts'."""
        return len(self.segments) > 1 and self.kind.partition(":")[0] in ("parquet", "avro")


class FileDirective(SinkValue, frozen=True):
    """What the tasks of a checkpoint have to know of a sink's state, kept small.

    Args:
        known: the subtasks that have given names before.
        following: the counter of the next name of each of them; empty where writers look for it themselves.
        pending: the bytes that wait, by bucket and subtask, largest first.
    """

    known: tuple[int, ...] = ()
    following: tuple[int, ...] = ()
    pending: tuple[tuple[str, int, int], ...] = ()

    @classmethod
    def from_state(cls, state: FileSinkState, *, named: bool = False) -> FileDirective:
        """Return what a state says, of which both lists may be cut to keep the whole below 32 KB.

        A part that is left out is finished at the next checkpoint; a subtask that is left out looks once more at the names in the
        folder. Where writers may give names themselves (`named`, or they did before), the counter of each subtask's next name comes along.
        """
        counters = state.counters
        known = sorted(map(int, counters))[:1500]
        following = [counters[str(subtask)] for subtask in known] if named or state.joined is not None else []
        budget = DIRECTIVE_BYTES - 200 - sum(len(str(k)) + 2 for k in (*known, *following))
        pending: list[tuple[str, int, int]] = []
        for part in sorted(state.parts, key=lambda part: -part.bytes):
            entry = part.bucket, part.subtask, part.bytes
            budget -= len(json.dumps(entry)) + 2
            if budget < 0:
                break
            pending.append(entry)
        return cls(v=cls.FORMAT, known=tuple(known), following=tuple(following), pending=tuple(pending))
