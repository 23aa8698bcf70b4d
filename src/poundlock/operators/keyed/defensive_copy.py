"""Values that nobody else holds: what a user's function gave, as it was at that moment.

Rows wait in a collector while the function goes on changing its state; without this a row would change with it.
"""

from __future__ import annotations

from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_FIXED = frozenset({type(None), bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta})


def detached(value: Any) -> Any:
    """Return a value that stays as it is now, whatever is done to this one and what it holds."""
    kind = type(value)
    if kind is dict:
        # Most records are flat; the test runs at the speed of C.
        return value.copy() if _FIXED.issuperset(map(type, value.values())) else _each(value)
    if kind in _FIXED:
        return value
    if kind is list:
        return value.copy() if _FIXED.issuperset(map(type, value)) else [detached(item) for item in value]
    if kind is tuple:
        return tuple([detached(item) for item in value])
    return deepcopy(value)


def _each(value: dict[Any, Any]) -> dict[Any, Any]:
    return {key: detached(item) for key, item in value.items()}
