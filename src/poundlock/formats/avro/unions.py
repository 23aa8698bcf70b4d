"""Unions of several types as columns: a struct with a field for each, `member0`, `member1` and so on, of which one is not null, as Spark reads them.

Whole numbers of two sizes are one column of the larger one, and so are floating point numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from poundlock.errors import DefinitionError

Change = Callable[[Any], Any]
"""What makes one value of another; never called with null."""

RECORD_NAMES = {"return_record_name": True, "return_record_name_override": True}
"""What fastavro is asked for: a record in a union of several types comes with its name."""

_NUMBERS = ({"int", "long"}, {"float", "double"})
_PYTHON: Mapping[str, type] = {
    "boolean": bool, "int": int, "long": int, "float": float, "double": float, "string": str, "bytes": bytes,
    "enum": str, "fixed": bytes, "array": list, "map": dict,
}  # fmt: skip
_LOGICAL: Mapping[str, type] = {
    "date": date, "decimal": Decimal, "time-millis": time, "time-micros": time, "timestamp-millis": datetime,
    "timestamp-micros": datetime, "local-timestamp-millis": datetime, "local-timestamp-micros": datetime,
}  # fmt: skip


def members(union: Sequence[Any]) -> list[Any]:
    """Return the types of a union but null."""
    return [each for each in union if each != "null"]


def widest(union: Sequence[Any]) -> str | None:
    """Return the type that can hold all numbers of a union; None where it is no union of such."""
    words = members(union)
    if len(words) > 1 and all(isinstance(each, str) for each in words):
        for numbers in _NUMBERS:
            if set(words) <= numbers:
                return "long" if "long" in numbers else "double"
    return None


def check_apart(union: Sequence[Any], place: str) -> None:
    """Raise DefinitionError where values of two types of a union look alike once they are read."""
    kinds = [_python(each) for each in members(union)]
    if len(set(kinds)) < len(kinds):
        raise DefinitionError(
            f"field {place!r} is a union of types whose values look alike", next="read it by another schema"
        )


def _python(schema: Any) -> type | str:
    """Return what values of a type are as Python has them; of records, their name."""
    base = _base(schema)
    if base == "record":
        return str(schema["name"])
    logical = schema.get("logicalType") if isinstance(schema, Mapping) else None
    return _LOGICAL.get(str(logical)) or _PYTHON[base]


def to_columns(schema: Any) -> Change | None:
    """Return what makes a value as it is read one that columns take; None where none of them has a union.

    Args:
        schema: as `parsed_schema` returns it; records are read with their names where a union has several types.
    """
    if isinstance(schema, list):
        return _of_union(schema)
    if not isinstance(schema, Mapping):
        return None
    return _within(schema, to_columns)


def to_values(schema: Any) -> Change | None:
    """Return what makes a value of columns one that is written; None where none has a union."""
    if isinstance(schema, list):
        return _to_union(schema)
    if not isinstance(schema, Mapping):
        return None
    return _within(schema, to_values)


def _within(schema: Mapping[str, Any], change: Callable[[Any], Change | None]) -> Change | None:
    """Return a change of the values within a value."""
    base = schema["type"]
    if base == "record":
        changes = {each["name"]: made for each in schema["fields"] if (made := change(each["type"])) is not None}
        return _of_fields(changes) if changes else None
    if base in ("array", "map"):
        inner = change(schema["items" if base == "array" else "values"])
        if inner is None:
            return None
        return _of_items(inner) if base == "array" else _of_entries(inner)
    return change(base) if isinstance(base, list | Mapping) else None


def _of_fields(changes: Mapping[str, Change]) -> Change:
    def change(row: Any) -> Any:
        return {**row, **{name: of(row[name]) for name, of in changes.items() if row.get(name) is not None}}

    return change


def _of_items(of: Change) -> Change:
    return lambda items: [None if item is None else of(item) for item in items]


def _of_entries(of: Change) -> Change:
    return lambda items: {key: None if item is None else of(item) for key, item in items.items()}


def _of_union(union: Sequence[Any]) -> Change | None:
    types = members(union)
    if len(types) == 1:
        return to_columns(types[0])
    if widest(union) is not None:
        return None
    places = {_python(each): place for place, each in enumerate(types)}
    inner = [to_columns(each) for each in types]

    def change(value: Any) -> Any:
        # A record comes with its name, since several may be of one shape.
        kind, value = value if isinstance(value, tuple) else (type(value), value)
        place = _record_of(types, value) if kind is dict else places[kind]
        of = inner[place]
        return {f"member{place}": value if of is None else of(value)}

    return change


def _record_of(types: Sequence[Any], value: Mapping[str, Any]) -> int:
    """Return which type of a union a record or a map is: between two schemas fastavro leaves the name out, and the fields say it.

    Raises:
        ValueError: several types have these fields.
    """
    names = set(value)
    records = [
        place
        for place, each in enumerate(types)
        if _base(each) == "record" and {field["name"] for field in each["fields"]} == names
    ]
    records = records or [place for place, each in enumerate(types) if _base(each) == "map"]
    if len(records) != 1:
        raise ValueError(f"a union has {len(records) or 'no'} types with the fields {', '.join(sorted(names))}")
    return records[0]


def _base(schema: Any) -> Any:
    return schema["type"] if isinstance(schema, Mapping) else schema


def _to_union(union: Sequence[Any]) -> Change | None:
    types = members(union)
    if len(types) == 1:
        return to_values(types[0])
    if widest(union) is not None:
        return None
    # What stands in a tuple names the type for fastavro: a record by its name, another one by itself.
    marks = [each["name"] if isinstance(each, Mapping) and each["type"] == "record" else each for each in types]
    inner = [to_values(each) for each in types]

    def change(value: Any) -> Any:
        given = [place for place in range(len(types)) if value.get(f"member{place}") is not None]
        if len(given) != 1:
            raise ValueError(f"{len(given)} members of a union are not null, and one must be")
        (place,) = given
        of, held = inner[place], value[f"member{place}"]
        return marks[place], held if of is None else of(held)

    return change
