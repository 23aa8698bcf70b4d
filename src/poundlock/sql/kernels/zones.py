"""Local times and instants, both as microseconds since 1970, by the rules of a time zone.

A local time that is there twice is the earlier one; one that a clock skips is moved on by what it skips. Java has the same rules.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.sql.kernels.columns import by_value, numbers

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def local_of(instants: pa.Array, zone: tzinfo) -> pa.Array:
    """Return the local times of instants, as timestamps of the same unit without a zone."""
    unit = instants.type.unit
    if zone is UTC:
        return pc.cast(instants, pa.timestamp(unit))
    return pc.local_timestamp(pc.cast(instants, pa.timestamp(unit, _name(zone))))


def instants_of(local: pa.Array, zone: tzinfo) -> pa.Array:
    """Return the instants of local times, as timestamps of the same unit in UTC."""
    unit = local.type.unit
    if zone is UTC:
        return pc.cast(local, pa.timestamp(unit, "UTC"))
    try:
        made = pc.assume_timezone(local, _name(zone), ambiguous="earliest", nonexistent="raise")
    except pa.ArrowInvalid:
        return by_value(
            local, lambda values: numbers([_instant(v, zone) for v in values], pa.timestamp("us", "UTC"), "i8")
        )
    return pc.cast(made, pa.timestamp(unit, "UTC"))


def _instant(local: datetime, zone: tzinfo) -> int:
    return (local.replace(tzinfo=zone, fold=0).astimezone(UTC).replace(tzinfo=None) - _EPOCH) // _MICROSECOND


def _name(zone: tzinfo) -> str:
    """Return what Arrow calls a zone: an offset without UTC before it."""
    name = str(zone)
    return name.removeprefix("UTC") or "UTC"
