"""Rows as a table takes them: its columns with its types, by whole columns; rows that do not fit are separated, with the reason.

Nothing is cut or rounded to fit: a number that is too large, or a time with more digits than microseconds, is a row that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError, PoundlockError
from poundlock.formats import ddl


@dataclass(frozen=True)
class RowRules:
    """What rows have to be like.

    Args:
        schema: the table's columns.
        partition_by: those of its partitions.
        key: columns that must not be null, because rows are merged by them.
        delete_when: the column that says which rows are deleted; None = none. Of such a row only the key counts.
        columns: which of the rows' columns are written; None = all.
        merge_schema: whether columns that the table does not have are added to it.
        sink: its name, for errors.
    """

    schema: pa.Schema
    partition_by: Sequence[str]
    key: Sequence[str]
    delete_when: str | None
    columns: Sequence[str] | None
    merge_schema: bool
    sink: str

    def target(self, given: pa.Schema, wrong: type[PoundlockError] = DefinitionError) -> pa.Schema:
        """Return the columns that rows are written with. Raises an error of that class where they do not go into the table."""
        names = [name for name in (self.columns or given.names) if name != self.delete_when]
        new = [name for name in names if name not in self.schema.names]
        if new and not self.merge_schema:
            raise wrong(
                f"sink {self.sink!r}: the Delta table has no column {new[0]!r}; it has {', '.join(self.schema.names)}",
                next="name the columns that are written in columns=, or have it added: merge_schema=True",
            )
        for name in names:
            if name not in new:
                self._check(name, given.field(name).type, self.schema.field(name).type, wrong)
        kept = [each for each in self.schema if not self.key or each.name in names]
        missing = [each.name for each in self.schema if not each.nullable and each.name not in names]
        if missing:
            raise wrong(
                f"sink {self.sink!r}: column {missing[0]!r} of the Delta table must not be null, and the rows do not have it",
                next="give the rows that column",
            )
        added = [given.field(name) for name in new if not pa.types.is_null(given.field(name).type)]
        return pa.schema([*kept, *(pa.field(each.name, ddl.parse_type(ddl.render_type(each.type))) for each in added)])

    def _check(self, name: str, given: pa.DataType, wanted: pa.DataType, wrong: type[PoundlockError]) -> None:
        if not goes_into(given, wanted):
            raise wrong(
                f"sink {self.sink!r}: column {name!r} of the Delta table is {ddl.render_type(wanted)}, and that of the rows is {given}",
                next=f'cast it before the sink, such as select("CAST({name} AS {ddl.render_type(wanted)}) AS {name}")',
            )


def goes_into(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of a type can be those of another without a change; each is still looked at where the other is narrower."""
    t = pa.types
    if t.is_dictionary(given):
        return goes_into(given.value_type, wanted)
    if given == wanted or t.is_null(given):
        return True
    if t.is_integer(wanted):
        return bool(t.is_integer(given))
    if t.is_floating(wanted):
        return bool(t.is_floating(given) and given.bit_width <= wanted.bit_width)
    if t.is_decimal(wanted):
        return bool(t.is_decimal(given))
    if t.is_timestamp(wanted):
        return bool(t.is_timestamp(given) and (given.tz is None) == (wanted.tz is None))
    for alike in (_is_text, _is_bytes, t.is_date):
        if alike(wanted):
            return bool(alike(given))
    if t.is_list(wanted):
        return bool((t.is_list(given) or t.is_large_list(given)) and goes_into(given.value_type, wanted.value_type))
    if t.is_map(wanted):
        return bool(
            t.is_map(given)
            and goes_into(given.key_type, wanted.key_type)
            and goes_into(given.item_type, wanted.item_type)
        )
    if t.is_struct(wanted) and t.is_struct(given):
        fields = {each.name: each.type for each in given}
        return set(fields) == {each.name for each in wanted} and all(
            goes_into(fields[each.name], each.type) for each in wanted
        )
    return False


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind) or t.is_binary_view(kind))


def fitted(batch: pa.RecordBatch, target: pa.Schema, rules: RowRules) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return rows with the columns of a target, and which of them do not fit, by their number, and why: they are still among the rows.

    A column that the rows do not have is null.
    """
    bad: dict[int, str] = {}
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    gone = None
    if rules.delete_when is not None:
        gone = pc.fill_null(given[rules.delete_when].cast(pa.bool_()), False)
    columns = []
    for field in target:
        column = given.get(field.name)
        made = pa.nulls(batch.num_rows, field.type) if column is None else _cast(column, field, bad)
        if field.name in rules.key or not field.nullable:
            _refuse(
                bad,
                _null(made, None if field.name in rules.key else gone),
                f"column {field.name!r} is null, and must not be",
            )
        if field.name in rules.partition_by and pa.types.is_string(field.type):
            empty = pc.fill_null(pc.equal(made, ""), False)
            _refuse(bad, empty, f"column {field.name!r} is an empty text, which Delta takes for null in a partition")
        columns.append(made)
    schema = pa.schema([each.with_nullable(True) for each in target])
    if gone is not None:
        columns.append(gone)
        schema = schema.append(pa.field(str(rules.delete_when), pa.bool_()))
    return pa.RecordBatch.from_arrays(columns, schema=schema), bad


def _null(column: pa.Array, gone: pa.Array | None) -> pa.Array:
    null = pc.is_null(column)
    return null if gone is None else pc.and_(null, pc.invert(gone))


def _refuse(bad: dict[int, str], rows: pa.Array, why: str) -> None:
    for row in pc.indices_nonzero(rows).to_pylist():
        bad.setdefault(row, why)


def _cast(column: pa.Array, field: pa.Field, bad: dict[int, str]) -> pa.Array:
    """Return a column as another type; a value that does not fit is null, and its row is bad."""
    if column.type == field.type:
        return column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return pa.chunked_array(_pieces(column, field, bad, 0), field.type).combine_chunks()


def _pieces(column: pa.Array, field: pa.Field, bad: dict[int, str], first: int) -> list[pa.Array]:
    """Return the pieces of a column, cast; those that are refused are cut by halves until a row is found."""
    try:
        return [column.cast(field.type)]
    except pa.ArrowInvalid as error:
        if len(column) == 1:
            bad.setdefault(first, f"column {field.name!r}: {str(error).splitlines()[0]}")
            return [pa.nulls(1, field.type)]
    half = len(column) // 2
    return [*_pieces(column.slice(0, half), field, bad, first), *_pieces(column.slice(half), field, bad, first + half)]
