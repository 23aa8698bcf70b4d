"""A storage as Arrow's file system: what pyiceberg asks of it on HDFS, here on a folder."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from poundlock.connectors.iceberg.file_io import StorageFiles
from poundlock.storage import LocalStorage


def test_files_are_written_read_listed_and_removed(tmp_path: Path) -> None:
    files = PyFileSystem(StorageFiles(LocalStorage(str(tmp_path))))
    assert files == PyFileSystem(StorageFiles(LocalStorage(str(tmp_path))))
    rows = pa.table({"id": list(range(1000))})
    with files.open_output_stream("/job/e000001/a.parquet") as stream, pq.ParquetWriter(stream, rows.schema) as writer:
        writer.write_table(rows)
    with files.open_input_file("/job/e000001/a.parquet") as handle:
        assert pq.read_table(handle) == rows
    with files.open_output_stream("/job/b.txt") as stream:
        stream.write(b"text")
    with files.open_input_stream("/job/b.txt") as handle:
        assert handle.read() == b"text"
    folder, file, missing = files.get_file_info(["/job/e000001", "/job/b.txt", "/job/none"])
    assert [each.type for each in (folder, file, missing)] == [FileType.Directory, FileType.File, FileType.NotFound]
    assert file.size == 4
    listed = {each.path: each.type for each in files.get_file_info(FileSelector("/job"))}
    assert listed == {"/job/e000001": FileType.Directory, "/job/b.txt": FileType.File}
    deep = {each.path for each in files.get_file_info(FileSelector("/job", recursive=True))}
    assert deep == {"/job/e000001/a.parquet", "/job/b.txt"}
    with pytest.raises(FileNotFoundError):
        files.get_file_info(FileSelector("/none"))
    with pytest.raises(FileExistsError):
        files.open_output_stream("/job/b.txt")
    files.delete_file("/job/b.txt")
    with pytest.raises(FileNotFoundError):
        files.delete_file("/job/b.txt")
