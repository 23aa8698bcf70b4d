"""Whether the records that a user's function gave hold what its schema declares.

Records that go on as they are, such as into JSON, are never made columns: nobody behind would see a text among numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import date, datetime
from operator import itemgetter
from types import NoneType
from typing import Any

import pyarrow as pa

from poundlock.errors import TerminalError
from poundlock.formats.chunk import Records
from poundlock.formats.object_rows import ObjectRows

_OF_JSON: Set[type] = {str, bytes, bool, int, float, list, tuple, dict}
"""What JSON writes as it is. A value of another type, such as an Enum or a UUID, is what its own type makes of it."""
_WHOLE: Set[type] = {int}
_TAKEN: Mapping[int, Set[type]] = {
    **{kind.id: _WHOLE for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind.id: {float, int} for kind in (pa.float32(), pa.float64())},
    pa.string().id: {str},
    pa.bool_().id: {bool},
    pa.binary().id: {bytes},
    pa.timestamp("us").id: {datetime},
    pa.date32().id: {date},
}
"""Of each type, which of those it takes; arrays, structs, maps and decimals are left to who writes them."""


def check_declared_types(operator: str, records: Records, schema: pa.Schema) -> None:
    """Raise unless the plain values of every plain column are of its type, by one look in C at each value.

    Args:
        operator: what gave them, for errors.
        records: each has all columns.
        schema: what was declared.

    Raises:
        TerminalError: a value does not fit; names the column and the place of the row.
    """
    for field in schema:
        taken = _TAKEN.get(field.type.id)
        if taken is not None and not _all_fit(records, field, taken):
            row, value = next(
                (row, value)
                for row, value in enumerate(_values(records, field.name))
                if not _fits({type(value)}, field, taken)
                or (taken is _WHOLE and type(value) is int and not _within([value], field))
            )
            place = ", ".join(f"{name} {value}" for name, value in records.where(row).items())
            what = f"column {field.name!r}: {value!r:.100} is no {field.type}"
            raise TerminalError(
                f"{operator} gave a record that does not fit: {what}{place and f'; it was made of {place}'}",
                next='make its values fit the declared schema, change the schema, or give on_error="bad_record"',
            )


def _all_fit(records: Records, field: pa.Field, taken: Set[type]) -> bool:
    kinds = set(map(type, _values(records, field.name)))
    if not _fits(kinds, field, taken):
        return False
    if taken is not _WHOLE or int not in kinds:
        return True
    values = _values(records, field.name)
    return _within(list(values) if len(kinds) == 1 else [value for value in values if type(value) is int], field)


def _fits(kinds: Set[type], field: pa.Field, taken: Set[type]) -> bool:
    return not ((kinds & _OF_JSON) - taken) and (field.nullable or NoneType not in kinds)


def _within(numbers: Sequence[int], field: pa.Field) -> bool:
    """Return whether whole numbers, one at least, are not too large for a type."""
    bound = 1 << (field.type.bit_width - 1)
    return bool(min(numbers) >= -bound and max(numbers) < bound)


def _values(records: Records, name: str) -> Iterator[Any]:
    rows = records.rows
    if isinstance(rows, ObjectRows) and (values := rows.column(name)) is not None:
        return values
    return map(itemgetter(name), rows)
