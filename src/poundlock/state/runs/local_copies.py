"""Local copies of state files, for checkpoint directories that are not on a local file system.

A copy is whole or not there: it gets its name when its content was held against the digest. Losing or damaging one costs a
download; all worker processes of a host share a folder of them.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass

from poundlock.errors import TransientError
from poundlock.state.manifest import RunFile
from poundlock.state.runs.run import damaged
from poundlock.storage.base import Storage

_STEP = 8 << 20
_TEMPORARY = ".tmp-"


@dataclass(frozen=True)
class LocalCopies:
    """Copies in a local folder.

    Args:
        limit: about how many bytes of them are kept; the ones that were not used for the longest time go first.
    """

    folder: str
    limit: int = 16 << 30

    def path(self, storage: Storage, file: RunFile) -> str:
        """Return the path of a local copy, fetched if there is none.

        Raises:
            DamagedRunError: the file itself is missing or damaged.
            TransientError: it could not be read, or the local folder not be written.
        """
        path = self._at(file.name, file.digest)
        try:
            if os.stat(path).st_size == file.bytes and _digest(path) == file.digest:
                os.utime(path)
                return path
            os.unlink(path)  # cut short or damaged, as after a power failure; processes that have it open keep theirs
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _trouble(self.folder, error) from None
        self._fetch(storage, file, path)
        return path

    def keep(self, name: str, digest: str, data: memoryview) -> None:
        """Keep a copy of a file that this process has just written. If that fails it is fetched when it is needed."""
        with suppress(OSError):
            temporary = self._temporary()
            with open(temporary, "xb") as handle:
                handle.write(data)
            os.rename(temporary, self._at(name, digest))
            self._make_room()

    def _fetch(self, storage: Storage, file: RunFile, path: str) -> None:
        digest, size = hashlib.blake2b(digest_size=16), 0
        temporary = ""
        try:
            source = storage.open(file.name)
            with source:
                temporary = self._temporary()
                with open(temporary, "xb") as handle:
                    while piece := source.read(_STEP):
                        digest.update(piece)
                        handle.write(piece)
                        size += len(piece)
            if size != file.bytes:
                raise damaged(file, f"has {size} bytes instead of {file.bytes}")
            if digest.hexdigest() != file.digest:
                raise damaged(file, "is not what was written: its digest differs")
            os.rename(temporary, path)
            self._make_room(path)
        except FileNotFoundError as error:
            if temporary:  # the folder of copies went away meanwhile
                raise _trouble(self.folder, error) from None
            raise damaged(file, "is missing") from None
        except OSError as error:
            raise _trouble(f"{storage.root}/{file.name}", error) from None
        finally:
            if temporary:
                with suppress(OSError):
                    os.unlink(temporary)

    def _at(self, name: str, digest: str) -> str:
        # The digest is part of the name: a file of another job, or of a directory that was made again, is another copy.
        return os.path.join(self.folder, f"{digest}-{name.rpartition('/')[2]}")

    def _temporary(self) -> str:
        os.makedirs(self.folder, exist_ok=True)
        return os.path.join(self.folder, f"{_TEMPORARY}{uuid.uuid4().hex}")

    def _make_room(self, keep: str = "") -> None:
        """Delete what was not used for the longest time, until the rest is within the limit."""
        result: list[tuple[int, int, str]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    stat = entry.stat()
                    if not entry.name.startswith(_TEMPORARY):
                        result.append((stat.st_mtime_ns, stat.st_size, entry.path))
        total = sum(size for _, size, _ in result)
        for _, size, path in sorted(result):
            if total <= self.limit:
                return
            if path != keep:
                total -= size
                with suppress(OSError):
                    os.unlink(path)


def _digest(path: str) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _trouble(where: str, error: OSError) -> TransientError:
    return TransientError(
        f"{where}: {error.strerror or error}", next="see to the file system; the job goes on when it is restarted"
    )
