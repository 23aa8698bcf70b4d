"""The driver's hands of the file sink: verify, commit, abort, sweep, preflight, over a storage and with no memory.

A finished file is never deleted but by a decision that names it, nor is another byte written to it; its name is given by one rename that refuses to
overwrite. Many are made visible at once: with one sync a folder on a local disk, by threads where every call is a round trip. So are many looked at, and removed.
"""

from __future__ import annotations

import errno
import hashlib
import uuid
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from io import BufferedReader, RawIOBase
from itertools import groupby, islice
from math import ceil
from typing import TYPE_CHECKING, TypeGuard, TypeVar, cast

from poundlock.checkpoint.participant import JSON, CommitOutcome, Committed, Leftover, Orphan, Prepared
from poundlock.connectors.commit_threads import call_each
from poundlock.connectors.examination import Examination
from poundlock.connectors.files.file_values import FileCommittable, FileSinkState, PreparedFile
from poundlock.connectors.files.partitions.policies import commit_partition
from poundlock.connectors.files.sink.multipart import complete, inspect_upload, left_uploads, of_storage, verify_upload
from poundlock.connectors.files.sink.names import made_for, merging_name, ours
from poundlock.connectors.files.sink.overwriting import remove_replaced
from poundlock.errors import CommitUnknown, DefinitionError, TerminalError, TransientError, next_of
from poundlock.storage import LocalStorage, Storage
from poundlock.storage.at_once import at_once
from poundlock.storage.base import OutcomeUnknown
from poundlock.storage.deferred import DeferredStorage
from poundlock.storage.local import WrongLength
from poundlock.storage.probe import standing, try_writing
from poundlock.storage.storage_errors import commit_failed, explained, is_full, refuse_unreachable, storage_trouble
from poundlock.storage.uploads import Uploads
from poundlock.threads import call_all

if TYPE_CHECKING:
    from poundlock.connectors.files.partitions.commit import CompletionRule
    from poundlock.formats.encode_bulk import BulkMerger

_BLOCK = 1 << 20
_BATCH = 1024  # files of a local folder that become durable together
_T = TypeVar("_T")
_R = TypeVar("_R")

THREADS = 128
"""So many calls to a store on another machine are on their way at once.

At 20 ms a call that is 6,400 calls a second, more than a store takes of one client in one folder (S3: 3,500 writes), and some 10 MB of the
driver's memory while it lasts.
"""

DRIVER_S, TASK_S = 2.0, 0.5  # CPU of a client that the driver, and a task, spend on calls


def verify(storage: Storage, item: Prepared) -> None:
    """Raise TransientError unless a segment is there with the size its task reported."""
    piece = PreparedFile.of(item.payload)
    if piece.upload is not None:
        verify_upload(storage, piece, piece.upload, item.sink)
        return
    path, expected = piece.path, piece.bytes
    try:
        status = storage.stat(path)
    except OSError as error:
        raise TransientError(f"cannot look at the segment {storage.root}/{path}: {error}") from error
    if status is None or status.bytes != expected:
        seen = "is gone" if status is None else f"has {status.bytes} bytes instead of {expected}"
        raise TransientError(
            f"the segment {storage.root}/{path} {seen}",
            next="keep other programs from touching hidden files there; the checkpoint is repeated",
            participant=item.sink,
        )


def commit(
    storage: Storage, committable: FileCommittable, merger: BulkMerger, partitions: CompletionRule | None = None
) -> Committed:
    """Make the file of a committable visible, or find that it is, or commit its partition; idempotent, from any process.

    Args:
        partitions: what the sink says of them, for functions that commit them.

    Raises:
        CommitUnknown: the file system failed; asking again is safe.
        TerminalError: neither the file nor its segments exist, one of them is too short or long, or the name is taken by a file that is not ours.
    """
    if committable.mark is not None:
        return commit_partition(storage, committable.bucket, committable.tag, committable.mark, partitions)
    final, segments = committable.final, [segment.path for segment in committable.segments]
    try:
        if not segments:
            pass  # there is no file, and old ones go
        elif (upload := committable.upload) is not None:
            complete(storage, upload)
        elif len(segments) > 1 or not _moved(storage, segments[0], final):
            if storage.stat(final) is not None or not _publish(storage, committable, segments, merger):
                _recognise(storage, committable, merger)
            if isinstance(storage, LocalStorage):
                for path in segments:
                    storage.delete(path)
            else:
                at_once(storage.delete, segments)
        remove_replaced(storage, committable)
    except WrongLength as error:
        raise TerminalError(
            f"{storage.root}/{final} was decided, but one of its segments is not what was written: {error}",
            next=_restored(storage),
        ) from error
    except OSError as error:
        more = ", or removing what it replaces," if committable.replaces else ""
        text, next = commit_failed(error, doing=f"making {storage.root}/{final} visible{more}")
        raise CommitUnknown(text, next=next) from error
    return Committed({"path": f"{storage.root}/{final}", "rows": committable.rows, "bytes": committable.bytes})


def _moved(storage: Storage, segment: str, final: str) -> bool:
    """Give a single segment its final name, by the one call that mostly is all there is to do; return whether it has it by that."""
    try:
        storage.rename(segment, final)
    except (FileNotFoundError, FileExistsError):
        return False
    return True


def _publish(storage: Storage, committable: FileCommittable, segments: Sequence[str], merger: BulkMerger) -> bool:
    """Give the content its final name; return False where content is missing or the name was taken meanwhile."""
    final = committable.final
    source = segments[0]
    try:
        if grows(storage, committable):
            # Mostly the first one is nearly all of the file, so the others come to it, each to its place.
            first, *others = committable.segments
            storage.extend(first.path, first.bytes, [(segment.path, segment.bytes) for segment in others])
        elif len(segments) > 1:
            # Where an object appears whole under any name, a hidden one in between would only be copied once more.
            source = final if storage.moves_by_copy else merging_name(final, committable.tag)
            if committable.merged_by_record:
                merger.merge(storage, committable.kind, segments, source, _marker(segments))
            else:
                storage.concat(segments, source)
        if source != final:
            storage.rename(source, final)
    except (FileNotFoundError, FileExistsError):
        if source not in (segments[0], final):
            storage.delete(source)
        return False
    return True


def grows(storage: Storage, committable: FileCommittable) -> TypeGuard[LocalStorage]:
    """Return whether the first segment becomes the file, with the others behind it, so that it may be longer than it was written."""
    several = len(committable.segments) > 1
    return several and isinstance(storage, LocalStorage) and not committable.merged_by_record


def _recognise(storage: Storage, committable: FileCommittable, merger: BulkMerger) -> None:
    """Raise TerminalError unless the final name already holds this committable's content, or still can be given to it."""
    final = committable.final
    if storage.stat(final) is None:
        first = committable.segments[0].path
        if all(storage.stat(segment.path) is not None for segment in committable.segments):
            # Else what failed was a name in between: another driver swept it, or a repeated request met its own work.
            raise OSError(
                errno.EAGAIN, "a folder or a link has that name, or what was being made was taken away", first
            )
        raise TerminalError(
            f"{storage.root}/{final} was decided, but neither it nor all of its segments exist: {first} …",
            next=_restored(storage),
        )
    if not holds(storage, committable, merger):
        raise TerminalError(
            f"{storage.root}/{final} is decided for this job, but a file of another origin has that name",
            next=f"move {final} away and start again; jobs that share a folder need different prefix=…",
        )
    storage.settle(final)


def _restored(storage: Storage) -> str:
    return f"restore the hidden files of {storage.root}, or restart from an earlier savepoint"


def holds(storage: Storage, committable: FileCommittable, merger: BulkMerger) -> bool:
    """Return whether the final name has this committable's content.

    The rename took the last trace of a single segment away, so then the size has to do. Where segments are still there
    they were merged, or moved by linking, or the name was taken before us: contents are compared, or the marker that a
    merge by record leaves in its file.
    """
    final, segments = committable.final, [segment.path for segment in committable.segments]
    if committable.upload is not None:
        return not inspect_upload(storage, committable)
    status = storage.stat(final)
    if status is None:
        return False
    if committable.merged_by_record:
        return merger.recognises(storage, committable.kind, final, _marker(segments))
    if status.bytes != committable.bytes:
        return False
    return any(storage.stat(path) is None for path in segments) or _same(storage, committable)


def _marker(segments: Sequence[str]) -> str:
    """Return what names a merge: segment names are unique to their attempt, so a digest of them is too."""
    return hashlib.sha256("\n".join(segments).encode()).hexdigest()


def _same(storage: Storage, committable: FileCommittable) -> bool:
    """Return whether the file is what its segments hold; the first one may already have the others behind it."""
    # Reads as much as it is asked for, where there is so much.
    with BufferedReader(cast(RawIOBase, storage.open(committable.final)), _BLOCK) as whole:
        for segment in committable.segments:
            left = segment.bytes
            with storage.open(segment.path) as part:
                while block := part.read(min(left, _BLOCK)):
                    if whole.read(len(block)) != block:
                        return False
                    left -= len(block)
            if left:
                return False
        return not whole.read(1)


def abort(storage: Storage, prepared: Prepared) -> None:
    """Delete a segment that no decision names; none is no error."""
    piece = PreparedFile.of(prepared.payload)
    try:
        _remove(storage, piece.path, None if piece.upload is None else piece.upload.id)
    except OSError as error:
        raise TransientError(f"cannot remove {storage.root}/{piece.path}: {error}") from error


def _remove(storage: Storage, path: str, upload: str | None) -> None:
    if upload is None:
        storage.delete(path)
    else:
        of_storage(storage).abort_upload(path, upload)


def leftovers(
    storage: Storage, tag: str, state: FileSinkState, marks: Sequence[Container[str]] = ()
) -> Sequence[Leftover]:
    """Find hidden files and uploads with this job's tag that the state does not name, and success files that were never given their names.

    Args:
        marks: names of success files, and of manifests.
    """
    if not tag:
        return []
    known = state.known
    left = sorted(
        (
            entry
            for entry in storage.list()
            if (ours(entry.path, tag) and entry.path not in known)
            or any(made_for(entry.path) in names for names in marks)
        ),
        key=lambda e: e.path,
    )
    root = storage.root
    files = [
        Leftover(Orphan(f"{root}/{entry.path}", entry.bytes, entry.modified_ms), {"root": root, "path": entry.path})
        for entry in left
    ]
    uploads = left_uploads(storage, tag, known, state.joined or ())
    return files + [
        Leftover(orphan, {"root": root, "path": upload.path, "upload": upload.id}) for upload, orphan in uploads
    ]


def remove(open_folder: Callable[[str], Storage], left: Sequence[Leftover]) -> None:
    """Remove leftovers, of one folder; none that is there is no error. Raises OSError: one of them stays."""
    if left:
        storage = open_folder(left[0].place["root"])
        places = (each.place for each in left)
        _raise_first(_each(storage, lambda place: _remove(storage, place["path"], place.get("upload")), places))


def preflight(storage: Storage) -> None:
    """Raise DefinitionError unless files can be made below the folder, TransientError where its disk is full or it does not say."""
    refuse_unreachable(storage, what="the folder")
    probe = f".poundlock-preflight-{uuid.uuid4().hex}"

    def file() -> None:
        storage.create_exclusive(probe, b"\n")  # a full disk still takes an empty file
        storage.delete(probe)

    try:
        if isinstance(storage, Uploads):
            uploads = storage
            call_all(
                file,
                lambda: uploads.abort_upload(probe, uploads.begin_upload(probe, "")),
                lambda: next(iter(uploads.uploads()), None),
                name="poundlock-preflight",
            )
        else:
            file()
    except OSError as error:
        if is_full(error) or isinstance(error, OutcomeUnknown) or not getattr(error, "refused", True):
            raise storage_trouble(error, doing=f"making a file in {storage.root}", starting=True) from error
        raise DefinitionError(
            f"cannot write to {storage.root}: {error.strerror or error}",
            next=next_of(error, "give the sink a folder this user may write to, or change its owner"),
        ) from error


def examine(storage: Storage) -> Examination:
    """Do what `preflight` does, in the nearest folder that is there, so that nothing stays; raises as it does."""
    refuse_unreachable(storage, what="the folder")
    with explained(f"looking at {storage.root}", starting=True):
        there = standing(storage)
        preflight(there)
        made = [] if there.root == storage.root else [f"the folder {storage.root}"]
        return Examination(made, try_writing(there), there.root)


def verify_many(storage: Storage, prepared: Iterable[Prepared]) -> None:
    """Do what `verify` does for each; raise what the first of them does."""
    _raise_first(_each(storage, lambda item: verify(storage, item), prepared))


def abort_many(storage: Storage, prepared: Iterable[Prepared]) -> Iterator[Exception | None]:
    """Do what `abort` does for each, and yield what it raises, or None."""
    return _each(storage, lambda item: abort(storage, item), prepared)


def pieces(storage: Storage, calls: int) -> int:
    """Return into how many pieces so many calls are cut for tasks; 1 where the driver makes them itself in a moment.

    A Spark job takes some 0.1 s, and longer where it waits for other tasks to end. So the driver keeps what costs its one core, which all
    of its threads share, no more than DRIVER_S; a task then has TASK_S of it.
    """
    seconds = calls * storage.client_s
    return 1 if seconds <= DRIVER_S else ceil(seconds / TASK_S)


def _each(storage: Storage, call: Callable[[_T], _R], items: Iterable[_T]) -> Generator[_R | Exception, None, None]:
    """Yield what a call returns or raises for each item: one after the other on the local disk, whose calls wait for nobody."""
    return call_each(call, items, 1 if isinstance(storage, LocalStorage) else THREADS)


def _raise_first(outcomes: Generator[Exception | None, None, None]) -> None:
    with closing(outcomes):  # what is on its way has ended when this is left
        for outcome in outcomes:
            if outcome is not None:
                raise outcome


def commit_many(
    open_folder: Callable[[str], Storage],
    committables: Iterable[JSON],
    merger: BulkMerger,
    partitions: CompletionRule | None = None,
) -> Iterator[CommitOutcome]:
    """Make files visible; yield an outcome for each, in order. Each is begun as soon as it is asked for.

    Files of one sink may be in several folders, which `open_folder` opens, after its path was changed.
    """
    folders: dict[str, Storage] = {}

    def folder(committable: FileCommittable) -> Storage:
        root = committable.root
        return folders.get(root) or folders.setdefault(root, open_folder(root))

    def of_far(committable: FileCommittable) -> CommitOutcome:
        return commit(folder(committable), committable, merger, partitions)

    for storage, group in groupby(map(FileCommittable.of, committables), folder):
        if isinstance(storage, LocalStorage):
            while batch := _commit_local(DeferredStorage(storage.root), islice(group, _BATCH), merger, partitions):
                yield from batch
        else:
            yield from call_each(of_far, group, THREADS)


def _commit_local(
    storage: DeferredStorage,
    committables: Iterable[FileCommittable],
    merger: BulkMerger,
    partitions: CompletionRule | None,
) -> list[CommitOutcome]:
    """Commit a batch in one folder of the local disk; return the outcomes when all are durable."""
    outcomes: list[CommitOutcome] = list(
        call_each(lambda committable: commit(storage, committable, merger, partitions), committables, 1)
    )
    try:
        storage.finish()
    except OSError as error:
        text, next = commit_failed(error, doing=f"making names in {storage.root} durable")
        unknown = CommitUnknown(text, next=next)
        return [unknown if isinstance(outcome, Committed) else outcome for outcome in outcomes]
    return outcomes
