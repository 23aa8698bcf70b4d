"""A result while it changes: the rows that are there, each in its place, or the newest changes. Both keep so many rows and no more."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from poundlock.sql.running.shown import Change

Row = tuple[Any, ...]


class ResultTable:
    """The rows of a result after all of its changes so far.

    A row that replaces another stands in its place. Changes of several tasks may come in any order: a row may be taken away before
    it comes.

    Args:
        most: how many rows are kept; the oldest go first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: dict[int, Row] = {}  # by place, in the order of places
        self._places: dict[Row, list[int]] = {}
        self._owed: dict[Row, int] = {}  # how often a row was taken away that has not come
        self._next = 0
        self.dropped = 0
        """How many rows were there that are not kept any more."""

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, changes: Sequence[Change]) -> None:
        """Apply changes."""
        free: int | None = None  # the place of the row that the next one replaces
        for kind, row in changes:
            if kind == "+U":
                self._add(row, free)
                free = None
                continue
            self._clear(free)
            free = None
            if kind == "+I":
                self._add(row, None)
            elif kind == "-U":
                free = self._remove(row)
            else:
                self._clear(self._remove(row))
        self._clear(free)

    def rows(self, last: int | None = None) -> list[Row]:
        """Return the rows that are there, or so many of the last ones."""
        if last is None or last >= len(self._rows):
            return list(self._rows.values())
        return list(islice(reversed(self._rows.values()), last))[::-1]

    def _add(self, row: Row, place: int | None) -> None:
        if self._owed.get(row):
            self._owed[row] -= 1
            if not self._owed[row]:
                del self._owed[row]
            self._clear(place)
            return
        if place is None:
            place = self._next
            self._next += 1
        self._rows[place] = row
        self._places.setdefault(row, []).append(place)
        if len(self._rows) > self._most:
            self._drop(next(iter(self._rows)))

    def _drop(self, place: int) -> None:
        row = self._rows.pop(place)
        self._places[row].remove(place)
        self._forget(row)
        self.dropped += 1

    def _remove(self, row: Row) -> int | None:
        """Take a row away; return its place, which still has it until another takes it."""
        places = self._places.get(row)
        if places is None:
            if not self.dropped:  # else it may be one of those that are not kept
                self._owed[row] = self._owed.get(row, 0) + 1
            return None
        place = places.pop()
        self._forget(row)
        return place

    def _forget(self, row: Row) -> None:
        if not self._places[row]:
            del self._places[row]

    def _clear(self, place: int | None) -> None:
        if place is not None:
            del self._rows[place]


class ResultTail:
    """The newest changes of a result.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int) -> None:
        self._changes: deque[Change] = deque(maxlen=most)
        self.total = 0
        """How many changes there were."""

    def __len__(self) -> int:
        return len(self._changes)

    def take(self, changes: Sequence[Change]) -> None:
        """Add changes."""
        self._changes.extend(changes)
        self.total += len(changes)

    def rows(self, last: int | None = None) -> list[Change]:
        """Return the changes that are kept, or so many of the last ones."""
        return list(self._changes) if last is None else list(islice(reversed(self._changes), last))[::-1]
