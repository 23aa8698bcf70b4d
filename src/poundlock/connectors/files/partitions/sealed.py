"""Sealed buckets: when a bucket of a file sink is whole, what says so, and what becomes of rows that come behind that, as the user writes it down.

A seal is a version of the bucket's manifest, which names all of its files. It is idempotent by the sink's own number of the seal; nothing is written over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from poundlock.arguments import check_choices, function_name, refuse_without_effect
from poundlock.connectors.files.buckets.assigners import EventTimeBucketAssigner, ProcessingTimeBucketAssigner
from poundlock.connectors.files.partitions.bucket_ends import BucketEnds, EndsByPattern, EndsByTime
from poundlock.connectors.files.partitions.commit import (
    END_MS,
    SUCCESS_FILE,
    SUCCESS_FILE_NAME,
    AnyPolicy,
    CommittedPartition,
    check_policies,
)
from poundlock.connectors.files.partitions.manifest_names import ManifestNames
from poundlock.connectors.files.partitions.times import PartitionTimeExtractor, zone_of
from poundlock.connectors.files.sink.rolling import FileCompaction
from poundlock.errors import DefinitionError
from poundlock.values import duration, format_bytes, format_duration, size

if TYPE_CHECKING:
    from poundlock.connectors.files.buckets.assigners import BucketAssigner

_MANIFEST_NAME = re.compile(r"[._][A-Za-z0-9._=+-]{0,80}\{version\}[A-Za-z0-9._=+-]{0,40}")
_LATE_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,80}")

Late = Literal["reopen", "folder", "dead-letter"]


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A file that a seal names.

    Args:
        path: below the sink's folder.
        rows: None where it was there before the sink sealed buckets.
        bytes: its size.
        version: of the manifest that named it first.
    """

    path: str
    rows: int | None
    bytes: int
    version: int


@dataclass(frozen=True, slots=True)
class SealedBucket(CommittedPartition):
    """What a function among the policies of `SealedBuckets` is called with.

    Args:
        version: 1, and one more each time that the bucket was opened once more. Bucket and version are the key to be idempotent by.
        manifest: the path of the manifest, which has all of this.
        files: all files of the bucket, those of earlier versions first.
    """

    version: int
    manifest: str
    files: Sequence[SealedFile]

    @property
    def rows(self) -> int:
        """The rows in all files, as far as they are known."""
        return sum(file.rows or 0 for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.files)


SealPolicy = Callable[[SealedBucket], None]


@dataclass(frozen=True, kw_only=True)
class SealedBuckets:
    """When a bucket is whole and sealed, what says so, and what becomes of rows that come later.

    A seal writes a manifest into the bucket, which names its files, and behind it what the policies say: all of it behind the decision that makes the
    last of these files visible. A sealed bucket gets no further file, unless `late` opens it once more: then a manifest of the next version names all of them.

    Args:
        trigger: "event-time": the watermark has passed the bucket's end plus the allowed lateness. "process-time": the clock has; of buckets without an end
            it has passed the begin of the checkpoint with the first row plus the allowed lateness. "end": the input ended, which seals what is open with
            the other two as well.
        allowed_lateness: such as "1 h".
        time: where the bucket is not named by a date pattern of the sink: `PartitionTimePattern`, or a function of the bucket's keys and values
            that gives its begin, always the same one.
        length: with `time`, such as "1 h": how long a bucket goes on.
        zone: of `time`: an IANA name, or an offset such as "GMT-08:00".
        late: what becomes of rows of a bucket that is sealed, or would be. "reopen": they are written, and the bucket is sealed once more, with the next
            version. "folder": they are written into a bucket of the same name in `late_folder`. "dead-letter": they are bad records of the sink, counted.
        late_folder: below the sink's folder. Where it begins with "_", readers of the sink's folder do not see it.
        target_size: such as "256 MB": files of a bucket are hidden until they add up to it or the bucket is sealed, and are merged then. None = files are as
            the rolling policy has them.
        policies: what is done behind the manifest, in order: "success-file", and functions, which are called in the driver with a `SealedBucket`, and once
            more where a crash leaves open whether they were.
        success_file_name: of the success file.
        manifest_name: of the manifests, with {version} in it.

    Raises:
        DefinitionError: one of them cannot be.
    """

    trigger: Literal["event-time", "process-time", "end"] = "event-time"
    allowed_lateness: str | timedelta = "0 s"
    time: PartitionTimeExtractor | None = None
    length: str | timedelta | None = None
    zone: str = "UTC"
    late: Late = "reopen"
    late_folder: str = "_late"
    target_size: str | int | None = None
    policies: Sequence[str | SealPolicy] = (SUCCESS_FILE,)
    success_file_name: str = "_SUCCESS"
    manifest_name: str = "_manifest-{version}.json"

    def __post_init__(self) -> None:
        check_choices(
            self,
            {"trigger": ("event-time", "process-time", "end"), "late": ("reopen", "folder", "dead-letter")},
        )
        object.__setattr__(self, "allowed_lateness", duration(self.allowed_lateness))
        self._check_time()
        if self.target_size is not None:
            object.__setattr__(self, "target_size", size(self.target_size))
        object.__setattr__(self, "policies", check_policies(self.policies, "a SealedBucket"))
        if not isinstance(self.success_file_name, str) or not SUCCESS_FILE_NAME.fullmatch(self.success_file_name):
            raise DefinitionError(
                f"success_file_name={self.success_file_name!r} is no file name", next='use a name such as "_SUCCESS"'
            )
        if not isinstance(self.manifest_name, str) or not _MANIFEST_NAME.fullmatch(self.manifest_name):
            raise DefinitionError(
                f"manifest_name={self.manifest_name!r} is no name of hidden files of several versions",
                next='begin it with "_" and write {version} in it, such as "_manifest-{version}.json"',
            )
        if not isinstance(self.late_folder, str) or not _LATE_FOLDER.fullmatch(self.late_folder):
            raise DefinitionError(
                f"late_folder={self.late_folder!r} is no folder below the sink's", next='use a name such as "_late"'
            )
        if self.late != "folder":
            refuse_without_effect(
                "SealedBuckets", {"late_folder": (self.late_folder, "_late")}, because=f"late is {self.late!r}"
            )

    def _check_time(self) -> None:
        if self.time is None:
            refuse_without_effect(
                "SealedBuckets",
                {"length": (self.length, None), "zone": (self.zone, "UTC")},
                because="there is no time= that says when a bucket begins",
            )
            return
        zone_of(self.zone)
        if not callable(self.time) or isinstance(self.time, type) or not isinstance(self.time, Hashable):
            raise DefinitionError(
                f"time={self.time!r} is no extractor",
                next='write PartitionTimePattern("$dt $hour:00:00"), or give a function',
            )
        if self.length is None:
            raise DefinitionError("how long a bucket goes on is not given", next='say it: length="1 h"')
        object.__setattr__(self, "length", duration(self.length))

    def rule(self, assigner: BucketAssigner) -> SealingRule:
        """Return it for the buckets of an assigner.

        Raises:
            DefinitionError: the end of a bucket is needed, and nothing says it.
        """
        ends = self._ends(assigner)
        if ends is None and (self.trigger == "event-time" or self.late != "reopen"):
            because = "buckets are sealed by event time" if self.trigger == "event-time" else f"late is {self.late!r}"
            raise DefinitionError(
                f"{because}, and nothing says when a bucket ends",
                next='give the sink an EventTimeBucketAssigner, or SealedBuckets time=PartitionTimePattern("$dt $hour:00:00") and length="1 h"',
            )
        if self.trigger == "end" and self.late != "reopen":
            raise DefinitionError(
                f'late={self.late!r} has no effect beside trigger="end", behind which nothing comes',
                next="leave late out",
            )
        return SealingRule(self, ends)

    def merging(self, compaction: FileCompaction | None) -> FileCompaction | None:
        """Return how small files are merged. Raises DefinitionError where both say so."""
        if self.target_size is None:
            return compaction
        if compaction is not None:
            raise DefinitionError(
                "target_size= of SealedBuckets and compaction= both say how files are merged", next="give one of them"
            )
        return FileCompaction(min_size=self.target_size, max_wait=None)

    def _ends(self, assigner: BucketAssigner) -> BucketEnds | None:
        if self.time is not None:
            assert self.length is not None
            return EndsByTime(self.time, self.zone, _ms(self.length))
        if self.trigger == "end" or not isinstance(assigner, EventTimeBucketAssigner | ProcessingTimeBucketAssigner):
            return None
        return EndsByPattern(assigner.pattern, assigner.zone)


def _ms(span: str | timedelta) -> int:
    return round(duration(span) / timedelta(milliseconds=1))


@dataclass(frozen=True)
class SealingRule:
    """`SealedBuckets` for the buckets of one sink; what it has in common with `PartitionCommit` is `CompletionRule`."""

    settings: SealedBuckets
    ends: BucketEnds | None = field(default=None)

    @property
    def lateness_ms(self) -> int:
        """The allowed lateness in ms."""
        return _ms(self.settings.allowed_lateness)

    @property
    def success_files(self) -> list[str]:
        """The names of its success files."""
        return [self.settings.success_file_name for each in self.settings.policies if each == SUCCESS_FILE]

    @property
    def marks(self) -> Sequence[Container[str]]:
        """The names of what it writes."""
        return [self.success_files, ManifestNames(self.settings.manifest_name)]

    @property
    def functions(self) -> list[AnyPolicy]:
        """The policies that are functions."""
        return [each for each in self.settings.policies if not isinstance(each, str)]

    @property
    def steps(self) -> list[str | AnyPolicy]:
        """What is done, in order: names of success files, and functions."""
        return [self.settings.success_file_name if isinstance(each, str) else each for each in self.settings.policies]

    @property
    def needs_event_time(self) -> bool:
        """Whether it waits for a watermark."""
        return self.settings.trigger == "event-time"

    def concerns(self, bucket: str) -> bool:
        """Return whether a bucket is ever sealed: those in the folder of late rows are not."""
        folder = self.settings.late_folder
        return self.settings.late != "folder" or not f"{bucket}/".startswith(f"{folder}/")

    def due_ms(self, bucket: str, since_ms: int) -> int | None:
        """Return the first time of the clock, ms since the epoch, at which a bucket is sealed; None = never by the clock."""
        if self.settings.trigger != "process-time":
            return None
        return (since_ms if self.ends is None else self.ends.end_ms(bucket)) + self.lateness_ms

    def due_watermark(self, bucket: str) -> int:
        """Return the least watermark, ms, with which a bucket is sealed: the last ms of the bucket, plus the lateness, as of windows."""
        if self.settings.trigger != "event-time" or self.ends is None:
            return END_MS
        return min(self.ends.end_ms(bucket) - 1 + self.lateness_ms, END_MS)

    def is_late(self, bucket: str, watermark: int | None, clock_ms: int | None) -> bool:
        """Return whether a row of a bucket comes behind its seal.

        Args:
            watermark: ms, behind the newest decided checkpoint; None = none yet.
            clock_ms: of that decision, ms since the epoch; None = there was none yet.
        """
        if self.ends is None or not self.concerns(bucket):
            return False
        if self.settings.trigger == "event-time":
            return watermark is not None and self.due_watermark(bucket) <= watermark
        due = self.due_ms(bucket, 0)
        return due is not None and clock_ms is not None and due <= clock_ms

    def describe(self) -> str:
        """Return it for people, one line."""
        its = self.settings
        when = {"event-time": "by the watermark", "process-time": "by the clock", "end": "at the end"}[its.trigger]
        more = f" and {format_duration(duration(its.allowed_lateness))}" if self.lateness_ms else ""
        merged = "" if its.target_size is None else f", files up to {format_bytes(size(its.target_size))}"
        done = "".join(f", {each if isinstance(each, str) else function_name(each)}" for each in self.steps)
        late = {
            "reopen": "late rows reopen",
            "folder": f"late rows into {its.late_folder}",
            "dead-letter": "late rows are dead letters",
        }
        return f"seals buckets {when}{more}{merged}: {its.manifest_name}{done}; {late[its.late]}"
