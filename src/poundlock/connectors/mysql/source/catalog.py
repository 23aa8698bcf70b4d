"""What is read, as the server's catalog has it, and whether the server logs what is needed to read it exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.connectors.mysql.connection import identifier, rows_of, variables
from poundlock.connectors.mysql.types import MySqlColumn
from poundlock.errors import DefinitionError

_NEEDED = {
    "log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL",
    "binlog_checksum": "CRC32",  # without one, the decoder leaves out the names of columns
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoggedTable:
    """A table, with the columns that are read."""

    name: str  # "database.table"
    columns: tuple[MySqlColumn, ...]
    key: tuple[str, ...]  # the columns of its primary key
    cut_by: str | None  # the column by which it is cut into chunks; None = it is one chunk

    @property
    def database(self) -> str:
        """The database it is in."""
        return self.name.partition(".")[0]

    @property
    def table(self) -> str:
        """Its name there."""
        return self.name.partition(".")[2]

    @property
    def source(self) -> str:
        """SQL that stands behind FROM."""
        return f"{identifier(self.database)}.{identifier(self.table)}"

    def column(self, name: str) -> MySqlColumn:
        """Return a column that is read."""
        return next(each for each in self.columns if each.name == name)


def look_up(connection: Any, names: Sequence[str], columns: Mapping[str, Sequence[str] | None]) -> list[LoggedTable]:
    """Return tables as the server knows them.

    Args:
        columns: which columns of each table are read, None = all.

    Raises:
        DefinitionError: there is no such table or column, or one that cannot be read.
    """
    return [_looked_up(connection, name, columns.get(name)) for name in names]


def _looked_up(connection: Any, name: str, wanted: Sequence[str] | None) -> LoggedTable:
    database, _, table = name.partition(".")
    kinds = rows_of(
        connection,
        "SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        [database, table],
    )
    if not kinds:
        raise DefinitionError(
            f"there is no table {name}, or this user may not see it",
            next='write tables=["database.table"], as the server has it',
        )
    kind, engine = kinds[0]
    if kind != "BASE TABLE" or str(engine).lower() != "innodb":
        what = "a table of the engine " + str(engine) if kind == "BASE TABLE" else f"a {str(kind).lower()}"
        raise DefinitionError(
            f"{name} is {what}, and only tables of InnoDB have one state for all readers",
            next=f"ALTER TABLE {name} ENGINE = InnoDB, or leave it out",
        )
    known = {
        row[0]: MySqlColumn(
            row[0],
            str(row[1]).lower(),
            str(row[2]).lower(),
            int(row[3] or 0),
            int(row[4] or 0),
            int(row[5] or 0),
            row[6] or "",
        )
        for row in rows_of(connection, _COLUMNS, [database, table])
    }
    if missing := [each for each in wanted or () if each not in known]:
        raise DefinitionError(
            f"{name} has no column {missing[0]!r}; it has {', '.join(known)}",
            next="mend columns=…; virtual columns are not logged",
        )
    columns = [known[each] for each in (wanted or known)]
    for column in columns:
        if column.refused:
            raise DefinitionError(
                f"column {column.name!r} of {name} {column.refused}", next="name the other columns in columns=[…]"
            )
    key = tuple(row[0] for row in rows_of(connection, _KEY, [database, table]))
    if not key:
        raise DefinitionError(
            f"{name} has no primary key, by which rows are told apart", next=f"ALTER TABLE {name} ADD PRIMARY KEY (…)"
        )
    if absent := [each for each in key if each not in {column.name for column in columns}]:
        raise DefinitionError(
            f"columns=[…] leaves out {absent[0]!r}, which is part of the primary key of {name}", next="name it, too"
        )
    first = known[key[0]]
    return LoggedTable(name, tuple(columns), key, first.name if first.is_ordered else None)


_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, NUMERIC_PRECISION, COALESCE(NUMERIC_SCALE, DATETIME_PRECISION),
    CHARACTER_OCTET_LENGTH, CHARACTER_SET_NAME
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND EXTRA NOT LIKE '%%VIRTUAL%%'
ORDER BY ORDINAL_POSITION
"""
_KEY = """
SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND INDEX_NAME = 'PRIMARY'
ORDER BY SEQ_IN_INDEX
"""
_CASCADES = """
SELECT CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s
"""
_SILENT = ("RESTRICT", "NO ACTION")


def check_logged(connection: Any, tables: Sequence[LoggedTable]) -> None:
    """Raise DefinitionError, with the command that mends it, unless all changes of tables are in the log, whole."""
    known = variables(connection)
    if "mariadb" not in known.get("version", "").lower():
        raise DefinitionError(
            f"the server is MySQL {known.get('version', '')}, which MySqlSource was not tried with: it was with MariaDB 11.4",
            next="read its changes from topics of Debezium: see docs/sql-cdc.md",
        )
    _check_settings(known)
    for table in tables:
        for name, deletes, updates in rows_of(connection, _CASCADES, [table.database, table.table]):
            if deletes not in _SILENT or updates not in _SILENT:
                raise DefinitionError(
                    f"the foreign key {name} of {table.name} changes rows by itself, and such changes are not in the log",
                    next=f"make it ON DELETE RESTRICT ON UPDATE RESTRICT, or leave {table.name} out",
                )


def _check_settings(known: Mapping[str, str]) -> None:
    for name, value in _NEEDED.items():
        if known.get(name, "").upper() != value:
            change = (
                "log-bin in its configuration, and restart it" if name == "log_bin" else f"SET GLOBAL {name} = {value}"
            )
            raise DefinitionError(
                f"the server has {name}={known.get(name, '')}, and {value} is needed to read its log",
                next=f"set {change}",
            )
    if known.get("log_bin_compress", "OFF").upper() == "ON":
        raise DefinitionError(
            "the server has log_bin_compress=ON, and compressed events cannot be read",
            next="SET GLOBAL log_bin_compress = OFF",
        )
