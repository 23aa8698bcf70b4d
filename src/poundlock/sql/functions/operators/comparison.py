"""Comparisons: of numbers by value, of texts by their bytes in UTF-8, of rows field by field.

A text is cast to the type that it is compared with. Blanks at the end of a CHAR count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.sql.coercion import (
    BINARIES,
    BOOLEAN,
    EXACT,
    FLOATS,
    NUMBERS,
    TEXTS,
    comparison_type,
)
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction, TypeMismatch
from poundlock.sql.functions.kernels.columns import truths
from poundlock.sql.functions.kernels.decimals import MOST_DIGITS, MOST_WIDE_DIGITS, exact
from poundlock.sql.functions.kernels.distinct import valid_of
from poundlock.sql.types import SqlType

Compare = Callable[[pa.Array, pa.Array], pa.Array]
_COMPARED: Sequence[tuple[str, Compare]] = (
    ("=", pc.equal),
    ("<>", pc.not_equal),
    ("<", pc.less),
    ("<=", pc.less_equal),
    (">", pc.greater),
    (">=", pc.greater_equal),
)
_ALIKE: Sequence[Sequence[str]] = (TEXTS, BINARIES, EXACT, FLOATS)  # Arrow compares them as they are


def compared_as(sign: str, a: SqlType, b: SqlType) -> SqlType:
    """Return the type as which two values are compared.

    Raises:
        TypeMismatch: they are not comparable.
    """
    made = comparison_type(a, b)
    if made is None:
        raise TypeMismatch(
            f"{a} {sign} {b}: these types are not comparable", next="CAST one of them to the other's type"
        )
    return made


def aligned(types: Sequence[SqlType], common: SqlType) -> Sequence[SqlType | None]:
    """Return what some types are cast to before they are compared as one type."""
    return [None if _is_alike(each, common) else common.with_null(each.is_nullable) for each in types]


def equal(a: pa.Array, b: pa.Array) -> pa.Array:
    """Return where values are equal, null where one is null; rows are equal where all their fields are."""
    if pa.types.is_struct(a.type):
        fields = [equal(x, y) for x, y in zip(a.flatten(), b.flatten(), strict=True)]
        made = reduce(pc.and_kleene, fields)
        return pc.if_else(pc.and_(pc.is_valid(a), pc.is_valid(b)), made, pa.nulls(len(a), pa.bool_()))
    if pa.types.is_nested(a.type):
        pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
        return truths(np.fromiter((x == y for x, y in pairs), np.bool_, len(a)), valid_of((a, b)))
    return compared(pc.equal, a, b)


def compared(compare: Compare, a: pa.Array, b: pa.Array) -> pa.Array:
    """Compare values that are not nested."""
    if pa.types.is_decimal(a.type) or pa.types.is_decimal(b.type):
        a, b = exact(a), exact(b)
        scale = max(a.type.scale, b.type.scale)
        if max(each.type.precision - each.type.scale for each in (a, b)) + scale > MOST_DIGITS:
            a, b = (pc.cast(each, pa.decimal256(MOST_WIDE_DIGITS, scale)) for each in (a, b))
    return compare(a, b)


def _is_alike(a: SqlType, b: SqlType) -> bool:
    same = any(a.root in roots and b.root in roots for roots in _ALIKE)
    return same or (a.root == b.root and a.arrow == b.arrow)


def _returns(given: Sequence[Given], sign: str, *, never_null: bool = False) -> SqlType:
    a, b = (each.type for each in given)
    common = compared_as(sign, a, b)
    if sign not in ("=", "<>") and not never_null and common.root in ("ARRAY", "MAP", "MULTISET", "ROW"):
        raise TypeMismatch(f"{a} {sign} {b}: {common.root} has no order", next="compare its elements or fields")
    return BOOLEAN.with_null((may_be_null(a) or may_be_null(b)) and not never_null)


def may_be_null(kind: SqlType) -> bool:
    """Return whether a comparison with such values may be NULL: those of a row are compared field by field."""
    return kind.is_nullable or (kind.root == "ROW" and any(map(may_be_null, kind.of)))


def _accepts(given: Sequence[Given], sign: str) -> Sequence[SqlType | None]:
    types = [each.type for each in given]
    common = compared_as(sign, *types)
    if common.root in NUMBERS and all(each.root in NUMBERS for each in types) and common.root not in FLOATS:
        return [None, None]
    return aligned(types, common)


def _run(columns: Sequence[pa.Array], evaluation: Evaluation, sign: str, compare: Compare) -> pa.Array:
    a, b = columns
    if pa.types.is_nested(a.type):
        made = equal(a, b)
        return made if sign == "=" else pc.invert(made)
    return compared(compare, a, b)


def _same(columns: Sequence[pa.Array], evaluation: Evaluation, *, is_negated: bool) -> pa.Array:
    a, b = columns
    both_null = pc.and_(pc.is_null(a), pc.is_null(b))
    made = pc.or_(both_null, pc.and_(pc.and_(pc.is_valid(a), pc.is_valid(b)), pc.coalesce(equal(a, b), both_null)))
    return pc.invert(made) if is_negated else made


FUNCTIONS: Sequence[SqlFunction] = (
    *(
        SqlFunction(
            sign,
            partial(_returns, sign=sign),
            partial(_run, sign=sign, compare=compare),
            partial(_accepts, sign=sign),
            is_total=True,
        )
        for sign, compare in _COMPARED
    ),
    *(
        SqlFunction(
            name,
            partial(_returns, sign=name, never_null=True),
            partial(_same, is_negated=is_negated),
            partial(_accepts, sign=name),
            is_total=True,
        )
        for name, is_negated in (("IS DISTINCT FROM", True), ("IS NOT DISTINCT FROM", False))
    ),
)
