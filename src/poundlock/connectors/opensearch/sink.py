"""OpenSearchSink and ElasticsearchSink: what the user writes down, and the participant that coordinator and tasks call.

Documents are with the server before the decision. Each carries an external version, so that neither a repetition nor a task that was
given up replaces what is newer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from poundlock.checkpoint.participant import Kind, Writer, WriterContext
from poundlock.connectors.opensearch import checks
from poundlock.connectors.opensearch.index_names import IndexName
from poundlock.connectors.opensearch.login import OpenSearchLogin
from poundlock.connectors.write_order import OrderedSink, hold_tuples
from poundlock.values import duration, size

if TYPE_CHECKING:
    import pyarrow as pa


Guarantee = Literal["effectively-once", "at-least-once"]


@dataclass(frozen=True)
class OpenSearchSink(OrderedSink):
    """Rows as documents of OpenSearch, by `_bulk`: effectively once by id, or added.

    A row is one JSON object; times are ISO text in it, bytes are base64.

    Args:
        hosts: URLs of nodes, or of what stands before them, such as "http://localhost:9200".
        index: the index, an alias or, without key, a data stream; "orders-{day|yyyy-MM}" and "{customer}" take parts of the name from
            columns, times in UTC, and "{now()|yyyy-MM-dd}" from the begin of the checkpoint, without key alone.
        key: columns that make the id of a document: a row replaces the one of its key. None = every row is added, under an id of the
            server's, which needs guarantee="at-least-once".
        guarantee: "effectively-once", the default with a key: a document that is written again when a checkpoint is repeated becomes
            the same one, and a task that was given up does not replace what is newer. "at-least-once", without a key.
        columns: which columns are in the document; None = all.
        document: a column with the JSON text of the whole document; no other column is then in it.
        delete_when: with a key, a boolean column that is not written: where it is true the document of the key is deleted.
        key_delimiter: stands between the columns of a key in an id.
        user, password: for basic authentication; the password itself, "env:NAME" or "file:PATH".
        headers: further headers of requests; a secret as for the password.
        ca: path of the certificates that TLS trusts; None = those of the machine.
        allow_insecure: whether certificates are not looked at.
        bulk_size: bytes of one request at most; a longer document goes alone.
        bulk_actions: documents of one request at most; None = any number.
        requests: how many requests of a task are under way at once.
        timeout: how long an answer may take.
        retry_for: how long documents that the server is too busy for are sent again, with growing pauses, before the task gives up.

    Raises:
        DefinitionError: settings contradict each other, or urllib3 is not installed.
    """

    hosts: str | Sequence[str]
    index: str
    _: KW_ONLY
    key: Sequence[str] | None = None
    guarantee: Guarantee | None = None
    columns: Sequence[str] | None = None
    document: str | None = None
    delete_when: str | None = None
    key_delimiter: str = "_"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca: str | None = None
    allow_insecure: bool = False
    bulk_size: str | int = "5 MB"
    bulk_actions: int | None = None
    requests: int = 2
    timeout: str | timedelta = "60 s"
    retry_for: str | timedelta = "60 s"

    title: ClassVar[str] = "OpenSearch"

    def __post_init__(self) -> None:
        hold_tuples(self, "hosts", "key", "columns")
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
        how = f"by id of {', '.join(self.key)}" if self.key else "added"
        return f"{self.title} index {self.index} ({how}; {self.guarantee})"

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows with these columns can be written, as far as the index is known by now."""
        checks.check_columns(self, sink, columns)

    def check_schema(self, sink: str, schema: pa.Schema) -> None:
        """Raise DefinitionError unless columns of these types make ids and names of indices."""
        checks.check_schema(self, sink, schema)

    def preflight(self) -> None:
        """Check within seconds that the cluster lets this user in, and that the index takes what is written.

        Raises:
            DefinitionError: it does not.
            TransientError: no host answers.
        """
        checks.preflight(self)

    # Participant

    def open_writer(self, context: WriterContext) -> Writer:
        from poundlock.connectors.opensearch.writer import OpenSearchWriter

        return OpenSearchWriter(context, self)

    # Parts

    @property
    def login(self) -> OpenSearchLogin:
        """Which cluster, as whom."""
        return OpenSearchLogin(
            tuple(self.hosts),
            self.user,
            self.password,
            self.headers,
            self.ca,
            self.allow_insecure,
            duration(self.timeout).total_seconds(),
        )

    @property
    def name(self) -> IndexName:
        """The name of the index, in parts."""
        return IndexName.parse(self.index)

    @property
    def needed(self) -> list[str]:
        """The columns that the rows must have."""
        one = [name for name in (self.document, self.delete_when) if name is not None]
        return [*(self.columns or ()), *(self.key or ()), *one, *self.name.columns]

    @property
    def bulk_bytes(self) -> int:
        """Bytes of one request at most."""
        return size(self.bulk_size)

    @property
    def retry_s(self) -> float:
        """How long busy servers are asked again, seconds."""
        return duration(self.retry_for).total_seconds()


@dataclass(frozen=True)
class ElasticsearchSink(OpenSearchSink):
    """Rows as documents of Elasticsearch 7.10 or later: what `OpenSearchSink` is for OpenSearch, by the same requests."""

    title: ClassVar[str] = "Elasticsearch"
