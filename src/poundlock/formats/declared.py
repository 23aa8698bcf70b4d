"""Whether the records that a user's function gave hold what its schema declares.

Records that go on as they are, such as into JSON, are never made columns: nobody behind would see a text among numbers.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from types import NoneType
from typing import Any

import pyarrow as pa

from poundlock.errors import TerminalError
from poundlock.formats.chunk import Records
from poundlock.formats.convert import dict_of_values, to_batch
from poundlock.formats.object_rows import ObjectRows
from poundlock.formats.reject import Reject

_PLAIN: Mapping[int, type] = {
    **{kind.id: int for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    pa.float64().id: float,
    pa.string().id: str,
    pa.bool_().id: bool,
    pa.binary().id: bytes,
    pa.timestamp("us").id: datetime.datetime,
    pa.date32().id: datetime.date,
}


def check_declared_types(operator: str, records: Records, schema: pa.Schema) -> None:
    """Raise unless the values of every column are of its type, by two looks in C at each; only what is not plain costs more.

    Args:
        operator: what gave them, for errors.
        records: each has all columns.
        schema: what was declared.

    Raises:
        TerminalError: a value does not fit; names the column and the place of the row.
    """
    odd = [field for field in schema if not _is_plain(lambda name=field.name: _values(records, name), field)]  # type: ignore[misc]
    if odd and len(records.rows):
        columns = [list(_values(records, field.name)) for field in odd]
        rows = list(map(dict_of_values(tuple(field.name for field in odd)), *columns))
        bad: list[Reject] = []
        to_batch(Records(rows, records.origin, records.index), pa.schema(odd), bad.append)
        if bad:
            place = ", ".join(f"{name} {value}" for name, value in bad[0].where.items())
            raise TerminalError(
                f"{operator} gave a record that does not fit: {bad[0].reason}{place and f'; it was made of {place}'}",
                next='make its values fit the declared schema, change the schema, or give on_error="bad_record"',
            )


def _values(records: Records, name: str) -> Iterator[Any]:
    rows = records.rows
    if isinstance(rows, ObjectRows) and (values := rows.column(name)) is not None:
        return values
    return map(itemgetter(name), rows)


def _is_plain(values: Callable[[], Iterator[Any]], field: pa.Field) -> bool:
    """Return whether all values of a column are of the one Python type that its own is made of."""
    kinds = set(map(type, values()))
    nulls = NoneType in kinds
    if nulls:
        kinds.discard(NoneType)
    if (nulls and not field.nullable) or (kinds and kinds != {_PLAIN.get(field.type.id)}):
        return False
    if kinds != {int}:
        return True
    numbers = [value for value in values() if value is not None] if nulls else list(values())
    bound = 1 << (field.type.bit_width - 1)
    return bool(min(numbers) >= -bound and max(numbers) < bound)
