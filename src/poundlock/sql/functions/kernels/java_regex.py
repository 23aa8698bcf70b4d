"""Java's regular expressions, translated into Python's; and into RE2's, where both mean the same.

Translated are quoting, hexadecimal and octal escapes, POSIX and Unicode classes, unions and intersections of classes, named groups, flags
at the beginning of a pattern or a group, and Java's line ends. \\d, \\w and \\s are ASCII, \\b is Unicode's, as in Java 17. Not
translated are \\G, \\X, scripts and blocks of Unicode, the flags d, u, U and x, and lookbehind of no fixed length.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import texts_of

Ranges = list[tuple[int, int]]
_LAST = 0x10FFFF
_LINE_ENDS: Ranges = [(0x0A, 0x0A), (0x0D, 0x0D), (0x85, 0x85), (0x2028, 0x2029)]
_VERTICAL: Ranges = [(0x0A, 0x0D), (0x85, 0x85), (0x2028, 0x2029)]
_DIGIT: Ranges = [(0x30, 0x39)]
_UPPER: Ranges = [(0x41, 0x5A)]
_LOWER: Ranges = [(0x61, 0x7A)]
_ALPHA: Ranges = [*_UPPER, *_LOWER]
_PUNCTUATION: Ranges = [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)]
_CLASSES: dict[str, Ranges] = {
    "d": _DIGIT, "w": [*_DIGIT, *_UPPER, (0x5F, 0x5F), *_LOWER], "s": [(0x09, 0x0D), (0x20, 0x20)], "v": _VERTICAL,
    "h": [(0x09, 0x09), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200A),
          (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)],
}  # fmt: skip
_PROPERTIES: dict[str, Ranges] = {
    "Lower": _LOWER, "Upper": _UPPER, "ASCII": [(0, 0x7F)], "Alpha": _ALPHA, "Digit": _DIGIT, "Punct": _PUNCTUATION,
    "Alnum": [*_DIGIT, *_ALPHA], "Graph": [(0x21, 0x7E)], "Print": [(0x20, 0x7E)], "Blank": [(0x09, 0x09), (0x20, 0x20)],
    "Cntrl": [(0, 0x1F), (0x7F, 0x7F)], "XDigit": [*_DIGIT, (0x41, 0x46), (0x61, 0x66)],
    "Space": [(0x09, 0x0D), (0x20, 0x20)],
}  # fmt: skip
_BINARY_PROPERTIES = {
    "IsAlphabetic": ("L", "Nl"), "IsLetter": ("L",), "IsDigit": ("Nd",), "IsUppercase": ("Lu",), "IsLowercase": ("Ll",),
    "IsPunctuation": ("P",), "IsControl": ("Cc",), "IsWhite_Space": ("Z",),
}  # fmt: skip
_CONTROLS = {"t": 0x09, "n": 0x0A, "r": 0x0D, "f": 0x0C, "a": 0x07, "e": 0x1B}
_GROUPS = ("?:", "?=", "?!", "?>", "?<=", "?<!")
_QUANTIFIER = re.compile(r"([*+?]|\{\d+(?:,\d*)?\})([+?]?)")
_TEXT_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
_LINE_END = r"(?=(?<!\r)\n|[\r\x85\u2028\u2029]|\Z)"
_LINE_START = r"(?:\A|(?<=[\n\x85\u2028\u2029])|(?<=\r)(?!\n))(?!\Z)"


@dataclass(frozen=True, slots=True)
class JavaRegex:
    """A regular expression.

    Args:
        python: Python's.
        re2: RE2's, in which no group captures; None where it means something else.
    """

    python: re.Pattern[str]
    re2: str | None

    @property
    def may_be_empty(self) -> bool:
        """Whether it may match an empty text."""
        return self.python.search("") is not None

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the matches in a text; the one behind an empty match begins a character later, which Python sees otherwise."""
        at = 0
        while at <= len(text) and (match := self.python.search(text, at)):
            yield match
            at = match.end() + (match.end() == match.start())

    def replaced(self, text: str, replacement: str) -> str:
        """Return a text with another one, as it is, in place of each match."""
        parts: list[str] = []
        at = 0
        for match in self.matches(text):
            parts += (text[at : match.start()], replacement)
            at = match.end()
        return "".join((*parts, text[at:]))


@lru_cache(maxsize=512)
def compiled(pattern: str) -> JavaRegex:
    """Return a regular expression of Java's.

    Raises:
        DefinitionError: it is none, or has what is not translated.
    """
    translation = _Translation(pattern)
    try:
        python = re.compile(translation.translate(), re.ASCII)
    except (re.error, IndexError, OverflowError, RecursionError) as error:
        raise DefinitionError(
            f"'{pattern}' is no regular expression: {error}", next="write a regular expression of Java's"
        ) from error
    return JavaRegex(python, _checked("".join(translation.re2)) if translation.is_plain else None)


def _checked(pattern: str) -> str | None:
    """Return a pattern if RE2 takes it: it has limits of its own."""
    try:
        pc.match_substring_regex(texts_of([""]), pattern=pattern)
    except pa.ArrowInvalid:
        return None
    return pattern


@dataclass(slots=True)
class _Level:
    """A group that is open: how many parentheses end it, and the flags within it."""

    closing: int = 1
    dot_all: bool = False
    multiline: bool = False


@dataclass(slots=True)
class _Translation:
    """One pass over a pattern, which writes both translations."""

    pattern: str
    at: int = 0
    groups: int = 0
    is_plain: bool = True
    python: list[str] = field(default_factory=list)
    re2: list[str] = field(default_factory=list)
    levels: list[_Level] = field(default_factory=lambda: [_Level(0)])

    def translate(self) -> str:
        """Return Python's pattern."""
        while self.at < len(self.pattern):
            self._next()
        self._write(")" * self.levels[0].closing)
        if len(self.levels) > 1:
            raise re.error("a group is not closed")
        return "".join(self.python)

    def _write(self, both: str) -> None:
        self.python.append(both)
        self.re2.append(both)

    def _write_python(self, only: str) -> None:
        self.is_plain = False
        self.python.append(only)

    def _next(self) -> None:
        letter = self.pattern[self.at]
        self.at += 1
        level = self.levels[-1]
        if letter == "\\":
            self._escape()
        elif letter == "[":
            self._write(self._class())
        elif letter == "(":
            self._open()
        elif letter == ")":
            if len(self.levels) == 1:
                raise re.error("a parenthesis closes nothing")
            self._write(")" * self.levels.pop().closing)
        elif letter == ".":
            self._write(_written(_complement(_LINE_ENDS)) if not level.dot_all else _written([(0, _LAST)]))
        elif letter == "$":
            self._write_python(_LINE_END if level.multiline else _TEXT_END)
        elif letter == "^":
            self._write_python(_LINE_START) if level.multiline else self._write("^")
        elif letter == "|":
            self._write("|")
        elif letter in "*+?{":
            self._quantifier()
        else:
            self._write(_literal(ord(letter)))

    def _quantifier(self) -> None:
        """Write how often something is taken: greedily, reluctantly or possessively."""
        match = _QUANTIFIER.match(self.pattern, self.at - 1)
        if match is None:
            raise re.error("braces hold no number of times")
        self.at = match.end()
        self._write_python(match[0]) if match[2] == "+" else self._write(match[0])

    def _open(self) -> None:
        """Write the beginning of a group."""
        outer = self.levels[-1]
        rest = self.pattern[self.at :]
        kind = next((each for each in _GROUPS if rest.startswith(each)), None)
        named = re.match(r"\?<([A-Za-z][A-Za-z0-9]*)>", rest)
        flags = re.match(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])", rest)
        inner = _Level(1, outer.dot_all, outer.multiline)
        if kind is not None:
            self._write(f"({kind}") if kind == "?:" else self._write_python(f"({kind}")
            self.at += len(kind)
        elif named:
            self.groups += 1
            self.python.append(f"(?P<{named[1]}>")
            self.re2.append("(?:")
            self.at += named.end()
        elif flags:
            self._flags(flags, inner)
            return
        elif rest.startswith("?"):
            raise re.error("there is no such group")
        else:
            self.groups += 1
            self.python.append("(")
            self.re2.append("(?:")
        self.levels.append(inner)

    def _flags(self, flags: re.Match[str], inner: _Level) -> None:
        on, off = flags[1], flags[2] or ""
        if set(on + off) - set("ims"):
            raise re.error(f"the flags {on}{off} are not taken, only i, m and s")
        at_start = self.at == 1 or self.pattern[self.at - 2] == "("
        self.at += flags.end()
        here = inner if flags[3] == ":" else self.levels[-1]
        if flags[3] == ")" and not at_start:
            raise re.error("flags stand at the beginning of a pattern or a group only")
        here.dot_all = (here.dot_all or "s" in on) and "s" not in off
        here.multiline = (here.multiline or "m" in on) and "m" not in off
        case = "i" if "i" in on else "-i" if "i" in off else ""
        self._write_python(f"(?{case}:")
        if flags[3] == ":":
            self.levels.append(inner)
        else:
            here.closing += 1

    def _escape(self) -> None:
        """Write what a backslash stands before."""
        letter = self.pattern[self.at]
        if letter in "bBAzZkR" or letter in "123456789":
            self.at += 1
            self._special(letter)
            return
        if letter == "Q":
            self._write("".join(_literal(ord(each)) for each in self._quoted()))
            return
        if letter == "E":
            self.at += 1
            return
        ranges = self._ranges()
        single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
        self._write(_literal(ranges[0][0]) if single else _written(ranges))

    def _special(self, letter: str) -> None:
        if letter in "bB":
            self._write_python(f"(?u:\\{letter})")
        elif letter == "R":
            self._write(f"(?:\\r\\n|{_written(_VERTICAL)})")
        elif letter in "AzZ":
            self._write_python({"A": r"\A", "z": r"\Z", "Z": _TEXT_END}[letter])
        elif letter == "k":
            name = re.compile("<([A-Za-z][A-Za-z0-9]*)>").match(self.pattern, self.at)
            if name is None:
                raise re.error("\\k names no group")
            self.at = name.end()
            self._write_python(f"(?P={name[1]})")
        else:
            number = int(letter)
            while self.pattern[self.at : self.at + 1].isdigit() and number * 10 <= self.groups:
                further = number * 10 + int(self.pattern[self.at])
                if further > self.groups:
                    break
                number, self.at = further, self.at + 1
            self._write_python(f"(?:\\{number})")

    def _quoted(self) -> str:
        """Return what stands between \\Q and \\E."""
        end = self.pattern.find("\\E", self.at)
        quoted = self.pattern[self.at + 1 :] if end < 0 else self.pattern[self.at + 1 : end]
        self.at = len(self.pattern) if end < 0 else end + 2
        return quoted

    def _ranges(self) -> Ranges:
        """Return the characters of an escape that stands for some."""
        letter = self.pattern[self.at]
        self.at += 1
        if letter.lower() in _CLASSES:
            ranges = _CLASSES[letter.lower()]
            return ranges if letter.islower() else _complement(ranges)
        if letter in "pP":
            match = re.compile(r"\{([A-Za-z_=]+)\}|([A-Z])").match(self.pattern, self.at)
            if match is None:
                raise re.error("\\p names no class")
            self.at = match.end()
            ranges = _property(match[1] or match[2])
            return ranges if letter == "p" else _complement(ranges)
        code = self._code(letter)
        return [(code, code)]

    def _code(self, letter: str) -> int:
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        forms = {"x": r"\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2})", "u": "([0-9A-Fa-f]{4})", "0": "([0-3]?[0-7]{1,2})"}
        if letter in forms:
            match = re.compile(forms[letter]).match(self.pattern, self.at)
            if match is None:
                raise re.error(f"\\{letter} has no number")
            self.at = match.end()
            return int(next(filter(None, match.groups())), 8 if letter == "0" else 16)
        if letter == "c":
            self.at += 1
            return ord(self.pattern[self.at - 1]) ^ 64
        if letter.isascii() and letter.isalpha():
            raise re.error(f"there is no escape \\{letter}")
        return ord(letter)

    def _class(self) -> str:
        """Return a class of characters, behind whose bracket the pass is."""
        return _written(self._class_ranges())

    def _class_ranges(self) -> Ranges:
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        whole: Ranges | None = None
        ranges: Ranges = []
        is_first = True
        while is_first or self.pattern[self.at] != "]":
            if self.pattern.startswith("&&", self.at):
                self.at += 2
                whole, ranges = _intersection(whole, ranges), []
            else:
                ranges = [*ranges, *self._class_item()]
            is_first = False
        self.at += 1
        whole = _intersection(whole, ranges)
        return _complement(whole) if negated else whole

    def _class_item(self) -> Ranges:
        letter = self.pattern[self.at]
        if letter == "[":
            self.at += 1
            return self._class_ranges()
        if self.pattern.startswith("\\Q", self.at):
            self.at += 1
            return [(ord(each), ord(each)) for each in self._quoted()]
        ranges = self._class_character()
        following = self.pattern[self.at + 1 : self.at + 2]
        is_range = self.pattern.startswith("-", self.at) and following not in ("]", "[", "")
        if not is_range or len(ranges) != 1 or ranges[0][0] != ranges[0][1]:
            return ranges
        self.at += 1
        last = self._class_character()
        if len(last) != 1 or last[0][1] < ranges[0][0]:
            raise re.error("a range of characters is not in order")
        return [(ranges[0][0], last[0][1])]

    def _class_character(self) -> Ranges:
        letter = self.pattern[self.at]
        self.at += 1
        return self._ranges() if letter == "\\" else [(ord(letter), ord(letter))]


def _literal(code: int) -> str:
    letter = chr(code)
    if letter.isalnum() or code > 0x7F or letter == "_":
        return letter
    return f"\\x{code:02x}" if code < 0x20 or code == 0x7F else f"\\{letter}"


def _written(ranges: Ranges) -> str:
    """Return a class of characters as Python and RE2 write it."""
    merged = _merged(ranges)
    if not merged:
        raise re.error("a class has no characters")
    negated = merged[0][0] == 0 and merged[-1][1] == _LAST and len(merged) > 1
    listed = _complement(merged) if negated else merged
    parts = [_literal(low) if low == high else f"{_literal(low)}-{_literal(high)}" for low, high in listed]
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: Ranges = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def _complement(ranges: Sequence[tuple[int, int]]) -> Ranges:
    result: Ranges = []
    start = 0
    for low, high in _merged(ranges):
        if low > start:
            result.append((start, low - 1))
        start = high + 1
    return [*result, (start, _LAST)] if start <= _LAST else result


def _intersection(first: Ranges | None, second: Ranges) -> Ranges:
    if first is None:
        return second
    return _complement([*_complement(first), *_complement(second)])


def _property(name: str) -> Ranges:
    if name in _PROPERTIES:
        return _PROPERTIES[name]
    categories = _BINARY_PROPERTIES.get(name, (name.removeprefix("Is"),))
    ranges = _merged(each for category in categories for each in _category(category))
    if not ranges:
        raise re.error(f"there is no class {name} here")
    return ranges


@lru_cache(maxsize=64)
def _category(prefix: str) -> tuple[tuple[int, int], ...]:
    """Return the characters of a category of Unicode's, such as L or Nd."""
    if not re.fullmatch("[CLMNPSZ][a-z]?", prefix):
        return ()
    codes = (code for code in range(_LAST + 1) if unicodedata.category(chr(code)).startswith(prefix))
    return tuple(_merged((code, code) for code in codes))
