"""What commits a partition, behind the decision and behind all of its files: success files, and functions of the user's.

A success file is idempotent by its path: it is empty, and writing it again changes nothing but its time. A function is called again where a crash
leaves open whether it was, so it is to be idempotent by the partition's path.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import msgspec

from poundlock.arguments import function_name
from poundlock.checkpoint.participant import Committed
from poundlock.connectors.files.partitions.commit import CommitPolicy, CommittedPartition, PartitionCommit
from poundlock.errors import CommitUnknown, TerminalError, next_of
from poundlock.storage import Storage

_ONE_BY_ONE = threading.Lock()
"""Functions of the user's are called one after the other, whatever thread commits."""
_CALL = "call"
_FILE = "file "


class PartitionMark(msgspec.Struct, frozen=True):
    """What commits a partition, as a decision names it: in order, "file" and a name, or "call" for each function."""

    steps: tuple[str, ...]

    @classmethod
    def of(cls, commit: PartitionCommit) -> PartitionMark:
        """Return what a commit does."""
        file = f"{_FILE}{commit.success_file_name}"
        return cls(tuple(file if isinstance(each, str) else _CALL for each in commit.policies))

    @property
    def files(self) -> list[str]:
        """The names of its success files."""
        return [step.removeprefix(_FILE) for step in self.steps if step.startswith(_FILE)]


def commit_partition(storage: Storage, bucket: str, mark: PartitionMark, commit: PartitionCommit | None) -> Committed:
    """Commit a partition; idempotent, from any process that has its functions.

    Args:
        commit: as the sink says it now; None = it says nothing of partitions any more, or was made without the job's code.

    Raises:
        CommitUnknown: the file system or a function failed; asking again is safe.
        TerminalError: functions are to be called that are not there.
    """
    calls = iter([] if commit is None else commit.functions)
    partition = CommittedPartition(storage.root, bucket)
    for step in mark.steps:
        if step == _CALL:
            _call(next(calls, None), partition)
            continue
        path = _beside(bucket, step.removeprefix(_FILE))
        try:
            write_success_file(storage, path)
        except OSError as error:
            raise CommitUnknown(
                f"writing {storage.root}/{path} failed: {error}",
                next=next_of(error, "free the disk or mend the file system"),
            ) from error
    return Committed({"partition": partition.path})


def _call(function: CommitPolicy | None, partition: CommittedPartition) -> None:
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


def remove_success_files(storage: Storage, commit: PartitionCommit, buckets: Iterable[str]) -> None:
    """Remove the success files of partitions that are not complete any more; none is no error. Raises OSError."""
    for name in commit.success_files:
        for bucket in sorted(set(buckets)):
            storage.delete(_beside(bucket, name))


def _beside(bucket: str, name: str) -> str:
    return f"{bucket}/{name}" if bucket else name
