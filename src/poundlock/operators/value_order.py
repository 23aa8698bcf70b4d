"""The order of single values, which is that of whole columns (`columns.sql.ordinals`), and which of them are one value.

NaN is the greatest number, and equals itself. A struct, which is a dict, goes by its fields in turn, a list by its items, and of two of which
one begins with the other the shorter is before; within them a null is before every value. Maps, which are dicts too, have no order:
where one is asked for, the plan refuses them.
"""

from __future__ import annotations

import math
from typing import Any

from poundlock.operators.keyed.codec import encode_key

NESTED = frozenset({list, tuple, dict})


def compare(one: Any, other: Any) -> int:
    """Return a number below, equal to or above 0, as a value is before, equal to or behind another; neither is null."""
    if type(one) not in NESTED:
        return int(one != one) - int(other != other) or int(one > other) - int(one < other)
    if type(one) is dict:  # a function may have named the fields in another order
        one, other = list(one.values()), [other.get(name) for name in one]
    for here, there in zip(one, other, strict=False):
        sign = int(there is None) - int(here is None) if here is None or there is None else compare(here, there)
        if sign:
            return sign
    return len(one) - len(other)


def distinct_key(value: Any) -> Any:
    """Return what is in a dict where an equal value is; the value is not null."""
    if value != value or type(value) in NESTED:
        return encode_key(_canonical(value))
    return value


def _canonical(value: Any) -> Any:
    """Return one value for all that are equal: there is one NaN and one zero, and entries of a dict have one order."""
    kind = type(value)
    if kind is float:
        return math.nan if value != value else value + 0.0
    if kind is dict:
        entries = [(_canonical(key), _canonical(item)) for key, item in value.items()]
        return dict(sorted(entries, key=lambda entry: encode_key(entry[0])))
    return [_canonical(item) for item in value] if kind in NESTED else value
