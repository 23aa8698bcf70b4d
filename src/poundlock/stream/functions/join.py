"""Functions of joins: called for each pair of records that belong together, or for all records of a key and window.

A join function sees each pair once; the order of pairs is not defined.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from poundlock.stream.functions.base import Function


class JoinContext(Protocol):
    """What the function of an interval join gets with a pair. Times are ms."""

    def left_timestamp(self) -> int:
        """Return the event time of the left record."""
        ...

    def right_timestamp(self) -> int:
        """Return the event time of the right record."""
        ...

    def timestamp(self) -> int:
        """Return the event time of what comes out: the later of the two."""
        ...


class ProcessJoinFunction(Function):
    """Called for each pair of an interval join. Derive from it."""

    def process_element(self, left: Any, right: Any, ctx: JoinContext) -> Iterable[Any] | None:
        """Yield what comes of a pair; `Side(tag, record)` for a side output."""
        raise NotImplementedError


class JoinFunction(Function):
    """Called for each pair of records of a key in one window. Derive from it."""

    def join(self, left: Any, right: Any) -> Iterable[Any] | None:
        """Yield what comes of a pair."""
        raise NotImplementedError


class CoGroupFunction(Function):
    """Called for each key and window with the records of both streams. Derive from it."""

    def co_group(self, left: Sequence[Any], right: Sequence[Any]) -> Iterable[Any] | None:
        """Yield what comes of the records of one key in one window; one of the two may be empty."""
        raise NotImplementedError
