"""JSON, an object a record. Objects that look alike are read by columns, others one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, ends_in, indices_of
from poundlock.formats.chunk import Values
from poundlock.formats.json.alike import AlikeObjects
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.formats.format import Decoder, Encoder, FormatColumn, FormatContext
from poundlock.sql.formats.json_text import JsonTexts, json_texts
from poundlock.sql.formats.json_values import Fraction, JsonRules, Unfit, column_of_values
from poundlock.sql.functions.function import EvaluationError
from poundlock.sql.types import SqlType

_ALIKE: Mapping[str, pa.DataType] = {
    "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_(),
    "VARCHAR": pa.string(),
}  # fmt: skip
"""What objects that look alike may have; other types are read one by one."""


@dataclass(frozen=True)
class JsonDecoder:
    """Objects to rows.

    Args:
        columns: those of the table.
        fails_on_missing: whether a field that is not there is an error.
    """

    table: str
    columns: tuple[FormatColumn, ...]
    rules: JsonRules
    fails_on_missing: bool = False
    is_updating: bool = False

    def decode(self, records: pa.Array, wanted: Sequence[str]) -> tuple[pa.RecordBatch, Numbers | None]:
        columns = [each for each in self.columns if each.column in wanted]
        alike = self._alike(records, columns)
        if alike is None:
            return self._each(records, columns)
        rows, places = alike
        if len(places) == len(records):
            return rows, None
        rest = np.ones(len(records), np.bool_)
        rest[places] = False
        others = np.flatnonzero(rest)
        more, kept = self._each(records.take(indices_of(others)), columns)
        own = others if kept is None else others[kept]
        order = np.argsort(np.concatenate([places, own]), kind="stable")
        both = pa.Table.from_batches([rows, more]).combine_chunks().to_batches()
        every = np.concatenate([places, own])[order]
        whole = both[0].take(indices_of(order)) if both else rows
        return whole, None if len(every) == len(records) else every

    def _alike(self, records: pa.Array, columns: Sequence[FormatColumn]) -> tuple[pa.RecordBatch, Numbers] | None:
        kinds = [_ALIKE.get(each.type.root) for each in columns]
        if not columns or None in kinds or records.null_count:
            return None
        schema = pa.schema([pa.field(each.name, kind) for each, kind in zip(columns, kinds, strict=True)])
        ends = ends_in(records).astype(np.int64)
        data = records.buffers()[2]
        if data is None:
            return None
        values = Values(np.frombuffer(data, np.uint8), ends[:-1], ends[1:])
        decoded = _alike_objects(schema).decode(values)
        if decoded is None:
            return None
        rows, places = decoded
        return rows.rename_columns([each.column for each in columns]), places.astype(np.int64)

    def _each(self, records: pa.Array, columns: Sequence[FormatColumn]) -> tuple[pa.RecordBatch, Numbers | None]:
        objects: list[dict[str, Any]] = []
        places: list[int] = []
        for place, record in enumerate(records.to_pylist()):
            made = self._object(record)
            if made is not None:
                objects.append(made)
                places.append(place)
        arrays = [self._column(objects, each) for each in columns]
        names = [each.column for each in columns]
        rows = pa.RecordBatch.from_arrays(arrays, names) if arrays else _empty(len(objects))
        return rows, None if len(places) == len(records) else np.array(places, np.int64)

    def _object(self, record: bytes | None) -> dict[str, Any] | None:
        if not record:
            return None  # an empty record is none
        try:
            made = _reader().decode(record)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            made = None
            why = str(error)
        else:
            why = "it is no object"
        if isinstance(made, dict):
            return made
        if self.rules.is_lenient:
            return None
        raise self._failed(f"{record[:60]!r}: {why}")

    def _column(self, objects: Sequence[dict[str, Any]], column: FormatColumn) -> pa.Array:
        name = column.name
        if self.fails_on_missing and any(name not in each for each in objects):
            raise self._failed(f"a record has no field {name}")
        try:
            return column_of_values([each.get(name) for each in objects], column.type, self.rules)
        except Unfit as error:
            raise self._failed(f"field {name}: {error}") from None

    def _failed(self, what: str) -> EvaluationError:
        return EvaluationError(
            f"{self.table}: a record cannot be read: {what}",
            next="mend the record, or write 'json.ignore-parse-errors' = 'true' in WITH",
            kind="bad_record",
        )


def _empty(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["$none"])


@lru_cache(64)
def _alike_objects(schema: pa.Schema) -> AlikeObjects:
    return AlikeObjects(schema)


@lru_cache(1)
def _reader() -> Any:
    return msgspec.json.Decoder(float_hook=Fraction)


@dataclass(frozen=True)
class JsonEncoder:
    """Rows to objects."""

    columns: tuple[FormatColumn, ...]
    texts: JsonTexts
    takes_updates: bool = False

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        kind = row_type(self.columns)
        columns = [rows.column(each.column) for each in self.columns]
        return self.texts.objects(columns, kind).cast(pa.binary())


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


def json_decoder(options: TableOptions, context: FormatContext) -> Decoder:
    """Return what reads objects; raises as `json_rules`."""
    missing = options.flag("json.fail-on-missing-field")
    _encoder_options(options)
    return JsonDecoder(context.table, context.columns, json_rules(options), missing)


def json_encoder(options: TableOptions, context: FormatContext) -> Encoder:
    """Return what writes objects; raises as `json_rules`."""
    options.flag("json.fail-on-missing-field")
    json_rules(options)
    return JsonEncoder(context.columns, _encoder_options(options))


def _encoder_options(options: TableOptions) -> JsonTexts:
    return json_texts(options, "json")
