"""Rows as the records that a user's function asks for, and what it returns as dicts again.

An object is made of the values of the columns that its class names, and of no others; nothing is made of a row twice.
"""

from __future__ import annotations

import datetime
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from functools import lru_cache, partial
from itertools import starmap
from operator import attrgetter, itemgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, NewType, Union, get_args, get_origin

import pyarrow as pa

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.formats import ddl
from poundlock.formats.chunk import Batch, Chunk
from poundlock.formats.convert import column_values, dict_of_values, to_records
from poundlock.formats.object_rows import ObjectRows
from poundlock.stream.functions.records import (
    RecordField,
    RecordType,
    is_named_tuple,
    is_protocol,
    is_struct,
    record_fields,
)

_KEPT = 256  # classes, of which a process keeps how their objects are read


@dataclass(frozen=True)
class RecordMaker:
    """Makes records of the values of columns. Picklable.

    Args:
        columns: whose values are needed, in the order in which they are given.
        cls: what is made: dict, tuple or a class.
        arguments: of the class, where they are given by name.
    """

    columns: tuple[str, ...]
    cls: type = dict
    arguments: tuple[str, ...] | None = None

    def of_columns(self, values: Sequence[Sequence[Any]], count: int) -> Iterator[Any]:
        """Yield the records of so many rows, given the values of each column."""
        if not values:
            return (self.cls() for _ in range(count))
        if self.cls is dict:
            return map(self._call, *values)
        return self._of_tuples(zip(*values, strict=True))

    def _of_tuples(self, values: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield the records of rows, given the values of each."""
        if self.cls is tuple:
            return values
        if self.cls.__bases__ == (tuple,) and self.arguments is None and len(self.columns) == len(self.cls._fields):  # type: ignore[attr-defined]
            # A NamedTuple, whose own constructor is written in Python, and knows defaults.
            return map(partial(tuple.__new__, self.cls), values)
        return starmap(self._call, values)

    def of_batch(self, batch: pa.RecordBatch) -> Iterator[Any]:
        """Yield the records of a batch."""
        return self.of_columns([column_values(batch.column(name)) for name in self.columns], batch.num_rows)

    def of_chunk(self, chunk: Chunk) -> Iterator[Any]:
        """Yield the records of a chunk, whose rows have the columns."""
        if isinstance(chunk, Batch):
            return self.of_batch(chunk.batch)
        rows = to_records(chunk).rows
        if not self.columns:
            return self.of_columns((), len(rows))
        if isinstance(rows, ObjectRows) and (given := rows.values(self.columns)) is not None:
            return self._of_tuples(given)
        if len(self.columns) == 1:  # itemgetter gives no tuple of one
            return self.of_columns([[row[name] for row in rows] for name in self.columns], len(rows))
        return self._of_tuples(map(itemgetter(*self.columns), rows))

    @property
    def _call(self) -> Callable[..., Any]:
        if self.cls is dict:
            return dict_of_values(self.columns)
        if self.arguments is None:
            return self.cls
        cls, names = self.cls, self.arguments
        return lambda *values: cls(**dict(zip(names, values, strict=True)))


def record_maker(
    wanted: RecordType | None, schema: pa.Schema | None, step: str, columns: Iterable[str] | None = None
) -> RecordMaker | None:
    """Return what makes the records that a function asks for; None = dicts of the columns that there are.

    Args:
        schema: the columns of its input, None where they are not known.
        step: the id of the step, for errors.
        columns: those of dicts; None = whatever there are.

    Raises:
        DefinitionError: a field is no column, or a column's values are of another type.
    """
    if wanted is None:
        return None if columns is None else RecordMaker(tuple(columns))
    if schema is None:
        raise DefinitionError(
            f"{step}: it asks for {wanted.cls.__name__}, and the columns of its input are not known",
            next="declare them: map(…, schema=…), or let it take a dict",
        )
    if wanted.cls is tuple:
        return _tuple_maker(wanted, schema, step)
    own = record_fields(wanted.cls)
    given = [field for field in own if field.required or field.column in schema.names]
    for field in given:
        _check_field(field, wanted.cls.__name__, schema, step)
    by_name = given != own[: len(given)] or any(field.by_name for field in given)
    arguments = tuple(field.argument for field in given) if by_name else None
    return RecordMaker(tuple(field.column for field in given), wanted.cls, arguments)


def _tuple_maker(wanted: RecordType, schema: pa.Schema, step: str) -> RecordMaker:
    items = wanted.items
    if items is not None and len(items) != len(schema):
        raise DefinitionError(
            f"{step}: it asks for a tuple of {len(items)} values, and there are {len(schema)} columns: {', '.join(schema.names)}",
            next="annotate as many types as there are columns, or use a NamedTuple, which may name some of them",
        )
    for number, (item, column) in enumerate(zip(items or (), schema, strict=False), 1):
        if not _fits(column.type, item):
            raise _misfit(step, f"value {number} of its tuple", item, column)
    return RecordMaker(tuple(schema.names), tuple)


def _check_field(field: RecordField, cls: str, schema: pa.Schema, step: str) -> None:
    if field.column not in schema.names:
        raise DefinitionError(
            f"{step}: {cls} asks for {field.column!r}, which is no column; there are {', '.join(schema.names)}",
            next=did_you_mean(field.column, schema.names, "give the field a default, or take it out", show=repr),
        )
    column = schema.field(field.column)
    if not _fits(column.type, field.annotation):
        raise _misfit(step, f"{field.argument!r} of {cls}", field.annotation, column)


def _misfit(step: str, what: str, annotation: Any, column: pa.Field) -> DefinitionError:
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return DefinitionError(
        f"{step}: {what} is annotated as {name}, and the values of the column {column.name!r} ({ddl.render_type(column.type)}) are {_python(column.type).__name__}",
        next=f"annotate it as {_python(column.type).__name__}, or cast the column before",
    )


def _python(kind: pa.DataType) -> type:
    """Return the type of the Python values of a column; object where it is not known."""
    tests: Sequence[tuple[Callable[[pa.DataType], bool], type]] = (
        (pa.types.is_boolean, bool),
        (pa.types.is_integer, int),
        (pa.types.is_floating, float),
        (pa.types.is_decimal, Decimal),
        (pa.types.is_string, str),
        (pa.types.is_large_string, str),
        (pa.types.is_binary, bytes),
        (pa.types.is_large_binary, bytes),
        (pa.types.is_date, datetime.date),
        (pa.types.is_timestamp, datetime.datetime),
        (pa.types.is_time, datetime.time),
        (pa.types.is_duration, datetime.timedelta),
        (pa.types.is_map, dict),
        (pa.types.is_struct, dict),
        (pa.types.is_list, list),
        (pa.types.is_large_list, list),
    )
    return next((python for test, python in tests if test(kind)), object)


def _fits(kind: pa.DataType, annotation: Any) -> bool:
    """Return whether a column's values are of an annotated type; a null is None in any case, and what is not known fits."""
    value = _python(kind)
    if annotation is Any:  # a class, on newer Pythons
        return True
    if value is object or annotation is NoneType:
        return value is object
    if isinstance(annotation, NewType):
        return _fits(kind, annotation.__supertype__)
    origin = get_origin(annotation)
    if origin is Annotated:
        return _fits(kind, get_args(annotation)[0])
    if origin in (Union, UnionType):
        return any(_fits(kind, member) for member in get_args(annotation))
    if origin is Literal:
        return any(isinstance(member, value) for member in get_args(annotation))
    wanted = origin or annotation
    if not isinstance(wanted, type) or is_protocol(wanted):
        return True
    if typing.is_typeddict(wanted):
        return value is dict
    return issubclass(value, wanted) or (wanted is float and value is int)


def record_of(values: dict[str, Any], wanted: RecordType) -> Any:
    """Return one record of the values of its columns by name; a field that is not among them has its default."""
    if wanted.cls is tuple:
        return tuple(values.values())
    return wanted.cls(
        **{each.argument: values[each.column] for each in record_fields(wanted.cls) if each.column in values}
    )


# --- what a function returns -------------------------------------------------------------------------------------------


def record_reader(cls: type) -> Callable[[Any], dict[str, Any]] | None:
    """Return what makes a dict of an object of a class, column to value; None where the class is no type of record."""
    return _record_reader(cls)


@lru_cache(_KEPT)
def _record_reader(cls: type) -> Callable[[Any], dict[str, Any]] | None:
    if cls is tuple or not isinstance(cls, type):
        return None
    if is_named_tuple(cls):
        of_values = dict_of_values(cls._fields)  # type: ignore[attr-defined]
        return lambda row: of_values(*row)
    if is_struct(cls):
        names = zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True)  # type: ignore[attr-defined]
    elif is_dataclass(cls):
        names = zip(*[[field.name for field in fields(cls)]] * 2, strict=True)
    else:
        return None
    body = ", ".join(f"{column!r}: row.{attribute}" for column, attribute in names)
    made: Callable[[Any], dict[str, Any]] = eval(f"lambda row: {{{body}}}")
    return made


def struct_rows(rows: list[Any], names: Sequence[str]) -> ObjectRows | None:
    """Return Structs of one class that has just these columns as rows; None where they are not, or are written otherwise than a dict."""
    kinds = set(map(type, rows))
    written = _written_like_dicts(kinds.pop()) if len(kinds) == 1 else None
    if written is None or written.columns.keys() != set(names):
        return None
    if any("UnsetType" in {kind.__name__ for kind in set(map(type, map(attrgetter(a), rows)))} for a in written.unsure):
        return None
    return ObjectRows(rows, written.columns, lambda: as_dicts(rows, names), alike=True)


class _StructColumns(NamedTuple):
    """A Struct that is written like a dict: its attributes by column, and those that may hold UNSET, which is left out, for all we know."""

    columns: dict[str, str]
    unsure: list[str]


@lru_cache(_KEPT)
def _written_like_dicts(cls: type) -> _StructColumns | None:
    """Return how a Struct is written; None where msgspec writes its objects otherwise than a dict of them."""
    if not is_struct(cls):
        return None
    config = cls.__struct_config__  # type: ignore[attr-defined]
    if config.array_like or config.tag is not None or config.omit_defaults:
        return None
    names: Sequence[str] = cls.__struct_fields__  # type: ignore[attr-defined]
    fields_of = {each.argument: each.annotation for each in record_fields(cls)}
    columns = dict(zip(cls.__struct_encode_fields__, names, strict=True))  # type: ignore[attr-defined]
    return _StructColumns(columns, [name for name in names if not _is_sure(fields_of.get(name, Any))])


def _is_sure(annotation: Any) -> bool:
    """Return whether an annotation says of what classes values are, and that UNSET is none."""
    if get_origin(annotation) in (Union, UnionType):
        return all(map(_is_sure, get_args(annotation)))
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and kind is not object and kind is not Any and kind.__name__ != "UnsetType"


def as_dict(row: Any, names: Sequence[str]) -> Any:
    """Return a record of any type as a dict, a tuple by the names of the columns; what is none, or of another length, as it is."""
    if type(row) is tuple:
        return dict(zip(names, row, strict=True)) if len(row) == len(names) else row
    read = record_reader(type(row))
    return row if read is None else read(row)


def as_dicts(rows: list[Any], names: Sequence[str]) -> list[Any]:
    """Return records as dicts; those of one class at once."""
    kinds = set(map(type, rows))
    if kinds == {dict} or not kinds:
        return rows
    if kinds == {tuple} and set(map(len, rows)) == {len(names)}:
        return list(starmap(dict_of_values(tuple(names)), rows))
    if len(kinds) == 1 and (read := record_reader(kinds.pop())) is not None:
        return list(map(read, rows))
    return [row if type(row) is dict else as_dict(row, names) for row in rows]
