"""A file sink that replaces what is there: all becomes visible with one decision at the end, and the old files of a bucket go behind it.

The decision names each old file with its size and time: what has the name of one and is another file stays, whoever asks again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from poundlock.checkpoint.capabilities import SinkTime
from poundlock.checkpoint.participant import Occasion, Prepared
from poundlock.connectors.files.file_values import FileCommittable, FileSinkState, ReplacedFile
from poundlock.connectors.files.sink import commit_plan
from poundlock.connectors.files.sink.commit_plan import Rules
from poundlock.storage import Storage

FORMAT = 2
"""Of states and committables with what an earlier version does not know."""


def stage(
    rules: Rules,
    state: FileSinkState,
    prepared: Sequence[Prepared],
    occasion: Occasion,
    now_ms: int,
    storage: Storage,
    always: Sequence[str],
    time: SinkTime | None = None,
) -> tuple[FileSinkState, list[FileCommittable]]:
    """Return the next state and what becomes visible with it: nothing before the end; see `Participant.stage`.

    Args:
        always: the buckets that are replaced in any case; others where they get a row.
    """
    following, committables = commit_plan.stage(rules, state, prepared, occasion, now_ms, time)
    held = [*state.held, *committables]
    closing = [segment.known_as for each in held for segment in each.segments]
    joined = [each.final for each in held if each.segments and each.upload is None] if rules.joins else None
    following = replace(
        following, v=max(FORMAT, following.v), closing=closing, joined=joined, replaced=list(state.replaced or ())
    )
    if occasion is not Occasion.END:
        following = replace(following, held=held)
        return replace(following, pending=len(following.segments)), []
    done = list(state.replaced or ())
    buckets = [each for each in dict.fromkeys([*always, *(each.bucket for each in held)]) if each not in done]
    new = {each.final for each in held}
    old = {bucket: list(_old_files(storage, bucket, buckets, new)) for bucket in buckets}
    made = [_replacing(each, old.pop(each.bucket, [])) for each in held]
    made += [_removal(rules, following.tag, bucket, files) for bucket, files in old.items() if files]
    return replace(following, replaced=[*done, *buckets]), made


def _old_files(storage: Storage, bucket: str, buckets: Sequence[str], new: set[str]) -> Iterator[ReplacedFile]:
    """Yield the files of a bucket that readers see; each file once, though a bucket may lie in another."""
    for entry in storage.list(bucket):
        folders, _, name = entry.path.rpartition("/")
        inner = max((each for each in buckets if each == "" or f"{folders}/".startswith(f"{each}/")), key=len)
        if inner == bucket and not name.startswith((".", "_")) and entry.path not in new:
            yield ReplacedFile(path=entry.path, bytes=entry.bytes, modified_ms=entry.modified_ms, tag=entry.tag)


def _replacing(committable: FileCommittable, old: Sequence[ReplacedFile]) -> FileCommittable:
    return replace(committable, v=max(FORMAT, committable.v), replaces=old) if old else committable


def _removal(rules: Rules, tag: str, bucket: str, old: Sequence[ReplacedFile]) -> FileCommittable:
    """Return what removes the old files of a bucket that gets no new one."""
    return replace(FileCommittable.without_file(FORMAT, tag, rules.root, bucket), replaces=old)


def remove_replaced(storage: Storage, committable: FileCommittable) -> None:
    """Remove the files that a decision replaced, as far as they are still the ones that it saw. Raises OSError."""
    for old in committable.replaces:
        entry = storage.stat(old.path)
        if entry is not None and (entry.bytes, entry.modified_ms, entry.tag) == (old.bytes, old.modified_ms, old.tag):
            storage.delete(old.path)
