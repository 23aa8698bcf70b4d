"""Manifests of sealed buckets: a file for each version, made once and never changed; the newest names all files of its bucket.

What writes one knows it again by the sink's tag and its number of the seal, so that a seal is repeated by any process without a second version; two processes
at once cannot make the same version, because a name is given once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

import msgspec

from poundlock.connectors.files.partitions.manifest_names import name_of, pattern_of
from poundlock.errors import TerminalError
from poundlock.storage import Storage
from poundlock.storage.json_record import typed


class BucketFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a bucket, as a decision made it visible."""

    name: str  # below the bucket
    rows: int
    bytes: int | None = None  # None where it is merged by record, so that only the file tells
    # bounds of its event times, ms since the epoch; None where there are none
    min_ms: int | None = None
    max_ms: int | None = None


class Seal(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a decision says of a bucket that it seals."""

    number: int  # of the sink's seals, in their order
    sealed_ms: int  # the clock of the decision, ms since the epoch
    manifest: str  # name of manifests, with {version}
    names: str  # regular expression of the names of the sink's files
    files: Sequence[BucketFile] = ()  # that are new since the last seal, or the first row


class ManifestFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a manifest; `rows` is None where it was there before the sink sealed buckets."""

    path: str  # below the sink's folder
    rows: int | None
    bytes: int
    # ms since the epoch
    min_event_ms: int | None
    max_event_ms: int | None
    version: int  # of the manifest that named it first


class BucketManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a bucket: what a reader may rely on."""

    FORMAT: ClassVar[int] = 1

    v: int
    bucket: str
    version: int
    sealed_ms: int  # ms since the epoch
    sink_tag: str  # stands for job and sink
    seal: int  # number of the sink's seal
    rows: int
    bytes: int
    files: Sequence[ManifestFile]


def path_in(bucket: str, name: str) -> str:
    """Return the path of a name in a bucket."""
    return f"{bucket}/{name}" if bucket else name


def versions(storage: Storage, bucket: str, manifest: str) -> list[int]:
    """Return the versions that a bucket has, the newest first. Raises OSError."""
    return _versions(storage.names(bucket or "."), manifest)


def _versions(names: Sequence[str], manifest: str) -> list[int]:
    pattern = pattern_of(manifest)
    return sorted((int(match[1]) for name in names if (match := pattern.fullmatch(name))), reverse=True)


def read_manifest(storage: Storage, bucket: str, manifest: str, version: int) -> BucketManifest:
    """Return a version.

    Raises:
        OSError: it cannot be read.
        TerminalError: it is no manifest, or of a newer version of poundlock.
    """
    path = path_in(bucket, name_of(manifest, version))
    try:
        value = msgspec.json.decode(storage.read(path))
        made = typed(value, BucketManifest)
    except (ValueError, msgspec.DecodeError) as error:
        raise TerminalError(
            f"{storage.root}/{path} is no manifest of a sealed bucket: {error}",
            next="move it away, or give SealedBuckets another manifest_name",
        ) from None
    if made.v > BucketManifest.FORMAT:
        raise TerminalError(
            f"{storage.root}/{path} has format {made.v}; this version reads up to {BucketManifest.FORMAT}",
            next="run the version of poundlock that wrote it, or a newer one",
        )
    return made


def newest_manifest(storage: Storage, bucket: str, manifest: str) -> BucketManifest | None:
    """Return the newest version of a bucket, None where it has none. Raises OSError and TerminalError."""
    return next((read_manifest(storage, bucket, manifest, each) for each in versions(storage, bucket, manifest)), None)


def sealed_by(storage: Storage, bucket: str, tag: str, seal: Seal) -> BucketManifest | None:
    """Return the manifest that a seal has written, or a newer one of the same sink; None where it wrote none. Raises OSError and TerminalError."""
    written: BucketManifest | None = None
    for version in versions(storage, bucket, seal.manifest):
        its = read_manifest(storage, bucket, seal.manifest, version)
        if its.sink_tag != tag or its.seal < seal.number:
            break
        written = its
    return written


def write_manifest(storage: Storage, bucket: str, tag: str, seal: Seal) -> BucketManifest:
    """Write the version that a seal makes, or find that it is written; idempotent by the sink's tag and the seal's number, from any process.

    Raises:
        OSError: the file system failed; asking again is safe.
        TerminalError: what has the name of the newest version is no manifest.
    """
    while True:
        if (done := sealed_by(storage, bucket, tag, seal)) is not None:
            return done
        names = storage.names(bucket or ".")
        known = _versions(names, seal.manifest)
        before = read_manifest(storage, bucket, seal.manifest, known[0]) if known else None
        made = _following(storage, bucket, tag, seal, before, names)
        path = path_in(bucket, name_of(seal.manifest, made.version))
        if storage.create_exclusive(path, msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"):
            return made


def _following(
    storage: Storage, bucket: str, tag: str, seal: Seal, before: BucketManifest | None, names: Sequence[str]
) -> BucketManifest:
    version = 1 if before is None else before.version + 1
    new = [_file(storage, bucket, each, version) for each in seal.files]
    if before is None:  # of a sink that has written into the bucket before it sealed any
        theirs, pattern = {each.name for each in seal.files}, re.compile(seal.names)
        old = sorted(name for name in names if name not in theirs and pattern.fullmatch(name))
        earlier = [_unlisted(storage, path_in(bucket, name), version) for name in old]
    else:
        earlier = list(before.files)
    files = [*earlier, *new]
    return BucketManifest(
        v=BucketManifest.FORMAT,
        bucket=bucket,
        version=version,
        sealed_ms=seal.sealed_ms,
        sink_tag=tag,
        seal=seal.number,
        rows=sum(file.rows or 0 for file in files),
        bytes=sum(file.bytes for file in files),
        files=files,
    )


def _file(storage: Storage, bucket: str, file: BucketFile, version: int) -> ManifestFile:
    path = path_in(bucket, file.name)
    known = file.bytes if file.bytes is not None else _size(storage, path)
    return ManifestFile(
        path=path, rows=file.rows, bytes=known, min_event_ms=file.min_ms, max_event_ms=file.max_ms, version=version
    )


def _unlisted(storage: Storage, path: str, version: int) -> ManifestFile:
    return ManifestFile(
        path=path, rows=None, bytes=_size(storage, path), min_event_ms=None, max_event_ms=None, version=version
    )


def _size(storage: Storage, path: str) -> int:
    status = storage.stat(path)
    if status is None:
        raise TerminalError(
            f"{storage.root}/{path} is gone before its bucket was sealed",
            next="restore it from a backup; fsck lists it",
        )
    return status.bytes


def later_manifests(storage: Storage, bucket: str, manifest: str, seals: int) -> Iterator[str]:
    """Yield the paths of the versions that seals with numbers beyond `seals` have written. Raises OSError and TerminalError."""
    for version in versions(storage, bucket, manifest):
        if read_manifest(storage, bucket, manifest, version).seal > seals:
            yield path_in(bucket, name_of(manifest, version))
