"""Functions of arrays and maps.

All take their arguments as they are written; ELEMENT(a) is the only element. ListElements are equal as Flink's are: NULL is an element like
others to ARRAY_DISTINCT, ARRAY_UNION, ARRAY_EXCEPT, ARRAY_INTERSECT, ARRAY_CONTAINS and ARRAY_REMOVE. An element that is given, and the
arrays and maps of a union, are cast to a common type before (`accepts`).

Everything is computed by columns; elements that are rows, arrays or maps themselves are compared by Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import Numbers, column_of, flags_in, indices_of, ranks_of, valid_in
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction
from poundlock.sql.functions.kernels.distinct import integers_in, valid_of, with_validity
from poundlock.sql.functions.kernels.elements import (
    ListElements,
    array_column,
    codes_of,
    elements_of,
    flags_column,
    joined,
    keys_of,
    map_column,
    pairs_of,
    single,
    values_of,
)
from poundlock.sql.functions.signatures import BOOLEAN, INT, defined, is_null, may_be_null
from poundlock.sql.types import LONGEST, STRING, SqlType

Run = Callable[[Sequence[pa.Array], Evaluation], pa.Array]

# --- types -------------------------------------------------------------------------------------------------------------

_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}


def common_type(first: SqlType, second: SqlType) -> SqlType:
    """Return the type that values of two types are brought to.

    Raises:
        DefinitionError: they have none in common.
    """
    is_nullable = first.is_nullable or second.is_nullable
    if first.root == second.root and first.of:
        if len(first.of) == len(second.of):
            return replace(first, of=tuple(map(common_type, first.of, second.of)), is_nullable=is_nullable)
    elif {first.root, second.root} <= {"CHAR", "VARCHAR"} or {first.root, second.root} <= {"BINARY", "VARBINARY"}:
        wide = first if first.root.startswith("VAR") or first.sizes >= second.sizes else second
        root = wide.root if first == second or wide.root.startswith("VAR") else second.root
        fixed = first.root == second.root and first.sizes == second.sizes
        text = "VARCHAR" if "CHAR" in root else "VARBINARY"
        return SqlType(root if fixed else text, max(first.sizes, second.sizes), is_nullable=is_nullable)  # type: ignore[arg-type]
    elif first.root == second.root == "DECIMAL" or "DECIMAL" in (first.root, second.root):
        made = _common_decimal(first, second)
        if made is not None:
            return replace(made, is_nullable=is_nullable)
    elif first.root == second.root:
        return replace(first, sizes=max(first.sizes, second.sizes), is_nullable=is_nullable)
    elif first.root in _WHOLE and second.root in _WHOLE:
        return SqlType(max(first.root, second.root, key=_WHOLE.index), is_nullable=is_nullable)
    elif {first.root, second.root} <= {*_WHOLE, "FLOAT", "DOUBLE"}:
        return SqlType("DOUBLE", is_nullable=is_nullable)
    raise DefinitionError(f"{first} and {second} have no type in common", next="CAST one of them to the other's type")


def _common_decimal(first: SqlType, second: SqlType) -> SqlType | None:
    if {first.root, second.root} & {"FLOAT", "DOUBLE"}:
        return SqlType("DOUBLE")
    sizes = [each.sizes if each.root == "DECIMAL" else (_DIGITS.get(each.root, 0), 0) for each in (first, second)]
    if any(not precision for precision, _ in sizes):
        return None
    scale = max(scale for _, scale in sizes)
    return SqlType("DECIMAL", (min(max(p - s for p, s in sizes) + scale, 38), scale))


def _element_type(given: Sequence[Given]) -> SqlType:
    return given[0].type.of[0] if given[0].type.root == "ARRAY" else STRING


def _with_element(given: Sequence[Given]) -> SqlType:
    """Return the type of an array with one element more."""
    element = _element_type(given)
    added = element.not_null() if is_null(given[1]) else given[1].type
    made = common_type(element, added)
    return SqlType("ARRAY", of=(replace(made, is_nullable=may_be_null(given[1:]) or element.is_nullable),))


def _common(given: Sequence[Given]) -> SqlType:
    """Return the common type of arrays, or of maps."""
    made = given[0].type
    for each in given[1:]:
        made = common_type(made, each.type)
    return made


def _to_common(given: Sequence[Given]) -> Sequence[SqlType | None]:
    made = _common(given)
    return [
        None if each.type.arrow == made.arrow else replace(made, is_nullable=each.type.is_nullable) for each in given
    ]


def _to_element(given: Sequence[Given]) -> Sequence[SqlType | None]:
    """Return the types for an array and an element that is looked for or added."""
    element = _element_type(given)
    made = element if is_null(given[1]) else common_type(element, given[1].type)
    array = None if made.arrow == element.arrow else replace(given[0].type, of=(made,))
    return [array, None if made.arrow == given[1].type.arrow else replace(made, is_nullable=True)]


# --- elements that are looked for or added -------------------------------------------------------------------------------


def _matches(columns: Sequence[pa.Array]) -> tuple[ListElements, Numbers, Numbers]:
    """Return the elements of arrays, the row of each, and which of them are equal to what is looked for in their row."""
    elements = elements_of(columns[0])
    rows = elements.rows
    items = elements.items.take(indices_of(elements.places))
    held, sought = codes_of(items, columns[1].cast(items.type))
    return elements, rows, held == sought[rows]


def _contains(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    elements, rows, matching = _matches(columns)
    contained = np.zeros(len(columns[0]), np.bool_)
    contained[rows[matching]] = True
    return flags_column(contained, elements.valid)


def _position(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the place of the first equal element from 1, 0 if there is none; NULL if NULL is looked for."""
    elements, rows, matching = _matches(columns)
    first = np.zeros(len(columns[0]), np.int32)
    within = np.arange(len(rows)) - (np.cumsum(elements.counts) - elements.counts)[rows] + 1
    first[rows[matching][::-1]] = within[matching][::-1]
    return column_of(first, pa.int32(), valid_of(columns))


def _remove(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    elements, rows, matching = _matches(columns)
    counts = np.bincount(rows[~matching], minlength=len(columns[0]))
    return array_column(evaluation.returns.arrow, elements.chosen(elements.places[~matching], counts))


def _append(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return array_column(evaluation.returns.arrow, joined([elements_of(columns[0]), single(columns[1])]))


def _prepend(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    array, element = elements_of(columns[0]), single(columns[1])
    whole = joined([replace(element, items=element.items.cast(array.items.type)), array])
    return array_column(evaluation.returns.arrow, whole)


# --- sets --------------------------------------------------------------------------------------------------------------


def _concat(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return array_column(evaluation.returns.arrow, joined([elements_of(column) for column in columns]))


def _distinct(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return array_column(evaluation.returns.arrow, _firsts(elements_of(columns[0]).packed()))


def _union(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return array_column(evaluation.returns.arrow, _firsts(joined([elements_of(column) for column in columns])))


def _firsts(elements: ListElements, keep: Numbers | None = None) -> ListElements:
    """Return of packed elements the first of those that are equal in a row, of those that are kept."""
    rows = elements.rows
    (codes,) = codes_of(elements.items)
    kept = np.arange(len(rows)) if keep is None else np.flatnonzero(keep)
    _, firsts = np.unique(pairs_of(rows[kept], codes[kept]), return_index=True)
    places = kept[np.sort(firsts)]
    return elements.chosen(places, np.bincount(rows[places], minlength=len(elements.counts)))


def _compared(is_kept: bool) -> Run:
    """Return what keeps the elements that are, or are not, in another array."""

    def run(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
        first, second = (elements_of(column).packed() for column in columns)
        held, others = codes_of(first.items, second.items.cast(first.items.type))
        keep = np.isin(pairs_of(first.rows, held), pairs_of(second.rows, others)) == is_kept
        made = array_column(evaluation.returns.arrow, _firsts(first, keep))
        return with_validity(made, valid_in(columns[1]))

    return run


# --- order -------------------------------------------------------------------------------------------------------------


def _reverse(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    elements = elements_of(columns[0])
    rows = elements.rows
    mirrored = (2 * elements.starts + elements.counts - 1)[rows] - elements.places
    return array_column(evaluation.returns.arrow, elements.chosen(mirrored, elements.counts))


def _sort(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return elements in their order: upwards unless FALSE is given, NULL first if upwards, unless that is given as well."""
    elements = elements_of(columns[0]).packed()
    rows = elements.rows
    upwards = flags_in(columns[1]) if len(columns) > 1 else np.ones(len(columns[0]), np.bool_)
    nulls_first = flags_in(columns[2]) if len(columns) > 2 else upwards
    ranks, _ = ranks_of(elements.items)
    valid = valid_in(elements.items)
    is_missing = np.zeros(len(rows), np.bool_) if valid is None else ~valid
    order = np.lexsort((np.where(upwards[rows], ranks, -ranks), is_missing != nulls_first[rows], rows))
    made = array_column(evaluation.returns.arrow, elements.chosen(order, elements.counts))
    return with_validity(made, valid_of(columns))


def _extreme(side: Literal[-1, 1]) -> Run:
    """Return the greatest (1) or the least (-1) element that is not NULL; NULL if there is none."""

    def run(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
        elements = elements_of(columns[0]).packed()
        ranks, different = ranks_of(elements.items)
        valid = valid_in(elements.items)
        best = np.full(len(columns[0]), -len(ranks) - 1)
        present = slice(None) if valid is None else valid
        np.maximum.at(best, elements.rows[present], side * ranks[present])
        known = best > -len(ranks) - 1
        return different.take(column_of(np.where(known, side * best, 0), pa.int64(), known)).cast(
            evaluation.returns.arrow
        )

    return run


def _slice(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the elements from one place to another, both included; places below 0 count from the end."""
    elements = elements_of(columns[0])
    size = elements.counts
    start = integers_in(columns[1])
    end = integers_in(columns[2]) if len(columns) > 2 else size
    start = np.maximum(start + np.where(start < 0, size + 1, 0), 1)
    end = end + np.where(end < 0, size + 1, 0)
    end = np.where(end == 0, 1, np.minimum(end, size))
    counts = np.where(size > 0, np.maximum(end - start + 1, 0), 0)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = elements.chosen(np.repeat(elements.starts + start - 1, counts) + within, counts)
    return with_validity(array_column(evaluation.returns.arrow, chosen), valid_of(columns))


def _join(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the elements with a text between them, without NULLs or with another text in their place."""
    elements = elements_of(columns[0]).packed()
    rows = elements.rows
    present = valid_in(elements.items)
    if present is None:
        kept = elements
    elif len(columns) > 2:
        instead = columns[2].take(indices_of(rows))
        kept = replace(elements, items=pc.coalesce(elements.items, instead))
    else:
        counts = np.bincount(rows[present], minlength=len(columns[0]))
        kept = elements.chosen(np.flatnonzero(present), counts)
    texts = pc.binary_join(array_column(pa.list_(pa.string()), replace(kept, valid=elements.valid)), columns[1])
    return with_validity(texts, valid_of(columns))


def _element(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    elements = elements_of(columns[0])
    if (elements.counts > 1).any():
        raise TerminalError("ELEMENT of an array with more than one element", next="write array[1] for its first")
    held = elements.counts == 1
    return elements.items.take(column_of(np.where(held, elements.starts, 0), pa.int64(), held))


# --- maps --------------------------------------------------------------------------------------------------------------


def _map_keys(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return array_column(evaluation.returns.arrow, keys_of(columns[0]).packed())


def _map_values(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return array_column(evaluation.returns.arrow, values_of(columns[0]).packed())


def _map_entries(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    keys, values = keys_of(columns[0]).packed(), values_of(columns[0]).packed()
    kind = evaluation.returns.arrow
    fields = [kind.value_type.field(place) for place in range(2)]
    entries = pa.StructArray.from_arrays([keys.items, values.items], fields=fields)
    return array_column(kind, replace(keys, items=entries))


def _map_from_arrays(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    keys, values = (elements_of(column) for column in columns)
    valid = valid_of(columns)
    is_map = np.ones(len(columns[0]), np.bool_) if valid is None else valid
    if (keys.counts[is_map] != values.counts[is_map]).any():
        raise TerminalError(
            "MAP_FROM_ARRAYS of arrays that are not equally long", next="give as many values as there are keys"
        )
    sides = [replace(each, counts=np.where(is_map, each.counts, 0), valid=valid).packed() for each in (keys, values)]
    return map_column(evaluation.returns.arrow, *sides)


def _map_union(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    """Return the entries of all maps; of equal keys the last map's."""
    keys = joined([keys_of(column) for column in columns])
    values = joined([values_of(column) for column in columns])
    rows = keys.rows
    (codes,) = codes_of(keys.items)
    backwards = pairs_of(rows, codes)[::-1]
    _, lasts = np.unique(backwards, return_index=True)
    places = np.sort(len(rows) - 1 - lasts)
    counts = np.bincount(rows[places], minlength=len(keys.counts))
    return map_column(evaluation.returns.arrow, keys.chosen(places, counts), values.chosen(places, counts))


def _keys_type(given: Sequence[Given]) -> SqlType:
    return SqlType("ARRAY", of=given[0].type.of[:1])


def _values_type(given: Sequence[Given]) -> SqlType:
    return SqlType("ARRAY", of=given[0].type.of[1:])


def _entries_type(given: Sequence[Given]) -> SqlType:
    return SqlType("ARRAY", of=(SqlType("ROW", of=given[0].type.of, names=("key", "value"), is_nullable=False),))


def _from_arrays_type(given: Sequence[Given]) -> SqlType:
    return SqlType("MAP", of=tuple(each.type.of[0] for each in given))


def _array(given: Sequence[Given]) -> SqlType:
    return given[0].type


def _check_texts(given: Sequence[Given]) -> SqlType:
    if _element_type(given).root not in ("CHAR", "VARCHAR"):
        raise DefinitionError(f"ARRAY_JOIN does not take {given[0].type}", next="CAST its elements to STRING")
    return SqlType("VARCHAR", (LONGEST,))


_LOOKED_FOR, _TWO_ARRAYS = "array, any", "array, array"
_SORT_FORMS = ("array", "array, boolean", "array, boolean, boolean")
_SLICE_FORMS = ("array, integer", "array, integer, integer")

FUNCTIONS: Sequence[SqlFunction] = (
    defined("ARRAY_CONTAINS", _LOOKED_FOR, BOOLEAN, _contains, nulls="with the first argument", accepts=_to_element),
    defined("ARRAY_POSITION", _LOOKED_FOR, INT, _position, accepts=_to_element),
    defined("ARRAY_REMOVE", _LOOKED_FOR, _array, _remove, nulls="with the first argument", accepts=_to_element),
    defined("ARRAY_APPEND", _LOOKED_FOR, _with_element, _append, accepts=_to_element),
    defined("ARRAY_PREPEND", _LOOKED_FOR, _with_element, _prepend, accepts=_to_element),
    defined("ARRAY_CONCAT", "array…", _common, _concat, accepts=_to_common),
    defined("ARRAY_DISTINCT", "array", _array, _distinct),
    defined("ARRAY_UNION", _TWO_ARRAYS, _common, _union, accepts=_to_common),
    defined("ARRAY_EXCEPT", _TWO_ARRAYS, _common, _compared(False), accepts=_to_common),
    defined("ARRAY_INTERSECT", _TWO_ARRAYS, _common, _compared(True), accepts=_to_common),
    defined("ARRAY_REVERSE", "array", _array, _reverse),
    defined("ARRAY_SORT", _SORT_FORMS, _array, _sort),
    defined("ARRAY_MAX", "array", _element_type, _extreme(1), nulls="always"),
    defined("ARRAY_MIN", "array", _element_type, _extreme(-1), nulls="always"),
    defined("ARRAY_SLICE", _SLICE_FORMS, _array, _slice),
    defined("ARRAY_JOIN", ("array, text", "array, text, text"), _check_texts, _join),
    defined("ELEMENT", "array", _element_type, _element, nulls="always"),
    defined("MAP_KEYS", "map", _keys_type, _map_keys),
    defined("MAP_VALUES", "map", _values_type, _map_values),
    defined("MAP_ENTRIES", "map", _entries_type, _map_entries),
    defined("MAP_FROM_ARRAYS", _TWO_ARRAYS, _from_arrays_type, _map_from_arrays),
    defined("MAP_UNION", "map…", _common, _map_union, accepts=_to_common),
)
