"""Keyed state as a user names it: descriptors, time to live, and what the state objects can do.

A descriptor is a plain value; the state it names belongs to one key at a time, and to the operator whose function asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol, get_args

from poundlock.arguments import check_object
from poundlock.calls import check_function, check_methods
from poundlock.errors import DefinitionError
from poundlock.stream.functions.base import AggregateFunction
from poundlock.values import duration

Update = Literal["OnCreateAndWrite", "OnReadAndWrite"]
Visibility = Literal["NeverReturnExpired", "ReturnExpiredIfNotCleanedUp"]


@dataclass(frozen=True, kw_only=True)
class StateTtlConfig:
    """How long state lives, by processing time. Of a list each element has its own time, of a map each entry.

    Args:
        ttl: such as "1 h"; more than zero.
        update: what starts the time again: a write, or also a read.
        visibility: whether a value whose time is over is still returned as long as it has not been removed.
    """

    ttl: str | timedelta
    update: Update = "OnCreateAndWrite"
    visibility: Visibility = "NeverReturnExpired"

    def __post_init__(self) -> None:
        span = duration(self.ttl)
        if span < timedelta(milliseconds=1):
            raise DefinitionError(f"a time to live of {self.ttl!r}", next='give one of at least 1 ms, such as "1 h"')
        object.__setattr__(self, "ttl", span)
        for name, given, known in (("update", self.update, Update), ("visibility", self.visibility, Visibility)):
            if given not in get_args(known):
                raise DefinitionError(f"{name}={given!r} is not known", next=f"use {' or '.join(get_args(known))}")

    @property
    def ttl_ms(self) -> int:
        """The time to live in milliseconds."""
        return duration(self.ttl) // timedelta(milliseconds=1)


@dataclass(frozen=True)
class StateDescriptor:
    """Base of all: `name` is unique among the states of one function; `ttl` is None for state that lives until it is cleared."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise DefinitionError(f"{self.name!r} is no name of a state", next='give a name, such as "count"')
        if self.ttl is not None and not isinstance(self.ttl, StateTtlConfig):
            raise DefinitionError(f"{self.name}: ttl={self.ttl!r}", next='write ttl=StateTtlConfig(ttl="1 h")')

    @property
    def ttl(self) -> StateTtlConfig | None:
        """How long it lives, None = until it is cleared; a field of each kind of state."""
        return None


@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor):
    """One value for each key; `default` is what `value()` gives before the first `update`."""

    default: Any = None
    ttl: StateTtlConfig | None = None


@dataclass(frozen=True)
class ListStateDescriptor(StateDescriptor):
    """A list for each key."""

    ttl: StateTtlConfig | None = None


@dataclass(frozen=True)
class MapStateDescriptor(StateDescriptor):
    """A map for each key."""

    ttl: StateTtlConfig | None = None


@dataclass(frozen=True)
class ReducingStateDescriptor(StateDescriptor):
    """One value for each key, made of all values added by `reduce(a, b)`."""

    reduce: Callable[[Any, Any], Any]
    ttl: StateTtlConfig | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_function(self.reduce, f"reducing state {self.name!r}", "a", "b")


@dataclass(frozen=True)
class AggregatingStateDescriptor(StateDescriptor):
    """One accumulator for each key, fed and read through an `AggregateFunction`."""

    aggregate: AggregateFunction
    ttl: StateTtlConfig | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_object(
            self.aggregate, "AggregateFunction", (AggregateFunction,), "derive a class from it and give an object of it"
        )
        check_methods(self.aggregate, AggregateFunction, f"aggregating state {self.name!r}")


class State(Protocol):
    """State of the current key."""

    def clear(self) -> None:
        """Forget all of it."""


class ValueState(State, Protocol):
    """One value of the current key."""

    def value(self) -> Any:
        """Return the value, or the default. A changed value counts only once `update` was called with it."""

    def update(self, value: Any) -> None:
        """Set the value; None clears it."""


class ListState(State, Protocol):
    """A list of the current key."""

    def get(self) -> list[Any]:
        """Return the elements in the order they were added."""

    def add(self, value: Any) -> None:
        """Append an element."""

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements."""

    def update(self, values: Iterable[Any]) -> None:
        """Replace the whole list."""


class ReadOnlyBroadcastState(Protocol):
    """A map that can only be read: broadcast state as the other side sees it."""

    def get(self, key: Any) -> Any:
        """Return what is under a key of the map, or None."""

    def contains(self, key: Any) -> bool:
        """Return whether a key of the map is there."""

    def keys(self) -> Iterator[Any]:
        """Return the keys of the map."""

    def values(self) -> Iterator[Any]:
        """Return the values of the map."""

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return keys and values of the map."""

    def is_empty(self) -> bool:
        """Return whether nothing is there."""


class MapState(ReadOnlyBroadcastState, State, Protocol):
    """A map of the current key; it may be changed while one goes through its items."""

    def put(self, key: Any, value: Any) -> None:
        """Set what is under a key of the map."""

    def put_all(self, values: Mapping[Any, Any]) -> None:
        """Set several."""

    def remove(self, key: Any) -> None:
        """Forget a key of the map; nothing happens if it is not there."""


class AppendingState(State, Protocol):
    """What all values that were added to the current key come to."""

    def get(self) -> Any:
        """Return it; None before the first `add`."""

    def add(self, value: Any) -> None:
        """Add a value to it."""


class ReducingState(AppendingState, Protocol):
    """One value of the current key, made of all that were added: each is reduced with the present one to the new one."""


class AggregatingState(AppendingState, Protocol):
    """One accumulator of the current key; what is got is the function's result."""
