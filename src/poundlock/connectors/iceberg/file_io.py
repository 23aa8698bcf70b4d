"""Files of Iceberg tables as pyiceberg reaches them: by Arrow, and on HDFS by poundlock's own storage, which asks for neither a JVM nor libhdfs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType, PyFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from poundlock.storage import Storage, open_storage


class TableFileIO(PyArrowFileIO):  # type: ignore[misc]
    """The files of a table.

    Args:
        properties: of the catalog and the table.
    """

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(dict(properties or {}))
        by_arrow: Any = self.fs_by_scheme

        def by_scheme(scheme: str, netloc: str | None = None) -> Any:
            return hdfs_files(netloc or "") if scheme == "hdfs" else by_arrow(scheme, netloc)

        self.fs_by_scheme: Any = by_scheme


@cache
def hdfs_files(authority: str) -> PyFileSystem:
    """Return a cluster's files as a file system of Arrow; "" = the one that Hadoop's settings name."""
    return PyFileSystem(StorageFiles(open_storage(f"hdfs://{authority}/")))


class StorageFiles(FileSystemHandler):  # type: ignore[misc]
    """A storage as Arrow asks for files. What pyiceberg does not ask for is refused.

    Args:
        storage: of the whole file system; paths begin with "/".
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageFiles) and other._storage.root == self._storage.root

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._storage.root)

    def get_type_name(self) -> str:
        """Return what kind of file system it is."""
        return "poundlock"

    def normalize_path(self, path: str) -> str:
        """Return a path as it is."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[FileInfo]:
        """Return what is there under each path."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Return what is in a folder. Raises FileNotFoundError where nothing is, however it is asked: nobody here asks otherwise."""
        folder = selector.base_dir.rstrip("/")
        if selector.recursive:
            listed = [
                FileInfo(f"/{each.path}", FileType.File, size=each.bytes, mtime_ns=each.modified_ms * 1_000_000)
                for each in self._storage.list(_below(folder))
            ]
        else:
            listed = [self._info(f"{folder}/{name}") for name in self._storage.names(_below(folder))]
        if not listed:
            raise FileNotFoundError(f"{selector.base_dir} is empty or missing")
        return listed

    def delete_file(self, path: str) -> None:
        """Remove a file. Raises FileNotFoundError."""
        if not self._storage.delete(_below(path)):
            raise FileNotFoundError(path)

    def open_input_stream(self, path: str) -> pa.PythonFile:
        """Open a file for reading. Raises FileNotFoundError."""
        return pa.PythonFile(self._storage.open(_below(path)), mode="r")

    def open_input_file(self, path: str) -> pa.PythonFile:
        """Open a file for reading at any place of it. Raises FileNotFoundError."""
        return self.open_input_stream(path)

    def open_output_stream(self, path: str, metadata: Mapping[str, str]) -> pa.PythonFile:
        """Open a new file, which is durable when it is closed. Raises FileExistsError."""
        return pa.PythonFile(_Durable(self._storage, self._storage.write(_below(path))), mode="w")

    def _info(self, path: str) -> FileInfo:
        entry = self._storage.stat(_below(path))
        if entry is not None:
            return FileInfo(path, FileType.File, size=entry.bytes, mtime_ns=entry.modified_ms * 1_000_000)
        is_folder = bool(self._storage.names(_below(path)))
        return FileInfo(path, FileType.Directory if is_folder else FileType.NotFound)

    def create_dir(self, path: str, recursive: bool) -> None:
        raise NotImplementedError

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def move(self, source: str, target: str) -> None:
        raise NotImplementedError

    def copy_file(self, source: str, target: str) -> None:
        raise NotImplementedError

    def open_append_stream(self, path: str, metadata: Mapping[str, str]) -> pa.PythonFile:
        raise NotImplementedError


class _Durable(io.RawIOBase):
    """A new file that is on disks when it is closed."""

    def __init__(self, storage: Storage, handle: BinaryIO) -> None:
        self._storage, self._handle = storage, handle

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        return self._handle.write(memoryview(data).cast("B"))

    def tell(self) -> int:
        return self._handle.tell()

    def close(self) -> None:
        if not self.closed:
            try:
                self._storage.sync(self._handle)
            finally:
                super().close()
                self._handle.close()


def _below(path: str) -> str:
    return path.strip("/")
