"""Objects of JSON as typed structs, and texts of a column as values of a type: what is read by columns where it is what it should be.

Both give what `json_values` gives, or leave it to that.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags
from poundlock.formats.json.alike import WITHIN
from poundlock.sql.formats.json_values import (
    JsonRules,
    bytes_of,
    decimal_of,
    list_column,
    map_column,
    row_column,
    scalar_column,
    unfit,
)
from poundlock.sql.formats.times import days, moments, read_day, read_moment, read_time, times
from poundlock.sql.formats.value_texts import byte_strings, texts
from poundlock.sql.functions.kernels.columns import by_value, trues
from poundlock.sql.functions.kernels.decimals import of_decimals
from poundlock.sql.types import SqlType

_PLAIN_DECIMAL = r"^-?[0-9]+(?:\.[0-9]+)?$"
READ_AS_TEXT = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "BINARY", "VARBINARY", "DECIMAL")
"""Types whose values are texts first, in JSON as in columns."""

_Read = Callable[[pa.Array, SqlType, JsonRules], "tuple[pa.Array, Flags]"]


# --- texts -----------------------------------------------------------------------------------------------------------


def column_of_texts(column: pa.Array, kind: SqlType, rules: JsonRules) -> pa.Array:
    """Return texts as values of a type of READ_AS_TEXT.

    Raises:
        Unfit: one is none of the type, and the rules are not lenient.
    """
    made, bad = _READ[kind.root](column, kind, rules)
    if not rules.is_lenient and bad.any():
        raise unfit(column[int(np.argmax(bad))].as_py(), kind)
    return made


def _moments(column: pa.Array, kind: SqlType, rules: JsonRules) -> tuple[pa.Array, Flags]:
    return moments(column, kind, rules.timestamps, partial(read_moment, kind=kind, standard=rules.timestamps))


def _bytes(column: pa.Array, kind: SqlType, rules: JsonRules) -> tuple[pa.Array, Flags]:
    made = by_value(column, lambda values: byte_strings([None if v is None else bytes_of(v) for v in values]))
    return made, _became_null(column, made)


def _decimals(column: pa.Array, kind: SqlType, rules: JsonRules) -> tuple[pa.Array, Flags]:
    return decimals_of(column, kind)


def decimals_of(column: pa.Array, kind: SqlType) -> tuple[pa.Array, Flags]:
    """Return texts as decimals, rounded half up, and which are none; one with too many digits is null, and no error."""
    plain = pc.match_substring_regex(column, _PLAIN_DECIMAL)
    nowhere = np.zeros(len(column), np.bool_)
    if not pc.any(pc.invert(plain)).as_py():
        try:
            return pc.cast(column, kind.arrow), nowhere
        except pa.ArrowInvalid:
            pass
    parsed: dict[str, Any] = {}

    def read(values: list[str | None]) -> pa.Array:
        parsed.update({value: decimal_of(value) for value in values if value is not None})
        return of_decimals([None if value is None else parsed[value] for value in values], kind)

    made = by_value(column, read)
    wrong = [value for value, number in parsed.items() if number is None]
    return made, trues(pc.is_in(column, value_set=texts(wrong))) if wrong else nowhere


_READ: Mapping[str, _Read] = {
    "DATE": lambda column, kind, rules: days(column, read_day),
    "TIME": lambda column, kind, rules: times(column, partial(read_time, needs_seconds=True)),
    "TIMESTAMP": _moments, "TIMESTAMP_LTZ": _moments, "BINARY": _bytes, "VARBINARY": _bytes, "DECIMAL": _decimals,
}  # fmt: skip


def _became_null(column: pa.Array, made: pa.Array) -> Flags:
    return trues(pc.and_(pc.is_valid(column), pc.is_null(made)))


# --- rows of objects that look alike ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value in an object, or in the objects in it.

    Args:
        name: as objects that look alike call it.
        within: the names of the objects that it is in.
    """

    name: str
    type: SqlType
    within: tuple[str, ...] = ()


def leaves_of(name: str, kind: SqlType, within: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield the values that a column is made of: itself, or those of the fields of its row."""
    if kind.root != "ROW":
        yield Leaf(name, kind, within)
    for own, of in zip(kind.names, kind.of, strict=True) if kind.root == "ROW" else ():
        yield from leaves_of(f"{name}{WITHIN}{own}", of, (*within, name))


def column_of_leaves(
    rows: pa.RecordBatch, name: str, kind: SqlType, objects: frozenset[str], rules: JsonRules
) -> pa.Array:
    """Return a column of objects that look alike; raises as `column_of_texts`.

    Args:
        objects: the names of those that there are: a row that is not among them is null.
    """
    if kind.root != "ROW":
        column = rows.column(name)
        return column_of_texts(column, kind, rules) if kind.root in READ_AS_TEXT else column
    if name not in objects:
        return pa.nulls(rows.num_rows, kind.arrow)
    inner = [
        column_of_leaves(rows, f"{name}{WITHIN}{own}", of, objects, rules)
        for own, of in zip(kind.names, kind.of, strict=True)
    ]
    return pa.StructArray.from_arrays(inner, fields=list(kind.arrow))


# --- structs ---------------------------------------------------------------------------------------------------------

_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
_WHOLE_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


@lru_cache(64)
def struct_decoder(kind: SqlType, *, needs_all: bool) -> Any:
    """Return a decoder of objects with the fields of a row; it refuses what has another shape than the row has.

    Args:
        needs_all: whether it refuses objects without one of the fields.
    """
    return msgspec.json.Decoder(_struct(kind, needs_all)) if _has_plain_names(kind) else _Refusing()


class _Refusing:
    """Takes the place of a decoder where a name of a field is not in JSON as it is, which msgspec's structs do not have."""

    def decode(self, record: bytes) -> Any:
        """Refuse an object, which is read another way then."""
        raise ValueError("a name of a field is written with an escape")


def _has_plain_names(kind: SqlType) -> bool:
    return not any(map(_ESCAPED.search, kind.names)) and all(map(_has_plain_names, kind.of))


def _struct(kind: SqlType, needs_all: bool) -> Any:
    members: list[Any] = []
    for place, of in enumerate(kind.of):
        hint = _wire(of, needs_all)
        members.append((f"f{place}", hint) if needs_all else (f"f{place}", hint, None))
    rename = {f"f{place}": name for place, name in enumerate(kind.names)}
    return msgspec.defstruct("Row", members, rename=rename, gc=False, kw_only=True)


def _wire(kind: SqlType, needs_all: bool) -> Any:
    """Return the type of a value or null; whatever stands there is Raw, null too."""
    return msgspec.Raw if kind.root == "DECIMAL" else _wire_of_values(kind, needs_all) | None


def _wire_of_values(kind: SqlType, needs_all: bool) -> Any:
    root = kind.root
    if root in _WHOLE_BITS:
        top = 1 << (_WHOLE_BITS[root] - 1)
        return Annotated[int, msgspec.Meta(ge=-top, le=top - 1)]
    if root in ("FLOAT", "DOUBLE"):
        return float
    if root == "BOOLEAN":
        return bool
    if root == "ARRAY":
        return list[_wire(kind.of[0], needs_all)]  # type: ignore[misc]
    if root == "MULTISET":
        return dict[str, _wire(SqlType("INT"), needs_all)]  # type: ignore[misc]
    if root == "MAP":
        return dict[str, _wire(kind.of[1], needs_all)]  # type: ignore[misc]
    return _struct(kind, needs_all) if root == "ROW" else str


def columns_of_structs(rows: Sequence[Any], kind: SqlType, rules: JsonRules) -> list[pa.Array]:
    """Return the fields of decoded structs as columns; raises as `column_of_texts`."""
    getters = [operator.attrgetter(f"f{place}") for place in range(len(kind.of))]
    return [_column(list(map(get, rows)), of, rules) for get, of in zip(getters, kind.of, strict=True)]


def _column(values: list[Any], kind: SqlType, rules: JsonRules) -> pa.Array:
    root = kind.root
    if root == "DECIMAL":
        return column_of_texts(texts([_raw_text(value) for value in values]), kind, rules)
    if root in READ_AS_TEXT:
        return column_of_texts(texts(values), kind, rules)
    if root == "ARRAY":
        items = list(chain.from_iterable(value for value in values if value is not None))
        return list_column(_column(items, kind.of[0], rules), values, kind)
    if root in ("MAP", "MULTISET"):
        of = SqlType("INT") if root == "MULTISET" else kind.of[1]
        there = [value for value in values if value is not None]
        items = list(chain.from_iterable(value.values() for value in there))
        return map_column(texts(list(chain.from_iterable(there))), _column(items, of, rules), values, kind)
    if root == "ROW":
        columns = []
        for place, of in enumerate(kind.of):
            get = operator.attrgetter(f"f{place}")
            columns.append(_column([None if value is None else get(value) for value in values], of, rules))
        return row_column(columns, values, kind)
    return scalar_column(values, kind)


def _raw_text(raw: Any) -> str | None:
    """Return what stands in JSON as a text: of a text what it says, else as it is written."""
    if raw is None:
        return None
    written = bytes(raw)
    if written == b"null":
        return None
    if not written.startswith(b'"'):
        return written.decode()
    return str(msgspec.json.decode(written)) if b"\\" in written else written[1:-1].decode()
