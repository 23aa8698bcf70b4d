"""What commits a partition, behind the decision and behind all of its files: success files, and functions of the user's.

A success file is idempotent by its path: it is empty, and writing it again changes nothing but its time. A function is called again where a crash
leaves open whether it was, so it is to be idempotent by the partition's path, and by the version of a bucket that is sealed. The manifest of a seal, which
comes first, is idempotent by the number of the seal.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import msgspec

from poundlock.arguments import function_name
from poundlock.checkpoint.participant import Committed
from poundlock.connectors.files.partitions.commit import AnyPolicy, CommittedPartition, CompletionRule
from poundlock.connectors.files.partitions.manifest_names import name_of
from poundlock.connectors.files.partitions.manifests import Seal, later_manifests, path_in, write_manifest
from poundlock.connectors.files.partitions.sealed import SealedBucket, SealedFile
from poundlock.errors import CommitUnknown, TerminalError
from poundlock.storage import Storage
from poundlock.storage.storage_errors import commit_failed

_ONE_BY_ONE = threading.Lock()
"""Functions of the user's are called one after the other, whatever thread commits."""
_CALL = "call"
_FILE = "file "


class PartitionMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What commits a partition, as a decision names it: in order, "file" and a name, or "call" for each function."""

    steps: tuple[str, ...]
    seal: Seal | None = None  # the manifest that comes before them

    @classmethod
    def of(cls, commit: CompletionRule, seal: Seal | None = None) -> PartitionMark:
        """Return what a commit does."""
        return cls(tuple(f"{_FILE}{each}" if isinstance(each, str) else _CALL for each in commit.steps), seal)

    @property
    def files(self) -> list[str]:
        """The names of its success files."""
        return [step.removeprefix(_FILE) for step in self.steps if step.startswith(_FILE)]


def commit_partition(
    storage: Storage, bucket: str, tag: str, mark: PartitionMark, commit: CompletionRule | None
) -> Committed:
    """Commit a partition; idempotent, from any process that has its functions.

    Args:
        tag: stands for job and sink, in manifests.
        commit: as the sink says it now; None = it says nothing of partitions any more, or was made without the job's code.

    Raises:
        CommitUnknown: the file system or a function failed; asking again is safe.
        TerminalError: functions are to be called that are not there.
    """
    calls = iter([] if commit is None else commit.functions)
    partition = CommittedPartition(storage.root, bucket)
    if mark.seal is not None:
        partition = _sealed(storage, bucket, tag, mark.seal)
    for step in mark.steps:
        if step == _CALL:
            _call(next(calls, None), partition)
            continue
        path = path_in(bucket, step.removeprefix(_FILE))
        try:
            write_success_file(storage, path)
        except OSError as error:
            raise _unknown(error, f"{storage.root}/{path}") from error
    return Committed({"partition": partition.path})


def _sealed(storage: Storage, bucket: str, tag: str, seal: Seal) -> SealedBucket:
    """Write the manifest of a seal and return what it says."""
    try:
        made = write_manifest(storage, bucket, tag, seal)
    except OSError as error:
        raise _unknown(error, f"the manifest of {storage.root}/{bucket}") from error
    files = [SealedFile(each.path, each.rows, each.bytes, each.version) for each in made.files]
    path = path_in(bucket, name_of(seal.manifest, made.version))
    return SealedBucket(storage.root, bucket, made.version, f"{storage.root}/{path}", files)


def _unknown(error: OSError, what: str) -> CommitUnknown:
    text, next = commit_failed(error, doing=f"writing {what}")
    return CommitUnknown(text, next=next)


def _call(function: AnyPolicy | None, partition: CommittedPartition) -> None:
    if function is None:
        raise TerminalError(
            f"the partition {partition.path} is decided, and its commit policy is a function that is not here",
            next="start the job with the partition_commit that it had: its next start calls it",
        )
    try:
        with _ONE_BY_ONE:
            function(partition)
    except Exception as error:
        raise CommitUnknown(
            f"the commit policy {function_name(function)} failed for {partition.path}: {type(error).__name__}: {error}",
            next="mend the function or what it calls; it is called again",
        ) from error


def write_success_file(storage: Storage, path: str) -> None:
    """Write an empty file, or write it over. Raises OSError."""
    if not storage.create_exclusive(path, b""):
        storage.replace(path, b"")


def remove_success_files(storage: Storage, commit: CompletionRule, buckets: Iterable[str]) -> None:
    """Remove the success files of partitions that are not complete any more; none is no error. Raises OSError."""
    for name in commit.success_files:
        for bucket in sorted(set(buckets)):
            storage.delete(path_in(bucket, name))


def remove_manifests(storage: Storage, manifest: str, buckets: Iterable[str], seals: int) -> None:
    """Remove the manifests of seals beyond a number of them, the newest first; none is no error. Raises OSError and TerminalError."""
    for bucket in sorted(set(buckets)):
        for path in list(later_manifests(storage, bucket, manifest, seals)):
            storage.delete(path)
