"""Objects of JSON that look alike, decoded by columns: the same fields in one order and spacing, of which only the values differ.

Most JSON is written by programs, so that one object is the pattern of thousands. What stands between the values is compared with it
eight bytes at a time, and Arrow copies and converts each field of all at once. One that differs in anything, or has anything
in it that wants a closer look (an escape, an exponent, a null for a text), is left to the decoder that reads it alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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

_NAME = re.compile(rb'[ \t]*"([^"\\\x00-\x1f]+)"[ \t]*:[ \t]*')
_HELD = re.compile(rb'"([^"\\\x00-\x1f]*)"|(-?\d[\d.]*|true|false|null)')
_BEHIND = re.compile(rb"[ \t]*([,}])")
WITHIN = "\x1f"
"""Stands in the name of a field between those of the objects that it is in and its own; no name has it."""
_FEW_BYTES = 2  # what ends a line, where no word fits any more
_LENGTHS = 6  # so many lengths of a value are tried before its end is looked for
_DIFFERENT = 8  # one in so many may differ from the pattern
_MOST_SKIPPED = 64  # blocks that are not looked at after others were in vain


@dataclass(frozen=True, slots=True)
class Pattern:
    """An object without what its fields hold.

    Args:
        between: what stands before, between and behind that; the quotes of a text are part of it.
        names: of the fields; of one of an object in it with those of the objects, see WITHIN.
        texts: for each field, whether it is a text; others are numbers, true, false or null.
        lengths: of what the fields hold in the object that this is the pattern of.
        objects: the names of the objects in it.
    """

    between: Sequence[bytes]
    names: Sequence[str]
    texts: Sequence[bool]
    lengths: Sequence[int]
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
        self._fields: list[tuple[str, bool, int]] = []
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
        text, bare = held.groups()
        quote = b"" if text is None else b'"'
        self._between.append(self._before + quote)
        self._fields.append((name, text is not None, len(bare if text is None else text)))
        self._at, self._before = held.end(), quote
        return True

    def _whole(self) -> Pattern | None:
        names, texts, lengths = zip(*self._fields, strict=True)
        if self._at != len(self._value) or len({*names, *self._objects}) != len(names) + len(self._objects):
            return None
        return Pattern((*self._between, self._before), names, texts, lengths, frozenset(self._objects))


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
        if not self._possible or len(values) < LEAST or not SIZE <= len(values.data) < 1 << 31:
            return None
        if self._skip:
            self._skip -= 1
            return None
        decoded = self._decode(values)
        self._in_vain = 0 if decoded else self._in_vain + 1
        self._skip = min((1 << min(self._in_vain, 16)) - 1, _MOST_SKIPPED)
        return decoded

    def _decode(self, values: Values) -> tuple[pa.RecordBatch, Numbers] | None:
        last, first = self._pattern, pattern_of(values.row(0))
        for pattern in (last, first) if last != first else (first,):
            decoded = None if pattern is None else self._alike(values, pattern)
            if decoded is not None:
                self._pattern = pattern
                return decoded
        return None

    def _alike(self, values: Values, pattern: Pattern) -> tuple[pa.RecordBatch, Numbers] | None:
        if any(not field.nullable and field.name not in pattern.names for field in self._columns):
            return None
        if len(values.data) <= sum(map(len, pattern.between)):  # not one such value
            return None
        if any(field.name in pattern.objects for field in self._columns):
            return None
        if 2 * sum(name in self._columns.names for name in pattern.names) < len(pattern.names):
            return None  # each field costs the same here, wanted or not; elsewhere those that are skipped cost little
        least = max(len(values) - len(values) // _DIFFERENT, 1)
        places = _places(values, pattern)
        while len(places.numbers) >= least:
            batch = self._batch(values.data, places, pattern)
            if isinstance(batch, pa.RecordBatch):
                return batch, places.numbers
            places = places.those(~batch)  # what is left has nothing in it that this depends on, so it is decoded next
        return None

    def _batch(self, data: _Bytes, places: _Places, pattern: Pattern) -> pa.RecordBatch | Flags:
        """Return the columns of some objects, or which of them must be decoded alone."""
        bad = np.zeros(len(places.numbers), np.bool_)
        made: dict[str, pa.Array] = {}
        for i, name in enumerate(pattern.names):
            index = self._columns.get_field_index(name)
            field = None if index < 0 else self._columns.field(index)
            if field is not None and not pattern.texts[i]:
                plain = number_column(data, places.starts[i], places.ends[i], field.type)
                if plain is not None:
                    made[name] = plain
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


def _places(values: Values, pattern: Pattern) -> _Places:
    """Return where the fields are in the values that are like the pattern."""
    data, ends = values.data, values.ends
    words = words_in(data)
    begins: list[Numbers] = []
    stops: list[Numbers] = []
    first, *between, last = pattern.between
    alike = _matches(data, words, values.starts, first)
    at = values.starts + len(first)
    for behind, length in zip(between, pattern.lengths, strict=False):
        begins.append(at)
        end, there = _ends(data, words, at, ends, behind, length)
        stops.append(end)
        alike &= there
        at = end + len(behind)
    begins.append(at)
    stops.append(ends - len(last))
    alike &= _matches(data, words, stops[-1], last)
    alike &= at <= stops[-1]  # so that nothing was read beyond a value's end
    return _Places(np.arange(len(values)), begins, stops).those(alike)


def _ends(
    data: _Bytes, words: Words, at: Numbers, limits: Numbers, behind: bytes, length: int
) -> tuple[Numbers, Flags]:
    """Return where values end that begin somewhere, and where that is known.

    Values are mostly of a few lengths, and looking whether one ends there is cheap; the ends of what is left are searched.

    Args:
        limits: the ends of the objects.
        behind: what follows the value.
        length: of the value, in the object of the pattern.
    """
    end = at + length
    there = _matches(data, words, end, behind) & (end < limits)
    for _ in range(_LENGTHS):
        left = np.flatnonzero(~there)
        if not len(left):
            return end, there
        begin = int(at[left[0]])
        line = data[begin : begin + (1 << 10)].tobytes()
        some = at[left] + max(line.find(behind), 0)
        hits = _matches(data, words, some, behind) & (some < limits[left])
        end[left[hits]] = some[hits]
        there[left[hits]] = True
    marks = np.append(np.flatnonzero(data == behind[0]), len(data))
    left = np.flatnonzero(~there)
    end[left] = marks[np.searchsorted(marks, at[left]).clip(max=len(marks) - 1)]
    there[left] = _matches(data, words, end[left], behind)
    return end, there


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
