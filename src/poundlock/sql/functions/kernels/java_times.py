"""Java's patterns of dates and times, for one value: what is formatted by, and parsed with, DateTimeFormatter or SimpleDateFormat.

Both know y M d D H h K k m s S a E, DateTimeFormatter also u L n A e c Q q and sections in brackets; texts are English. Week years, weeks, eras
other than AD, and zones are not formatted: patterns with them are refused.

| | DateTimeFormatter | SimpleDateFormat |
|---|---|---|
| of | DATE_FORMAT of timestamps, TO_TIMESTAMP, TO_TIMESTAMP_LTZ | FROM_UNIXTIME, UNIX_TIMESTAMP, TO_DATE, CONVERT_TZ, DATE_FORMAT of texts |
| S | digits of the second's fraction | milliseconds |
| parsing | the whole text; the 31st of a short month is its last day | a beginning of the text is enough; the 31st of a short month is a day of the next |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import Numbers
from poundlock.sql.functions.kernels.time_values import DAY, HOUR, MINUTE, SECOND, civil_of, days_of, month_lengths

Dialect = Literal["DateTimeFormatter", "SimpleDateFormat"]
Fields = Mapping[str, int]
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_QUARTERS = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
_BOTH = "yMdDHhKkmsSaEG"
_LETTERS: Mapping[Dialect, frozenset[str]] = {
    "DateTimeFormatter": frozenset(f"{_BOTH}uLnAecQq"),
    "SimpleDateFormat": frozenset(f"{_BOTH}Lu"),
}
_WIDEST: Mapping[str, int] = {"y": 9, "u": 9, "D": 3, "n": 9, "A": 8}


@dataclass(frozen=True, slots=True)
class PatternPiece:
    """A piece of a pattern: a field of a letter that stands some times, or a text (without a letter), or a bracket."""

    letter: str
    count: int = 1
    text: str = ""

    @property
    def is_numeric(self) -> bool:
        """Whether it stands for digits."""
        if not self.letter or self.letter in "aG[]":
            return False
        return self.letter != "E" and (self.letter not in "MLQqec" or self.count <= 2)


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A pattern."""

    text: str
    dialect: Dialect
    pieces: tuple[PatternPiece, ...]

    @property
    def resolution(self) -> int:
        """Microseconds of which two times in the same unit are written alike."""
        letters = {piece.letter for piece in self.pieces}
        if letters & set("SnA"):
            return 1
        return SECOND if "s" in letters else MINUTE if "m" in letters else HOUR if letters & set("HhKka") else DAY


@lru_cache(maxsize=512)
def pattern_of(text: str, dialect: Dialect) -> TimePattern:
    """Return the pattern that a text is.

    Raises:
        DefinitionError: it is none, or has letters that are not taken.
    """
    pieces: list[PatternPiece] = []
    at = 0
    while at < len(text):
        letter = text[at]
        end = at + 1
        if letter == "'":
            end = _end_of_quote(text, at)
            pieces.append(PatternPiece("", text=text[at + 1 : end - 1].replace("''", "'") or "'"))
        elif letter in "[]" and dialect == "DateTimeFormatter":
            pieces.append(PatternPiece(letter))
        elif letter.isascii() and letter.isalpha():
            while text[end : end + 1] == letter:
                end += 1
            if letter not in _LETTERS[dialect]:
                raise _no_pattern(text, f"the letter {letter} is not taken")
            pieces.append(PatternPiece(letter, end - at))
        else:
            pieces.append(PatternPiece("", text=letter))
        at = end
    depth = np.cumsum([{"[": 1, "]": -1}.get(piece.letter, 0) for piece in pieces] or [0])
    if depth.min() < 0 or depth[-1]:
        raise _no_pattern(text, "its brackets do not match")
    return TimePattern(text, dialect, tuple(pieces))


def _end_of_quote(text: str, at: int) -> int:
    """Return where a quotation ends; two quotes within it, or alone, are one."""
    if text.startswith("''", at):
        return at + 2
    end = at + 1
    while True:
        end = text.find("'", end)
        if end < 0:
            raise _no_pattern(text, "a quote is not closed")
        if not text.startswith("''", end):
            return end + 1
        end += 2


def _no_pattern(text: str, why: str) -> DefinitionError:
    return DefinitionError(
        f"'{text}' is no pattern of dates and times here: {why}",
        next="write a pattern such as 'yyyy-MM-dd HH:mm:ss.SSS'",
    )


def format_one(local: int, nanos: int, pattern: TimePattern) -> str:
    """Return one wall time as a pattern writes it.

    Args:
        local: microseconds since 1970.
        nanos: beyond them.
    """
    day = np.array([local // DAY])
    year, month, day_of_month = (int(field[0]) for field in civil_of(day))
    within = local % DAY
    fields = {
        "y": year, "u": year, "M": month, "L": month, "d": day_of_month, "H": within // HOUR,
        "D": int(day[0] - days_of(np.array([year]), np.array([1]), np.array([1]))[0]) + 1, "m": within // MINUTE % 60,
        "s": within // SECOND % 60, "n": within % SECOND * 1_000 + nanos, "A": within // 1_000, "Q": (month + 2) // 3,
        "E": int(day[0] + 3) % 7,
    }  # fmt: skip
    return "".join(
        piece.text if not piece.letter else _written(piece, fields, pattern.dialect) for piece in pattern.pieces
    )


def _written(piece: PatternPiece, fields: Fields, dialect: Dialect) -> str:
    letter, count = piece.letter, piece.count
    if letter in "[]":
        return ""
    if letter in "ML" and count > 2:
        return _named(MONTHS[fields["M"] - 1], count)
    weekday = fields["E"]
    if letter == "E" or (letter in "ec" and count > 2):
        return _named(DAYS[weekday], count)
    if letter in "Qq" and count > 2:
        return f"Q{fields['Q']}" if count == 3 else _QUARTERS[fields["Q"] - 1] if count == 4 else str(fields["Q"])
    if letter == "a":
        return "AM" if fields["H"] < 12 else "PM"
    if letter == "G":
        return "AD"
    if letter == "S":
        if dialect == "SimpleDateFormat":
            return str(fields["n"] // 1_000_000).zfill(count)
        return f"{fields['n']:09d}".ljust(count, "0")[:count]
    if letter in "yu" and not (letter == "u" and dialect == "SimpleDateFormat"):
        return f"{fields['y'] % 100:02d}" if count == 2 else str(fields["y"]).zfill(count)
    hour = fields["H"]
    numbers = {"h": (hour - 1) % 12 + 1, "K": hour % 12, "k": hour or 24, "e": (weekday + 1) % 7 + 1,
               "c": (weekday + 1) % 7 + 1, "u": weekday + 1, "q": fields["Q"], "L": fields["M"]}  # fmt: skip
    return str(numbers[letter] if letter in numbers else fields[letter]).zfill(count)


def _named(name: str, count: int) -> str:
    return name if count == 4 else name[:1] if count == 5 else name[:3]


def parse_one(text: str, pattern: TimePattern) -> int | None:
    """Return the wall time that a text is, microseconds since 1970; None if it does not have the pattern."""
    regex, fields = _regex_of(pattern)
    is_lenient = pattern.dialect == "SimpleDateFormat"
    match = regex.match(text) if is_lenient else regex.fullmatch(text)
    if match is None:
        return None
    known: dict[str, int] = {"fraction": 0}
    for piece, value in zip(fields, match.groups(), strict=True):
        if value is not None:
            _take(piece, value, known, is_lenient=is_lenient)
    return _resolved_leniently(known) if is_lenient else _resolved(known)


def _take(piece: PatternPiece, value: str, known: dict[str, int], *, is_lenient: bool) -> None:
    """Put down what the text of a piece says."""
    letter = "y" if piece.letter == "u" and not is_lenient else "M" if piece.letter == "L" else piece.letter
    if letter == "a":
        known["a"] = 0 if value.upper() == "AM" else 1
    elif letter == "M" and piece.count > 2:
        known["M"] = 1 + [name[:3].lower() for name in MONTHS].index(value[:3].lower())
    elif letter == "S":
        known["fraction"] = int(value) * 1_000 if is_lenient else int(value.ljust(9, "0")[:9]) // 1_000
    elif letter == "n":
        known["fraction"] = int(value) // 1_000
    elif piece.is_numeric:
        number = int(value)
        is_short = letter == "y" and piece.count == 2 and len(value.strip()) == 2
        known[letter] = number + (2000 if not is_lenient or number < 50 else 1900) if is_short else number


def _hour(known: Fields) -> int:
    half = known.get("K", known["h"] % 12 if "h" in known else None)
    if "H" in known:
        return known["H"]
    if "k" in known:
        return known["k"] % 24
    return 0 if half is None or "a" not in known else half + 12 * known["a"]


def _resolved(known: Fields) -> int | None:
    """Return the time of fields that are within their limits; the day may be one too many for its month."""
    hour, minute, second = _hour(known), known.get("m", 0), known.get("s", 0)
    is_midnight = hour == 24 and not (minute or second or known["fraction"])
    limits = (
        ("M", 1, 12),
        ("d", 1, 31),
        ("D", 1, 366),
        ("h", 1, 12),
        ("K", 0, 11),
        ("k", 1, 24),
        ("m", 0, 59),
        ("s", 0, 59),
    )
    if (
        any(not low <= known.get(letter, low) <= high for letter, low, high in limits)
        or not 0 <= hour <= 23 + is_midnight
    ):
        return None
    year, month, day = known.get("y", 1970), known.get("M", 1), known.get("d", 1)
    one = np.ones(1, np.int64)
    if is_midnight and not {"y", "M", "d"} <= set(known):
        hour = 0  # the day after is that of a whole date only
    longest = int(month_lengths(year * one, month * one)[0])
    if day > longest and "y" not in known:
        return None
    days = int(days_of(year * one, month * one, min(day, longest) * one)[0])
    if "D" in known and "M" not in known and "y" in known:
        days = int(days_of(year * one, one, known["D"] * one)[0])
    return days * DAY + hour * HOUR + minute * MINUTE + second * SECOND + known["fraction"]


def _resolved_leniently(known: Fields) -> int:
    one = np.ones(1, np.int64)
    month, day = (1, known["D"]) if "D" in known and "M" not in known else (known.get("M", 1), known.get("d", 1))
    days = int(days_of(known.get("y", 1970) * one, month * one, day * one)[0])
    half = known.get("K", known["h"] % 12 if "h" in known else 0) + 12 * known.get("a", 0)
    hour = known.get("H", known["k"] % 24 if "k" in known else half)
    return days * DAY + hour * HOUR + known.get("m", 0) * MINUTE + known.get("s", 0) * SECOND + known["fraction"]


@lru_cache(maxsize=512)
def _regex_of(pattern: TimePattern) -> tuple[re.Pattern[str], tuple[PatternPiece, ...]]:
    """Return what matches a text of a pattern, and the piece of each group."""
    is_lenient = pattern.dialect == "SimpleDateFormat"
    written: list[str] = []
    fields: list[PatternPiece] = []
    for place, piece in enumerate(pattern.pieces):
        follower = pattern.pieces[place + 1] if place + 1 < len(pattern.pieces) else PatternPiece("")
        if piece.letter in ("[", "]"):
            written.append("(?:" if piece.letter == "[" else ")?")
        elif not piece.letter:
            written.append(re.escape(piece.text))
        else:
            fields.append(piece)
            written.append(f"({_lenient(piece, follower) if is_lenient else _strict(piece)})")
    return re.compile("".join(written), re.ASCII | (re.IGNORECASE if is_lenient else 0)), tuple(fields)


def _lenient(piece: PatternPiece, follower: PatternPiece) -> str:
    if not piece.is_numeric:
        return _names(piece)
    return rf"\d{{{piece.count}}}" if follower.is_numeric else r"\s*-?\d+"


def _strict(piece: PatternPiece) -> str:
    letter, count = piece.letter, piece.count
    if not piece.is_numeric:
        return _names(piece)
    if letter == "S" or (count > 1 and letter not in "yu"):
        return rf"\d{{{count}}}"
    return rf"\d{{{count}}}" if count in (2, 4) else rf"\d{{{count},{max(_WIDEST.get(letter, 2), count)}}}"


def _names(piece: PatternPiece) -> str:
    if piece.letter == "a":
        return "AM|PM"
    if piece.letter == "G":
        return "AD"
    names = MONTHS if piece.letter in "ML" else DAYS if piece.letter in "Eec" else _QUARTERS
    if piece.letter in "Qq" and piece.count == 3:
        names = ("Q1", "Q2", "Q3", "Q4")
    short = [name[:3] for name in names] if piece.letter not in "Qq" else []
    return "|".join([*names, *short] if piece.count != 3 or not short else short)


def fixed_layout(pattern: TimePattern) -> tuple[tuple[int, int, PatternPiece], ...] | None:
    """Return where each piece stands in the text, in bytes, if that is the same for all times of four-digit years; None otherwise."""
    layout = []
    at = 0
    for piece in pattern.pieces:
        if not piece.letter:
            width = len(piece.text.encode())
        elif piece.letter == "S" and (pattern.dialect == "DateTimeFormatter" or piece.count == 3):
            width = piece.count
        elif (
            piece.letter in "yu"
            and piece.count == 4
            and not (piece.letter == "u" and pattern.dialect == "SimpleDateFormat")
        ):
            width = 4
        elif piece.letter in "MLdHms" and piece.count == 2:
            width = 2
        else:
            return None
        layout.append((at, width, piece))
        at += width
    return tuple(layout)


def digits_of(values: Numbers, width: int) -> Numbers:
    """Return the decimal digits of numbers, one column a digit."""
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return values[:, None] // powers % 10
