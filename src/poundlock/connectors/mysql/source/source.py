"""MySqlSource: what a user says about reading MySQL and MariaDB, checked when it is written.

A source is a value: it holds no connection, can be pickled and compared, and shows no password.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa

from poundlock.arguments import NAMES, TEXT, check_choices, check_kind, refuse_without_effect
from poundlock.connectors.base import Enumerator, ReaderContext, ReplayPromise
from poundlock.connectors.changes.envelopes import SCHEMA
from poundlock.connectors.mysql.connection import MySqlLogin, rows_of
from poundlock.connectors.mysql.source.catalog import LoggedTable, check_logged, look_up
from poundlock.connectors.mysql.source.enumerator import MySqlEnumerator
from poundlock.connectors.mysql.source.log import ServerIds
from poundlock.connectors.mysql.source.positions import MySqlPosition
from poundlock.connectors.mysql.source.reader import MySqlReader
from poundlock.connectors.mysql.source.rows import change_schema
from poundlock.errors import DefinitionError
from poundlock.storage import Storage
from poundlock.values import Clock, SystemClock, duration, positive_number, size, span_ms

_STARTS = ("initial", "latest", "earliest", "snapshot")
_PLACE = re.compile(r"[^\s:]+\.[0-9]+:[0-9]+")
_IDS = re.compile(r"([0-9]+)-([0-9]+)")
_MOST_IDS = (1 << 32) - 1
_SNAPSHOT_ONLY: dict[str, object] = {"chunk_size": 50_000, "chunks_per_checkpoint": 16}


@dataclass(frozen=True)
class MySqlSource:
    """Read tables of MariaDB as they change: the rows that are there, then every insert, update and delete from the server's log.

    Rows have the columns `op`, `file`, `pos`, `number`, `gtid`, `commit_time`, `table`, `before` and `after`. Several tables
    of one source have the same columns, as the parts of a table have that was cut by hand; with output="debezium" they need not,
    and rows have the columns `table`, `key` and `value`, the last two as Debezium's JSON.

    Args:
        dsn: "mysql://user@host:3306/database".
        tables: one table, or several: "orders" of the dsn's database, or "shop.orders".
        password: the password, "env:NAME" or "file:PATH"; None = in the dsn, or none.
        columns: the columns wanted, those of the primary key among them; None = all.
        start: "initial": the rows that are there at the first start come first, with op "read"; "snapshot": the same, and
            the job ends when all of them are read; "latest": changes from the first start on; "earliest": all changes that the
            server's log has; or a place of the log such as "mariadb-bin.000003:4".
        chunk_size: about how many rows one task reads at a time of the rows that are there.
        chunks_per_checkpoint: how many such pieces one checkpoint reads.
        on_schema_change: what an ALTER does that is more than a column added: "stop" the job, or "go-on" with the columns that
            it was started with.
        output: "rows", or "debezium".
        server_id: a number, or a range such as "5400-5499", that nobody else reads the log as: 2 numbers and one for each of
            chunks_per_checkpoint; None = numbers by chance out of three thousand million.
        max_log_per_checkpoint: about how much of the server's log one checkpoint reads.
        poll_every: least time between two looks while nothing is new.
        clock: where the time comes from.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    dsn: str = field(repr=False)
    _: KW_ONLY
    tables: str | Sequence[str]
    password: str | None = field(default=None, repr=False)
    columns: Sequence[str] | None = None
    start: Literal["initial", "snapshot", "latest", "earliest"] | str = "initial"
    chunk_size: int = 50_000
    chunks_per_checkpoint: int = 16
    on_schema_change: Literal["stop", "go-on"] = "stop"
    output: Literal["rows", "debezium"] = "rows"
    server_id: int | str | None = None
    max_log_per_checkpoint: str | int = "64 MB"
    poll_every: str | timedelta = "1 s"
    clock: Clock = field(default_factory=SystemClock, compare=False)
    login: MySqlLogin = field(init=False, compare=False)
    # Once asked for, so that tasks need not ask.
    _tables: list[LoggedTable] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_kind("MySqlSource", TEXT, {"dsn": self.dsn, "start": self.start})
        check_kind("MySqlSource", NAMES, {"tables": self.tables})
        check_kind("MySqlSource", NAMES, {"columns": self.columns}, optional=True)
        tables = (self.tables,) if isinstance(self.tables, str) else tuple(self.tables)
        columns = (self.columns,) if isinstance(self.columns, str) else self.columns
        for name, value in (
            ("tables", tables),
            ("columns", None if columns is None else tuple(columns)),
            ("login", MySqlLogin(self.dsn, self.password)),
            ("max_log_per_checkpoint", size(self.max_log_per_checkpoint)),
            ("poll_every", duration(self.poll_every)),
            ("clock", self.clock or SystemClock()),
        ):
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        self.login.check()
        for name in ("chunk_size", "chunks_per_checkpoint"):
            positive_number(name, getattr(self, name))
        check_choices(self, {"on_schema_change": ("stop", "go-on"), "output": ("rows", "debezium")})
        if not self.tables or self.columns == () or not self.max_log_per_checkpoint:
            raise DefinitionError(
                "MySqlSource has nothing to read: a list of it is empty, or a limit is zero",
                next='write tables=["shop.orders"], and leave what is empty out',
            )
        names = self.names
        if len(set(names)) != len(names):
            raise DefinitionError("tables=[…] names a table twice", next="name each once")
        if lone := [name for name in names if name.startswith(".")]:
            raise DefinitionError(
                f"nobody knows in which database table {lone[0][1:]!r} is",
                next='write "database.table", or a database in the dsn',
            )
        if self.start not in _STARTS and not _PLACE.fullmatch(self.start):
            raise DefinitionError(
                f"start={self.start!r} is no place to begin at",
                next=f'use one of {", ".join(_STARTS)}, or "FILE:POSITION"',
            )
        if not self.reads_before:
            refuse_without_effect(
                "MySqlSource",
                {name: (getattr(self, name), default) for name, default in _SNAPSHOT_ONLY.items()},
                because=f"start is {self.start!r}",
            )
        count, needed = self.ids.count, 2 + (self.chunks_per_checkpoint if self.reads_before else 0)
        if count is not None and count < needed:
            raise DefinitionError(
                f"server_id={self.server_id!r} has {count} numbers, and {needed} readers may read the log at one time",
                next=f'write a range such as "5400-{5400 + needed - 1}", or leave it out',
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The tables as "database.table"."""
        database = self.login.database
        return tuple(name if "." in name else f"{database}.{name}" for name in self.tables)

    @property
    def reads_before(self) -> bool:
        """Whether the rows come that are there at the first start."""
        return self.start in ("initial", "snapshot")

    @property
    def ids(self) -> ServerIds:
        """The numbers that its readers call themselves.

        Raises:
            DefinitionError: what was given is no number and no range.
        """
        if self.server_id is None:
            return ServerIds()
        text = str(self.server_id)
        match = _IDS.fullmatch(text if "-" in text else f"{text}-{text}")
        if match is None or not 0 < int(match[1]) <= int(match[2]) <= _MOST_IDS:
            raise DefinitionError(
                f"server_id={self.server_id!r} is no range of numbers", next='write such as "5400-5499"'
            )
        return ServerIds(int(match[1]), int(match[2]))

    @property
    def poll_ms(self) -> int:
        """How long to wait between two looks, ms."""
        return span_ms(self.poll_every)

    @property
    def place(self) -> str:
        """What is read and where, for people."""
        return f"{', '.join(self.names)} of {self.login.shown} (changes)"

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""
        return self.start == "snapshot"

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives."""
        return ReplayPromise(
            "exact",
            "a position is a place in the server's log, and rows that were there before are read as they were at that place",
        )

    def schema(self) -> pa.Schema:
        """Return the columns of the rows, as the server knows them.

        Raises:
            DefinitionError: there is no such table or column, or the server refuses this user.
            TransientError: no server answers.
        """
        tables = self._looked_up_once()
        return SCHEMA if self.output == "debezium" else change_schema(tables[0].columns)

    def planned(self) -> dict[str, list[str]]:
        """Return the columns of each table that the job was planned with; what is added later waits for its next start."""
        return {table.name: [column.name for column in table.columns] for table in self._looked_up_once()}

    def _looked_up_once(self) -> list[LoggedTable]:
        if not self._tables:
            with self.login.reading("looking up its tables") as connection:
                self._tables.extend(self._looked_up(connection))
        return self._tables

    def _looked_up(self, connection: Any) -> list[LoggedTable]:
        tables = look_up(connection, self.names, dict.fromkeys(self.names, self.columns))
        first = {column.name: column.arrow for column in tables[0].columns}
        for table in tables[1:]:
            if self.output == "rows" and {column.name: column.arrow for column in table.columns} != first:
                raise DefinitionError(
                    f"{table.name} has other columns than {tables[0].name}, and rows of one source have one form",
                    next='name the columns that both have in columns=[…], or make a source for each, or say output="debezium"',
                )
        return tables

    def preflight(self) -> None:
        """Ask the server whether all of this can be read.

        Raises:
            DefinitionError: it cannot, and what to do about it.
            TransientError: no server answers within 5 s.
        """
        with self.login.reading("looking up its tables") as connection:
            tables = self._looked_up(connection)
            check_logged(connection, tables)
            for table in tables:  # this user may see a table and not read it
                rows_of(connection, f"SELECT 1 FROM {table.source} WHERE false")
            rows_of(connection, "SHOW MASTER STATUS")

    def enumerator(self, workspace: Storage) -> Enumerator:
        """Return the driver's half."""
        return MySqlEnumerator(self)

    def reader(self, context: ReaderContext) -> MySqlReader:
        """Return the task's half."""
        return MySqlReader(self.login, self.ids, context, self.output)

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        at = MySqlPosition.from_json(position, self.names)
        parts = [
            f"{name} {'whole' if f.whole else 'not yet' if f.below is None else f'below {f.below}'}"
            for name, f in at.tables.items()
        ]
        return f"{', '.join(self.names)}: changes up to {at.log or 'nothing'}" + (
            f"; {', '.join(parts)}" if parts else ""
        )
