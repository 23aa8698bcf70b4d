"""When a partition of a file sink is complete, and what then makes it known: Flink's partition commit, as the user writes it down."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol

from poundlock.arguments import check_choices, function_name
from poundlock.checkpoint.capabilities import Preflight
from poundlock.connectors.files.partitions.times import (
    PartitionTimeExtractor,
    PartitionTimePattern,
    keys_and_values,
    partition_ms,
)
from poundlock.errors import DefinitionError
from poundlock.values import duration, format_duration, time_zone

SUCCESS_FILE = "success-file"
END_MS = (1 << 63) - 1
"""The watermark behind the end of the input."""
SUCCESS_FILE_NAME = re.compile(r"[A-Za-z0-9._=+-]{1,200}")
"""What a success file may be called."""


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    """What a commit policy of your own is called with.

    Args:
        root: the sink's folder.
        bucket: of the partition, below the folder, such as "dt=2026-01-05/hour=10".
    """

    root: str
    bucket: str

    @property
    def path(self) -> str:
        """The folder of the partition."""
        return f"{self.root}/{self.bucket}" if self.bucket else self.root

    @property
    def spec(self) -> Mapping[str, str]:
        """The values of its keys; empty where the bucket has none."""
        return dict(zip(*keys_and_values(self.bucket), strict=False))


CommitPolicy = Callable[[CommittedPartition], None]
AnyPolicy = Callable[[Any], None]


def check_policies(given: str | AnyPolicy | Sequence[str | AnyPolicy], value: str) -> tuple[str | AnyPolicy, ...]:
    """Return policies as they are listed. Raises DefinitionError where one is none; `value`: what functions are called with."""
    policies = (given,) if isinstance(given, str) or callable(given) else tuple(given)
    wrong = [each for each in policies if each != SUCCESS_FILE and not callable(each)]
    if wrong:
        raise DefinitionError(
            f"{wrong[0]!r} is no commit policy",
            next=f'write policies=["{SUCCESS_FILE}"], or give a function of {value}',
        )
    return policies


class CompletionRule(Protocol):
    """When buckets are complete, and what is done then: `PartitionCommit`, and `SealedBuckets` for the buckets of a sink."""

    @property
    def steps(self) -> Sequence[str | AnyPolicy]:
        """What is done, in order: names of success files, and functions."""

    @property
    def success_files(self) -> Sequence[str]:
        """The names of success files."""

    @property
    def marks(self) -> Sequence[Container[str]]:
        """The names of what it writes into buckets."""

    @property
    def functions(self) -> Sequence[AnyPolicy]:
        """The policies that are functions."""

    @property
    def needs_event_time(self) -> bool:
        """Whether it waits for a watermark."""

    def concerns(self, bucket: str) -> bool:
        """Return whether a bucket is ever complete."""

    def due_ms(self, bucket: str, since_ms: int) -> int | None:
        """Return the first time of the clock, ms since the epoch, at which a bucket is complete; None = never by the clock."""

    def due_watermark(self, bucket: str) -> int:
        """Return the least watermark, ms, with which a bucket is complete. Raises TerminalError where it has no time."""

    def describe(self) -> str:
        """Return it for people, one line."""


@dataclass(frozen=True, kw_only=True)
class PartitionCommit:
    """When a partition of a file sink is complete, and what is done then, behind the decision that makes its last files visible.

    A partition is a bucket. It is committed with the first decision in which the condition holds, and all of its files with it or before it: part
    files that are open are finished, and what waits to be merged is. What comes to it later commits it once more.

    Args:
        trigger: "partition-time": the watermark is past the partition's time and the delay. "process-time": the clock is past the begin of the
            checkpoint with its first row, and the delay; without a delay each checkpoint commits the partitions that it wrote to. "end":
            when the input ends, which commits whatever waits with the other two as well.
        delay: such as "1 h": how long a partition goes on.
        time: of "partition-time": `PartitionTimePattern`, or a function of the partition's keys and values that gives a datetime, always the same one.
        watermark_time_zone: of the partition's time: an IANA name, or an offset such as "GMT-08:00".
        policies: what is done, in order: "success-file" writes an empty file into the partition, or over the one that is there; a function is
            called with a `CommittedPartition` in the driver, and once more where a crash leaves open whether it was.
        success_file_name: of the file.

    Raises:
        DefinitionError: one of them cannot be.
    """

    trigger: Literal["process-time", "partition-time", "end"] = "process-time"
    delay: str | timedelta = "0 s"
    time: PartitionTimeExtractor = field(default_factory=PartitionTimePattern)
    watermark_time_zone: str = "UTC"
    policies: Sequence[str | CommitPolicy] = (SUCCESS_FILE,)
    success_file_name: str = "_SUCCESS"

    def __post_init__(self) -> None:
        check_choices(self, {"trigger": ("process-time", "partition-time", "end")})
        object.__setattr__(self, "delay", duration(self.delay))
        time_zone(self.watermark_time_zone)
        if not callable(self.time) or isinstance(self.time, type) or not isinstance(self.time, Hashable):
            raise DefinitionError(
                f"time={self.time!r} is no extractor",
                next='write PartitionTimePattern("$dt $hour:00:00"), or give a function',
            )
        object.__setattr__(self, "policies", check_policies(self.policies, "a CommittedPartition"))
        if not self.policies:
            raise DefinitionError(
                "a partition commit without a policy does nothing", next=f'write policies=["{SUCCESS_FILE}"]'
            )
        if not isinstance(self.success_file_name, str) or not SUCCESS_FILE_NAME.fullmatch(self.success_file_name):
            raise DefinitionError(
                f"success_file_name={self.success_file_name!r} is no file name", next='use a name such as "_SUCCESS"'
            )

    @property
    def delay_ms(self) -> int:
        """The delay in ms."""
        return round(duration(self.delay) / timedelta(milliseconds=1))

    @property
    def needs_event_time(self) -> bool:
        """Whether it waits for a watermark."""
        return self.trigger == "partition-time"

    def concerns(self, bucket: str) -> bool:
        """Return whether a bucket is ever committed: each is."""
        return True

    @property
    def steps(self) -> list[str | AnyPolicy]:
        """What is done, in order: names of success files, and functions."""
        return [self.success_file_name if isinstance(each, str) else each for each in self.policies]

    @property
    def success_files(self) -> list[str]:
        """The names of its success files."""
        return [self.success_file_name for each in self.policies if each == SUCCESS_FILE]

    @property
    def marks(self) -> Sequence[Container[str]]:
        """The names of what it writes."""
        return [self.success_files]

    @property
    def functions(self) -> list[AnyPolicy]:
        """The policies that are functions."""
        return [each for each in self.policies if not isinstance(each, str)]

    def due_ms(self, bucket: str, since_ms: int) -> int | None:
        """Return the first time of the clock, ms since the epoch, at which a partition is committed; None = never by the clock.

        Args:
            since_ms: when the checkpoint with its first row began.
        """
        if self.trigger != "process-time":
            return None
        return since_ms + self.delay_ms + 1 if self.delay_ms else since_ms

    def due_watermark(self, bucket: str) -> int:
        """Return the least watermark, ms, with which a partition is committed. Raises TerminalError where it has no time."""
        if self.trigger != "partition-time":
            return END_MS
        return min(partition_ms(self.time, self.watermark_time_zone, bucket) + self.delay_ms + 1, END_MS)

    def describe(self) -> str:
        """Return it for people, one line."""
        when = {"process-time": "by the clock", "partition-time": "by the watermark", "end": "at the end"}[self.trigger]
        delay = f" and {format_duration(duration(self.delay))}" if self.delay_ms else ""
        done = ", ".join(
            self.success_file_name if isinstance(each, str) else function_name(each) for each in self.policies
        )
        return f"commits partitions {when}{delay}: {done}"


def check_policies_work(commit: CompletionRule | None) -> None:
    """Ask each policy that can say so whether it will work. Raises DefinitionError if one cannot, TransientError if nobody answers."""
    for policy in [] if commit is None else commit.functions:
        if isinstance(policy, Preflight):
            policy.preflight()
