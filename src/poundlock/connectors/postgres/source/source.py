"""PostgresSource: what a user says about reading PostgreSQL, checked when it is written.

A source is a value: it holds no connection, can be pickled and compared, and shows no password.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa

from poundlock.arguments import NAMES, TEXT, check_choices, check_kind, refuse_without_effect
from poundlock.connectors.base import Enumerator, ReaderContext, ReplayPromise
from poundlock.connectors.changes.envelopes import SCHEMA
from poundlock.connectors.examination import Examination
from poundlock.connectors.postgres.connection import PostgresLogin, clock_ahead
from poundlock.connectors.postgres.errors import load_psycopg
from poundlock.connectors.postgres.source.cdc import CdcEnumerator
from poundlock.connectors.postgres.source.cdc_rows import change_schema
from poundlock.connectors.postgres.source.incremental import IncrementalEnumerator, column_kind
from poundlock.connectors.postgres.source.positions import ColumnPosition, LogPosition, SnapshotPosition
from poundlock.connectors.postgres.source.reader import PostgresReader
from poundlock.connectors.postgres.source.relation import Relation, look_up
from poundlock.connectors.postgres.source.snapshot import SnapshotEnumerator, key_of
from poundlock.connectors.postgres.source.tables import PublishedTable, check_ready, check_settings, published_tables
from poundlock.connectors.postgres.source.work import Output
from poundlock.errors import DefinitionError
from poundlock.storage import Storage
from poundlock.values import Clock, SystemClock, duration, positive_number, size, span_ms

Mode = Literal["snapshot", "incremental", "cdc"]
_OWN = {
    "snapshot": ("key", "ranges", "lost_snapshot", "ranges_per_checkpoint"),
    "incremental": ("column", "start", "until", "append_only"),
    "cdc": ("slot", "publication", "key", "tables", "chunk_size"),
}
_CHOICES = {
    "mode": tuple(_OWN),
    "lost_snapshot": ("stop", "newer"),
    "initial": ("snapshot", "none"),
    "before": ("full", "key"),
    "output": ("rows", "debezium"),
}
# Argument to (the modes that look at it, its field, its default).
_TUNING: dict[str, tuple[tuple[Mode, ...], str, object]] = {
    "split_size": (("snapshot", "cdc"), "split_size", size("64 MB")),
    "settle": (("incremental",), "settle_ms", 1_000),
    "rows_per_split": (("incremental",), "rows_per_split", 250_000),
    "max_rows_per_checkpoint": (("incremental",), "max_rows_per_checkpoint", 1_000_000),
    "initial": (("cdc",), "initial", "snapshot"),
    "before": (("cdc",), "before", "full"),
    "output": (("cdc",), "output", "rows"),
    "chunks_per_checkpoint": (("cdc",), "chunks_per_checkpoint", 16),
    "max_wal_per_checkpoint": (("cdc",), "max_wal_per_checkpoint", size("64 MB")),
    "poll_every": (("incremental", "cdc"), "poll_ms", 1_000),
}


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True)
class PostgresSource:
    """Read a table or a query of PostgreSQL: once, as it grows, or as it changes.

    Mode "snapshot" reads all rows as they were at one moment, then ends. Mode "incremental" reads rows in the order of a
    column that only grows, and goes on with new ones. Mode "cdc" reads every insert, update and delete from the server's
    log, in rows with the columns `op`, `lsn`, `number`, `xid`, `commit_time`, `before` and `after`. Of `tables`, which have the
    same columns, they have the column `table`, too; with output="debezium" tables need not be alike, and rows have the columns
    `table`, `key` and `value`, the last two as Debezium's JSON.

    Args:
        dsn: "postgresql://user@host:5432/database", or the words of libpq, or "env:NAME" or "file:PATH" where it stands.
        table: name of a table, such as "public.events".
        tables: several tables for "cdc": names, "public.orders", or regular expressions of names, "public\\.orders_[0-9]+". A table
            that comes to be meant later is read from its beginning at the next start.
        query: a SELECT instead of a table; not for "cdc".
        mode: "snapshot", "incremental" or "cdc".
        password: the password, "env:NAME" or "file:PATH"; None = in the dsn, or as libpq finds one.
        columns: the columns wanted; None = all.
        where: SQL condition on the rows; not for "cdc".
        key: column by which a snapshot is cut into ranges; None = by physical place, a query in one piece. For "cdc" the column that
            chunks are cut by: a whole number, date, time or uuid without nulls; None = the first of the primary key, where it is one.
        ranges: SQL conditions by which a snapshot is cut instead, one for each piece of a task's work. A row that meets none of
            them is not read, so each has to meet one, and no more than one.
        split_size: about how much of a table one task reads at a time, in a snapshot and of the rows before the changes.
        ranges_per_checkpoint: cut a snapshot into checkpoints of so many ranges; None = all of it is one checkpoint, so
            that a crash before its end starts it over from a newer state.
        lost_snapshot: what to do after a crash with ranges that are left over: "stop", or read them as they are now:
            "newer". Only with ranges_per_checkpoint.
        column: the growing column of "incremental": a number, date or time.
        append_only: you say that rows of the table, or of the query, are only added: none is changed or deleted once it is
            there. Without that, "incremental" may miss or repeat rows that are changed between two readings, and a job
            that requires a guarantee refuses it.
        start: read values greater than this, as text; None = from the beginning.
        until: read values up to this, as text, then end; None = never.
        settle: least time that a value was there before rows up to it are read, for writers that take a value, and write
            nothing for a while.
        rows_per_split: most rows, about, of one task's piece in "incremental".
        max_rows_per_checkpoint: most rows, about, of one checkpoint in "incremental".
        slot: name of the replication slot of "cdc"; made on the first start. Every job needs one of its own.
        publication: name of a publication that has the table.
        initial: "snapshot": the rows that are there at the first start come first, with op "read"; "none": changes only.
        before: "full": rows as they were before an update or delete, which needs REPLICA IDENTITY FULL; "key": what the
            table's replica identity gives, which for most is the key of deleted rows.
        output: "rows", or "debezium".
        chunk_size: about how many rows one task of "cdc" reads at a time of those that are there; None = as split_size says.
        chunks_per_checkpoint: how many such pieces one checkpoint of "cdc" reads.
        max_wal_per_checkpoint: most of the server's log that one checkpoint reads.
        poll_every: least time between two looks while nothing is new.
        clock: where the time comes from.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    dsn: str = field(repr=False)
    _: KW_ONLY
    table: str | None = None
    tables: str | Sequence[str] | None = None
    query: str | None = None
    mode: Mode = "snapshot"
    password: str | None = field(default=None, repr=False)
    columns: Sequence[str] | None = None
    where: str | None = None
    key: str | None = None
    ranges: Sequence[str] | None = None
    split_size: str | int = "64 MB"
    ranges_per_checkpoint: int | None = None
    lost_snapshot: Literal["stop", "newer"] = "stop"
    column: str | None = None
    append_only: bool = False
    start: Any = None
    until: Any = None
    settle: str | timedelta = "1 s"
    rows_per_split: int = 250_000
    max_rows_per_checkpoint: int = 1_000_000
    slot: str | None = None
    publication: str | None = None
    initial: Literal["snapshot", "none"] = "snapshot"
    before: Literal["full", "key"] = "full"
    output: Literal["rows", "debezium"] = "rows"
    chunk_size: int | None = None
    chunks_per_checkpoint: int = 16
    max_wal_per_checkpoint: str | int = "64 MB"
    poll_every: str | timedelta = "1 s"
    clock: Clock = field(default_factory=SystemClock, compare=False)
    login: PostgresLogin = field(init=False, compare=False)
    # Once asked for, so that tasks need not ask.
    _schema: list[pa.Schema] = field(default_factory=list, init=False, repr=False, compare=False)
    _tables: list[PublishedTable] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_kind("PostgresSource", TEXT, {"query": self.query, "slot": self.slot}, optional=True)
        check_kind("PostgresSource", NAMES, {"columns": self.columns, "ranges": self.ranges}, optional=True)
        check_kind("PostgresSource", NAMES, {"tables": self.tables}, optional=True)
        query = self.query.strip().rstrip(";") if self.query is not None else None
        given = (self.columns,) if isinstance(self.columns, str) else self.columns
        columns = None if given is None else tuple(given)
        for name, value in (
            ("query", query),
            ("columns", columns),
            ("tables", None if self.tables is None else _several(self.tables)),
            ("ranges", None if self.ranges is None else tuple(self.ranges)),
            ("login", PostgresLogin(self.dsn, self.password)),
            ("start", None if self.start is None else str(self.start)),
            ("until", None if self.until is None else str(self.until)),
            ("split_size", size(self.split_size)),
            ("max_wal_per_checkpoint", size(self.max_wal_per_checkpoint)),
            ("settle", duration(self.settle)),
            ("poll_every", duration(self.poll_every)),
            ("clock", self.clock or SystemClock()),
        ):
            object.__setattr__(self, name, value)
        self._check()

    @property
    def settle_ms(self) -> int:
        """How old a value must be, ms."""
        return span_ms(self.settle)

    @property
    def poll_ms(self) -> int:
        """How long to wait between two looks, ms."""
        return span_ms(self.poll_every)

    def _check(self) -> None:
        if [self.table, self.query, self.tables].count(None) != 2:
            raise DefinitionError(
                "PostgresSource needs exactly one of table and query, or for changes of several tables",
                next='write table="public.events"',
            )
        check_choices(self, _CHOICES)
        for name in (
            "ranges_per_checkpoint",
            "rows_per_split",
            "max_rows_per_checkpoint",
            "chunk_size",
            "chunks_per_checkpoint",
        ):
            if (value := getattr(self, name)) is not None:
                positive_number(name, value)
        if self.ranges is not None and (self.key is not None or not self.ranges):
            raise DefinitionError(
                "ranges and key both say how a snapshot is cut" if self.ranges else "ranges=[] reads nothing",
                next='write ranges=["id < 1000", "id >= 1000"], or leave it out',
            )
        if 0 in (self.split_size, self.max_wal_per_checkpoint):
            raise DefinitionError("a limit of PostgresSource is zero", next='give sizes such as "64 MB"')
        given = {name for names in _OWN.values() for name in names if getattr(self, name) not in (None, False, "stop")}
        if foreign := sorted(given - set(_OWN[self.mode])):
            fits = " or ".join(mode for mode, names in _OWN.items() if foreign[0] in names)
            raise DefinitionError(
                f'{foreign[0]} means nothing in mode "{self.mode}"', next=f'leave it out, or say mode="{fits}"'
            )
        unused = {name: pair for name, pair in _TUNING.items() if self.mode not in pair[0]}
        refuse_without_effect(
            "PostgresSource",
            {name: (getattr(self, field), default) for name, (_, field, default) in unused.items()},
            because=f"mode is {self.mode!r}",
        )
        if self.lost_snapshot == "newer" and self.ranges_per_checkpoint is None:
            raise DefinitionError(
                'lost_snapshot="newer" is for a snapshot that is read in several checkpoints',
                next="say ranges_per_checkpoint=… too, or leave it out: one checkpoint then has all, or nothing",
            )
        if self.mode == "incremental" and self.column is None:
            raise DefinitionError('mode "incremental" needs a column whose values only grow', next='write column="id"')
        if self.mode == "cdc":
            check_settings(self)

    @property
    def shown(self) -> str:
        """What people know it by."""
        if self.tables is not None:
            return ", ".join(self.tables)
        return self.table if self.table is not None else "a query"

    @property
    def form(self) -> Output:
        """The form of its change rows."""
        if self.output == "debezium":
            return "debezium"
        return "tables" if self.tables is not None else "one table"

    @property
    def reads(self) -> str:
        """What its positions are of."""
        return self.shown if self.column is None else f"{self.shown} by {self.column}"

    @property
    def place(self) -> str:
        """What is read and where, for people."""
        return f"{self.shown} of {self.login.shown} ({self.mode})"

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""
        return self.mode == "snapshot" or (self.mode == "incremental" and self.until is not None)

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives, which goes by the mode and by what is known of the table."""
        if self.mode == "cdc":
            return ReplayPromise(
                "exact",
                "a position is a place in the server's log, which the slot keeps until it is decided, and rows that were there before "
                "are read as they were at that place",
            )
        if self.mode == "incremental":
            if self.append_only and self.settle_ms:
                return ReplayPromise(
                    "exact", "append_only=True says that rows are only added, so a range of values stays as it is"
                )
            why = "a row that is changed between two readings may be missed or come twice; append_only=True says there are none"
            if self.append_only:
                why = 'with settle="0 s" a row may be missed whose writer took its value a moment before'
            return ReplayPromise("if-unchanged", why)
        if self.lost_snapshot == "newer":
            return ReplayPromise(
                "if-unchanged",
                'lost_snapshot="newer" reads the ranges that are left after a crash as they are then, so rows that were '
                "changed may be missed or come twice",
            )
        return ReplayPromise(
            "exact", "all ranges are read in one snapshot, and the job stops if it is lost with ranges left over"
        )

    def schema(self) -> pa.Schema:
        """Return the columns of the rows, as the server knows them.

        Raises:
            DefinitionError: there is no such table or column, or the server refuses this user.
            TransientError: no server answers.
        """
        if not self._schema:
            with self.login.reading(f"looking up {self.shown}") as connection:
                if self.mode == "cdc":
                    columns = self.planned(connection)[0].columns
                    schema = (
                        SCHEMA
                        if self.output == "debezium"
                        else change_schema(columns, has_table=self.tables is not None)
                    )
                else:
                    relation = look_up(connection, self)
                    schema = pa.schema([(column.name, column.arrow) for column in relation.columns])
                self._schema.append(schema)
        return self._schema[0]

    def planned(self, connection: Any) -> list[PublishedTable]:
        """Return the tables of "cdc" with the columns that the job was planned with; what is added later waits for its next start."""
        if not self._tables:
            self._tables.extend(published_tables(connection, self))
        return self._tables

    def refuse_preview(self) -> None:
        """Raise DefinitionError for changes: their replication slot is made, and moved on, by reading."""
        if self.mode == "cdc":
            raise DefinitionError(
                "a preview of changes would make their replication slot, or move it on",
                next='look at the table as it is: mode="snapshot"',
            )

    def preflight(self) -> None:
        """Ask the server whether all of this can be read.

        Raises:
            DefinitionError: it cannot, and what to do about it.
            TransientError: no server answers within 5 s.
        """
        self.login.check()
        with self.login.reading(f"looking up {self.shown}") as connection:
            if self.mode == "cdc":
                check_ready(connection, self)
                for table in published_tables(connection, self):  # this user may see a table and not read it
                    connection.execute(f"SELECT 1 FROM {table.source} WHERE false")
                return
            relation = look_up(connection, self)
            # Refused by name here, and not in the tasks: this user may see the table and not read it.
            connection.execute(relation.select("false", *(self.ranges or ())))
            if self.key is not None or (self.lost_snapshot == "newer" and self.ranges is None):
                self._check_key(connection, relation)
            if self.mode == "incremental":
                self._check_growing(connection, relation)

    def examine(self) -> Examination:
        """Do what `preflight` does, which makes nothing, and see what time the server has; see `Examinable`."""
        self.preflight()
        with self.login.reading("asking for the time") as connection:
            ahead = clock_ahead(connection)
        return Examination(ms_ahead=ahead, clock=f"PostgreSQL at {self.login.name}")

    def _check_key(self, connection: Any, relation: Relation) -> None:
        key = key_of(self, relation)
        columns = connection.execute(f"SELECT * FROM {relation.source} LIMIT 0").description or ()
        if key not in {each.name for each in columns}:
            raise DefinitionError(
                f"{self.shown} has no column {key!r} to cut it by", next="mend key=…, or leave it out"
            )

    def _check_growing(self, connection: Any, relation: Relation) -> None:
        kind = column_kind(connection, relation, str(self.column))
        for name, value in [each for each in (("start", self.start), ("until", self.until)) if each[1] is not None]:
            try:
                connection.execute(f"SELECT CAST(%s AS {kind})", [value])
            except load_psycopg().DataError:
                raise DefinitionError(f"{name}={value!r} is no {kind}", next=f"give a value of {self.column}") from None

    def enumerator(self, workspace: Storage) -> Enumerator:
        """Return the driver's half."""
        if self.mode == "snapshot":
            return SnapshotEnumerator(self, workspace)
        return IncrementalEnumerator(self) if self.mode == "incremental" else CdcEnumerator(self, workspace)

    def reader(self, context: ReaderContext) -> PostgresReader:
        """Return the task's half."""
        return PostgresReader(self.login, self.shown, context)

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        if self.mode == "snapshot":
            at = SnapshotPosition.from_json(position, self.reads)
            return f"{self.shown}: {at.next} of {'?' if at.plan is None else at.of} ranges read"
        if self.mode == "incremental":
            return f"{self.shown}: {self.column} up to {ColumnPosition.from_json(position, self.reads).value}"
        return f"{self.shown}: {LogPosition.from_json(position, self.reads).described}"
