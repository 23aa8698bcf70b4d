"""What a function wants to be given, as the annotation of its first parameter says: a record of some type, or a batch of rows.

A function without an annotation gets a dict, a batch function a `pyarrow.RecordBatch`. An annotation that nothing here can be made
for is refused where the function is given. Neither Arrow nor pandas is loaded to look at one.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from traceback import walk_stack
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin, is_typeddict

from poundlock.arguments import function_name
from poundlock.errors import DefinitionError, missing_package

BatchFormat = Literal["record_batch", "table", "pandas", "polars"]
"""The form in which a batch function is given its rows."""

_BATCHES: Mapping[tuple[str, str], BatchFormat] = {
    ("pyarrow", "RecordBatch"): "record_batch",
    ("pyarrow", "Table"): "table",
    ("pandas", "DataFrame"): "pandas",
    ("polars", "DataFrame"): "polars",
}
_RECORDS = "annotate it with dict, tuple, a NamedTuple, a dataclass or a msgspec.Struct"
_TUPLE_OF_ANY = 2  # tuple[X, ...]


@dataclass(frozen=True)
class RecordType:
    """A type of record other than a dict.

    Args:
        cls: tuple, or the class, whose objects are made of columns by name.
        items: of a tuple, the types of its values, which are the columns in their order; None = any.
    """

    cls: type
    items: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class RecordField:
    """An argument of the class of a record.

    Args:
        argument: its name.
        column: that it is taken from.
        annotation: the type that is wanted; Any where it is not known.
        required: whether it has no default.
        by_name: whether it cannot be given by position.
    """

    argument: str
    column: str
    annotation: Any
    required: bool
    by_name: bool


def is_struct(cls: type) -> bool:
    """Return whether a class is a msgspec.Struct."""
    msgspec = sys.modules.get("msgspec")
    return msgspec is not None and issubclass(cls, msgspec.Struct)


def is_named_tuple(cls: type) -> bool:
    """Return whether a class is a NamedTuple."""
    return issubclass(cls, tuple) and any("_fields" in vars(base) for base in cls.__mro__)


def is_protocol(cls: type) -> bool:
    """Return whether a class says what others have, rather than what its objects are."""
    return typing.Protocol in cls.__bases__


def record_fields(cls: type) -> list[RecordField]:
    """Return what the class of a record is made of."""
    columns: Mapping[str, str] = {}
    if is_struct(cls):
        columns = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))  # type: ignore[attr-defined]
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, TypeError):  # of a class within a function; its columns are known all the same
        hints = {}
    return [
        RecordField(
            argument=each.name,
            column=columns.get(each.name, each.name),
            annotation=hints.get(each.name, Any),
            required=each.default is each.empty,
            by_name=each.kind is each.KEYWORD_ONLY,
        )
        for each in inspect.signature(cls).parameters.values()
    ]


def requested_record(function: Callable[..., Any], what: str) -> RecordType | None:
    """Return the type of record that a function asks for, None for a dict.

    Args:
        function: its first parameter takes the record.
        what: it is given to, for errors, such as "map".

    Raises:
        DefinitionError: it asks for something that is no type of record, or its annotation names what is not there.
    """
    annotation = _plain(_annotation(function, what))
    kind = get_origin(annotation) or annotation
    if annotation is Any or isinstance(annotation, TypeVar) or is_typeddict(kind):
        return None
    if kind is tuple:
        items = get_args(annotation)
        any_ = not items or (len(items) == _TUPLE_OF_ANY and items[1] is ...)
        return RecordType(tuple, None if any_ else items)
    if isinstance(kind, type):
        if issubclass(dict, kind) or is_protocol(kind):
            return None
        if is_named_tuple(kind) or is_dataclass(kind) or is_struct(kind):
            return RecordType(kind)
    if _batch_format(kind) is not None:
        _refuse(function, what, annotation, "give it to map_batches, or annotate it with the type of one record")
    _refuse(function, what, annotation, _RECORDS)


def requested_batch(function: Callable[..., Any], given: object, what: str) -> BatchFormat:
    """Return the form in which a batch function gets its rows.

    Args:
        function: its first parameter takes the batch.
        given: the form that was named beside the function; None = the annotation says it.
        what: it is given to, for errors.

    Raises:
        DefinitionError: the form is not known, the two are not the same, or a package for it is not installed.
    """
    formats = get_args(BatchFormat)
    if given is not None and given not in formats:
        raise DefinitionError(
            f"{what}: batch_format={given!r} is not known", next=f"use one of {', '.join(map(repr, formats))}"
        )
    annotated = None if given == "polars" and not _is_installed("polars") else _annotated_batch(function, what)
    if given is not None and annotated not in (None, given):
        raise DefinitionError(
            f"{what}: batch_format={given!r}, and {function_name(function)} is annotated to take {annotated!r}",
            next="leave out one of the two",
        )
    wanted: BatchFormat = given or annotated or "record_batch"  # type: ignore[assignment]
    if wanted == "polars" and not _is_installed("polars"):
        raise _no_polars(function, what)
    return wanted


def _annotated_batch(function: Callable[..., Any], what: str) -> BatchFormat | None:
    annotation = _plain(_annotation(function, what))
    if annotation is Any or annotation is object or isinstance(annotation, TypeVar):
        return None
    wanted = _batch_format(annotation)
    if wanted is None:
        _refuse(
            function,
            what,
            annotation,
            "annotate it with a RecordBatch or Table of pyarrow, or a DataFrame of pandas or polars",
        )
    return wanted


def _batch_format(kind: Any) -> BatchFormat | None:
    return _BATCHES.get((kind.__module__.partition(".")[0], kind.__name__)) if isinstance(kind, type) else None


def _is_installed(package: str) -> bool:
    from importlib.util import find_spec

    return package in sys.modules or find_spec(package) is not None


def _no_polars(function: Callable[..., Any], what: str) -> DefinitionError:
    return missing_package(
        f"{what}: {function_name(function)}, a function of DataFrames of polars,", "polars", "polars"
    )


def _refuse(function: Callable[..., Any], what: str, annotation: Any, next: str) -> typing.NoReturn:
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    raise DefinitionError(f"{what}: {function_name(function)} asks for {name}, which it cannot be given", next=next)


def _annotation(function: Callable[..., Any], what: str) -> Any:
    """Return the annotation of the first parameter, Any where there is none."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):  # some functions of C have none
        return Any
    if not parameters or parameters[0].kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY):
        return Any
    annotation = parameters[0].annotation
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, *_names_of(function))
    except Exception as error:
        if annotation in ("pl.DataFrame", "polars.DataFrame") and not _is_installed("polars"):
            raise _no_polars(function, what) from None
        raise DefinitionError(
            f"{what}: the annotation {annotation!r} of {function_name(function)} cannot be read: {error}",
            next="import what it names, outside of TYPE_CHECKING too, or leave the annotation out",
        ) from None


def _names_of(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the names that an annotation is read with: those of the function's module, and those around it."""
    around = next((f.f_locals for f, _ in walk_stack(sys._getframe()) if _package(f.f_globals) != "poundlock"), {})
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    if inspect.ismethod(function):
        function = function.__func__
    if not inspect.isfunction(function):
        return {}, around
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return function.__globals__, {**around, **{name: cell.cell_contents for name, cell in cells}}


def _package(names: Mapping[str, Any]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]


def _plain(annotation: Any) -> Any:
    """Return a type without what says nothing of its values: Annotated, NewType, `| None`."""
    while True:
        if isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, UnionType):
            members = [member for member in get_args(annotation) if member is not NoneType]
            if len(members) != 1:
                return annotation
            (annotation,) = members
        else:
            return annotation
