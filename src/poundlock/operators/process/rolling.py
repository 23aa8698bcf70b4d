"""Rolling aggregates: the records of a key so far, as one record.

Streaming mode gives the new record for every one that comes in, bounded mode the last one of each key at the end, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.group import MAX, KeyGroup
from poundlock.operators.keyed.operator import KeyedOperator
from poundlock.operators.keyed.output import CHUNK_ROWS, GroupBatch, OutputChunk, detached
from poundlock.operators.value_order import compare

ROLLING = "rolling"
_EXACT = Context(prec=80)  # Spark's decimals have 38 digits, Python's own default rounds at 28
_Record = dict[str, Any]
_Fold = Callable[[Any, Any], Any]


def _sum(column: str) -> _Fold:
    def fold(held: _Record, value: _Record) -> _Record:
        before, added = held[column], value[column]
        if added is None:
            return held
        if type(before) is Decimal:
            added = _EXACT.add(before, added)
        elif before is not None:
            added = before + added
        return {**held, column: added}

    return fold


def _beats(greatest: bool) -> Callable[[Any, Any], bool]:
    """Return whether a value takes the place of the one held."""
    sign = 1 if greatest else -1
    return lambda value, held: sign * compare(value, held) > 0


def _extreme(column: str, *, greatest: bool) -> _Fold:
    beats = _beats(greatest)

    def fold(held: _Record, value: _Record) -> _Record:
        before, new = held[column], value[column]
        if new is None or (before is not None and not beats(new, before)):
            return held
        return {**held, column: new}

    return fold


def _extreme_by(column: str, *, greatest: bool, first: bool) -> _Fold:
    beats = _beats(greatest)

    def fold(held: _Record, value: _Record) -> _Record:
        before, new = held[column], value[column]
        if new is None:
            return held if before is not None or first else value
        if before is None or beats(new, before):
            return value
        return value if not first and not beats(before, new) else held

    return fold


def rolling_fold(kind: str, column: str | None, *, first: bool = True) -> _Fold:
    """Return how two records become one.

    Args:
        kind: "sum", "min", "max" change one column of the first record; "min_by", "max_by" give the whole record that has the
            least or greatest.
        column: which. Nulls are passed over.
        first: of records that are equal in the column, whether the first stays, or the last is taken.
    """
    if not isinstance(column, str) or kind not in ("sum", "min", "max", "min_by", "max_by"):
        raise DefinitionError(f"{kind!r} of {column!r} is no rolling aggregate", next='write .sum("n")')
    if kind == "sum":
        return _sum(column)
    greatest = kind.startswith("max")
    if kind in ("min", "max"):
        return _extreme(column, greatest=greatest)
    return _extreme_by(column, greatest=greatest, first=first)


class RollingOperator(KeyedOperator):
    """One record for each key.

    Args:
        fold: of the record held and a new one to the next; it changes neither.
        bounded: whether only the last of each key is wanted, at the end of the input.
    """

    def __init__(self, fold: _Fold, *, bounded: bool = False, chunk_rows: int = CHUNK_ROWS) -> None:
        super().__init__(chunk_rows=chunk_rows)
        self._fold = fold
        self._bounded = bounded
        self._table: dict[Any, Any] = {}

    def bind(self, group: KeyGroup) -> None:
        group.declare(ROLLING, "rolling")
        self._table = group.table(ROLLING)

    def work(self, batch: GroupBatch) -> Iterator[OutputChunk]:
        if self._bounded:
            if len(batch) and not self.group.event_timers:
                self.group.wake_at_end(batch.keys[0])
            for key, value in zip(batch.keys, batch.values, strict=True):
                self._add(key, value)
            return
        out, add = self.out, self._add
        times = batch.timestamps or [None] * len(batch)
        for key, value, time in zip(batch.keys, batch.values, times, strict=True):
            # What a user's reduce returned may be changed by its next call.
            out.emit(detached(add(key, value)), key, time)
            if out.full:
                yield from out.drain()

    def _add(self, key: Any, value: Any) -> Any:
        table = self._table
        held = table[key] = self._fold(table[key], value) if key in table else value
        return held

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[OutputChunk]:
        ends = self._bounded and watermark == MAX and group.watermark < MAX
        yield from super().advance_watermark(group, watermark)
        if not ends:
            return
        self.use(group)
        out = self.out
        for key, held in list(self._table.items()):
            del self._table[key]
            out.emit(held, key, MAX)
            if out.full:
                yield from out.drain()
        yield from out.drain()

    def on_timer(self, time: int, entry: Any, *, event: bool) -> None:
        """Do nothing: what the end of the input brings out is of all keys."""
