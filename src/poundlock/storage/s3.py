"""A folder of an S3 bucket as a storage. Every object appears whole and at once; a name that is taken stays as it is.

Decisions are puts with `If-None-Match: *`. An answer that got lost is settled by what the object carries, so that a
repeated request is never taken for another's.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar, cast

from poundlock.errors import DefinitionError, required
from poundlock.storage.at_once import at_once
from poundlock.storage.base import Entry, OutcomeUnknown, Storage
from poundlock.storage.object_files import ObjectFolder
from poundlock.storage.s3_client import S3Address, StoreError, asking, client
from poundlock.storage.uploads import LEAST_PART, PartsWriter, Upload, UploadGone, shown_mark

_MARK = "poundlock"  # the object's metadata that says who wrote it
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LARGEST_COPY = 1 << 30  # bytes of a part that the store copies


def open_s3(path: str) -> S3Storage:
    """Return the storage of an s3:// or s3a:// folder, at the address that the environment says.

    Raises DefinitionError where the path names no bucket, the address is none, or the package for it is not installed.
    """
    scheme, _, rest = path.partition(":")
    bucket, _, prefix = rest[2:].partition("/") if rest.startswith("//") else ("", "", "")
    if "@" in bucket or ":" in bucket:  # a secret may have a slash
        raise DefinitionError(
            f"a path of {scheme}:// carries credentials",
            next="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead, and take them out of the path",
        )
    folders = prefix.strip("/").split("/")
    if not bucket or (folders != [""] and {"", ".", ".."} & set(folders)):
        raise DefinitionError(f"{path} names no folder of a bucket", next=f"write {scheme}://bucket/folder")
    required("botocore", f"{path}: S3", "s3")
    return S3Storage(bucket, prefix.strip("/"), S3Address.from_environment())


@dataclass(frozen=True)
class S3Storage(ObjectFolder):
    """Objects of one bucket, below one prefix. A method without a docstring is as `Storage` and `Uploads` say."""

    client_s: ClassVar[float] = 0.0014  # botocore's, measured: it signs, checks and reads in Python

    bucket: str  # the bucket
    prefix: str = ""  # of every key, without slashes at its ends; "" = the whole bucket
    address: S3Address = field(default_factory=S3Address)  # where S3 is

    @property
    def root(self) -> str:
        """The folder, as a person would write it."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def check_reachable(self, seconds: float = 5) -> None:
        """Raise OSError unless the bucket is there and answers within so many seconds."""
        with asking(self.bucket, self.root):
            asked = client(self.address, quick_s=seconds)
            asked.list_objects_v2(Bucket=self.bucket, Prefix=self._folder(""), MaxKeys=1)

    # Files

    def create_exclusive(self, path: str, data: bytes) -> bool:
        return self._put_new(path, data, uuid.uuid4().hex)

    def replace(self, path: str, data: bytes) -> None:
        self._existing(path)
        self._call("put_object", path, Body=data)

    def read(self, path: str) -> bytes:
        with asking(self.bucket, self._place(path)):
            return cast(bytes, self._client.get_object(Bucket=self.bucket, Key=self._key(path))["Body"].read())

    def stat(self, path: str) -> Entry | None:
        head = self._head(path)
        if head is None:
            return None
        return Entry(path, int(head["ContentLength"]), _ms(head["LastModified"]), head.get("ETag", ""))

    def rename(self, source: str, target: str) -> None:
        """Copy an object within the store to a new name and delete the old one; a crash may leave both.

        Raises FileExistsError or FileNotFoundError.
        """
        self.concat([source], target)
        self.delete(source)

    def concat(self, sources: Sequence[str], target: str) -> None:
        """Make an object of the sources, in order: within the store where they have 5 MB, by way of here where they are smaller.

        Raises FileExistsError if the target exists, FileNotFoundError if a source does not.
        """
        self._compose([(self, source) for source in sources], target)

    def copy_from(self, source: Storage, path: str, new_path: str) -> bool:
        if not isinstance(source, S3Storage) or source.address != self.address:
            return False
        self._compose([(source, path)], new_path)
        return True

    def _compose(self, sources: Sequence[tuple[S3Storage, str]], target: str) -> None:
        sizes = at_once(lambda each: each[0]._existing(each[1]).bytes, sources)
        with cast(_S3Writer, self.write(target)) as made:
            for copied, pieces in groupby(_pieces(sources, sizes), lambda piece: piece.copied):
                if copied:
                    for piece in pieces:
                        made.copy(piece.storage, piece.source, piece.first, piece.after)
                    continue
                for some in _in_parts(pieces):
                    for data in at_once(
                        lambda piece: piece.storage._range(piece.source, piece.first, piece.after), some
                    ):
                        made.write(data)
                    if made.held >= LEAST_PART:
                        made.send_held()

    def delete(self, path: str) -> bool:
        if self._head(path) is None:
            return False
        self._call("delete_object", path)
        return True

    def names(self, folder: str) -> Sequence[str]:
        start = self._folder(folder)
        names = []
        for page in self._pages("list_objects_v2", Prefix=start, Delimiter="/"):
            names += [item["Key"][len(start) :] for item in page.get("Contents", ())]
            names += [item["Prefix"][len(start) :].rstrip("/") for item in page.get("CommonPrefixes", ())]
        return [name for name in names if name]

    def list(self, prefix: str = "") -> Iterator[Entry]:
        for page in self._pages("list_objects_v2", Prefix=self._folder(prefix)):
            for item in page.get("Contents", ()):
                if not item["Key"].endswith("/"):  # what consoles put there to show a folder
                    modified, tag = _ms(item["LastModified"]), item.get("ETag", "")
                    yield Entry(self._path(item["Key"]), int(item["Size"]), modified, tag)

    # Uploads

    def begin_upload(self, path: str, mark: str) -> str:
        return cast(str, self._call("create_multipart_upload", path, Metadata={_MARK: mark})["UploadId"])

    def upload_part(self, path: str, upload: str, number: int, data: bytes) -> str:
        response = self._call("upload_part", path, UploadId=upload, PartNumber=number, Body=data)
        return cast(str, response["ETag"])

    def uploaded(self, path: str, upload: str) -> Sequence[tuple[int, str, int]] | None:
        parts: list[tuple[int, str, int]] = []
        try:
            for page in self._pages("list_parts", Key=self._key(path), UploadId=upload):
                parts += [(int(p["PartNumber"]), str(p["ETag"]), int(p["Size"])) for p in page.get("Parts", ())]
        except FileNotFoundError:
            return None
        return parts

    def complete_upload(self, path: str, upload: str, tags: Sequence[str]) -> None:
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        self._call(
            "complete_multipart_upload", path, UploadId=upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
        )

    def abort_upload(self, path: str, upload: str) -> bool:
        try:
            self._call("abort_multipart_upload", path, UploadId=upload)
        except UploadGone:
            return False
        return True

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        start = self._folder(prefix)
        # MinIO takes a prefix for the whole name of an object; without one it tells all uploads of the bucket.
        asked = start if self.address.endpoint is None else ""
        for page in self._pages("list_multipart_uploads", Prefix=asked):
            for item in page.get("Uploads", ()):
                if item["Key"].startswith(start):
                    yield Upload(self._path(item["Key"]), item["UploadId"], _ms(item["Initiated"]))

    def mark_of(self, path: str) -> str | None:
        head = self._head(path)
        return None if head is None else str(head.get("Metadata", {}).get(_MARK, ""))

    # Parts

    @property
    def _client(self) -> Any:
        return client(self.address)

    def _folder(self, path: str) -> str:
        return f"{super()._folder(path)}/".removeprefix("/")

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        with asking(self.bucket, self._place(path)):
            return getattr(self._client, method)(Bucket=self.bucket, Key=self._key(path), **arguments)

    def _pages(self, method: str, **arguments: Any) -> Iterator[Any]:
        pages = iter(self._client.get_paginator(method).paginate(Bucket=self.bucket, **arguments))
        while True:
            with asking(self.bucket, self.root):
                page = next(pages, None)
            if page is None:
                return
            yield page

    def _head(self, path: str) -> Any:
        try:
            return self._call("head_object", path)
        except FileNotFoundError:
            return None

    def _writer(self, path: str) -> _S3Writer:
        return _S3Writer(self, path)

    def _range(self, path: str, first: int, after: int) -> bytes:
        with asking(self.bucket, self._place(path)):
            answer = self._client.get_object(
                Bucket=self.bucket, Key=self._key(path), Range=f"bytes={first}-{after - 1}"
            )
            return cast(bytes, answer["Body"].read())

    def _put_new(self, path: str, data: bytes, mark: str) -> bool:
        try:
            self._call("put_object", path, Body=data, Metadata={_MARK: mark}, IfNoneMatch="*")
        except FileExistsError:
            # A request that was repeated because its answer got lost finds its own object.
            return self.mark_of(path) == mark
        except StoreError as error:
            if error.refused or error.errno in _FULL:
                raise
            # No answer, or a bad one: an earlier attempt of the client may still be carried out.
            raise OutcomeUnknown(error) from error
        return True


@dataclass(frozen=True, slots=True)
class _Piece:
    """A range of an object that becomes part of another one: copied within the store, or by way of here."""

    storage: S3Storage
    source: str
    first: int
    after: int
    copied: bool


def _pieces(sources: Sequence[tuple[S3Storage, str]], sizes: Sequence[int]) -> Iterator[_Piece]:
    """Yield what objects of some sizes are put together from: parts are not all of one size, and all but the last have the least that one may have."""
    held = 0
    for (storage, source), size in zip(sources, sizes, strict=True):
        at = 0
        while at < size:
            rest = size - at
            copied = not held and rest >= LEAST_PART
            after = at + (min(rest, _LARGEST_COPY) if copied else min(rest, LEAST_PART - held))
            yield _Piece(storage, source, at, after, copied)
            held = 0 if copied else (held + after - at) % LEAST_PART
            at = after


def _in_parts(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Yield pieces that come by way of here, together as many as make a part: so much memory they take."""
    some: list[_Piece] = []
    held = 0
    for piece in pieces:
        some.append(piece)
        held += piece.after - piece.first
        if held >= LEAST_PART:
            yield some
            some, held = [], 0
    if some:
        yield some


def _ms(moment: Any) -> int:
    return int(moment.timestamp() * 1000)


class _S3Writer(PartsWriter):
    """Writes an object: of parts, or by one put."""

    def __init__(self, storage: S3Storage, path: str) -> None:
        super().__init__(storage, path, uuid.uuid4().hex, storage._place(path))
        self.storage = storage

    def copy(self, of: S3Storage, source: str, first: int, after: int) -> None:
        """Take a range of an object, of this folder or another, as a part, copied within the store."""
        storage = self.storage
        self._parts += 1
        given = {
            "CopySource": {"Bucket": of.bucket, "Key": of._key(source)},
            "CopySourceRange": f"bytes={first}-{after - 1}",
        }
        answer = storage._call("upload_part_copy", self.path, UploadId=self.begin(), PartNumber=self._parts, **given)
        self.tags.append(answer["CopyPartResult"]["ETag"])

    def whole(self, data: bytes) -> None:
        if not self.storage._put_new(self.path, data, self.mark):
            raise FileExistsError(self.name)

    def finish(self) -> None:
        try:
            self.storage.complete_upload(self.path, self.begin(), self.tags)
        except UploadGone:
            if shown_mark(self.storage, self.path) != self.mark:
                raise
        except FileExistsError:
            if self.storage.mark_of(self.path) != self.mark:
                raise
        self._id = None
