"""What a user's function yields becomes rows of the main output and of side outputs.

A row never changes after it was yielded, and a tag that was not declared is refused where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from types import GeneratorType
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.output import MAIN, Collector, detached
from poundlock.stream.stream import Side


def check_rows(rows: Any, who: str) -> Iterable[Any]:
    """Return what a function gave, if it is rows.

    Raises:
        DefinitionError: it is one record, or nothing that can be gone through.
    """
    if isinstance(rows, (dict, str, bytes, Side)) or not isinstance(rows, Iterable):
        raise DefinitionError(
            f"{who} returned {type(rows).__name__} {str(rows)[:60]}", next="yield each record instead"
        )
    checked: Iterable[Any] = rows
    return checked


def check_tag(tag: Any, tags: Set[str] | None, who: str) -> None:
    """Raise DefinitionError unless there is such a side output."""
    if tag == MAIN or (tags is not None and tag not in tags):
        raise DefinitionError(
            f"{who} sent a record to the side output {tag!r}, which is not declared",
            next=f'declare it: side_outputs={{"{tag or "tag"}": "…"}}',
        )


class RowCollector:
    """Takes what a function gave.

    Args:
        who: the name of the function's class, for errors.
        tags: of its side outputs; None = any.
    """

    def __init__(self, out: Collector, who: str, tags: Sequence[str] | None) -> None:
        self._out = out
        self._who = who
        self._tags = None if tags is None else frozenset(tags)

    def collect(self, rows: Any, key: Any, time: int | None) -> None:
        """Add rows of one key and time. Raises DefinitionError if they are no rows, or a side output was not declared."""
        if type(rows) is not GeneratorType and type(rows) is not list:
            check_rows(rows, self._who)
        emit = self._out.emit
        for row in rows:
            if type(row) is Side:
                check_tag(row.tag, self._tags, self._who)
                emit(detached(row.record), key, time, row.tag)
            else:
                emit(detached(row), key, time)
