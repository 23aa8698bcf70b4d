"""Rows, arrays and maps: made of values, and taken apart. Elements are counted from 1; one that is not there is NULL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import Numbers, column_of, ends_in, indices_of, valid_in
from poundlock.sql.coercion import INT, INTEGERS, aligned_types, common_type
from poundlock.sql.functions.function import Evaluation, EvaluationError, Given, SqlFunction, TypeMismatch
from poundlock.sql.functions.kernels.columns import trues, valid_flags
from poundlock.sql.functions.kernels.distinct import integers_in, valid_of
from poundlock.sql.functions.operators.comparison import compared_as, equal
from poundlock.sql.types import SqlType


def _common(given: Sequence[Given], what: str) -> SqlType:
    made = common_type(each.type for each in given)
    if made is None or made.root == "NULL":
        types = ", ".join(str(each.type) for each in given)
        raise TypeMismatch(f"{what} of ({types}): these types have none in common", next="CAST them to one type")
    return made


def _row_type(given: Sequence[Given]) -> SqlType:
    names = tuple(f"EXPR${number}" for number in range(len(given)))
    return SqlType("ROW", of=tuple(each.type for each in given), names=names, is_nullable=False)


def _row(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pa.StructArray.from_arrays(list(columns), fields=list(evaluation.returns.arrow))


def _array_type(given: Sequence[Given]) -> SqlType:
    if not given:
        raise DefinitionError(
            "ARRAY without an element has no type", next="write CAST(NULL AS ARRAY<type>), or give one"
        )
    return SqlType("ARRAY", of=(_common(given, "ARRAY"),), is_nullable=False)


def _array_accepts(given: Sequence[Given]) -> Sequence[SqlType | None]:
    return aligned_types([each.type for each in given], _array_type(given).of[0])


def _array(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    ends = column_of(np.arange(evaluation.rows + 1, dtype=np.int32) * len(columns), pa.int32())
    return pa.ListArray.from_arrays(ends, _interleaved(columns, evaluation.rows), type=evaluation.returns.arrow)


def _map_type(given: Sequence[Given]) -> SqlType:
    if not given or len(given) % 2:
        raise DefinitionError(f"MAP of {len(given)} values", next="write MAP['key', value, …]")
    return SqlType("MAP", of=(_common(given[::2], "keys"), _common(given[1::2], "values")), is_nullable=False)


def _map_accepts(given: Sequence[Given]) -> Sequence[SqlType | None]:
    key, value = _map_type(given).of
    made = [*given]
    keys, values = (aligned_types([each.type for each in made[n::2]], kind) for n, kind in ((0, key), (1, value)))
    return [each for pair in zip(keys, values, strict=True) for each in pair]


def _map(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    keys, values, rows = columns[::2], columns[1::2], evaluation.rows
    if any(key.null_count for key in keys):
        raise EvaluationError(
            "a key of a map is NULL", next="write COALESCE(key, '…'), or leave such rows out, and start the job again"
        )
    kept = np.ones((rows, len(keys)), np.bool_)
    for number, key in enumerate(keys):
        for later in keys[number + 1 :]:
            kept[:, number] &= ~trues(equal(key, later))
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(kept.sum(axis=1), out=ends[1:])
    of_kept = indices_of(np.flatnonzero(kept.reshape(-1)))
    entries = (_interleaved(each, rows).take(of_kept) for each in (keys, values))
    return pc.cast(pa.MapArray.from_arrays(column_of(ends, pa.int32()), *entries), evaluation.returns.arrow)


def _interleaved(columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the values of the first row one behind the other, then those of the second …."""
    if len(columns) == 1:
        return columns[0]
    places = np.arange(rows)[:, None] + np.arange(len(columns))[None, :] * rows
    return pa.concat_arrays(list(columns)).take(indices_of(places.reshape(-1)))


def _item_type(given: Sequence[Given]) -> SqlType:
    container, key = given[0].type, given[1].type
    if container.root == "ARRAY":
        if key.root not in INTEGERS:
            raise TypeMismatch(f"an element of an array by {key}", next="write its number, from 1")
        if given[1].is_literal and given[1].value is not None and given[1].value < 1:
            raise DefinitionError(
                f"there is no element {given[1].value}: the elements of an array are counted from 1",
                next="write [1] for the first one",
            )
        return container.of[0].with_null()
    if container.root == "MAP":
        compared_as("=", container.of[0], key)
        return container.of[1].with_null()
    raise TypeMismatch(f"{container} has no elements", next="write [ ] behind an array or a map")


def _item_accepts(given: Sequence[Given]) -> Sequence[SqlType | None]:
    container, key = given[0].type, given[1].type
    return [None, container.of[0] if container.root == "MAP" and container.of[0].arrow != key.arrow else None]


def _item(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    container, key = columns
    ends = ends_in(container)
    begins, counts = ends[:-1], np.diff(ends)
    if len(container) == 0:
        return pa.nulls(0, evaluation.returns.arrow)
    if pa.types.is_list(container.type):
        number = integers_in(key)
        valid = valid_of(columns)
        there = (number >= 1) & (number <= counts)
        there &= True if valid is None else valid
        return _taken(container.values, begins + number - 1, there)
    return _looked_up(container, key, begins, counts)


def _looked_up(container: pa.Array, key: pa.Array, begins: Numbers, counts: Numbers) -> pa.Array:
    """Return the values of maps at keys, the last where there are several."""
    rows = np.repeat(np.arange(len(container)), counts)
    first, total = int(begins[0]), int(counts.sum())
    keys = container.keys.slice(first, total)
    matches = np.flatnonzero(trues(equal(keys, key.take(indices_of(rows)))))
    where = np.full(len(container), -1, np.int64)
    where[rows[matches]] = first + matches
    return _taken(container.items, where, (where >= 0) & valid_flags(container))


def _taken(values: pa.Array, places: Numbers, there: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Array:
    return values.take(column_of(np.where(there, places, 0), pa.int64(), there))


def _cardinality_type(given: Sequence[Given]) -> SqlType:
    if len(given) != 1 or given[0].type.root not in ("ARRAY", "MAP", "MULTISET"):
        types = ", ".join(str(each.type) for each in given)
        raise DefinitionError(
            f"CARDINALITY does not take ({types})", next="write CARDINALITY(array) or CARDINALITY(map)"
        )
    return INT.with_null(given[0].type.is_nullable)


def _cardinality(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    counts = np.diff(ends_in(columns[0])) if len(columns[0]) else np.zeros(0, np.int64)
    return column_of(counts.astype(np.int32), pa.int32(), valid_in(columns[0]))


def _field_type(given: Sequence[Given]) -> SqlType:
    raise DefinitionError("a field without a row", next="write row.field")


def _field(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    row = columns[0]
    return row.flatten()[row.type.get_field_index(evaluation.options[0])]


FUNCTIONS: Sequence[SqlFunction] = (
    SqlFunction("ROW", _row_type, _row, is_total=True),
    SqlFunction("ARRAY", _array_type, _array, _array_accepts, is_total=True),
    SqlFunction("MAP", _map_type, _map, _map_accepts),
    SqlFunction("[]", _item_type, _item, _item_accepts, is_total=True),
    SqlFunction(".field", _field_type, _field, is_total=True),
    SqlFunction("CARDINALITY", _cardinality_type, _cardinality, is_total=True),
)
