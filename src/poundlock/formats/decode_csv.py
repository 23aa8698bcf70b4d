"""CSV records to typed columns: Arrow over a whole buffer where no quote is in it, a strict tokeniser elsewhere.

Both ways only cut a record into texts; the texts of a column are turned into values by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import AnyStr

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from poundlock.errors import DefinitionError
from poundlock.formats.chunk import Batch, Lines
from poundlock.formats.convert import required_column, to_records
from poundlock.formats.decode import Parsed, Want
from poundlock.formats.decode_values import check_unit, to_date, to_timestamp

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class CsvCodec:
    """One CSV record a row, as many fields as the schema has columns, in its order."""

    columns: pa.Schema  # the fields; no arrays, maps or structs. `timestamp` takes ISO text or numbers.
    delimiter: str = ","  # one character between fields
    quote: str = '"'  # one character around fields that hold delimiters; doubled inside. "" = there is none.
    null: str = ""  # the text, not quoted, that means null
    timestamp_unit: str = "s"  # what one is in times given as numbers: "s", "ms" or "us"

    def __post_init__(self) -> None:
        check_unit(self.timestamp_unit)
        if not isinstance(self.null, str):
            raise DefinitionError(
                f"null={self.null!r} is no text", next='give the text that means null, such as "NULL"'
            )
        for name, text, least in (("delimiter", self.delimiter, 1), ("quote", self.quote, 0)):
            if not isinstance(text, str) or not least <= len(text) <= 1 or not text.isascii() or text in ("\n", "\r"):
                raise DefinitionError(f"{name}={text!r} is not possible", next="use one ASCII character")
        if self.delimiter == self.quote:
            raise DefinitionError("delimiter and quote are the same", next="use two characters")
        for f in self.columns:
            if pa.types.is_nested(f.type):
                raise DefinitionError(f"column {f.name!r}: CSV has no {f.type}", next="use string and parse it later")

    def schema(self) -> pa.Schema:
        return self.columns

    def parse_lines(self, lines: Lines, want: Want) -> Parsed | None:
        data = lines.data[: int(lines.ends[-1]) + 1]
        held = bytes(data)
        # In Arrow's reader quotes span lines, "\r" ends one, an empty one has any number of fields, and a byte order
        # mark is dropped: all of that goes the long way.
        if (self.quote and self.quote.encode() in held) or b"\r" in held or b"\0" in held or held.startswith(_BOM):
            return None
        if held.startswith(b"\n") or b"\n\n" in held:
            return None
        names = [f"f{i}" for i in range(len(self.columns))]
        try:
            table = pacsv.read_csv(
                pa.py_buffer(held),
                pacsv.ReadOptions(use_threads=False, block_size=len(held) + 1, column_names=names),
                pacsv.ParseOptions(
                    delimiter=self.delimiter, quote_char=False, escape_char=False, ignore_empty_lines=False
                ),
                pacsv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[self.null]
                ),
            )
        except pa.ArrowInvalid:  # a wrong number of fields, or not UTF-8: find out which line
            return None
        if table.num_rows != len(lines):
            return None
        texts = [table.column(i).combine_chunks() for i in range(table.num_columns)]
        return self._typed([c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in texts], {}, len(lines), want)

    def parse(self, values: Sequence[bytes], want: Want) -> Parsed:
        bad: dict[int, str] = {}
        rows: list[list[str | None]] = []
        width = len(self.columns)
        for i, value in enumerate(values):
            try:
                row = split_record(str(value, "utf-8"), self.delimiter, self.quote, self.null)
                if len(row) != width:
                    raise ValueError(f"{len(row)} fields, the schema has {width}")
                rows.append(row)
            except UnicodeDecodeError as error:
                bad[i] = f"not UTF-8 at byte {error.start}"
            except ValueError as error:
                bad[i] = str(error)
        texts = [pa.array([row[k] for row in rows], pa.string()) for k in range(width)]
        return self._typed(texts, bad, len(values), want)

    def _typed(self, texts: Sequence[pa.Array], bad: dict[int, str], n: int, want: Want) -> Parsed:
        """Turn columns of text, one row for each of n values that is not in `bad`, into the schema's types."""
        numbers = [i for i in range(n) if i not in bad] if bad else range(n)
        columns: list[pa.Array] = []
        wrong: dict[int, str] = {}
        for f, column in zip(self.columns, texts, strict=True):
            made, failed = required_column(len(column), f, f.type, self._builder(column, f.type))
            columns.append(made)
            for row, why in failed.items():
                wrong.setdefault(row, f"field {f.name}: {why}")
        batch = pa.RecordBatch.from_arrays(columns, schema=self.columns)
        if wrong:
            keep = np.ones(len(numbers), np.bool_)
            keep[list(wrong)] = False
            batch = batch.filter(pa.array(keep))
        everything: Mapping[int, str] = bad | {numbers[row]: why for row, why in wrong.items()}
        return Parsed(list(to_records(Batch(batch)).rows) if want == "records" else batch, everything)

    def _builder(self, texts: pa.Array, kind: pa.DataType) -> Callable[[slice], pa.Array]:
        if pa.types.is_string(kind):
            return lambda part: texts[part]
        if pa.types.is_timestamp(kind):
            micros, zoned = check_unit(self.timestamp_unit), kind.tz is not None
            return lambda part: pa.array(
                [None if v is None else to_timestamp(v, micros, zoned) for v in texts[part].to_pylist()], kind
            )
        if pa.types.is_date(kind):
            return lambda part: pa.array([None if v is None else to_date(v) for v in texts[part].to_pylist()], kind)
        return lambda part: pc.cast(texts[part], kind)


def split_record(text: str, delimiter: str = ",", quote: str = '"', null: str | None = "") -> list[str | None]:
    """Return the fields of one CSV record; a field not in quotes that is `null` is None.

    Raises ValueError where a quote is not closed, or text follows a closed one.
    """
    if not quote or quote not in text:
        return [None if field == null else field for field in text.split(delimiter)]
    fields: list[str | None] = []
    at = 0
    while True:
        if text.startswith(quote, at):
            end = closing_quote(text, quote, at + 1)
            if end < 0:
                raise ValueError(f"the quote at character {at} is not closed")
            fields.append(text[at + 1 : end].replace(quote * 2, quote))
            at = end + 1
            if at < len(text) and text[at] != delimiter:
                raise ValueError(f"text after the closing quote at character {at}")
        else:
            end = text.find(delimiter, at)
            field = text[at:] if end < 0 else text[at:end]
            fields.append(None if field == null else field)
            at += len(field)
        if at >= len(text):
            return fields
        at += 1


def closing_quote(text: AnyStr, quote: AnyStr, at: int) -> int:
    """Return where the field is closed whose text begins at a place; a doubled quote is part of it. -1 = nowhere."""
    at = text.find(quote, at)
    while at >= 0 and text.startswith(quote, at + 1):
        at = text.find(quote, at + 2)
    return at
