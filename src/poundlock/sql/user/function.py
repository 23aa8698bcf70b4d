"""A function of the user's own as the analysis and tasks know it: its types, and how it is computed over columns.

What the function raises goes on as it is, so that the error of the job names the function and its line. What it returns and SQL has no
value for is a TerminalError that names both, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import lists_of
from poundlock.sql.types import SqlType
from poundlock.sql.user.declared import FunctionKind, UserDefinedFunction
from poundlock.sql.user.values import column_of_values, values_of

NO_ARGUMENT = "none"
"""The field of the ROW of arguments that an aggregate without any has."""


class UserFunctionResult(TerminalError):
    """A function of the user's own returned what its declaration does not say."""

    kind = "user_function"


@dataclass(frozen=True, slots=True)
class SqlUserFunction:
    """A function that CREATE FUNCTION names. Picklable with what Spark's workers are sent.

    Args:
        name: as the script calls it.
        path: where it is in Python, `module.attribute`.
        result: the type of what it returns; of a table function that of a row, a ROW of its columns.
        arguments: the types that it takes; None where they are taken as they are.
        least: how many arguments it takes at least; `most`: at most, None for any number.
        accumulator: of an aggregate by row.
        declared: the function itself.
    """

    name: str
    path: str
    result: SqlType
    arguments: tuple[SqlType, ...] | None
    least: int
    most: int | None
    accumulator: SqlType | None
    declared: UserDefinedFunction = field(compare=False, repr=False)

    @property
    def kind(self) -> FunctionKind:
        """Whether it gives a value or rows for a row, or one value for several."""
        return self.declared.kind

    @property
    def is_deterministic(self) -> bool:
        """Whether equal arguments always give an equal result."""
        return self.declared.deterministic

    @property
    def is_by_columns(self) -> bool:
        """Whether it is called with Arrow columns."""
        return self.declared.func_type == "arrow"

    @property
    def place(self) -> str:
        """Where it is written, for errors."""
        code = _code_of(self.declared.function)
        return self.path if code is None else f"{self.path}, {code.co_filename}:{code.co_firstlineno}"

    def run(self, columns: Sequence[pa.Array], kinds: Sequence[SqlType], rows: int) -> pa.Array:
        """Return what it gives for rows: a value each, or of a table function the list of a row's rows.

        Args:
            columns: the arguments, of the types `kinds`.

        Raises:
            UserFunctionResult: it returned something else than was declared.
            Exception: what it raised itself.
        """
        if self.is_by_columns:
            return self._by_columns(columns, rows)
        lists = [values_of(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        function: Callable[..., Any] = self.declared.function
        returned = list(map(function, *lists)) if lists else [function() for _ in range(rows)]
        return self._values(returned) if self.kind == "scalar" else self._rows(returned)

    def _values(self, returned: list[Any]) -> pa.Array:
        return self.column(returned, self.result)

    def column(self, values: list[Any], kind: SqlType) -> pa.Array:
        """Return values that the function gave as a column; raises as `run`."""
        column, failed = column_of_values(values, kind)
        for row, why in failed.items():
            raise self.refused(f"returned {values[row]!r:.100}, which is no {kind}: {why}")
        return column

    def _by_columns(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        returned = self.declared.function(*columns)
        if isinstance(returned, pa.ChunkedArray):
            returned = returned.combine_chunks()
        if not isinstance(returned, pa.Array):
            raise self.refused(f"returned {type(returned).__name__}, which is no pyarrow.Array")
        if len(returned) != rows:
            raise self.refused(f"returned {len(returned)} values for {rows} rows")
        return self.as_result(returned)

    def as_result(self, returned: pa.Array) -> pa.Array:
        """Return a column that the function gave as one of its type; raises as `run`."""
        wanted = self.result.arrow
        try:
            return returned if returned.type == wanted else returned.cast(wanted)
        except pa.ArrowException as error:
            raise self.refused(f"returned a column of {returned.type}, which is no {self.result}: {error}") from None

    def _rows(self, returned: Sequence[Iterable[Any] | None]) -> pa.Array:
        """Return rows as one list for each row that the function was called for."""
        rows: list[Any] = []
        counts = np.zeros(len(returned), np.int64)
        names = self.result.names
        for at, given in enumerate(returned):
            if given is None:
                continue
            if isinstance(given, str | bytes | dict | tuple):
                raise self.refused(f"returned {type(given).__name__}, not rows")
            before = len(rows)
            rows.extend(given)
            counts[at] = len(rows) - before
        shown = [self._row(row, names) for row in rows] if set(map(type, rows)) != {tuple} else rows
        if any(len(row) != len(names) for row in shown):
            raise self.refused(f"gave a row that has not the {len(names)} columns {', '.join(names)}")
        parts = list(zip(*shown, strict=True)) if shown else [()] * len(names)
        columns = [self.column(list(part), kind) for part, kind in zip(parts, self.result.of, strict=True)]
        return lists_of(pa.StructArray.from_arrays(columns, fields=list(self.result.arrow)), counts)

    def _row(self, row: Any, names: Sequence[str]) -> Sequence[Any]:
        if isinstance(row, dict):
            if row.keys() - set(names):
                raise self.refused(
                    f"gave a row with the column {min(row.keys() - set(names))}, and has {', '.join(names)}"
                )
            return [row.get(name) for name in names]
        if isinstance(row, list | tuple) and len(names) > 1:
            return row
        return row if isinstance(row, tuple) else (row,)

    def refused(self, what: str) -> UserFunctionResult:
        """Return the error of something that the function did."""
        return UserFunctionResult(
            f"the function {self.name} ({self.place}) {what}", next="mend the function, or the types of its declaration"
        )


def _code_of(function: Any) -> CodeType | None:
    """Return the code of a function, or of what an object does; None where it is not written in Python."""
    methods = vars(type(function))
    written = (function, methods.get("__call__"), methods.get("accumulate"))
    return next((each.__code__ for each in written if isinstance(each, FunctionType)), None)


def check_arguments(function: SqlUserFunction, types: Sequence[SqlType]) -> None:
    """Raise DefinitionError unless a function takes so many arguments of such types."""
    count = len(types)
    if count < function.least or (function.most is not None and count > function.most):
        raise DefinitionError(
            f"{function.name} does not take ({', '.join(map(str, types))})", next=f"write {signature_of(function)}"
        )


def signature_of(function: SqlUserFunction) -> str:
    """Return how a function is called, with the types of its arguments where it says them."""
    if function.arguments is not None:
        return f"{function.name}({', '.join(map(str, function.arguments))})"
    names = [f"x{number}" for number in range(1, max(function.least, 1 if function.most != 0 else 0) + 1)]
    return f"{function.name}({', '.join(names)}{', …' if function.most is None else ''})"
