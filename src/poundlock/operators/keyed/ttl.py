"""The state objects with a time to live: every value, list element and map entry is kept as [last touched in ms, value].

It is over when last touched + time to live <= the clock; what is over is removed when it is met, and when the group is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from poundlock.operators.keyed.accumulators import Fold
from poundlock.operators.keyed.defensive_copy import detached
from poundlock.operators.keyed.group import Table
from poundlock.operators.keyed.state_handles import Cursor, forget
from poundlock.stream.functions.state import StateTtlConfig


class _Ttl:
    __slots__ = ("at", "hides", "renews", "table", "ttl")

    def __init__(self, at: Cursor, config: StateTtlConfig) -> None:
        self.at = at
        self.table: Table = {}
        self.ttl = config.ttl_ms
        self.renews = config.update == "OnReadAndWrite"
        self.hides = config.visibility == "NeverReturnExpired"

    def _alive(self, item: list[Any]) -> bool:
        """Return whether an item is to be returned, and note that it was read."""
        now = self.at.now
        if item[0] + self.ttl <= now:
            return not self.hides
        if self.renews:
            item[0] = now
        return True

    def _over(self, item: list[Any]) -> bool:
        over: bool = item[0] + self.ttl <= self.at.now
        return over

    def clear(self) -> None:
        forget(self.table, self.at.entry)


class TtlValue(_Ttl):
    """One value."""

    __slots__ = ("default",)

    def __init__(self, at: Cursor, config: StateTtlConfig, default: Any) -> None:
        super().__init__(at, config)
        self.default = default

    def value(self) -> Any:
        item = self.table.get(self.at.entry)
        if item is None:
            return detached(self.default)
        alive = self._alive(item)
        if self._over(item):
            self.clear()
        return item[1] if alive else detached(self.default)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self.table[self.at.entry] = [self.at.now, value]


class TtlList(_Ttl):
    """A list whose elements have each their own time."""

    __slots__ = ()

    def get(self) -> list[Any]:
        items = self.table.get(self.at.entry, [])
        found = [item[1] for item in items if self._alive(item)]
        left = [item for item in items if not self._over(item)]
        if len(left) < len(items):
            self._keep(left)
        return found

    def _keep(self, items: list[list[Any]]) -> None:
        if items:
            self.table[self.at.entry] = items
        else:
            self.clear()

    def add(self, value: Any) -> None:
        self.table.setdefault(self.at.entry, []).append([self.at.now, value])

    def add_all(self, values: Iterable[Any]) -> None:
        for value in list(values):
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        self._keep([[self.at.now, value] for value in values])

    def merge(self, entries: Iterable[Any]) -> None:
        """Append what other entries hold, with its time, and forget those."""
        found = [item for entry in entries for item in self.table.pop(entry, ())]
        self._keep([*self.table.get(self.at.entry, ()), *found])


class TtlMap(_Ttl):
    """A map whose entries have each their own time."""

    __slots__ = ()

    def _living(self) -> dict[Any, Any]:
        held = self.table.get(self.at.entry, {})
        found = {key: item[1] for key, item in held.items() if self._alive(item)}
        for key in [key for key, item in held.items() if self._over(item)]:
            self._forget(held, key)
        return found

    def _forget(self, held: dict[Any, Any], key: Any) -> None:
        held.pop(key, None)
        if not held:
            self.clear()

    def get(self, key: Any) -> Any:
        held = self.table.get(self.at.entry, {})
        item = held.get(key)
        if item is None:
            return None
        alive = self._alive(item)
        if self._over(item):
            self._forget(held, key)
        return item[1] if alive else None

    def put(self, key: Any, value: Any) -> None:
        self.table.setdefault(self.at.entry, {})[key] = [self.at.now, value]

    def put_all(self, values: Mapping[Any, Any]) -> None:
        for key, value in values.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._forget(self.table.get(self.at.entry, {}), key)

    def contains(self, key: Any) -> bool:
        held = self.table.get(self.at.entry, {})
        item = held.get(key)
        if item is None:
            return False
        alive = self._alive(item)
        if self._over(item):
            self._forget(held, key)
        return alive

    def keys(self) -> Iterator[Any]:
        return iter(self._living())

    def values(self) -> Iterator[Any]:
        return iter(self._living().values())

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._living().items())

    def is_empty(self) -> bool:
        return not self._living()


class TtlAccumulator(_Ttl):
    """One accumulator; a sum that is over begins anew."""

    __slots__ = ("fold",)

    def __init__(self, at: Cursor, config: StateTtlConfig, fold: Fold) -> None:
        super().__init__(at, config)
        self.fold = fold

    def get(self) -> Any:
        item = self.table.get(self.at.entry)
        if item is None:
            return None
        alive = self._alive(item)
        if self._over(item):
            self.clear()
        return self.fold.result(item[1]) if alive else None

    def add(self, value: Any) -> None:
        item = self.table.get(self.at.entry)
        begun = item is not None and not self._over(item)
        self.table[self.at.entry] = [self.at.now, self.fold.add(value, item[1]) if begun else self.fold.first(value)]  # type: ignore[index]

    def merge(self, entries: Iterable[Any]) -> None:
        """Merge what other entries hold, as long as it lives, into this one, and forget those."""
        for entry in entries:
            item = self.table.pop(entry, None)
            own = self.table.get(self.at.entry)
            if item is None or self._over(item):
                continue
            if own is None or self._over(own):
                self.table[self.at.entry] = item
            else:
                self.table[self.at.entry] = [max(own[0], item[0]), self.fold.merge(own[1], item[1])]
