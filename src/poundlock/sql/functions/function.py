"""What a function of SQL is to the analysis and to tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

import pyarrow as pa

from poundlock.sql.types import SqlType


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
    """

    rows: int
    zone: tzinfo
    now_us: int
    returns: SqlType
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A function.

    Args:
        returns: gives the type of the result. Raises DefinitionError where it does not take such arguments: what is wrong, and
            what to write.
        run: computes it over columns, one array an argument, all of one length. Raises TerminalError where a value makes the job fail.
        accepts: the type that each argument is cast to before the call, None as it is; by default all as they are.
        engine: who computes it, for the documentation.
    """

    name: str
    returns: Callable[[Sequence[Given]], SqlType]
    run: Callable[[Sequence[pa.Array], Evaluation], pa.Array]
    accepts: Callable[[Sequence[Given]], Sequence[SqlType | None]] | None = None
    is_deterministic: bool = True
    engine: str = field(default="Arrow", compare=False)
