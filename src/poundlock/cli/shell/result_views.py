"""How the rows of a query are shown while it runs, and what stays on the terminal behind it.

Rows come from the thread of the job; the terminal is drawn by the main thread, a few times a second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any, Protocol

from poundlock.cli.output import plural
from poundlock.cli.text_tables import shown_value, table_lines

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    import pyarrow as pa

    from poundlock.sql.relations.fields import Field

_BORDERS = 5  # lines of a table that are no rows, and the line of the status
_MOST_WAITING = 64  # batches of rows whose changes are not printed yet


class ResultView(Protocol):
    """Shows the rows of one query."""

    def take(self, fields: Sequence[Field], rows: pa.RecordBatch) -> None:
        """Take rows that were decided; called from the job's thread."""

    def lines(self, height: int) -> list[str]:
        """Return what stands on the terminal for now, at most so many lines."""

    def print_new(self, print: Callable[[str], None], *, stopped: Callable[[], bool]) -> None:
        """Print what has come and stays, until `stopped`."""

    def end(self, print: Callable[[str], None]) -> None:
        """Print what stays when the query has ended."""


class ResultTableView:
    """The rows that are there, in place."""

    def __init__(self, names: Sequence[str], zone: ZoneInfo, most: int) -> None:
        from poundlock.sql.shell.result_table import ResultTable

        self._names, self._zone, self._most = names, zone, most
        self._table = ResultTable(most)
        self._lock = threading.Lock()

    def take(self, fields: Sequence[Field], rows: pa.RecordBatch) -> None:
        """Apply changes."""
        from poundlock.sql.running.shown import changes_as_texts

        changes = changes_as_texts(fields, rows, self._zone)
        with self._lock:
            self._table.take(changes)

    def lines(self, height: int) -> list[str]:
        """Return the last rows that have a place."""
        with self._lock:
            count, newest = len(self._table), self._table.rows(max(height - _BORDERS, 1))
        hidden = f", the last {len(newest)} of them here" if len(newest) < count else ""
        return [*table_lines(self._names, newest), f"{plural(count, 'row')}{hidden}"]

    def print_new(self, print: Callable[[str], None], *, stopped: Callable[[], bool]) -> None:
        """Nothing stays before the end."""

    def end(self, print: Callable[[str], None]) -> None:
        """Print the table."""
        for line in table_lines(self._names, self._table.rows()):
            print(line)
        print(plural(len(self._table), "row"))
        if self._table.dropped:
            print(_kept(self._table.dropped, self._most))


class TailView:
    """The newest changes, in place.

    Args:
        has_kinds: whether each stands behind its kind, as in a stream.
    """

    def __init__(self, names: Sequence[str], zone: ZoneInfo, most: int, *, has_kinds: bool) -> None:
        from poundlock.sql.shell.result_table import ResultTail

        self._names, self._zone, self._most, self._has_kinds = names, zone, most, has_kinds
        self._tail = ResultTail(most)
        self._lock = threading.Lock()

    def take(self, fields: Sequence[Field], rows: pa.RecordBatch) -> None:
        """Add changes; those that would go at once are counted."""
        from poundlock.sql.running.shown import changes_as_texts

        left_out = max(rows.num_rows - self._most, 0)
        changes = changes_as_texts(fields, rows.slice(left_out), self._zone)
        with self._lock:
            self._tail.take(changes)
            self._tail.total += left_out

    def _table(self, last: int | None) -> list[str]:
        with self._lock:
            changes = self._tail.rows(last)
        if not self._has_kinds:
            return table_lines(self._names, [row for _, row in changes])
        return table_lines(["op", *self._names], [(kind, *row) for kind, row in changes])

    def lines(self, height: int) -> list[str]:
        """Return the last changes that have a place."""
        return [*self._table(max(height - _BORDERS, 1)), f"{plural(self._tail.total, 'row')} so far"]

    def print_new(self, print: Callable[[str], None], *, stopped: Callable[[], bool]) -> None:
        """Nothing stays before the end."""

    def end(self, print: Callable[[str], None]) -> None:
        """Print the changes that are kept."""
        for line in self._table(None):
            print(line)
        print(f"Received a total of {plural(self._tail.total, 'row')}")
        if self._tail.total > len(self._tail):
            print(_kept(self._tail.total - len(self._tail), self._most))


class ChangelogView:
    """Every change on a line of its own, in the order in which they are decided."""

    def __init__(self, names: Sequence[str], zone: ZoneInfo) -> None:
        self._zone = zone
        self._names: Sequence[str] | None = names
        self._batches: Queue[list[tuple[str, Any]]] = Queue(_MOST_WAITING)  # a query is not quicker than the terminal
        self._printed = 0

    def take(self, fields: Sequence[Field], rows: pa.RecordBatch) -> None:
        """Have changes printed; waits where the terminal is behind."""
        from poundlock.sql.running.shown import changes_as_texts

        self._batches.put(changes_as_texts(fields, rows, self._zone))

    def lines(self, height: int) -> list[str]:
        """Return nothing: what is printed stays."""
        return []

    def print_new(self, print: Callable[[str], None], *, stopped: Callable[[], bool]) -> None:
        """Print the changes that have come; where the query is being stopped they go."""
        if self._names is not None:
            print(f"op[{', '.join(self._names)}]")
            self._names = None
        while True:
            try:
                changes = self._batches.get_nowait()
            except Empty:
                return
            for kind, row in changes:
                if stopped():
                    break
                print(f"{kind}[{', '.join(map(shown_value, row))}]")
                self._printed += 1

    def end(self, print: Callable[[str], None]) -> None:
        """Print how many there were."""
        print(f"Received a total of {plural(self._printed, 'row')}")


def _kept(dropped: int, most: int) -> str:
    return f"{plural(dropped, 'older row')} not kept: sql-client.execution.max-table-result.rows is {most:,}"
