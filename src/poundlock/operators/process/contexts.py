"""What a process function is given: contexts, timers, broadcast state. One object each, moved from record to record.

What a function may not do where it is called, such as using keyed state for a broadcast record, is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from poundlock.errors import DefinitionError
from poundlock.metrics.user import MetricGroup, current_group
from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.keyed.state import StateStore
from poundlock.stream.functions.process import TimeDomain
from poundlock.stream.functions.state import MapStateDescriptor, StateDescriptor


class _NoKey:
    """Stands where the current key does; state looks its entry up by hash, so this needs no test on the way of every record."""

    def __hash__(self) -> int:
        raise DefinitionError(
            "state or timers of a key were used where there is no key",
            next="use them in process_element or on_timer; ctx.apply_to_keyed_state(descriptor, function) reaches all keys",
        )


NO_KEY = _NoKey()


class NoState:
    """The runtime context of a function without keys."""

    def _refuse(self, descriptor: StateDescriptor) -> NoReturn:
        raise DefinitionError(
            f"state {descriptor.name!r} was asked for on a stream without key",
            next="call key_by(…) before process(…), and derive from a Keyed…Function",
        )

    def get_metric_group(self) -> MetricGroup:
        """Return the metrics of the operator that is opened."""
        return current_group()

    get_state = get_list_state = get_map_state = get_reducing_state = get_aggregating_state = _refuse


class PlainTimers:
    """Watermark and clock without timers."""

    def __init__(self) -> None:
        self.group = KeyGroup(0)

    def use(self, group: KeyGroup) -> None:
        self.group = group

    def current_watermark(self) -> int:
        return self.group.watermark

    def current_processing_time(self) -> int:
        return self.group.processing_time

    def _refuse(self, time: int) -> None:
        raise DefinitionError(
            "a timer was set on a stream without key",
            next="call key_by(…) before process(…), and derive from a Keyed…Function",
        )

    register_event_time_timer = register_processing_time_timer = _refuse
    delete_event_time_timer = delete_processing_time_timer = _refuse


class KeyedTimers(PlainTimers):
    """Timers of the current key of a store."""

    def __init__(self, store: StateStore) -> None:
        super().__init__()
        self._store = store
        self.use(self.group)

    def use(self, group: KeyGroup) -> None:
        self.group = group
        self._event, self._processing = group.event_timers, group.processing_timers

    def register_event_time_timer(self, time: int) -> None:
        self._event.register(time if type(time) is int and MIN <= time <= MAX else _checked(time), self._entry())

    def register_processing_time_timer(self, time: int) -> None:
        self._processing.register(time if type(time) is int and MIN <= time <= MAX else _checked(time), self._entry())

    def delete_event_time_timer(self, time: int) -> None:
        self._event.delete(_checked(time), self._entry())

    def delete_processing_time_timer(self, time: int) -> None:
        self._processing.delete(_checked(time), self._entry())

    def _entry(self) -> Any:
        entry = self._store.entry
        if entry is NO_KEY:
            hash(entry)  # says what is wrong
        return entry


def _checked(time: Any) -> int:
    """Return a time as a plain int. Raises DefinitionError if it is no whole number of 64 bits."""
    try:
        whole: int = time.__index__()
    except AttributeError:
        whole = MAX + 1
    if not MIN <= whole <= MAX:
        raise DefinitionError(f"a timer for {time!r}", next="give a whole number of milliseconds since 1970")
    return int(whole)


class PlainElement:
    """Context of a record without key."""

    def __init__(self, timers: PlainTimers, states: BroadcastStates | None = None) -> None:
        self.time: int | None = None
        self._timers = timers
        self._states = states

    def timestamp(self) -> int | None:
        return self.time

    def timer_service(self) -> PlainTimers:
        return self._timers

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> Any:
        if self._states is None:
            raise DefinitionError(
                "broadcast state was asked for, and nothing is broadcast to this function",
                next="write stream.connect(rules.broadcast(descriptor)).process(…)",
            )
        return self._states.reading(descriptor)


class KeyedElement(PlainElement):
    """Context of a record with a key."""

    def __init__(self, store: StateStore, timers: PlainTimers, states: BroadcastStates | None = None) -> None:
        super().__init__(timers, states)
        self._store = store

    def get_current_key(self) -> Any:
        return self._store.entry


class FiredTimer(KeyedElement):
    """Context of a timer that fires."""

    domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        return self.domain


class Writing(PlainElement):
    """Context of a broadcast record. `store` is that of the keyed side, None where that has no keys."""

    def __init__(self, timers: PlainTimers, states: BroadcastStates, store: StateStore | None) -> None:
        super().__init__(timers)
        self._written = states
        self._store = store

    def current_watermark(self) -> int:
        return self._timers.current_watermark()

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> Any:
        return self._written.writing(descriptor)

    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        store = self._store
        if store is None:
            raise DefinitionError(
                "apply_to_keyed_state on a stream without key",
                next="call key_by(…) on the other stream, and derive from KeyedBroadcastProcessFunction",
            )
        state = store.get(descriptor)
        try:
            keys = list(state.table)
            store.group.prefetch(keys)
            for key in keys:
                store.entry = key
                function(key, state)
        finally:
            store.entry = NO_KEY

    def timer_service(self) -> NoReturn:
        raise DefinitionError(
            "timers were asked for by a broadcast record, which has no key",
            next="set them in process_element or on_timer; ctx.current_watermark() is there for both",
        )

    def get_current_key(self) -> NoReturn:
        raise DefinitionError(
            "the key of a broadcast record was asked for, and it has none",
            next="use ctx.apply_to_keyed_state(descriptor, function) to reach the keys of this task",
        )


class _Reading:
    """Broadcast state that refuses to be written."""

    def __init__(self, name: str, state: Any) -> None:
        self._name = name
        self.get, self.contains, self.is_empty = state.get, state.contains, state.is_empty
        self.keys, self.values, self.items = state.keys, state.values, state.items

    def _refuse(self, *given: Any) -> NoReturn:
        raise DefinitionError(
            f"broadcast state {self._name!r} can only be read in process_element and on_timer",
            next="write it in process_broadcast_element, which every task runs once for every broadcast record",
        )

    put = put_all = remove = clear = _refuse


class BroadcastStates:
    """The broadcast state of the group in use, for both sides; `descriptors` are those given to `broadcast`."""

    def __init__(self, descriptors: Sequence[MapStateDescriptor]) -> None:
        self._store = StateStore("broadcast:", broadcast=True)
        self._states: Mapping[str, Any] = {d.name: self._store.get_map_state(d) for d in descriptors}
        self._readers = {name: _Reading(name, state) for name, state in self._states.items()}

    def use(self, group: KeyGroup) -> None:
        self._store.use(group)

    def writing(self, descriptor: MapStateDescriptor) -> Any:
        return _declared(self._states, descriptor)

    def reading(self, descriptor: MapStateDescriptor) -> Any:
        return _declared(self._readers, descriptor)


def _declared(states: Mapping[str, Any], descriptor: MapStateDescriptor) -> Any:
    name = descriptor.name if isinstance(descriptor, MapStateDescriptor) else repr(descriptor)
    state = states.get(name)
    if state is None:
        raise DefinitionError(
            f"broadcast state {name!r} is not there",
            next=f"give its descriptor to broadcast(…), which has: {', '.join(states) or 'none'}",
        )
    return state
