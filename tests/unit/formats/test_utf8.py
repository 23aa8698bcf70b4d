"""Rows with text that is not UTF-8, or times that Python does not have: found, shown, and rejected or written by whatever writes them, never an exception."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from poundlock import JdbcSink
from poundlock.checkpoint.participant import Reject, WriterContext
from poundlock.connectors.postgres.sink.rows import raw_row
from poundlock.connectors.postgres.sink.table import Table, TableColumn
from poundlock.connectors.postgres.sink.writer import PostgresWriter
from poundlock.errors import TerminalError
from poundlock.formats.chunk import Batch, NoOrigin, Records
from poundlock.formats.convert import not_utf8, row_values, to_batch, to_records
from poundlock.formats.encode import JsonEncoder

GOOD, BAD = b"w\xc3\xb6rter", b"\xff\xfe"


def text(*values: bytes | None) -> pa.Array:
    """Return bytes as a column of text, whatever they are, as Spark's cast does."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


def nested(kind: str, *values: bytes) -> pa.Array:
    inner, ends = text(*values), pa.array(range(len(values) + 1), pa.int32())
    if kind == "struct":
        return pa.StructArray.from_arrays([inner, pa.array(range(len(values)))], names=["a", "n"])
    if kind == "map":
        return pa.MapArray.from_arrays(ends, inner, inner)
    lists = pa.ListArray.from_arrays(ends, inner)
    return lists if kind == "list" else pa.StructArray.from_arrays([lists], names=["deep"])


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch({k: v if isinstance(v, pa.Array) else pa.array(v) for k, v in columns.items()})


KINDS = ["struct", "list", "map", "struct of lists"]


@pytest.mark.parametrize("kind", KINDS)
def test_bad_text_is_found_wherever_it_is(kind: str) -> None:
    rows = batch(n=[1, 2, 3], x=nested(kind, GOOD, BAD, GOOD), t=text(GOOD, GOOD, BAD), b=[b"\xff"] * 3)
    assert not_utf8(rows) == {
        1: "column 'x': text that is not UTF-8",
        2: "column 't': text that is not UTF-8",
    }
    assert list(not_utf8(rows, nested_only=True)) == [1]
    assert not_utf8(rows.slice(0, 1)) == {}
    assert list(not_utf8(rows.slice(1))) == [0, 1]
    assert row_values(rows, 2)["t"] == BAD
    assert "xff" in repr(row_values(rows, 1)["x"])
    assert "wörter" in repr(row_values(rows, 0)["x"])
    assert not_utf8(batch(t=text(GOOD, BAD).dictionary_encode())) == {1: "column 't': text that is not UTF-8"}
    assert row_values(batch(t=text(GOOD, BAD).dictionary_encode()), 1) == {"t": BAD}
    beyond = pa.array([3_000_000], pa.date32())
    assert row_values(batch(d=beyond, x=pa.StructArray.from_arrays([beyond], ["d"])), 0) == {
        "d": 3_000_000,
        "x": {"d": 3_000_000},
    }


@pytest.mark.parametrize("kind", KINDS)
def test_json_lines_go_on_without_such_rows(kind: str) -> None:
    rows = batch(n=[1, 2, 3, 4], x=nested(kind, GOOD, BAD, GOOD, GOOD), t=text(GOOD, GOOD, BAD, GOOD))
    encoded = JsonEncoder().encode(Batch(rows))
    assert [json.loads(line)["n"] for line in bytes(encoded.data).splitlines()] == [1, 4]
    assert list(encoded.bad) == [1, 2]
    assert len(encoded.ends) == 2


def context(rejects: list[Reject]) -> WriterContext:
    return WriterContext(
        job_id="a" * 32, sink="out", epoch=1, checkpoint=0, subtask=0, attempt="a", directive={}, reject=rejects.append,
        started_ms=0,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_postgres_never_gets_them(kind: str) -> None:
    """Plain text the server looks at itself; what is in structs and lists is made JSON or an array's text before."""
    rejects: list[Reject] = []
    column = TableColumn("x", "x", "jsonb", "jsonb", "U", False, False, False)
    from poundlock import PostgresSink

    writer = PostgresWriter(context(rejects), PostgresSink("host=nowhere", "t"))
    writer._table = Table(1, "t", [column], False)
    rows = Batch(batch(x=nested(kind, GOOD, BAD, GOOD)))
    assert writer._acceptable(rows, rows.batch, [column]).tolist() == [0, 2]
    assert [r.reason for r in rejects] == ["column 'x': text that is not UTF-8"]
    assert "\\\\xff" in rejects[0].value.decode()
    assert json.loads(raw_row(rows.batch, 0))["x"]


def test_jdbc_rejects_text_that_no_database_takes(tmp_path: Path) -> None:
    rejects: list[Reject] = []
    sink = JdbcSink("jdbc:x:y", "t", staging=str(tmp_path))
    writer = sink.open_writer(context(rejects))
    rows = batch(
        n=[1, 2, 3, 4, 5],
        t=text(GOOD, BAD, b"a\0b", None, b"back\\slash"),
        d=pa.array([datetime.date(2020, 1, 1)] * 5),
    )
    assert writer.write(Batch(rows)) == 3
    assert [r.reason for r in rejects] == ["column 't': text that is not UTF-8", "column 't': text with a zero byte"]
    assert b"\\xff\\xfe" in rejects[0].value
    (payload,) = writer.prepare()
    staged = pa.ipc.open_stream((tmp_path / payload["file"]).read_bytes()).read_all()
    assert staged["n"].to_pylist() == [1, 4, 5]
    writer = JdbcSink("jdbc:x:y", "t", staging=str(tmp_path / "other")).open_writer(context(rejects))
    assert writer.write(Batch(batch(t=text(GOOD, BAD).dictionary_encode()))) == 1
    writer.abandon()


def test_half_a_character_in_a_row_of_python_is_a_bad_row() -> None:
    rejects: list[Reject] = []
    schema = pa.schema({"s": pa.struct([("t", pa.string())]), "n": pa.int64()})
    rows = Records([{"s": {"t": "a\ud800"}, "n": 1}, {"s": {"t": "good"}, "n": 2}])
    assert to_batch(rows, schema, rejects.append).batch["n"].to_pylist() == [2]
    assert json.loads(rejects[0].value) == {"s": {"t": "a\ud800"}, "n": 1}


def test_a_time_that_python_does_not_have_is_written_as_json_and_changes_no_other_row() -> None:
    """The last window of the year 9999 ends in the next one."""
    times = pa.array([253_402_300_800_000_000, 0, None, -62_135_625_600_000_000], pa.timestamp("us", "UTC"))
    days = pa.array([3_000_000, 0, None, 1], pa.date32())
    encoded = JsonEncoder().encode(Batch(batch(t=times, d=days)))
    assert not encoded.bad
    assert [tuple(json.loads(line).values()) for line in bytes(encoded.data).splitlines()] == [
        ("10000-01-01T00:00:00.000000Z", "10183-09-21"),
        ("1970-01-01T00:00:00Z", "1970-01-01"),
        (None, None),
        ("0000-12-31T16:00:00.000000Z", "1970-01-02"),
    ]


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.date32()])
def test_a_time_that_python_does_not_have_is_told_before_a_function_sees_it(kind: pa.DataType) -> None:
    """It was told as an error of the function, at a line of pyarrow, and the job started again in vain."""
    number = {"date32[day]": 3_000_000}.get(str(kind), 253_402_300_800_000_000)
    column = pa.array([0, number], pa.int64() if pa.types.is_timestamp(kind) else pa.int32()).cast(kind)
    with pytest.raises(
        TerminalError, match=r"a value of the type .* that Python has not: .*\nNext: leave such rows out"
    ):
        to_records(Batch(pa.record_batch({"t": column})))


def test_what_a_function_has_from_numpy_is_written_as_json_as_in_other_formats() -> None:
    given = [np.int64(5), np.float64(1.5), np.float64("nan"), np.bool_(True), np.str_("x"), np.array([1, 2]), object()]
    encoded = JsonEncoder().encode(Records([{"n": value} for value in given], NoOrigin("made")))
    assert [json.loads(line)["n"] for line in bytes(encoded.data).splitlines()] == [5, 1.5, None, True, "x", [1, 2]]
    assert encoded.bad == {6: "cannot be written as JSON: Encoding objects of type object is unsupported"}
