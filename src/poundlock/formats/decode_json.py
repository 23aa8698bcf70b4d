"""JSON text to typed fields: objects that look alike by columns, else msgspec over a whole buffer where that is safe, or line by line.

The last two ways use the same decoder of the same type, so they cannot disagree on a record; only the buffer needs guarding. The
first takes nothing but what is plain, see json.alike.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Required, TypedDict

import msgspec
import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import column_of, indices_of, texts_of
from poundlock.formats.chunk import Lines, Values, line_starts
from poundlock.formats.decode import Parsed, Want
from poundlock.formats.decode_values import check_unit, to_decimal, to_timestamp
from poundlock.formats.json.alike import AlikeObjects
from poundlock.formats.object_rows import ObjectRows

_OPEN, _CLOSE = ord("{"), ord("}")
_KEPT = 64  # schemas, of which a process keeps its decoders
_FLOAT32_MAX = 3.4028235677973362e38
_PLACE = re.compile(r"(.*) - at `(?:key in )?\$\.?(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_NUMBERS = (pa.float64(), pa.float32(), pa.int64(), pa.int32(), pa.int16(), pa.int8())
_ERRORS = (ValueError, msgspec.MsgspecError, RecursionError)

Fix = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Shape:
    """A msgspec type for one row, and what is left to do to a decoded row."""

    decoder: msgspec.json.Decoder[Any]
    get: Callable[[Any, Any], Any]
    set: Callable[[Any, Any, Any], None]
    fixes: Sequence[tuple[Any, str, Fix]]  # key, name for messages, function
    names: Sequence[str]  # dict keys that must be there; empty for structs

    def finish(self, row: Any) -> Any:
        """Fill in missing fields and convert what JSON has no type for. Changes the row just decoded."""
        if self.names and len(row) != len(self.names):
            for name in self.names:
                row.setdefault(name, None)
        for key, name, fix in self.fixes:
            value = self.get(row, key)
            if value is not None:
                try:
                    self.set(row, key, fix(value))
                except ValueError as error:
                    raise ValueError(f"field {name}: {error}") from None
        return row

    def finish_all(self, rows: list[Any]) -> list[Any]:
        if self.fixes:
            finish = self.finish
            for row in rows:
                finish(row)
        elif self.names:
            names, count = self.names, len(self.names)
            for row in rows if set(map(len, rows)) - {count} else ():
                if len(row) != count:
                    for name in names:
                        row.setdefault(name, None)
        return rows


@dataclass(frozen=True)
class JsonCodec:
    """One JSON object a record. Missing fields are null, further fields are ignored, a wrong type rejects the record."""

    # the fields. `timestamp` takes ISO text or numbers, `binary` base64 text, `decimal` a number or text.
    columns: pa.Schema
    timestamp_unit: str = "s"  # what one is in times given as numbers: "s", "ms" or "us"

    def __post_init__(self) -> None:
        self._shape("records")

    def schema(self) -> pa.Schema:
        return self.columns

    def parse_values(self, values: Values) -> Parsed | None:
        alike = _alike_objects(self.columns).decode(values)
        if alike is None:
            return None
        rows, numbers = alike
        if len(numbers) == len(values):
            return Parsed(rows, {})
        others = np.ones(len(values), np.bool_)
        others[numbers] = False
        rest = np.flatnonzero(others)
        parsed = self.parse([values.row(row) for row in rest.tolist()], "batch")
        good = np.ones(len(rest), np.bool_)
        good[list(parsed.bad)] = False
        order = np.argsort(np.concatenate([numbers, rest[good]]), kind="stable")
        both = pa.Table.from_batches([rows, parsed.rows]).combine_chunks().to_batches()[0]
        return Parsed(both.take(indices_of(order)), {int(rest[row]): why for row, why in parsed.bad.items()})

    def parse_lines(self, lines: Lines, want: Want) -> Parsed | None:
        """Return all rows of a buffer at once, None where that is not safe."""
        rows = self._rows_of(lines, self._shape(want))
        return None if rows is None else Parsed(self._result(rows, want), {})

    def _rows_of(self, lines: Lines, shape: _Shape) -> list[Any] | None:
        data = lines.data[: int(lines.ends[-1]) + 1]
        first = np.frombuffer(data, np.uint8)
        # A value cannot span a "}" newline "{" seam, nor can a line between such seams be blank: if the count is right
        # too, rows and lines match one to one. Without this a blank line and a line with two values would shift rows.
        if not ((first[line_starts(lines)] == _OPEN).all() and (first[np.maximum(lines.ends - 1, 0)] == _CLOSE).all()):
            return None
        try:
            str(data, "utf-8")  # msgspec does not look into the texts it skips
            rows = shape.decoder.decode_lines(data)
            if len(rows) != len(lines):
                return None
            return shape.finish_all(rows)
        except _ERRORS:
            return None

    def parse_objects(self, lines: Lines) -> ObjectRows | None:
        """Return all rows of a buffer, None where that is not safe or one is bad."""
        rows = self._rows_of(lines, _struct_shape(self.columns, check_unit(self.timestamp_unit)))
        if rows is None:
            return None
        attributes = {name: f"f{i}" for i, name in enumerate(self.columns.names)}
        return ObjectRows(rows, attributes, lambda: self._dicts_of(lines))

    def _dicts_of(self, lines: Lines) -> Sequence[dict[str, Any]]:
        parsed = self.parse_lines(lines, "records")
        assert parsed is not None, "what can be read as structs can be read as dicts"
        rows: Any = parsed.rows
        return rows  # type: ignore[no-any-return]

    def parse(self, values: Sequence[bytes], want: Want) -> Parsed:
        shape = self._shape(want)
        decode, finish = shape.decoder.decode, shape.finish
        rows: list[Any] = []
        bad: dict[int, str] = {}
        for i, value in enumerate(values):
            try:
                str(value, "utf-8")
                rows.append(finish(decode(value)))
            except _ERRORS as error:
                bad[i] = _reason(value, error)
        return Parsed(self._result(rows, want), bad)

    def _result(self, rows: list[Any], want: Want) -> pa.RecordBatch | list[dict[str, Any]]:
        if want == "records":
            return rows
        columns = [_column(rows, f"f{i}", f.type) for i, f in enumerate(self.columns)]
        return pa.RecordBatch.from_arrays(columns, schema=self.columns)

    def _shape(self, want: Want) -> _Shape:
        # msgspec decoders do not pickle; each process makes its own.
        make = _dict_shape if want == "records" else _struct_shape
        return make(self.columns, check_unit(self.timestamp_unit))


@lru_cache(_KEPT)
def _alike_objects(columns: pa.Schema) -> AlikeObjects:
    return AlikeObjects(columns)


@lru_cache(_KEPT)
def _dict_shape(fields: pa.Schema, micros: int) -> _Shape:
    kind, fixes, names = _typed_dict(fields, micros)
    return _Shape(msgspec.json.Decoder(kind), operator.getitem, operator.setitem, fixes, names)


def _typed_dict(fields: Sequence[pa.Field], micros: int) -> tuple[Any, list[tuple[Any, str, Fix]], list[str]]:
    hints: dict[str, Any] = {}
    fixes: list[tuple[Any, str, Fix]] = []
    for f in fields:
        kind, fix = _wire(f.type, micros)
        hints[f.name] = kind | None if f.nullable else Required[kind]
        if fix:
            fixes.append((f.name, f.name, fix))
    return TypedDict("Row", hints, total=False), fixes, list(hints)  # type: ignore[operator]


@lru_cache(_KEPT)
def _struct_shape(fields: pa.Schema, micros: int) -> _Shape:
    """Columns need no dicts: a struct of slots costs half of what a dict does."""
    members: list[Any] = []
    rename: dict[str, str] = {}
    fixes: list[tuple[Any, str, Fix]] = []
    for i, f in enumerate(fields):
        kind, fix = _wire(f.type, micros)
        members.append((f"f{i}", kind | None, None) if f.nullable else (f"f{i}", kind))
        rename[f"f{i}"] = f.name
        if fix:
            fixes.append((f"f{i}", f.name, fix))
    row = msgspec.defstruct("Row", members, rename=rename, gc=False, kw_only=True)
    return _Shape(msgspec.json.Decoder(row), getattr, setattr, fixes, ())


def _wire(kind: pa.DataType, micros: int) -> tuple[Any, Fix | None]:
    """Return the type msgspec reads for an Arrow type, and what turns that value into the final one."""
    if pa.types.is_timestamp(kind):
        zoned = kind.tz is not None
        return str | int | float, lambda v: to_timestamp(v, micros, zoned)
    if pa.types.is_integer(kind):
        top = 1 << (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-top, le=top - 1)], None
    if pa.types.is_decimal(kind):
        precision, scale = kind.precision, kind.scale
        return Decimal, lambda v: to_decimal(v, precision, scale)
    if kind == pa.float32():
        return Annotated[float, msgspec.Meta(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX)], None
    if pa.types.is_list(kind):
        item, fix = _wire(kind.value_type, micros)
        return list[item | None], fix and _each(fix)  # type: ignore[valid-type]
    if pa.types.is_map(kind):
        return _wire_map(kind, micros)
    if pa.types.is_struct(kind):
        row, fixes, names = _typed_dict(list(kind), micros)
        # The decoder of an inner shape is never used; the outer one reads the whole row.
        shape = _Shape(msgspec.json.Decoder(Any), operator.getitem, operator.setitem, fixes, names)
        return row, shape.finish
    simple = {pa.bool_(): bool, pa.float64(): float, pa.string(): str, pa.binary(): bytes, pa.date32(): date}.get(kind)
    if simple is None:
        raise DefinitionError(f"JSON cannot be read as {kind}", next="use another type in the schema")
    return simple, None


def _wire_map(kind: pa.DataType, micros: int) -> tuple[Any, Fix | None]:
    key, key_fix = _wire(kind.key_type, micros)
    if key_fix or not (pa.types.is_string(kind.key_type) or pa.types.is_integer(kind.key_type)):
        raise DefinitionError(f"JSON cannot be read as a map with {kind.key_type} keys", next="use string keys")
    value, fix = _wire(kind.item_type, micros)
    return dict[key, value | None], fix and _each_value(fix)  # type: ignore[valid-type]


def _each(fix: Fix) -> Fix:
    return lambda items: [None if v is None else fix(v) for v in items]


def _each_value(fix: Fix) -> Fix:
    return lambda items: {k: None if v is None else fix(v) for k, v in items.items()}


def _column(rows: list[Any], key: str, kind: pa.DataType) -> pa.Array:
    """Return one field of decoded rows as a column; numbers and texts without nulls in half the time that Arrow takes."""
    get = operator.attrgetter(key)
    try:
        if kind in _NUMBERS:
            values = np.fromiter(map(get, rows), kind.to_pandas_dtype(), len(rows))
            if values.dtype.kind == "i" or not np.isnan(values).any():  # JSON has no NaN: it would be a null
                return column_of(values, kind)
        if kind == pa.string():
            return texts_of(list(map(get, rows)))
    except TypeError:  # a null, too
        pass
    return pa.array(list(map(get, rows)), kind)


def _reason(value: bytes, error: BaseException) -> str:
    if not value.strip():
        return "empty"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if isinstance(error, RecursionError):
        return "not JSON: nested too deeply"
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        if match := _PLACE.fullmatch(text):
            missing = _MISSING.fullmatch(match[1])
            if missing:
                return f"field {match[2]}.{missing[1]}: missing"
            return f"field {match[2]}: {match[1][:1].lower()}{match[1][1:]}"
        if match := _MISSING.fullmatch(text):
            return f"field {match[1]}: missing"
        return f"not a JSON object: {text[:1].lower()}{text[1:]}"
    if isinstance(error, msgspec.DecodeError):
        return f"not JSON: {text}"
    return text
