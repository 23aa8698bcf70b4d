"""A file sink without its job's code: what it says of itself, and how what it made compares with what was decided.

Nothing is changed here; a file that a driver makes visible at this very moment is never called missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from poundlock.checkpoint.participant import JSON, Finding
from poundlock.connectors.files.file_values import FileCommittable, FileSegment, FileSinkState
from poundlock.connectors.files.sink.committer import Merger, holds
from poundlock.connectors.files.sink.multipart import inspect_upload
from poundlock.errors import DefinitionError
from poundlock.storage import open_storage

if TYPE_CHECKING:
    from poundlock.connectors.files.sink.sink import FileSink
    from poundlock.storage.base import Storage


KIND = "files"
FORMAT = 1
_SETTINGS = ("row", "format", "prefix", "suffix", "compression", "header", "tag")


def describe(sink: FileSink) -> JSON:
    """Return what it takes to sweep, inspect and commit again; buckets, rolling and columns are the writers' matter."""
    chosen = {name: getattr(sink, name) for name in _SETTINGS}
    return {"v": FORMAT, "kind": KIND, "path": open_storage(sink.path).root, **chosen}


def settings(description: JSON) -> dict[str, Any]:
    """Return the arguments for the sink that was described.

    Raises:
        DefinitionError: the description has a format that this version does not know.
    """
    if description.get("v") != FORMAT:
        raise DefinitionError(
            f"a file sink is described in format {description.get('v')!r}, which this version does not know",
            next="use the version of poundlock that ran the job",
        )
    return {name: description[name] for name in ("path", *_SETTINGS)}


def inspect(storage: Storage, committable: FileCommittable, merger: Merger) -> Sequence[Finding]:
    """Compare one decided file with what is there.

    Args:
        storage: the folder it was staged in.
        committable: as `staging.stage` made it.
        merger: recognises what it joined.
    """
    final, segments = committable.final, committable.segments
    if committable.upload is not None:
        return inspect_upload(storage, committable)
    path = f"{storage.root}/{final}"
    expected = None if committable.merged_by_record else committable.bytes
    status = storage.stat(final)
    left = [segment for segment in segments if storage.stat(segment.path) is not None]
    if status is None and len(left) == len(segments):
        return _segments(storage, segments) or [Finding("pending", path, expected)]
    status = status or storage.stat(final)  # its segments may have become the file since the first look
    if status is None:
        return [Finding("missing", path, expected)]
    if not holds(storage, committable, merger):
        problem = expected is not None and status.bytes != expected
        return [Finding("size" if problem else "foreign", path, expected, status.bytes)]
    return [Finding("pending", path, expected, status.bytes)] if left else []


def inspect_state(storage: Storage, state: FileSinkState) -> Sequence[Finding]:
    """Compare the segments that wait for a later decision with what is there."""
    return _segments(storage, state.segments)


def _segments(storage: Storage, segments: Sequence[FileSegment]) -> list[Finding]:
    findings = []
    for segment in segments:
        path, expected = f"{storage.root}/{segment.path}", segment.bytes
        status = storage.stat(segment.path)
        if status is None:
            findings.append(Finding("missing", path, expected))
        elif status.bytes != expected:
            findings.append(Finding("size", path, expected, status.bytes))
    return findings
