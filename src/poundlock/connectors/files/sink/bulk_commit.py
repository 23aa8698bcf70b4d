"""Many files made visible at once: one sync a folder on a local disk, threads where every call is a round trip.

What becomes of a file is what `committer.commit` says of it; an outcome is given only when it is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from poundlock.checkpoint.participant import JSON, CommitOutcome, Committed, Prepared
from poundlock.connectors.files.file_values import FileCommittable
from poundlock.connectors.files.sink.committer import Merger, commit, verify
from poundlock.errors import CommitUnknown
from poundlock.storage import LocalStorage, Storage
from poundlock.storage.deferred import DeferredStorage

_THREADS = 32
_BATCH = 1024


def verify_many(storage: Storage, prepared: Sequence[Prepared]) -> None:
    """Do what `committer.verify` does, with many requests at once where the folder is on another machine.

    Raises:
        TransientError: a segment is gone, changed, or cannot be looked at.
    """
    if isinstance(storage, LocalStorage) or len(prepared) <= 1:
        return verify(storage, prepared)
    with ThreadPoolExecutor(min(_THREADS, len(prepared)), "poundlock-verify") as pool:
        for _ in pool.map(lambda item: verify(storage, [item]), prepared):
            pass
    return None


def commit_many(
    open_folder: Callable[[str], Storage], committables: Iterable[JSON], merger: Merger
) -> Iterator[CommitOutcome]:
    """Make files visible; yield an outcome for each, in order.

    Args:
        open_folder: returns the storage of a folder; files of one sink may be in several, after its path was changed.
        committables: as `staging.stage` made them. Each is begun as soon as it is asked for.
        merger: joins segments of a bulk format.
    """
    folders: dict[str, Storage] = {}
    remaining = iter(committables)
    while batch := _begin(islice(remaining, _BATCH), folders, open_folder, merger):
        yield from batch


def _begin(
    committables: Iterable[JSON], folders: dict[str, Storage], open_folder: Callable[[str], Storage], merger: Merger
) -> list[CommitOutcome]:
    """Commit a batch; return the outcomes when all are durable."""
    deferred: dict[str, DeferredStorage] = {}
    begun: deque[tuple[str, CommitOutcome | Future[CommitOutcome]]] = deque()
    with ThreadPoolExecutor(_THREADS, "poundlock-commit") as pool:  # a thread starts when there is work for it
        for committable in map(FileCommittable.of, committables):
            root = committable.root
            storage = folders.get(root) or folders.setdefault(root, open_folder(root))
            if isinstance(storage, LocalStorage):
                waiting = deferred.setdefault(root, DeferredStorage(storage.root))
                begun.append((root, _commit(waiting, committable, merger)))
            else:
                begun.append((root, pool.submit(_commit, storage, committable, merger)))
    failed = {root: error for root, storage in deferred.items() if (error := _finish(storage)) is not None}
    return [
        failed[root] if root in failed and isinstance(outcome, Committed) else outcome
        for root, one in begun
        for outcome in [one.result() if isinstance(one, Future) else one]
    ]


def _commit(storage: Storage, committable: FileCommittable, merger: Merger) -> CommitOutcome:
    try:
        return commit(storage, committable, merger)
    except Exception as error:
        return error


def _finish(storage: DeferredStorage) -> CommitUnknown | None:
    try:
        storage.finish()
    except OSError as error:
        return CommitUnknown(
            f"making names in {storage.root} durable failed: {error}", next="free the disk or mend the file system"
        )
    return None
