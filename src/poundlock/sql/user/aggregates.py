"""Aggregates of the user's own: what is kept of a group of rows, how rows change it, how two are merged, and the result.

The arguments of a row come as one ROW. By row, the accumulator is the value that `accumulator_type` declares; by columns it is what the
function says, behind a flag whether the group has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.formats.arrays import Flags, Numbers, column_of, flags_in, indices_of, joined, valid_in
from poundlock.operators.columns.aggregation import FunctionAggregation
from poundlock.operators.columns.changelog.signed import taken
from poundlock.operators.columns.groups import Groups
from poundlock.operators.columns.over.own import in_turns
from poundlock.sql.coercion import NESTED
from poundlock.sql.types import SqlType
from poundlock.sql.user.declared import ImperativeAggregateFunction, has_method
from poundlock.sql.user.function import NO_ARGUMENT, SqlUserFunction
from poundlock.sql.user.values import values_of
from poundlock.stream.functions.arrow import ArrowAggregateFunction

RESULT = "result"


@dataclass(frozen=True)
class RecordAggregate:
    """An aggregate that is given one row after the other.

    Args:
        arguments: the ROW of its arguments.
    """

    user: SqlUserFunction
    arguments: SqlType

    @property
    def name(self) -> str:
        """What it is called."""
        return self.user.name

    @property
    def types(self) -> Sequence[pa.DataType]:
        """The type of the accumulator."""
        return [self._kept.arrow]

    @property
    def described(self) -> str:
        """What state has of it."""
        return f"{self.user.path} {self._kept}"

    @property
    def retracts(self) -> bool:
        """Whether rows can be taken away."""
        return has_method(self._function, "retract")

    @property
    def _kept(self) -> SqlType:
        assert self.user.accumulator is not None
        return self.user.accumulator

    @property
    def _function(self) -> ImperativeAggregateFunction:
        function = self.user.declared.function
        assert isinstance(function, ImperativeAggregateFunction)
        return function

    def fold(self, held: Sequence[pa.Array], values: pa.Array, signs: Numbers, of: Numbers) -> list[pa.Array]:
        """Return what is kept of each group after some rows; see `GroupFunction`."""
        kept = self._accumulators(held[0])
        add, remove = self._function.accumulate, self._function.retract
        for group, sign, arguments in zip(of.tolist(), signs.tolist(), self._rows(values), strict=True):
            changed = (add if sign > 0 else remove)(kept[group], *arguments)
            if changed is not None:
                kept[group] = changed
        return [self.user.column(kept, self._kept)]

    def run_on(
        self, held: Sequence[pa.Array], values: pa.Array, shown: Flags, of: Numbers
    ) -> tuple[pa.Array, list[pa.Array]]:
        """Return the result of each row, and what is kept of each group; see `GroupFunction`."""
        kept, results = self._accumulators(held[0]), []
        accumulate, value_of = self._function.accumulate, self._function.get_value
        is_nested = self.user.result.root in NESTED  # what later rows change must not change results of earlier ones
        for group, counts, arguments in zip(of.tolist(), shown.tolist(), self._rows(values), strict=True):
            if counts:
                changed = accumulate(kept[group], *arguments)
                if changed is not None:
                    kept[group] = changed
            value = value_of(kept[group])
            results.append(deepcopy(value) if is_nested else value)
        return self.user.column(results, self.user.result), [self.user.column(kept, self._kept)]

    def merge(self, held: Sequence[pa.Array], of: Numbers, count: int) -> list[pa.Array]:
        """Return one accumulator for each group of them; `of` is the number of each one's group."""
        gathered: list[list[Any]] = [[] for _ in range(count)]
        for group, each in zip(of.tolist(), self._accumulators(held[0]), strict=True):
            gathered[group].append(each)
        merged = []
        for first, *others in gathered:
            made = self._function.merge(first, others) if others else None
            merged.append(first if made is None else made)
        return [self.user.column(merged, self._kept)]

    def result(self, held: Sequence[pa.Array]) -> pa.Array:
        """Return the result of each group."""
        results = list(map(self._function.get_value, self._accumulators(held[0])))
        return self.user.column(results, self.user.result)

    def _accumulators(self, column: pa.Array) -> list[Any]:
        create = self._function.create_accumulator
        return [create() if each is None else each for each in values_of(column, self._kept)]

    def _rows(self, values: pa.Array) -> Sequence[tuple[Any, ...]]:
        if self.arguments.names == (NO_ARGUMENT,):
            return [()] * len(values)
        columns = [values_of(c, kind) for c, kind in zip(values.flatten(), self.arguments.of, strict=True)]
        return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class ArrowAggregate:
    """An aggregate over columns; arguments as of `RecordAggregate`."""

    user: SqlUserFunction
    arguments: SqlType

    @property
    def name(self) -> str:
        """What it is called."""
        return self.user.name

    @property
    def types(self) -> Sequence[pa.DataType]:
        """Whether there is an accumulator, and the types of its columns."""
        return [pa.bool_(), *self._aggregation.types]

    @property
    def described(self) -> str:
        """What state has of it."""
        return f"{self.user.path} {' '.join(self._aggregation.described)}"

    @property
    def retracts(self) -> bool:
        """Whether rows can be taken away: nothing says which row had which part in what was added up."""
        return False

    @cached_property
    def _aggregation(self) -> FunctionAggregation:
        function = self.user.declared.function
        assert isinstance(function, ArrowAggregateFunction)
        names = tuple(function.columns) or tuple(f"f{number}" for number in range(len(self.arguments.of)))
        result = f"`{RESULT}` {ddl.render_type(self.user.result.arrow)}"
        return FunctionAggregation(self.user.name, _OneResult(function), names, result)

    def __reduce__(self) -> tuple[object, ...]:
        return ArrowAggregate, (self.user, self.arguments)

    def fold(self, held: Sequence[pa.Array], values: pa.Array, signs: Numbers, of: Numbers) -> list[pa.Array]:
        """Return what is kept of each group after some rows; see `GroupFunction`."""
        if (signs < 0).any():
            raise self.user.refused("cannot take back a row")
        groups = len(held[0])
        present = np.unique(of)
        if not len(present):
            return [column_of(_there(held[0]), pa.bool_()), *held[1:]]
        added = self._aggregation.partial(values.flatten(), Groups(np.arange(len(of)), np.searchsorted(of, present)))
        there = _there(held[0])
        both = present[there[present]]
        if len(both):
            before = [column.take(indices_of(both)) for column in held[1:]]
            parts = [joined([one, other]) for one, other in zip(before, added, strict=True)]
            added = self._merged(parts, np.concatenate([both, present]))
        places = np.where(there, np.arange(groups), -1)
        places[present] = groups + np.arange(len(present))
        whole = [taken(joined([one, other]), places) for one, other in zip(held[1:], added, strict=True)]
        return [column_of(places >= 0, pa.bool_()), *whole]

    def run_on(
        self, held: Sequence[pa.Array], values: pa.Array, shown: Flags, of: Numbers
    ) -> tuple[pa.Array, list[pa.Array]]:
        """Return the result of each row, and what is kept of each group; see `GroupFunction`."""
        return in_turns(self, held, values, shown, of)

    def merge(self, held: Sequence[pa.Array], of: Numbers, count: int) -> list[pa.Array]:
        """Return one accumulator for each group of them; `of` is the number of each one's group."""
        filled = np.flatnonzero(_there(held[0]))
        columns = [column.take(indices_of(filled)) for column in held[1:]]
        places = np.full(count, -1)
        present = np.unique(of[filled])
        places[present] = np.arange(len(present))
        merged = self._merged(columns, of[filled]) if len(filled) else columns
        return [column_of(places >= 0, pa.bool_()), *(taken(column, places) for column in merged)]

    def result(self, held: Sequence[pa.Array]) -> pa.Array:
        """Return the result of each group; NULL where there were no rows."""
        there = _there(held[0])
        filled = np.flatnonzero(there)
        columns = [column.take(indices_of(filled)) for column in held[1:]]
        (made,) = self._aggregation.results(columns, [self.user.result.arrow])
        places = np.full(len(there), -1)
        places[filled] = np.arange(len(filled))
        return taken(made, places)

    def _merged(self, columns: Sequence[pa.Array], of: Numbers) -> list[pa.Array]:
        order = np.argsort(of, kind="stable")
        starts = np.flatnonzero(np.diff(of[order], prepend=-1))
        return self._aggregation.merge(columns, Groups(order, starts))


class _OneResult(ArrowAggregateFunction):
    """A user's aggregate whose result is one column, whatever that is called, or an array."""

    def __init__(self, own: ArrowAggregateFunction) -> None:
        self._own = own
        self.accumulator, self.columns = own.accumulator, own.columns
        self.accumulate, self.merge = own.accumulate, own.merge  # type: ignore[method-assign]

    def result(self, accumulators: pa.RecordBatch) -> Any:
        """Return the result as the one column that it is."""
        returned = self._own.result(accumulators)
        if isinstance(returned, pa.Array | pa.ChunkedArray):
            return {RESULT: returned}
        columns = list(returned.values() if isinstance(returned, dict) else returned.columns)
        if len(columns) != 1:
            raise DefinitionError(
                f"{type(self._own).__name__}.result returned {len(columns)} columns",
                next="return one, or a pyarrow.Array",
            )
        return {RESULT: columns[0]}


def _there(flags: pa.Array) -> Any:
    valid = valid_in(flags)
    known = flags_in(flags)
    return known if valid is None else known & valid


OwnAggregate = RecordAggregate | ArrowAggregate


def own_aggregate(user: SqlUserFunction, arguments: SqlType) -> OwnAggregate:
    """Return an aggregate of the user's own as steps have it."""
    return ArrowAggregate(user, arguments) if user.is_by_columns else RecordAggregate(user, arguments)


def can_merge(user: SqlUserFunction) -> bool:
    """Return whether accumulators can be merged, as windows do."""
    return user.is_by_columns or has_method(user.declared.function, "merge")
