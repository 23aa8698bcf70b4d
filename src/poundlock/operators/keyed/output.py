"""What goes into a keyed operator and what comes out: columns side by side, a batch in, chunks out.

Rows come out in the order they were emitted within a tag; a chunk never has more rows than asked for plus what one call emitted, and
about as many bytes at most, as some of its values tell. What a user's function yields never changes after it was yielded: rows wait in a collector while the function goes on changing its
state. A tag that was not declared is refused where it is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import GeneratorType
from typing import Any, NamedTuple

from poundlock.errors import DefinitionError
from poundlock.operators.records import record_reader
from poundlock.stream.functions.records import is_named_tuple
from poundlock.stream.stream import Side

MAIN = ""
LATE = "late"
CHUNK_ROWS = 8192
CHUNK_BYTES = 32 << 20
_LOOK_EVERY = 251  # rows, at most
_LOOKED_AT = 4  # values that stand for all that came since the last look


@dataclass(slots=True)
class GroupBatch:
    """Elements of one key group, in order of arrival.

    Args:
        keys: the key of each: any hashable value.
        values: the element itself: a record (column -> value) for users' functions, or what the operator was made for.
        timestamps: event time of each in ms, None where there is none; None when no element has one.
        rows: number of each in the host's own frame; late elements are named by it. None: their place in this batch.
        side: which input of an operator with several: 0, 1.
    """

    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Sequence[int | None] | None = None
    rows: Sequence[int] | None = None
    side: int = 0

    def __len__(self) -> int:
        return len(self.keys)


class OutputChunk(NamedTuple):
    """Rows of one output, as columns of one length.

    Args:
        tag: MAIN, or the tag of a side output.
        keys: the key each row was made for.
        values: what the function returned, or the late element.
        timestamps: event time of each in ms, or None.
        windows: (start, end) in ms, a count window's number, or None; for the results of windows only.
        rows: number of each late element in the host's frame; only where the operator sends elements on as they came.
    """

    tag: str
    keys: list[Any]
    values: list[Any]
    timestamps: list[Any]
    windows: list[Any] | None = None
    rows: list[int] | None = None

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(slots=True)
class _Buffer:
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    timestamps: list[Any] = field(default_factory=list)
    windows: list[Any] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    seen: int = 0
    """How many values were there when it was last looked how large they are."""


class Collector:
    """Gathers rows until there are enough for a chunk. Operators yield `drain()` when `full` says so, and at the end.

    How large rows are is looked at when there is one, two, four and so on, and then at intervals: some of the new ones each time.
    """

    def __init__(self, chunk_rows: int = CHUNK_ROWS, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.chunk_rows, self._chunk_bytes = chunk_rows, chunk_bytes
        self.size = self._bytes = 0
        self.look_at = 1
        """With fewer rows than so many `full` is False."""
        self._buffers: defaultdict[str, _Buffer] = defaultdict(_Buffer)

    @property
    def full(self) -> bool:
        """Whether it is time to hand on what was gathered."""
        return self.size >= self.look_at and self._is_full()

    def _is_full(self) -> bool:
        if self.size >= self.chunk_rows:
            return True
        for buffer in self._buffers.values():
            new = buffer.values[buffer.seen :]
            buffer.seen += len(new)
            self._bytes += sampled_bytes(new)
        self.look_at = min(2 * self.size, self.size + _LOOK_EVERY, self.chunk_rows)
        return self._bytes >= self._chunk_bytes

    def emit(self, value: Any, key: Any, timestamp: int | None, tag: str = MAIN) -> _Buffer:
        """Add one row; return the rows that it is among."""
        buffer = self._buffers[tag]
        buffer.keys.append(key)
        buffer.values.append(value)
        buffer.timestamps.append(timestamp)
        self.size += 1
        return buffer

    def emit_window(self, value: Any, key: Any, timestamp: int, window: Any) -> None:
        """Add one result of a window to the main output."""
        self.emit(value, key, timestamp).windows.append(window)

    def emit_windows(self, values: list[Any], keys: list[Any], timestamp: int, window: Any) -> None:
        """Add the results of one window of several keys to the main output."""
        buffer = self._buffers[MAIN]
        buffer.keys.extend(keys)
        buffer.values.extend(values)
        buffer.timestamps.extend([timestamp] * len(keys))
        buffer.windows.extend([window] * len(keys))
        self.size += len(keys)

    def emit_row(self, value: Any, key: Any, timestamp: int | None, row: int, tag: str) -> None:
        """Send an element on as it came."""
        self.emit(value, key, timestamp, tag).rows.append(row)

    def drain(self) -> Iterator[OutputChunk]:
        """Yield what was gathered, a chunk for each tag, and start over."""
        buffers, self._buffers = self._buffers, defaultdict(_Buffer)
        self.size, self._bytes, self.look_at = 0, 0, 1
        for tag, b in buffers.items():
            yield OutputChunk(tag, b.keys, b.values, b.timestamps, b.windows or None, b.rows or None)


def bytes_of(value: Any) -> int:
    """Return how many bytes a value has as columns, about: the length of its texts and byte strings, and eight for anything else."""
    if isinstance(value, (str, bytes)):
        return len(value) + 8
    if isinstance(value, dict):
        return sum(map(bytes_of, value.values()))
    if isinstance(value, list):
        return sampled_bytes(value)
    if isinstance(value, tuple):
        return sum(map(bytes_of, value))
    return 8


def sampled_bytes(values: Sequence[Any]) -> int:
    """Return how many bytes some values have, about, by a few of them."""
    some = values[:: -(-len(values) // _LOOKED_AT) or 1]
    return sum(map(bytes_of, some)) * len(values) // max(len(some), 1)


_FIXED = frozenset({type(None), bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta})


def detached(value: Any) -> Any:
    """Return a value that stays as it is now, whatever is done to this one and what it holds."""
    kind = type(value)
    if kind is dict:
        # Most records are flat; the test runs at the speed of C.
        return value.copy() if _FIXED.issuperset(map(type, value.values())) else _each(value)
    if kind in _FIXED:
        return value
    if kind is list:
        return value.copy() if _FIXED.issuperset(map(type, value)) else [detached(item) for item in value]
    if kind is tuple:
        return tuple([detached(item) for item in value])
    return deepcopy(value)


def _each(value: dict[Any, Any]) -> dict[Any, Any]:
    return {key: detached(item) for key, item in value.items()}


def check_rows(rows: Any, who: str) -> Iterable[Any]:
    """Return what a function gave, if it is rows.

    Raises:
        DefinitionError: it is one record, or nothing that can be gone through.
    """
    if isinstance(rows, (dict, str, bytes)) or is_named_tuple(type(rows)) or not isinstance(rows, Iterable):
        raise DefinitionError(
            f"{who} returned {type(rows).__name__} {str(rows)[:60]}", next="yield each record instead"
        )
    checked: Iterable[Any] = rows
    return checked


def check_tag(tag: Any, tags: Set[str] | None, who: str) -> None:
    """Raise DefinitionError unless there is such a side output."""
    if tag == MAIN or (tags is not None and tag not in tags):
        raise DefinitionError(
            f"{who} sent a record to the side output {tag!r}, which is not declared",
            next=f'declare it: side_outputs={{"{tag or "tag"}": "…"}}',
        )


class RowCollector:
    """Takes what a function gave.

    Args:
        who: the name of the function's class, for errors.
        tags: of its side outputs; None = any.
    """

    def __init__(self, out: Collector, who: str, tags: Sequence[str] | None) -> None:
        self._out = out
        self._who = who
        self._tags = None if tags is None else frozenset(tags)

    def collect(self, rows: Any, key: Any, time: int | None) -> None:
        """Add rows of one key and time. Raises DefinitionError if they are no rows, or a side output was not declared."""
        if type(rows) is not GeneratorType and type(rows) is not list:
            check_rows(rows, self._who)
        emit = self._out.emit
        for row in rows:
            if type(row) is dict:
                emit(detached(row), key, time)
            elif type(row) is Side:
                check_tag(row.tag, self._tags, self._who)
                emit(detached(_record(row.record)), key, time, row.tag)
            else:
                emit(detached(_record(row)), key, time)


def _record(row: Any) -> Any:
    """Return an object of a class of records as a dict, anything else as it is."""
    read = record_reader(type(row))
    return row if read is None else read(row)
