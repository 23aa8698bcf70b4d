"""Objects of JSON that look alike, decoded by columns: the same fields in one order and spacing, of which only the values differ.

Most JSON is written by programs, so that one object is the pattern of thousands. What stands between the values is compared with it
eight bytes at a time, and Arrow copies and converts each field of all at once. One that differs in anything, or has anything
in it that wants a closer look (an escape, an exponent, a null for a text), is left to the decoder that reads it alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers
from poundlock.formats.chunk import Values
from poundlock.formats.json.numbers import number_column
from poundlock.formats.json.tokens import TYPES, column_in, text_tokens, tokens, written_in
from poundlock.formats.words import SIZE, Words, words_in

LEAST = 64
"""Fewer are sooner decoded one by one."""

_Bytes = npt.NDArray[np.uint8]
_ANY_NUMBER = pa.int64()

_NAME = re.compile(rb'[ \t]*"([^"\\\x00-\x1f]+)"[ \t]*:[ \t]*')
_HELD = re.compile(rb'"([^"\\\x00-\x1f]*)"|(-?\d[\d.]*|true|false|null)')
_BEHIND = re.compile(rb"[ \t]*([,}])")
WITHIN = "\x1f"
"""Stands in the name of a field between those of the objects that it is in and its own; no name has it."""
_FEW_BYTES = 2  # what ends a line, where no word fits any more
_QUOTE = b'"'
_NEWLINE, _SPACE, _BACKSLASH = b"\n \\"
_MOST_NAMES = 8  # for each field that is wanted
_DIFFERENT = 8  # one in so many may differ from the pattern
_MOST_SKIPPED = 64  # blocks that are not looked at after others were in vain


@dataclass(frozen=True, slots=True)
class Pattern:
    """An object without what its fields hold.

    Args:
        between: what stands before, between and behind that; the quotes of a text are part of it.
        names: of the fields; of one of an object in it with those of the objects, see WITHIN.
        texts: for each field, whether it is a text; others are numbers, true, false or null.
        objects: the names of the objects in it.
    """

    between: Sequence[bytes]
    names: Sequence[str]
    texts: Sequence[bool]
    objects: frozenset[str] = frozenset()


def pattern_of(value: bytes) -> Pattern | None:
    """Return the pattern of an object; None where it is not one of texts, numbers, words and such objects, with different names."""
    read = _Reader(value)
    try:
        return read.pattern() if value.startswith(b"{") else None
    except UnicodeDecodeError:  # which is a record that cannot be read, and says so when it is read alone
        return None


class _Reader:
    """Reads the pattern of one object."""

    def __init__(self, value: bytes) -> None:
        self._value, self._at, self._before = value, 1, b"{"
        self._between: list[bytes] = []
        self._fields: list[tuple[str, bool]] = []
        self._objects: list[str] = []

    def pattern(self) -> Pattern | None:
        """Return it, None where there is none."""
        within: list[str] = []
        while (opening := self._take(_NAME)) is not None:
            name = WITHIN.join((*within, str(opening[1], "utf-8")))
            if self._value.startswith(b"{", self._at):
                self._at, self._before = self._at + 1, self._before + b"{"
                self._objects.append(name)
                within = name.split(WITHIN)
                continue
            if not self._field(name):
                return None
            while (behind := self._take(_BEHIND)) is not None and behind[1] == b"}":
                if not within:
                    return self._whole()
                within = within[:-1]
            if behind is None:
                return None
        return None

    def _take(self, what: re.Pattern[bytes]) -> re.Match[bytes] | None:
        match = what.match(self._value, self._at)
        if match is not None:
            self._at, self._before = match.end(), self._before + match[0]
        return match

    def _field(self, name: str) -> bool:
        held = _HELD.match(self._value, self._at)
        if held is None:
            return False
        text, _ = held.groups()
        quote = b"" if text is None else b'"'
        self._between.append(self._before + quote)
        self._fields.append((name, text is not None))
        self._at, self._before = held.end(), quote
        return True

    def _whole(self) -> Pattern | None:
        names, texts = zip(*self._fields, strict=True)
        if self._at != len(self._value) or len({*names, *self._objects}) != len(names) + len(self._objects):
            return None
        return Pattern((*self._between, self._before), names, texts, frozenset(self._objects))


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the fields of some objects are.

    Args:
        numbers: of the objects.
        starts: for each field, where what it holds begins in each of them; `ends` likewise.
    """

    numbers: Numbers
    starts: Sequence[Numbers]
    ends: Sequence[Numbers]

    def those(self, wanted: Flags) -> _Places:
        """Return some of the objects."""
        if wanted.all():
            return self
        return _Places(self.numbers[wanted], [at[wanted] for at in self.starts], [at[wanted] for at in self.ends])


class AlikeObjects:
    """Decodes objects that look alike to the columns of a schema; it remembers the last pattern, and what was in vain.

    Args:
        columns: the fields that are wanted.
        as_written: those of them, texts, that are wanted whatever stands there: of a number, true and false the word as it is written.
        objects: the names of objects that fields are wanted of; null may stand in the place of one.
    """

    def __init__(
        self, columns: pa.Schema, as_written: frozenset[str] = frozenset(), objects: frozenset[str] = frozenset()
    ) -> None:
        self._columns = columns
        self._objects = objects
        self._as_written = as_written
        self._possible = all(field.type in TYPES for field in columns)  # others are converted in Python
        self._pattern: Pattern | None = None
        self._in_vain = 0
        self._skip = 0

    @property
    def objects(self) -> frozenset[str]:
        """The names of the objects that are in those decoded last."""
        return frozenset() if self._pattern is None else self._pattern.objects

    def decode(self, values: Values) -> tuple[pa.RecordBatch, Numbers] | None:
        """Return the rows of values that look alike, and the numbers of those values; None where too few do.

        The rows are those that decoding these values one by one gives. The others may be anything.
        """
        if not self._possible or len(values) < LEAST or not SIZE <= len(values.data) < 1 << 31 or self._is_skipped():
            return None
        return self.decode_quoted(QuotedValues(values), max(len(values) - len(values) // _DIFFERENT, 1))

    def decode_quoted(self, values: QuotedValues, least: int) -> tuple[pa.RecordBatch, Numbers] | None:
        """Return the same; None where less than so many look alike."""
        decoded = self._decode(values, least)
        self._in_vain = 0 if decoded else self._in_vain + 1
        self._skip = min((1 << min(self._in_vain, 16)) - 1, _MOST_SKIPPED)
        return decoded

    def _is_skipped(self) -> bool:
        if self._skip:
            self._skip -= 1
            return True
        return False

    def _decode(self, values: QuotedValues, least: int) -> tuple[pa.RecordBatch, Numbers] | None:
        last, first = self._pattern, pattern_of(values.values.row(0))
        for pattern in (last, first) if last != first else (first,):
            decoded = None if pattern is None else self._alike(values, pattern, least)
            if decoded is not None:
                self._pattern = pattern
                return decoded
        return None

    def _alike(self, values: QuotedValues, pattern: Pattern, least: int) -> tuple[pa.RecordBatch, Numbers] | None:
        if any(not field.nullable and field.name not in pattern.names for field in self._columns):
            return None
        if any(field.name in pattern.objects for field in self._columns):
            return None
        if _MOST_NAMES * sum(name in self._columns.names for name in pattern.names) < len(pattern.names):
            return None  # each field is looked for here, wanted or not; elsewhere those that are skipped cost less
        places = _places(values, pattern)
        while len(places.numbers) >= least:
            batch = self._batch(values.values.data, places, pattern, plain=values.is_plain)
            if isinstance(batch, pa.RecordBatch):
                return batch, places.numbers
            places = places.those(~batch)  # what is left has nothing in it that this depends on, so it is decoded next
        return None

    def _batch(self, data: _Bytes, places: _Places, pattern: Pattern, *, plain: bool) -> pa.RecordBatch | Flags:
        """Return the columns of some objects, or which of them must be decoded alone.

        Args:
            plain: whether what stands between two quotes is a text for certain.
        """
        bad = np.zeros(len(places.numbers), np.bool_)
        made: dict[str, pa.Array] = {}
        for i, name in enumerate(pattern.names):
            index = self._columns.get_field_index(name)
            field = None if index < 0 else self._columns.field(index)
            if pattern.texts[i]:
                if plain and field is None and name not in self._objects:
                    continue
            else:
                kind = _ANY_NUMBER if field is None else field.type
                numbers = None if name in self._objects else number_column(data, places.starts[i], places.ends[i], kind)
                if numbers is not None:
                    made[name] = numbers
                    continue
            values = (text_tokens if pattern.texts[i] else tokens)(data, places.starts[i], places.ends[i])
            bad |= values.bad
            if name in self._objects:
                null = (values.words or {}).get(b"null")
                bad |= True if null is None else ~null
            if field is None:
                continue
            if name in self._as_written and not values.is_text:
                made[name] = written_in(values)
                continue
            made[name], unfit = column_in(values, field)
            bad |= unfit
        if bad.any():
            return bad
        rest = (made[f.name] if f.name in made else pa.nulls(len(bad), f.type) for f in self._columns)
        return pa.RecordBatch.from_arrays(list(rest), schema=self._columns)


class QuotedValues:
    """Values, and where their quotes are: those of all bytes are looked for once, however many shapes the values have.

    Args:
        values: what they are.
        of: those that they are some of.
        rows: which of those.
    """

    def __init__(self, values: Values, of: QuotedValues | None = None, rows: Numbers | None = None) -> None:
        self.values = values
        self._of = of
        if of is None or rows is None:
            self.quotes = np.flatnonzero(values.data == _QUOTE[0])
            self.first = np.searchsorted(self.quotes, values.starts)
            self.counts = np.searchsorted(self.quotes, values.ends) - self.first
        else:
            self.quotes, self.first, self.counts = of.quotes, of.first[rows], of.counts[rows]

    def __len__(self) -> int:
        return len(self.values)

    def those(self, rows: Numbers) -> QuotedValues:
        """Return some of the values, by their numbers."""
        given = self.values
        return QuotedValues(Values(given.data, given.starts[rows], given.ends[rows]), self, rows)

    @cached_property
    def is_plain(self) -> bool:
        """Whether none has an escape, a control character or one beyond ASCII in it, but for the ends of lines behind them."""
        if self._of is not None:
            return self._of.is_plain
        data, ends = self.values.data, self.values.ends
        if np.count_nonzero(data == _BACKSLASH):
            return False
        strange = np.count_nonzero(data.view(np.int8) < _SPACE)
        behind = data[ends[ends < len(data)]]
        return not strange or int(strange) == int(np.count_nonzero(behind == _NEWLINE))


def _places(given: QuotedValues, pattern: Pattern) -> _Places:
    """Return where the fields are in the values that are like the pattern.

    Those have as many quotes as it, and so all quotes are known by their numbers: where a field ends follows from the next one.
    """
    values, quotes = given.values, given.quotes
    data = values.data
    rows = np.flatnonzero(given.counts == sum(piece.count(_QUOTE) for piece in pattern.between))
    number, starts, ends = given.first[rows], values.starts[rows], values.ends[rows]
    words = words_in(data)
    begins: list[Numbers] = []
    stops: list[Numbers] = []
    first, *between = pattern.between
    alike = _matches(data, words, starts, first)
    at, seen = starts + len(first), first.count(_QUOTE)
    for piece in between:
        offset = piece.find(_QUOTE)
        end = ends - len(piece) if offset < 0 else quotes[number + seen] - offset
        begins.append(at)
        stops.append(end)
        alike &= at <= end
        alike &= _matches(data, words, np.maximum(end, 0), piece)
        at, seen = end + len(piece), seen + piece.count(_QUOTE)
    alike &= at == ends
    return _Places(rows, begins, stops).those(alike)


def _matches(data: _Bytes, words: Words, at: Numbers, text: bytes) -> Flags:
    """Return at which positions a text stands; it may stand unseen at those where the data ends within a word."""
    size = len(text)
    if size <= _FEW_BYTES:
        return _all(data[at + offset] == byte for offset, byte in enumerate(text))
    if int(at.max(initial=0)) + max(size, SIZE) > len(data):
        at = np.minimum(at, len(data) - max(size, SIZE))
    if size < SIZE:
        same: Flags = (words[at] & np.uint64((1 << 8 * size) - 1)) == np.uint64(int.from_bytes(text, "little"))
        return same
    offsets = (*range(0, size - SIZE + 1, SIZE), *([size - SIZE] if size % SIZE else []))
    return _all(
        words[offset:][at] == np.uint64(int.from_bytes(text[offset : offset + SIZE], "little")) for offset in offsets
    )


def _all(flags: Iterator[Flags]) -> Flags:
    result = next(flags)
    for each in flags:
        result &= each
    return result
