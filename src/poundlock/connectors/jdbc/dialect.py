"""Rows as SQL for the database at hand: literals, and the statement that adds rows or replaces them by key.

A value that has no literal is a bad row; nothing of a row is ever read as SQL. Text with a backslash, which may begin an
escape or not as a server is set, is never a plain literal where it could be one.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from poundlock.errors import DefinitionError

# Stands on both sides of text that is a parameter of its statement; no text has it.
_PARAMETER = "\0"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NoLiteral(ValueError):
    """A value cannot be written to any database."""


Values = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Dialect:
    """What a database wants written in its own way.

    Args:
        style: "conflict", "duplicate", "merge", "dual" or "replace": how rows are written by key.
        backslash: how text with one is written: "plain" where it has no meaning, as a "parameter" where it may have, in
            "escapes" where text can be written with a meaning that is certain.
        times: how dates and times are written: in "jdbc"'s own way, as plain "text", or as a "cast" of one.
        wide: what stands before text that is not ASCII.
    """

    name: str
    quote: str
    style: str
    backslash: Literal["plain", "parameter", "escapes"] = "parameter"
    times: Literal["jdbc", "text", "cast"] = "jdbc"
    wide: str = ""
    booleans: bool = True
    binary: Callable[[str], str] = "X'{}'".format

    def named(self, name: str) -> str:
        """Return a name as SQL. Raises DefinitionError for one that cannot be quoted here."""
        q = self.quote.strip()
        if "\0" in name or not (q or _PLAIN.fullmatch(name)):
            raise DefinitionError(
                f"{name!r} cannot be written as the name of a column in {self.name}",
                next='rename the column before the sink: .select("… as plain_name", …)',
            )
        closing = "]" if q == "[" else q
        return f"{q}{name.replace(closing, closing * 2)}{closing}" if q else name

    def literal(self, value: Any) -> str:
        """Return a value as SQL. Raises NoLiteral."""
        if value is None:
            return "NULL"
        if isinstance(value, bool):
            return ("TRUE" if value else "FALSE") if self.booleans else str(int(value))
        if isinstance(value, int | decimal.Decimal):
            return format(value, "f") if isinstance(value, decimal.Decimal) else str(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise NoLiteral(f"{value} is no number in SQL")
            return f"{value!r}" if "e" in repr(value) else f"{value!r}E0"
        if isinstance(value, bytes):
            return self.binary(value.hex())
        if isinstance(value, datetime.datetime):
            plain = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
            return self._time("ts", "datetime2(6)", plain.isoformat(" ", "microseconds"))
        if isinstance(value, datetime.date):
            return self._time("d", "date", value.isoformat())
        if isinstance(value, str):
            if "\0" in value:
                raise NoLiteral("text with a zero byte")
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise NoLiteral("text with half a character") from error
            if "\\" not in value or self.backslash == "plain":
                return ("" if value.isascii() else self.wide) + "'" + value.replace("'", "''") + "'"
            if self.backslash == "parameter":
                return f"{_PARAMETER}{value}{_PARAMETER}"
            return "E'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
        raise NoLiteral(f"a value of type {type(value).__name__}")

    def date(self, text: str) -> str:
        """Return a date, such as "2024-02-29", as SQL."""
        return self._time("d", "date", text)

    def timestamp(self, text: str) -> str:
        """Return a date and time, such as "2024-02-29 12:00:00.123", as SQL."""
        return self._time("ts", "datetime2(7)", text)

    def _time(self, kind: str, type: str, text: str) -> str:
        if self.times == "cast":
            return f"CAST('{text}' AS {type})"
        # JDBC's own way to write times, which its drivers turn into their database's.
        return f"{{{kind} '{text}'}}" if self.times == "jdbc" else f"'{text}'"

    def statements(self, table: str, columns: Sequence[str], key: Sequence[str], rows: Values) -> list[str]:
        """Return what writes rows of literals, no two of which have one key, or adds them; see `prepared` for how one is run."""
        return [statement for some in _cut(rows) for statement in self._statements(table, columns, key, some)]

    def _statements(self, table: str, columns: Sequence[str], key: Sequence[str], rows: Values) -> list[str]:
        names, others = ", ".join(columns), [c for c in columns if c not in key]
        insert = f"INSERT INTO {table} ({names}) VALUES {_listed(rows)}"
        if not key and self.style == "dual":
            given = " UNION ALL ".join(f"SELECT {', '.join(row)} FROM dual" for row in rows)
            return [f"INSERT INTO {table} ({names}) {given}"]
        if not key:
            return [insert]
        if self.style == "conflict":
            sets = ", ".join(f"{c} = excluded.{c}" for c in others)
            return [f"{insert} ON CONFLICT ({', '.join(key)}) DO {f'UPDATE SET {sets}' if sets else 'NOTHING'}"]
        if self.style == "duplicate":
            sets = ", ".join(f"{c} = VALUES({c})" for c in others or key)
            return [f"{insert} ON DUPLICATE KEY UPDATE {sets}"]
        if self.style in ("merge", "dual"):
            return [self._merge(table, columns, key, others, rows)]
        wanted = _with_key(columns, key, rows)
        return [f"DELETE FROM {table} WHERE {wanted}", insert]

    def deletions(self, table: str, columns: Sequence[str], key: Sequence[str], rows: Values) -> list[str]:
        """Return what deletes the rows that have the keys of rows of literals; see `prepared` for how one is run."""
        return [f"DELETE FROM {table} WHERE {_with_key(columns, key, some)}" for some in _cut(rows)]

    def _merge(
        self, table: str, columns: Sequence[str], key: Sequence[str], others: Sequence[str], rows: Values
    ) -> str:
        names = ", ".join(columns)
        if self.style == "dual":
            source = " UNION ALL ".join(
                f"SELECT {', '.join(f'{v} AS {c}' for v, c in zip(row, columns, strict=True))} FROM dual"
                for row in rows
            )
            using = f"({source}) s"
        else:
            using = f"(VALUES {_listed(rows)}) AS s ({names})"
        same = " AND ".join(f"t.{c} = s.{c}" for c in key)
        sets = ", ".join(f"t.{c} = s.{c}" for c in others)
        update = f" WHEN MATCHED THEN UPDATE SET {sets}" if sets else ""
        given = ", ".join(f"s.{c}" for c in columns)
        end = ";" if self.name == "sqlserver" else ""
        word = "t" if self.style == "dual" else "AS t"
        return (
            f"MERGE INTO {table} {word} USING {using} ON ({same}){update}"
            f" WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({given}){end}"
        )


def _cut(rows: Values) -> list[Values]:
    """Return rows by statement. One with parameters has its own: not every database takes them among several rows."""
    alone: list[Values] = [[row] for row in rows if any(_PARAMETER in value for value in row)]
    together = [row for row in rows if not any(_PARAMETER in value for value in row)]
    return [together, *alone] if together else alone


def _with_key(columns: Sequence[str], key: Sequence[str], rows: Values) -> str:
    """Return the condition of rows that have the key of one of some rows of literals."""
    at = [columns.index(c) for c in key]
    return " OR ".join(f"({' AND '.join(f'{c} = {row[i]}' for c, i in zip(key, at, strict=True))})" for row in rows)


def _listed(rows: Values) -> str:
    return ", ".join("(" + ", ".join(row) + ")" for row in rows)


def prepared(statement: str) -> tuple[str, list[str]]:
    """Return a statement with a question mark for each of its parameters, and these."""
    pieces = statement.split(_PARAMETER)
    return "?".join(pieces[::2]), pieces[1::2]


def dialect_of(product: str, quote: str) -> Dialect:
    """Return the dialect of a database that says so of itself; of one that is not known, what every database knows."""
    name = product.lower()
    if "postgres" in name:
        return Dialect("postgresql", quote, "conflict", "escapes", binary="decode('{}', 'hex')".format)
    if "sqlite" in name:
        return Dialect("sqlite", quote, "conflict", "plain", times="text")
    if "mysql" in name or "mariadb" in name:
        return Dialect("mysql", quote, "duplicate")
    if "microsoft" in name:
        # {ts '…'} is of an old type there, which takes three digits of a second; text without N is put into the code page
        # of the database, and a question mark stands for what that does not have.
        return Dialect("sqlserver", "[", "merge", times="cast", wide="N", booleans=False, binary="0x{}".format)
    if "oracle" in name:
        return Dialect("oracle", quote, "dual", "plain", booleans=False, binary="HEXTORAW('{}')".format)
    if name == "h2" or "hsql" in name or name.startswith("db2"):
        return Dialect(name.split("/")[0].split()[0], quote, "merge", "plain")
    return Dialect(name.split()[-1] if name else "other", quote, "replace")
