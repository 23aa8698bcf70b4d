"""SQL aggregates over columns: what rows of a group add up to, what two such sums add up to, and the result.

What an aggregate has added up is one to three columns, its accumulator, so that a part of it can be done where rows are read, and the
rest where their state is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa

from poundlock.formats import ddl
from poundlock.formats.arrays import indices_of
from poundlock.operators.columns.encoding import decode_accumulators, encode_accumulators
from poundlock.operators.columns.groups import Groups
from poundlock.operators.columns.sql.accumulators import ColumnAccumulator, accumulator_of
from poundlock.operators.columns.sql.arrivals import ByArrival, by_arrival
from poundlock.operators.columns.sql.sums import too_large
from poundlock.operators.windows.aggregates import Kind, SqlAggregate

_IGNORE_NULLS, _BY_ARRIVAL = " ignore nulls", " in order of arrival"
_BY = re.compile(r" by (?=(?:[^`]*`[^`]*`)*[^`]*$)")
"""What stands between two types, and not within the quoted name of a field."""


@dataclass(frozen=True)
class ColumnAggregates:
    """Several aggregates over the same rows. Picklable.

    Args:
        aggregates: their columns are places in `arguments`.
        arguments: the types of the columns that they are of.
        by_arrival: whether those that depend on the order of rows keep with a value the place at which it came, since accumulators are
            merged in another order. Rows then have such a column behind their arguments.
    """

    aggregates: tuple[SqlAggregate, ...]
    arguments: tuple[Any, ...]
    by_arrival: bool = False

    @cached_property
    def _parts(self) -> list[ColumnAccumulator]:
        parts = [accumulator_of(each, _of(each, self.arguments)) for each in self.aggregates]
        return list(map(by_arrival, parts)) if self.by_arrival else parts

    @property
    def types(self) -> list[pa.DataType]:
        """The types of all accumulators' columns, one behind the other."""
        return [kind for part in self._parts for kind in part.types]

    @cached_property
    def places(self) -> Sequence[int]:
        """Which of the accumulators' columns say at which place a value came, or the values of a list."""
        ends = np.cumsum([len(part.types) for part in self._parts]).tolist()
        return [end - 1 for part, end in zip(self._parts, ends, strict=True) if isinstance(part, ByArrival)]

    @property
    def described(self) -> tuple[str, ...]:
        """The aggregates as texts, which `of` reads: kind, type of the column, whether nulls are passed over, and whether places are kept."""
        return tuple(
            " ".join(
                [
                    each.kind,
                    *([] if each.column is None else [ddl.render_type(self.arguments[int(each.column)])]),
                    *([] if each.by is None else [f"by {ddl.render_type(self.arguments[int(each.by)])}"]),
                ]
            )
            + (_IGNORE_NULLS if each.ignore_nulls else "")
            + (_BY_ARRIVAL if isinstance(part, ByArrival) else "")
            for each, part in zip(self.aggregates, self._parts, strict=True)
        )

    @classmethod
    def of(cls, texts: Sequence[str]) -> ColumnAggregates:
        """Return aggregates that were described, each of a column of its own."""
        aggregates: list[SqlAggregate] = []
        kinds: list[pa.DataType] = []
        for text in texts:
            text = text.removesuffix(_BY_ARRIVAL)
            ignore_nulls = text.endswith(_IGNORE_NULLS)
            kind, _, of = text.removesuffix(_IGNORE_NULLS).partition(" ")
            types = [ddl.parse_type(each) for each in _BY.split(of)] if of else []
            places: list[int | None] = [*range(len(kinds), len(kinds) + len(types)), None, None]
            kinds += types
            aggregates.append(
                SqlAggregate(kind=cast("Kind", kind), column=places[0], ignore_nulls=ignore_nulls, by=places[1])
            )
        return cls(tuple(aggregates), tuple(kinds), any(text.endswith(_BY_ARRIVAL) for text in texts))

    def partial(self, columns: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return what the rows of each group add up to.

        Args:
            columns: the arguments; behind them the places at which rows came, where `places` are kept.
        """
        added: list[pa.Array] = []
        for each, part in zip(self.aggregates, self._parts, strict=True):
            own = _of(each, columns)
            added += part.partial((own, columns[-1]) if isinstance(part, ByArrival) else own, groups)
        return added

    def merge(self, held: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Return one accumulator for each group of accumulators, each in the order of its rows."""
        if groups.are_single:
            rows = indices_of(groups.order)
            return [column.take(rows) for column in held]
        return [column for part, own in self._split(held) for column in part.merge(own, groups)]

    def results(self, held: Sequence[pa.Array], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
        """Return the results, one column an aggregate, of some types.

        Raises:
            TerminalError: a result does not fit its type.
        """
        results = []
        for (part, own), kind in zip(self._split(held), kinds, strict=True):
            try:
                results.append(part.result(own, kind))
            except pa.ArrowInvalid as error:
                raise too_large(kind, str(error)) from error
        return results

    def encode(self, held: Sequence[pa.Array]) -> pa.Array:
        """Return accumulators as the bytes that state keeps, large_binary."""
        return encode_accumulators(held)

    def decode(self, values: pa.Array) -> list[pa.Array]:
        """Return accumulators that were encoded."""
        return decode_accumulators(values, self.types)

    def _split(self, held: Sequence[pa.Array]) -> list[tuple[ColumnAccumulator, Sequence[pa.Array]]]:
        pairs, at = [], 0
        for part in self._parts:
            width = len(part.types)
            pairs.append((part, held[at : at + width]))
            at += width
        return pairs


def _of(aggregate: SqlAggregate, columns: Sequence[Any]) -> Any:
    """Return what an aggregate is of: one of some columns, a pair of them, or None."""
    if aggregate.column is None:
        return None
    value = columns[int(aggregate.column)]
    return value if aggregate.by is None else (value, columns[int(aggregate.by)])
