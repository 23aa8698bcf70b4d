"""A store on another machine, played on the local disk: every call waits for as long as the way there and back takes.

What it does not play is a server that is busy, and only `BusyUploads` plays the CPU that a client spends on a call.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, ClassVar

from poundlock.connectors.files.sink.sink import FileSink
from poundlock.storage.base import Entry
from poundlock.storage.local import LocalStorage, move
from poundlock.storage.s3 import S3Storage
from poundlock.storage.uploads import Upload, UploadGone

__all__ = ["CALLS", "BusyUploads", "FarFileSink", "FarStore", "FarUploads"]

_LISTED = 1000  # names of one answer, as S3 and HDFS have it
# Folders beside the one that is opened: what nobody can see yet.
_UPLOADS, _PARTS, _ARRIVING = "uploads", "parts", "arriving"


class Calls:
    """How many calls of all threads a process has made, and how many were on their way at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.made = self.now = self.most = 0

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())  # the process of a task counts its own

    def wait(self, seconds: float) -> None:
        """Be on the way so long."""
        with self._lock:
            self.made += 1
            self.now += 1
            self.most = max(self.most, self.now)
        if seconds:  # even a sleep of nothing waits for the next turn
            time.sleep(seconds)
        with self._lock:
            self.now -= 1


CALLS = Calls()


@dataclass(frozen=True)
class FarStore:
    """Files that are moved by their names, as on HDFS. What is not said of a method is as `Storage` says."""

    root: str  # the folder, absolute
    seconds: float = 0.02  # that a call takes
    new: bool = False  # whether it is known to hold no finished file: then it lists none

    moves_by_copy: ClassVar[bool] = False
    refused_in_names: ClassVar[str] = ""
    client_s: ClassVar[float] = 0.0

    def create_exclusive(self, path: str, data: bytes) -> bool:
        self._wait()
        return self._near.create_exclusive(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._wait()
        self._near.replace(path, data)

    def write(self, path: str) -> BinaryIO:
        self._wait()
        return self._near.write(path)

    def sync(self, handle: BinaryIO) -> None:
        """Nothing: the disk below is not what is measured."""

    def settle(self, path: str) -> None:
        self._wait()

    def read(self, path: str) -> bytes:
        self._wait()
        return self._near.read(path)

    def open(self, path: str) -> BinaryIO:
        self._wait()
        return self._near.open(path)

    def stat(self, path: str) -> Entry | None:
        self._wait()
        return self._near.stat(path)

    def rename(self, source: str, target: str) -> None:
        self._wait()
        move(self._at(source), self._at(target))

    def concat(self, sources: Sequence[str], target: str) -> None:
        for _ in (*sources, target):
            self._wait()
        self._near.concat(sources, target)

    def delete(self, path: str) -> bool:
        self._wait()
        return self._near.delete(path)

    def names(self, folder: str) -> Sequence[str]:
        self._wait()
        return self._near.names(folder)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        for number, entry in enumerate(() if self.new else self._near.list(prefix)):
            if number % _LISTED == 0:
                self._wait()
            yield entry

    def _wait(self) -> None:
        CALLS.wait(self.seconds)

    @property
    def _near(self) -> LocalStorage:
        return LocalStorage(self.root)

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path)


@dataclass(frozen=True)
class FarUploads(FarStore):
    """Objects that are written in parts and appear at once, as on S3; what is on its way lies beside the folder."""

    moves_by_copy: ClassVar[bool] = True

    def concat(self, sources: Sequence[str], target: str) -> None:
        for _ in (*sources, target):
            self._wait()
        whole = self._arriving()
        whole.write_bytes(b"".join(self._near.read(source) for source in sources))
        self._appear(whole, target)
        whole.unlink()

    def begin_upload(self, path: str, mark: str) -> str:
        self._wait()
        upload = f"{uuid.uuid4().hex}-{mark}-{path.replace('/', ':')}"
        self._part(upload, 1).parent.mkdir(parents=True, exist_ok=True)
        self._part(upload, 1).touch()
        return upload

    def upload_part(self, path: str, upload: str, number: int, data: bytes) -> str:
        self._wait()
        if not data:
            raise ValueError("an upload that was begun is played by its first part without content")
        part = self._part(upload, number)
        if number > 1:
            part.parent.mkdir(exist_ok=True)
            part.touch()
        with part.open("r+b") as file:  # FileNotFoundError where no such upload was begun
            file.write(data)
            file.truncate()
        return f"{number}-{len(data)}"

    def uploaded(self, path: str, upload: str) -> Sequence[tuple[int, str, int]] | None:
        self._wait()
        sizes: list[int] = []
        with suppress(FileNotFoundError):
            while True:
                sizes.append(self._part(upload, len(sizes) + 1).stat().st_size)
        parts = [(number, f"{number}-{size}", size) for number, size in enumerate(sizes, 1) if size]
        return parts if sizes else None

    def complete_upload(self, path: str, upload: str, tags: Sequence[str]) -> None:
        self._wait()
        parts = [self._part(upload, int(tag.partition("-")[0])) for tag in tags]
        whole = parts[0]
        try:
            if len(parts) > 1:
                whole = self._arriving()
                whole.write_bytes(b"".join(part.read_bytes() for part in parts))
            os.setxattr(whole, "user.mark", upload.split("-")[1].encode())
        except FileNotFoundError as error:
            raise UploadGone(path) from error
        self._appear(whole, path)
        self._drop(upload)
        if whole != parts[0]:
            whole.unlink()

    def abort_upload(self, path: str, upload: str) -> bool:
        self._wait()
        return self._drop(upload)

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        folder = self._part("x", 1).parent
        for number, upload in enumerate(sorted(os.listdir(folder)) if folder.exists() else ()):
            if number % _LISTED == 0:
                self._wait()
            yield Upload(upload.split("-", 2)[2].replace(":", "/"), upload, 0)

    def mark_of(self, path: str) -> str | None:
        self._wait()
        with suppress(FileNotFoundError):
            return os.getxattr(self._at(path), "user.mark").decode()
        return None

    def _part(self, upload: str, number: int) -> Path:
        """Return where a part lies: the first ones in a folder of their own, for each is an upload."""
        return Path(f"{self.root}.{_UPLOADS if number == 1 else f'{_PARTS}-{number}'}/{upload}")

    def _arriving(self) -> Path:
        """Return a place that nobody looks at, so that what is there comes as a whole whenever the process dies."""
        folder = Path(f"{self.root}.{_ARRIVING}")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / uuid.uuid4().hex

    def _appear(self, whole: Path, path: str) -> None:
        """Give content a name that is seen; raises FileExistsError where it is taken."""
        target = self._at(path)
        try:
            os.link(whole, target)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.link(whole, target)

    def _drop(self, upload: str) -> bool:
        number = 1
        with suppress(FileNotFoundError):
            while True:
                self._part(upload, number).unlink()
                number += 1
        return number > 1


@dataclass(frozen=True)
class BusyUploads(FarUploads):
    """The same with the client that S3 has: each call takes CPU of whoever makes it, in Python, so that threads of a process take turns."""

    client_s: ClassVar[float] = S3Storage.client_s

    def _wait(self) -> None:
        super()._wait()
        if self.seconds:
            end = time.thread_time() + self.client_s
            while time.thread_time() < end:
                pass


_KINDS = {"moves": FarStore, "uploads": FarUploads, "busy": BusyUploads}


@dataclass(frozen=True)
class FarFileSink(FileSink):
    """A file sink whose folder is on such a store.

    Args:
        kind_of_store: "moves" as HDFS, "uploads" as S3, "busy" as S3 with the CPU of its client.
        seconds: that a call takes.
        new: whether its folder is known to hold no finished file.
    """

    kind_of_store: str = "moves"
    seconds: float = 0.02
    new: bool = False

    def storage(self, root: str = "") -> FarStore:
        return _KINDS[self.kind_of_store](os.path.abspath(root or self.path), self.seconds, self.new)

    def near(self) -> FarFileSink:
        """Return the sink as tasks have it, of which many write at once: their calls take no time here.

        Nor does each of them list the folder before it gives its first name, which one process that plays a thousand would do in turn.
        """
        return replace(self, seconds=0.0, new=True)
