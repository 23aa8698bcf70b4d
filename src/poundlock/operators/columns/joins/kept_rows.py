"""The rows of a side of a join that state has: in one table for each set of columns that its stream has had.

Rows are written with the columns there are, and read as rows of those whichever they were written with: a column that is new is null,
one that is gone is passed over, as in Flink's evolution of a schema, and a number may have become wider. Rows that have the columns
of before are not written again; they go away with their time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import TerminalError
from poundlock.formats.arrays import Numbers, indices_of
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.operator import Pending, Slice
from poundlock.operators.columns.records import columns_of, decode_records
from poundlock.operators.keyed.group import KeyGroup


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of state.

    Args:
        rows: by hash.
        layout: the columns that they were written with, as `layout_of` tells them.
        places: of those of the rows that are meant; None: all of them.
    """

    rows: Any
    layout: str
    places: Numbers | None = None

    def __len__(self) -> int:
        return len(self.rows if self.places is None else self.places)

    @property
    def hashes(self) -> Hashes:
        """The hash of each row's key."""
        hashes: Hashes = self.rows.hashes if self.places is None else self.rows.hashes[self.places]
        return hashes

    @property
    def keys(self) -> pa.Array:
        """The bytes of each row's key."""
        return self.rows.keys if self.places is None else self.rows.keys.take(indices_of(self.places))

    @property
    def times(self) -> Numbers:
        """The time of each row, ms."""
        times: Numbers = self.rows.times_or_none()
        return times if self.places is None else times[self.places]

    @property
    def width(self) -> int:
        """About how many bytes a row has."""
        return int(self.rows.values.nbytes) // max(len(self.rows), 1)

    def values_at(self, places: Numbers) -> pa.Array:
        """Return the bytes of some of the rows."""
        own = places if self.places is None else self.places[places]
        return self.rows.values.take(indices_of(own))

    def slice(self, start: int, stop: int) -> StoredRows:
        """Return a stretch of the rows, without a copy."""
        if self.places is not None:
            return StoredRows(self.rows, self.layout, self.places[start:stop])
        return StoredRows(self.rows.slice(start, stop), self.layout)


class SideTables:
    """The tables of a side.

    Args:
        name: of the side, which is the name of the first table, too.
        kind: of state.
        layout: the columns that are kept of a row.
    """

    def __init__(self, name: str, kind: str, layout: str) -> None:
        self._name, self._kind, self._layout = name, kind, layout
        self._layouts: dict[
            str, str
        ] = {}  # of each table that has rows, oldest first; that of the columns there are is the last

    def declare(self, group: KeyGroup, *, replaces: tuple[str, ...] = ()) -> None:
        """Say what the tables hold; called with each group.

        Args:
            replaces: the kind of state of the operator of single records, where that has the same name and its rows were taken over.

        Raises:
            TerminalError: rows of columns that were once cannot be read as rows of those there are now, or the state is of another kind.
        """
        tables = group.merging(self._kind)
        known = {name: tables[name][0] for name in sorted(tables, key=_number) if name.partition(" ")[0] == self._name}
        own = next((name for name, layout in known.items() if layout == self._layout), None)
        if own is None:
            own = next(name for name in self._names() if name not in known)
        group.declare(own, self._kind, merges=(self._layout,), replaces=replaces)
        self._layouts = {name: layout for name, layout in known.items() if name != own and group.namespaces(name)}
        for layout in self._layouts.values():
            _check(self._name, columns_of(layout), columns_of(self._layout))
        self._layouts[own] = self._layout

    def _names(self) -> Iterator[str]:
        yield self._name
        yield from (f"{self._name} {number}" for number in count(2))

    def namespaces(self, group: KeyGroup) -> list[Slice]:
        """Return the stretches of time that there are rows of."""
        return sorted({space for name in self._layouts for space in group.namespaces(name)})

    def rows_of(self, store: Any, namespace: Slice) -> list[StoredRows]:
        """Return the rows of a stretch of time, those of older columns first."""
        return [
            StoredRows(rows, layout)
            for name, layout in self._layouts.items()
            for rows in store.rows_of(name, namespace)
        ]

    def append(self, store: Any, namespace: Slice, pending: Pending) -> None:
        """Put rows beside those that there are."""
        *_, own = self._layouts
        store.append(own, namespace, pending)

    def drop(self, group: KeyGroup, namespace: Slice) -> None:
        """Remove the rows of a stretch of time."""
        for name in self._layouts:
            group.drop(name, namespace)


def _number(name: str) -> int:
    """Return the place of a table among those of a side."""
    return int(name.partition(" ")[2] or 1)


def read_as(values: pa.Array, layout: str, schema: pa.Schema, names: Sequence[str]) -> pa.RecordBatch:
    """Return some columns of rows.

    Args:
        values: the bytes of the rows.
        layout: the columns that they were written with.
        schema: the columns that there are now, which those can be read as.
        names: of the columns that are wanted.
    """
    written = columns_of(layout)
    rows = decode_records(values, written, [name for name in names if name in written.names])
    fields = [schema.field(name) for name in names]
    columns = [
        pc.cast(rows.column(field.name), field.type)
        if field.name in rows.schema.names
        else pa.nulls(len(values), field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _check(side: str, before: pa.Schema, now: pa.Schema) -> None:
    """Raise TerminalError: a column has another type than it had, which its values are not to be read as."""
    for field in now:
        kind = before.field(field.name).type if field.name in before.names else field.type
        if kind != field.type and not _holds(field.type, kind):
            raise TerminalError(
                f"state has rows of the {side} side of a join in which {field.name} is of type {kind}; it is of type {field.type} now",
                next=f"CAST({field.name}) to {kind} before the join, or give the step another name, which begins with no state",
            )


def _holds(wider: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a type of numbers holds all values of another one."""
    if pa.types.is_signed_integer(kind) and pa.types.is_signed_integer(wider):
        return bool(wider.bit_width >= kind.bit_width)
    if pa.types.is_decimal128(kind) and pa.types.is_decimal128(wider):
        return bool(wider.scale == kind.scale and wider.precision >= kind.precision)
    return bool(pa.types.is_float32(kind) and pa.types.is_float64(wider))
