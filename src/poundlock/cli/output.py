"""How commands speak: results on standard output, as text or as one JSON value; errors on standard error, in two lines with a code.

No command prints by itself, so that `--json` never has a stray line in it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TextIO

from poundlock.errors import PoundlockError
from poundlock.values import utc_text


@dataclass(slots=True)
class Output:
    """Where results and errors go; with `as_json` each result is one JSON value instead of text."""

    as_json: bool = False
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)

    def show(self, text: str | Iterable[str], data: Any) -> None:
        """Print a result: for people a text or its lines, for --json plain data or a function that returns it."""
        if self.as_json:
            self.json(data() if callable(data) else data)
        else:
            for line in text.splitlines() if isinstance(text, str) else text:
                self.line(line)

    def say(self, text: str) -> None:
        """Print a line before the result, for people alone."""
        if not self.as_json:
            self.line(text)

    def json(self, value: Any) -> None:
        """Print one JSON value on a line of its own."""
        self.line(json.dumps(value, default=str, ensure_ascii=False))

    def line(self, text: str) -> None:
        """Print a line and push it out at once: whoever reads a pipe wants it now."""
        print(text, file=self.out, flush=True)

    def note(self, text: str) -> None:
        """Print a line beside the result, on standard error."""
        print(text, file=self.err, flush=True)

    def error(self, error: PoundlockError) -> None:
        """Print an error: what happened and where, with its code, then what to type next."""
        print(f"error: {error.what} [{error.code}]", file=self.err)
        print(f"Next: {error.next or 'nothing needs to be done'}", file=self.err, flush=True)


def plural(count: int, noun: str) -> str:
    """Return a number of things: `1 file`, `1,200 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def watermark_text(ms: int | None) -> str:
    """Return a watermark in UTC; `-` before any, `at the end` behind all input."""
    text = utc_text(ms)
    if ms is None or text != str(ms):
        return text
    return "at the end" if ms > 0 else "-"
