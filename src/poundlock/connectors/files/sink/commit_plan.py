"""The file sink's part of a decision, as pure functions of the carried state: which parts go on, which become visible.

Every segment that was prepared is named by exactly one of: an open part, a waiting part, a committable. A counter is
never given twice, so no two parts of a job ever have one name.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from msgspec.structs import asdict, replace

from poundlock.checkpoint.capabilities import SinkTime
from poundlock.checkpoint.participant import Occasion, Prepared
from poundlock.connectors.files.checksums import combined
from poundlock.connectors.files.custom_rolling import CustomRollingPolicy, PartFile
from poundlock.connectors.files.file_values import (
    CompactionState,
    FileCommittable,
    FileSinkState,
    FinishedFile,
    OpenPart,
    PreparedFile,
    Waiting,
    WaitingFile,
    totals,
)
from poundlock.connectors.files.partitions.commit import CompletionRule
from poundlock.connectors.files.partitions.manifests import BucketFile
from poundlock.connectors.files.partitions.pending import Sealing, due_partitions, next_commit_ms, next_watermark, seal
from poundlock.connectors.files.partitions.policies import PartitionMark
from poundlock.connectors.files.partitions.sealed import SealingRule
from poundlock.connectors.files.sink.names import final_name, join, name_pattern, numbers_of
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.errors import TerminalError, TransientError

__all__ = ["Rules", "next_roll_ms", "next_watermark", "rows_by_bucket", "stage"]

FORMAT = 1
PARTITIONS_FORMAT = 3
"""Of states and committables that say something of partitions."""
SEALED_FORMAT = 4
"""Of those that say something of sealed buckets."""
# A part of so many segments is finished whatever the policy says: every decision carries all of their names.
MAX_SEGMENTS = 500


@dataclass(frozen=True, slots=True)
class Rules:
    """What of the sink's settings the decision needs."""

    root: str  # the sink's folder; hidden files are named below it
    rolling: RollingPolicy | CustomRollingPolicy  # when a part is finished
    whole: bool  # each segment is a part of its own (bulk formats)
    # prefix, suffix: of finished names
    prefix: str
    suffix: str
    compaction: FileCompaction | None  # None = none
    tag: str  # stands for job and sink in hidden names; "" = take it from what was prepared
    joins: bool = False  # whether several segments are joined by an upload, which a crash may leave
    partition_commit: CompletionRule | None = None  # when buckets are complete, and what is done then; None = nothing


def stage(
    rules: Rules,
    state: FileSinkState,
    prepared: Sequence[Prepared],
    occasion: Occasion,
    now_ms: int,
    time: SinkTime | None = None,
) -> tuple[FileSinkState, list[FileCommittable]]:
    """Return the next state and what becomes visible with it; see `Participant.stage` and `FollowsTime.stage_at`.

    A partition that is committed has all of its files in this decision or in earlier ones: open parts are finished, and what waits goes.
    """
    _check(rules, state)
    counters = dict(state.counters)
    parts = {(part.bucket, part.subtask): part for part in state.parts}
    tag = rules.tag or state.tag
    closed: list[OpenPart] = []
    pieces = [(item.subtask, PreparedFile.of(item.payload)) for item in prepared]
    _refuse_sealed(rules, state, pieces)
    for subtask, piece in sorted(pieces, key=lambda pair: (pair[0], pair[1].k, pair[1].path)):
        tag = tag or piece.tag
        _fold(rules, subtask, piece, parts, counters, closed)
    hidden = chain(parts.values(), closed, state.files)
    written = ((part.bucket, part.created_ms) for part in hidden)  # looked at where partitions are committed alone
    due = due_partitions(rules.partition_commit, state.partitions, written, now_ms, time)
    complete = frozenset(due.buckets)
    for key in list(parts):
        if key[0] in complete or _closes(rules, parts[key], occasion, now_ms):
            closed.append(parts.pop(key))
    files = [WaitingFile(file=part.segments[0].path, queued_ms=now_ms, **asdict(part)) for part in closed]
    alone = {part.bucket for part in (*files, *state.files) if not _completes(rules, part.bucket)}
    groups, waiting = compact(rules.compaction, state.compaction, files, occasion, now_ms, complete | alone)
    committables = [_committable(rules, tag, group) for group in groups]
    partitions, sealing, version = due.pending, None, FORMAT if due.pending is None else PARTITIONS_FORMAT
    if isinstance(rules.partition_commit, SealingRule) and due.pending is not None:
        visible = ((each.bucket, _in_bucket(each)) for each in committables)
        sealing = seal(
            rules.partition_commit,
            due.pending,
            due.buckets,
            visible,
            name_pattern(rules.prefix, rules.suffix),
            now_ms,
            is_checkpoint=occasion is Occasion.CHECKPOINT,
        )
        partitions, version = sealing.pending, SEALED_FORMAT
    next_state = FileSinkState(
        v=version,
        tag=tag,
        root=rules.root,
        counters=counters,
        parts=list(parts.values()),
        # Repeated here so that a sweep before the commits are done spares them.
        closing=[segment.known_as for committable in committables for segment in committable.segments],
        newest=_newest(rules, state.newest, committables, now_ms),
        compaction=waiting,
        joined=[c.final for c in committables if c.upload is None] if rules.joins else None,
        pending=0,
        partitions=partitions,
    )
    committables += _marks(rules, tag, version, due.buckets, sealing)
    # How much is still to become visible: at 0 the sink may be taken out of the job, its counters stay.
    return replace(next_state, pending=len(next_state.segments)), committables


def _check(rules: Rules, state: FileSinkState) -> None:
    if (state.root or rules.root) != rules.root and state.files:
        raise TerminalError(
            f"the checkpoint holds unfinished files below {state.root}, but the sink now writes to {rules.root}",
            next="set the sink's path back, stop the job cleanly once, then change it",
        )
    if (state.root or rules.root) != rules.root and rules.partition_commit is not None and state.partitions is not None:
        waiting = sorted(state.partitions.since_ms)
        if waiting:
            raise TerminalError(
                f"{len(waiting)} partitions below {state.root}, such as {waiting[0]}, wait to be committed, but the sink now writes to {rules.root}",
                next="set the sink's path back, end the job with poundlock stop --drain, then change it",
            )


def _completes(rules: Rules, bucket: str) -> bool:
    return rules.partition_commit is None or rules.partition_commit.concerns(bucket)


def _refuse_sealed(rules: Rules, state: FileSinkState, pieces: Iterable[tuple[int, PreparedFile]]) -> None:
    """Raise TransientError where a task wrote into a bucket that was sealed meanwhile: as the checkpoint is repeated, its rows are late."""
    rule, known = rules.partition_commit, state.partitions
    if not isinstance(rule, SealingRule) or rule.settings.late == "reopen" or known is None:
        return
    for _, piece in pieces:
        if rule.is_late(piece.bucket, known.watermark, known.clock_ms):
            raise TransientError(
                f"rows were written for the bucket {piece.bucket!r} of {rules.root}, which is sealed",
                next="nothing has to be done: the checkpoint is repeated",
            )


def _in_bucket(committable: FileCommittable) -> BucketFile:
    known = None if committable.merged_by_record else committable.bytes
    name = committable.final.rpartition("/")[2]
    return BucketFile(name, committable.rows, known, committable.min_ms, committable.max_ms)


def _marks(
    rules: Rules, tag: str, version: int, buckets: Sequence[str], sealing: Sealing | None
) -> list[FileCommittable]:
    """Return what commits buckets, behind all files of the decision."""
    if rules.partition_commit is None:
        return []
    seals = {} if sealing is None else sealing.seals
    return [
        replace(
            FileCommittable.without_file(version, tag, rules.root, bucket),
            mark=PartitionMark.of(rules.partition_commit, seals.get(bucket)),
        )
        for bucket in buckets
    ]


def _fold(
    rules: Rules,
    subtask: int,
    piece: PreparedFile,
    parts: dict[tuple[str, int], OpenPart],
    counters: dict[str, int],
    closed: list[OpenPart],
) -> None:
    key = (piece.bucket, subtask)
    part = parts.get(key)
    if part is not None and (piece.new_part or part.closed or part.kind != piece.kind):
        closed.append(parts.pop(key))
        part = None
    if part is None:
        given = counters.get(str(subtask), 0)
        counter = max(given, piece.floor)
        name = final_name(rules.prefix, subtask, counter, rules.suffix)
        if piece.upload is not None:  # its writer gave the name, unique to the attempt
            assert piece.counter is not None
            counter, name = piece.counter, piece.path.rpartition("/")[2]
        counters[str(subtask)] = max(given, counter + 1)
        part = OpenPart(
            bucket=piece.bucket,
            subtask=subtask,
            name=name,
            created_ms=piece.at_ms,
            last_write_ms=piece.at_ms,
            bytes=0,
            rows=0,
            min_ms=None,
            max_ms=None,
            kind=piece.kind,
            segments=[],
        )
    parts[key] = part.grown(piece)


def _closes(rules: Rules, part: OpenPart, occasion: Occasion, now_ms: int) -> bool:
    if occasion is Occasion.END or part.closed or len(part.segments) >= MAX_SEGMENTS:
        return True
    at = _roll_at_ms(rules, part)
    if at is not None and now_ms >= at:
        return True
    if occasion is Occasion.ROLL:
        return False
    if isinstance(rules.rolling, RollingPolicy):
        return rules.whole or rules.rolling.on_checkpoint or rules.rolling.full(part.bytes)
    return rules.whole or rules.rolling.should_roll_on_checkpoint(_seen(part))


def _roll_at_ms(rules: Rules, part: OpenPart) -> int | None:
    if isinstance(rules.rolling, RollingPolicy):
        return rules.rolling.due_ms(part.created_ms, part.last_write_ms)
    return rules.rolling.roll_at_ms(_seen(part))


def _seen(part: OpenPart) -> PartFile:
    return PartFile(part.bucket, part.bytes, part.rows, part.created_ms, part.last_write_ms)


def compact(
    policy: FileCompaction | None,
    state: CompactionState | None,
    closed: Sequence[WaitingFile],
    occasion: Occasion,
    now_ms: int,
    complete: Container[str] = (),
) -> tuple[list[list[WaitingFile]], CompactionState | None]:
    """Return which files become visible as one now, and what waits on: none where there is no compaction (or no longer).

    Files of a bucket and kind wait together. They go when the hidden ones have the size, at every n-th checkpoint, at the end,
    when the oldest has waited long enough, and when their bucket is one of those that are complete.
    """
    before = state.waiting if state is not None else ()
    if policy is None:
        return [[each.file] for each in before] + [[file] for file in closed], None
    waiting: dict[tuple[str, str], list[WaitingFile]] = {}
    for each in before:
        waiting.setdefault((each.bucket, each.file.kind), []).append(each.file)
    due: list[list[WaitingFile]] = []
    for file in closed:
        group = waiting.setdefault((file.bucket, file.kind), [])
        group.append(file)
        if policy.min_size is not None and sum(f.bytes for f in group if _hidden(f)) >= int(policy.min_size):
            due.append(waiting.pop((file.bucket, file.kind)))
    checkpoints = (state.checkpoints if state is not None else 0) + (occasion is Occasion.CHECKPOINT)
    every, wait = policy.every_checkpoints, policy.max_wait_ms
    counted = occasion is Occasion.CHECKPOINT and every is not None and checkpoints % every == 0
    for key, group in list(waiting.items()):
        overdue = wait is not None and min(file.queued_ms for file in group) + wait <= now_ms
        if counted or overdue or occasion is Occasion.END or key[0] in complete:
            due.append(waiting.pop(key))
    left = [Waiting(bucket, file) for (bucket, _), files in waiting.items() for file in files]
    return [sorted(files, key=_hidden, reverse=True) for files in due], CompactionState(checkpoints, left)


def _hidden(file: WaitingFile) -> bool:
    return file.file.rpartition("/")[2].startswith(".")


def _committable(rules: Rules, tag: str, files: Sequence[WaitingFile]) -> FileCommittable:
    """Return what commit needs. Several parts merged take the name of the first; the other names are never used."""
    first, segments = files[0], [segment for file in files for segment in file.segments]
    return FileCommittable(
        v=FORMAT,
        tag=tag,
        root=rules.root,
        bucket=first.bucket,
        final=join(first.bucket, first.name),
        kind=first.kind,
        segments=segments,
        **totals(files),
    )


def _newest(
    rules: Rules, before: Mapping[str, FinishedFile], committables: Sequence[FileCommittable], now_ms: int
) -> dict[str, FinishedFile]:
    """Return the file of the highest counter that each subtask has finished."""
    numbers = partial(numbers_of, rules.prefix, rules.suffix)
    highest = dict(known for file in before.values() if (known := numbers(file.path)) is not None)
    kept = {subtask: before[subtask] for subtask in highest}
    newer: dict[str, FileCommittable] = {}
    for committable in committables:
        subtask, counter = numbers(committable.final) or ("", 0)
        if highest.get(subtask, -1) < counter:
            highest[subtask], newer[subtask] = counter, committable
    # A checkpoint may finish thousands of files: only those that are kept are described.
    return kept | {subtask: _described(rules, committable, now_ms) for subtask, committable in newer.items()}


def _described(rules: Rules, committable: FileCommittable, now_ms: int) -> FinishedFile:
    segments = committable.segments
    if rules.whole and len(segments) > 1:  # joined record by record, so that it is of another size
        return FinishedFile(committable.final, None, None, now_ms)
    crc32 = combined((segment.bytes, segment.crc32 or 0) for segment in segments)
    return FinishedFile(committable.final, committable.bytes, crc32, now_ms)


def next_roll_ms(rules: Rules, state: FileSinkState) -> int | None:
    """Return when time alone makes something visible, or moves it on to wait for others; see `Participant.next_roll_ms`."""
    due: list[int | None] = [_roll_at_ms(rules, part) for part in state.parts]
    due += [part.created_ms for part in state.parts if part.closed]
    if rules.compaction is not None and state.compaction is not None and rules.compaction.max_wait_ms is not None:
        due += [each.file.queued_ms + rules.compaction.max_wait_ms for each in state.compaction.waiting]
    due.append(next_commit_ms(rules.partition_commit, state.partitions))
    return min((at for at in due if at is not None), default=None)


def rows_by_bucket(committables: Iterable[FileCommittable], state: FileSinkState, checkpoint: int) -> dict[str, int]:
    """Return the rows of one checkpoint per bucket, of what becomes visible and of what is carried on."""
    rows: dict[str, int] = {}
    placed = [(each.bucket, each.segments) for each in committables] + [(p.bucket, p.segments) for p in state.files]
    placed += [(each.bucket, each.segments) for each in state.held]
    for bucket, segments in placed:
        for segment in segments:
            if segment.checkpoint == checkpoint:
                rows[bucket] = rows.get(bucket, 0) + segment.rows
    return rows
