"""Whatever way files are cut into splits, each row comes out once, with its place."""

from __future__ import annotations

import bz2
import gzip
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from poundlock.connectors.base import ReaderContext, SplitSource
from poundlock.connectors.files.source.lines import line_blocks
from poundlock.connectors.files.source.source import FileSource
from poundlock.errors import DefinitionError, SourceGoneError, TerminalError
from poundlock.formats.convert import to_records
from poundlock.formats.reject import Reject
from poundlock.storage import LocalStorage
from support.examples import examples


def drain(source: FileSource, workspace: Path, want: Any = "batch") -> tuple[list[Any], list[Any], list[Reject], int]:
    """Read a bounded source to its end; return rows, places, rejects and the number of splits."""
    enumerator = source.enumerator(LocalStorage(str(workspace)))
    rejected: list[Reject] = []
    rows: list[Any] = []
    places: list[Any] = []
    position, splits = enumerator.initial(), 0
    while not enumerator.finished(position):
        end = enumerator.latest(position)
        assert end != position or enumerator.finished(end)
        work = enumerator.splits(position, end)
        assert len({s.id for s in work}) == len(work)
        splits += len(work)
        for split in work:
            for chunk in source.reader(ReaderContext(reject=rejected.append, want=want)).read(split):
                records = to_records(chunk)
                rows += records.rows
                places += [records.where(i) for i in range(len(records))]
        position = end
    assert enumerator.latest(position) == position
    return rows, places, rejected, splits


TEXT = st.lists(
    st.one_of(st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"x"]), st.binary(max_size=30)), max_size=30
).map(b"".join)


@examples(60)
@given(files=st.lists(TEXT, max_size=4), split=st.integers(1, 60), limit=st.integers(1, 200))
def test_every_line_comes_once_for_any_split_size(files: list[bytes], split: int, limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        data.mkdir()
        expected = []
        for i, content in enumerate(files):
            file = data / f"{i}.txt"
            file.write_bytes(content)
            os.utime(file, (i, i))
            offset = 0
            for line in content.split(b"\n"):
                text = line if offset else line.removeprefix(b"\xef\xbb\xbf")
                expected.append((text.removesuffix(b"\r"), str(file), offset))
                offset += len(line) + 1
            if content.endswith(b"\n") or not content:
                expected.pop()
        source = FileSource(str(data), split_size=split, max_bytes_per_checkpoint=limit)
        if files:
            source.preflight()
        rows, places, _, _ = drain(source, Path(folder, "work"))
        found = [(r["value"], p["file"], p["offset"]) for r, p in zip(rows, places, strict=True)]
        assert sorted(found) == sorted(expected)


@given(content=TEXT, block=st.integers(1, 40), short=st.integers(1, 7))
def test_lines_do_not_depend_on_how_much_is_read_at_once(content: bytes, block: int, short: int) -> None:
    at = 0

    def fill(view: memoryview) -> int:
        nonlocal at
        piece = content[at : at + min(len(view), short)]
        view[: len(piece)] = piece
        at += len(piece)
        return len(piece)

    chunks = list(line_blocks(fill, "f", 0, None, block))
    rows = [(c.row(i), c.origin.at(i)["offset"]) for c in chunks for i in range(len(c))]
    offset, expected = 0, []
    for line in content.split(b"\n"):
        expected.append((line, offset))
        offset += len(line) + 1
    if not expected[-1][0]:
        expected.pop()
    assert rows == expected
    for c in chunks:
        assert np.flatnonzero(np.frombuffer(c.data, np.uint8) == 10).tolist() == c.ends.tolist()
        assert len(c.data) == c.ends[-1] + 1


def test_chunks_stay_valid_after_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"".join(b"%07d\n" % i for i in range(400_000)))
    source = FileSource(str(tmp_path / "a"), split_size="1 GB")
    enumerator = source.enumerator(LocalStorage(str(tmp_path / "work")))
    end = enumerator.latest(enumerator.initial())
    (split,) = enumerator.splits(enumerator.initial(), end)
    chunks = list(source.reader(ReaderContext(reject=None)).read(split))
    assert len(chunks) > 2
    assert [int(r["value"]) for c in chunks for r in to_records(c).rows] == list(range(400_000))


@pytest.mark.parametrize("want", ["batch", "records"])
def test_json(tmp_path: Path, want: str) -> None:
    rows = [b'{"a":%d,"b":"x%d"}' % (i, i) for i in range(100)]
    rows[50] = b'{"a":"fifty"}'
    content = b"\xef\xbb\xbf" + b"\r\n".join(rows)
    (tmp_path / "a.json").write_bytes(content)
    source = FileSource(str(tmp_path / "*.json"), format="json", schema="a int, b string", split_size=100)
    source.preflight()
    found, places, rejected, splits = drain(source, tmp_path / "work", want)
    assert splits > 10
    assert [r["a"] for r in found] == [i for i in range(100) if i != 50]
    assert [(r.value, r.where["offset"]) for r in rejected] == [(rows[50], content.index(rows[50]))]
    assert all(
        content[p["offset"] :].startswith(b'{"a":%d' % r["a"]) for r, p in zip(found[1:], places[1:], strict=True)
    )


@pytest.mark.parametrize("split", [7, 50, 100_000])
def test_csv_headers_are_matched_by_name(tmp_path: Path, split: int) -> None:
    (tmp_path / "1.csv").write_bytes(b"\xef\xbb\xbfa;b;c\r\n" + b"".join(b"%d;x%d;0\r\n" % (i, i) for i in range(20)))
    (tmp_path / "2.csv").write_bytes(b'b;"a"\n' + b"".join(b"y%d;%d\n" % (i, i) for i in range(20, 40)) + b"bad;bad\n1")
    options: dict[str, Any] = {"format": "csv", "header": True, "delimiter": ";", "split_size": split}
    for want in ("batch", "records"):
        source = FileSource(str(tmp_path), glob="*.csv", schema="a int, b string, d date", **options)
        rows, _, rejected, _ = drain(source, tmp_path / f".work-{want}", want)
        assert sorted(rows, key=lambda r: r["a"]) == [
            {"a": i, "b": f"{'x' if i < 20 else 'y'}{i}", "d": None} for i in range(40)
        ]
        assert [r.value for r in rejected] == [b"bad;bad", b"1"]
    inferred = FileSource(str(tmp_path / "1.csv"), **options)
    assert inferred.schema() == pa.schema([(n, pa.string()) for n in "abc"])
    assert drain(inferred, tmp_path / ".work-i")[0][3] == {"a": "3", "b": "x3", "c": "0"}


def test_csv_fields_with_line_ends(tmp_path: Path) -> None:
    body = "".join(f'{i},"line one {i}\nsays ""two"""\n' for i in range(200)) + '9,"never closed\n10,x\n'
    (tmp_path / "a.csv").write_text("n,t\n" + body)
    source = FileSource(
        str(tmp_path / "a.csv"), format="csv", header=True, multiline=True, schema="n int, t string", split_size=64
    )
    rows, places, rejected, splits = drain(source, tmp_path / ".work")
    assert rows == [{"n": i, "t": f'line one {i}\nsays "two"'} for i in range(200)]
    assert splits == 1
    assert (tmp_path / "a.csv").read_text()[places[7]["offset"] :].startswith('7,"line')
    assert [r.value for r in rejected] == [b'9,"never closed\n10,x']


def test_a_quote_within_a_field_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'5" pipe\n6" pipe\n"7"" ""pipe"\r\n"8\r\n9"\r\n"a"b"\n"c\\"d"\nlast\n')
    source = FileSource(str(tmp_path / "a.csv"), format="csv", multiline=True, schema="t string")
    rows, _, rejected, _ = drain(source, tmp_path / ".work")
    assert [r["t"] for r in rows] == ['5" pipe', '6" pipe', '7" "pipe', "8\r\n9", "last"]
    assert [r.value for r in rejected] == [b'"a"b"', b'"c\\"d"']


def test_a_quote_that_is_never_closed_needs_no_memory(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'"' + b"x" * (1 << 23) + b"\n1\n")
    script = """
import resource, sys
from poundlock.formats.decode_csv import split_record
text = open(sys.argv[1]).readline()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    split_record(text)
except ValueError as error:
    print(error, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.csv")], capture_output=True, text=True)
    assert done.stdout.startswith("the quote at character 0 is not closed "), done.stderr
    assert int(done.stdout.split()[-1]) < 100, "MB"


@pytest.mark.parametrize("want", ["batch", "records"])
def test_rubbish_in_csv_is_a_dead_letter_each_and_shifts_nothing(tmp_path: Path, want: str) -> None:
    bad = [b"1", b"2,b,c", b"", b'3,"open', b'4,"a"b', b"x,y", b"5,\xff", b'"6,six"']
    good = [b"7,seven", b'8,"eight, ""8"""', b"9,", b'10,te"n']
    lines = [line for pair in zip(bad, good + good, strict=True) for line in pair]
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfn,t\n" + b"\n".join(lines) + b"\n")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b""))
    source = FileSource(str(tmp_path), glob="a.csv*", format="csv", header=True, schema="n int not null, t string")
    rows, places, rejected, _ = drain(source, tmp_path / ".work", want)
    assert [(r["n"], r["t"]) for r in rows] == [(7, "seven"), (8, 'eight, "8"'), (9, None), (10, 'te"n')] * 2
    assert [r.value for r in rejected] == bad
    content = (tmp_path / "a.csv").read_bytes()
    for place in (*places, *(r.where for r in rejected)):
        assert content[: place["offset"]].endswith(b"\n")
    assert [content[r.where["offset"] :].startswith(line + b"\n") for r, line in zip(rejected, bad, strict=True)] == [
        True
    ] * len(bad)


@pytest.mark.parametrize("want", ["batch", "records"])
def test_a_column_that_must_not_be_null_and_is_not_in_a_file(tmp_path: Path, want: str) -> None:
    (tmp_path / "a.csv").write_text("t\nx\n")
    source = FileSource(str(tmp_path / "a.csv"), format="csv", header=True, schema="n int not null, t string")
    rows, _, rejected, _ = drain(source, tmp_path / ".work", want)
    assert (rows, len(rejected)) == ([], 1)


def test_a_header_of_other_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("3,4\n5,6\n")
    (tmp_path / "3.csv").write_text("b,c\n1,2\n")
    os.utime(tmp_path / "1.csv", (1, 1))
    for other, schema in (("2.csv", None), ("2.csv", "a int, b int"), ("3.csv", None)):
        source = FileSource(str(tmp_path), glob=f"[1{other[0]}].csv", format="csv", header=True, schema=schema)
        with pytest.raises(TerminalError, match=rf"{other}: its header names .*, and the columns are a, b") as caught:
            drain(source, tmp_path / f".work-{other}-{schema}")
        assert "schema=" in caught.value.next
    chosen = FileSource(str(tmp_path), glob="[13].csv", format="csv", header=True, schema="a int, b int")
    assert sorted(r["b"] for r in drain(chosen, tmp_path / ".work")[0]) == [1, 2]


def test_a_byte_order_mark_is_no_part_of_a_line_of_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    rows, places, _, _ = drain(FileSource(str(tmp_path / "a"), split_size=5), tmp_path / ".work")
    assert [r["value"] for r in rows] == [b"one", b"\xef\xbb\xbftwo"]
    assert [p["offset"] for p in places] == [0, 7]


def test_compressed_files_are_read_whole(tmp_path: Path) -> None:
    lines = b"".join(b"row %d\r\n" % i for i in range(50_000))
    half = lines.index(b"row 20000")
    (tmp_path / "a.gz").write_bytes(gzip.compress(lines[:half]) + gzip.compress(lines[half:]))
    (tmp_path / "b.ZST").write_bytes(zstandard.compress(lines))
    (tmp_path / "c.bz2").write_bytes(bz2.compress(lines))
    (tmp_path / "d.txt").write_bytes(lines)
    rows, places, _, splits = drain(FileSource(str(tmp_path), split_size=20_000), tmp_path / ".work")
    assert sorted(r["value"] for r in rows) == sorted(b"row %d" % i for i in range(50_000) for _ in range(4))
    assert splits == 3 + -(-len(lines) // 20_000)
    for row, place in zip(rows, places, strict=True):
        assert lines.startswith(row["value"], place["offset"])


def test_a_broken_archive_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(100_000).replace(b"\n", b" ") + b"\n")
    (tmp_path / "a.gz").write_bytes(whole[:50_000])
    with pytest.raises(TerminalError, match=r"a\.gz cannot be read"):
        drain(FileSource(str(tmp_path / "a.gz")), tmp_path / ".work")


def test_a_file_that_is_no_avro_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(b"{}\n")
    with pytest.raises(TerminalError, match=r"a\.avro cannot be read: .*avro"):
        drain(FileSource(str(tmp_path / "a.avro"), format="avro", schema="a int"), tmp_path / ".work")


@pytest.mark.parametrize("split", [1_000, 50_000, 1 << 30])
def test_parquet_row_groups(tmp_path: Path, split: int) -> None:
    table = pa.table(
        {"n": pa.array(range(10_000), pa.uint32()), "s": [f"v{i}" for i in range(10_000)], "x": [1] * 10_000}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1_000)
    source = FileSource(str(tmp_path), format="parquet", split_size=split)
    assert source.schema() == pa.schema([("n", pa.int64()), ("s", pa.string()), ("x", pa.int64())])
    rows, places, _, _ = drain(source, tmp_path / ".work1")
    assert sorted(r["n"] for r in rows) == list(range(10_000))
    assert all(r["n"] == p["offset"] and r["s"] == f"v{r['n']}" for r, p in zip(rows, places, strict=True))
    cast = FileSource(str(tmp_path), format="parquet", schema="missing int, n string", split_size=split)
    assert {"missing": None, "n": "77"} in drain(cast, tmp_path / ".work2", "records")[0]


def test_avro_files(tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}],
    }
    with open(tmp_path / "a.avro", "wb") as out:
        fastavro.writer(out, schema, [{"n": i, "s": None if i % 2 else "even"} for i in range(20_000)])
    source = FileSource(str(tmp_path / "a.avro"), format="avro", split_size=100)
    rows, places, _, splits = drain(source, tmp_path / ".work")
    assert splits == 1
    assert rows == [{"n": i, "s": None if i % 2 else "even"} for i in range(20_000)]
    assert places[12_345]["offset"] == 12_345


def test_wide_records_of_avro_come_few_at_a_time(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}
    with open(tmp_path / "a.avro", "wb") as out:
        fastavro.writer(out, schema, [{"s": "x" * (1 << 20)} for _ in range(100)])
    source = FileSource(str(tmp_path / "a.avro"), format="avro")
    enumerator = source.enumerator(LocalStorage(str(tmp_path / ".work")))
    start = enumerator.initial()
    (split,) = enumerator.splits(start, enumerator.latest(start))
    counts = [len(chunk) for chunk in source.reader(ReaderContext(reject=None, want="records")).read(split)]
    assert sum(counts) == 100
    assert max(counts) <= 32


def test_a_taken_file_must_stay_as_it_was(tmp_path: Path) -> None:
    for name in ("gone", "longer", "shorter", "same-size"):
        file = tmp_path / name
        file.write_bytes(b"a\nb\n")
        source = FileSource(str(file))
        enumerator = source.enumerator(LocalStorage(str(tmp_path / f"work-{name}")))
        end = enumerator.latest(enumerator.initial())
        (split,) = enumerator.splits(enumerator.initial(), end)
        if name == "gone":
            file.unlink()
        else:
            file.write_bytes({"longer": b"a\nb\nc\n", "shorter": b"a\n", "same-size": b"x\ny\n"}[name])
            later = file.stat().st_mtime_ns + 5_000_000  # some file systems tell times apart by milliseconds only
            os.utime(file, ns=(later, later))
        with pytest.raises(SourceGoneError, match=name) as caught:
            list(source.reader(ReaderContext(reject=None)).read(split))
        assert "rename" in caught.value.next


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.parquet").write_bytes(b"no")
    for words, make in {
        "format='xml'": lambda: FileSource("x", format="xml"),  # type: ignore[arg-type]
        "needs a schema": lambda: FileSource("x", format="json"),
        "unknown type": lambda: FileSource("x", format="parquet", schema="a innt"),
        "compression": lambda: FileSource("x", compression="rar"),  # type: ignore[arg-type]
        "header": lambda: FileSource("x", header=True),
        "multiline has no effect": lambda: FileSource("x", format="csv", schema="a int", multiline=True, quote=""),
        "delimiter=';;'": lambda: FileSource("x", format="csv", header=True, delimiter=";;"),
        "quote=None": lambda: FileSource("x", format="csv", schema="a int", quote=None),  # type: ignore[arg-type]
        "null=None": lambda: FileSource("x", format="csv", schema="a int", null=None),  # type: ignore[arg-type]
        "timestamp_unit='h'": lambda: FileSource("x", format="csv", header=True, timestamp_unit="h"),
        "one column": lambda: FileSource("x", schema="a int"),
        "split_size is zero": lambda: FileSource("x", split_size=0),
        "max_files_per_checkpoint is zero": lambda: FileSource("x", max_files_per_checkpoint=0),
        "watch='false' is not true or false": lambda: FileSource("x", watch="false"),  # type: ignore[arg-type]
        "recursive=None is not": lambda: FileSource("x", recursive=None),  # type: ignore[arg-type]
        "file system": lambda: FileSource("s4://x/y"),
        "not a folder that exists": FileSource(str(tmp_path / "missing")).preflight,
        "no file in": FileSource(str(tmp_path / "empty")).preflight,
        "no file to read the columns": FileSource(str(tmp_path / "empty"), format="parquet", watch=True).schema,
        "cannot be read as parquet": FileSource(str(tmp_path), format="parquet").preflight,
    }.items():
        with pytest.raises(DefinitionError, match=words):
            make()
    FileSource(str(tmp_path / "empty"), watch=True).preflight()
    assert isinstance(FileSource("x"), SplitSource)


def test_a_parquet_file_is_read_by_bytes_and_not_by_rows(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    documents = [os.urandom(1 << 20).hex() for _ in range(12)]  # 2 MB each, and nothing that compresses them away
    pq.write_table(pa.table({"d": documents}), tmp_path / "in" / "a.parquet", use_dictionary=False)
    source = FileSource(str(tmp_path / "in"), format="parquet", schema="d string")
    enumerator = source.enumerator(LocalStorage(str(tmp_path / "work")))
    start = enumerator.initial()
    chunks = [
        chunk
        for split in enumerator.splits(start, enumerator.latest(start))
        for chunk in source.reader(ReaderContext(reject=lambda reject: None, want="batch")).read(split)
    ]
    assert sum(map(len, chunks)) == 12
    assert max(map(len, chunks)) <= 8, "16 MB"
