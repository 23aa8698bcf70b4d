"""What types have in common, and what becomes of types that meet in an operator: Flink's rules, and no values.

Nothing here knows a script: where types do not go together, None is returned, and the caller has the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from poundlock.sql.types import LONGEST, STRING, Root, SqlType

BOOLEAN, INT, BIGINT, DOUBLE = SqlType("BOOLEAN"), SqlType("INT"), SqlType("BIGINT"), SqlType("DOUBLE")
FLOAT, DATE, NULL = SqlType("FLOAT"), SqlType("DATE"), SqlType("NULL")
YEAR_MONTH, DAY_TIME = SqlType("INTERVAL_YEAR_MONTH"), SqlType("INTERVAL_DAY_TIME")

DIGITS: Mapping[Root, int] = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
"""How many decimal digits the integers have, in the order of their widths."""
INTEGERS = tuple(DIGITS)
FLOATS: tuple[Root, ...] = ("FLOAT", "DOUBLE")
EXACT = (*INTEGERS, "DECIMAL")
NUMBERS = (*EXACT, *FLOATS)
TEXTS: tuple[Root, ...] = ("CHAR", "VARCHAR")
BINARIES: tuple[Root, ...] = ("BINARY", "VARBINARY")
TIMESTAMPS: tuple[Root, ...] = ("TIMESTAMP", "TIMESTAMP_LTZ")
INTERVALS: tuple[Root, ...] = ("INTERVAL_YEAR_MONTH", "INTERVAL_DAY_TIME")
NESTED: tuple[Root, ...] = ("ARRAY", "MAP", "MULTISET", "ROW")

MOST_DIGITS = 38
_LEAST_SCALE = 6  # that is kept of a result whose digits are more than those
_WIDEST_DECIMAL = SqlType("DECIMAL", (MOST_DIGITS, 19))


def decimal(precision: int, scale: int) -> SqlType:
    """Return a decimal type; one with too many digits loses those behind the point first, down to six of them."""
    if precision > MOST_DIGITS:
        kept = max(MOST_DIGITS - (precision - scale), min(scale, _LEAST_SCALE))
        precision, scale = MOST_DIGITS, kept
    return SqlType("DECIMAL", (precision, scale))


def as_decimal(kind: SqlType) -> tuple[int, int]:
    """Return precision and scale of an exact number."""
    return (DIGITS[kind.root], 0) if kind.root in DIGITS else (kind.sizes[0], kind.sizes[1])


# --- one type for several -----------------------------------------------------------------------------------------------


def common_type(types: Iterable[SqlType], *, to_text: bool = False) -> SqlType | None:
    """Return the least type that holds the values of all of some types, None where there is none.

    Args:
        to_text: whether texts and other types have STRING in common, as in the branches of CASE and in set operations.
    """
    made: SqlType | None = NULL.not_null()
    for each in types:
        made = made and _of_two(made, each, to_text)
    return made


def aligned_types(types: Sequence[SqlType], common: SqlType) -> Sequence[SqlType | None]:
    """Return what each of some types is cast to so that all columns are of one type; None for those that are."""
    return [
        None
        if each.arrow == common.arrow and each.root not in ("CHAR", "BINARY")
        else common.with_null(each.is_nullable)
        for each in types
    ]


def _of_two(a: SqlType, b: SqlType, to_text: bool) -> SqlType | None:
    is_nullable = a.is_nullable or b.is_nullable
    if a.root == "NULL" or b.root == "NULL":
        return (b if a.root == "NULL" else a).with_null(is_nullable)
    made = _merged(a, b, to_text)
    return made and made.with_null(is_nullable)


def _merged(a: SqlType, b: SqlType, to_text: bool) -> SqlType | None:
    if a.root in NUMBERS and b.root in NUMBERS:
        return common_number(a, b)
    for several, varying in ((TEXTS, "VARCHAR"), (BINARIES, "VARBINARY")):
        if a.root in several and b.root in several:
            is_fixed = a.root == b.root != varying and a.sizes == b.sizes
            return a if is_fixed else SqlType("VARCHAR" if several is TEXTS else "VARBINARY", max(a.sizes, b.sizes))
    if a.root in NESTED and a.root == b.root and len(a.of) == len(b.of):
        of = [_of_two(x, y, to_text) for x, y in zip(a.of, b.of, strict=True)]
        return None if None in of else replace(a, of=tuple(each for each in of if each is not None))
    if a.root == b.root:
        return SqlType(a.root, max(a.sizes, b.sizes))
    if {a.root, b.root} <= {"DATE", *TIMESTAMPS}:
        zoned = "TIMESTAMP_LTZ" in (a.root, b.root)
        return SqlType("TIMESTAMP_LTZ" if zoned else "TIMESTAMP", max(a.sizes, b.sizes))
    is_text = a.root in TEXTS or b.root in TEXTS
    return STRING if to_text and is_text and not {a.root, b.root} & {*NESTED, *BINARIES} else None


def common_number(a: SqlType, b: SqlType) -> SqlType:
    """Return the type of two numbers' sum, but that of decimals without the digit that a sum may have more."""
    roots = {a.root, b.root}
    if roots <= set(INTEGERS):
        return SqlType(max(roots, key=INTEGERS.index))
    if roots & set(FLOATS):
        return FLOAT if "DOUBLE" not in roots and "DECIMAL" not in roots else DOUBLE
    (p, s), (q, t) = as_decimal(a), as_decimal(b)
    scale = max(s, t)
    return SqlType("DECIMAL", (min(max(p - s, q - t) + scale, MOST_DIGITS), scale))


def comparison_type(a: SqlType, b: SqlType) -> SqlType | None:
    """Return the type that two values are compared as, None where they are not comparable; a text becomes what it is compared with."""
    if a.root == b.root == "NULL":
        return BOOLEAN.with_null()  # any type would do: the result is NULL
    for one, other in ((a, b), (b, a)):
        if one.root in TEXTS and other.root != "NULL" and other.root not in (*TEXTS, *BINARIES, *NESTED, *INTERVALS):
            return other.with_null(a.is_nullable or b.is_nullable)
    return common_type((a, b))


# --- arithmetic ---------------------------------------------------------------------------------------------------------


def _sum(p: int, s: int, q: int, t: int) -> SqlType:
    scale = max(s, t)
    return decimal(max(p - s, q - t) + scale + 1, scale)


def _product(p: int, s: int, q: int, t: int) -> SqlType:
    return decimal(p + q + 1, s + t)


def _quotient(p: int, s: int, q: int, t: int) -> SqlType:
    scale = max(_LEAST_SCALE, s + q + 1)
    return decimal(p - s + t + scale, scale)


def _remainder(p: int, s: int, q: int, t: int) -> SqlType:
    scale = max(s, t)
    return decimal(min(p - s, q - t) + scale, scale)


_OF_DECIMALS: Mapping[str, Callable[[int, int, int, int], SqlType]] = {
    "+": _sum, "-": _sum, "*": _product, "/": _quotient, "%": _remainder,
}  # fmt: skip


def arithmetic_type(operator: str, a: SqlType, b: SqlType) -> SqlType | None:
    """Return the type of two numbers' sum, difference, product, quotient or remainder, None where one is no number."""
    if a.root not in NUMBERS or b.root not in NUMBERS:
        return None
    is_nullable = a.is_nullable or b.is_nullable
    if "DECIMAL" in (a.root, b.root) and not {a.root, b.root} & set(FLOATS):
        return _OF_DECIMALS[operator](*as_decimal(a), *as_decimal(b)).with_null(is_nullable)
    if operator == "%" and {a.root, b.root} <= set(INTEGERS):
        return b.with_null(is_nullable)
    return common_number(a, b).with_null(is_nullable)


def rounded_type(kind: SqlType, places: int) -> SqlType:
    """Return the type of a decimal rounded to so many places behind the point."""
    precision, scale = kind.sizes
    if places >= scale:
        return kind
    if places < 0:
        return SqlType("DECIMAL", (min(MOST_DIGITS, 1 + precision - scale), 0), is_nullable=kind.is_nullable)
    return SqlType("DECIMAL", (1 + precision - scale + places, places), is_nullable=kind.is_nullable)


def number_of_text(other: SqlType) -> SqlType:
    """Return the type that a text becomes which is added to a number."""
    return (_WIDEST_DECIMAL if other.root == "DECIMAL" else other).with_null()


# --- casts --------------------------------------------------------------------------------------------------------------

_INTO: Mapping[Root, frozenset[Root]] = {
    "BOOLEAN": frozenset({"BOOLEAN", *TEXTS, *INTEGERS}),
    **dict.fromkeys((*INTEGERS, "DECIMAL", *FLOATS), frozenset({"BOOLEAN", *TEXTS, *NUMBERS})),
    **dict.fromkeys(BINARIES, frozenset({*TEXTS, *BINARIES})),
    "DATE": frozenset({"DATE", *TIMESTAMPS, *TEXTS}),
    "TIME": frozenset({"TIME", *TIMESTAMPS, *TEXTS}),
    **dict.fromkeys(TIMESTAMPS, frozenset({"DATE", "TIME", *TIMESTAMPS, *TEXTS})),
    "INTERVAL_YEAR_MONTH": frozenset({"INTERVAL_YEAR_MONTH"}),
    "INTERVAL_DAY_TIME": frozenset({"INTERVAL_DAY_TIME"}),
}


def can_cast(a: SqlType, b: SqlType) -> bool:
    """Return whether CAST takes a value of the first type to the second one."""
    if a.root == "NULL" or b.root in TEXTS:
        return True
    if b.root in NESTED:
        return a.root == b.root and len(a.of) == len(b.of) and all(map(can_cast, a.of, b.of))
    return a.root in _INTO.get(b.root, ())


def longest(types: Sequence[SqlType]) -> int:
    """Return the sum of texts' lengths, at most that of STRING."""
    return min(sum(each.sizes[0] for each in types), LONGEST)
