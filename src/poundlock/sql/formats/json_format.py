"""JSON, an object a record: objects that look alike are read by columns, others as typed structs, and what differs value by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Numbers, ends_in, indices_of
from poundlock.formats.chunk import Values
from poundlock.formats.json.alike import LEAST, AlikeObjects, QuotedValues
from poundlock.formats.words import SIZE
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.errors import OptionError
from poundlock.sql.formats.format import (
    FormatColumn,
    FormatContext,
    RecordDecoder,
    RecordEncoder,
    bad_record,
    rows_in_order,
)
from poundlock.sql.formats.json_columns import (
    READ_AS_TEXT,
    Leaf,
    column_of_leaves,
    columns_of_structs,
    leaves_of,
    struct_decoder,
)
from poundlock.sql.formats.json_text import JsonTexts, check_keys, json_texts
from poundlock.sql.formats.json_values import JsonRules, Unfit, column_of_values, object_of
from poundlock.sql.functions.function import EvaluationError
from poundlock.sql.types import SqlType

_ALIKE: Mapping[str, pa.DataType] = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(), "CHAR": pa.string(), "VARCHAR": pa.string(), **dict.fromkeys(READ_AS_TEXT, pa.string()),
}  # fmt: skip
"""What objects that look alike may have, and what it is read as there."""
_AS_WRITTEN = ("CHAR", "VARCHAR", "DECIMAL")
"""What numbers are read as by their text."""

_SHAPES = 4  # so many of objects with as many quotes are read by columns

_Rows = tuple[pa.RecordBatch, Numbers]


@dataclass(frozen=True)
class JsonDecoder:
    """Objects to rows.

    Args:
        columns: those of the table.
        option: that says that records that cannot be read are left out.
    """

    table: str
    columns: tuple[FormatColumn, ...]
    rules: JsonRules
    option: str = "json.ignore-parse-errors"
    is_updating: bool = False
    leaves_out: bool = True

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return rows, and of which record each is; raises EvaluationError where a record cannot be read."""
        columns = [each for each in self.columns if each.column in wanted]
        parts = self._alike(records, columns)
        rest: Numbers = np.arange(len(records))
        if parts:
            left = np.ones(len(records), np.bool_)
            for _, places in parts:
                left[places] = False
            rest = np.flatnonzero(left)
        if len(rest) or not parts:
            parts += self._one_by_one(records, columns, rest)
        return rows_in_order(parts, len(records))

    def _alike(self, records: pa.Array, columns: Sequence[FormatColumn]) -> list[_Rows]:
        """Return the rows of objects that look alike; where not all do, of those with as many quotes: a null has none."""
        leaves = [leaf for each in columns for leaf in leaves_of(each.name, each.type)]
        nested = len(leaves) > len(columns)
        data = records.buffers()[2]
        if not columns or records.null_count or data is None or len(records) < LEAST:
            return []
        if any(each.type.root not in _ALIKE for each in leaves) or (nested and self.rules.fails_on_missing):
            return []
        wanted = tuple(leaves)
        if not SIZE <= len(data) < 1 << 31:
            return []
        ends = ends_in(records)
        values = QuotedValues(Values(np.frombuffer(data, np.uint8), ends[:-1], ends[1:]))
        rows: Numbers = np.arange(len(records))
        parts = self._of_shapes(records, columns, wanted, values, rows)
        left = np.setdiff1d(rows, np.concatenate([places for _, places in parts])) if parts else rows
        counts = values.counts[left]
        for count, alike in zip(*np.unique(counts, return_counts=True), strict=True):
            if LEAST <= alike < len(records):
                parts += self._of_shapes(records, columns, wanted, values, left[counts == count], int(count))
        return parts

    def _of_shapes(
        self,
        records: pa.Array,
        columns: Sequence[FormatColumn],
        wanted: tuple[Leaf, ...],
        values: QuotedValues,
        rows: Numbers,
        quotes: int = -1,
    ) -> list[_Rows]:
        """Return the rows of some records, shape after shape.

        Args:
            rows: the numbers of the records, `quotes`: how many each has; -1 for all records, of which one shape alone is looked for that
                most of them have.
        """
        parts: list[_Rows] = []
        for shape in range(1 if quotes < 0 else _SHAPES):
            if len(rows) < LEAST:
                break
            objects = alike_objects(wanted, quotes, shape)
            most = len(rows) - len(rows) // 8
            decoded = objects.decode_quoted(values.those(rows), most if quotes < 0 else LEAST)
            if decoded is None:
                break
            parts += self._converted(records, columns, decoded[0], rows[decoded[1]], objects.objects)
            rows = np.delete(rows, decoded[1])
        return parts

    def _converted(
        self,
        records: pa.Array,
        columns: Sequence[FormatColumn],
        rows: pa.RecordBatch,
        places: Numbers,
        objects: frozenset[str],
    ) -> list[_Rows]:
        """Return the rows of objects that look alike with the types of the columns; none where they have not all fields."""
        if self.rules.fails_on_missing and not self._has_all(records[int(places[0])].as_py(), columns):
            return []
        try:
            arrays = [column_of_leaves(rows, each.name, each.type, objects, self.rules) for each in columns]
        except Unfit as error:
            raise self._failed_at(records, columns, error) from None
        return [(pa.RecordBatch.from_arrays(arrays, [each.column for each in columns]), places.astype(np.int64))]

    @staticmethod
    def _has_all(record: bytes, columns: Sequence[FormatColumn]) -> bool:
        """Return whether an object, which others look like, has all fields."""
        return object_of(record).keys() >= {each.name for each in columns}

    def _one_by_one(self, records: pa.Array, columns: Sequence[FormatColumn], places: Numbers) -> list[_Rows]:
        """Return the rows of some records, those that have the shape of the columns and the others."""
        kind = row_type(columns)
        decode = struct_decoder(kind, needs_all=self.rules.fails_on_missing).decode
        is_utf8 = _is_utf8(records)
        structs: list[Any] = []
        objects: list[dict[str, Any]] = []
        of_structs: list[int] = []
        of_objects: list[int] = []
        some = records if len(places) == len(records) else records.take(indices_of(places))
        for place, record in zip(places.tolist(), some.to_pylist(), strict=True):
            if not record:
                continue  # an empty record is none
            try:
                if not is_utf8:
                    str(record, "utf-8")
                structs.append(decode(record))
                of_structs.append(place)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                made = self._object(record, columns)
                if made is not None:
                    objects.append(made)
                    of_objects.append(place)
        names = [each.column for each in columns]
        try:
            typed = columns_of_structs(structs, kind, self.rules)
            others = [column_of_values([o.get(each.name) for o in objects], each.type, self.rules) for each in columns]
        except Unfit as error:
            raise self._failed_at(records, columns, error) from None
        return [
            (_batch(typed, names, len(structs)), np.array(of_structs, np.int64)),
            (_batch(others, names, len(objects)), np.array(of_objects, np.int64)),
        ]

    def _object(self, record: bytes, columns: Sequence[FormatColumn]) -> dict[str, Any] | None:
        try:
            made = object_of(record)
        except ValueError as error:
            if self.rules.is_lenient:
                return None
            raise self._failed(f"{record[:60]!r}: {error}") from None
        if self.rules.fails_on_missing:
            missing = next((each.name for each in columns if each.name not in made), None)
            if missing is not None and self.rules.is_lenient:
                return None
            if missing is not None:
                raise self._failed(f"{record[:60]!r}: there is no field {missing}")
        return made

    def _failed_at(self, records: pa.Array, columns: Sequence[FormatColumn], error: Unfit) -> EvaluationError:
        """Return the error of a field, with the first record that has such a one."""
        for record in filter(None, records.to_pylist()):
            made = self._object(record, columns) or {}
            for each in columns:
                try:
                    column_of_values([made.get(each.name)], each.type, self.rules)
                except Unfit as first:
                    return self._failed(f"{record[:60]!r}: field {each.name}: {first}")
        return self._failed(str(error))

    def _failed(self, what: str) -> EvaluationError:
        return bad_record(self.table, what, self.option)


def _batch(columns: Sequence[pa.Array], names: Sequence[str], rows: int) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["$none"])
    return pa.RecordBatch.from_arrays(list(columns), list(names))


def _is_utf8(records: pa.Array) -> bool:
    try:
        pc.cast(records, pa.string())
    except pa.ArrowInvalid:
        return False
    return True


@lru_cache(64)
def alike_objects(leaves: tuple[Leaf, ...], quotes: int, shape: int) -> AlikeObjects:
    """Return a decoder of objects that look alike, which remembers how: one for each number of quotes and shape, and one for all."""
    schema = pa.schema([pa.field(each.name, _ALIKE[each.type.root]) for each in leaves])
    as_written = frozenset(each.name for each in leaves if each.type.root in _AS_WRITTEN)
    return AlikeObjects(schema, as_written, frozenset(name for each in leaves for name in each.within))


@dataclass(frozen=True)
class JsonObjectEncoder:
    """Rows to objects."""

    columns: tuple[FormatColumn, ...]
    texts: JsonTexts
    takes_updates: bool = False

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return an object for each row."""
        columns = [rows.column(each.column) for each in self.columns]
        return self.texts.objects(columns, row_type(self.columns)).cast(pa.binary())


def row_type(columns: Sequence[FormatColumn]) -> SqlType:
    """Return the type of an object of columns."""
    return SqlType("ROW", of=tuple(each.type for each in columns), names=tuple(each.name for each in columns))


def json_rules(options: TableOptions, prefix: str = "json") -> JsonRules:
    """Return how values are read; the options of times and of values that do not fit.

    Raises:
        OptionError: one of them cannot be.
    """
    written = options.one_of(f"{prefix}.timestamp-format.standard", ("sql", "iso-8601"), "sql")
    return JsonRules("ISO-8601" if written == "iso-8601" else "SQL", options.flag(f"{prefix}.ignore-parse-errors"))


def json_decoder(options: TableOptions, context: FormatContext) -> RecordDecoder:
    """Return what reads objects; raises as `json_rules`."""
    rules, _ = _options(options, context)
    return JsonDecoder(context.table, context.columns, rules, f"{options.prefix}json.ignore-parse-errors")


def json_encoder(options: TableOptions, context: FormatContext) -> RecordEncoder:
    """Return what writes objects; raises as `json_rules`."""
    _, texts = _options(options, context)
    return JsonObjectEncoder(context.columns, texts)


def _options(options: TableOptions, context: FormatContext) -> tuple[JsonRules, JsonTexts]:
    """Return what all options of the format say, those of reading and those of writing; a table may be read and written."""
    check_keys(row_type(context.columns), context.table, "JSON")
    rules = json_rules(options)
    fails = options.flag("json.fail-on-missing-field")
    if fails and rules.is_lenient:
        raise OptionError(
            f"{context.table}: json.fail-on-missing-field and json.ignore-parse-errors contradict each other",
            next="leave one of them out",
            kind="bad_option_value",
        )
    options.flag("json.decode.json-parser.enabled", True)  # there is one parser here
    return JsonRules(rules.timestamps, rules.is_lenient, fails), json_texts(options, "json")
