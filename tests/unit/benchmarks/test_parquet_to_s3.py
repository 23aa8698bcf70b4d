"""The proof of what was written to S3: every row is the line it came from, and each way to be wrong is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest

from benchmarks.data import Input, WrongOutput, files
from benchmarks.parquet_to_s3 import as_lines, prove
from poundlock.storage import LocalStorage
from poundlock.storage.uploads import Upload

COLUMNS = pa.schema([("timestamp", pa.float64()), ("event", pa.string()), ("uuid", pa.string())])


class Folder(LocalStorage):
    """A folder of the local disk in the place of a bucket."""

    left: tuple[Upload, ...] = ()

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        return iter(self.left)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return files(tmp_path_factory.mktemp("data"), 20_000)


@pytest.fixture
def tables(given: Input) -> list[pa.Table]:
    options = pj.ParseOptions(explicit_schema=COLUMNS)
    return [pj.read_json(path, parse_options=options) for path in sorted(given.folder.iterdir())]


def write(folder: Path, tables: list[pa.Table]) -> Folder:
    (folder / "_spark_metadata").mkdir()
    (folder / "_spark_metadata" / "0").write_text("v1")
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"part-0-{number}.parquet")
    return Folder(str(folder))


def test_rows_become_the_lines_they_were(given: Input, tables: list[pa.Table]) -> None:
    for path, table in zip(sorted(given.folder.iterdir()), tables, strict=True):
        assert as_lines(table) == path.read_bytes()
        assert as_lines(table.slice(100, 50)) == b"".join(path.read_bytes().splitlines(keepends=True)[100:150])


def test_all_rows_pass(given: Input, tables: list[pa.Table], tmp_path: Path) -> None:
    storage = write(tmp_path, list(reversed(tables)))
    assert prove(storage, given) == len(tables)  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", ["lost", "twice", "instead", "changed", "null", "hidden", "upload"])
def test_every_fault_is_found(given: Input, tables: list[pa.Table], tmp_path: Path, fault: str) -> None:
    first = tables[0]
    if fault == "lost":
        first = first.slice(1)
    elif fault == "twice":
        first = pa.concat_tables([first, first.slice(7, 1)])
    elif fault == "instead":
        first = pa.concat_tables([first.slice(1), first.slice(7, 1)])
    elif fault == "changed":
        first = first.set_column(1, "event", pa.array(["page_vieW", *first["event"].to_pylist()[1:]]))
    elif fault == "null":
        first = first.set_column(1, "event", pa.array([None, *first["event"].to_pylist()[1:]]))
    storage = write(tmp_path, [first, *tables[1:]])
    if fault == "hidden":
        (tmp_path / ".part-0-9.inprogress").write_bytes(b"")
    elif fault == "upload":
        storage.left = (Upload("part-0-9", "id", 0),)
    with pytest.raises(WrongOutput):
        prove(storage, given)  # type: ignore[arg-type]
