"""Functions of texts.

How the analysis calls those whose arguments stand between words:

| in a script | arguments | options |
|---|---|---|
| `TRIM([BOTH \\| LEADING \\| TRAILING] [c FROM] s)` | s\\[, c\\] | `BOTH`, `LEADING` or `TRAILING`; none: both |
| `SUBSTRING(s FROM i [FOR n])`, `SUBSTRING(s, i [, n])` | s, i\\[, n\\] | |
| `OVERLAY(s PLACING r FROM i [FOR n])` | s, r, i\\[, n\\] | |
| `POSITION(x IN s [FROM i])` | x, s\\[, i\\] | |
| `LEFT(s, n)`, `RIGHT(s, n)`, all others | as written | |

Characters are Unicode's, and counted from 1. UPPER and LOWER of texts that are not ASCII, and what is marked so below, are computed
by Python, once for each distinct text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Numbers, column_of, ends_in, numbers_in, texts_of
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction
from poundlock.sql.functions.kernels.characters import (
    bytes_in,
    characters_to,
    has_at,
    is_ascii,
    joined_present,
    sliced,
    text_column,
)
from poundlock.sql.functions.kernels.distinct import (
    constant_in,
    integers_in,
    over_distinct,
    valid_of,
    with_validity,
)
from poundlock.sql.functions.signatures import BOOLEAN, INT, as_first, defined, varying
from poundlock.sql.types import LONGEST, STRING, SqlType

_SPACE = " "
_ALL = np.iinfo(np.int64).max


def _upper(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return _changed(columns[0], pc.ascii_upper, str.upper)


def _lower(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return _changed(columns[0], pc.ascii_lower, str.lower)


def _changed(column: pa.Array, ascii: Callable[[pa.Array], pa.Array], other: Callable[[str], str]) -> pa.Array:
    return ascii(column) if is_ascii(column) else over_distinct([column], other, pa.string())


def _char_length(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pc.utf8_length(columns[0])


def _trim(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return _trimmed(columns, evaluation.options[0] if evaluation.options else "BOTH")


def _trim_both(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return _trimmed(columns, "BOTH")


def _trim_left(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return _trimmed(columns, "LEADING")


def _trim_right(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return _trimmed(columns, "TRAILING")


def _trimmed(columns: Sequence[pa.Array], side: str) -> pa.Array:
    arrow, python = _TRIMS[side]
    characters = _SPACE if len(columns) == 1 else constant_in(columns[1])
    if characters is None:
        return over_distinct(columns, python, pa.string())
    return arrow(columns[0], characters=characters) if characters else columns[0]


_TRIMS: dict[str, tuple[Callable[..., pa.Array], Callable[[str, str], str]]] = {
    "BOTH": (pc.utf8_trim, str.strip),
    "LEADING": (pc.utf8_ltrim, str.lstrip),
    "TRAILING": (pc.utf8_rtrim, str.rstrip),
}


def _substring(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the part from a place, which counts from the end if it is negative; empty if that is before the text."""
    text, place = columns[0], integers_in(columns[1])
    count = integers_in(columns[2]) if len(columns) > 2 else np.full(len(text), _ALL)
    lengths = integers_in(pc.utf8_length(text))
    first = np.where(place > 0, place - 1, np.where(place < 0, lengths + place, 0))
    outside = first < 0
    valid = valid_of(columns)
    negative = count < 0
    if negative.any():
        valid = ~negative if valid is None else valid & ~negative
    return sliced(text, first, np.where(outside, 0, count), valid)


def _left(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    text, count = columns[0], integers_in(columns[1])
    return sliced(text, np.zeros(len(text), np.int64), count, valid_of(columns))


def _right(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    text, count = columns[0], np.maximum(integers_in(columns[1]), 0)
    lengths = integers_in(pc.utf8_length(text))
    return sliced(text, lengths - count, count, valid_of(columns))


def _replace(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    old, new = constant_in(columns[1]), constant_in(columns[2])
    if not old or new is None:
        return over_distinct(columns, str.replace, pa.string())
    return pc.replace_substring(columns[0], pattern=old, replacement=new)


def _concat(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pc.binary_join_element_wise(*columns, _empty(columns[0].type), null_handling="emit_null")


def _empty(kind: pa.DataType) -> pa.Scalar:
    return pc.cast(texts_of([""]), kind)[0]


def _concat_ws(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return texts with another between them: NULL where that is NULL, without those that are NULL."""
    separator, *texts = columns
    if not texts:
        return with_validity(texts_of([""] * evaluation.rows), valid_of([separator]))
    return joined_present(texts, separator)


def _left_padded(text: str, length: int, padding: str) -> str | None:
    if length < 0 or not padding:
        return None
    missing = max(length - len(text), 0)
    return (padding * missing)[:missing] + text[:length]


def _right_padded(text: str, length: int, padding: str) -> str | None:
    return None if length < 0 or not padding else (text + padding * max(length - len(text), 0))[:length]


def _pads(arrow: Callable[..., pa.Array], python: Callable[[str, int, str], str | None]) -> Callable[..., pa.Array]:
    def run(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
        length, padding = constant_in(columns[1]), constant_in(columns[2])
        if length is None or padding is None or length < 0 or len(padding) != 1:
            return over_distinct(columns, python, pa.string())
        padded = arrow(columns[0], width=length, padding=padding)
        zeros = np.zeros(len(padded), np.int64)
        return sliced(padded, zeros, np.full(len(padded), length), valid_of([padded]))

    return run


def _initcap(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return words with a capital first; what is no letter or digit of ASCII separates words, as Flink has it."""
    (column,) = columns
    if not len(column):
        return column
    ends = ends_in(column)
    data = bytes_in(column)[ends[0] : ends[-1]].copy()
    upper, lower = (data >= ord("A")) & (data <= ord("Z")), (data >= ord("a")) & (data <= ord("z"))
    in_word = upper | lower | ((data >= ord("0")) & (data <= ord("9")))
    follows = np.zeros(len(data), np.bool_)
    follows[1:] = in_word[:-1]
    starts = ends[:-1] - ends[0]
    follows[starts[starts < len(data)]] = False
    data[lower & ~follows] -= 32
    data[upper & follows] += 32
    return text_column(data, starts, ends[1:] - ends[0], valid_of(columns))


def _reverse(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pc.utf8_reverse(columns[0])


def _position(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return where one text first stands in another, from a place on; 0 if it does not."""
    sought = constant_in(columns[0])
    if sought is None or len(columns) > 2:
        return over_distinct(columns, _place, pa.int32())
    places: Numbers = numbers_in(pc.find_substring(columns[1], pattern=sought)).astype(np.int64)
    characters = characters_to(columns[1], np.maximum(places, 0)) + 1
    return column_of(np.where(places < 0, 0, characters).astype(np.int32), pa.int32(), valid_of(columns))


def _place(sought: str, text: str, start: int = 1) -> int:
    return text.find(sought, max(start - 1, 0)) + 1 if sought else 1


def _instr(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    if len(columns) == 2:
        return _position([columns[1], columns[0]], evaluation)
    return over_distinct(columns, _appearance, pa.int32())


def _appearance(text: str, sought: str, start: int, nth: int = 1) -> int:
    """Return where the nth appearance from a place on is; a negative place is from the end, searched backwards."""
    if start == 0 or nth < 1:
        return 0
    if start < 0:
        place = _appearance(text[::-1], sought[::-1], -start, nth)
        return len(text) + 2 - place - len(sought) if place else 0
    place = start - 1
    for _ in range(nth):
        place = text.find(sought, place) + 1
        if not place:
            return 0
    return place


def _repeat(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    times = column_of(np.maximum(integers_in(columns[1]), 0), pa.int64(), valid_of([columns[1]]))
    return pc.binary_repeat(columns[0], times)


def _overlay(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return over_distinct(columns, _overlaid, pa.string())


def _overlaid(text: str, other: str, start: int, length: int | None = None) -> str:
    if not 0 < start <= len(text):
        return text
    length = len(other) if length is None else length
    tail = text[start - 1 + length :] if length > 0 and start + length <= len(text) else ""
    return text[: start - 1] + other + tail


def _overlay_type(given: Sequence[Given]) -> SqlType:
    sizes = [each.type.sizes[0] if each.type.sizes else LONGEST for each in given[:2]]
    return SqlType("VARCHAR", (min(sum(sizes), LONGEST),))


def _split_index(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    separator = constant_in(columns[1])
    if isinstance(separator, int):
        separator = chr(separator) if 0 < separator < 256 else None
        if separator is None:
            return pa.nulls(evaluation.rows, pa.string())
    if not separator:
        return over_distinct(columns, _piece, pa.string())
    pieces = pc.split_pattern(columns[0], pattern=separator)
    index, starts = integers_in(columns[2]), ends_in(pieces)[:-1]
    held = (index >= 0) & (index < np.diff(ends_in(pieces))) & (integers_in(pc.binary_length(columns[0])) > 0)
    valid = valid_of(columns)
    held = held if valid is None else held & valid
    return pieces.values.take(column_of(np.where(held, starts + index, 0), pa.int64(), held))


def _piece(text: str, separator: str | int, index: int) -> str | None:
    if isinstance(separator, int):
        if not 0 < separator < 256:
            return None
        separator = chr(separator)
    pieces = _pieces(text, separator)
    return pieces[index] if 0 <= index < len(pieces) else None


def _pieces(text: str, separator: str) -> list[str]:
    """Return the pieces between separators, whitespace if the separator is empty; an empty text has none."""
    if not text:
        return []
    if separator:
        return text.split(separator)
    return "".join("\0" if each.isspace() else each for each in text).split("\0")


def _split(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return over_distinct(columns, lambda text, by: _pieces(text, by) if by else list(text), evaluation.returns.arrow)


def _starts_with(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return has_at(columns[0], columns[1], from_end=False)


def _ends_with(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return has_at(columns[0], columns[1], from_end=True)


def _ascii(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the first byte of each text, a number below 0 if that is no letter of ASCII; 0 of an empty text."""
    ends = ends_in(columns[0])
    if not len(columns[0]):
        return pa.nulls(0, pa.int32())
    data = np.append(bytes_in(columns[0]), np.uint8(0)).view(np.int8)
    first = np.where(np.diff(ends) > 0, data[np.minimum(ends[:-1], len(data) - 1)], 0)
    return column_of(first.astype(np.int32), pa.int32(), valid_of(columns))


def _chr(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the character of a number modulo 256; an empty text of a number below 0."""
    codes = integers_in(columns[0])
    places = np.where(codes < 0, 256, codes & 0xFF)
    return _CHARACTERS.take(column_of(places, pa.int64(), valid_of(columns)))


_CHARACTERS = texts_of([*map(chr, range(256)), ""])


def _translate(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return over_distinct(columns, _translated, pa.string(), takes_nulls=True)


def _translated(text: str | None, old: str | None, new: str | None) -> str | None:
    if not text or not old:
        return text
    table: dict[int, str] = {}
    new = new or ""
    for place, each in enumerate(old):
        table.setdefault(ord(each), new[place : place + 1])
    return text.translate(table)


def _elt(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    index, texts = integers_in(columns[0]) - 1, columns[1:]
    held = (index >= 0) & (index < len(texts))
    valid = valid_of(columns[:1])
    held = held if valid is None else held & valid
    return pc.choose(column_of(np.where(held, index, 0), pa.int64(), held), *texts)


def _elt_type(given: Sequence[Given]) -> SqlType:
    types = [each.type for each in given[1:]]
    longest = max((each.sizes[0] for each in types if each.sizes), default=LONGEST)
    return SqlType("VARBINARY" if types[0].root in ("BINARY", "VARBINARY") else "VARCHAR", (longest,))


FUNCTIONS: Sequence[SqlFunction] = (
    defined("UPPER", "text", as_first, _upper),
    defined("LOWER", "text", as_first, _lower),
    defined("CHAR_LENGTH", "text", INT, _char_length),
    defined("CHARACTER_LENGTH", "text", INT, _char_length),
    defined("TRIM", ("text", "text, text"), varying, _trim),
    defined("BTRIM", ("text", "text, text"), STRING, _trim_both),
    defined("LTRIM", ("text", "text, text"), varying, _trim_left),
    defined("RTRIM", ("text", "text, text"), varying, _trim_right),
    defined("SUBSTRING", ("text, integer", "text, integer, integer"), varying, _substring, nulls="always"),
    defined("SUBSTR", ("text, integer", "text, integer, integer"), varying, _substring, nulls="always"),
    defined("LEFT", "text, integer", varying, _left, nulls="always"),
    defined("RIGHT", "text, integer", varying, _right, nulls="always"),
    defined("REPLACE", "text, text, text", STRING, _replace),
    defined("CONCAT", "text…", STRING, _concat),
    defined("CONCAT_WS", "text…", STRING, _concat_ws, nulls="with the first argument"),
    defined("LPAD", "text, integer, text", STRING, _pads(pc.utf8_lpad, _left_padded), nulls="always"),
    defined("RPAD", "text, integer, text", STRING, _pads(pc.utf8_rpad, _right_padded), nulls="always"),
    defined("INITCAP", "text", as_first, _initcap),
    defined("REVERSE", "text", STRING, _reverse),
    defined("POSITION", ("text, text", "text, text, integer"), INT, _position),
    defined("LOCATE", ("text, text", "text, text, integer"), INT, _position),
    defined("INSTR", ("text, text", "text, text, integer", "text, text, integer, integer"), INT, _instr),
    defined("REPEAT", "text, integer", STRING, _repeat),
    defined("OVERLAY", ("text, text, integer", "text, text, integer, integer"), _overlay_type, _overlay),
    defined("SPLIT_INDEX", ("text, text, integer", "text, integer, integer"), STRING, _split_index, nulls="always"),
    defined("SPLIT", "text, text", SqlType("ARRAY", of=(STRING,)), _split),
    defined("STARTSWITH", ("text, text", "bytes, bytes"), BOOLEAN, _starts_with),
    defined("ENDSWITH", ("text, text", "bytes, bytes"), BOOLEAN, _ends_with),
    defined("ASCII", "text", INT, _ascii),
    defined("CHR", "integer", STRING, _chr),
    defined("TRANSLATE", "text, text, text", STRING, _translate, nulls="with the first argument"),
    defined("ELT", ("integer, text…", "integer, bytes…"), _elt_type, _elt, nulls="always"),
)
