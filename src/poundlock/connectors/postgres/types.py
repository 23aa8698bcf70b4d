"""PostgreSQL's types as Arrow's: which column becomes what, how it is asked for in COPY, and how its text is read.

Texts are turned into columns many rows at a time; what Arrow has no type for stays the text that the server shows.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.postgres.connection import identifier
from poundlock.errors import TerminalError

_UTC = pa.timestamp("us", tz="UTC")
_SIMPLE: dict[int, pa.DataType] = {
    16: pa.bool_(), 21: pa.int16(), 23: pa.int32(), 20: pa.int64(), 26: pa.int64(), 700: pa.float32(),
    701: pa.float64(), 1082: pa.date32(), 1114: pa.timestamp("us"), 1184: _UTC, 17: pa.binary(),
}  # fmt: skip
_NUMERIC = 1700
# Arrays of these become lists; others stay text such as {2020-01-01,2020-01-02}.
_LISTS: dict[int, pa.DataType] = {
    1000: pa.bool_(), 1005: pa.int16(), 1007: pa.int32(), 1016: pa.int64(), 1021: pa.float32(), 1022: pa.float64(),
    1009: pa.string(), 1015: pa.string(), 2951: pa.string(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table or query."""

    name: str
    oid: int  # number of its type in the server
    modifier: int = -1  # what the type says in parentheses, -1 = nothing

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type its values get."""
        if self.oid in _LISTS:
            return pa.list_(_LISTS[self.oid])
        if self.oid == _NUMERIC and self.modifier >= 4:
            precision, scale = ((self.modifier - 4) >> 16) & 0xFFFF, (self.modifier - 4) & 0x7FF
            # A scale is 11 bits with a sign; beyond 38 digits there is no type for it here.
            if scale <= precision <= 38:
                return pa.decimal128(precision, scale)
        return _SIMPLE.get(self.oid, pa.string())

    @property
    def selected(self) -> str:
        """SQL that gives it in the form that `from_csv` reads."""
        name = identifier(self.name)
        if self.oid == 17:
            return f"encode({name}, 'hex') AS {name}"
        return f"to_json({name}) AS {name}" if self.oid in _LISTS else name

    @property
    def _csv(self) -> pa.DataType:
        return pa.string() if self.oid == 17 or self.oid in _LISTS else self.arrow


def column_of(description: Any) -> Column:
    """Return a column as the description of a result has it."""
    return Column(str(description.name), int(description.type_code), int(description._fmod))


def from_csv(data: bytes, columns: Sequence[Column], what: str) -> pa.RecordBatch:
    """Return rows of COPY … (FORMAT csv) as Arrow columns.

    Raises:
        TerminalError: a value has no place in its column's Arrow type, such as the date "infinity".
    """
    import pyarrow.csv as csv

    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=[c.name for c in columns]
            ),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types={c.name: c._csv for c in columns},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
            ),
        )
        arrays = [_whole(table.column(i)) for i in range(len(columns))]
        made = [
            _from_hex(a) if c.oid == 17 else _from_json(a, c) if c.oid in _LISTS else a
            for a, c in zip(arrays, columns, strict=True)
        ]
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise no_place(what, error) from None
    return pa.RecordBatch.from_arrays(made, schema=pa.schema([(c.name, c.arrow) for c in columns]))


def from_texts(texts: Sequence[str | None], column: Column, what: str) -> pa.Array:
    """Return a column of values as the server's text form has them (a change's row, not COPY).

    Raises:
        TerminalError: a value has no place in its column's Arrow type.
    """
    try:
        if column.oid in _LISTS:
            element = _LISTS[column.oid]
            read = _ELEMENTS.get(element, str)
            return pa.array(
                [None if t is None else [None if e is None else read(e) for e in array_elements(t)] for t in texts],
                pa.list_(element),
            )
        array = pa.array(texts, pa.string())
        if column.oid == 17:
            return _from_hex(pc.utf8_slice_codeunits(array, 2))  # it begins with \x
        if column.oid == 16:
            return pc.if_else(pc.is_valid(array), pc.equal(array, "t"), pa.scalar(None, pa.bool_()))
        return array if column.arrow == pa.string() else array.cast(column.arrow)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise no_place(f"{what}, column {column.name!r}", error) from None


_ELEMENTS: dict[pa.DataType, Callable[[str], Any]] = {
    pa.bool_(): "t".__eq__, pa.int16(): int, pa.int32(): int, pa.int64(): int, pa.float32(): float,
    pa.float64(): float,
}  # fmt: skip


# In quotes, where a backslash stands before a quote or backslash of the element, or as it is.
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)', re.DOTALL)


def array_elements(text: str) -> list[str | None]:
    """Return the elements of an array's text such as {1,NULL,"a b"}, which has one dimension.

    Raises:
        ValueError: it has more dimensions.
    """
    body = text.partition("=")[2] if text.startswith("[") else text  # [2:3]={…} where it does not begin at 1
    if body.startswith("{{"):
        raise ValueError("an array of several dimensions")
    return [
        None if plain == "NULL" else re.sub(r"\\(.)", r"\1", quoted or plain, flags=re.DOTALL)
        for quoted, plain in _ELEMENT.findall(body)
    ]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _from_hex(texts: pa.Array) -> pa.Array:
    """Return the bytes of hexadecimal texts: all of a column in one go."""
    texts = pa.concat_arrays([texts]) if texts.offset == 0 else pa.array(texts.to_pylist(), pa.string())
    _, offsets, data = texts.buffers()
    count = len(texts)
    ends = np.frombuffer(offsets, np.int32)[: count + 1] if offsets is not None else np.zeros(1, np.int32)
    raw = binascii.unhexlify(bytes(data)[: int(ends[-1])] if data is not None else b"")
    validity = None
    if texts.null_count:
        validity = pa.array(texts.is_valid().to_numpy(zero_copy_only=False)).buffers()[1]
    return pa.Array.from_buffers(
        pa.binary(), count, [validity, pa.py_buffer((ends // 2).astype(np.int32)), pa.py_buffer(raw)]
    )


def _from_json(texts: pa.Array, column: Column) -> pa.Array:
    """Return arrays that came as JSON, parsed in one call."""
    values = json.loads("[" + ",".join("null" if t is None else t for t in texts.to_pylist()) + "]")
    element = _LISTS[column.oid]
    if pa.types.is_floating(element):  # JSON has no NaN, so it comes as text
        values = [v if v is None else [float(e) if isinstance(e, str) else e for e in v] for v in values]
    return pa.array(values, pa.list_(element))


def no_place(what: str, error: Exception) -> TerminalError:
    """Return the error of a value that does not fit its column's Arrow type."""
    return TerminalError(
        f"{what}: a value does not fit: {str(error).splitlines()[0][:300]}",
        next="give query=… and cast the column there, such as ::text, or leave such rows out with where=…",
    )
