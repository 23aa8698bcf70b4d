"""The raw format: texts, bytes and numbers as the whole record."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from poundlock.sql.errors import OptionError
from poundlock.sql.functions.function import EvaluationError
from poundlock.sql.types import BYTES, STRING, SqlType
from support.table_formats import binary, columns_of, decoder, encoder


def test_texts_and_bytes() -> None:
    assert decoder(columns_of(a=STRING), "raw").decode(binary([b"x", b"\xff", None, b""]), ["a"])[0]["a"].to_pylist() == [
        "x", "\ufffd", None, "",
    ]  # fmt: skip
    assert decoder(columns_of(a=BYTES), "raw").decode(binary([b"\xff", None]), ["a"])[0]["a"].to_pylist() == [
        b"\xff",
        None,
    ]
    rows = pa.RecordBatch.from_arrays([pa.array(["x", None, "é"])], ["a"])
    assert encoder(columns_of(a=STRING), "raw").encode(rows).to_pylist() == [b"x", b"", "é".encode()]


@pytest.mark.parametrize(
    ("root", "code", "value"),
    [("TINYINT", "b", -3), ("SMALLINT", "h", 300), ("INT", "i", -70_000), ("BIGINT", "q", 1 << 40), ("FLOAT", "f", 0.5), ("DOUBLE", "d", -0.1), ("BOOLEAN", "?", True)],
)  # fmt: skip
def test_numbers(root: str, code: str, value: object) -> None:
    kind = SqlType(root)  # type: ignore[arg-type]
    columns = columns_of(a=kind)
    for option, order in (({}, ">"), ({"endianness": "little-endian"}, "<")):
        record = struct.pack(order + code, value)
        made, _ = decoder(columns, "raw", **option).decode(binary([record, None]), ["a"])
        assert made.schema.types == [kind.arrow]
        assert made["a"].to_pylist() == [value, None]
        assert encoder(columns, "raw", **option).encode(made.slice(0, 2)).to_pylist() == [record, b""]
    with pytest.raises(EvaluationError, match="cannot be read") as caught:
        decoder(columns, "raw").decode(binary([b"123"]), ["a"])
    assert caught.value.kind == "bad_record"


def test_what_is_refused() -> None:
    for columns in (columns_of(a=STRING, b=STRING), columns_of(a=SqlType("DATE"))):
        with pytest.raises(OptionError, match="raw is of one column"):
            decoder(columns, "raw")
    with pytest.raises(OptionError) as caught:
        decoder(columns_of(a=STRING), "raw", charset="UTF-16")
    assert caught.value.kind == "bad_option_value"
