"""Java's regular expressions, translated into Python's; and into RE2's, where both mean the same.

Translated are quoting, hexadecimal and octal escapes, POSIX and Unicode classes, unions and intersections of classes, named groups, flags
at the beginning of a pattern or a group, and Java's line ends. \\d, \\w and \\s are ASCII, \\b is Unicode's, as in Java 17. Not
translated are \\G, \\X, scripts and blocks of Unicode, the flags d, u, U and x, and lookbehind of no fixed length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import texts_of
from poundlock.sql.functions.kernels.character_classes import (
    CLASSES,
    LAST,
    LINE_ENDS,
    VERTICAL,
    Ranges,
    complement,
    intersection,
    literal,
    property_ranges,
    written_class,
)

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
        extracts: RE2's for the whole match and for each group, in which that group alone captures; None of a group that some matches
            have no part in: RE2 would give an empty text.
    """

    python: re.Pattern[str]
    re2: str | None
    extracts: tuple[str | None, ...] = ()

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
    re2 = _checked("".join(translation.re2)) if translation.is_plain else None
    return JavaRegex(python, re2, translation.extracts() if re2 is not None else ())


def _checked(pattern: str) -> str | None:
    """Return a pattern if RE2 takes it: it has limits of its own."""
    try:
        pc.match_substring_regex(texts_of([""]), pattern=pattern)
    except pa.ArrowInvalid:
        return None
    return pattern


@dataclass(slots=True)
class _Level:
    """A group that is open, or the whole pattern.

    Args:
        closing: how many parentheses end it.
        opening: of a group that captures, where it begins in RE2's pattern.
        has_choice: whether it has alternatives.
        is_optional: whether a match need not have it.
    """

    closing: int = 1
    dot_all: bool = False
    multiline: bool = False
    outer: _Level | None = None
    opening: int | None = None
    has_choice: bool = False
    is_optional: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether every match has it."""
        if self.outer is None:
            return True
        return not self.is_optional and not self.outer.has_choice and self.outer.is_certain


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
    capturing: list[_Level] = field(default_factory=list)
    closed: _Level | None = None

    def translate(self) -> str:
        """Return Python's pattern."""
        while self.at < len(self.pattern):
            self._next()
        self._write(")" * self.levels[0].closing)
        if len(self.levels) > 1:
            raise re.error("a group is not closed")
        return "".join(self.python)

    def extracts(self) -> tuple[str | None, ...]:
        """Return RE2's patterns of the whole match and of each group."""
        return (f"(?P<whole>{''.join(self.re2)})", *(self._extract(each) for each in self.capturing))

    def _extract(self, group: _Level) -> str | None:
        if group.opening is None or not group.is_certain:
            return None
        return "".join([*self.re2[: group.opening], "(?P<whole>", *self.re2[group.opening + 1 :]])

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
            self.closed = self.levels.pop()
            self._write(")" * self.closed.closing)
            return
        elif letter == ".":
            self._write(written_class(complement(LINE_ENDS)) if not level.dot_all else written_class([(0, LAST)]))
        elif letter == "$":
            self._write_python(_LINE_END if level.multiline else _TEXT_END)
        elif letter == "^":
            self._write_python(_LINE_START) if level.multiline else self._write("^")
        elif letter == "|":
            level.has_choice = True
            self._write("|")
        elif letter in "*+?{":
            self._quantifier()
        else:
            self._write(literal(ord(letter)))
        self.closed = None

    def _quantifier(self) -> None:
        """Write how often something is taken: greedily, reluctantly or possessively."""
        match = _QUANTIFIER.match(self.pattern, self.at - 1)
        if match is None:
            raise re.error("braces hold no number of times")
        self.at = match.end()
        if self.closed is not None and re.match(r"[*?]|\{0", match[1]):
            self.closed.is_optional = True
        self._write_python(match[0]) if match[2] == "+" else self._write(match[0])

    def _open(self) -> None:
        """Write the beginning of a group."""
        outer = self.levels[-1]
        rest = self.pattern[self.at :]
        kind = next((each for each in _GROUPS if rest.startswith(each)), None)
        named = re.match(r"\?<([A-Za-z][A-Za-z0-9]*)>", rest)
        flags = re.match(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])", rest)
        inner = _Level(1, outer.dot_all, outer.multiline, outer)
        if kind is not None:
            self._write(f"({kind}") if kind == "?:" else self._write_python(f"({kind}")
            self.at += len(kind)
        elif named:
            self._capture(inner, f"(?P<{named[1]}>")
            self.at += named.end()
        elif flags:
            self._flags(flags, inner)
            return
        elif rest.startswith("?"):
            raise re.error("there is no such group")
        else:
            self._capture(inner, "(")
        self.levels.append(inner)

    def _capture(self, group: _Level, opening: str) -> None:
        self.groups += 1
        self.capturing.append(group)
        group.opening = len(self.re2)
        self.python.append(opening)
        self.re2.append("(?:")

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
            self._write("".join(literal(ord(each)) for each in self._quoted()))
            return
        if letter == "E":
            self.at += 1
            return
        ranges = self._ranges()
        single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
        self._write(literal(ranges[0][0]) if single else written_class(ranges))

    def _special(self, letter: str) -> None:
        if letter in "bB":
            self._write_python(f"(?u:\\{letter})")
        elif letter == "R":
            self._write(f"(?:\\r\\n|{written_class(VERTICAL)})")
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
        if letter.lower() in CLASSES:
            ranges = CLASSES[letter.lower()]
            return ranges if letter.islower() else complement(ranges)
        if letter in "pP":
            match = re.compile(r"\{([A-Za-z_=]+)\}|([A-Z])").match(self.pattern, self.at)
            if match is None:
                raise re.error("\\p names no class")
            self.at = match.end()
            ranges = property_ranges(match[1] or match[2])
            return ranges if letter == "p" else complement(ranges)
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
        return written_class(self._class_ranges())

    def _class_ranges(self) -> Ranges:
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        whole: Ranges | None = None
        ranges: Ranges = []
        is_first = True
        while is_first or self.pattern[self.at] != "]":
            if self.pattern.startswith("&&", self.at):
                self.at += 2
                whole, ranges = intersection(whole, ranges), []
            else:
                ranges = [*ranges, *self._class_item()]
            is_first = False
        self.at += 1
        whole = intersection(whole, ranges)
        return complement(whole) if negated else whole

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
