"""Formats of the user's, and the layout of Parquet files: what is written, cut, joined and refused."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from poundlock.checkpoint.participant import Occasion
from poundlock.connectors.files.buckets.assigners import ColumnBucketAssigner
from poundlock.connectors.files.sink.rolling import FileCompaction, RollingPolicy
from poundlock.connectors.files.sink.sink import FileSink
from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.own.custom import BulkWriter, BulkWriterFactory, Encoder
from poundlock.formats.own.parquet_options import BloomFilter, ParquetOptions
from support.sinks import JOB, FileSinkHarness, batch


class Pipes(Encoder):
    """id|text, a line each."""

    suffix = ".psv"

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        text = pc.binary_join_element_wise(rows["id"].cast(pa.string()), rows["text"], "|")
        return pc.binary_join_element_wise(text, pa.scalar("\n"), "")


class Gives(Encoder):
    """What it was made with."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        return self.made


class IpcWriter:
    """A file of Arrow's own."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._writer = pyarrow.ipc.new_stream(file, schema)

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)

    def finish(self) -> None:
        self._writer.close()


class ArrowFiles(BulkWriterFactory):
    """Files of Arrow's own."""

    suffix = ".arrows"

    def create(self, file: BinaryIO, schema: pa.Schema) -> BulkWriter:
        return IpcWriter(file, schema)


def harness(folder: Path, **given: Any) -> FileSinkHarness:
    sink = FileSink(str(folder), **given)
    return FileSinkHarness(pickle.loads(pickle.dumps(sink.bind(job_id=JOB, sink="out"))))


def test_an_encoder_writes_rows_that_are_joined_over_checkpoints(tmp_path: Path) -> None:
    h = harness(tmp_path, format=Pipes(), bucket=ColumnBucketAssigner("to"))
    h.write(batch(id=[1, 2, 3], text=["a", "bb", ""], to=["x", "y", "x"]))
    h.end_checkpoint()
    h.write(batch(id=[4], text=["ö"], to=["x"]))
    h.end_checkpoint(Occasion.END)
    assert h.finished() == {"x/part-0-0.psv": "1|a\n3|\n4|ö\n".encode(), "y/part-0-1.psv": b"2|bb\n"}


def test_an_encoder_with_compression_and_columns(tmp_path: Path) -> None:
    h = harness(tmp_path, format=Pipes(), columns=["text", "id"], compression="gzip")
    h.write(batch(id=[1], text=["a"], more=[2]))
    h.end_checkpoint(Occasion.END)
    assert {path: gzip.decompress(content) for path, content in h.finished().items()} == {"part-0-0.psv.gz": b"1|a\n"}


def test_rows_of_other_lengths_than_lines(tmp_path: Path) -> None:
    values = pa.array([b"xx", b"a\nb", None, b"", b"c"]).slice(1)
    h = harness(tmp_path, format=Gives(values), rolling=RollingPolicy(size=1))
    assert h.write(batch(id=[1, 2, 3, 4])) == 3
    h.end_checkpoint(Occasion.END)
    assert b"".join(h.finished().values()) == b"a\nbc"
    assert [(each.reason, json.loads(each.value)) for each in h.rejects] == [("Gives gives nothing for it", {"id": 2})]


@pytest.mark.parametrize(
    ("made", "problem"),
    [(pa.array(["a"]), "1 values for 2 rows"), ("text", "gives str"), (pa.array([1, 2]), "gives int64")],
)
def test_what_an_encoder_must_not_give(made: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match=problem):
        harness(tmp_path, format=Gives(made)).write(batch(id=[1, 2]))


def test_a_bulk_writer_writes_a_file_each_checkpoint(tmp_path: Path) -> None:
    h = harness(tmp_path, format=ArrowFiles())
    h.write(batch(id=[1, 2]))
    h.write(batch(id=[3]))
    h.end_checkpoint()
    h.write(batch(id=[4]))
    h.crash()
    h.write(batch(id=[5]))
    h.end_checkpoint()
    read = {
        path: pyarrow.ipc.open_stream(content).read_all()["id"].to_pylist() for path, content in h.finished().items()
    }
    assert read == {"part-0-0.arrows": [1, 2, 3], "part-0-1.arrows": [5]}


@pytest.mark.parametrize("format", [Pipes(), ArrowFiles()])
def test_fsck_finishes_files_without_the_format(format: Any, tmp_path: Path) -> None:
    h = harness(tmp_path, format=format)
    for each in range(2):
        h.write(batch(id=[each], text=["a"]))
        decided = h.decide(Occasion.END if each else Occasion.CHECKPOINT)
    rebuilt = FileSink.from_json(json.loads(json.dumps(h.sink.describe_json())))
    assert [each.problem for each in rebuilt.inspect(decided[-1])] == ["pending"]
    rebuilt.commit(decided[-1])
    assert rebuilt.inspect(decided[-1]) == []
    assert rebuilt.ending == format.suffix


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"format": "xml"}, "is not known"),
        ({"format": Pipes}, "is not known"),
        ({"format": "raw"}, "is not known"),
        ({"format": Pipes(), "row": "value"}, "do not go with it"),
        ({"format": ArrowFiles(), "compression": "gzip"}, "does not go with"),
        ({"format": ArrowFiles(), "compaction": FileCompaction(min_size="1 MB")}, "cannot be merged"),
        ({"format": ArrowFiles(), "rolling": RollingPolicy(every="1 h")}, "ArrowFiles files are finished"),
        ({"format": "json", "parquet": ParquetOptions()}, "has no effect"),
        ({"format": "parquet", "parquet": {"row_group_rows": 1}}, "has no effect"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        FileSink("out", **given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"row_group_size": 0}, "row_group_size is zero"),
        ({"row_group_rows": 0}, "row_group_rows=0"),
        ({"sort_by": "id"}, "one text"),
        ({"dictionary": "id"}, "one text"),
        ({"bloom_filters": {"id": 0.1}}, "Bloom filter of 'id'"),
        ({"page_index": "no"}, "page_index"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        ParquetOptions(**given)


def test_a_bloom_filter_that_cannot_be_is_refused() -> None:
    with pytest.raises(DefinitionError, match="is no Bloom filter"):
        BloomFilter(false_positives=2)


LAID_OUT = ParquetOptions(
    row_group_rows=3, page_size="64 KB", dictionary=["text"], sort_by=["text", "-id"], page_index=True,
    bloom_filters={"id": BloomFilter(distinct=100, false_positives=0.01)},
)  # fmt: skip


@pytest.mark.parametrize("compaction", [None, FileCompaction(every_checkpoints=2)])
def test_parquet_files_are_laid_out_as_asked_also_when_they_are_merged(compaction: Any, tmp_path: Path) -> None:
    h = harness(tmp_path, format="parquet", parquet=LAID_OUT, compression="zstd", compaction=compaction)
    for ids, texts in (([1, 2, 3, 4], ["b", "a", None, "c"]), ([5, 6], ["a", "a"])):
        h.write(batch(id=ids, text=texts))
        h.end_checkpoint()
    assert len(h.finished()) == (2 if compaction is None else 1)
    groups = []
    for path in h.finished():
        file = pq.ParquetFile(tmp_path / path)
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            assert [(each.column_index, each.descending, each.nulls_first) for each in group.sorting_columns] == [
                (1, False, False), (0, True, False),
            ]  # fmt: skip
            plain, coded = group.column(0), group.column(1)
            assert (plain.has_dictionary_page, coded.has_dictionary_page) == (False, True)
            assert (plain.compression, plain.has_offset_index) == ("ZSTD", True)
            groups.append(file.read_row_group(number).to_pylist())
    listed = [[(each["text"], each["id"]) for each in group] for group in groups]
    if compaction is None:
        assert listed == [[("a", 2), ("b", 1), (None, 3)], [("c", 4)], [("a", 6), ("a", 5)]]
    else:
        assert all(len(group) <= 3 for group in listed)
        assert sorted(id for group in listed for _, id in group) == [1, 2, 3, 4, 5, 6]


def test_the_bloom_filter_is_in_the_file(tmp_path: Path) -> None:
    sizes = []
    for filters in ({}, {"id": BloomFilter(distinct=50_000)}):
        h = harness(tmp_path / str(len(filters)), format="parquet", parquet=ParquetOptions(bloom_filters=filters))
        h.write(batch(id=list(range(5_000))))
        h.end_checkpoint()
        sizes.append(sum(map(len, h.finished().values())))
    assert sizes[1] > sizes[0] + 3_000


def test_row_groups_by_size(tmp_path: Path) -> None:
    h = harness(tmp_path, format="parquet", parquet=ParquetOptions(row_group_size="8 KB"))
    for _ in range(4):
        h.write(batch(id=list(range(1024))))
    h.end_checkpoint()
    assert pq.ParquetFile(tmp_path / "part-0-0.parquet").num_row_groups == 4


def test_columns_that_are_not_there_are_refused_before_anything_runs() -> None:
    sink = FileSink("out", format="parquet", parquet=ParquetOptions(sort_by=["-at"]))
    with pytest.raises(DefinitionError, match="the column 'at', which is not among"):
        sink.check_columns("out", ["id", "text"])
    sink.check_columns("out", ["at"])


def test_the_layout_is_described_for_fsck() -> None:
    sink = FileSink("out", format="parquet", parquet=LAID_OUT)
    assert FileSink.from_json(json.loads(json.dumps(sink.describe_json()))).parquet == LAID_OUT
