"""Columns of any type as the JSON texts of their values, written as Flink writes them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import ranks_of, texts_of
from poundlock.sql.functions.kernels.characters import joined_present
from poundlock.sql.functions.kernels.distinct import over_distinct, valid_of, with_validity
from poundlock.sql.functions.kernels.elements import ListElements, array_column, elements_of, keys_of, values_of
from poundlock.sql.functions.kernels.json_paths import quoted
from poundlock.sql.functions.kernels.time_columns import formatted
from poundlock.sql.types import Root, SqlType

_STRING = pa.string()
_PLAIN = '["\\\\\\x00-\\x1f]'
_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSS"


def json_texts(column: pa.Array, kind: SqlType) -> pa.Array:
    """Return the JSON text of each value; null where the column is."""
    return _WRITERS[kind.root](column, kind)


def check_json(kind: SqlType) -> None:
    """Check that values of a type have a JSON text.

    Raises:
        DefinitionError: they have none: dates, times, maps whose keys are no texts.
    """
    if kind.root not in _WRITERS or (kind.root in ("MAP", "MULTISET") and kind.of[0].root not in ("CHAR", "VARCHAR")):
        raise DefinitionError(f"{kind} has no JSON text", next="CAST it to STRING")
    for inner in kind.of:
        check_json(inner)


def java_double(value: float) -> str:
    """Return a number as Java writes it: 1.0E10, 100.0, 1.0E-4."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)  # where the point stands among the digits
    if value == 0:
        written = "0.0"
    elif -3 < point <= 7:
        whole = text[:point].ljust(point, "0") if point > 0 else "0"
        written = f"{whole}.{('0' * -point + text[max(point, 0) :]) or '0'}"
    else:
        written = f"{text[0]}.{text[1:] or '0'}E{point - 1}"
    return f"-{written}" if sign else written


def _double(value: float) -> str:
    text = java_double(value)
    if text[-1] in "Ny":
        return quoted(text)
    return str(Decimal(text)) if value else "0.0"


def texts_repeated(text: str, rows: int) -> pa.Array:
    """Return a text in as many rows."""
    return texts_of([text]).take(_places(rows))


def _places(rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(np.zeros(rows, np.int32))])


def joined_texts(parts: Sequence[pa.Array | str], rows: int) -> pa.Array:
    """Return texts, and others that are the same in all rows, one behind the other; null if one is."""
    columns = [texts_repeated(part, rows) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*columns, texts_of([""])[0], null_handling="emit_null")


def listed(columns: Sequence[pa.Array], rows: int, opening: str, closing: str) -> pa.Array:
    """Return texts with commas between them, without those that are null, between brackets."""
    if not columns:
        return texts_repeated(opening + closing, rows)
    inner = joined_present(columns, texts_repeated(",", rows))
    return joined_texts([opening, inner, closing], rows)


def null_texts(column: pa.Array) -> pa.Array:
    """Return texts with `null` in place of nulls."""
    return pc.coalesce(column, texts_of(["null"])[0])


def _text(column: pa.Array, kind: SqlType) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, pattern=_PLAIN)).as_py():
        return over_distinct([column], quoted, _STRING)
    return joined_texts(['"', column, '"'], len(column))


def _cast(column: pa.Array, kind: SqlType) -> pa.Array:
    return column.cast(_STRING)


def _python(compute: Callable[..., str]) -> Callable[[pa.Array, SqlType], pa.Array]:
    return lambda column, kind: over_distinct([column], compute, _STRING)


def _timestamp(column: pa.Array, kind: SqlType) -> pa.Array:
    ending = 'Z"' if kind.root == "TIMESTAMP_LTZ" else '"'
    text = pc.replace_substring_regex(formatted(column, _ISO), pattern=r"\.?0+$", replacement="", max_replacements=1)
    return joined_texts(['"', text, ending], len(column))


def _array(column: pa.Array, kind: SqlType) -> pa.Array:
    elements = elements_of(column).packed()
    return bracketed(replace(elements, items=null_texts(json_texts(elements.items, kind.of[0]))), "[", "]")


def _map(column: pa.Array, kind: SqlType) -> pa.Array:
    keys, values = keys_of(column).packed(), values_of(column).packed()
    counts = SqlType("INT") if kind.root == "MULTISET" else kind.of[1]
    ranks, _ = ranks_of(keys.items)
    order = np.lexsort((ranks, keys.rows))
    ordered, follow = keys.chosen(order, keys.counts), values.chosen(order, keys.counts)
    names = json_texts(ordered.items, kind.of[0])
    pairs = joined_texts([names, ":", null_texts(json_texts(follow.items, counts))], len(order))
    return bracketed(replace(ordered, items=pairs), "{", "}")


def _row(column: pa.Array, kind: SqlType) -> pa.Array:
    fields = sorted(zip(kind.names, kind.of, column.flatten(), strict=True), key=lambda field: field[0])
    rows = len(column)
    pairs = [
        joined_texts([f"{quoted(name)}:", null_texts(json_texts(values, inner))], rows)
        for name, inner, values in fields
    ]
    return with_validity(listed(pairs, rows, "{", "}"), valid_of([column]))


def bracketed(elements: ListElements, opening: str, closing: str) -> pa.Array:
    """Return texts with commas between those of a row, between brackets.

    Args:
        elements: the texts of the rows, packed.
    """
    texts = elements.items
    lists = array_column(pa.list_(_STRING), ListElements(texts, elements.starts, elements.counts, elements.valid))
    return joined_texts([opening, pc.binary_join(lists, texts_of([","])[0]), closing], len(lists))


_base64 = _python(lambda value: quoted(base64.b64encode(value).decode()))
_WRITERS: Mapping[Root, Callable[[pa.Array, SqlType], pa.Array]] = {
    "CHAR": _text, "VARCHAR": _text, "BOOLEAN": _cast, "TINYINT": _cast, "SMALLINT": _cast, "INT": _cast,
    "BIGINT": _cast, "FLOAT": _python(_double), "DOUBLE": _python(_double), "DECIMAL": _python(str),
    "BINARY": _base64, "VARBINARY": _base64, "TIMESTAMP": _timestamp, "TIMESTAMP_LTZ": _timestamp,
    "ARRAY": _array, "MAP": _map, "MULTISET": _map, "ROW": _row,
}  # fmt: skip
