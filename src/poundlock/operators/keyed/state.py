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
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)

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
