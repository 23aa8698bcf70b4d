"""How commands speak: results on standard output, as text or as one JSON value; errors on standard error, in two lines.

No command prints by itself, so that `--json` never has a stray line in it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from poundlock.errors import PoundlockError


class Result(Protocol):
    """What a command found out."""

    def to_json(self) -> Any:
        """Return it as plain data."""
        ...

    def lines(self) -> Iterable[str]:
        """Return it as lines for people."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A result that is a text and, for --json, some data."""

    text: str
    data: Any = None

    def to_json(self) -> Any:
        return self.text if self.data is None else self.data

    def lines(self) -> Iterable[str]:
        return self.text.splitlines()


@dataclass(slots=True)
class Output:
    """Where results and errors go.

    Args:
        as_json: print one JSON value a result instead of text.
        out, err: the streams.
    """

    as_json: bool = False
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)

    def show(self, result: Result) -> None:
        """Print a result."""
        if self.as_json:
            self.json(result.to_json())
        else:
            for line in result.lines():
                self.line(line)

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
        """Print an error: what happened and where, then what to type next."""
        print(f"error: {error.what}", file=self.err)
        print(f"Next: {error.next or 'nothing needs to be done'}", file=self.err, flush=True)
