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
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.storage.base import Entry, OutcomeUnknown
from poundlock.storage.object_files import PART
from poundlock.storage.object_folder import ObjectFolder
from poundlock.storage.s3_client import AccessDenied, StoreError

_MARK = "poundlock"
_SCHEMES = ("gs", "az", "abfs", "abfss", "memory")
_AT_ONCE = 2  # parts of an object on their way, which are in memory
_stores: dict[tuple[int, str], Any] = {}


def open_objects(path: str) -> ObjectStorage:
    """Return the storage of a gs://, az://, abfs:// or abfss:// folder.

    Raises:
        DefinitionError: the path names no bucket, or the package for it is not installed.
    """
    scheme, _, rest = path.partition("://")  # an object's name may have a ? or a #
    bucket, _, prefix = rest.partition("/")
    folders = prefix.strip("/").split("/")
    scheme = scheme.lower()
    if scheme not in _SCHEMES or not bucket or (len(folders) > 1 and not all(folders)) or {".", ".."} & set(folders):
        raise DefinitionError(
            f"{path} names no bucket", next="write gs://bucket/folder or abfss://container@account/folder"
        )
    try:
        import obstore  # noqa: F401
    except ImportError as error:
        raise DefinitionError(
            f"{path}: {scheme}:// needs the package obstore", next='type: pip install "poundlock[objects]"'
        ) from error
    return ObjectStorage(f"{scheme}://{bucket}", prefix.strip("/"))


@dataclass(frozen=True)
class ObjectStorage(ObjectFolder):
    """Objects of one bucket or container, below one prefix. Credentials come from the environment of whoever asks.

    Args:
        bucket: its URL, such as "gs://events".
        prefix: of every key, without slashes at its ends; "" = the whole bucket.
    """

    bucket: str
    prefix: str = ""

    @property
    def root(self) -> str:
        """The folder, as a person would write it."""
        return f"{self.bucket}/{self.prefix}".rstrip("/")

    def create_exclusive(self, path: str, data: bytes) -> bool:
        """Put a new object; return False, and change nothing, if the name is taken."""
        import obstore

        mark = uuid.uuid4().hex
        try:
            with self._asking(path):
                obstore.put(self._store, self._key(path), data, mode="create", attributes=_attributes(mark))
        except FileExistsError:
            # A request that was repeated because its answer got lost finds its own object.
            with self._asking(path):
                return bool(_mark_of(obstore.get(self._store, self._key(path))) == mark)
        except StoreError as error:
            if error.refused:
                raise
            # No answer, or a bad one: an earlier attempt of the client may still be carried out.
            raise OutcomeUnknown(error) from error
        return True

    def replace(self, path: str, data: bytes) -> None:
        """Give an object another content. Raises FileNotFoundError."""
        import obstore

        self._existing(path)
        with self._asking(path):
            obstore.put(self._store, self._key(path), data)

    def read(self, path: str) -> bytes:
        """Return the whole content. Raises FileNotFoundError."""
        import obstore

        with self._asking(path):
            return bytes(obstore.get(self._store, self._key(path)).bytes())

    def stat(self, path: str) -> Entry | None:
        """Return the object's entry, or None if there is none."""
        import obstore

        try:
            with self._asking(path):
                return self._entry(obstore.head(self._store, self._key(path)))
        except FileNotFoundError:
            return None

    def rename(self, source: str, target: str) -> None:
        """Copy an object within the store to a new name and delete the old one; a crash may leave both.

        Raises FileExistsError or FileNotFoundError.
        """
        import obstore

        with self._asking(target):
            obstore.copy(self._store, self._key(source), self._key(target), overwrite=False)
        self.delete(source)

    def concat(self, sources: Sequence[str], target: str) -> None:
        """Make an object of the sources, in order; their bytes pass through here. Raises FileExistsError or FileNotFoundError."""
        with self.write(target) as made:
            for source in sources:
                with self.open(source) as given:
                    while block := given.read(PART):
                        made.write(block)

    def delete(self, path: str) -> bool:
        """Delete an object; return False if there was none."""
        import obstore

        if self.stat(path) is None:
            return False
        with suppress(FileNotFoundError), self._asking(path):
            obstore.delete(self._store, self._key(path))
        return True

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of what is directly in a folder, hidden ones too. Empty if it is missing."""
        import obstore

        start = self._folder(folder)
        with self._asking(folder):
            listed = obstore.list_with_delimiter(self._store, start or None)
        paths = [str(item["path"]) for item in listed["objects"]] + [str(path) for path in listed["common_prefixes"]]
        return [path.rstrip("/").rpartition("/")[2] for path in paths]

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield every object below a folder, hidden ones too."""
        import obstore

        with self._asking(prefix):
            for page in obstore.list(self._store, self._folder(prefix) or None):
                for item in page:
                    yield self._entry(item)

    @property
    def _store(self) -> Any:
        key = (os.getpid(), self.bucket)
        if key not in _stores:
            from obstore.store import MemoryStore, from_url

            _stores[key] = MemoryStore() if self.bucket.startswith("memory:") else from_url(self.bucket)
        return _stores[key]

    def _entry(self, item: Any) -> Entry:
        key = str(item["path"])
        path = key[len(self.prefix) + 1 :] if self.prefix else key
        modified = round(item["last_modified"].timestamp() * 1000)
        return Entry(path, int(item["size"]), modified, item.get("e_tag") or "")

    def _key(self, path: str) -> str:
        if not path or path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} is not a path below {self.root}")
        return f"{self.prefix}/{path}" if self.prefix else path

    def _folder(self, path: str) -> str:
        return self._key(path.strip("/")) if path.strip("/") not in ("", ".") else self.prefix

    def _sending(self, path: str) -> _Sending:
        return _Sending(self, path)

    def _range(self, path: str, first: int, after: int) -> bytes:
        import obstore

        with self._asking(path):
            return bytes(obstore.get_range(self._store, self._key(path), start=first, end=after))

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """Turn the client's errors into OSErrors."""
        from obstore import exceptions as errors

        place = self._place(path)
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


def _attributes(mark: str) -> Any:
    return {_MARK: mark}


def _mark_of(answer: Any) -> Any:
    return dict(answer.attributes).get(_MARK)


class _Sending:
    """One object on its way, in one stream.

    What ends a stream replaces whatever has the name, so it is given to a temporary name, from which the store copies it to
    the last one if that is free.
    """

    def __init__(self, storage: ObjectStorage, path: str) -> None:
        self.storage, self.path = storage, path
        folder, _, name = path.rpartition("/")
        self._temporary = f"{folder}/" * bool(folder) + f".tmp-{uuid.uuid4().hex}-{name[:150]}"
        self._mark = uuid.uuid4().hex
        self._stream: Any = None

    def part(self, number: int, data: bytes) -> None:
        import obstore

        storage = self.storage
        with storage._asking(self.path):
            if self._stream is None:
                self._stream = obstore.open_writer(
                    storage._store,
                    storage._key(self._temporary),
                    buffer_size=PART,
                    attributes=_attributes(self._mark),
                    max_concurrency=_AT_ONCE,
                )
            self._stream.write(data)

    def whole(self, data: bytes) -> None:
        if not self.storage.create_exclusive(self.path, data):
            raise FileExistsError(self.storage._place(self.path))

    def finish(self) -> None:
        import obstore

        storage = self.storage
        try:
            with storage._asking(self.path):
                self._stream.close()
                obstore.copy(storage._store, storage._key(self._temporary), storage._key(self.path), overwrite=False)
        except FileExistsError:
            # A request that was repeated because its answer got lost finds its own object.
            with storage._asking(self.path):
                if _mark_of(obstore.get(storage._store, storage._key(self.path))) != self._mark:
                    raise FileExistsError(storage._place(self.path)) from None
        finally:
            with suppress(OSError):
                storage.delete(self._temporary)

    def drop(self) -> None:
        self._stream = None  # what is not closed does not appear
