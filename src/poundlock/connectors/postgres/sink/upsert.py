"""Rows by key: a temporary table that a task fills by COPY, and the one statement that carries it into the table.

Of several rows with one key the last one counts, and keys are written in order, so that two tasks cannot lock each other out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poundlock.connectors.postgres.sink.table import Table, TableColumn

_STAGE = "pg_temp.poundlock_stage"


class Upsert:
    """What a task does to write by key.

    Args:
        table: where the rows go.
        columns: the columns that are written.
        key: the columns of the key.
        deletes: whether the rows have one more column, which says that the row of this key is to be deleted.
    """

    def __init__(self, table: Table, columns: Sequence[TableColumn], key: Sequence[str], *, deletes: bool) -> None:
        self.table, self.columns, self.deletes = table, columns, deletes
        self._all = ", ".join(column.quoted for column in columns)
        self._key = ", ".join(column.quoted for column in columns if column.name in key)
        self._keys = [column.quoted for column in columns if column.name in key]
        self._others = [column.quoted for column in columns if column.name not in key]

    @property
    def copy(self) -> str:
        """The statement that takes the rows."""
        flag = ", poundlock_delete" if self.deletes else ""
        return f"COPY {_STAGE} ({self._all}{flag}) FROM STDIN (FORMAT csv)"

    def make(self, connection: Any) -> None:
        """Make the temporary table, in a transaction that was begun."""
        connection.execute(
            f"CREATE TEMP TABLE poundlock_stage ON COMMIT DROP AS SELECT {self._all} FROM {self.table.name} WITH NO DATA"
        )
        flag = ", ADD COLUMN poundlock_delete boolean" if self.deletes else ""
        connection.execute(f"ALTER TABLE {_STAGE} ADD COLUMN poundlock_seq bigserial{flag}")

    def merge(self, connection: Any) -> None:
        """Carry the rows into the table."""
        newest = f"SELECT DISTINCT ON ({self._key}) * FROM {_STAGE} ORDER BY {self._key}, poundlock_seq DESC"
        if self.deletes:
            same = " AND ".join(f"t.{name} = s.{name}" for name in self._keys)
            connection.execute(
                f"DELETE FROM {self.table.name} t USING ({newest}) s WHERE s.poundlock_delete AND {same}"
            )
        kept = " WHERE poundlock_delete IS NOT TRUE" if self.deletes else ""
        changes = ", ".join(f"{name} = excluded.{name}" for name in self._others)
        then = f"UPDATE SET {changes}" if changes else "NOTHING"
        connection.execute(
            f"INSERT INTO {self.table.name} ({self._all}) OVERRIDING SYSTEM VALUE SELECT {self._all} FROM ({newest}) s{kept}"
            f" ORDER BY {self._key} ON CONFLICT ({self._key}) DO {then}"
        )
