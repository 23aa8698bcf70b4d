"""SQL aggregates as accumulators, with Spark's rules for nulls: all but count(*) pass over them; of nothing there is null.

An accumulator is a list of numbers, texts and the like, so that state keeps it as it is; a batch costs no call for a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from operator import itemgetter
from typing import Any, Literal

from poundlock.errors import DefinitionError
from poundlock.operators.value_order import NESTED, compare, distinct_key

Kind = Literal[
    "count", "sum", "min", "max", "avg", "first", "last", "collect_list", "count_distinct", "min_by", "max_by"
]
_EXACT = Context(prec=80)  # sums and quotients of Spark's 38 digits; Python's own default rounds at 28


@dataclass(frozen=True, kw_only=True)
class SqlAggregate:
    """One aggregate.

    Args:
        kind: which; "count" without a column is count(*).
        column: of an element: its name in a dict, its place in a tuple.
        ignore_nulls: of first and last, which otherwise take a null for a value.
        by: of min_by and max_by, the column whose least or greatest value tells the row; of equal ones the first row counts.
    """

    kind: Kind
    column: str | int | None = None
    ignore_nulls: bool = False
    by: str | int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DefinitionError(f"{self.kind!r} is no aggregate", next=f"use one of {', '.join(KINDS)}")
        if self.column is None and self.kind != "count":
            raise DefinitionError(f"{self.kind} of no column", next="give the column")
        if (self.by is None) is (self.kind in BY):
            raise DefinitionError(
                f"{self.kind} {'without' if self.by is None else 'with'} a column that it goes by",
                next="give by= for min_by and max_by, and for no other",
            )


class _Slots:
    """The part of an accumulator that belongs to one aggregate, from slot `at`; mostly one slot, null at first."""

    start: Sequence[Any] = (None,)

    def add(self, held: list[Any], at: int, value: Any) -> None:
        raise NotImplementedError

    def merge(self, held: list[Any], at: int, other: list[Any]) -> None:
        self.add(held, at, other[at])

    def result(self, held: list[Any], at: int) -> Any:
        return held[at]


class _Count(_Slots):
    start: Sequence[Any] = (0,)

    def add(self, held: list[Any], at: int, value: Any) -> None:
        if value is not None:
            held[at] += 1

    def merge(self, held: list[Any], at: int, other: list[Any]) -> None:
        held[at] += other[at]


class _Sum(_Slots):
    def add(self, held: list[Any], at: int, value: Any) -> None:
        if value is not None:
            held[at] = value if held[at] is None else _plus(held[at], value)


def _plus(a: Any, b: Any) -> Any:
    return _EXACT.add(a, b) if type(a) is Decimal else a + b


class _Avg(_Sum):
    """The sum, and how many values there were."""

    start: Sequence[Any] = (None, 0)

    def add(self, held: list[Any], at: int, value: Any) -> None:
        super().add(held, at, value)
        held[at + 1] += value is not None

    def merge(self, held: list[Any], at: int, other: list[Any]) -> None:
        super().add(held, at, other[at])
        held[at + 1] += other[at + 1]

    def result(self, held: list[Any], at: int) -> Any:
        total, count = held[at], held[at + 1]
        if total is None:
            return None
        return _EXACT.divide(total, Decimal(count)) if type(total) is Decimal else total / count


class _Least(_Slots):
    """The least, or the greatest, in the order of `value_order`. What is common is written out."""

    def __init__(self, greatest: bool) -> None:
        self._greatest = greatest

    def add(self, held: list[Any], at: int, value: Any) -> None:
        if value is None:
            return
        known = held[at]
        if known is None:
            held[at] = value
        elif type(value) in NESTED:
            sign = compare(value, known)
            if sign > 0 if self._greatest else sign < 0:
                held[at] = value
        elif self._greatest:
            if value > known or value != value:
                held[at] = value
        elif value < known or known != known:
            held[at] = value


class _End(_Slots):
    """The first, or the last: [value, whether there is one]."""

    start: Sequence[Any] = (None, False)

    def __init__(self, last: bool, ignore_nulls: bool) -> None:
        self._last, self._ignore_nulls = last, ignore_nulls

    def add(self, held: list[Any], at: int, value: Any) -> None:
        if (self._last or not held[at + 1]) and not (value is None and self._ignore_nulls):
            held[at], held[at + 1] = value, True

    def merge(self, held: list[Any], at: int, other: list[Any]) -> None:
        if other[at + 1]:
            self.add(held, at, other[at])


class _By(_Slots):
    """The value of the row whose other value is the least, or the greatest: [value, other value]."""

    start: Sequence[Any] = (None, None)

    def __init__(self, greatest: bool) -> None:
        self._greatest = greatest

    def add(self, held: list[Any], at: int, value: Any) -> None:
        by, known = value[1], held[at + 1]
        if by is None or (known is not None and not self._goes_before(by, known)):
            return
        held[at], held[at + 1] = value

    def _goes_before(self, by: Any, known: Any) -> bool:
        sign = compare(by, known)
        return sign > 0 if self._greatest else sign < 0

    def merge(self, held: list[Any], at: int, other: list[Any]) -> None:
        self.add(held, at, (other[at], other[at + 1]))


class _Collect(_Slots):
    """A list of its own for each accumulator, made with its first value."""

    def add(self, held: list[Any], at: int, value: Any) -> None:
        if value is None:
            return
        if held[at] is None:
            held[at] = [value]
        else:
            held[at].append(value)

    def merge(self, held: list[Any], at: int, other: list[Any]) -> None:
        if other[at]:
            held[at] = [*(held[at] or ()), *other[at]]

    def result(self, held: list[Any], at: int) -> Any:
        return list(held[at] or ())


class _Distinct(_Slots):
    def add(self, held: list[Any], at: int, value: Any) -> None:
        if value is None:
            return
        if held[at] is None:
            held[at] = {}
        held[at][distinct_key(value)] = None

    def merge(self, held: list[Any], at: int, other: list[Any]) -> None:
        if other[at]:
            held[at] = {**(held[at] or {}), **other[at]}

    def result(self, held: list[Any], at: int) -> Any:
        return len(held[at] or ())


_MAKE: Mapping[str, Callable[[SqlAggregate], _Slots]] = {
    "count": lambda a: _Count(),
    "sum": lambda a: _Sum(),
    "min": lambda a: _Least(greatest=False),
    "max": lambda a: _Least(greatest=True),
    "avg": lambda a: _Avg(),
    "first": lambda a: _End(last=False, ignore_nulls=a.ignore_nulls),
    "last": lambda a: _End(last=True, ignore_nulls=a.ignore_nulls),
    "collect_list": lambda a: _Collect(),
    "count_distinct": lambda a: _Distinct(),
    "min_by": lambda a: _By(greatest=False),
    "max_by": lambda a: _By(greatest=True),
}
KINDS = tuple(_MAKE)
BY = ("min_by", "max_by")
"""The aggregates of two columns."""


class SqlAggregates:
    """Several aggregates over the same elements: a fold whose result is a tuple, one value an aggregate.

    Args:
        aggregates: in the order of the result. Elements are dicts or tuples, by what their columns are.
    """

    def __init__(self, aggregates: Sequence[SqlAggregate]) -> None:
        if not aggregates:
            raise DefinitionError("no aggregates", next="give one, such as SqlAggregate(kind='count')")
        self.aggregates = tuple(aggregates)
        self._parts: list[tuple[_Slots, int, Any]] = []
        start: list[Any] = []
        for aggregate in aggregates:
            slots = _MAKE[aggregate.kind](aggregate)
            columns = [each for each in (aggregate.column, aggregate.by) if each is not None]
            self._parts.append((slots, len(start), itemgetter(*columns) if columns else None))
            start += slots.start
        self._start = start

    def first(self, value: Any) -> list[Any]:
        return self.add(value, self._start.copy())

    def add(self, value: Any, held: list[Any]) -> list[Any]:
        for slots, at, get in self._parts:
            slots.add(held, at, True if get is None else get(value))
        return held

    def add_batch(self, table: dict[Any, Any], entries: Iterable[Any], values: Iterable[Any]) -> None:
        start, get = self._start, table.get
        held: list[list[Any]] = []
        keep = held.append
        for entry in entries:
            accumulator = get(entry)
            if accumulator is None:
                accumulator = table[entry] = start.copy()
            keep(accumulator)
        elements = values if isinstance(values, Sequence) else list(values)
        for slots, at, get in self._parts:
            if get is None:
                for accumulator in held:
                    accumulator[at] += 1
            else:
                _add_column(slots, at, held, map(get, elements))

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        for slots, at, _ in self._parts:
            slots.merge(a, at, b)
        return a

    def result(self, held: list[Any]) -> tuple[Any, ...]:
        return tuple([slots.result(held, at) for slots, at, _ in self._parts])

    def of(self, values: Sequence[Any]) -> tuple[Any, ...]:
        held = self._start.copy()
        for value in values:
            self.add(value, held)
        return self.result(held)


def _add_column(slots: _Slots, at: int, held: list[list[Any]], column: Iterable[Any]) -> None:
    """Add one value to each accumulator. What is common is written out: a call for each row is what a batch saves."""
    if isinstance(slots, _Count):
        for accumulator, value in zip(held, column, strict=True):
            if value is not None:
                accumulator[at] += 1
    elif isinstance(slots, _Sum):
        counted = isinstance(slots, _Avg)
        for accumulator, value in zip(held, column, strict=True):
            if value is None:
                continue
            known = accumulator[at]
            if known is None:
                accumulator[at] = value
            elif type(known) is Decimal:
                accumulator[at] = _EXACT.add(known, value)
            else:
                accumulator[at] = known + value
            if counted:
                accumulator[at + 1] += 1
    else:
        for accumulator, value in zip(held, column, strict=True):
            slots.add(accumulator, at, value)
