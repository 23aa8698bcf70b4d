"""Rows of a chunk as bound statements: an upsert or a deletion by primary key each, and those of one partition together."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from poundlock.connectors.cassandra.login import load_driver
from poundlock.connectors.cassandra.table import CassandraColumn, CassandraTable
from poundlock.errors import TransientError
from poundlock.formats.convert import column_values

_OVERHEAD = 40  # bytes that a statement has in a batch beside its values, about


class Statements:
    """The prepared statements of one writer.

    Args:
        session: of the client.
        names: the columns that are written.
        ttl_s: how long rows live, seconds; None = for ever, or as the table says.
        unset_nulls: whether a null leaves what the row has in that column.
    """

    def __init__(
        self, session: Any, table: CassandraTable, names: Sequence[str], ttl_s: int | None, *, unset_nulls: bool
    ) -> None:
        self._table, self._names = table, list(names)
        columns = [column for name in names if (column := table.column(name)) is not None]
        self._kinds = {column.name: column for column in columns}
        ttl = "" if ttl_s is None else f"TTL {ttl_s} AND "
        upsert = (
            f"INSERT INTO {table.name} ({', '.join(column.quoted for column in columns)})"
            f" VALUES ({', '.join('?' * len(columns))}) USING {ttl}TIMESTAMP ?"
        )
        keys = [column for column in table.columns if column.is_key]
        where = " AND ".join(f"{column.quoted} = ?" for column in keys)
        self._upsert = session.prepare(upsert)
        self._delete = session.prepare(f"DELETE FROM {table.name} USING TIMESTAMP ? WHERE {where}")
        for each in (self._upsert, self._delete):
            each.is_idempotent = True  # its timestamp stands in it
        self._unset = load_driver("cassandra.query").UNSET_VALUE if unset_nulls else None
        self._key_places = [self._names.index(column.name) for column in keys]

    def bound(
        self, batch: pa.RecordBatch, deleted: Sequence[bool] | None, micros: int, bad: dict[int, str]
    ) -> dict[int, Any]:
        """Return a bound statement for each row, by its number; note why some rows cannot be written.

        Of several rows of one key the last one counts; the others have none.

        Args:
            batch: the columns that are written, in their order.
            deleted: which rows are deletions; None = none.
            micros: the timestamp of all of them.
        """
        rows = list(zip(*(self._values(batch, name) for name in self._names), strict=True))
        at = self._key_places
        last = {tuple(map(_hashable, (row[i] for i in at))): number for number, row in enumerate(rows)}
        made: dict[int, Any] = {}
        for number in sorted(last.values()):
            row = rows[number]
            if any(row[i] is None for i in at):
                bad[number] = f"column {self._names[next(i for i in at if row[i] is None)]!r} is null, and must not be"
                continue
            try:
                if deleted is not None and deleted[number]:
                    made[number] = self._delete.bind((micros, *(row[i] for i in at)))
                else:
                    values = row if self._unset is None else [self._unset if v is None else v for v in row]
                    made[number] = self._upsert.bind((*values, micros))
            except (
                Exception
            ) as error:  # the client has no class for what a value cannot be: struct.error, TypeError, OverflowError
                bad[number] = f"cannot be written to table {self._table.name}: {error}"
        return made

    def older(self, batch: pa.RecordBatch, refused: Iterable[int]) -> list[int]:
        """Return the rows that refused ones would have replaced."""
        rows = list(zip(*(self._values(batch, self._names[i]) for i in self._key_places), strict=True))
        keys = {tuple(map(_hashable, rows[number])) for number in refused}
        gone = set(refused)
        return [number for number, row in enumerate(rows) if number not in gone and tuple(map(_hashable, row)) in keys]

    def _values(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        values = column_values(batch.column(name))
        convert = _converter(self._kinds[name])
        return values if convert is None else [None if value is None else convert(value) for value in values]


def batches(statements: dict[int, Any], most_bytes: int) -> list[list[int]]:
    """Return the numbers of statements that go together: those of one partition, up to so many bytes."""
    groups: list[list[int]] = []
    open_groups: dict[bytes, tuple[list[int], int]] = {}
    for number, statement in statements.items():
        key = statement.routing_key
        size = _OVERHEAD + sum(len(value) for value in statement.values if isinstance(value, bytes))
        group, filled = open_groups.get(key, ([], most_bytes))
        if filled + size > most_bytes:
            group, filled = [], 0
            groups.append(group)
        group.append(number)
        open_groups[key] = (group, filled + size)
    return groups


def joined(statements: Sequence[Any]) -> Any:
    """Return one statement for several of one partition: an unlogged batch, which a node applies as a whole."""
    if len(statements) == 1:
        return statements[0]
    query = load_driver("cassandra.query")
    batch = query.BatchStatement(query.BatchType.UNLOGGED)
    for statement in statements:
        batch.add(statement)
    batch.is_idempotent = True
    return batch


def _converter(column: CassandraColumn) -> Callable[[Any], Any] | None:
    """Return what makes the client's values of Arrow's, None where they are the same."""
    kind = column.kind.removeprefix("frozen<")
    if kind in ("uuid", "timeuuid"):
        return _uuid
    if kind.startswith("set<"):
        return set
    if kind == "timestamp":
        return _utc
    return None


def _uuid(text: str) -> Any:
    try:
        return uuid.UUID(text)
    except ValueError:
        return text  # which the client refuses, by its row


def _utc(moment: Any) -> Any:
    """Return a moment as the client takes it, which has milliseconds."""
    if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
        return moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return moment


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, set)):
        return tuple(value)
    if isinstance(value, dict):
        return tuple(value.items())
    return value


def check_alike(names: Sequence[str], expected: Sequence[str]) -> None:
    """Raise TransientError where rows of one task have other columns than the first ones had."""
    if list(names) != list(expected):
        raise TransientError("rows of one task have unlike columns", next="give the rows a schema")
