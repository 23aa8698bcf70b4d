"""AND, OR, NOT and the questions after TRUE, FALSE and NULL: a logic of three values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.sql.coercion import BOOLEAN
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction, TypeMismatch
from poundlock.sql.functions.kernels.columns import trues, truths
from poundlock.sql.types import SqlType


def _truths(given: Sequence[Given], name: str) -> SqlType:
    for each in given:
        if each.type.root not in ("BOOLEAN", "NULL"):
            raise TypeMismatch(f"{name} of {each.type}, which is not BOOLEAN", next="write a condition, such as x <> 0")
    return BOOLEAN.with_null(any(each.type.is_nullable for each in given))


def _never_null(given: Sequence[Given], name: str) -> SqlType:
    return _truths(given, name).not_null()


def _any(given: Sequence[Given]) -> SqlType:
    return BOOLEAN.not_null()


def _as_boolean(given: Sequence[Given]) -> Sequence[SqlType | None]:
    return [BOOLEAN if each.type.root == "NULL" else None for each in given]


def _and(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pc.and_kleene(*columns)


def _or(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pc.or_kleene(*columns)


def _not(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pc.invert(columns[0])


def _is_null(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pc.is_null(columns[0])


def _is_not_null(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pc.is_valid(columns[0])


def _is(columns: Sequence[pa.Array], evaluation: Evaluation, *, value: bool, is_negated: bool) -> pa.Array:
    flags = trues(columns[0] if value else pc.invert(columns[0]))
    return truths(flags != is_negated)


def _of_truths(
    name: str, run: Callable[[Sequence[pa.Array], Evaluation], pa.Array], *, is_null: bool = True
) -> SqlFunction:
    returns = partial(_truths if is_null else _never_null, name=name)
    return SqlFunction(name, returns, run, _as_boolean, is_total=True)


FUNCTIONS: Sequence[SqlFunction] = (
    _of_truths("AND", _and),
    _of_truths("OR", _or),
    _of_truths("NOT", _not),
    SqlFunction("IS NULL", _any, _is_null, is_total=True),
    SqlFunction("IS NOT NULL", _any, _is_not_null, is_total=True),
    *(
        _of_truths(
            f"IS {'NOT ' * is_negated}{str(value).upper()}",
            partial(_is, value=value, is_negated=is_negated),
            is_null=False,
        )
        for value in (True, False)
        for is_negated in (False, True)
    ),
)
