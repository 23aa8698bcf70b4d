"""The state objects: thin views of the current entry of a table, with or without a time to live.

With one, every value, list element and map entry is kept as [last touched in ms, value]. It is over when last touched + time to
live <= the clock; what is over is removed when it is met, and when runs are merged. `merge` folds the entries of merged windows
into one; only lists and accumulators can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from poundlock.operators.keyed.accumulators import Fold
from poundlock.operators.keyed.defensive_copy import detached
from poundlock.operators.keyed.group import Table
from poundlock.stream.functions.state import StateTtlConfig


class Cursor(Protocol):
    """Where the current entry and the clock are read; a `StateStore`."""

    entry: Any
    now: int


class _Handle:
    """What all have: a table, where the current entry is, and the time to live; None = for ever."""

    __slots__ = ("at", "hides", "renews", "table", "ttl")

    def __init__(self, at: Cursor, config: StateTtlConfig | None = None) -> None:
        self.at = at
        self.table: Table = {}
        self.ttl = None if config is None else config.ttl_ms
        self.renews = config is not None and config.update == "OnReadAndWrite"
        self.hides = config is not None and config.visibility == "NeverReturnExpired"

    def _kept(self, value: Any) -> Any:
        """Return what a table keeps of a value."""
        return value if self.ttl is None else [self.at.now, value]

    def _value(self, item: Any) -> Any:
        return item if self.ttl is None else item[1]

    def _over(self, item: Any) -> bool:
        return self.ttl is not None and item[0] + self.ttl <= self.at.now

    def _alive(self, item: Any) -> bool:
        """Return whether an item is to be returned, and note that it was read."""
        if self._over(item):
            return not self.hides
        if self.renews:
            item[0] = self.at.now
        return True

    def clear(self) -> None:
        # Unlike pop of an empty dict this looks at the entry, which may refuse to be one.
        if self.at.entry in self.table:
            del self.table[self.at.entry]


class Value(_Handle):
    """One value."""

    __slots__ = ("default",)

    def __init__(self, at: Cursor, config: StateTtlConfig | None, default: Any) -> None:
        super().__init__(at, config)
        self.default = default

    def value(self) -> Any:
        item = self.table.get(self.at.entry)
        if item is None:
            return detached(self.default)  # a list as default must not be that of every key
        if self.ttl is None:
            return item
        alive = self._alive(item)
        if self._over(item):
            self.clear()
        return item[1] if alive else detached(self.default)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self.table[self.at.entry] = self._kept(value)


class List(_Handle):
    """A list, whose elements have each their own time; an empty one is no entry."""

    __slots__ = ()

    def get(self) -> list[Any]:
        items = self.table.get(self.at.entry, ())
        if self.ttl is None:
            return list(items)
        result = [item[1] for item in items if self._alive(item)]
        left = [item for item in items if not self._over(item)]
        if len(left) < len(items):
            self._keep(left)
        return result

    def _keep(self, items: list[Any]) -> None:
        if items:
            self.table[self.at.entry] = items
        else:
            self.clear()

    def add(self, value: Any) -> None:
        held = self.table.get(self.at.entry)
        if held is None:
            self.table[self.at.entry] = [self._kept(value)]
        else:
            held.append(self._kept(value))

    def add_all(self, values: Iterable[Any]) -> None:
        self._keep([*self.table.get(self.at.entry, ()), *map(self._kept, values)])

    def update(self, values: Iterable[Any]) -> None:
        self._keep(list(map(self._kept, values)))

    def merge(self, entries: Iterable[Any]) -> None:
        """Append what other entries hold, with its time, and remove those."""
        items = [item for entry in entries for item in self.table.pop(entry, ())]
        self._keep([*self.table.get(self.at.entry, ()), *items])


class Map(_Handle):
    """A map, whose entries have each their own time; an empty one is no entry."""

    __slots__ = ()

    def _held(self) -> dict[Any, Any]:
        held: dict[Any, Any] = self.table.get(self.at.entry) or {}
        return held

    def _living(self) -> dict[Any, Any]:
        held = self._held()
        if self.ttl is None:
            return dict(held)
        result = {key: item[1] for key, item in held.items() if self._alive(item)}
        for key in [key for key, item in held.items() if self._over(item)]:
            self.remove(key)
        return result

    def _item(self, key: Any) -> Any:
        """Return what is kept at a key and is to be seen; None if there is nothing."""
        held = self._held()
        item = held.get(key)
        if self.ttl is None or item is None:
            return item
        alive = self._alive(item)
        if self._over(item):
            self.remove(key)
        return item if alive else None

    def get(self, key: Any) -> Any:
        item = self._item(key)
        return None if item is None else self._value(item)

    def put(self, key: Any, value: Any) -> None:
        held = self.table.get(self.at.entry)
        if held is None:
            self.table[self.at.entry] = {key: self._kept(value)}
        else:
            held[key] = self._kept(value)

    def put_all(self, values: Mapping[Any, Any]) -> None:
        for key, value in values.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        held = self._held()
        held.pop(key, None)
        if not held:
            self.clear()

    def contains(self, key: Any) -> bool:
        return key in self._held() and (self.ttl is None or self._item(key) is not None)

    def keys(self) -> Iterator[Any]:
        return iter(self._living())

    def values(self) -> Iterator[Any]:
        return iter(self._living().values())

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._living().items())

    def is_empty(self) -> bool:
        return not self._living()


class Accumulator(_Handle):
    """One accumulator, for reducing and aggregating state; a sum that is over begins again."""

    __slots__ = ("fold",)

    def __init__(self, at: Cursor, config: StateTtlConfig | None, fold: Fold) -> None:
        super().__init__(at, config)
        self.fold = fold

    def get(self) -> Any:
        if self.at.entry not in self.table:
            return None
        item = self.table[self.at.entry]
        alive = self._alive(item)
        if self._over(item):
            self.clear()
        return self.fold.result(self._value(item)) if alive else None

    def add(self, value: Any) -> None:
        table, entry = self.table, self.at.entry
        begun = entry in table and not self._over(table[entry])
        held = self.fold.add(value, self._value(table[entry])) if begun else self.fold.first(value)
        table[entry] = self._kept(held)

    def merge(self, entries: Iterable[Any]) -> None:
        """Merge what other entries hold, as long as it lives, into this one, and remove those."""
        table, own = self.table, self.at.entry
        for entry in entries:
            if entry not in table or self._over(item := table.pop(entry)):
                continue
            if own not in table or self._over(table[own]):
                table[own] = item
            elif self.ttl is None:
                table[own] = self.fold.merge(table[own], item)
            else:
                table[own] = [max(table[own][0], item[0]), self.fold.merge(table[own][1], item[1])]
