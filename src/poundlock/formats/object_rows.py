"""Rows as the objects that a decoder or a user's function made: dicts of them are made only when somebody asks for one.

What is made then is what would have been there at first, and it stays: who changes a row changes it for those behind, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from operator import attrgetter
from typing import Any, overload


class ObjectRows(Sequence[dict[str, Any]]):
    """Rows, as a sequence of dicts.

    Args:
        objects: one for each row.
        attributes: the name of an object's attribute by column.
        dicts: makes the dicts of all rows.
        alike: whether an object is written as JSON just as its dict is.
    """

    def __init__(
        self,
        objects: Sequence[Any],
        attributes: Mapping[str, str],
        dicts: Callable[[], Sequence[dict[str, Any]]],
        *,
        alike: bool = False,
    ) -> None:
        self._objects, self._attributes, self._make, self._alike = objects, attributes, dicts, alike
        self._dicts: Sequence[dict[str, Any]] | None = None

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows())

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[dict[str, Any]]: ...

    def __getitem__(self, place: int | slice) -> dict[str, Any] | Sequence[dict[str, Any]]:
        return self._rows()[place]

    def values(self, columns: Sequence[str]) -> Iterator[tuple[Any, ...]] | None:
        """Return the values of some columns, a tuple a row; None once there are dicts, which may have been changed."""
        if self._dicts is not None:
            return None
        attributes = [self._attributes[name] for name in columns]
        if len(attributes) > 1:
            return map(attrgetter(*attributes), self._objects)
        return zip(*(map(attrgetter(name), self._objects) for name in attributes), strict=True)

    def column(self, name: str) -> Iterator[Any] | None:
        """Return the values of one column; None once there are dicts, which may have been changed."""
        return None if self._dicts is not None else map(attrgetter(self._attributes[name]), self._objects)

    def to_write(self, hidden: Set[str]) -> list[Any] | None:
        """Return objects that are written as JSON just as their dicts are; None where dicts are needed, as to hide columns."""
        if self._dicts is not None or not self._alike or not hidden.isdisjoint(self._attributes):
            return None
        return list(self._objects)

    def _rows(self) -> Sequence[dict[str, Any]]:
        if self._dicts is None:
            self._dicts = self._make()
        return self._dicts
