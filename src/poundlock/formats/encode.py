"""Rows into bytes for the row formats: JSON lines and CSV, each row ending in one line end, and their compression.

What is encoded is one buffer plus the end of each row, so that rows can be routed and cut as raw lines are.
"""

from __future__ import annotations

import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import contains
from typing import Any, BinaryIO, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.chunk import Batch, Records
from poundlock.formats.convert import not_utf8, python_values
from poundlock.formats.object_rows import ObjectRows
from poundlock.formats.own.custom import Encoder


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded rows."""

    data: memoryview  # the bytes of all rows, line ends included
    ends: npt.NDArray[np.int64]  # position of the last byte of each row, int64
    # rows that could not be encoded and are not in `data`, with the reason; the others keep their order
    bad: Mapping[int, str] = field(default_factory=dict)


class RowEncoder(ABC):
    """A row format, of some columns in this order (None = all that are not hidden)."""

    takes_records: ClassVar[bool]  # dicts need not be made columns first

    def __init__(self, columns: Sequence[str] | None = None, hidden: Sequence[str] = ()) -> None:
        self._columns, self._hidden = columns, frozenset(hidden)

    @abstractmethod
    def encode(self, chunk: Batch | Records) -> Encoded:
        """Return the rows as bytes."""

    def header(self) -> bytes:
        """Return what every file begins with, known once rows were encoded."""
        return b""


class JsonEncoder(RowEncoder):
    """One JSON object a line. Times are ISO text, binary is base64, decimals are numbers, nulls are written, NaN is null."""

    takes_records = True

    def __init__(self, columns: Sequence[str] | None = None, hidden: Sequence[str] = ()) -> None:
        super().__init__(columns, hidden)
        self._encoder = msgspec.json.Encoder(decimal_format="number", enc_hook=_of_numpy)
        self._rows: dict[tuple[str, ...], type[msgspec.Struct]] = {}

    def encode(self, chunk: Batch | Records) -> Encoded:
        try:
            rows = self._of_batch(chunk.batch) if isinstance(chunk, Batch) else self._of_records(chunk.rows)
        except UnicodeDecodeError:
            assert isinstance(chunk, Batch)
            bad = not_utf8(select(chunk.batch, self._columns, self._hidden))
            if not bad:
                raise
            return self._of_others(chunk.batch, bad)
        try:
            data = self._encoder.encode_lines(rows)
            failed: dict[int, str] = {}
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
            data, failed = self._one_by_one(rows)
        array = np.frombuffer(data, np.uint8)
        return Encoded(memoryview(data), np.flatnonzero(array == 10), failed)

    def _of_others(self, batch: pa.RecordBatch, bad: Mapping[int, str]) -> Encoded:
        """Return the rows without bad ones."""
        others = np.setdiff1d(np.arange(batch.num_rows), list(bad))
        encoded = self.encode(Batch(batch.take(pa.array(others))))
        return Encoded(encoded.data, encoded.ends, {**bad, **{int(others[i]): why for i, why in encoded.bad.items()}})

    def _of_batch(self, batch: pa.RecordBatch) -> list[Any]:
        batch = select(batch, self._columns, self._hidden)
        names = tuple(batch.schema.names)
        if not names:
            return [{}] * batch.num_rows
        kind = self._rows.get(names)
        if kind is None:
            fields = [(f"c{i}", Any) for i in range(len(names))]
            rename = {f"c{i}": name for i, name in enumerate(names)}
            kind = self._rows[names] = msgspec.defstruct("Row", fields, rename=rename, gc=False)
        return list(map(kind, *(values(column) for column in batch.columns)))

    def _of_records(self, rows: Sequence[dict[str, Any]]) -> list[Any]:
        if isinstance(rows, ObjectRows) and self._columns is None:
            objects = rows.to_write(self._hidden)
            if objects is not None:
                return objects
        if self._columns is not None:
            return [{name: row.get(name) for name in self._columns} for row in rows]
        hidden = self._hidden
        # A name is looked up in each row, not each row's names among the hidden ones: there is one hidden name, or none.
        if any(any(map(contains, rows, repeat(name))) for name in hidden):
            return [{k: v for k, v in row.items() if k not in hidden} for row in rows]
        return list(rows)

    def _one_by_one(self, rows: Sequence[Any]) -> tuple[bytes, dict[int, str]]:
        good, bad = bytearray(), {}
        for i, row in enumerate(rows):
            try:
                good += self._encoder.encode(row) + b"\n"
            except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
                bad[i] = f"cannot be written as JSON: {error}"
        return bytes(good), bad


class CsvEncoder(RowEncoder):
    """Comma-separated values: texts in quotes, nulls as nothing, times as ISO text with a space.

    With `header` each file begins with the column names.
    """

    takes_records = False

    def __init__(
        self, columns: Sequence[str] | None = None, hidden: Sequence[str] = (), *, header: bool = False
    ) -> None:
        super().__init__(columns, hidden)
        self._header, self._first = header, b""

    def header(self) -> bytes:
        return self._first

    def encode(self, chunk: Batch | Records) -> Encoded:
        if isinstance(chunk, Records):
            raise TypeError("CSV is encoded from columns")
        batch = select(chunk.batch, self._columns, self._hidden)
        if self._header and not self._first:
            self._first = _csv(batch.slice(0, 0), header=True)
        data = _csv(batch, header=False)
        array = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(array == 10)
        if len(ends) != batch.num_rows:
            # A line end within quotes has an odd number of quotes before it; a quote within a value is doubled.
            odd = np.cumsum(array == 34)[ends] & 1
            ends = ends[odd == 0]
        return Encoded(memoryview(data), ends)


class CustomRowEncoder(RowEncoder):
    """Rows as an encoder of the user's makes them."""

    takes_records = False

    def __init__(self, encoder: Encoder, columns: Sequence[str] | None = None, hidden: Sequence[str] = ()) -> None:
        super().__init__(columns, hidden)
        self._encoder = encoder

    def encode(self, chunk: Batch | Records) -> Encoded:
        if isinstance(chunk, Records):
            raise TypeError("an encoder is given columns")
        batch = select(chunk.batch, self._columns, self._hidden)
        made = self._encoder.encode(batch)
        if not isinstance(made, pa.Array) or len(made) != batch.num_rows:
            what = f"{len(made):,} values" if isinstance(made, pa.Array) else type(made).__name__
            raise TerminalError(
                f"{type(self._encoder).__name__}.encode gives {what} for {batch.num_rows:,} rows",
                next="return a pyarrow.Array of binary or text with a value for each row",
            )
        bad = {}
        if made.null_count:
            nulls = np.flatnonzero(made.is_null().to_numpy(zero_copy_only=False)).tolist()
            bad = dict.fromkeys(nulls, f"{type(self._encoder).__name__} gives nothing for it")
            made = made.drop_null()
        try:
            texts = made.cast(pa.large_binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TerminalError(
                f"{type(self._encoder).__name__}.encode gives {made.type}", next="return binary or text"
            ) from error
        _, offsets, data = texts.buffers()
        if not len(texts) or data is None:
            return Encoded(memoryview(b""), np.full(len(texts), -1, np.int64), bad)
        ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        return Encoded(memoryview(data)[int(ends[0]) : int(ends[-1])], ends[1:] - ends[0] - 1, bad)


def _csv(batch: pa.RecordBatch, *, header: bool) -> bytes:
    out = io.BytesIO()
    options = pa_csv.WriteOptions(include_header=header, batch_size=max(1, batch.num_rows))
    try:
        pa_csv.write_csv(batch, out, options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise DefinitionError(
            f"columns {batch.schema.names} cannot be written as CSV: {error}",
            next='write nested columns as JSON (format="json"), or select plain ones',
        ) from error
    return out.getvalue()


def select(batch: pa.RecordBatch, columns: Sequence[str] | None, hidden: frozenset[str]) -> pa.RecordBatch:
    """Return the columns to write: those named, in this order, or all that are not hidden. Raises DefinitionError where one is not there."""
    names = batch.schema.names
    if columns is None:
        return batch if hidden.isdisjoint(names) else batch.select([n for n in names if n not in hidden])
    missing = [name for name in columns if name not in names]
    if missing:
        raise DefinitionError(
            f"the sink's columns {missing} are not among {names}",
            next="select them before the sink, or change columns=",
        )
    return batch.select(list(columns))


def values(column: pa.Array) -> list[Any]:
    """Return an Arrow column as Python values; maps become dicts, nanoseconds are cut to microseconds, times beyond Python's are text."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_nested(kind):
        return column.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]
    try:
        return python_values(column)
    except OverflowError:  # such as the end of the last window of the year 9999
        return list(map(_value, column))


def _of_numpy(value: object) -> object:
    """Return the Python value of what a function has from numpy, as the other formats take it."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


def _value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except OverflowError:
        return value.cast(pa.string()).as_py().replace(" ", "T")


class Passing(io.RawIOBase):
    """A file for who wants one, such as Arrow: pieces are passed on whole, and what is below stays open."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._write(bytes(data))
        return len(data)


class SegmentOutput:
    """Where the bytes of one segment go, as they are. Small pieces are gathered: the handle below has no buffer of its own.

    Attributes:
        size: bytes in the file so far.
        crc32: their checksum.
    """

    _GATHER = 1 << 18

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self._held = bytearray()
        self.size = 0
        self.crc32 = 0

    def write(self, data: memoryview | bytes) -> None:
        """Write some bytes."""
        self.size += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)
        if len(self._held) + len(data) <= self._GATHER // 4:
            self._held += data
            return
        self._flush()
        self._handle.write(data)

    def finish(self) -> None:
        """Write what is still held; the handle stays open."""
        self._flush()

    def _flush(self) -> None:
        if self._held:
            self._handle.write(self._held)
            self._held = bytearray()


class CompressedOutput(SegmentOutput):
    """One gzip member or zstd frame; members and frames can be concatenated, so segments still join by bytes."""

    def __init__(self, handle: BinaryIO, codec: str) -> None:
        super().__init__(handle)
        self._stream = pa.CompressedOutputStream(pa.PythonFile(Passing(super().write), mode="w"), codec)

    def write(self, data: memoryview | bytes) -> None:
        self._stream.write(data)

    def finish(self) -> None:
        self._stream.close()
        super().finish()


def open_output(handle: BinaryIO, compression: str | None) -> SegmentOutput:
    """Return where to write the bytes of a segment: compression None, "gzip" or "zstd"."""
    return SegmentOutput(handle) if compression is None else CompressedOutput(handle, compression)
