"""State as a function holds it: objects that read and write the entry of the current key in a key group's tables.

A store is moved to a group and to a key; its state objects follow, so that an access is a look-up or two and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.accumulators import AggregateFold, ReduceFold
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.state_handles import Accumulator, List, Map, Value
from poundlock.stream.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)

_KINDS: Mapping[type[StateDescriptor], str] = {
    ValueStateDescriptor: "value",
    ListStateDescriptor: "list",
    MapStateDescriptor: "map",
    ReducingStateDescriptor: "reducing",
    AggregatingStateDescriptor: "aggregating",
}


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

    def use(self, group: KeyGroup) -> None:
        """Move to another group. The clock of the group is read here; call it again when the clock has moved."""
        self.now = group.processing_time
        if group is not self.group:
            self.group = group
            for descriptor, state in self._states.values():
                self._bind(descriptor, state)

    def _bind(self, descriptor: StateDescriptor, state: Any) -> None:
        name = self._prefix + descriptor.name
        ttl = descriptor.ttl
        self.group.declare(
            name,
            _KINDS[type(descriptor)],
            None if ttl is None else ttl.ttl_ms,
            windowed=self._windowed,
            broadcast=self._broadcast,
        )
        state.table = self.group.table(name)

    def _state(self, descriptor: StateDescriptor, make: Callable[[], Any]) -> Any:
        known = self._states.get(descriptor.name)
        if known is None:
            known = self._states[descriptor.name] = descriptor, make()
            self._bind(*known)
        elif type(known[0]) is not type(descriptor):
            raise DefinitionError(
                f"state {descriptor.name!r} is asked for as {_KINDS[type(known[0])]} and as {_KINDS[type(descriptor)]} state",
                next="give each state of a function a name of its own",
            )
        return known[1]

    def get(self, descriptor: StateDescriptor) -> Any:
        """Return the state of any descriptor."""
        known = self._states.get(descriptor.name) if isinstance(descriptor, StateDescriptor) else None
        if known is not None and known[0] is descriptor:
            return known[1]
        if isinstance(descriptor, ValueStateDescriptor):
            return self.get_state(descriptor)
        if isinstance(descriptor, ListStateDescriptor):
            return self.get_list_state(descriptor)
        if isinstance(descriptor, MapStateDescriptor):
            return self.get_map_state(descriptor)
        if isinstance(descriptor, ReducingStateDescriptor):
            return self.get_reducing_state(descriptor)
        if isinstance(descriptor, AggregatingStateDescriptor):
            return self.get_aggregating_state(descriptor)
        raise DefinitionError(
            f"{descriptor!r} is no state descriptor", next='use one such as ValueStateDescriptor("count")'
        )

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """Return the state of one value."""
        state: ValueState = self._state(descriptor, lambda: Value(self, descriptor.ttl, descriptor.default))
        return state

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """Return the state of a list."""
        state: ListState = self._state(descriptor, lambda: List(self, descriptor.ttl))
        return state

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        """Return the state of a map."""
        state: MapState = self._state(descriptor, lambda: Map(self, descriptor.ttl))
        return state

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        """Return the state of a reduced value."""
        fold = ReduceFold(descriptor.reduce)
        state: ReducingState = self._state(descriptor, lambda: Accumulator(self, descriptor.ttl, fold))
        return state

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """Return the state of an accumulator."""
        fold = AggregateFold(descriptor.aggregate)
        state: AggregatingState = self._state(descriptor, lambda: Accumulator(self, descriptor.ttl, fold))
        return state
