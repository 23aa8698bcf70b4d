"""State as a function holds it: objects that read and write the entry of the current key in a key group's tables.

A store is moved to a group and to a key; its state objects follow, so that an access is a look-up or two and nothing else.
With a time to live every value, list element and map entry is kept as [last touched in ms, value]. It is over when last touched
+ time to live <= the clock; what is over is removed when it is met, and when runs are merged. `merge` folds the entries of merged
windows into one; only lists and accumulators can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.metrics.user import MetricGroup, current_group
from poundlock.operators.keyed.accumulators import AggregateFold, Fold, ReduceFold
from poundlock.operators.keyed.codec import canonical_key
from poundlock.operators.keyed.group import KeyGroup, Table
from poundlock.operators.keyed.output import detached
from poundlock.stream.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)


class _Handle:
    """What all have: a table, the store that knows the current entry and the clock, and the time to live; None = for ever."""

    __slots__ = ("at", "hides", "renews", "table", "ttl")

    def __init__(self, at: StateStore, config: StateTtlConfig | None = None) -> None:
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

    def __init__(self, at: StateStore, config: StateTtlConfig | None, default: Any) -> None:
        super().__init__(at, config)
        self.default = default

    def value(self) -> Any:
        item = self.table.get(self.at.entry)
        if item is None:
            # A list as default must not be that of every key.
            return None if self.default is None else detached(self.default)
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
            self.table[self.at.entry] = value if self.ttl is None else [self.at.now, value]


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


def _place(key: Any, held: Iterable[Any]) -> Any:
    """Return a key as a map has it: NaN is one key, as in Flink, although it equals nothing once it was read back."""
    if type(key) is float and key != key:
        return next((each for each in held if type(each) is float and each != each), math.nan)
    return canonical_key(key) if type(key) is tuple else key


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
        item = held.get(_place(key, held))
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
            held = self.table[self.at.entry] = {}
        held[_place(key, held)] = self._kept(value)

    def put_all(self, values: Mapping[Any, Any]) -> None:
        for key, value in values.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        held = self._held()
        held.pop(_place(key, held), None)
        if not held:
            self.clear()

    def contains(self, key: Any) -> bool:
        return _place(key, held := self._held()) in held and (self.ttl is None or self._item(key) is not None)

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

    def __init__(self, at: StateStore, config: StateTtlConfig | None, fold: Fold) -> None:
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


_KINDS: Mapping[type[StateDescriptor], tuple[str, Callable[[Any, Any], Any]]] = {
    ValueStateDescriptor: ("value", lambda at, d: Value(at, d.ttl, d.default)),
    ListStateDescriptor: ("list", lambda at, d: List(at, d.ttl)),
    MapStateDescriptor: ("map", lambda at, d: Map(at, d.ttl)),
    ReducingStateDescriptor: ("reducing", lambda at, d: Accumulator(at, d.ttl, ReduceFold(d.reduce))),
    AggregatingStateDescriptor: ("aggregating", lambda at, d: Accumulator(at, d.ttl, AggregateFold(d.aggregate))),
}
"""By descriptor the name of the kind of state, and what makes the state object of a store."""


def _kind(descriptor: Any) -> tuple[str, Callable[[Any, Any], Any]]:
    kind = next((_KINDS[each] for each in type(descriptor).__mro__ if each in _KINDS), None)
    if kind is None:
        raise DefinitionError(
            f"{descriptor!r} is no state descriptor", next='use one such as ValueStateDescriptor("count")'
        )
    return kind


class StateStore:
    """The states of one function, or of one trigger.

    Args:
        prefix: of the tables' names, so that a user's "count" and a trigger's are two.
        windowed: whether an entry is (key, window) rather than a key.
        broadcast: whether it is the same for all tasks.

    `entry` is set by the operator before the user's code runs: the current key, or (key, window).
    """

    def __init__(self, prefix: str = "", *, windowed: bool = False, broadcast: bool = False) -> None:
        self.entry: Any = None
        self.group: KeyGroup = KeyGroup(0)
        self.now = 0
        self._prefix = prefix
        self._windowed = windowed
        self._broadcast = broadcast
        self._states: dict[str, tuple[StateDescriptor, Any]] = {}

    def get_metric_group(self) -> MetricGroup:
        """Return the metrics of the operator that is opened."""
        return current_group()

    def use(self, group: KeyGroup) -> None:
        """Move to another group. The clock of the group is read here; call it again when the clock has moved."""
        self.now = group.processing_time
        if group is not self.group:
            self.group = group
            for descriptor, state in self._states.values():
                self._bind(descriptor, state)

    def _bind(self, descriptor: StateDescriptor, state: Any) -> None:
        name, (kind, _) = self._prefix + descriptor.name, _kind(descriptor)
        ttl_ms = None if descriptor.ttl is None else descriptor.ttl.ttl_ms
        self.group.declare(name, kind, ttl_ms, windowed=self._windowed, broadcast=self._broadcast)
        state.table = self.group.table(name)

    def get(self, descriptor: StateDescriptor) -> Any:
        """Return the state of a descriptor: a ValueState, ListState, … by its kind; the same one at each call.

        Raises:
            DefinitionError: it is no descriptor, or the function has state of another kind under the name.
        """
        known = self._states.get(descriptor.name) if isinstance(descriptor, StateDescriptor) else None
        if known is None:
            made = _kind(descriptor)[1](self, descriptor)
            known = self._states[descriptor.name] = descriptor, made
            self._bind(*known)
        elif known[0] is not descriptor and _kind(known[0]) is not _kind(descriptor):
            raise DefinitionError(
                f"state {descriptor.name!r} is asked for as {_kind(known[0])[0]} and as {_kind(descriptor)[0]} state",
                next="give each state of a function a name of its own",
            )
        return known[1]

    get_state = get_list_state = get_map_state = get_reducing_state = get_aggregating_state = get
