"""Functions that choose one of their arguments. Those that need not compute all of them are evaluated row by branch elsewhere; what
stands here computes over arguments that are all there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import DefinitionError
from poundlock.sql.coercion import NESTED, common_type
from poundlock.sql.functions.function import Evaluation, Given, SqlFunction, TypeMismatch
from poundlock.sql.functions.kernels.columns import trues, truths
from poundlock.sql.functions.operators.comparison import compared
from poundlock.sql.types import SqlType


def _common(name: str, given: Sequence[Given]) -> SqlType:
    common = common_type(each.type for each in given)
    if common is None:
        types = ", ".join(str(each.type) for each in given)
        raise TypeMismatch(f"{name}({types}): these types have none in common", next="CAST the arguments to one type")
    return common


def _counted(name: str, given: Sequence[Given], least: int, most: int | None, form: str) -> None:
    if len(given) < least or (most is not None and len(given) > most):
        raise DefinitionError(f"{name} with {len(given)} arguments", next=f"write {form}")


def _all_common(given: Sequence[Given], name: str) -> Sequence[SqlType | None]:
    common = _common(name, given)
    return [common.with_null(each.type.is_nullable) for each in given]


def _coalesce_type(given: Sequence[Given], name: str) -> SqlType:
    _counted(name, given, 1 if name == "COALESCE" else 2, None if name == "COALESCE" else 2, f"{name}(x, y)")
    return _common(name, given).with_null(all(each.type.is_nullable for each in given))


def _coalesce(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    if pa.types.is_nested(columns[0].type):
        return reduce(lambda a, b: pc.if_else(pc.is_valid(a), a, b), columns)
    return pc.coalesce(*columns)


def _if_type(given: Sequence[Given]) -> SqlType:
    _counted("IF", given, 3, 3, "IF(condition, x, y)")
    if given[0].type.root not in ("BOOLEAN", "NULL"):
        raise TypeMismatch(f"IF of {given[0].type}, which is not BOOLEAN", next="write a condition, such as x <> 0")
    return _common("IF", given[1:])


def _if_accepts(given: Sequence[Given]) -> Sequence[SqlType | None]:
    _if_type(given)
    condition = SqlType("BOOLEAN") if given[0].type.root == "NULL" else None
    return [condition, *_all_common(given[1:], "IF")]


def _if(columns: Sequence[pa.Array], evaluation: Evaluation) -> pa.Array:
    return pc.if_else(truths(trues(columns[0])), columns[1], columns[2])


def _extreme_type(given: Sequence[Given], name: str) -> SqlType:
    _counted(name, given, 1, None, f"{name}(x, y)")
    made = _common(name, given)
    if made.root in NESTED:
        raise TypeMismatch(f"{name} of {made}, which has no order", next="compare its elements or fields")
    return made.with_null(any(each.type.is_nullable for each in given))


def _extreme(
    columns: Sequence[pa.Array], evaluation: Evaluation, keeps: Callable[[pa.Array, pa.Array], pa.Array]
) -> pa.Array:
    """Return the greatest or the least; null where one is null."""
    return reduce(lambda a, b: pc.if_else(compared(keeps, a, b), a, b), columns)


FUNCTIONS: Sequence[SqlFunction] = (
    *(
        SqlFunction(name, partial(_coalesce_type, name=name), _coalesce, partial(_all_common, name=name), is_total=True)
        for name in ("COALESCE", "IFNULL")
    ),
    SqlFunction("IF", _if_type, _if, _if_accepts, is_total=True),
    SqlFunction(
        "GREATEST",
        partial(_extreme_type, name="GREATEST"),
        partial(_extreme, keeps=pc.greater_equal),
        partial(_all_common, name="GREATEST"),
        is_total=True,
    ),
    SqlFunction(
        "LEAST",
        partial(_extreme_type, name="LEAST"),
        partial(_extreme, keeps=pc.less_equal),
        partial(_all_common, name="LEAST"),
        is_total=True,
    ),
)
