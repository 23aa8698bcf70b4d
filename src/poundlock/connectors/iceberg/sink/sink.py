"""IcebergSink: what a user says about writing an Iceberg table, checked when it is written.

Tasks write data files that nobody reads; the driver makes those of a decision visible by one commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

import pyarrow as pa

from poundlock.arguments import FLAG, MAPPING, NAMES, TEXT, WHOLE, check_kind, refuse_without_effect
from poundlock.audit.read_back import Auditable, AuditScope, Reading
from poundlock.checkpoint.participant import (
    JSON,
    Aborted,
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
from poundlock.checkpoint.portable import Newer, NewerOutput, Portable
from poundlock.connectors.column_checks import need_columns, wrong_key
from poundlock.connectors.iceberg.catalog import TablePlace, outline, place_of
from poundlock.connectors.iceberg.sink import committer, compaction, staging, sweeping, tables
from poundlock.connectors.iceberg.sink.columns import check_rows
from poundlock.connectors.iceberg.sink.data_files import delete_files
from poundlock.connectors.iceberg.sink.marks import CarriedMark, DecisionMark, Owner, TableCommit, TaskFiles
from poundlock.errors import DefinitionError
from poundlock.values import size

_TAG = re.compile(r"(?:[^{}]|\{epoch\})*\{checkpoint\}(?:[^{}]|\{epoch\})*")
_FIELDS = ("table", "branch", "tag", "delete_when", "job_id", "sink_name")


@dataclass(frozen=True)
class IcebergSink(Portable, Auditable):
    """Write rows into an Apache Iceberg table.

    The columns of the rows go to the columns of the same names. Each decided checkpoint with rows is one snapshot, whose summary has
    the job's id, the sink and the checkpoint.

    Args:
        catalog: properties of the catalog as pyiceberg knows them, such as {"type": "rest", "uri": "…"}; a value may be "env:NAME"
            or "file:PATH".
        table: "namespace.name".
        create: the columns with which the table is made where it is not there.
        partition_by: of a table that is made: "day(ts)", "bucket(16, id)", "truncate(4, name)", "country".
        sort_by: of a table that is made: columns, "-name" for a descending one. Each row group is sorted so.
        location: of a table that is made: where its files are; None = as the catalog says.
        table_properties: of a table that is made.
        add_columns: columns of `create` that the table does not have are added to it.
        columns: which columns of the rows are written; None = all.
        key: columns that tell rows apart: a row replaces the one of its key. None = every row is added.
        delete_when: with a key, a boolean column of the rows that is not written: where it is true, the row of the key is deleted.
        branch: branch of the table to write; None = main. It is made where it is missing.
        tag: name for the snapshot of each checkpoint, such as "ck-{checkpoint}"; it may have {epoch}, the driver's life, too. None =
            none.
        target_file_size: a data file is closed when it is so large; None = as the table says, 512 MB where it says nothing.
        compact_every: small files are rewritten to `target_file_size` behind every so many checkpoints, in a commit of its own that changes
            no rows; None = never.

    Raises:
        DefinitionError: settings contradict each other.
    """

    catalog: Mapping[str, str] = field(repr=False)
    table: str
    _: KW_ONLY
    create: pa.Schema | None = None
    partition_by: Sequence[str] = ()
    sort_by: Sequence[str] = ()
    location: str | None = None
    table_properties: Mapping[str, str] = field(default_factory=dict)
    add_columns: bool = False
    columns: Sequence[str] | None = None
    key: Sequence[str] | None = None
    delete_when: str | None = None
    branch: str | None = None
    tag: str | None = None
    target_file_size: str | int | None = None
    compact_every: int | None = None
    job_id: str = field(default="", repr=False)  # set by `bind`, as is the name
    sink_name: str = field(default="", repr=False)

    kind: ClassVar[Kind] = Kind.TRANSACTIONAL
    prepares_ahead: ClassVar[bool] = True  # the table's readers see nothing before the decision
    bulk: ClassVar[bool] = True
    task_modules: ClassVar[Sequence[str]] = ("pyiceberg",)

    def __post_init__(self) -> None:
        place = place_of("IcebergSink", self.catalog, self.table)
        object.__setattr__(self, "catalog", place.properties)
        check_kind("IcebergSink", NAMES, {"partition_by": self.partition_by, "sort_by": self.sort_by})
        check_kind("IcebergSink", NAMES, {"key": self.key, "columns": self.columns}, optional=True)
        check_kind("IcebergSink", MAPPING, {"table_properties": self.table_properties})
        check_kind("IcebergSink", FLAG, {"add_columns": self.add_columns})
        texts = {"location": self.location, "branch": self.branch, "tag": self.tag, "delete_when": self.delete_when}
        check_kind("IcebergSink", TEXT, texts, optional=True)
        check_kind("IcebergSink", WHOLE, {"compact_every": self.compact_every}, optional=True)
        for name in ("partition_by", "sort_by", "key", "columns"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        self._check()

    def _check(self) -> None:
        if self.create is None:
            refuse_without_effect(
                "IcebergSink",
                {
                    "partition_by": (self.partition_by, ()),
                    "sort_by": (self.sort_by, ()),
                    "location": (self.location, None),
                    "table_properties": (dict(self.table_properties), {}),
                    "add_columns": (self.add_columns, False),
                },
                because="no columns are given to make the table with",
                next="give them: create=pa.schema([…])",
            )
        elif not isinstance(self.create, pa.Schema):
            raise DefinitionError("IcebergSink: create= is no schema of Arrow", next="write create=pa.schema([…])")
        if wrong := wrong_key(self.key, self.columns, self.delete_when):
            raise DefinitionError(wrong[0], next=wrong[1])
        if self.tag is not None and not _TAG.fullmatch(self.tag):
            raise DefinitionError(
                f"tag={self.tag!r} is one name for all checkpoints", next='write tag="ck-{checkpoint}"'
            )
        if self.target_bytes is not None and self.target_bytes < 1:
            raise DefinitionError("target_file_size is zero", next='write target_file_size="128 MB"')
        if self.compact_every is not None and self.compact_every < 1:
            raise DefinitionError(
                f"compact_every={self.compact_every} is not a number of checkpoints",
                next="write such as compact_every=60",
            )

    # What plan and explain read

    def describe(self) -> str:
        """Return the sink for explain, one line."""
        how = f"by key {', '.join(self.key)}, files rewritten" if self.key else "one snapshot a checkpoint"
        branch = f", branch {self.branch}" if self.branch else ""
        return f"Iceberg table {self.table} ({how}{branch}; exactly-once)"

    def check_columns(self, sink: str, columns: Sequence[str]) -> None:
        """Raise DefinitionError unless rows with these columns have what is read of them."""
        flag = () if self.delete_when is None else (self.delete_when,)
        need_columns(sink, (*(self.columns or ()), *(self.key or ()), *flag), columns)

    def check_schema(self, sink: str, schema: pa.Schema) -> None:
        """Raise DefinitionError unless the types of the rows' columns fit those that the table is made with, where it is made here."""
        if self.create is not None:
            check_rows(sink, self.table, self.create, self.without_flag(schema), self.columns)

    def bind(self, *, job_id: str, sink: str) -> IcebergSink:
        """Return this sink for one job: its files and marks then have names of its own."""
        return replace(self, job_id=job_id, sink_name=sink)

    def preflight(self) -> None:
        """Check within seconds that the table can be written; make it, or add to it, where that is asked for.

        Raises:
            DefinitionError: it is not there, or has partitions, columns or a format that cannot be written.
            TransientError: the catalog does not answer.
        """
        tables.preflight(self)

    # Participant, task side

    def open_writer(self, context: WriterContext) -> Writer:
        from poundlock.connectors.iceberg.sink.writer import IcebergWriter

        sink = self.bind(job_id=context.job_id, sink=context.sink)
        return staging.KeyedWriter(context, sink) if self.key else IcebergWriter(context, sink)

    # Participant, driver side

    def directive(self, state: JSON) -> JSON:
        return {"v": 1, "known": outline(self.place.load("planning a checkpoint"))}

    def verify(self, prepared: Sequence[Prepared]) -> None:
        committer.verify(self.place, prepared)

    def stage(self, state: JSON, prepared: Sequence[Prepared], occasion: Occasion, now_ms: int) -> Staged:
        carried = CarriedMark.of(state) if state else CarriedMark(v=1)
        if not prepared:
            return Staged(
                {"v": 1, "pending": [], **({"job": carried.job, "mark": carried.mark} if carried.mark else {})}, []
            )
        tasks = [TaskFiles.of(item.payload) for item in prepared]
        decided = TableCommit(
            v=1,
            table=tasks[0].table,
            spec=tasks[0].spec,
            epoch=tasks[0].epoch,
            checkpoint=tasks[0].checkpoint,
            after=carried.mark if carried.job == self.job_id else "",
            rows=sum(task.rows for task in tasks),
            bytes=sum(task.bytes for task in tasks),
            files=[file for task in tasks for file in task.files],
        )
        state = {"v": 1, "pending": [], "job": self.job_id, "mark": str(decided.mark)}
        return Staged(state, [decided.to_json()])

    def commit(self, committable: JSON) -> Committed | Aborted:
        decided = TableCommit.of(committable)
        if self.key:
            done = staging.commit(self, decided)
        else:
            append = committer.Append(self.owner, self.branch or "main", self.tag)
            done = committer.commit(self.place, self.owner, decided, append)
        return compaction.compact(self, decided.checkpoint, done)

    def abort(self, prepared: Prepared) -> None:
        files = [file.path for file in TaskFiles.of(prepared.payload).files]
        if files:
            with self.place.explained("removing what was not decided"):
                delete_files(self.place.load("removing what was not decided").io, files)

    def sweep(self, state: JSON, *, remove: bool, check: Callable[[], None] = unchecked) -> Sequence[Orphan]:
        if not self.job_id:
            return []
        carried = CarriedMark.of(state) if state else CarriedMark(v=1)
        mark = DecisionMark.parse(carried.mark) if carried.mark and carried.job == self.job_id else None
        return sweeping.sweep(self.place, self.owner, mark, remove=remove, check=check)

    # Inspectable

    def describe_json(self) -> JSON:
        fields = {name: getattr(self, name) for name in _FIELDS}
        return {
            "v": 1,
            "kind": "iceberg",
            **fields,
            "catalog": self.place.open_properties,
            "key": list(self.key or ()) or None,
        }

    @classmethod
    def from_json(cls, description: JSON) -> IcebergSink:
        """Return a sink that sweeps, inspects and commits as the described one does; it is not meant to write.

        Raises:
            DefinitionError: another version of poundlock wrote the description.
        """
        if description.get("v") != 1 or description.get("kind") != "iceberg":
            raise DefinitionError(
                f"an Iceberg sink of version {description.get('v')!r} is not known here", next="use a newer poundlock"
            )
        return cls(**{name: description[name] for name in (*_FIELDS, "catalog", "key")})

    def inspect(self, committable: JSON) -> Sequence[Finding]:
        decided = TableCommit.of(committable)
        newest = self.owner.newest(self.place.load("inspecting"))
        if newest is not None and newest >= decided.mark:
            return []
        where = f"checkpoint {decided.checkpoint} in {self.place.shown}"
        return [Finding("pending", where, decided.bytes, None)]

    # Auditable

    def open_audit(self, scope: AuditScope) -> Reading:
        from poundlock.connectors.iceberg.sink.audit import IcebergReading

        return IcebergReading(self)

    def rows_of(self, committable: JSON) -> int:
        return TableCommit.of(committable).rows

    # Portable: all that is decided is committed, so only the mark is carried

    def newer(self, state: JSON, note: JSON) -> Newer:
        carried = CarriedMark.of(state) if state else CarriedMark(v=1)
        if not carried.mark:
            return Newer()
        owner = Owner(carried.job, self.sink_name, self.branch or "")
        table = self.place.load("looking for newer output")
        then, newest = DecisionMark.parse(carried.mark), owner.newest(table)
        if newest is None or newest < then:
            return Newer(
                lost=f"has the commits up to {newest or 'none'} in {self.place.shown}, and made them up to {then}"
            )
        count = sum(mark > then for mark, _ in owner.snapshots(table)) or int(newest > then)
        if not count:
            return Newer()
        return Newer(
            what=f"has {count} snapshots in {self.place.shown} that came behind the savepoint", retractable=False
        )

    def restore(self, state: JSON, savepoint: object, folder: str, newer: NewerOutput) -> JSON:
        """Go on behind what the table has of this very job; of another job's the mark means nothing here."""
        mark = self.owner.newest(self.place.load("restoring"))
        return {"v": 1, "pending": [], **({"job": self.job_id, "mark": str(mark)} if mark is not None else {})}

    # Parts

    @property
    def place(self) -> TablePlace:
        """Which table, in which catalog."""
        return TablePlace(self.catalog, self.table)

    @property
    def owner(self) -> Owner:
        """Whose marks and files are its own; it is bound to a job."""
        return Owner(self.job_id, self.sink_name, self.branch or "")

    @property
    def target_bytes(self) -> int | None:
        """How large a data file becomes, None = as the table says."""
        return None if self.target_file_size is None else size(self.target_file_size)

    def picked(self, wanted: pa.Schema) -> pa.Schema:
        """Return those of a table's columns that are taken from the rows."""
        return wanted if self.columns is None else pa.schema([wanted.field(name) for name in self.columns])

    def without_flag(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of rows without the one that says what is deleted."""
        return pa.schema([each for each in schema if each.name != self.delete_when])

    def close(self) -> None:
        """Close the driver's connection; it is made again when it is needed again."""
        self.place.close()
