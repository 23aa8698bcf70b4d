"""Defaults of a schema as values that are read: fastavro puts in what stands in the schema, which is JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"millis": 1000, "micros": 1}


def with_read_defaults(schema: Any) -> Any:
    """Return a schema, as `parsed_schema` returns it, whose defaults are values as fastavro reads them. It is good for reading alone."""
    if isinstance(schema, list):
        return [with_read_defaults(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    for inner in ("items", "values", "type"):
        if isinstance(schema.get(inner), list | Mapping):
            made[inner] = with_read_defaults(schema[inner])
    if "fields" in schema:
        made["fields"] = [_field(each) for each in schema["fields"]]
    return made


def _field(field: Mapping[str, Any]) -> dict[str, Any]:
    made = {**field, "type": with_read_defaults(field["type"])}
    if "default" in field:
        made["default"] = _value(field["type"], field["default"])
    return made


def _value(schema: Any, default: Any) -> Any:
    """Return a default as it would be read."""
    if isinstance(schema, list):  # of a union it is one of its first type, by the rules of Avro
        return _value(schema[0], default) if schema else default
    if not isinstance(schema, Mapping):
        return default.encode("latin-1") if schema == "bytes" else default
    base, logical = schema["type"], schema.get("logicalType")
    if base == "record":
        known = {each["name"]: each for each in schema["fields"]}
        return {
            name: _value(each["type"], default[name] if name in default else each["default"])
            for name, each in known.items()
        }
    if base == "array":
        return [_value(schema["items"], item) for item in default]
    if base == "map":
        return {key: _value(schema["values"], item) for key, item in default.items()}
    if logical is None:
        return default.encode("latin-1") if base in ("bytes", "fixed") else default
    return _logical(str(logical), schema, default)


def _logical(logical: str, schema: Mapping[str, Any], default: Any) -> Any:
    if logical == "date":
        return _DAY + timedelta(days=default)
    if logical == "decimal":
        number = int.from_bytes(default.encode("latin-1"), "big", signed=True)
        return Decimal(number).scaleb(-int(schema.get("scale", 0)))
    name, _, unit = logical.rpartition("-")
    factor = _UNITS.get(unit)
    if factor is None or name not in ("timestamp", "local-timestamp", "time"):
        return default
    moment = _EPOCH + timedelta(microseconds=default * factor)
    if name == "time":
        return time(moment.hour, moment.minute, moment.second, moment.microsecond)
    return moment if name == "timestamp" else moment.replace(tzinfo=None)
