"""JSON lines, CSV, Parquet, Avro and compression: what other readers of the files see, by bucket, over checkpoints."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.files.buckets.assigners import (
    BUCKET_COLUMN,
    ColumnBucketAssigner,
    EventTimeBucketAssigner,
    ExpressionBucketAssigner,
)
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import DefinitionError
from poundlock.formats.chunk import Batch, Chunk, FileOrigin, Records
from poundlock.formats.own.parquet_options import ParquetOptions
from support.sinks import FileSinkHarness, batch, lines

fastavro = pytest.importorskip("fastavro")


def harness(path: Path, **options: Any) -> FileSinkHarness:
    return FileSinkHarness(FileSink(str(path), **options))


def end(h: FileSinkHarness, *chunks: Chunk) -> dict[str, bytes]:
    for chunk in chunks:
        h.write(chunk)
    h.end_checkpoint(Occasion.END)
    assert h.hidden() == []
    return h.finished()


MOMENT = datetime(2018, 12, 19, 1, 50, 26, 432000, tzinfo=UTC)
COLUMNS: dict[str, Any] = {
    "s": ["a", None, 'q"\n,'],
    "n": [1, -2, None],
    "f": [1.5, float("nan"), 0.1],
    "b": [True, False, None],
    "t": pa.array([MOMENT] * 3, pa.timestamp("us", "UTC")),
    "d": [date(2018, 12, 19)] * 3,
    "m": [Decimal("1.20"), Decimal("-3.45"), None],
}
NESTED: dict[str, Any] = {
    "list": [[1, None], [], None],
    "struct": [{"x": 1, "y": ["z"]}, {"x": None, "y": None}, None],
    "map": pa.array([{"k": 1}, {}, None], pa.map_(pa.string(), pa.int64())),
    "raw": [b"\xff\x00", b"", None],
}


def test_json_lines(tmp_path: Path) -> None:
    files = end(harness(tmp_path), batch(**COLUMNS, **NESTED))
    assert list(files) == ["part-0-0.jsonl"]
    rows = [json.loads(line) for line in files["part-0-0.jsonl"].splitlines()]
    assert rows[0] == {
        "s": "a", "n": 1, "f": 1.5, "b": True, "t": "2018-12-19T01:50:26.432000Z", "d": "2018-12-19", "m": 1.2,
        "list": [1, None], "struct": {"x": 1, "y": ["z"]}, "map": {"k": 1}, "raw": "/wA=",
    }  # fmt: skip
    assert rows[1]["f"] is None
    assert rows[2]["s"] == 'q"\n,'
    assert b'"m":1.20,' in files["part-0-0.jsonl"]  # not through a float


def test_json_of_records_and_of_columns_are_the_same(tmp_path: Path) -> None:
    chunk = batch(**{k: v for k, v in COLUMNS.items() if k != "f"}, **{BUCKET_COLUMN: ["x", "y", "x"]})
    options = {"bucket": ExpressionBucketAssigner("c"), "columns": ["n", "s"]}
    one = end(harness(tmp_path / "a", **options), chunk)
    two = end(harness(tmp_path / "b", **options), Records(chunk.batch.to_pylist()))
    assert (
        one
        == two
        == {
            "x/part-0-0.jsonl": b'{"n":1,"s":"a"}\n{"n":null,"s":"q\\"\\n,"}\n',
            "y/part-0-1.jsonl": b'{"n":-2,"s":null}\n',
        }
    )
    renamed = batch(
        **{"folder" if name == BUCKET_COLUMN else name: chunk.batch.column(name) for name in chunk.batch.schema.names}
    )
    assert end(harness(tmp_path / "d", bucket=ColumnBucketAssigner("folder"), columns=["n", "s"]), renamed) == one
    every = end(harness(tmp_path / "e", bucket=ColumnBucketAssigner("folder")), Records(renamed.batch.to_pylist()))
    assert sorted(every) == sorted(one)
    assert all(b"folder" not in content for content in every.values())
    three = end(harness(tmp_path / "c", bucket=ExpressionBucketAssigner("c")), Records(chunk.batch.to_pylist()))
    assert all(BUCKET_COLUMN.encode() not in content for content in three.values())


def test_json_of_lines_is_their_one_column(tmp_path: Path) -> None:
    assert end(harness(tmp_path), lines(b"x")) == {"part-0-0.jsonl": b'{"value":"eA=="}\n'}


def test_records_that_are_not_json_are_rejected(tmp_path: Path) -> None:
    h = harness(tmp_path, bucket=lambda r: {"ok": "a", "no": "../x"}[r["k"]])
    rows: list[dict[str, Any]] = [
        {"k": "ok", "v": 1},
        {"k": "ok", "v": object()},
        {"k": "no", "v": 2},
        {"k": "ok", "v": 3},
    ]
    assert h.write(Records(rows, FileOrigin("f", range(10, 20)), [4, 3, 2, 1])) == 2
    assert end(h) == {"a/part-0-0.jsonl": b'{"k":"ok","v":1}\n{"k":"ok","v":3}\n'}
    assert [r.where["offset"] for r in h.rejects] == [12, 13]
    assert h.rejects[1].reason.startswith("cannot be written as JSON")
    assert json.loads(h.rejects[0].value) == {"k": "no", "v": 2}


def test_event_time_of_columns(tmp_path: Path) -> None:
    h = harness(tmp_path, format="parquet", bucket=EventTimeBucketAssigner("at.s", zone="UTC"))
    at = [{"s": 1545263999.999}, {"s": 1545264000.0}, {"s": None}, {"s": 1545263999.0}]
    assert h.write(batch(at=at, n=[1, 2, 3, 4])) == 3
    found = {c["bucket"]: (c["rows"], c["min_ms"], c["max_ms"]) for c in h.end_checkpoint()}
    assert found == {
        "dt=20181219": (2, 1545263999000, 1545263999999),
        "dt=20181220": (1, 1545264000000, 1545264000000),
    }
    assert pq.read_table(tmp_path / "dt=20181219" / "part-0-0.parquet")["n"].to_pylist() == [1, 4]
    assert [(r.reason, json.loads(r.value)) for r in h.rejects] == [("at.s is null", {"at": {"s": None}, "n": 3})]


def test_csv(tmp_path: Path) -> None:
    chunk = batch(**COLUMNS, **{BUCKET_COLUMN: ["x", "y", "x"]})
    files = end(harness(tmp_path, format="csv", bucket=ExpressionBucketAssigner("c")), chunk, chunk)
    assert list(files) == ["x/part-0-0.csv", "y/part-0-1.csv"]
    rows = list(csv.reader(files["x/part-0-0.csv"].decode().splitlines(keepends=True)))
    assert [row[:2] for row in rows] == [["a", "1"], ['q"\n,', ""]] * 2
    assert rows[0][3:] == ["true", "2018-12-19 01:50:26.432000Z", "2018-12-19", "1.20"]


def test_csv_with_header_is_one_part_a_segment(tmp_path: Path) -> None:
    h = harness(tmp_path, format="csv", header=True, columns=["n", "s"], rolling=RollingPolicy(size=18))
    for _ in range(2):
        h.write(batch(n=[1, 2, 3], s=["aaaa", "b\nb", "c"], other=[0, 0, 0]))
        h.end_checkpoint()
    assert list(h.finished().values()) == [b'"n","s"\n1,"aaaa"\n2,"b\nb"\n3,"c"\n'] * 2


def test_csv_with_header_counts_rows_over_the_size(tmp_path: Path) -> None:
    h = harness(tmp_path, format="csv", header=True, rolling=RollingPolicy(size=3))
    files = end(h, batch(n=[11, 22, 33]))
    assert list(files.values()) == [b'"n"\n11\n22\n', b'"n"\n33\n']


def test_csv_of_nested_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="cannot be written as CSV"):
        harness(tmp_path, format="csv").write(batch(x=[[1]]))


def test_parquet_rolls_on_every_checkpoint(tmp_path: Path) -> None:
    h = harness(tmp_path, format="parquet", compression="zstd")
    chunk = batch(**COLUMNS, **NESTED)
    for _ in range(2):
        h.write(chunk)
        h.write(chunk)
        assert len(h.end_checkpoint()) == 1
    assert sorted(h.finished()) == ["part-0-0.parquet", "part-0-1.parquet"]
    table = pq.read_table(tmp_path / "part-0-0.parquet")
    assert str(table.to_pylist()) == str(chunk.batch.to_pylist() * 2)
    assert pq.read_metadata(tmp_path / "part-0-1.parquet").row_group(0).column(0).compression == "ZSTD"


def test_parquet_parts_by_size(tmp_path: Path) -> None:
    each_batch = ParquetOptions(row_group_size=1)
    h = harness(tmp_path, format="parquet", parquet=each_batch, rolling=RollingPolicy(size=100))
    files = end(h, *(batch(n=list(range(i, i + 50))) for i in range(0, 200, 50)))
    assert len(files) == 4
    rows = [n for i in range(4) for n in pq.read_table(tmp_path / f"part-0-{i}.parquet")["n"].to_pylist()]
    assert rows == list(range(200))


def test_a_new_schema_begins_a_new_file(tmp_path: Path) -> None:
    h = harness(tmp_path, format="parquet", compaction=FileCompaction(every_checkpoints=3))
    for chunk in (batch(n=[1]), batch(n=["x"]), batch(n=[2])):
        h.write(chunk)
        h.end_checkpoint()
    assert h.hidden() == []
    tables = {name: pq.read_table(tmp_path / name)["n"].to_pylist() for name in h.finished()}
    assert tables == {"part-0-0.parquet": [1, 2], "part-0-1.parquet": ["x"]}


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_avro(tmp_path: Path, compression: str | None) -> None:
    chunk = batch(**{**COLUMNS, "f": [1.5, None, 0.1]}, **NESTED)
    h = harness(tmp_path, format="avro", compression=compression)
    end(h, chunk, chunk)
    with (tmp_path / "part-0-0.avro").open("rb") as handle:
        reader = fastavro.reader(handle)
        rows = list(reader)
        assert reader.codec == (compression or "null")
    want = chunk.batch.to_pylist(maps_as_pydicts="strict")
    assert rows == want * 2


def test_avro_refuses_what_it_cannot_say(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="not an Avro name"):
        harness(tmp_path, format="avro").write(batch(**{"a b": [1]}))
    with pytest.raises(DefinitionError, match="no counterpart"):
        harness(tmp_path, format="avro").write(batch(a=pa.array([1], pa.uint64())))


def test_avro_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(DefinitionError, match=r"fastavro(.|\n)*pip install"):
        FileSink(str(tmp_path), format="avro")


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("size", [None, 200])
def test_compressed_rows_join_by_bytes(tmp_path: Path, compression: str, size: int | None) -> None:
    h = harness(tmp_path, row="value", compression=compression, rolling=RollingPolicy(size=size, every=None))
    rows = [b"%d" % (i * i * 7919) for i in range(3000)]
    for first in range(0, 3000, 1000):
        h.write(lines(*rows[first : first + 1000]))
        h.end_checkpoint()
    files = end(h)
    assert len(files) == (1 if size is None else 3)
    ending = {"gzip": ".gz", "zstd": ".zst"}[compression]
    found = []
    for i in range(len(files)):
        data = files[f"part-0-{i}{ending}"]
        plain = gzip.decompress(data) if compression == "gzip" else zstd(data)
        found += plain.split(b"\n")[:-1]
    assert found == rows


def zstd(data: bytes) -> bytes:
    return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()  # type: ignore[no-any-return]


def test_compressed_files_of_one_input_are_equal(tmp_path: Path) -> None:
    """A replay that meets the same offsets writes the same bytes: no time stamp in the gzip header."""
    contents = [end(harness(tmp_path / n, row="value", compression="gzip"), lines(b"x")) for n in ("a", "b")]
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"row": "value", "format": "json"}, "row= writes one column"),
        ({"row": "value", "columns": ["a"]}, "row= writes one column"),
        ({"format": "xls"}, "format='xls' is not known"),
        ({"format": "orc", "compression": "gzip"}, "does not go with orc"),
        ({"format": "orc", "compaction": FileCompaction(min_size=1)}, "files of orc cannot be merged"),
        ({"format": "raw"}, "format='raw' is not known"),
        ({"compression": "lz4"}, "does not go with json"),
        ({"format": "parquet", "compression": "bz2"}, "does not go with parquet"),
        ({"header": True}, "header= is for CSV"),
        ({"format": "csv", "header": True, "compaction": FileCompaction(min_size=1)}, "cannot be merged"),
        ({"prefix": ".x"}, "prefix='.x'"),
        ({"prefix": "a/b"}, "prefix='a/b'"),
        ({"suffix": "/x"}, "suffix='/x'"),
        ({"columns": "abc"}, "columns='abc' is one text"),
        ({"bucket": "dt"}, "bucket='dt' is no assigner"),
        ({"rolling": "60 s"}, "rolling='60 s' is no policy"),
        ({"max_open_files": 0}, "max_open_files=0"),
        ({"bucket": EventTimeBucketAssigner("t", zone="UTC", source="json")}, "needs raw rows"),
        ({"path": " "}, "is not a folder"),
    ],
)
def test_refused_when_written(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        FileSink(**{"path": str(tmp_path), **options})


@pytest.mark.parametrize("options", [{}, {"min_size": "many"}, {"every_checkpoints": 0}, {"every_checkpoints": True}])
def test_compaction_settings(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        FileCompaction(**options)


@pytest.mark.parametrize("options", [{"every": "0 s"}, {"inactivity": "1"}, {"size": -1}])
def test_rolling_settings(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        RollingPolicy(**options)


def test_describe(tmp_path: Path) -> None:
    sink = FileSink("/out", row="value", bucket=EventTimeBucketAssigner("timestamp", zone="Asia/Shanghai"))
    assert sink.describe() == (
        "files /out (raw value; bucket 'dt='yyyyMMdd of timestamp in Asia/Shanghai; "
        "roll every 1 min, over 128.0 MB, idle 1 min; exactly-once)"
    )
    assert "parquet zstd" in FileSink("/out", format="parquet", compression="zstd").describe()


def test_wanted_columns_must_be_there(tmp_path: Path) -> None:
    for kind in ("json", "csv", "parquet"):
        with pytest.raises(DefinitionError, match=r"columns \['x'\] are not among"):
            harness(tmp_path, format=kind, columns=["n", "x"]).write(batch(n=[1]))


def test_bulk_takes_records_too(tmp_path: Path) -> None:
    end(harness(tmp_path, format="parquet"), Records([{"a": 1, "b": "x"}, {"a": 2, "b": None}]))
    assert pq.read_table(tmp_path / "part-0-0.parquet").to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_empty_batches_leave_nothing(tmp_path: Path) -> None:
    h = harness(tmp_path, format="parquet")
    assert h.write(Batch(pa.record_batch({"n": pa.array([], pa.int64())}))) == 0
    assert h.end_checkpoint(Occasion.END) == []
    assert h.paths() == []


def test_writing_a_sink_down_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from poundlock.connectors.files.sink.sink import FileSink\n"
        "from poundlock.connectors.files.buckets.assigners import EventTimeBucketAssigner\n"
        "s = FileSink('/x', row='value', bucket=EventTimeBucketAssigner('t', zone='UTC'))\n"
        "s.describe()\n"
        "print(sorted({'numpy', 'pyarrow', 'pandas', 'pyspark', 'msgspec', 'fastavro'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
