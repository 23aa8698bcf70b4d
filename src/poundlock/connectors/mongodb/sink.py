"""MongoSink: what the user writes down, and the participant that coordinator and tasks call.

Documents are with the server before the decision. Each has a field that says when its checkpoint was begun, so that neither a repetition
nor a task that was given up replaces what is newer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from poundlock.checkpoint.participant import Kind, Writer, WriterContext
from poundlock.connectors.mongodb import checks
from poundlock.connectors.mongodb.login import MongoLogin
from poundlock.connectors.write_order import OrderedSink, hold_tuples
from poundlock.values import duration, size

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class MongoSink(OrderedSink):
    """Rows as documents of MongoDB: effectively once by `_id`, or added.

    Args:
        uri: "mongodb://host:27017/?options" or "mongodb+srv://…", without a user in it.
        database: the database.
        collection: the collection; the server makes one that is not there.
        key: columns that make the `_id`: the value of one, a document of several. A row replaces the document of its key. None = every
            row is added, under an id of its own, which needs guarantee="at-least-once".
        guarantee: "effectively-once", the default with a key: a row that is written again when a checkpoint is repeated becomes the same
            document, and a task that was given up does not replace what is newer. "at-least-once", without a key.
        columns: which columns are in the document; None = all.
        update: "replace": the document has what the row has, and nothing else. "set": fields that the row has not stay as they are.
        delete_when: with a key, a boolean column that is not written: where it is true the document of the key is deleted.
        deletes: "remove": the document is gone. "mark": it stays with nothing but `_deleted`, since when, and its version, so that not
            even a task that was given up can bring it back; let an index on `_deleted` that expires remove it later.
        version_field: the field of each document that says when its checkpoint was begun; with a key.
        user, password: as whom; the password itself, "env:NAME" or "file:PATH".
        ca: path of the certificates that TLS trusts, and that TLS is spoken; None = as the address says.
        bulk_size: bytes of one request at most; a longer document goes alone.
        bulk_actions: documents of one request at most.
        requests: how many requests of a task are under way at once.
        timeout: how long an answer may take.
        retry_for: how long documents that the server is too busy for are sent again, with growing pauses, before the task gives up.

    Raises:
        DefinitionError: settings contradict each other, or pymongo is not installed.
    """

    uri: str
    database: str
    collection: str
    _: KW_ONLY
    key: Sequence[str] | None = None
    guarantee: Literal["effectively-once", "at-least-once"] | None = None
    columns: Sequence[str] | None = None
    update: Literal["replace", "set"] = "replace"
    delete_when: str | None = None
    deletes: Literal["remove", "mark"] = "remove"
    version_field: str = "_version"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    bulk_size: str | int = "5 MB"
    bulk_actions: int = 10_000
    requests: int = 2
    timeout: str | timedelta = "60 s"
    retry_for: str | timedelta = "60 s"

    def __post_init__(self) -> None:
        hold_tuples(self, "key", "columns")
        if self.guarantee is None and self.key is not None:
            object.__setattr__(self, "guarantee", "effectively-once")
        object.__setattr__(self, "timeout", duration(self.timeout))
        object.__setattr__(self, "retry_for", duration(self.retry_for))
        checks.check_sink(self)

    # What plan and explain read

    @property
    def kind(self) -> Kind:
        """What the guarantee lets it promise."""
        return Kind.IDEMPOTENT if self.key else Kind.APPEND

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        how = f"by _id of {', '.join(self.key)}" if self.key else "added"
        return f"MongoDB collection {self.database}.{self.collection} ({how}; {self.guarantee})"

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows with these columns can be documents of the collection, as far as that is known by now."""
        checks.check_columns(self, sink, columns)

    def check_schema(self, sink: str, schema: pa.Schema) -> None:
        """Raise DefinitionError unless BSON has types for these columns, and those of the key make an `_id`."""
        checks.check_schema(self, sink, schema)

    def preflight(self) -> None:
        """Check within seconds that the cluster lets this user in, has a primary, and that the collection takes what is written.

        Raises:
            DefinitionError: it does not.
            TransientError: no node answers.
        """
        checks.preflight(self)

    # Participant

    def open_writer(self, context: WriterContext) -> Writer:
        from poundlock.connectors.mongodb.writer import MongoWriter

        return MongoWriter(context, self)

    # Parts

    @property
    def login(self) -> MongoLogin:
        """Which cluster, as whom."""
        return MongoLogin(self.uri, self.user, self.password, self.ca, duration(self.timeout).total_seconds())

    @property
    def needed(self) -> list[str]:
        """The columns that the rows must have."""
        return [*(self.columns or ()), *(self.key or ()), *(() if self.delete_when is None else (self.delete_when,))]

    def written(self, columns: Sequence[str]) -> list[str]:
        """Return which of the rows' columns are fields of a document; `_id` is the key itself."""
        hidden = (self.delete_when, *(self.key or ())) if self.key == ("_id",) else (self.delete_when,)
        return [name for name in (self.columns or columns) if name not in hidden]

    @property
    def bulk_bytes(self) -> int:
        """Bytes of one request at most."""
        return size(self.bulk_size)

    @property
    def retry_s(self) -> float:
        """How long busy servers are asked again, seconds."""
        return duration(self.retry_for).total_seconds()

    def close(self) -> None:
        """Close this process's client; one is made again when it is needed again."""
        self.login.close()
