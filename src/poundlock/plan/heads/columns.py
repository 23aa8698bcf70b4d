"""The columns that heads of keyed steps are made of: which there are, what they are called, and which has the event time."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.plan.normalize import Expression
from poundlock.tasks.columns import EVENT_TIME
from poundlock.tasks.keyed_rows import KeyedOutput

NameOf = Callable[[pa.Schema, str], str]
"""Tells what Spark calls an expression over some columns."""


def known_schema(operator: str, schema: pa.Schema | None) -> pa.Schema:
    """Return the columns of an input.

    Raises:
        DefinitionError: nobody knows them.
    """
    if schema is None:
        raise DefinitionError(
            f"{operator}: the columns of its input are not known", next="declare them: map(…, schema=…)"
        )
    return schema


def check_names(operator: str, output: KeyedOutput, advice: str) -> None:
    """Refuse an output of which two columns have one name.

    Raises:
        DefinitionError: two have.
    """
    names = output.schema.names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DefinitionError(f"{operator}: two columns of the result are called {twice[0]}", next=advice)


def named_by(expression: Expression, schema: pa.Schema, name_of: NameOf) -> str:
    return name_of(schema, expression.text) if expression.name is None else expression.name


def time_column(operator: str, column: str | None, schema: pa.Schema, timed: bool, *, needed: bool) -> str | None:
    """Return the column with the event time: as the strategy named it, or as a keyed step before has set it."""
    if column is not None and column in schema.names:
        return column
    if timed:
        return EVENT_TIME
    if needed:
        raise DefinitionError(
            f"{operator}: the column {column!r} with the event time is gone before it",
            next="keep it in select(…), or assign timestamps and watermarks right before",
        )
    return None


def event_time_column(operator: str, column: str | None, schema: pa.Schema, timed: bool) -> str:
    """Return the column with the event time; raises as `time_column` where there is none."""
    time = time_column(operator, column, schema, timed, needed=True)
    assert time is not None
    return time
