"""Values of JSON as they stand in the text, many at once: whether they are what JSON allows, and what they are as a column.

Only what is plain is taken: texts without escapes; numbers of digits with a point or none; true, false, null. All else is `bad`,
which says that the token must be read by itself, not that it is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.formats.arrays import Flags, Numbers, column_of, copied, numbers_in, valid_in, with_nulls

TYPES = (pa.float64(), pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.string(), pa.bool_())
"""The types that `column_in` makes."""

_Bytes = npt.NDArray[np.uint8]
_Bounds = npt.NDArray[np.int32]

_LONGEST = 24  # bytes of a number that a program writes
_DIGITS = 18  # so many always fit into 64 bits
_SPACE, _QUOTE, _BACKSLASH, _DOT, _MINUS, _ZERO, _NINE, _LETTERS, _NOT_ASCII = b' "\\.-09a\x80'


@dataclass(frozen=True, slots=True)
class Tokens:
    """Values of one field.

    Args:
        text: what stands there, a string column; without the quotes of a text.
        bad: which must be read by themselves.
        is_text: whether they are texts.
        points: of numbers, which have a point.
        words: of what is no text, which are the word: by the word.
    """

    text: pa.Array
    bad: Flags
    is_text: bool
    points: Flags | None = None
    words: dict[bytes, Flags] | None = None


def text_tokens(data: _Bytes, starts: Numbers, ends: Numbers) -> Tokens:
    """Return texts that have no escapes, from where each begins, behind its quote, to where it ends. Positions ascend."""
    text = copied(data, starts, ends, pa.string())
    bounds, content = _content(text)
    bad = np.zeros(len(text), np.bool_)
    strange = (content < _SPACE) | (content == _QUOTE) | (content == _BACKSLASH)
    if np.count_nonzero(strange):
        bad[np.searchsorted(bounds, np.flatnonzero(strange), "right") - 1] = True
    if np.count_nonzero(content >= _NOT_ASCII):
        try:
            text.validate(full=True)  # each by itself
        except pa.ArrowInvalid:
            bad[np.searchsorted(bounds, np.flatnonzero(content >= _NOT_ASCII), "right") - 1] = True
    return Tokens(text, bad, True)


def tokens(data: _Bytes, starts: Numbers, ends: Numbers) -> Tokens:
    """Return numbers and words, from where each begins to where it ends. Positions ascend."""
    text = copied(data, starts, ends, pa.string())
    bounds, content = _content(text)
    if not len(content):
        nothing = np.zeros(len(text), np.bool_)
        return Tokens(text, np.ones(len(text), np.bool_), False, nothing, {})
    begins, lengths = bounds[:-1], np.diff(bounds)
    others = np.flatnonzero((content - np.uint8(_ZERO)) > 9)
    if _are_points(content, bounds, others):
        points = np.ones(len(text), np.bool_)
        bad = (content[begins] == _ZERO) & (others != begins + 1)
    else:
        points, bad = _unlike_tokens(content, begins, lengths, others)
    if int(lengths.max()) > _LONGEST:
        bad |= lengths > _LONGEST
    first = content[np.minimum(begins, len(content) - 1)]
    words: dict[bytes, Flags] = {}
    if (first >= _LETTERS).any():
        words = {word: _are(word, content, begins, lengths) for word in (b"null", b"true", b"false")}
        for flags in words.values():
            bad &= ~flags
    return Tokens(text, bad, False, points, words)


def _are_points(content: _Bytes, bounds: _Bounds, others: Numbers) -> bool:
    """Return whether what is no digit is a point in each token, with digits around it."""
    return (
        len(others) == len(bounds) - 1
        and bool((others > bounds[:-1]).all() and (others < bounds[1:] - 1).all())
        and bool((content[others] == _DOT).all())
    )


def _unlike_tokens(content: _Bytes, begins: _Bounds, lengths: _Bounds, others: Numbers) -> tuple[Flags, Flags]:
    """Return which tokens have a point, and which are no plain number, where they are not all of one kind.

    Args:
        others: the places of all that is no digit.
    """
    owner = np.searchsorted(begins, others, "right") - 1
    what, place = content[others], others - begins[owner]
    minus, dot = (what == _MINUS) & (place == 0), what == _DOT
    bad = lengths == 0
    bad[owner[~(minus | dot)]] = True
    negative = np.zeros(len(begins), np.int32)
    negative[owner[minus]] = 1
    points = np.zeros(len(begins), np.bool_)
    with_dot, place = owner[dot], place[dot]
    points[with_dot] = True
    bad[with_dot[(place == negative[with_dot]) | (place == lengths[with_dot] - 1)]] = True
    bad[with_dot[1:][with_dot[1:] == with_dot[:-1]]] = True
    first, second = (content[np.minimum(begins + negative + at, len(content) - 1)] for at in (0, 1))
    bad |= lengths == negative
    starts_with_zero = first == _ZERO
    bad |= starts_with_zero & (second >= _ZERO) & (second <= _NINE) & (lengths > negative + 1)
    bad |= starts_with_zero & (negative == 1) & ~points  # -0 is another number than 0 in some readers
    return points, bad


def column_in(values: Tokens, field: pa.Field) -> tuple[pa.Array, Flags]:
    """Return tokens as a column of a type of TYPES, and which of them do not fit; what stands in the column for those is any."""
    count = len(values.text)
    if values.is_text:
        unfit = np.full(count, field.type != pa.string())
        return (values.text if field.type == pa.string() else pa.nulls(count, field.type)), unfit
    words = values.words or {}
    null = words.get(b"null")
    true, false = words.get(b"true"), words.get(b"false")
    is_word = np.zeros(count, np.bool_)
    for flags in words.values():
        is_word |= flags
    unfit = np.zeros(count, np.bool_)
    if null is not None and not field.nullable:
        unfit |= null
    valid = None if null is None else ~null
    if field.type == pa.bool_():
        unfit |= ~is_word
        return column_of(np.zeros(count, np.bool_) if true is None else true, pa.bool_(), valid), unfit
    if true is not None and false is not None:
        unfit |= true | false
    if field.type == pa.string():
        unfit |= ~is_word
    elif field.type != pa.float64():
        bounds, _ = _content(values.text)
        unfit |= ~is_word & ((np.diff(bounds) > _DIGITS) | (False if values.points is None else values.points))
    if field.type == pa.string() or (unfit | values.bad).any():
        return pa.nulls(count, field.type), unfit
    text = values.text
    if valid is not None:
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
        text = pa.Array.from_buffers(pa.string(), count, [bits, *text.buffers()[1:]])
    if field.type == pa.float64():
        return pc.cast(text, pa.float64()), unfit
    whole = pc.cast(text, pa.int64())
    top = 1 << (field.type.bit_width - 1)
    numbers = numbers_in(whole)
    if field.type == pa.int64():
        return whole, unfit
    unfit |= (numbers < -top) | (numbers >= top)
    return column_of(numbers.astype(field.type.to_pandas_dtype()), field.type, valid_in(whole)), unfit


def written_in(values: Tokens) -> pa.Array:
    """Return numbers and words as they are written, null for null."""
    null = (values.words or {}).get(b"null")
    return values.text if null is None or not null.any() else with_nulls(values.text, ~null)


def _content(text: pa.Array) -> tuple[_Bounds, _Bytes]:
    """Return the bounds of texts that begin at 0, and their bytes."""
    bounds = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1)
    data = text.buffers()[2]
    return bounds, np.frombuffer(b"" if data is None else data, np.uint8)[: int(bounds[-1])]


def _are(word: bytes, content: _Bytes, begins: _Bounds, lengths: _Bounds) -> Flags:
    same: Flags = lengths == len(word)
    for offset, byte in enumerate(word):
        same &= content[np.minimum(begins + offset, len(content) - 1)] == byte
    return same
