"""Tables of files: Parquet and Avro as columns, records in lines, with columns in the names of folders."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.base import ReaderContext
from poundlock.formats.chunk import Batch
from poundlock.formats.convert import to_batch
from poundlock.sql.connectors.filesystem import FilesystemTable
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.errors import OptionError
from poundlock.storage import LocalStorage
from support.sinks import FileSinkHarness
from support.sql_tables import table_context

COLUMNS = "id INT, name STRING, ts TIMESTAMP(3), z TIMESTAMP_LTZ(3), d DECIMAL(10, 2), xs ARRAY<INT>, `day` DATE, r ROW<p INT, q STRING>, m MAP<STRING, INT>"
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "ann", "ts": datetime(2026, 1, 5, 10, 0, 0, 123_000), "z": datetime(2026, 1, 5, 11, tzinfo=UTC), "d": Decimal("2.50"),
     "xs": [1, None], "day": date(2026, 1, 5), "r": {"p": 1, "q": "x"}, "m": [("a", 1)]},
    {"id": None, "name": None, "ts": None, "z": None, "d": None, "xs": None, "day": None, "r": None, "m": None},
]  # fmt: skip


def table(
    folder: Path, format: str, *, columns: str = COLUMNS, partitions: str = "", options: str = ""
) -> TableContext:
    by = f"PARTITIONED BY ({partitions}) " if partitions else ""
    return table_context(
        f"CREATE TABLE t ({columns}) {by}WITH ('connector'='filesystem', 'path'='{folder}', 'format'='{format}'{options})"
    )


def write(of: TableContext, rows: list[dict[str, Any]]) -> None:
    sink = FilesystemTable().sink(of, overwrite=False)
    columns = [pa.array([row[f.name] for row in rows], f.type.arrow) for f in of.fields]
    made, places = sink.program.run(pa.RecordBatch.from_arrays(columns, [f.column for f in of.fields]))
    assert places is None
    assert made.schema.names == sink.schema.names
    assert made.schema.types == sink.schema.types
    harness = FileSinkHarness(sink.sink)
    harness.write(Batch(made))
    harness.end_checkpoint(Occasion.END)


def read(of: TableContext, workspace: Path) -> list[dict[str, Any]]:
    source = FilesystemTable().source(of)
    assert source.program is not None
    enumerator = source.source.enumerator(LocalStorage(str(workspace)))
    rejected: list[Any] = []
    rows: list[dict[str, Any]] = []
    position = enumerator.initial()
    while not enumerator.finished(position):
        end = enumerator.latest(position)
        for split in enumerator.splits(position, end):
            for chunk in source.source.reader(ReaderContext(reject=rejected.append)).read(split):
                made, _ = source.program.run(to_batch(chunk).batch)
                assert made.schema.names == [f.column for f in of.fields]
                assert made.schema.types == [f.type.arrow for f in of.fields]
                rows += [dict(zip((f.name for f in of.fields), row.values(), strict=True)) for row in made.to_pylist()]
        position = end
    assert not rejected
    return rows


@pytest.mark.parametrize("format", ["parquet", "orc", "avro", "json"])
def test_what_is_written_is_read(format: str, tmp_path: Path) -> None:
    of = table(tmp_path / "t", format)
    write(of, ROWS)
    assert sorted(read(of, tmp_path / "work"), key=repr) == sorted(ROWS, key=repr)


@pytest.mark.parametrize("format", ["parquet", "orc", "avro", "json", "csv"])
def test_columns_of_partitions_are_in_the_names_of_folders(format: str, tmp_path: Path) -> None:
    of = table(tmp_path / "t", format, columns="a INT, dt STRING, n INT", partitions="dt, n")
    rows = [{"a": 1, "dt": "x/1", "n": 7}, {"a": 2, "dt": None, "n": 7}, {"a": 3, "dt": "x/1", "n": None}]
    write(of, rows)
    folders = {str(path.parent.relative_to(tmp_path / "t")) for path in (tmp_path / "t").rglob("*") if path.is_file()}
    assert folders == {"dt=x%2F1/n=7", "dt=__DEFAULT_PARTITION__/n=7", "dt=x%2F1/n=__DEFAULT_PARTITION__"}
    assert sorted(read(of, tmp_path / "work"), key=repr) == sorted(rows, key=repr)


def test_files_have_the_table_columns_alone(tmp_path: Path) -> None:
    of = table(
        tmp_path / "t", "parquet", columns="a INT, dt STRING", partitions="dt", options=", 'parquet.compression'='ZSTD'"
    )
    write(of, [{"a": 1, "dt": "x"}])
    (file,) = (path for path in (tmp_path / "t").rglob("*") if path.is_file())
    assert file.suffix == ".parquet"
    metadata = pq.ParquetFile(file)
    assert metadata.schema_arrow.names == ["a"]
    assert metadata.metadata.row_group(0).column(0).compression == "ZSTD"


def test_parquet_files_are_laid_out_by_options(tmp_path: Path) -> None:
    options = ", 'parquet.block.size'='1 kb', 'parquet.page.size'='64 kb', 'parquet.enable.dictionary'='false'"
    of = table(tmp_path / "t", "parquet", columns="a INT", options=options)
    write(of, [{"a": each} for each in range(2_000)])
    (file,) = (path for path in (tmp_path / "t").rglob("*") if path.is_file())
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).has_dictionary_page is False
    assert len(read(of, tmp_path / "work")) == 2_000


def test_files_of_orc_are_compressed_as_asked(tmp_path: Path) -> None:
    of = table(tmp_path / "t", "orc", columns="a INT", options=", 'orc.compress'='SNAPPY'")
    write(of, [{"a": 1}])
    (file,) = (path for path in (tmp_path / "t").rglob("*") if path.is_file())
    assert (file.suffix, orc.ORCFile(file).compression) == (".orc", "SNAPPY")


def test_files_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    moment = datetime(2026, 1, 5, 10, 0, 0, 123_000)
    given = pa.table(
        {"TS": pa.array([moment]), "id": pa.array([1], pa.int64()), "ts": pa.array([moment], pa.timestamp("ns"))}
    )
    pq.write_table(given, folder / "x.parquet")
    of = table(folder, "parquet", columns="ts TIMESTAMP(3), id INT, gone STRING, `file.name` STRING METADATA")
    assert read(of, tmp_path / "work") == [{"ts": moment, "id": 1, "gone": None, "file.name": "x.parquet"}]


@pytest.mark.parametrize(
    ("format", "columns", "options", "kind", "words"),
    [
        ("orc", "a TIME(3)", "", "type_mismatch", r"no TIME\(3\) in files"),
        ("orc", "a INT", ", 'orc.compress'='LZO'", "bad_option_value", "orc.compress"),
        ("orc", "a INT", ", 'orc.stripe.size'='1'", "unknown_option", "orc.stripe.size"),
        ("parquet", "a INT", ", 'parquet.enable.dictionary'='maybe'", "bad_option_value", "parquet.enable.dictionary"),
        ("parquet", "a TIME(3)", "", "type_mismatch", r"no TIME\(3\) in files"),
        ("avro", "a TIMESTAMP(9)", "", "type_mismatch", r"no TIMESTAMP\(9\) in files"),
        ("parquet", "a INT", ", 'parquet.compression'='lzo'", "bad_option_value", "parquet.compression"),
        ("parquet", "a INT", ", 'parquet.size'='1'", "unknown_option", "parquet.size"),
        ("avro", "a INT", ", 'avro.codec'='xz'", "bad_option_value", "avro.codec"),
        (
            "protobuf",
            "a INT",
            ", 'protobuf.descriptor-file'='a.desc'",
            "bad_option_value",
            "files do not take 'protobuf'",
        ),
        ("avro-confluent", "a INT", "", "bad_option_value", "files do not take 'avro-confluent'"),
        ("debezium-avro-confluent", "a INT", "", "bad_option_value", "do not say where they end"),
    ],
)
def test_what_is_refused(format: str, columns: str, options: str, kind: str, words: str, tmp_path: Path) -> None:
    of = table(tmp_path, format, columns=columns, options=options)
    for make in (lambda: FilesystemTable().source(of), lambda: FilesystemTable().sink(of, overwrite=False)):
        with pytest.raises(OptionError, match=words) as caught:
            make()
        assert caught.value.kind == kind


def test_records_that_are_ignored_count_as_filtered(tmp_path: Path) -> None:
    for format, leaves_out in (
        ("json", True),
        ("csv", True),
        ("raw", True),
        ("parquet", False),
        ("debezium-json", False),
    ):
        source = FilesystemTable().source(table(tmp_path, format, columns="a STRING"))
        assert source.program is not None
        assert source.program.leaves_out is leaves_out
        assert source.is_updating is (format == "debezium-json")


def test_limits_of_files_are_taken(tmp_path: Path) -> None:
    options = ", 'sink.rolling-policy.rollover-interval'='30 s', 'sink.rolling-policy.file-size'='1 MB', 'auto-compaction'='true'"
    for format in ("json", "parquet"):
        sink = (
            FilesystemTable().sink(table(tmp_path, format, columns="a STRING", options=options), overwrite=False).sink
        )
        assert sink.rolling.max_bytes == 1 << 20
        assert sink.rolling.on_checkpoint is (format == "parquet")


@pytest.mark.parametrize("format", ["csv", "json"])
def test_columns_that_nobody_reads_keep_their_places(format: str, tmp_path: Path) -> None:
    of = table(tmp_path / "t", format, columns="a INT, b STRING, c INT")
    write(of, [{"a": 1, "b": "x", "c": 2}])
    last = replace(of, fields=of.fields[2:])
    assert read(last, tmp_path / "work") == [{"c": 2}]
