"""Rows on the driver's terminal: to see what a job does while it is written. Not for data that anybody keeps.

The rows travel in the decision itself, so that they are printed when their checkpoint is decided, and not before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from poundlock.arguments import WHOLE, check_kind
from poundlock.checkpoint.participant import JSON, Committed, Kind, WriterContext
from poundlock.checkpoint.sink_values import SinkValue
from poundlock.connectors.keeps_nothing import KeepsNothing
from poundlock.errors import CommitUnknown, DefinitionError
from poundlock.failpoints import Failpoint, hit

if TYPE_CHECKING:
    from poundlock.formats.chunk import Chunk


class PrintedRows(SinkValue, frozen=True):
    """The rows of one task, as lines: so many as are to be printed, of `rows`."""

    name: str
    subtask: int
    rows: int
    lines: list[str]


@dataclass(frozen=True)
class PrintSink(KeepsNothing):
    """Print rows on the driver, checkpoint by checkpoint, each behind `<name>:<subtask>> `.

    A row of the one column `value` is printed as text, any other as a JSON object. Nothing is printed before its checkpoint
    is decided. After a crash the newest checkpoint may be printed again: at-least-once.

    Args:
        target: "stdout" or "stderr" of the driver; with `poundlock run --json` use "stderr".
        name: what stands before the number of the subtask, which begins with 1; default: the sink's name in the job.
        limit: so many rows a task and checkpoint are printed, and of more their number: they are kept in the ledger.

    Raises:
        DefinitionError: there is no such target, or a limit below one.
    """

    target: Literal["stdout", "stderr"] = "stdout"
    _: KW_ONLY
    name: str | None = None
    limit: int = 1000

    kind: ClassVar[Kind] = Kind.APPEND
    prepares_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.target not in ("stdout", "stderr"):
            raise DefinitionError(f"target={self.target!r} is not known", next='use "stdout" or "stderr"')
        check_kind("PrintSink", WHOLE, {"limit": self.limit})
        if self.limit < 1:
            raise DefinitionError(f"limit={self.limit} prints nothing", next="give one row or more")

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        return f"print to {self.target} of the driver (up to {self.limit} rows a task and checkpoint; at-least-once)"

    def open_writer(self, context: WriterContext) -> PrintWriter:
        """Begin to collect rows in a task."""
        return PrintWriter(self.name or context.sink, context.subtask, self.limit)

    def commit(self, committable: JSON) -> Committed:
        """Print a task's rows.

        Raises:
            CommitUnknown: the terminal, pipe or file cannot be written to.
        """
        given = PrintedRows.of(committable)
        prefix = f"{given.name}:{given.subtask + 1}> "
        lines = [prefix + line for line in given.lines]
        if more := given.rows - len(lines):
            lines.append(f"{prefix}… and {more} more")
        try:
            self.print("".join(f"{line}\n" for line in lines))
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise CommitUnknown(
                f"cannot print to {self.target}: {error}", next="let the driver's output go where it can be written"
            ) from error
        return Committed({"rows": given.rows})

    def print(self, text: str) -> None:
        """Write lines to the target."""
        stream = sys.stdout if self.target == "stdout" else sys.stderr
        try:
            stream.write(text)
        except UnicodeEncodeError:  # the terminal has no such letters, and never will
            stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
        stream.flush()


class PrintWriter:
    """The rows of one task attempt, as lines, up to a limit."""

    def __init__(self, name: str, subtask: int, limit: int) -> None:
        self._name, self._subtask, self._limit, self._rows = name, subtask, limit, 0
        self._lines: list[str] = []

    def write(self, chunk: Chunk) -> int:
        """Keep the rows as text, up to the limit."""
        from poundlock.formats.convert import to_records

        if not len(chunk):
            return 0
        room = self._limit - len(self._lines)
        if room > 0:
            self._lines += map(_text, list(to_records(chunk).rows)[:room])
        if not self._rows:
            hit(Failpoint.SINK_WRITING)
        self._rows += len(chunk)
        return len(chunk)

    def prepare(self) -> Sequence[JSON]:
        if not self._rows:
            return []
        made = PrintedRows(v=1, name=self._name, subtask=self._subtask, rows=self._rows, lines=self._lines)
        return [made.to_json()]

    def abandon(self) -> None:
        self._lines = []


def _text(row: Mapping[str, Any]) -> str:
    if list(row) == ["value"]:
        return _plain(row["value"])
    return json.dumps(dict(row), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> str:
    return bytes(value).decode("utf-8", "replace") if isinstance(value, bytes | bytearray | memoryview) else str(value)
