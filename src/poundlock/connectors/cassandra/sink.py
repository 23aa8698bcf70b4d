"""CassandraSink: what the user writes down, and the participant that coordinator and tasks call.

Rows are with the cluster before the decision. Each is written under a timestamp that begins with when its checkpoint was begun, so that
neither a repetition nor a task that was given up replaces what is newer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from poundlock.checkpoint.participant import Kind, Writer, WriterContext
from poundlock.connectors.cassandra import checks
from poundlock.connectors.cassandra.login import CassandraLogin
from poundlock.connectors.write_order import OrderedSink, hold_tuples
from poundlock.values import duration, size

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class CassandraSink(OrderedSink):
    """Rows into a table of Cassandra or Scylla by its primary key: effectively once.

    The columns of the rows go to the columns of the same names; a row replaces the one of its key, column by column.

    Args:
        contact_points: hosts to begin with.
        table: "keyspace.table".
        port: of the native protocol.
        local_dc: the data centre whose nodes are asked; None = that of the first node that answers.
        columns: which columns of the rows are written; None = all.
        delete_when: a boolean column of the rows that is not written: where it is true, the row of the key is deleted.
        ignore_null_fields: whether a null leaves what the row has in that column, as Flink's setting of the name does; else it is deleted.
        ttl: how long a row lives after it was written; None = as the table says.
        consistency: how many replicas have to have a row: "ONE", "LOCAL_ONE", "LOCAL_QUORUM", "QUORUM", "EACH_QUORUM", "TWO", "THREE", "ALL".
        user, password: as whom; the password itself, "env:NAME" or "file:PATH".
        ca: path of the certificates that TLS trusts; None = without TLS.
        batch_size: bytes of rows of one partition that go together at most, in an unlogged batch; "0 b": each row goes alone.
        requests: how many requests of a task are under way at once.
        timeout: how long an answer may take.
        retry_for: how long what the cluster did not take is sent again, with growing pauses, before the task gives up.

    Raises:
        DefinitionError: settings contradict each other, or cassandra-driver is not installed.
    """

    contact_points: str | Sequence[str]
    table: str
    _: KW_ONLY
    port: int = 9042
    local_dc: str | None = None
    columns: Sequence[str] | None = None
    delete_when: str | None = None
    ignore_null_fields: bool = False
    ttl: str | timedelta | None = None
    consistency: str = "LOCAL_QUORUM"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    batch_size: str | int = "4 KB"
    requests: int = 64
    timeout: str | timedelta = "12 s"
    retry_for: str | timedelta = "60 s"

    kind: ClassVar[Kind] = Kind.IDEMPOTENT

    def __post_init__(self) -> None:
        hold_tuples(self, "contact_points", "columns")
        for name in ("timeout", "retry_for", "ttl"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, duration(given))
        checks.check_sink(self)

    # What plan and explain read

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        return f"Cassandra table {self.table} (by primary key; effectively-once)"

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows with these columns can be written, as far as the table is known by now."""
        checks.check_columns(self, sink, columns)

    def check_schema(self, sink: str, schema: pa.Schema) -> None:
        """Raise DefinitionError unless the types of the rows' columns fit those of the table, as far as it is known by now."""
        checks.check_schema(self, sink, schema)

    def preflight(self) -> None:
        """Check within seconds that the cluster lets this user in, has the table, and has about the time of this machine.

        Raises:
            DefinitionError: it does not.
            TransientError: no node answers.
        """
        checks.preflight(self)

    # Participant

    def open_writer(self, context: WriterContext) -> Writer:
        from poundlock.connectors.cassandra.writer import CassandraWriter

        return CassandraWriter(context, self)

    # Parts

    @property
    def login(self) -> CassandraLogin:
        """Which cluster, as whom."""
        return CassandraLogin(
            tuple(self.contact_points),
            self.port,
            self.local_dc,
            self.user,
            self.password,
            self.ca,
            self.consistency,
            duration(self.timeout).total_seconds(),
        )

    @property
    def needed(self) -> list[str]:
        """The columns that the rows must have."""
        return [*(self.columns or ()), *(() if self.delete_when is None else (self.delete_when,))]

    def written(self, columns: Sequence[str]) -> list[str]:
        """Return which of the rows' columns are written."""
        return [name for name in (self.columns or columns) if name != self.delete_when]

    @property
    def ttl_s(self) -> int | None:
        """How long a row lives, whole seconds."""
        return None if self.ttl is None else round(duration(self.ttl).total_seconds())

    @property
    def batch_bytes(self) -> int:
        """Bytes of rows of one partition that go together at most."""
        return size(self.batch_size)

    @property
    def retry_s(self) -> float:
        """How long what was not taken is sent again, seconds."""
        return duration(self.retry_for).total_seconds()

    def close(self) -> None:
        """Close the driver's session; one is made again when it is needed again."""
        self.login.close()
