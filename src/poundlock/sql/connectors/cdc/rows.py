"""Changes of a table of a server as rows of a table in SQL, each with its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.errors import TerminalError
from poundlock.formats.arrays import Flags, Numbers, column_of, indices_of, joined, ranges, texts_of, valid_in
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.expressions.evaluation import EvaluationContext, evaluate
from poundlock.sql.expressions.tree import ColumnRef, cast_to
from poundlock.sql.functions.kernels.columns import trues
from poundlock.sql.relations.fields import Field
from poundlock.sql.types import BYTES, STRING, SqlType

_KINDS = texts_of(["+I", "-U", "+U", "-D"])
_INSERT, _BEFORE, _AFTER, _DELETE = range(4)
_TYPES: Mapping[pa.DataType, SqlType] = {
    pa.bool_(): SqlType("BOOLEAN"), pa.int8(): SqlType("TINYINT"), pa.int16(): SqlType("SMALLINT"), pa.int32(): SqlType("INT"), pa.int64(): SqlType("BIGINT"),
    pa.float32(): SqlType("FLOAT"), pa.float64(): SqlType("DOUBLE"), pa.string(): STRING, pa.binary(): BYTES, pa.date32(): SqlType("DATE"),
    pa.timestamp("us"): SqlType("TIMESTAMP", (6,)), pa.timestamp("us", "UTC"): SqlType("TIMESTAMP_LTZ", (6,)),
}  # fmt: skip
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_REAL = ("FLOAT", "DOUBLE")
_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ")


@dataclass(frozen=True)
class PartOfName:
    """Of the name of each row's table, such as "shop.orders", the part before the first point (0) or that behind it (1)."""

    number: int

    def of(self, names: pa.Array) -> pa.Array:
        """Return it of each row."""
        return pc.list_element(pc.split_pattern(names, ".", max_splits=1), self.number)


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table in SQL, of rows as the server has them.

    Args:
        fields: the columns that come out.
        beside: the columns that are no data: what each row has, or what of the name of its table; None for the time of its change.
    """

    fields: tuple[Field, ...]
    beside: Mapping[str, str | PartOfName | None]
    context: EvaluationContext
    table: str

    def of(self, rows: pa.RecordBatch, times: pa.Array, tables: pa.Array | None = None) -> list[pa.Array]:
        """Return the columns.

        Args:
            rows: by the names of the server's columns.
            times: of the changes, null for rows that were there before.
            tables: the table of each row; None where nothing is made of it.

        Raises:
            TerminalError: a column of the server's is of a type whose values the declared one does not hold.
        """
        made = []
        for field in self.fields:
            if field.column not in self.beside:
                made.append(self._converted(rows.column(field.name), field))
                continue
            value = self.beside[field.column]
            if value is None:
                # Rows that were there before have the time 0, as Flink's have.
                given: pa.Array = pc.coalesce(times, column_of(np.zeros(1, np.int64), times.type)[0])
                made.append(self._cast(given, _TYPES[times.type], field))
            elif isinstance(value, PartOfName):
                assert tables is not None
                made.append(self._cast(value.of(tables), STRING, field))
            else:
                made.append(self._cast(pa.repeat(texts_of([value])[0], rows.num_rows), STRING, field))
        return made

    def _converted(self, column: pa.Array, field: Field) -> pa.Array:
        given = type_of(column.type)
        if given is None or not holds(field.type, given):
            is_known = "of a type that tables have not" if given is None else str(given)
            raise TerminalError(
                f"{self.table}.{field.name} is {field.type}, and the column of the server {is_known}",
                next=f"declare it {'STRING' if given is None else given}",
            )
        return self._cast(column, given, field)

    def _cast(self, column: pa.Array, given: SqlType, field: Field) -> pa.Array:
        one = pa.RecordBatch.from_arrays([column], ["given"])
        return evaluate(cast_to(ColumnRef("given", given), field.type), one, self.context)

    @property
    def names(self) -> list[str]:
        """The names of the columns in batches."""
        return [field.column for field in self.fields]


def type_of(kind: pa.DataType) -> SqlType | None:
    """Return the type in SQL of a column as the source has it, None where there is none."""
    if pa.types.is_decimal128(kind):
        return SqlType("DECIMAL", (kind.precision, kind.scale))
    if pa.types.is_list(kind):
        element = type_of(kind.value_type)
        return None if element is None else SqlType("ARRAY", of=(element,))
    return _TYPES.get(kind)


def holds(wanted: SqlType, given: SqlType) -> bool:
    """Return whether a declared type holds each value of a type of the server's; a text may be a value of any, and is read as one."""
    if given == STRING or wanted.root in ("CHAR", "VARCHAR"):
        return True
    if (given.root, wanted.root) == ("TINYINT", "BOOLEAN"):  # what MySQL makes of BOOLEAN
        return True
    if given.root in _WHOLE and wanted.root in _WHOLE:
        return _WHOLE.index(given.root) <= _WHOLE.index(wanted.root)
    if given.root in _REAL and wanted.root in _REAL:
        return _REAL.index(given.root) <= _REAL.index(wanted.root)
    if given.root == "DECIMAL" and wanted.root == "DECIMAL":
        return (
            wanted.sizes[1] >= given.sizes[1] and wanted.sizes[0] - wanted.sizes[1] >= given.sizes[0] - given.sizes[1]
        )
    if given.root in _TIMES:
        return wanted.root in _TIMES
    if given.root == "ARRAY" and wanted.root == "ARRAY":
        return holds(wanted.of[0], given.of[0])
    return given.root == wanted.root or (given.root, wanted.root) == ("VARBINARY", "BINARY")


@dataclass(frozen=True)
class SnapshotProgram:
    """Rows of a table as they were at one moment.

    Args:
        has_kinds: whether they come as changes, as upserts do.
    """

    columns: TableColumns
    has_kinds: bool = False
    leaves_out: bool = False

    def run(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows."""
        times = pa.nulls(rows.num_rows, pa.timestamp("us", "UTC"))
        made, names = self.columns.of(rows, times), self.columns.names
        if self.has_kinds:
            made, names = [*made, pa.repeat(_KINDS[_INSERT], rows.num_rows)], [*names, ROW_KIND]
        return pa.RecordBatch.from_arrays(made, names), None

    def describe(self) -> str:
        """Return it in words."""
        return f"reads rows of {self.columns.table}"


@dataclass(frozen=True)
class CdcProgram:
    """Changes as rows with their kinds.

    Args:
        keys: the server's columns of the primary key that is declared. An update of it is a row that goes and one that comes, as
            Debezium has it: who keeps the newest row of each key has to know that there is none of the key before.
        is_upsert: whether changes are upserts of the key: they have no row before, but the key of one that has another key now.
        skips_truncate: whether a TRUNCATE changes nothing.
    """

    columns: TableColumns
    keys: tuple[str, ...] = ()
    is_upsert: bool = False
    skips_truncate: bool = False
    leaves_out: bool = False

    def run(self, changes: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers | None]:
        """Return the rows, and of which change each is.

        Raises:
            TerminalError: the table was truncated, or a column is of another type than it is declared.
        """
        inserted, updated, deleted = (
            self._is(changes, *words) for words in (("insert", "read"), ("update",), ("delete",))
        )
        if not self.skips_truncate and not (inserted | updated | deleted).all():
            raise TerminalError(
                f"{self.columns.table} was truncated, which is no change of rows that are known",
                next="start the job over from a new snapshot; or say that a TRUNCATE changes nothing: 'debezium.skipped.operations' = 't'",
            )
        before, after = (changes.column(name) for name in ("before", "after"))
        moved = updated & self._moved(before, after)
        goes = deleted | (moved if self.is_upsert else updated)
        comes = inserted | updated
        counts = goes.astype(np.int64) + comes
        of = np.repeat(np.arange(changes.num_rows), counts)
        is_after = comes[of] & ((ranges(np.zeros(len(counts), np.int64), counts) == 1) | ~goes[of])
        stays = updated[of] & ~moved[of]
        is_update = updated[of] if self.is_upsert else stays
        kinds = np.where(is_after, np.where(is_update, _AFTER, _INSERT), np.where(stays, _BEFORE, _DELETE))
        names = [field.name for field in before.type]
        taken = indices_of(of + np.where(is_after, changes.num_rows, 0))
        columns = [
            joined([one, other]).take(taken) for one, other in zip(before.flatten(), after.flatten(), strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(columns, names)
        tables = changes.column("table").take(indices_of(of)) if "table" in changes.schema.names else None
        made = self.columns.of(rows, changes.column("commit_time").take(indices_of(of)), tables)
        return pa.RecordBatch.from_arrays([*made, _KINDS.take(indices_of(kinds))], [*self.columns.names, ROW_KIND]), of

    def _moved(self, before: pa.Array, after: pa.Array) -> Flags:
        """Return which rows had another key before."""
        valid = valid_in(before)
        known = np.ones(len(before), np.bool_) if valid is None else valid.copy()
        moved = np.zeros(len(before), np.bool_)
        for name in self.keys:
            place = before.type.get_field_index(name)
            moved |= trues(pc.not_equal(before.flatten()[place], after.flatten()[place]))
        return known & moved

    @staticmethod
    def _is(changes: pa.RecordBatch, *words: str) -> Flags:
        return trues(pc.is_in(changes.column("op"), value_set=texts_of(words)))

    def describe(self) -> str:
        """Return it in words."""
        return f"reads {'upserts' if self.is_upsert else 'changes'} of {self.columns.table}"
