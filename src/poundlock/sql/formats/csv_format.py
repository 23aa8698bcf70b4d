"""CSV, a row a record, with Flink's options: read and written as Jackson reads and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, Numbers
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.csv_records import CsvDialect, CutRecords, cut
from poundlock.sql.formats.csv_values import CsvRules, check_type, quoted, texts_in, values_of
from poundlock.sql.formats.format import FormatColumn, FormatContext, RecordDecoder, RecordEncoder, bad_record
from poundlock.sql.formats.value_texts import one

_OPTION = "csv.ignore-parse-errors"
_JAVA_ESCAPES = {r"\t": "\t", r"\\": "\\", r"\f": "\f", r"\b": "\b", r"\"": '"', r"\'": "'"}


@dataclass(frozen=True)
class CsvFormat:
    """Records of CSV and rows.

    Args:
        columns: those of the table, as they stand in a record.
        option: that says that records that cannot be read are left out.
    """

    table: str
    columns: tuple[FormatColumn, ...]
    dialect: CsvDialect
    rules: CsvRules
    option: str = _OPTION
    is_updating: bool = False
    leaves_out: bool = True
    takes_updates: bool = False

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return rows, and of which record each is; raises EvaluationError where a record cannot be read."""
        parts = cut(records, len(self.columns), self.dialect)
        if not self.rules.is_lenient:
            self._refuse(records, parts)
        arrays: list[pa.Array] = []
        names: list[str] = []
        for each, texts in zip(self.columns, parts.columns, strict=True):
            if each.column in wanted:
                made, bad = values_of(texts, each.type, self.rules)
                if bad.any() and not self.rules.is_lenient:
                    raise self._failed_at(records, parts, each, bad)
                arrays.append(made)
                names.append(each.column)
        rows = len(parts.places)
        made_rows = pa.RecordBatch.from_arrays(arrays or [pa.nulls(rows)], names or ["$none"])
        return made_rows, None if rows == len(records) else parts.places

    def _refuse(self, records: pa.Array, parts: CutRecords) -> None:
        """Raise for the first record that is none, or has too few fields."""
        bad = dict(parts.bad)
        if parts.counts is not None:
            width = len(self.columns)
            for row in np.flatnonzero(parts.counts != width).tolist():
                bad[int(parts.places[row])] = f"it has {parts.counts[row]} fields, the table {width}"
        if bad:
            place = min(bad)
            raise bad_record(self.table, f"{records[place].as_py()[:60]!r}: {bad[place]}", self.option)

    def _failed_at(self, records: pa.Array, parts: CutRecords, column: FormatColumn, bad: Flags) -> Exception:
        row = int(np.argmax(bad))
        begin = records[int(parts.places[row])].as_py()[:60]
        text = parts.columns[self.columns.index(column)][row].as_py()
        return bad_record(self.table, f"{begin!r}: field {column.name}: {text!r} is no {column.type}", self.option)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return a record for each row."""
        parts = []
        for each in self.columns:
            text, may_need_quotes = texts_in(rows.column(each.column), each.type, self.rules)
            if may_need_quotes and self.dialect.quote:
                text = quoted(text, self.dialect.delimiter, self.dialect.quote, self.dialect.escape)
            parts.append(pc.coalesce(text, one(self.rules.null or "")) if text.null_count else text)
        joined = pc.binary_join_element_wise(*parts, one(self.dialect.delimiter))
        return joined.cast(pa.binary())


def csv_format(options: TableOptions, context: FormatContext) -> CsvFormat:
    """Return the format of a table.

    Raises:
        OptionError: an option cannot be, or CSV has not the type of a column.
    """
    for each in context.columns:
        missing = check_type(each.type)
        if missing is not None:
            raise OptionError(
                f"{context.table}.{each.name}: CSV has no {missing}",
                next="declare another type, or use another format",
                kind="type_mismatch",
            )
    has_no_quote = options.flag("csv.disable-quote-character")
    if has_no_quote and options.text("csv.quote-character") is not None:
        raise OptionError(
            f"{context.table}: csv.quote-character and csv.disable-quote-character contradict each other",
            next="leave one of them out",
            kind="bad_option_value",
        )
    quote = _character(options, "csv.quote-character", '"')
    dialect = CsvDialect(
        delimiter=_character(options, "csv.field-delimiter", ","),
        quote="" if has_no_quote else quote,
        escape=_character(options, "csv.escape-character", ""),
        has_comments=options.flag("csv.allow-comments"),
        trims=options.flag("csv.trim-spaces"),
        ends_with_delimiter=options.flag("csv.allow-trailing-comma", True),
        drops_more=options.flag("csv.ignore-trailing-unmappable"),
        needs_all=options.flag("csv.fail-on-missing-columns"),
    )
    rules = CsvRules(
        separator=_character(options, "csv.array-element-delimiter", ";"),
        null=options.text("csv.null-literal"),
        is_lenient=options.flag(_OPTION),
        empty_is_null=options.flag("csv.empty-string-as-null"),
        plain_decimals=not options.flag("csv.write-bigdecimal-in-scientific-notation", True),
    )
    return CsvFormat(context.table, context.columns, dialect, rules, options.prefix + _OPTION)


def _character(options: TableOptions, name: str, default: str) -> str:
    """Return an option of one character, which may be written as an escape of Java's such as \\t or \\u0001."""

    def read(text: str) -> str:
        if text in _JAVA_ESCAPES:
            return _JAVA_ESCAPES[text]
        if text.startswith("\\u") and len(text) == 6:
            text = chr(int(text[2:], 16))
        if len(text) != 1 or text in "\r\n":
            raise ValueError(text)
        return text

    return options.read(name, read, default, ";")


def csv_decoder(options: TableOptions, context: FormatContext) -> RecordDecoder:
    """Return what reads records; raises as `csv_format`."""
    return csv_format(options, context)


def csv_encoder(options: TableOptions, context: FormatContext) -> RecordEncoder:
    """Return what writes records; raises as `csv_format`."""
    return csv_format(options, context)
