"""JdbcSink: rows staged as files by the tasks and written by the driver when their checkpoint is decided.

The rows and a marker that names them are one transaction of the database, so a commit that is repeated writes nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

from poundlock.arguments import MAPPING, NAMES, check_kind
from poundlock.checkpoint.capabilities import Bindable
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    Committed,
    Kind,
    Orphan,
    Participant,
    Prepared,
    Writer,
    WriterContext,
    unchecked,
)
from poundlock.connectors.column_checks import need_columns, wrong_key
from poundlock.connectors.examination import Examination
from poundlock.connectors.jdbc import committer
from poundlock.connectors.jdbc.bridge import Connection
from poundlock.connectors.jdbc.login import JdbcLogin, check_table
from poundlock.connectors.postgres.sink.transaction_ids import prefix_of
from poundlock.connectors.staging import staged_files
from poundlock.errors import DefinitionError, TransientError
from poundlock.storage import Storage, open_storage


@dataclass(frozen=True)
class JdbcSink(Bindable, Participant):
    """Rows into a table of any database that has a JDBC driver and transactions.

    The columns of the rows go to the columns of the same names, whatever their case. The tasks leave the rows in a folder; the
    driver writes them by SQL. It is meant for results, not for floods: for PostgreSQL there is PostgresSink.

    Args:
        url: "jdbc:…", without the password.
        table: the table, with its schema where that is needed.
        staging: a folder that tasks and driver reach, for rows on their way; only this sink may use it.
        key: columns with a unique key: a row replaces the one of its key. None = every row is added.
        user, password: who asks; the password itself, "env:NAME" or "file:PATH".
        properties: further properties of the driver.
        driver: class of the driver; None = chosen by the URL.
        jars: paths of the driver's jars, on the driver's machine.
        columns: which columns of the rows are written; None = all.
        delete_when: with a key, a boolean column of the rows that is not written: where it is true, the row of the key is
            deleted.
        batch: rows of one statement.
        marker_table: a small table of poundlock's in the same database; it is made where it is missing.

    Raises:
        DefinitionError: settings contradict each other.
    """

    url: str
    table: str
    _: KW_ONLY
    staging: str
    key: Sequence[str] | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    driver: str | None = None
    jars: Sequence[str] = ()
    columns: Sequence[str] | None = None
    delete_when: str | None = None
    batch: int = 200
    marker_table: str = "poundlock_jdbc"
    prefix: str = field(default="", repr=False)  # set by `bind`

    kind: ClassVar[Kind] = Kind.TRANSACTIONAL
    prepares_ahead: ClassVar[bool] = True  # the database sees nothing before the decision
    bulk: ClassVar[bool] = True
    jvm: ClassVar[bool] = True  # the runtime gives it a way to one

    def __post_init__(self) -> None:
        check_kind("JdbcSink", NAMES, {"key": self.key, "columns": self.columns, "jars": self.jars}, optional=True)
        check_kind("JdbcSink", MAPPING, {"properties": self.properties})
        for name in ("key", "columns", "jars"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        self.server.check()
        for name in ("table", "marker_table"):
            check_table(name, getattr(self, name))
        if wrong := wrong_key(self.key, self.columns, self.delete_when):
            raise DefinitionError(wrong[0], next=wrong[1])
        if not isinstance(self.batch, int) or self.batch < 1:
            raise DefinitionError(f"batch={self.batch!r} is not a number of rows", next="write batch=200")

    # What plan and explain read

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        how = f"by key {', '.join(self.key)}" if self.key else "added"
        return f"JDBC table {self.table} at {self.place} ({how}, by the driver; exactly-once)"

    @property
    def place(self) -> str:
        """The URL without what stands behind it."""
        return self.server.place

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows with these columns have what is written."""
        flag = () if self.delete_when is None else (self.delete_when,)
        need_columns(sink, (*(self.columns or ()), *(self.key or ()), *flag), columns)
        committer.check_columns(self, sink, [name for name in (self.columns or columns) if name not in flag])

    def bind(self, *, job_id: str, sink: str) -> JdbcSink:
        """Return this sink for one job: its files and markers then have names of its own."""
        return replace(self, prefix=prefix_of(job_id, sink))

    def preflight(self) -> None:
        """Check within seconds that the database takes rows.

        Raises:
            DefinitionError: no driver, wrong credentials, no transactions, no such table, or the folder cannot be used.
            TransientError: nobody answers.
        """
        committer.preflight(self)

    def examine(self) -> Examination:
        """Do what `preflight` does, with nothing made that stays; see `Examinable`."""
        return committer.examine(self)

    # Participant

    def open_writer(self, context: WriterContext) -> Writer:
        from poundlock.connectors.jdbc.writer import JdbcWriter

        return JdbcWriter(context, self.bind(job_id=context.job_id, sink=context.sink))

    def verify(self, prepared: Sequence[Prepared]) -> None:
        storage = self.folder()
        for item in prepared:
            if not staged_files.is_as_left(storage, item):
                raise TransientError(
                    f"{item.payload['file']} in {self.staging} is not as the task left it",
                    next="let nobody else use the folder; the checkpoint is repeated",
                )

    def commit(self, committable: JSON) -> Committed | Aborted:
        return committer.commit(self, committer.StagedRows.of(committable))

    def abort(self, prepared: Prepared) -> None:
        self.folder().delete(prepared.payload["file"])

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        return staged_files.sweep(self.folder(), self.staging, self.prefix, remove=remove, check=check)

    # Parts

    def folder(self) -> Storage:
        """Return the folder for rows on their way."""
        return open_storage(self.staging)

    def connect(self) -> Connection:
        """Return a new connection. Raises JdbcError."""
        return self.server.connect()

    def close(self) -> None:
        """Close the driver's connection; it is made again when it is needed again."""
        committer.close(self)

    @property
    def server(self) -> JdbcLogin:
        """How the database is reached."""
        return JdbcLogin(self.url, self.user, self.password, self.properties, self.driver, self.jars)

    @property
    def login(self) -> str:
        """What a connection is kept under."""
        return self.server.key
