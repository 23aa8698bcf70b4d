"""Finished files by multipart upload: tasks send the parts to the name the file will have, the driver lets it appear.

Nothing is copied, and nothing is visible before the decision. A name is unique to its attempt, and the object carries a
mark, so that whether a file appeared can be asked for at any time and by anyone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import BinaryIO, cast

from poundlock.checkpoint.participant import Finding, Orphan
from poundlock.connectors.files.file_values import FileCommittable, FileSegment, PreparedFile, SentParts
from poundlock.connectors.files.sink.names import uploaded_by
from poundlock.errors import TerminalError, TransientError
from poundlock.storage.base import Storage
from poundlock.storage.uploads import PartsWriter, Upload, UploadGone, Uploads, shown_mark

_NEXT = "keep other programs and lifecycle rules from aborting uploads there; the checkpoint is repeated"


class UploadWriter(PartsWriter):
    """Writes a file that appears when the driver says so; closing it sends the last part."""

    def __init__(self, uploads: Uploads, path: str) -> None:
        super().__init__(uploads, path, hashlib.sha256(path.encode()).hexdigest()[:32], path)
        self.begin()

    @property
    def upload(self) -> SentParts:
        """What it takes to complete it, or to find that it is."""
        return SentParts(self.begin(), self.mark, self.tags)

    def finish(self) -> None:
        """Leave it as it is: the driver completes it once it is decided."""


def open_upload(storage: Storage, path: str) -> BinaryIO:
    """Begin an upload for a finished file; the handle is an `UploadWriter`."""
    return cast(BinaryIO, UploadWriter(of_storage(storage), path))


def of_storage(storage: Storage) -> Uploads:
    """Return the storage as one with uploads. Raises TerminalError where it has none: the sink's folder was another."""
    if not isinstance(storage, Uploads):
        raise TerminalError(
            f"{storage.root} has no uploads, and the checkpoint names some",
            next="set the sink's path back to where the checkpoint wrote to",
        )
    return storage


def verify_upload(storage: Storage, piece: PreparedFile, upload: SentParts, sink: str) -> None:
    """Raise TransientError unless an upload is there with all its parts."""
    path = piece.path
    try:
        parts = of_storage(storage).uploaded(path, upload.id)
    except OSError as error:
        raise TransientError(
            f"cannot look at the upload of {storage.root}/{path}: {error.strerror or error}"
        ) from error
    if parts is None:
        raise TransientError(f"the upload of {storage.root}/{path} is gone", next=_NEXT, participant=sink)
    size = sum(bytes for _, _, bytes in parts)
    if [tag.strip('"') for _, tag, _ in parts] != [tag.strip('"') for tag in upload.tags] or size != piece.bytes:
        raise TransientError(
            f"the upload of {storage.root}/{path} has {size} bytes in {len(parts)} parts instead of "
            f"{piece.bytes} in {len(upload.tags)}",
            next=_NEXT,
            participant=sink,
        )


def complete(storage: Storage, segment: FileSegment) -> None:
    """Let the file of an upload appear, or find that it did; idempotent, from any process.

    Raises:
        OSError: the outcome is not known.
        TerminalError: the upload is gone and the file is not there, or the name is another's.
    """
    uploads, path, upload = of_storage(storage), segment.path, segment.upload
    assert upload is not None
    try:
        uploads.complete_upload(path, upload.id, upload.tags)
    except (UploadGone, FileExistsError) as error:
        taken = isinstance(error, FileExistsError)
        mark = uploads.mark_of(path) if taken else shown_mark(uploads, path)
        if mark is None:
            if taken or uploads.uploaded(path, upload.id) is not None:
                raise  # the name was taken a moment ago, or the upload is there after all: asked for again
            raise TerminalError(
                f"{storage.root}/{path} was decided, but neither it nor its upload exists",
                next="look for who aborts uploads or deletes files there; then restart from an earlier savepoint",
            ) from error
        if mark != upload.mark:
            raise TerminalError(
                f"{storage.root}/{path} is decided for this job, but an object of another origin has that name",
                next=f"move {path} away and start again",
            ) from error
        if taken:
            uploads.abort_upload(path, upload.id)  # some servers keep it when the file is there


def left_uploads(storage: Storage, tag: str, known: set[str], joined: Sequence[str]) -> list[tuple[Upload, Orphan]]:
    """Return the uploads of this job's sink that nothing names; others' are never among them.

    What is still needed is `known`, as `known_as` says. The files that the newest decision made of several hidden ones (`joined`) are all
    there: whatever else is on its way to their names can never appear, because nothing replaces a file.
    """
    if not isinstance(storage, Uploads):
        return []
    left = [
        (upload, Orphan(f"{storage.root}/{upload.path}", 0, upload.begun_ms))
        for upload in storage.uploads()
        if (uploaded_by(upload.path, tag) or upload.path in joined) and f"upload {upload.id}" not in known
    ]
    return sorted(left, key=lambda pair: (pair[0].path, pair[0].id))


def inspect_upload(storage: Storage, committable: FileCommittable) -> Sequence[Finding]:
    """Compare a decided upload with what is there."""
    uploads, segment = of_storage(storage), committable.segments[0]
    path, upload, expected = segment.path, segment.upload, committable.bytes
    assert upload is not None
    place = f"{storage.root}/{path}"
    mark = uploads.mark_of(path)
    if mark is None:
        open_parts = uploads.uploaded(path, upload.id)
        mark = uploads.mark_of(path)  # it may have appeared since the first look
        if mark is None:
            return [Finding("missing" if open_parts is None else "pending", place, expected)]
    status = storage.stat(path)
    size = None if status is None else status.bytes
    if size != expected:
        return [Finding("size", place, expected, size)]
    return [] if mark == upload.mark else [Finding("foreign", place, expected, size)]
