"""What the operating system refuses, in words that a person can act on.

Nothing is decided here: whether work is undone or repeated is up to whoever caught the error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from poundlock.errors import DefinitionError, PoundlockError, TransientError, next_of
from poundlock.storage import is_uri
from poundlock.storage.base import Remote, Storage

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
_REFUSED = (*_NOT_ALLOWED, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL, errno.ENAMETOOLONG, errno.ELOOP)


def is_full(error: OSError) -> bool:
    """Return whether a file operation failed because a disk or a quota is full."""
    return error.errno in _FULL


def storage_trouble(error: OSError, *, doing: str, starting: bool = False) -> PoundlockError:
    """Return the error to raise for a failed file operation, such as of "recording checkpoint 7".

    While a job is starting, nothing has run yet, and a path that cannot be written is its definition at fault.
    """
    path = str(error.filename2 or error.filename or "")
    # A folder that is named already says more than a temporary file in it.
    place = f" ({path})" if path and os.path.dirname(path) not in doing else ""
    if is_full(error):
        full = error.strerror if error.errno == errno.EDQUOT else "disk full"
        return TransientError(
            f"{full} while {doing}{place}",
            next="free some space; the job goes on from its last checkpoint, nothing is lost",
        )
    if error.errno in _REFUSED:
        kind = DefinitionError if starting else TransientError
        return kind(
            f"{error.strerror} while {doing}{place}",
            next=next_of(error, "let the user that runs the job write there, or choose another path"),
        )
    return TransientError(
        f"{error.strerror or type(error).__name__} while {doing}{place}",
        next=next_of(error, "look at the disk or mount; the job goes on from its last checkpoint when it answers"),
    )


def commit_failed(error: OSError, *, doing: str) -> tuple[str, str]:
    """Return what to say and what to type where a file operation of a commit failed, such as "writing the manifest": asking again is safe."""
    if is_full(error):
        return _both(storage_trouble(error, doing=doing))
    return f"{doing} failed: {error}", next_of(error, "free the disk or mend the file system")


def writing_failed(error: OSError, *, doing: str) -> tuple[str, str]:
    """Return what to say and what to type where a task could not write, such as "writing files in /out": nothing of it is visible."""
    if is_full(error):
        return _both(storage_trouble(error, doing=doing))
    next = next_of(error, "free space or mend the file system; the checkpoint is repeated")
    return f"{doing} failed: {error.strerror or error}", next


def _both(trouble: PoundlockError) -> tuple[str, str]:
    return trouble.what, trouble.next


def unreadable(error: OSError) -> PoundlockError | None:
    """Return what a command says about a folder that the store or the system does not let it look at; None for other errors."""
    path = error.filename
    if error.errno is None or not isinstance(path, str) or not (is_uri(path) or error.errno in _REFUSED):
        return None
    refused = getattr(error, "refused", False) or error.errno in _REFUSED
    what = f"{path} cannot be reached: {error.strerror or type(error).__name__}"
    if error.errno in _NOT_ALLOWED:
        other = "let this user read and write there, or type the command as the user that runs the job"
    elif is_uri(path):
        other = "look at the address, and that what it names is up; then type the command again"
    else:
        other = "correct the path: something else is there, or nothing can be"
    return (DefinitionError if refused else TransientError)(what, next=next_of(error, other))


def refuse_unreachable(storage: Storage, *, what: str) -> None:
    """Raise DefinitionError unless a storage answers, within seconds; `what` it is to the job, such as "the checkpoint"."""
    if not isinstance(storage, Remote):
        return
    try:
        storage.check_reachable()
    except OSError as error:
        raise DefinitionError(
            f"{what} {storage.root} cannot be reached: {error.strerror or error}",
            next=next_of(error, "start the cluster it is on, or correct its address"),
        ) from error


@contextmanager
def explained(
    doing: str, *, job: str | None = None, checkpoint: int | None = None, starting: bool = False
) -> Iterator[None]:
    """Turn OSErrors of a block into PoundlockErrors, and let every PoundlockError say its job and checkpoint."""
    try:
        yield
    except PoundlockError as error:
        error.job = error.job or job
        error.checkpoint = checkpoint if error.checkpoint is None else error.checkpoint
        raise
    except OSError as error:
        trouble = storage_trouble(error, doing=doing, starting=starting)
        trouble.job, trouble.checkpoint = job, checkpoint
        raise trouble from error
