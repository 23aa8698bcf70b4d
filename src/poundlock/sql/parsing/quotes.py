"""Where a text, a name in backquotes or a comment begins that does not end."""

from __future__ import annotations

import re

from poundlock.sql.errors import Place

_WHOLE = re.compile(r"--[^\r\n]*|/\*.*?\*/|'(?:[^']|'')*'|`(?:[^`]|``)*`|[^'`/-]+|[/-]", re.DOTALL)


def unended(script: str) -> Place:
    """Return where the text or comment of a script begins that does not end: its last character where all of them do."""
    at = 0
    while at < len(script):
        whole = _WHOLE.match(script, at)
        if whole is None or (script.startswith("/*", at) and whole[0] == "/"):
            return Place.at(script, at)
        at = whole.end()
    return Place.at(script, max(len(script.rstrip()) - 1, 0))
