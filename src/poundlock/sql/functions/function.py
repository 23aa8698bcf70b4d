"""What a function of SQL is to the analysis and to tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

import pyarrow as pa

from poundlock.errors import DefinitionError, TerminalError
from poundlock.sql.types import SqlType


class TypeMismatch(DefinitionError):
    """Values of such types do not go together in an operator; other errors of arguments are plain DefinitionErrors."""


class EvaluationError(TerminalError):
    """A value makes the job fail: a division by zero, a text that is no number.

    An error of a task comes back to the driver by the name of its class, so each kind is a class.
    """

    kind = "other"
    """One word for all that fail for the same reason."""


class DivisionByZero(EvaluationError):
    """A divisor is zero."""

    kind = "division_by_zero"


class CastFailed(EvaluationError):
    """A text is no value of the type that it is cast to."""

    kind = "cast_failed"


class BadRecord(EvaluationError):
    """A record is not of its table's format."""

    kind = "bad_record"


class NullRowtime(EvaluationError):
    """A row has no event time."""

    kind = "null_rowtime"


class NullInColumn(EvaluationError):
    """A column that is NOT NULL would get NULL."""

    kind = "null_in_not_null_column"


class ValueTooLong(EvaluationError):
    """A text or bytes are longer than their column."""

    kind = "value_too_long"


@dataclass(frozen=True, slots=True)
class Given:
    """An argument as the analysis knows it.

    Args:
        value: of a literal; None of everything else, and of NULL.
    """

    type: SqlType
    is_literal: bool = False
    value: Any = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What functions are computed in.

    Args:
        rows: how many there are; a function without arguments returns as many.
        zone: of the session.
        now_us: the time of the checkpoint, microseconds since 1970; CURRENT_TIMESTAMP of a batch.
        returns: the type of the call.
        options: of the call.
        watermark_ms: that the rows are judged by, ms since 1970; None before the first one.
    """

    rows: int
    zone: tzinfo
    now_us: int
    returns: SqlType
    options: tuple[str, ...] = ()
    watermark_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A function.

    Args:
        returns: gives the type of the result. Raises DefinitionError where it does not take such arguments: what is wrong, and
            what to write.
        run: computes it over columns, one array an argument, all of one length. Raises TerminalError where a value makes the job fail.
        accepts: the type that each argument is cast to before the call, None as it is; by default all as they are.
        is_total: whether it has a result for whatever values: it may be computed for rows that do not need it, where a CASE or AND
            would leave them out.
    """

    name: str
    returns: Callable[[Sequence[Given]], SqlType]
    run: Callable[[Sequence[pa.Array], Evaluation], pa.Array]
    accepts: Callable[[Sequence[Given]], Sequence[SqlType | None]] | None = None
    is_deterministic: bool = True
    is_total: bool = field(default=False, compare=False)
