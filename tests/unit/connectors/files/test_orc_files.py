"""Files of ORC: written by the sink, read by the source, and what others have written."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from poundlock.connectors.base import ReaderContext
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.connectors.files.source.source import FileSource
from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.convert import to_batch
from poundlock.storage import LocalStorage
from support.sinks import JOB, FileSinkHarness, batch

MOMENT = datetime(2026, 1, 5, 10, 0, 0, 123_456, tzinfo=UTC)
DDL = "id int, name string, amount decimal(10,2), at timestamp, day date, raw binary, tags array<string>, ok boolean"
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "ö", "amount": Decimal("1.50"), "at": MOMENT, "day": date(2026, 1, 5), "raw": b"\0", "tags": ["a", None], "ok": True},
    {"id": None, "name": None, "amount": None, "at": None, "day": None, "raw": None, "tags": None, "ok": None},
    {"id": -3, "name": "", "amount": Decimal("-0.01"), "at": MOMENT, "day": date(1969, 1, 1), "raw": b"", "tags": [], "ok": False},
]  # fmt: skip


def written(folder: Path, rows: list[dict[str, Any]], **given: Any) -> Path:
    sink = FileSink(str(folder), format="orc", **given)
    h = FileSinkHarness(sink.bind(job_id=JOB, sink="out"))
    schema = FileSource(str(folder), format="orc", schema=DDL).schema()
    columns = {field.name: pa.array([row[field.name] for row in rows], field.type) for field in schema}
    h.write(batch(**columns))
    h.end_checkpoint()
    return folder / "part-0-0.orc"


def read(folder: Path, work: Path, schema: str | None = DDL, **given: Any) -> list[dict[str, Any]]:
    source = FileSource(str(folder), format="orc", schema=schema, **given)
    enumerator = source.enumerator(LocalStorage(str(work)))
    end = enumerator.latest(enumerator.initial())
    reader = source.reader(ReaderContext(reject=lambda reject: None))
    chunks = [chunk for split in enumerator.splits(enumerator.initial(), end) for chunk in reader.read(split)]
    return [row for chunk in chunks for row in to_batch(chunk).batch.to_pylist()]


@pytest.mark.parametrize("schema", [DDL, None])
def test_what_is_written_is_read(schema: str | None, tmp_path: Path) -> None:
    written(tmp_path / "t", ROWS)
    assert read(tmp_path / "t", tmp_path / "work", schema) == ROWS


@pytest.mark.parametrize(("compression", "name"), [(None, "ZLIB"), ("zstd", "ZSTD"), ("none", "UNCOMPRESSED")])
def test_the_codec(compression: str | None, name: str, tmp_path: Path) -> None:
    assert orc.ORCFile(written(tmp_path, ROWS, compression=compression)).compression == name


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    first, second = (written(tmp_path / name, ROWS).read_bytes() for name in ("a", "b"))
    assert first == second


def test_files_of_others_with_several_stripes_and_other_columns(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    table = pa.table({"more": ["x"] * 50_000, "id": pa.array(range(50_000), pa.int64())})
    orc.write_table(table, folder / "x.orc", stripe_size=1 << 12, batch_size=1024)
    assert orc.ORCFile(folder / "x.orc").nstripes > 1
    rows = read(folder, tmp_path / "work", "id bigint, gone string")
    assert rows == [{"id": each, "gone": None} for each in range(50_000)]


def test_a_file_that_is_none_stops_the_job_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/x.orc").write_bytes(b"not a file of this kind")
    with pytest.raises(TerminalError, match=r"t/x\.orc cannot be read"):
        read(tmp_path / "t", tmp_path / "work")
    with pytest.raises(DefinitionError, match=r"x\.orc cannot be read as orc"):
        FileSource(str(tmp_path / "t"), format="orc").schema()


def test_a_type_that_orc_has_not_is_refused(tmp_path: Path) -> None:
    h = FileSinkHarness(FileSink(str(tmp_path), format="orc").bind(job_id=JOB, sink="out"))
    with pytest.raises(DefinitionError, match="cannot be written as ORC"):
        h.write(batch(n=pa.array([1], pa.uint64())))
