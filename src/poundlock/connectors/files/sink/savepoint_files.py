"""The file sink's part of a savepoint: unfinished parts are copied out of its folder, and into that of a job that restores.

A finished file is touched only where the user asked for it: output that is newer than the savepoint, to be retracted.
"""

from __future__ import annotations

from msgspec.structs import replace

from poundlock.checkpoint.portable import Newer, NewerOutput
from poundlock.connectors.files.checksums import read_crc32
from poundlock.connectors.files.file_values import FileSinkState, FinishedFile, OpenPart
from poundlock.connectors.files.partitions.policies import remove_success_files
from poundlock.connectors.files.sink.commit_plan import Rules
from poundlock.connectors.files.sink.names import final_name, join, numbers_of
from poundlock.errors import DefinitionError
from poundlock.storage.base import Storage
from poundlock.storage.copying import copy


def newer_output(storage: Storage, rules: Rules, state: FileSinkState) -> Newer:
    """Say which files are newer than a state; see `Portable.newer`."""
    paths = _newer(storage, rules, state)
    what = ""
    if paths:
        many = "a file that was" if len(paths) == 1 else f"{len(paths)} files that were"
        what = f"has {many} finished after the savepoint, {'it is' if len(paths) == 1 else 'such as'} {paths[0]}"
    return Newer(what=what, lost=_lost(storage, rules, state))


def _lost(storage: Storage, rules: Rules, state: FileSinkState) -> str:
    """Say which of the newest files that were finished before a state are not there, or are others; "" = none.

    Another savepoint may have been restored over this one since, which took its files back. Where the sink has another
    folder now, it may begin empty.
    """
    wrong = [file for file in state.newest.values() if not _holds(storage, file)]
    if not wrong:
        return ""
    if (state.root or rules.root) != rules.root and not any(
        numbers_of(rules.prefix, rules.suffix, entry.path) for entry in storage.list()
    ):
        return ""
    path = wrong[0].path
    if storage.stat(path) is not None:
        return f"has another file {path} than the one that was finished before the savepoint"
    return f"lacks the file {path}, which was finished before the savepoint"


def _holds(storage: Storage, file: FinishedFile) -> bool:
    """Return whether a file is there as it was finished; its content is looked at where it was written after that."""
    status = storage.stat(file.path)
    if status is None or file.bytes is None:
        return status is not None
    if status.bytes != file.bytes:
        return False
    if status.modified_ms <= file.finished_ms:
        return True
    with storage.open(file.path) as content:
        return read_crc32(content, status.bytes) == (file.bytes, file.crc32)


def _newer(storage: Storage, rules: Rules, state: FileSinkState) -> list[str]:
    """Return the finished files with names that were not given out, or not finished, when the state was decided."""
    counters, unfinished = state.counters, {join(part.bucket, part.name) for part in state.files}
    paths = []
    for entry in storage.list():
        numbers = numbers_of(rules.prefix, rules.suffix, entry.path)
        if numbers and (numbers[1] >= counters.get(numbers[0], 0) or entry.path in unfinished):
            paths.append(entry.path)
    return sorted(paths)


def restore(
    storage: Storage, rules: Rules, state: FileSinkState, savepoint: Storage, folder: str, then: NewerOutput
) -> FileSinkState:
    """Copy saved segments in under this job's names and return the state that names them; see `Portable.restore`."""
    there = _newer(storage, rules, state)

    def moved(path: str) -> str:
        return path.replace(f".inprogress.{state.tag}-", f".inprogress.{rules.tag}-")

    for segment in state.segments:
        storage.delete(moved(segment.path))  # of a restore that was killed: nobody else gives names with this tag
        copy(savepoint, f"{folder}/{segment.path}", storage, moved(segment.path))
    if then == "retract":
        for path in there:
            storage.delete(path)
        if rules.partition_commit is not None:  # partitions that were complete behind the savepoint are not any more
            again = [
                *(state.partitions.since_ms if state.partitions else ()),
                *(path.rpartition("/")[0] for path in there),
            ]
            remove_success_files(storage, rules.partition_commit, again)
    counters = dict(state.counters)
    if then != "retract":  # counters go on behind the files that are there
        for subtask, counter in filter(None, (numbers_of(rules.prefix, rules.suffix, path) for path in there)):
            counters[subtask] = max(counters.get(subtask, 0), counter + 1)

    def renamed(part: OpenPart) -> OpenPart:
        segments = [replace(segment, path=moved(segment.path)) for segment in part.segments]
        name = part.name
        if there and then != "retract":
            name = final_name(rules.prefix, part.subtask, counters.get(str(part.subtask), 0), rules.suffix)
            counters[str(part.subtask)] = counters.get(str(part.subtask), 0) + 1
        return replace(part, name=name, segments=segments)

    parts, compaction = [renamed(part) for part in state.parts], state.compaction
    if compaction is not None:
        files = [(each, renamed(each.file)) for each in compaction.waiting]
        waiting = [replace(each, file=replace(file, file=moved(each.file.file))) for each, file in files]
        compaction = replace(compaction, waiting=waiting)
    partitions = state.partitions
    if partitions is not None and (state.root or rules.root) != rules.root:
        partitions = replace(partitions, since_ms={})  # what was finished of them is in the old place
    # Where the sink begins in a new place, what was finished in the old one is nothing to count on.
    newest = {subtask: file for subtask, file in state.newest.items() if _holds(storage, file)}
    return replace(
        state,
        tag=rules.tag,
        root=rules.root,
        counters=counters,
        parts=parts,
        compaction=compaction,
        closing=[],
        newest=newest,
        partitions=partitions,
    )


def check_names(storage: Storage, state: FileSinkState) -> None:
    """Raise DefinitionError unless segments have names that only unfinished data has: nothing else may be written or removed."""
    for path in (segment.path for segment in state.segments):
        name = path.rpartition("/")[2]
        if not name.startswith(".") or f".inprogress.{state.tag}-" not in name or ".." in path.split("/"):
            raise DefinitionError(
                f"the savepoint names {path!r} as unfinished data for {storage.root}, which it is not",
                next="copy the savepoint again from where it was taken",
            )
