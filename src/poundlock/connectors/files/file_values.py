"""What a file sink prepares, carries from checkpoint to checkpoint and commits, as frozen values of its own with a version.

They cross the seam to the coordinator as JSON and are made of it where they come in; see `checkpoint.sink_values`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec

from poundlock.checkpoint.participant import JSON
from poundlock.checkpoint.sink_values import SinkValue
from poundlock.connectors.files.partitions.pending import PendingPartitions
from poundlock.connectors.files.partitions.policies import PartitionMark

DIRECTIVE_BYTES = 32_000


class SentParts(msgspec.Struct, frozen=True):
    """What it takes to complete an upload, or to find that it is."""

    id: str  # of the upload, as the store gave it
    mark: str  # that the object carries
    tags: Sequence[str]  # of its parts, in order


class FileSegment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a segment: what it takes to join and delete it, and for the audit to tell whose rows it has."""

    path: str  # below the sink's folder: of a hidden file, or the finished name that an upload will have
    # bytes, rows: how much it holds
    bytes: int
    rows: int
    crc32: int | None = None  # of its bytes
    checkpoint: int | None = None  # whose rows it has; None where an older version wrote it
    upload: SentParts | None = None  # None = a hidden file

    @property
    def known_as(self) -> str:
        """What stands for it in the state: the path of a hidden file, the id of an upload."""
        return self.path if self.upload is None else f"upload {self.upload.id}"


class _FileValue(SinkValue, frozen=True, kw_only=True, omit_defaults=True):
    def to_json(self) -> JSON:
        """Return it as a JSON object; a name of a bucket need not be UTF-8."""
        return dict(msgspec.to_builtins(self))


class PreparedFile(_FileValue, frozen=True, kw_only=True, omit_defaults=True):
    """A segment that a task prepared."""

    tag: str  # stands for job and sink in hidden names
    at_ms: int  # when its checkpoint began, by the driver's clock
    floor: int = 0  # the least counter that the subtask may give
    # path, bytes, rows, crc32, checkpoint, upload: see `FileSegment`
    path: str
    bucket: str  # it is of; "" = the sink's folder
    k: int  # its number within the attempt
    kind: str  # files of unlike kinds never become one
    new_part: bool  # whether a part begins with it
    rows: int
    bytes: int
    crc32: int | None = None
    # min_ms, max_ms: bounds of its event times, ms since the epoch; None where there are none
    min_ms: int | None
    max_ms: int | None
    checkpoint: int | None = None
    upload: SentParts | None = None
    counter: int | None = None  # of the name that an upload has
    digest: str | None = None  # 16 hex digits, the same for the same rows; None where the format does not allow one

    @property
    def segment(self) -> FileSegment:
        """What is kept of it."""
        return FileSegment(
            path=self.path,
            bytes=self.bytes,
            rows=self.rows,
            crc32=self.crc32,
            checkpoint=self.checkpoint,
            upload=self.upload,
        )


class OpenPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part that is not finished."""

    # bucket, subtask: whose it is
    bucket: str
    subtask: int
    name: str  # that it will have
    # created_ms, last_write_ms: ms since the epoch, by the driver's clock
    created_ms: int
    last_write_ms: int
    # bytes, rows, min_ms, max_ms: of all its segments
    bytes: int
    rows: int
    min_ms: int | None
    max_ms: int | None
    kind: str  # of its segments
    segments: Sequence[FileSegment]  # in order
    closed: bool = False  # whether the next decision finishes it whatever the policy says

    def grown(self, piece: PreparedFile) -> OpenPart:
        """Return the part with one more segment."""
        sums = totals([self, piece])
        return msgspec.structs.replace(
            self, last_write_ms=max(self.last_write_ms, piece.at_ms), segments=[*self.segments, piece.segment], **sums
        )


def totals(pieces: Sequence[OpenPart | PreparedFile]) -> dict[str, Any]:
    """Return `bytes`, `rows`, `min_ms` and `max_ms` of all of them together."""
    low = [piece.min_ms for piece in pieces if piece.min_ms is not None]
    high = [piece.max_ms for piece in pieces if piece.max_ms is not None]
    bytes, rows = sum(piece.bytes for piece in pieces), sum(piece.rows for piece in pieces)
    return {"bytes": bytes, "rows": rows, "min_ms": min(low, default=None), "max_ms": max(high, default=None)}


class WaitingFile(OpenPart, frozen=True, kw_only=True, omit_defaults=True):
    """A finished part that waits to be merged with others."""

    file: str  # where it is; hidden where its name starts with "."
    queued_ms: int = 0  # since when, ms since the epoch


class Waiting(msgspec.Struct, frozen=True):
    """One file of a bucket that waits."""

    bucket: str
    file: WaitingFile


class CompactionState(msgspec.Struct, frozen=True):
    """What waits to be merged, and how many checkpoints were counted."""

    checkpoints: int = 0
    waiting: Sequence[Waiting] = ()


class FinishedFile(msgspec.Struct, frozen=True):
    """The newest file that a subtask has finished."""

    path: str  # below the sink's folder
    # bytes, crc32: None where it was joined record by record
    bytes: int | None
    crc32: int | None
    finished_ms: int  # when it was decided, ms since the epoch


class ReplacedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that goes once others are there, as it was when that was decided."""

    path: str  # below the sink's folder
    bytes: int
    modified_ms: int  # ms since the epoch
    tag: str = ""  # of its content, where the store has one


class FileSinkState(_FileValue, frozen=True, kw_only=True, omit_defaults=True):
    """What a file sink carries from decision to decision."""

    FORMAT: ClassVar[int] = 4

    tag: str  # stands for job and sink in hidden names; "" before anything was prepared
    root: str  # the sink's folder; "" before the first decision
    counters: Mapping[str, int]  # per subtask, the counter of its next name
    parts: Sequence[OpenPart]  # that are not finished
    # of the newest decision's files, what their segments are known as: a sweep before the commits spares them
    closing: Sequence[str]
    newest: Mapping[str, FinishedFile]  # per subtask, the finished file of the highest counter
    compaction: CompactionState | None = None  # what waits to be merged; None where nothing is
    # the files that the newest decision makes of several hidden ones, where an upload joins them
    joined: Sequence[str] | None = None
    pending: int  # how many segments are still to become visible
    # of a sink that replaces what is there. held: what becomes visible at the end; replaced: the buckets whose old files were named
    held: Sequence[FileCommittable] = ()
    replaced: Sequence[str] | None = None
    partitions: PendingPartitions | None = None  # that wait to be committed; None where none ever is

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
        waiting = [segment for part in self.files for segment in part.segments]
        return waiting + [segment for each in self.held for segment in each.segments]

    @property
    def known(self) -> set[str]:
        """Every hidden file, by its path, and every upload, by its id, that the state names."""
        return {segment.known_as for segment in self.segments} | set(self.closing)


class FileCommittable(_FileValue, frozen=True, kw_only=True, omit_defaults=True):
    """A file that a decision makes visible, or no file, where it only removes old ones or commits a partition."""

    FORMAT: ClassVar[int] = 4

    tag: str  # stands for job and sink in hidden names
    root: str  # the folder it was staged in
    bucket: str  # it is in
    final: str  # its path below the folder
    kind: str  # of its segments
    # bytes, rows, min_ms, max_ms: of all its segments
    bytes: int
    rows: int
    min_ms: int | None
    max_ms: int | None
    segments: Sequence[FileSegment]  # in order; none where there is no file
    replaces: Sequence[ReplacedFile] = ()  # what goes once the file is visible
    mark: PartitionMark | None = None  # what commits the bucket as a partition, behind all files of the decision

    @classmethod
    def without_file(cls, v: int, tag: str, root: str, bucket: str) -> Self:
        """Return one that makes no file visible."""
        return cls(
            v=v,
            tag=tag,
            root=root,
            bucket=bucket,
            final="",
            kind="",
            bytes=0,
            rows=0,
            min_ms=None,
            max_ms=None,
            segments=[],
        )

    @property
    def upload(self) -> FileSegment | None:
        """The upload that becomes the file; None where it is made of hidden ones."""
        return self.segments[0] if self.segments and self.segments[0].upload is not None else None

    @property
    def merged_by_record(self) -> bool:
        """Whether the file is made by reading and writing records, so that its size is not the sum of its parts'."""
        return len(self.segments) > 1 and self.kind.partition(":")[0] in ("parquet", "avro")


class OpenPartSeen(msgspec.Struct, frozen=True, array_like=True):
    """What a rolling policy of the user's is to know of a part that is open; see `PartFile`."""

    bucket: str
    subtask: int
    rows: int
    created_ms: int
    last_write_ms: int


class LateLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far time had come behind the newest decision of a sink that seals buckets."""

    watermark: int | None = None  # ms; None before any
    clock_ms: int | None = None  # ms since the epoch


class FileDirective(SinkValue, frozen=True):
    """What the tasks of a checkpoint have to know of a sink's state, kept small."""

    known: tuple[int, ...] = ()  # the subtasks that have given names before
    # the counter of the next name of each of them; empty where writers look for it themselves
    following: tuple[int, ...] = ()
    pending: tuple[tuple[str, int, int], ...] = ()  # the bytes that wait, by bucket and subtask, largest first
    seen: tuple[OpenPartSeen, ...] = ()  # of the parts of `pending`, where a policy of the user's asks
    decided: LateLine | None = None  # by which rows are late; None before the first decision

    @classmethod
    def from_state(cls, state: FileSinkState, *, named: bool = False, seen: bool = False) -> FileDirective:
        """Return what a state says, of which both lists may be cut to keep the whole below 32 KB.

        A part that is left out is finished at the next checkpoint; a subtask that is left out looks once more at the names in the
        folder. Where writers may give names themselves (`named`, or they did before), the counter of each subtask's next name comes along; where a
        policy of the user's asks about parts (`seen`), what it is to know of them.
        """
        counters = state.counters
        known = sorted(map(int, counters))[:1500]
        following = [counters[str(subtask)] for subtask in known] if named or state.joined is not None else []
        budget = DIRECTIVE_BYTES - 200 - sum(len(str(k)) + 2 for k in (*known, *following))
        pending: list[tuple[str, int, int]] = []
        parts: list[OpenPartSeen] = []
        for part in sorted(state.parts, key=lambda part: -part.bytes):
            entry = part.bucket, part.subtask, part.bytes
            budget -= (len(json.dumps(entry)) + 2) * (1 if not seen else 3)
            if budget < 0:
                break
            pending.append(entry)
            if seen:
                parts.append(OpenPartSeen(part.bucket, part.subtask, part.rows, part.created_ms, part.last_write_ms))
        waits = state.partitions
        decided = None if waits is None else LateLine(waits.watermark, waits.clock_ms)
        return cls(
            v=cls.FORMAT,
            known=tuple(known),
            following=tuple(following),
            pending=tuple(pending),
            seen=tuple(parts),
            decided=decided,
        )
