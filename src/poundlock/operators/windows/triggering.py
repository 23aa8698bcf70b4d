"""What a trigger or an evictor is given: the watermark, the clock, timers and state of one key and window.

There is one context for an operator; it is moved from window to window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.keyed.state import StateStore
from poundlock.stream.functions.state import StateDescriptor


@runtime_checkable
class _Mergeable(Protocol):
    def merge(self, entries: Sequence[Any]) -> None: ...


class OperatorTriggerContext:
    """A TriggerContext, an OnMergeContext and an EvictorContext."""

    def __init__(self) -> None:
        self._group = KeyGroup(0)
        self._store = StateStore("trigger:", windowed=True)
        self._merged: Sequence[Any] = ()

    def use(self, group: KeyGroup) -> None:
        self._group = group
        self._store.use(group)

    def move(self, entry: Any, merged: Sequence[Any] = ()) -> None:
        """Belong to (key, window) from now on.

        Args:
            entry: key and window.
            merged: while windows merge, the entries whose state goes into it.
        """
        self._store.entry = entry
        self._merged = merged

    def get_current_watermark(self) -> int:
        return self._group.watermark

    def get_current_processing_time(self) -> int:
        return self._group.processing_time

    def register_event_time_timer(self, time: int) -> None:
        self._group.event_timers.register(time, self._store.entry)

    def register_processing_time_timer(self, time: int) -> None:
        self._group.processing_timers.register(time, self._store.entry)

    def delete_event_time_timer(self, time: int) -> None:
        self._group.event_timers.delete(time, self._store.entry)

    def delete_processing_time_timer(self, time: int) -> None:
        self._group.processing_timers.delete(time, self._store.entry)

    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        return self._store.get(descriptor)

    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        state = self._store.get(descriptor)
        if not isinstance(state, _Mergeable):
            raise DefinitionError(
                f"state {descriptor.name!r} of a trigger cannot be merged",
                next="use list, reducing or aggregating state",
            )
        state.merge(self._merged)
