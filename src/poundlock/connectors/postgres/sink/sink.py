"""PostgresSink: what the user writes down, and the participant that the checkpoint coordinator and the tasks call.

Everything is checked when it is written down; nothing here keeps state or connects before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from poundlock.arguments import NAMES, check_kind
from poundlock.checkpoint.capabilities import Bindable, Inspectable, Repeatable
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
    CommitOutcome,
    Committed,
    Finding,
    Kind,
    Occasion,
    Orphan,
    Prepared,
    Staged,
    Writer,
    WriterContext,
    unchecked,
)
from poundlock.checkpoint.portable import Newer, Portable
from poundlock.connectors import reconcile as matching
from poundlock.connectors.commit_threads import ConnectionPool, commit_each
from poundlock.connectors.postgres.connection import PostgresLogin, PostgresServer, server, server_pool
from poundlock.connectors.postgres.sink import checks, committer
from poundlock.connectors.postgres.sink.committer import PreparedTransaction
from poundlock.connectors.postgres.sink.transaction_ids import Markers, prefix_of
from poundlock.errors import DefinitionError
from poundlock.values import duration

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.connectors.examination import Examination


Guarantee = Literal["exactly-once", "effectively-once", "at-least-once"]
Mode = Literal["prepare", "upsert", "append"]
_MODES: dict[str, Mode] = {"exactly-once": "prepare", "effectively-once": "upsert", "at-least-once": "append"}
_KINDS = {"prepare": Kind.TRANSACTIONAL, "upsert": Kind.IDEMPOTENT, "append": Kind.APPEND}
_FIELDS = ("table", "guarantee", "marker_table", "prefix")


@dataclass(frozen=True)
class PostgresSink(Bindable, Portable, Repeatable, Inspectable):
    """Rows into a table of PostgreSQL by COPY: exactly once in prepared transactions, or by key.

    The columns of the rows go to the columns of the same names.

    Args:
        dsn: "postgresql://user@host:5432/database", or the words of libpq, or "env:NAME" or "file:PATH" where it stands.
        table: the table, with its schema where that is not on the search path.
        key: columns with a unique key: a row replaces the one of its key. None = every row is added.
        guarantee: "exactly-once": a transaction per task and checkpoint is prepared by the task (PREPARE TRANSACTION)
            and committed by the driver when the checkpoint is decided; the default without a key. "effectively-once": a
            task's rows are written by key when it ends, and again when it is repeated; the default with a key.
            "at-least-once": the same without a key, so rows are there twice after a repetition.
        columns: which columns of the rows are written; None = all.
        delete_when: with a key, a boolean column of the rows that is not written: where it is true, the row of the key is
            deleted.
        password: the password, "env:NAME" or "file:PATH"; None = in the dsn, or what libpq reads from PGPASSWORD or ~/.pgpass.
        marker_table: a small table of poundlock's in the same database; it is made where it is missing.
        lock_timeout: how long a task waits for a lock that another transaction holds.

    Raises:
        DefinitionError: settings contradict each other, or psycopg is not installed.
    """

    dsn: str = field(repr=False)
    table: str
    _: KW_ONLY
    key: Sequence[str] | None = None
    guarantee: Guarantee | None = None
    columns: Sequence[str] | None = None
    delete_when: str | None = None
    password: str | None = field(default=None, repr=False)
    marker_table: str = "poundlock_commits"
    lock_timeout: str | timedelta = "60 s"
    prefix: str = field(default="", repr=False)  # set by `bind`

    bulk: ClassVar[bool] = True
    holds_readers: ClassVar[bool] = True  # a transaction that is left prepared holds locks

    def __post_init__(self) -> None:
        if self.guarantee is None:
            object.__setattr__(self, "guarantee", "exactly-once" if self.key is None else "effectively-once")
        check_kind("PostgresSink", NAMES, {"key": self.key, "columns": self.columns}, optional=True)
        for name in ("key", "columns"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        object.__setattr__(self, "lock_timeout", duration(self.lock_timeout))
        checks.check_sink(self)

    # What plan and explain read

    @property
    def mode(self) -> Mode:
        """How rows become visible."""
        return _MODES[str(self.guarantee)]

    @property
    def kind(self) -> Kind:
        """What the guarantee lets it promise."""
        return _KINDS[self.mode]

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        how = {"prepare": "prepared transactions", "upsert": f"by key {', '.join(self.key or ())}", "append": "added"}[
            self.mode
        ]
        return f"PostgreSQL table {self.table} ({how}; {self.guarantee})"

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows with these columns can be written, as far as the table is known by now."""
        checks.check_columns(self, sink, columns, self._asked().tables.get(self.table))

    def check_schema(self, sink: str, schema: pa.Schema) -> None:
        """Raise DefinitionError unless the types of the rows' columns fit those of the table, as far as it is known by now."""
        checks.check_schema(self, sink, schema, self._asked().tables.get(self.table))

    def bind(self, *, job_id: str, sink: str) -> PostgresSink:
        """Return this sink for one job: its transactions then have names of its own."""
        return replace(self, prefix=prefix_of(job_id, sink))

    def preflight(self) -> None:
        """Check within seconds that the server lets this user write to the table as the guarantee asks.

        Raises:
            DefinitionError: it does not, or the table is missing.
            TransientError: no server answers.
        """
        self._asked().tables[self.table] = checks.preflight(self)

    def examine(self) -> Examination:
        """Do what `preflight` does, with nothing made that stays; see `Examinable`."""
        return checks.examine(self)

    def check_tasks(self, tasks: int, sinks: int) -> None:
        """Raise DefinitionError unless the server takes so many tasks' transactions at once, of so many sinks."""
        checks.check_tasks(self, tasks, sinks)

    # Participant, task side

    def open_writer(self, context: WriterContext) -> Writer:
        from poundlock.connectors.postgres.sink.writer import PostgresWriter

        return PostgresWriter(context, self.bind(job_id=context.job_id, sink=context.sink))

    # Participant, driver side

    def verify(self, prepared: Sequence[Prepared]) -> None:
        if self.mode == "prepare":
            committer.verify(self._asked(), self.prefix, prepared)

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        at_once = {} if self.mode == "prepare" else {"at_once": True}
        named = [dict(item.payload) for item in prepared if "gid" in item.payload]
        return Staged({"v": 1, "pending": [], **at_once}, named)

    def commit(self, committable: JSON) -> Committed | Aborted:
        with self._pool().lent() as asked:
            committed = committer.commit(asked, self._markers, PreparedTransaction.of(committable))
            if self.prefix:
                committer.clean(asked, self._markers, self.prefix)
            return committed

    def commit_many(self, committables: Iterable[JSON]) -> Iterator[CommitOutcome]:
        return commit_each(self.commit, committables, self._pool().most)

    def match(
        self, again: Sequence[JSON], done: Sequence[JSON], prepared: Sequence[Prepared]
    ) -> tuple[Sequence[Prepared], Sequence[Prepared]]:
        return matching.match(again, done, prepared)

    def abort(self, prepared: Prepared) -> None:
        if "gid" in prepared.payload:
            committer.roll_back(self._asked(), PreparedTransaction.of(prepared.payload).gid)

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        if self.mode != "prepare" or not self.prefix:
            return []
        return committer.sweep(self._asked(), self._markers, self.prefix, remove=remove, check=check)

    # Inspectable

    def describe_json(self) -> JSON:
        fields = {name: getattr(self, name) for name in _FIELDS}
        return {
            "v": 1,
            "kind": "postgres",
            **fields,
            "dsn": self.login.open_text(),
            "key": list(self.key or ()) or None,
        }

    @classmethod
    def from_json(cls, description: JSON) -> PostgresSink:
        """Return a sink that sweeps, inspects and commits as the described one does; it is not meant to write.

        The password, which the description has not, is POUNDLOCK_POSTGRES_PASSWORD, or where libpq finds it.

        Raises:
            DefinitionError: another version of poundlock wrote the description.
        """
        import os

        if description.get("v") != 1 or description.get("kind") != "postgres":
            raise DefinitionError(
                f"a PostgreSQL sink of version {description.get('v')!r} is not known here", next="use a newer poundlock"
            )
        known = {name: description[name] for name in (*_FIELDS, "dsn", "key")}
        return cls(**known, password=os.environ.get("POUNDLOCK_POSTGRES_PASSWORD"))

    def inspect(self, committable: JSON) -> Sequence[Finding]:
        return committer.inspect(self._asked(), self._markers, PreparedTransaction.of(committable))

    # Portable: a transaction is prepared within a checkpoint only, so nothing is carried

    def note(self) -> JSON:
        return committer.note(self._asked(), self._markers, self.prefix, self.table) if self.mode == "prepare" else {}

    def newer(self, state: JSON, note: JSON) -> Newer:
        if self.mode != "prepare":
            return Newer(unknown="rows have no mark of who wrote them when")
        return committer.newer(self._asked(), self._markers, self.table, note)

    # Parts

    @property
    def login(self) -> PostgresLogin:
        """Which database, as whom."""
        return PostgresLogin(self.dsn, self.password)

    @property
    def lock_timeout_ms(self) -> int:
        """How long a task waits for a lock, ms."""
        return round(duration(self.lock_timeout).total_seconds() * 1000)

    @property
    def _markers(self) -> Markers:
        return Markers(self.marker_table)

    def close(self) -> None:
        """Close the driver's connections; one is made again when it is needed again."""
        for asked in (self._asked(), *self._pool().idle):
            asked.close()

    def _asked(self) -> PostgresServer:
        return server(self.login)

    def _pool(self) -> ConnectionPool[PostgresServer]:
        return server_pool(self.login)

    def __repr__(self) -> str:
        by = f", key={list(self.key)!r}" if self.key else ""
        return f"PostgresSink({self.table!r}{by}, guarantee={self.guarantee!r})"
