"""A folder of an object store that has no uploads we could complete later, Google's and Microsoft's, as a storage; by obstore.

Decisions are puts that only create. A rename is a copy within the store, which replaces nothing, and a deletion.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from shutil import copyfileobj
from typing import Any

from poundlock.errors import DefinitionError, required
from poundlock.storage.base import Entry, OutcomeUnknown, temporary_beside
from poundlock.storage.object_files import PART, ObjectFolder, ObjectWriter
from poundlock.storage.s3_client import AccessDenied, StoreError

_MARK = "poundlock"
_SCHEMES = ("gs", "az", "abfs", "abfss", "memory")
_AT_ONCE = 2  # parts of an object on their way, which are in memory
_stores: dict[tuple[int, str], Any] = {}


def open_objects(path: str) -> ObjectStorage:
    """Return the storage of a gs://, az:// or abfs[s]:// folder. Raises DefinitionError where it names no bucket or obstore is missing."""
    scheme, _, rest = path.partition("://")  # an object's name may have a ? or a #
    bucket, _, prefix = rest.partition("/")
    folders = prefix.strip("/").split("/")
    scheme = scheme.lower()
    if scheme not in _SCHEMES or not bucket or (len(folders) > 1 and not all(folders)) or {".", ".."} & set(folders):
        raise DefinitionError(
            f"{path} names no bucket", next="write gs://bucket/folder or abfss://container@account/folder"
        )
    required("obstore", f"{path}: {scheme}://", "objects")
    return ObjectStorage(f"{scheme}://{bucket}", prefix.strip("/"))


@dataclass(frozen=True)
class ObjectStorage(ObjectFolder):
    """Objects of one bucket or container, below one prefix. Credentials come from the environment of whoever asks."""

    bucket: str  # its URL, such as "gs://events"
    prefix: str = ""  # of every key, without slashes at its ends; "" = the whole bucket

    @property
    def root(self) -> str:
        """The folder, as a person would write it."""
        return f"{self.bucket}/{self.prefix}".rstrip("/")

    def create_exclusive(self, path: str, data: bytes) -> bool:
        mark = uuid.uuid4().hex
        try:
            with self._asking(path):
                self._obstore.put(self._store, self._key(path), data, mode="create", attributes={_MARK: mark})
        except FileExistsError:
            return self._has_mark(path, mark)
        except StoreError as error:
            if error.refused:
                raise
            # No answer, or a bad one: an earlier attempt of the client may still be carried out.
            raise OutcomeUnknown(error) from error
        return True

    def replace(self, path: str, data: bytes) -> None:
        self._existing(path)
        with self._asking(path):
            self._obstore.put(self._store, self._key(path), data)

    def read(self, path: str) -> bytes:
        with self._asking(path):
            return bytes(self._obstore.get(self._store, self._key(path)).bytes())

    def stat(self, path: str) -> Entry | None:
        try:
            with self._asking(path):
                return self._entry(self._obstore.head(self._store, self._key(path)))
        except FileNotFoundError:
            return None

    def rename(self, source: str, target: str) -> None:
        """Copy an object within the store to a new name and delete the old one; a crash may leave both.

        Raises FileExistsError or FileNotFoundError.
        """
        with self._asking(target):
            self._obstore.copy(self._store, self._key(source), self._key(target), overwrite=False)
        self.delete(source)

    def concat(self, sources: Sequence[str], target: str) -> None:
        """Make an object of the sources, in order; their bytes pass through here. Raises FileExistsError or FileNotFoundError."""
        with self.write(target) as made:
            for source in sources:
                with self.open(source) as given:
                    copyfileobj(given, made, PART)

    def delete(self, path: str) -> bool:
        if self.stat(path) is None:
            return False
        with suppress(FileNotFoundError), self._asking(path):
            self._obstore.delete(self._store, self._key(path))
        return True

    def names(self, folder: str) -> Sequence[str]:
        start = self._folder(folder)
        with self._asking(folder):
            listed = self._obstore.list_with_delimiter(self._store, start or None)
        paths = [str(item["path"]) for item in listed["objects"]] + [str(path) for path in listed["common_prefixes"]]
        return [path.rstrip("/").rpartition("/")[2] for path in paths]

    def list(self, prefix: str = "") -> Iterator[Entry]:
        with self._asking(prefix):
            for page in self._obstore.list(self._store, self._folder(prefix) or None):
                for item in page:
                    yield self._entry(item)

    @property
    def _obstore(self) -> Any:
        import obstore

        return obstore

    @property
    def _store(self) -> Any:
        key = (os.getpid(), self.bucket)
        if key not in _stores:
            from obstore.store import MemoryStore, from_url

            _stores[key] = MemoryStore() if self.bucket.startswith("memory:") else from_url(self.bucket)
        return _stores[key]

    def _entry(self, item: Any) -> Entry:
        modified = round(item["last_modified"].timestamp() * 1000)
        return Entry(self._path(str(item["path"])), int(item["size"]), modified, item.get("e_tag") or "")

    def _has_mark(self, path: str, mark: str) -> bool:
        """Return whether an object is our own: a request that was repeated because its answer got lost finds it."""
        with self._asking(path):
            return bool(dict(self._obstore.get(self._store, self._key(path)).attributes).get(_MARK) == mark)

    def _writer(self, path: str) -> _StoreWriter:
        return _StoreWriter(self, path)

    def _range(self, path: str, first: int, after: int) -> bytes:
        with self._asking(path):
            return bytes(self._obstore.get_range(self._store, self._key(path), start=first, end=after))

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """Turn the client's errors into OSErrors."""
        errors, place = self._obstore.exceptions, self._place(path)
        try:
            yield
        except (errors.AlreadyExistsError, errors.PreconditionError) as error:
            raise FileExistsError(errno.EEXIST, "the name is taken", place) from error
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", place) from error
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            raise AccessDenied(
                errno.EACCES,
                "access denied",
                place,
                next="look at the credentials in the environment, and what they may do there",
                refused=True,
            ) from error
        except errors.BaseError as error:
            first = str(error).strip().splitlines() or [type(error).__name__]
            raise StoreError(errno.EIO, f"the store answered: {first[0][:200]}", place) from error


class _StoreWriter(ObjectWriter):
    """Writes an object in one stream.

    What ends a stream replaces whatever has the name, so it is given to a temporary name, from which the store copies it to
    the last one if that is free.
    """

    def __init__(self, storage: ObjectStorage, path: str) -> None:
        super().__init__(storage._place(path))
        self.storage, self.path = storage, path
        self._temporary = temporary_beside(path)
        self._mark = uuid.uuid4().hex
        self._stream: Any = None

    def part(self, number: int, data: bytes) -> None:
        storage = self.storage
        with storage._asking(self.path):
            if self._stream is None:
                self._stream = storage._obstore.open_writer(
                    storage._store,
                    storage._key(self._temporary),
                    buffer_size=PART,
                    attributes={_MARK: self._mark},
                    max_concurrency=_AT_ONCE,
                )
            self._stream.write(data)

    def whole(self, data: bytes) -> None:
        if not self.storage.create_exclusive(self.path, data):
            raise FileExistsError(self.name)

    def finish(self) -> None:
        storage = self.storage
        try:
            with storage._asking(self.path):
                self._stream.close()
                storage._obstore.copy(
                    storage._store, storage._key(self._temporary), storage._key(self.path), overwrite=False
                )
        except FileExistsError:
            if not storage._has_mark(self.path, self._mark):
                raise FileExistsError(self.name) from None
        finally:
            with suppress(OSError):
                storage.delete(self._temporary)

    def drop(self) -> None:
        self._stream = None  # what is not closed does not appear
