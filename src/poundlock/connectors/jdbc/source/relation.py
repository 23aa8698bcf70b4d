"""What is read: a table or a query, as the database describes it when the job starts, and the SELECT of a range of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.connectors.jdbc.dialect import Dialect
from poundlock.connectors.jdbc.source.columns import JdbcColumn, chosen, one_of
from poundlock.connectors.jdbc.source.session import JdbcSession
from poundlock.connectors.jdbc.source.values import ValueUnits, measure_of
from poundlock.errors import DefinitionError, TerminalError

if TYPE_CHECKING:
    from poundlock.connectors.jdbc.source.source import JdbcSource


@dataclass(frozen=True, slots=True)
class JdbcRelation:
    """A table or query as it is.

    Args:
        source: SQL that stands behind FROM.
        by: the column by which it is cut; None = by none.
    """

    source: str
    columns: tuple[JdbcColumn, ...]
    where: str | None
    dialect: Dialect
    by: JdbcColumn | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.schema([(column.name, column.arrow) for column in self.columns])

    @property
    def measure(self) -> ValueUnits:
        """How values of the column are counted by which it is cut."""
        assert self.by is not None
        return measure_of(self.by, self.source)

    @property
    def by_name(self) -> str:
        """That column, as SQL."""
        assert self.by is not None
        return self.dialect.named(self.by.source)

    def select(self, condition: str) -> str:
        """Return the SELECT of the rows that meet a condition; "" = all."""
        names = ", ".join(self.dialect.named(column.source) for column in self.columns)
        return f"SELECT {names} FROM {self.source}{self.matching(condition)}"

    def matching(self, *conditions: str) -> str:
        """Return WHERE with the user's condition and further ones; nothing if there are none."""
        parts = [f"({each})" for each in (self.where, *conditions) if each]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def between(self, above: int | None, up_to: int | None) -> str:
        """Return the condition of values greater than the one, and at most the other; None = no border."""
        parts = [f"{self.by_name} > {self.measure.literal(above, self.dialect)}"] if above is not None else []
        parts += [f"{self.by_name} <= {self.measure.literal(up_to, self.dialect)}"] if up_to is not None else []
        return " AND ".join(parts)


def look_up(session: JdbcSession, wanted: JdbcSource) -> JdbcRelation:
    """Return what is to be read as the database describes it. Raises JdbcError.

    Raises:
        DefinitionError: there is no such column, or it is none to cut by.
    """
    source = wanted.table if wanted.table is not None else f"({wanted.query}) poundlock_q"
    condition = f"({wanted.where}) AND 1 = 0" if wanted.where else "1 = 0"
    result = session.connection.read(f"SELECT * FROM {source} WHERE {condition}", 1)
    try:
        described = result.columns
    finally:
        result.close()
    session.connection.rollback()
    columns = chosen(described, wanted.columns, wanted.shown, session.dialect.name)
    relation = JdbcRelation(source, columns, wanted.where, session.dialect)
    if wanted.by is None:
        return relation
    name = one_of(described, wanted.by, wanted.shown).name
    by = next(c for c in chosen(described, None, wanted.shown, session.dialect.name) if c.source == name)
    measure_of(by, wanted.shown)
    return replace(relation, by=by)


def as_planned(relation: JdbcRelation, schema: pa.Schema, what: str) -> JdbcRelation:
    """Return a relation with the columns that the job was planned with; what was added since waits for its next start.

    Raises:
        TerminalError: one of them is gone, or is of another type.
    """
    now = {column.name: column for column in relation.columns}
    for field in schema:
        if field.name not in now or now[field.name].arrow != field.type:
            how = "is gone" if field.name not in now else f"was {field.type} and is {now[field.name].arrow}"
            raise TerminalError(
                f"column {field.name!r} of {what} {how}, since the job was started",
                next="start the job again: it then reads the columns that there are",
            )
    return replace(relation, columns=tuple(now[name] for name in schema.names))


def look_up_again(session: JdbcSession, wanted: JdbcSource) -> JdbcRelation:
    """Return what is to be read, with the columns that the job was planned with. Raises JdbcError, and TerminalError as `as_planned`."""
    try:
        relation = look_up(session, wanted)
    except DefinitionError as error:  # it was there when the job was planned
        raise TerminalError(f"{error.what}, since the job was started", next=error.next or "") from None
    return as_planned(relation, wanted.schema(), wanted.shown)


def read_payload(relation: JdbcRelation, condition: str) -> dict[str, Any]:
    """Return what a reader needs to read the rows that meet a condition."""
    return {"select": relation.select(condition), "columns": fields_of(relation)}


def fields_of(relation: JdbcRelation) -> list[list[Any]]:
    """Return the columns as JSON has them."""
    return [[c.name, c.source, c.code, c.type, c.precision, c.scale, c.signed] for c in relation.columns]
