"""How elements become an accumulator: one by one, or a whole batch into the table of a window or a state.

A fold never looks at time or keys; the accumulators it makes are values that state can keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from poundlock.stream.functions.base import AggregateFunction


class Fold(Protocol):
    """How an accumulator begins, grows, is read, and merges with another."""

    def first(self, value: Any) -> Any:
        """Return an accumulator of one element."""

    def add(self, value: Any, held: Any) -> Any:
        """Return the accumulator with one more element."""

    def add_batch(self, table: dict[Any, Any], entries: Iterable[Any], values: Iterable[Any]) -> None:
        """Add each value to its entry of a table."""

    def result(self, held: Any) -> Any:
        """Return what a window function is given, or what comes out."""

    def merge(self, a: Any, b: Any) -> Any:
        """Return one accumulator of two; `a` holds the earlier elements."""

    def of(self, values: Sequence[Any]) -> Any:
        """Return the result of elements that were kept."""


class ReduceFold:
    """By a function of two elements to one. Of no elements there is no result: None."""

    def __init__(self, reduce: Callable[[Any, Any], Any]) -> None:
        self.merge = reduce

    def first(self, value: Any) -> Any:
        return value

    def add(self, value: Any, held: Any) -> Any:
        return self.merge(held, value)

    def add_batch(self, table: dict[Any, Any], entries: Iterable[Any], values: Iterable[Any]) -> None:
        reduce = self.merge
        for entry, value in zip(entries, values, strict=True):
            table[entry] = reduce(table[entry], value) if entry in table else value

    def result(self, held: Any) -> Any:
        return held

    def of(self, values: Sequence[Any]) -> Any:
        if not values:
            return None
        held = values[0]
        for value in values[1:]:
            held = self.merge(held, value)
        return held


class AggregateFold:
    """By a user's AggregateFunction."""

    def __init__(self, function: AggregateFunction) -> None:
        self._create = function.create_accumulator
        self.add = function.add
        self.result = function.get_result
        self.merge = function.merge

    def first(self, value: Any) -> Any:
        return self.add(value, self._create())

    def add_batch(self, table: dict[Any, Any], entries: Iterable[Any], values: Iterable[Any]) -> None:
        add, create = self.add, self._create
        for entry, value in zip(entries, values, strict=True):
            table[entry] = add(value, table[entry] if entry in table else create())

    def of(self, values: Sequence[Any]) -> Any:
        held = self._create()
        for value in values:
            held = self.add(value, held)
        return self.result(held)


class ListFold:
    """By keeping every element."""

    def first(self, value: Any) -> Any:
        return [value]

    def add(self, value: Any, held: Any) -> Any:
        held.append(value)
        return held

    def add_batch(self, table: dict[Any, Any], entries: Iterable[Any], values: Iterable[Any]) -> None:
        for entry, value in zip(entries, values, strict=True):
            if entry in table:
                table[entry].append(value)
            else:
                table[entry] = [value]

    def result(self, held: Any) -> Any:
        return list(held)  # what a function keeps of it must not grow with the window

    def merge(self, a: Any, b: Any) -> Any:
        a.extend(b)
        return a

    def of(self, values: Sequence[Any]) -> Any:
        return list(values)
