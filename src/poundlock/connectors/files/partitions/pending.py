"""Which partitions of a file sink wait to be committed, as pure functions of the carried state.

A partition waits from the decision that names its first file until the one that commits it, whoever writes to it, in whatever task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from poundlock.checkpoint.capabilities import SinkTime
from poundlock.connectors.files.partitions.commit import END_MS, CompletionRule
from poundlock.connectors.files.partitions.manifests import BucketFile, Seal
from poundlock.connectors.files.partitions.sealed import SealingRule


class PendingPartitions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The partitions that wait, and how far time had come behind the newest checkpoint."""

    since_ms: Mapping[str, int] = {}  # by bucket, when the checkpoint with its first row began, ms since the epoch
    watermark: int | None = None  # ms; None before any
    ended: bool = False  # whether the input had
    # of a sink that seals buckets. clock_ms: of the newest checkpoint, or seal; seals: how many there were; manifest: the name of manifests
    clock_ms: int | None = None
    seals: int = 0
    manifest: str = ""
    files: Mapping[str, Sequence[BucketFile]] = {}  # by bucket that waits, those that are visible


@dataclass(frozen=True, slots=True)
class DuePartitions:
    """What a decision says of partitions: those that it commits, and what waits on."""

    buckets: tuple[str, ...]
    pending: PendingPartitions | None


NONE_DUE = DuePartitions((), None)


def due_partitions(
    commit: CompletionRule | None,
    before: PendingPartitions | None,
    written: Iterable[tuple[str, int]],
    now_ms: int,
    time: SinkTime | None,
) -> DuePartitions:
    """Return what becomes of partitions in a decision.

    Args:
        commit: None = they are not committed; what waited is forgotten.
        written: each bucket that has files which are not visible yet, and since when, ms since the epoch.
        now_ms: the clock.
        time: how far event time has come behind a checkpoint; None = as far as before.

    Raises:
        TerminalError: a partition has no time.
    """
    if commit is None:
        return NONE_DUE
    known = before or PendingPartitions()
    since = dict(known.since_ms)
    for bucket, at_ms in sorted(written):
        if commit.concerns(bucket):
            since.setdefault(bucket, at_ms)
    watermark, ended = (known.watermark, known.ended) if time is None else (time.watermark, time.ended)
    reached = END_MS if ended else watermark
    due = tuple(bucket for bucket, at_ms in sorted(since.items()) if _is_due(commit, bucket, at_ms, now_ms, reached))
    done = set(due)
    left = {bucket: at_ms for bucket, at_ms in since.items() if bucket not in done}
    return DuePartitions(due, msgspec.structs.replace(known, since_ms=left, watermark=watermark, ended=ended))


@dataclass(frozen=True, slots=True)
class Sealing:
    """What a decision says of buckets that it seals, and what waits on."""

    seals: Mapping[str, Seal]  # by bucket
    pending: PendingPartitions


def seal(
    rule: SealingRule,
    pending: PendingPartitions,
    due: Sequence[str],
    visible: Iterable[tuple[str, BucketFile]],
    names: str,
    now_ms: int,
    *,
    is_checkpoint: bool,
) -> Sealing:
    """Return the seals of the buckets that are due, each with its files, and what waits with those of the others.

    Args:
        visible: the buckets and files that the decision makes visible.
        names: regular expression of the names of the sink's files.
        now_ms: the clock.
        is_checkpoint: whether the decision is one of a checkpoint.
    """
    files = {bucket: list(each) for bucket, each in pending.files.items()}
    for bucket, file in visible:
        if rule.concerns(bucket):
            files.setdefault(bucket, []).append(file)
    manifest = rule.settings.manifest_name
    seals = {
        bucket: Seal(number, now_ms, manifest, names, files.pop(bucket, []))
        for number, bucket in enumerate(due, pending.seals + 1)
    }
    following = msgspec.structs.replace(
        pending,
        clock_ms=now_ms if due or is_checkpoint else pending.clock_ms,
        seals=pending.seals + len(seals),
        manifest=manifest,
        files=files,
    )
    return Sealing(seals, following)


def _is_due(commit: CompletionRule, bucket: str, since_ms: int, now_ms: int, reached: int | None) -> bool:
    by_clock = commit.due_ms(bucket, since_ms)
    needed = commit.due_watermark(bucket)  # also where there is no watermark yet: what has no time is refused at once
    return (by_clock is not None and by_clock <= now_ms) or (reached is not None and needed <= reached)


def next_commit_ms(commit: CompletionRule | None, pending: PendingPartitions | None) -> int | None:
    """Return when, by the clock, the next partition is committed, ms since the epoch; None = not by the clock."""
    if commit is None or pending is None:
        return None
    due = (commit.due_ms(bucket, at_ms) for bucket, at_ms in pending.since_ms.items())
    return min((at for at in due if at is not None), default=None)


def next_watermark(commit: CompletionRule | None, pending: PendingPartitions | None) -> int | None:
    """Return the least watermark, ms, with which a partition that waits is committed; None = none waits."""
    if commit is None or pending is None:
        return None
    return min((commit.due_watermark(bucket) for bucket in pending.since_ms), default=None)
