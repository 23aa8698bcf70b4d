"""Whether a value that a person writes is one that the operator of a state can read: it would fail in a task otherwise, later.

Sums have types that the manifest names. A record of a key has those of the records that are there. What a function keeps for itself
only the function knows, but for the shape of lists and maps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import binary_array
from poundlock.operators.columns.encoding import decode_accumulators
from poundlock.operators.columns.sql.aggregates import ColumnAggregates
from poundlock.operators.keyed.codec import encode
from poundlock.state.manifest import TableMeta

_LIKE_NONE = '{"column": …, …}'
_COUNTED = ("counts", "counted")  # [how many rows, what they came to]


def check_value(
    operator: str, meta: TableMeta, value: Any, was: Any, example: Callable[[], Any], *, slots: bool
) -> None:
    """Raise DefinitionError unless a value can stand in a state.

    Args:
        operator: id of the operator, for errors.
        was: a value of the same state, None where the caller has none at hand.
        example: returns one, where it has to be looked for; None where there is none.
        slots: whether accumulators of the operator are lists of one length.
    """
    if meta.broadcast:  # what a key of its map has is the function's own
        return
    if meta.merges or (meta.kind == "counts" and meta.holds):
        sums = ColumnAggregates.of(meta.merges or meta.holds).types
        kinds = sums if meta.merges else [pa.int64(), *sums]
        if not (isinstance(value, list) and len(value) == len(kinds) and _are(value, kinds)):
            _refuse(operator, value, "accumulator", f"as a list of {', '.join(map(str, kinds))}")
    elif meta.kind in _COUNTED:
        if not (isinstance(value, list) and len(value) == 2 and type(value[0]) is int and value[0] > 0):
            _refuse(operator, value, "count window", "as a list of the number of its rows and what they came to")
    elif slots and isinstance(was, list):
        if not (isinstance(value, list) and len(value) == len(was) and all(map(_alike, value, was))):
            _refuse(operator, value, "accumulator", f"like the one that is there: {was!r}")
    elif meta.kind == "list" and not isinstance(value, list):
        _refuse(operator, value, "list", "as [1, 2]")
    elif meta.kind == "map" and not isinstance(value, dict):
        _refuse(operator, value, "map", 'as {"a": 1}')
    elif meta.kind == "rolling" and not _is_record(value, there := example()):
        _refuse(operator, value, "record", f"as {_LIKE_NONE}" if there is None else f"like this one: {there!r}")
    elif meta.kind == "last":
        there = example()
        timed = isinstance(value, list) and len(value) == 2 and (value[0] is None or type(value[0]) is int)
        if not timed or not _is_record(value[1], None if there is None else there[1]):
            form = f"as [time in ms, {_LIKE_NONE}]" if there is None else f"like this one: {there!r}"
            _refuse(operator, value, "record with its time", form)


def _is_record(value: Any, there: Any) -> bool:
    if not isinstance(value, dict) or there is None:
        return isinstance(value, dict)
    return value.keys() == there.keys() and all(_alike(value[name], there[name]) for name in there)


def _are(values: list[Any], kinds: list[pa.DataType]) -> bool:
    """Return whether values are of the types of columns, without a loss."""
    try:
        columns = decode_accumulators(binary_array([encode(values)]), kinds)
    except (pa.ArrowException, TypeError, ValueError, DefinitionError):
        return False
    read = [column.to_pylist()[0] for column in columns]
    return all(
        (value == kept or value != value) and isinstance(value, bool) is isinstance(kept, bool)
        for value, kept in zip(values, read, strict=True)
    )


def _alike(value: Any, there: Any) -> bool:
    """Return whether a value is of the type of another; an unknown one is, and a whole number where there are others."""
    return value is None or there is None or type(value) is type(there) or (type(value) is int and type(there) is float)


def _refuse(operator: str, value: Any, what: str, form: str) -> None:
    raise DefinitionError(f"{value!r:.200} is no {what} of {operator}", next=f"write it {form:.300}")
