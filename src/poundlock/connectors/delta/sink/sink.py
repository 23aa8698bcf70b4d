"""DeltaSink: what the user writes down, and the participant that the checkpoint coordinator and the tasks call.

Everything is checked when it is written down; nothing here keeps state or imports the library before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from poundlock.arguments import FLAG, MAPPING, NAMES, TEXT, WHOLE, check_kind
from poundlock.audit.read_back import Auditable, AuditScope, Reading
from poundlock.checkpoint.capabilities import Bindable, Inspectable
from poundlock.checkpoint.participant import (
    JSON,
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
from poundlock.connectors.delta.loading import explained, open_folder, open_table
from poundlock.connectors.delta.shape import shape_of
from poundlock.connectors.delta.sink import checks, committer, inspection
from poundlock.connectors.delta.sink.names import app_of
from poundlock.connectors.delta.sink.values import FORMAT, DecidedRows, WrittenFiles, check_format
from poundlock.errors import DefinitionError, TransientError
from poundlock.storage import Storage
from poundlock.values import size

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.connectors.delta.sink.fitting import RowRules


@dataclass(frozen=True)
class DeltaSink(Bindable, Portable, Inspectable, Auditable):
    """Rows into a Delta table, exactly once: one commit of the table for each checkpoint, with a transaction id that makes it idempotent.

    Tasks write Parquet files; the driver adds them to the table, or merges them into it by key, when their checkpoint is decided. The columns of
    the rows go to the columns of the same names.

    Args:
        path: the table's folder: a local path, s3://bucket/folder or hdfs://host:port/folder.
        key: columns by which a row replaces the one that has the same; None = every row is added. It need not be unique in what comes: of one
            checkpoint the last row of a task counts.
        delete_when: with a key, a boolean column of the rows that is not written: where it is true, the row of the key is deleted.
        columns: which columns of the rows are written; None = all.
        merge_schema: whether columns that the rows have and the table does not are added to it, where null may be.
        schema: DDL of the table's columns, with which it is made where it is missing; None = it has to be there.
        partition_by: columns of the partitions of a table that is made.
        properties: of a table that is made, such as {"delta.enableChangeDataFeed": "true"}.
        target_file_size: a file that is so large is finished, and another begun; a checkpoint ends each of them.
        compression: "snappy", "zstd", "gzip" or "none".
        compact_every: small files are rewritten to `target_file_size` behind every so many checkpoints, in a commit of its own; None = never.
        max_open_files: so many partitions are written at once in a task.

    Raises:
        DefinitionError: settings contradict each other, or deltalake is not installed.
    """

    path: str
    _: KW_ONLY
    key: Sequence[str] | None = None
    delete_when: str | None = None
    columns: Sequence[str] | None = None
    merge_schema: bool = False
    schema: str | None = None
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    target_file_size: str | int = "128 MB"
    compression: str = "snappy"
    compact_every: int | None = None
    max_open_files: int = 64
    app: str = field(default="", repr=False)  # set by `bind`

    kind: ClassVar[Kind] = Kind.TRANSACTIONAL
    prepares_ahead: ClassVar[bool] = True  # no version of the table names what tasks write
    bulk: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_kind("DeltaSink", TEXT, {"path": self.path, "compression": self.compression})
        texts = {"schema": self.schema, "delete_when": self.delete_when}
        check_kind("DeltaSink", TEXT, texts, optional=True)
        check_kind("DeltaSink", FLAG, {"merge_schema": self.merge_schema})
        check_kind("DeltaSink", WHOLE, {"compact_every": self.compact_every}, optional=True)
        check_kind("DeltaSink", WHOLE, {"max_open_files": self.max_open_files})
        check_kind("DeltaSink", MAPPING, {"properties": self.properties})
        check_kind("DeltaSink", NAMES, {"key": self.key, "columns": self.columns}, optional=True)
        check_kind("DeltaSink", NAMES, {"partition_by": self.partition_by})
        for name in ("key", "columns", "partition_by"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        object.__setattr__(self, "target_file_size", size(self.target_file_size))
        checks.check_sink(self)

    # What plan and explain read

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        how = f"merged by key {', '.join(self.key)}" if self.key else "added"
        return f"Delta table {self.path} ({how}, one commit a checkpoint; exactly-once)"

    @property
    def task_folders(self) -> Sequence[str]:
        """Where tasks write and the driver has to find it."""
        return [self.storage().root]

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows with these columns have what is written."""
        checks.check_columns(self, sink, columns)

    def check_schema(self, sink: str, schema: pa.Schema) -> None:
        """Raise DefinitionError unless the types of the rows' columns fit those of the table, as far as it is known by now."""
        checks.check_schema(self, sink, schema)

    def bind(self, *, job_id: str, sink: str) -> DeltaSink:
        """Return this sink for one job: the table then knows its commits, and its tasks the driver's folder."""
        return replace(self, app=app_of(job_id, sink), path=self.storage().root)

    def preflight(self) -> None:
        """Check within seconds that rows can be written to the table; make it where it is missing and `schema` is given.

        Raises:
            DefinitionError: there is no table, or it asks for something of writers that is not done here.
            TransientError: the store does not answer.
        """
        checks.preflight(self)

    # Participant, task side

    def open_writer(self, context: WriterContext) -> Writer:
        from poundlock.connectors.delta.sink.writer import DeltaWriter

        return DeltaWriter(context, self.bind(job_id=context.job_id, sink=context.sink))

    def rules(self, schema: pa.Schema, partition_by: Sequence[str], sink: str) -> RowRules:
        """Return what rows have to be like that go into a table with these columns."""
        from poundlock.connectors.delta.sink.fitting import RowRules

        return RowRules(
            schema,
            () if self.key else partition_by,
            self.key or (),
            self.delete_when,
            self.columns,
            self.merge_schema,
            sink,
        )

    # Participant, driver side

    def directive(self, state: JSON) -> JSON:
        shape = checks.known(self)
        if shape is None:
            with explained(self.storage(), "opening it"):
                shape = shape_of(open_table(self.storage()))
            checks.remember(self, shape)
        return {"v": FORMAT, "columns": shape.columns, "partition_by": list(shape.partition_by)}

    def verify(self, prepared: Sequence[Prepared]) -> None:
        files = [each for item in prepared for each in WrittenFiles.of(item.payload).files]
        for each in committer.missing_files(self.storage(), files):
            raise TransientError(
                f"{self.storage().root}/{each.path} is not as its task left it",
                next="let nobody else remove files there, such as VACUUM without a retention; the checkpoint is repeated",
            )

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        if state:
            check_format(state)
        if not prepared:
            return Staged(state or {"v": FORMAT, "pending": []}, [])
        decided = DecidedRows.decide(self.storage().root, self.app, self.key or (), self.delete_when or "", prepared)
        attempts = sorted({part.attempt for part in decided.parts})
        remembered = {"root": decided.root, "app": self.app, "checkpoint": decided.checkpoint, "attempts": attempts}
        return Staged({"v": FORMAT, "pending": [], **remembered}, [decided.to_json()])

    def commit(self, committable: JSON) -> Committed:
        return committer.commit(self, DecidedRows.of(committable))

    def abort(self, prepared: Prepared) -> None:
        storage = self.storage()
        for each in WrittenFiles.of(prepared.payload).files:
            storage.delete(each.path)

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        return inspection.sweep(self.storage(), self.app, state, remove=remove, check=check)

    # Inspectable

    def describe_json(self) -> JSON:
        return {
            "v": FORMAT,
            "kind": "delta",
            "path": self.storage().root,
            "app": self.app,
            "merge_schema": self.merge_schema,
        }

    @classmethod
    def from_json(cls, description: JSON) -> DeltaSink:
        """Return a sink that sweeps, inspects and commits as the described one does; it is not meant to write.

        Raises:
            DefinitionError: another version of poundlock wrote the description.
        """
        if description.get("v") != FORMAT or description.get("kind") != "delta":
            raise DefinitionError(
                f"a Delta sink of version {description.get('v')!r} is not known here", next="use a newer poundlock"
            )
        return cls(description["path"], app=description["app"], merge_schema=description["merge_schema"])

    def inspect(self, committable: JSON) -> Sequence[Finding]:
        return inspection.inspect(DecidedRows.of(committable))

    # Portable: nothing is carried, each checkpoint is a commit

    def newer(self, state: JSON, note: JSON) -> Newer:
        return inspection.newer(state)

    # Auditable

    def open_audit(self, scope: AuditScope) -> Reading:
        from poundlock.connectors.delta.sink.audit import DeltaReading

        return DeltaReading()

    def rows_of(self, committable: JSON) -> int:
        return int(committable["rows"])

    # Parts

    def storage(self) -> Storage:
        """Return the table's folder."""
        return open_folder(self.path)

    @property
    def target_bytes(self) -> int:
        """How large a file becomes."""
        return size(self.target_file_size)
