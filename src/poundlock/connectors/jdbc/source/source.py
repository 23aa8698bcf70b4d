"""JdbcSource: what a user says about reading a database by JDBC, checked when it is written.

A source is a value: it holds no connection, can be pickled and compared, and shows no password.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Literal

import pyarrow as pa

from poundlock.arguments import FLAG, MAPPING, NAMES, TEXT, check_choices, check_kind, refuse_without_effect
from poundlock.connectors.base import Enumerator, ReaderContext, ReplayPromise
from poundlock.connectors.jdbc.bridge import Connect, connector
from poundlock.connectors.jdbc.login import JdbcLogin, check_table
from poundlock.connectors.jdbc.source.growing import GrowingEnumerator
from poundlock.connectors.jdbc.source.positions import GrowingPosition, RangePosition
from poundlock.connectors.jdbc.source.ranges import RangeEnumerator
from poundlock.connectors.jdbc.source.reader import JdbcReader
from poundlock.connectors.jdbc.source.relation import JdbcRelation, look_up
from poundlock.connectors.jdbc.source.session import JdbcSession, explained
from poundlock.connectors.jdbc.source.values import given_units
from poundlock.errors import DefinitionError
from poundlock.storage import Storage
from poundlock.values import Clock, SystemClock, duration, positive_number, span_ms

Mode = Literal["bounded", "incremental"]
_MOST_PARTITIONS = 10_000
# Argument to its mode, and its default.
_OWN: dict[str, tuple[Mode, object]] = {
    "partition_column": ("bounded", None),
    "partitions": ("bounded", None),
    "lower_bound": ("bounded", None),
    "upper_bound": ("bounded", None),
    "partitions_per_checkpoint": ("bounded", None),
    "column": ("incremental", None),
    "start": ("incremental", None),
    "lag": ("incremental", timedelta(seconds=10)),
    "poll_every": ("incremental", timedelta(seconds=1)),
    "rows_per_split": ("incremental", 250_000),
    "max_rows_per_checkpoint": ("incremental", 1_000_000),
}


@dataclass(frozen=True)
class JdbcSource:
    """Read a table or a query of any database that has a JDBC driver: once, or as it grows.

    Mode "bounded" reads what is there, in ranges of a column's values that tasks read side by side, then ends. Mode
    "incremental" reads rows in the order of a column that only grows, and goes on with new ones. For PostgreSQL there is
    PostgresSource, for changes of MySQL and MariaDB MySqlSource.

    Args:
        url: "jdbc:…", without the password.
        table: name of a table, with its schema where that is needed.
        query: a SELECT instead of a table.
        mode: "bounded" or "incremental".
        columns: the columns wanted, in any case of letters: rows have them as they are written here. None = all, as the
            database names them.
        where: SQL condition on the rows.
        user, password: who asks; the password itself, "env:NAME" or "file:PATH".
        properties: further properties of the driver.
        driver: class of the driver; None = chosen by the URL.
        jars: paths of the driver's jars, on every machine that runs tasks.
        fetch_size: rows that are fetched, and handed on, at a time.
        partition_column: whole numbers, decimals, dates or times by which a bounded read is cut; None = it is one piece.
        partitions: into how many ranges of one width it is cut.
        lower_bound, upper_bound: rows with smaller or greater values of that column, or none, are not read; None = what the
            table has when the job starts.
        partitions_per_checkpoint: ranges of one checkpoint, so that a job that died goes on behind those that were decided;
            None = all of it is one checkpoint.
        column: the growing column of "incremental": whole numbers, decimals, dates or times.
        start: read values greater than this, as text; None = from the beginning.
        lag: least time that a value was there before rows up to it are read, for rows that become visible after one with a
            greater value. A row that is later than that is missed.
        poll_every: least time between two looks while nothing is new.
        rows_per_split: most rows, about, of one task's piece in "incremental".
        max_rows_per_checkpoint: most rows, about, of one checkpoint in "incremental".
        append_only: you say that rows are only added, with a greater value of the column than all that are there, and in
            "incremental" that each is visible within `lag` of the first one with its value or a greater one. Without that rows
            may be missed or repeated that are changed between two readings, and a job that requires a guarantee refuses it.
        clock: where the time comes from.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    url: str
    _: KW_ONLY
    table: str | None = None
    query: str | None = None
    mode: Mode = "bounded"
    columns: Sequence[str] | None = None
    where: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    driver: str | None = None
    jars: Sequence[str] = ()
    fetch_size: int = 10_000
    partition_column: str | None = None
    partitions: int | None = None
    lower_bound: Any = None
    upper_bound: Any = None
    partitions_per_checkpoint: int | None = None
    column: str | None = None
    start: Any = None
    lag: str | timedelta = "10 s"
    poll_every: str | timedelta = "1 s"
    rows_per_split: int = 250_000
    max_rows_per_checkpoint: int = 1_000_000
    append_only: bool = False
    clock: Clock = field(default_factory=SystemClock, compare=False)
    # Once asked for, so that tasks need not ask; and what makes connections, which travels to them.
    _schema: list[pa.Schema] = field(default_factory=list, init=False, repr=False, compare=False)
    _way: list[Connect] = field(default_factory=list, init=False, repr=False, compare=False)

    jvm: ClassVar[bool] = True  # the runtime gives it a way to one

    def __post_init__(self) -> None:
        check_kind("JdbcSource", NAMES, {"columns": self.columns, "jars": self.jars}, optional=True)
        texts = ("query", "where", "user", "partition_column", "column", "driver")
        check_kind("JdbcSource", TEXT, {name: getattr(self, name) for name in texts}, optional=True)
        check_kind("JdbcSource", MAPPING, {"properties": self.properties})
        check_kind("JdbcSource", FLAG, {"append_only": self.append_only})
        for name, value in (
            ("query", None if self.query is None else self.query.strip().rstrip(";")),
            ("columns", _names(self.columns)),
            ("jars", _names(self.jars) or ()),
            *((name, _text(getattr(self, name))) for name in ("lower_bound", "upper_bound", "start")),
            ("lag", duration(self.lag)),
            ("poll_every", duration(self.poll_every)),
            ("clock", self.clock or SystemClock()),
        ):
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        self.login.check()
        if (self.table is None) == (self.query is None):
            raise DefinitionError("JdbcSource needs exactly one of table and query", next='write table="schema.name"')
        if self.table is not None:
            check_table("table", self.table)
        check_choices(self, {"mode": ("bounded", "incremental")})
        for name in (
            "fetch_size",
            "partitions",
            "partitions_per_checkpoint",
            "rows_per_split",
            "max_rows_per_checkpoint",
        ):
            if (value := getattr(self, name)) is not None:
                positive_number(name, value)
        foreign = {name: default for name, (mode, default) in _OWN.items() if mode != self.mode}
        refuse_without_effect(
            "JdbcSource",
            {name: (getattr(self, name), default) for name, default in foreign.items()},
            because=f"mode is {self.mode!r}",
        )
        if self.mode == "incremental":
            if self.column is None:
                raise DefinitionError(
                    'mode "incremental" needs a column whose values only grow', next='write column="id"'
                )
            return
        if (self.partition_column is None) != (self.partitions is None):
            raise DefinitionError(
                "partition_column and partitions say together how a table is cut, and one of them is missing",
                next='write partition_column="id", partitions=8',
            )
        if (self.partitions or 0) > _MOST_PARTITIONS:
            raise DefinitionError(
                f"partitions={self.partitions} are too many", next=f"write {_MOST_PARTITIONS} at most"
            )
        if self.partition_column is None:
            cut = ("lower_bound", "upper_bound", "partitions_per_checkpoint", "append_only")
            refuse_without_effect(
                "JdbcSource",
                {name: (getattr(self, name), _OWN.get(name, ("bounded", False))[1]) for name in cut},
                because="nothing is cut without partition_column",
                next='write partition_column="id", partitions=8',
            )

    # What others read of it

    @property
    def login(self) -> JdbcLogin:
        """How the database is reached."""
        return JdbcLogin(self.url, self.user, self.password, self.properties, self.driver, self.jars)

    @property
    def way(self) -> Connect:
        """What makes connections. Raises TerminalError in a process that has no way to a JVM."""
        if not self._way:
            self._way.append(connector())
        return self._way[0]

    @property
    def by(self) -> str | None:
        """The column by which it is cut."""
        return self.column if self.mode == "incremental" else self.partition_column

    @property
    def lag_ms(self) -> int:
        """How old a value must be, ms."""
        return span_ms(self.lag)

    @property
    def poll_ms(self) -> int:
        """How long to wait between two looks, ms."""
        return span_ms(self.poll_every)

    @property
    def shown(self) -> str:
        """What people know it by."""
        return self.table if self.table is not None else "a query"

    @property
    def reads(self) -> str:
        """What its positions are of."""
        return self.shown if self.by is None else f"{self.shown} by {self.by}"

    @property
    def place(self) -> str:
        """What is read and where, for people."""
        return f"{self.shown} at {self.login.place} ({self.mode})"

    @property
    def bounded(self) -> bool:
        """Whether the job ends by itself when this source is read to its end."""
        return self.mode == "bounded"

    @property
    def replay(self) -> ReplayPromise:
        """What a second reading of a range gives, which goes by what is known of the table."""
        if not self.append_only:
            return ReplayPromise(
                "if-unchanged",
                "each range is a query of its own, so rows that are changed while the job reads may be missed or come twice;"
                " append_only=True says there are none",
            )
        if self.mode == "incremental" and not self.lag_ms:
            return ReplayPromise(
                "if-unchanged", 'with lag="0 s" a row is missed that becomes visible after a greater one'
            )
        return ReplayPromise(
            "exact", "append_only=True says that rows are only added, so a range of values stays as it is"
        )

    def schema(self) -> pa.Schema:
        """Return the columns of the rows, as the database describes them.

        Raises:
            DefinitionError: there is no such table or column, or the database lets nobody in.
            TransientError: nobody answers.
        """
        if not self._schema:
            self._schema.append(self._look_up().schema)
        return self._schema[0]

    def preflight(self) -> None:
        """Check within seconds that the database can be read.

        Raises:
            DefinitionError: no driver, no login, no such table or column, or a bound that is no value of the column.
            TransientError: nobody answers.
        """
        relation = self._look_up()
        for name in ("lower_bound", "upper_bound", "start"):
            if (value := getattr(self, name)) is not None:
                given_units(relation.measure, name, value)
        self._schema[:] = [relation.schema]

    def _look_up(self) -> JdbcRelation:
        with explained(self.login, f"looking up {self.shown}", self.shown, "starting"):
            session = JdbcSession.open(self.login, self.way)
            try:
                return look_up(session, self)
            finally:
                session.close()

    def enumerator(self, workspace: Storage) -> Enumerator:
        """Return the driver's half."""
        return RangeEnumerator(self, workspace) if self.mode == "bounded" else GrowingEnumerator(self)

    def reader(self, context: ReaderContext) -> JdbcReader:
        """Return the task's half."""
        return JdbcReader(self.login, self.way, self.shown, self.fetch_size, context)

    def describe(self, position: dict[str, Any]) -> str:
        """Return a position for the log."""
        if self.mode == "bounded":
            ranges = RangePosition.from_json(position, self.reads)
            return f"{self.shown}: {ranges.next} of {'?' if ranges.plan is None else ranges.of} ranges read"
        return f"{self.shown}: {self.column} up to {GrowingPosition.from_json(position, self.reads).above}"


def _names(given: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if given is None else (given,) if isinstance(given, str) else tuple(given)


def _text(given: Any) -> str | None:
    return None if given is None else str(given)
