"""Columns of a server's rows as those of a table: each value as its declared type, or the job fails. Decimals are rounded half up, as in Flink."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import TerminalError
from poundlock.formats.arrays import Numbers, column_of, flags_in, indices_of, is_text, texts_of
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, cast_to
from poundlock.sql.functions.kernels.decimals import exact, fitted
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import STRING, SqlType

DELETED = "poundlock_deleted"
"""The column that says which rows are to be deleted."""
_SHOWN_AS_TEXTS = ("DECIMAL", "TIME")
"""What the server gives as texts: numbers of any precision, times of a day."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")


def server_name(name: str) -> str:
    """Return what a column is called in PostgreSQL: as there, a name is one in small letters unless it stands in double quotes."""
    if len(name) > 2 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name.lower() if _PLAIN.fullmatch(name) else name


@dataclass(frozen=True)
class ServerRowsProgram:
    """Columns of a server under their names in batches, as their declared types.

    Args:
        names: what the server calls the columns, by the names in batches.
    """

    fields: tuple[Field, ...]
    names: Mapping[str, str]
    table: str
    context: EvaluationContext
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows."""
        columns = [
            declared(rows.column(self.names[f.column]), f.type, f"{self.table}.{f.name}", self.context)
            for f in self.fields
        ]
        return pa.RecordBatch.from_arrays(columns, [f.column for f in self.fields]), None

    def describe(self) -> str:
        """Return it in words."""
        return f"reads columns of {self.table}"


def declared(column: pa.Array, kind: SqlType, what: str, context: EvaluationContext) -> pa.Array:
    """Return values as those of a declared type.

    Raises:
        TerminalError: they are of another kind, or one does not fit.
    """
    if column.type == kind.arrow:
        return column
    if is_text(column.type) and kind.root in _SHOWN_AS_TEXTS:
        one = pa.RecordBatch.from_arrays([column], ["text"])
        return evaluate(cast_to(ColumnRef("text", STRING), kind), one, context)
    if _family(column.type) != _family(kind.arrow):
        raise TerminalError(
            f"{what} is declared {kind}, and the server's column is {column.type}",
            next="declare the type that the column has there, and CAST it in the query",
        )
    made = _fitted(column, kind)
    if made is None or made.null_count > column.null_count:
        raise TerminalError(f"{what} is declared {kind}, and a value does not fit", next="declare a wider type")
    return made


def _fitted(column: pa.Array, kind: SqlType) -> pa.Array | None:
    """Return values as those of a wider or narrower type; null, or None, where one does not fit."""
    if kind.root == "DECIMAL":
        return fitted(exact(column), kind)
    try:
        return pc.cast(column, kind.arrow)
    except pa.ArrowInvalid:
        return None


def _family(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return "exact"
    if pa.types.is_floating(kind):
        return "floating"
    if pa.types.is_list(kind):
        return f"list of {_family(kind.value_type)}"
    return "timestamp" if pa.types.is_timestamp(kind) else str(kind)


@dataclass(frozen=True)
class WrittenRowsProgram:
    """The columns of a table under the server's names; rows of changes with a column that says which are deleted.

    Args:
        is_updating: whether rows have kinds of change; those before an update are left out.
    """

    fields: tuple[Field, ...]
    names: tuple[str, ...]
    table: str
    is_updating: bool

    @property
    def leaves_out(self) -> bool:
        """Whether rows before an update are left out."""
        return self.is_updating

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows that are written, and their places."""
        if not self.is_updating:
            return pa.RecordBatch.from_arrays([rows.column(f.column) for f in self.fields], list(self.names)), None
        kept = np.flatnonzero(flags_in(pc.not_equal(rows.column(ROW_KIND), texts_of(["-U"])[0])))
        places: Numbers | None = None
        if len(kept) < rows.num_rows:
            rows, places = rows.take(indices_of(kept)), kept
        gone = flags_in(pc.equal(rows.column(ROW_KIND), texts_of(["-D"])[0]))
        columns = [*(rows.column(f.column) for f in self.fields), column_of(gone, pa.bool_())]
        return pa.RecordBatch.from_arrays(columns, [*self.names, DELETED]), places

    def describe(self) -> str:
        """Return it in words."""
        return f"writes rows of {self.table}"
