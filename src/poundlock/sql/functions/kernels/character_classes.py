"""Classes of characters as ranges of their codes: Java's names for them, and how Python and RE2 write them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

Ranges = list[tuple[int, int]]
LAST = 0x10FFFF
LINE_ENDS: Ranges = [(0x0A, 0x0A), (0x0D, 0x0D), (0x85, 0x85), (0x2028, 0x2029)]
VERTICAL: Ranges = [(0x0A, 0x0D), (0x85, 0x85), (0x2028, 0x2029)]
_DIGIT: Ranges = [(0x30, 0x39)]
_UPPER: Ranges = [(0x41, 0x5A)]
_LOWER: Ranges = [(0x61, 0x7A)]
_ALPHA: Ranges = [*_UPPER, *_LOWER]
_PUNCTUATION: Ranges = [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)]
CLASSES: dict[str, Ranges] = {
    "d": _DIGIT, "w": [*_DIGIT, *_UPPER, (0x5F, 0x5F), *_LOWER], "s": [(0x09, 0x0D), (0x20, 0x20)], "v": VERTICAL,
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


def literal(code: int) -> str:
    """Return a character as Python and RE2 write it, where nothing else is meant, in a class as well."""
    letter = chr(code)
    if letter.isalnum() or code > 0x7F or letter == "_":
        return letter
    return f"\\x{code:02x}" if code < 0x20 or code == 0x7F else f"\\{letter}"


def written_class(ranges: Ranges) -> str:
    """Return a class of characters as Python and RE2 write it.

    Raises:
        re.error: it has none.
    """
    merged = _merged(ranges)
    if not merged:
        raise re.error("a class has no characters")
    negated = merged[0][0] == 0 and merged[-1][1] == LAST and len(merged) > 1
    listed = complement(merged) if negated else merged
    parts = [literal(low) if low == high else f"{literal(low)}-{literal(high)}" for low, high in listed]
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: Ranges = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def complement(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """Return all other characters."""
    result: Ranges = []
    start = 0
    for low, high in _merged(ranges):
        if low > start:
            result.append((start, low - 1))
        start = high + 1
    return [*result, (start, LAST)] if start <= LAST else result


def intersection(first: Ranges | None, second: Ranges) -> Ranges:
    """Return the characters that two classes have, of None those of the second one."""
    if first is None:
        return second
    return complement([*complement(first), *complement(second)])


def property_ranges(name: str) -> Ranges:
    """Return the characters of a class that \\p names.

    Raises:
        re.error: there is none of this name here: scripts and blocks are not known.
    """
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
    codes = (code for code in range(LAST + 1) if unicodedata.category(chr(code)).startswith(prefix))
    return tuple(_merged((code, code) for code in codes))
