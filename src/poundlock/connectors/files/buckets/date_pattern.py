"""Date patterns as Java writes them: letters for parts of a date, quotes for text.

A pattern that is accepted gives the same text as Java's; letters outside the supported set are refused, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from poundlock.errors import DefinitionError

_FIELDS = {
    "yyyy": "{0.year:04d}", "MM": "{0.month:02d}", "dd": "{0.day:02d}",
    "HH": "{0.hour:02d}", "mm": "{0.minute:02d}", "ss": "{0.second:02d}",
}  # fmt: skip
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z']+)")


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A parsed date pattern."""

    text: str  # such as "'dt='yyyyMMdd": yyyy, MM, dd, HH, mm, ss, text in quotes, other signs as they are
    template: str  # the same as a format string over one datetime
    resolution_s: int  # how long the text stays the same at least: 1, 60 or 3600 s

    @classmethod
    def parse(cls, text: str) -> DatePattern:
        """Return the pattern. Raises DefinitionError where a letter is not supported or a quote is not closed."""
        if not isinstance(text, str) or not text:
            raise DefinitionError(f"{text!r} is not a date pattern", next="write one such as \"'dt='yyyyMMdd\"")
        parts: list[str] = []
        seen: set[str] = set()
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise DefinitionError(f"date pattern {text!r}: a quote is not closed", next="put text between quotes")
            token, quoted = match[0], match[1]
            if quoted is not None:
                parts.append(_literal(quoted.replace("''", "'") or "'"))
            elif match[2]:
                if token not in _FIELDS:
                    raise DefinitionError(
                        f"date pattern {text!r}: {token!r} is not supported",
                        next="use yyyy, MM, dd, HH, mm, ss, and put other letters in quotes: 'dt='",
                    )
                seen.add(token)
                parts.append(_FIELDS[token])
            else:
                parts.append(_literal(token))
            at = match.end()
        return cls(text, "".join(parts), 1 if "ss" in seen else 60 if "mm" in seen else 3600)

    def format(self, moment: datetime) -> str:
        """Return the text of a local time."""
        return self.template.format(moment)


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
