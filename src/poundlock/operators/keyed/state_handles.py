"""The state objects without a time to live: thin views of the current entry of a table.

`merge` folds the entries of merged windows into one; only lists and accumulators can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from poundlock.operators.keyed.accumulators import Fold
from poundlock.operators.keyed.defensive_copy import detached
from poundlock.operators.keyed.group import Table


class Cursor(Protocol):
    """Where the current entry and the clock are read; a `StateStore`."""

    entry: Any
    now: int


def forget(table: Table, entry: Any) -> None:
    """Take an entry out of a table. Unlike pop of an empty dict this looks at the entry, which may refuse to be one."""
    if entry in table:
        del table[entry]


class Value:
    """One value."""

    __slots__ = ("at", "default", "table")

    def __init__(self, at: Cursor, default: Any) -> None:
        self.at = at
        self.default = default
        self.table: Table = {}

    def value(self) -> Any:
        held = self.table.get(self.at.entry)
        return detached(self.default) if held is None else held  # a list as default must not be that of every key

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self.table[self.at.entry] = value

    def clear(self) -> None:
        forget(self.table, self.at.entry)


class List:
    """A list; an empty one is no entry."""

    __slots__ = ("at", "table")

    def __init__(self, at: Cursor) -> None:
        self.at = at
        self.table: Table = {}

    def get(self) -> list[Any]:
        return list(self.table.get(self.at.entry, ()))

    def add(self, value: Any) -> None:
        held = self.table.get(self.at.entry)
        if held is None:
            self.table[self.at.entry] = [value]
        else:
            held.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        self.update([*self.table.get(self.at.entry, ()), *values])

    def update(self, values: Iterable[Any]) -> None:
        held = list(values)
        if held:
            self.table[self.at.entry] = held
        else:
            self.clear()

    def clear(self) -> None:
        forget(self.table, self.at.entry)

    def merge(self, entries: Iterable[Any]) -> None:
        """Append what other entries hold, and forget those."""
        found = [held for entry in entries if (held := self.table.pop(entry, None)) is not None]
        self.add_all(value for held in found for value in held)


class Map:
    """A map; an empty one is no entry."""

    __slots__ = ("at", "table")

    def __init__(self, at: Cursor) -> None:
        self.at = at
        self.table: Table = {}

    def _held(self) -> dict[Any, Any]:
        held: dict[Any, Any] = self.table.get(self.at.entry) or {}
        return held

    def get(self, key: Any) -> Any:
        return self._held().get(key)

    def put(self, key: Any, value: Any) -> None:
        held = self.table.get(self.at.entry)
        if held is None:
            self.table[self.at.entry] = {key: value}
        else:
            held[key] = value

    def put_all(self, values: Mapping[Any, Any]) -> None:
        for key, value in values.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        held = self._held()
        held.pop(key, None)
        if not held:
            self.clear()

    def contains(self, key: Any) -> bool:
        return key in self._held()

    def keys(self) -> Iterator[Any]:
        return iter(list(self._held()))

    def values(self) -> Iterator[Any]:
        return iter(list(self._held().values()))

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter(list(self._held().items()))

    def is_empty(self) -> bool:
        return not self._held()

    def clear(self) -> None:
        forget(self.table, self.at.entry)


class Accumulator:
    """One accumulator: reducing and aggregating state."""

    __slots__ = ("at", "fold", "table")

    def __init__(self, at: Cursor, fold: Fold) -> None:
        self.at = at
        self.fold = fold
        self.table: Table = {}

    def get(self) -> Any:
        entry = self.at.entry
        return self.fold.result(self.table[entry]) if entry in self.table else None

    def add(self, value: Any) -> None:
        table, entry = self.table, self.at.entry
        table[entry] = self.fold.add(value, table[entry]) if entry in table else self.fold.first(value)

    def clear(self) -> None:
        forget(self.table, self.at.entry)

    def merge(self, entries: Iterable[Any]) -> None:
        """Merge what other entries hold into this one, and forget those."""
        table, own = self.table, self.at.entry
        for entry in entries:
            if entry in table:
                held = table.pop(entry)
                table[own] = self.fold.merge(table[own], held) if own in table else held
