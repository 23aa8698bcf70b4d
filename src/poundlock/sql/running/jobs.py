"""Queries and inserts as a job: one job, however many inserts a statement has, with one decision a checkpoint over all sinks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from poundlock.config import load_settings
from poundlock.driver.restart import restart_strategy
from poundlock.formats import ddl
from poundlock.job import Job
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.coercion import BINARIES
from poundlock.sql.connectors.registry import columns_read, connector_of
from poundlock.sql.connectors.table import LookupConnector, RowLookup, TableContext, TableSource
from poundlock.sql.errors import OptionError
from poundlock.sql.expressions.evaluation import EvaluationContext
from poundlock.sql.expressions.tree import ColumnRef, Expression, Literal, SqlCall, cast_to
from poundlock.sql.lowering.programs import CalcProgram, CalcStep
from poundlock.sql.lowering.rules.registry import RULES
from poundlock.sql.lowering.streams import Lowering
from poundlock.sql.relations.changes import is_updating, upsert_key
from poundlock.sql.relations.demands import ScanDemand, demands_of
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.lookups import KeptLookups
from poundlock.sql.relations.meanings import digest_of
from poundlock.sql.relations.pruning import pruned
from poundlock.sql.relations.stable import StableRelations
from poundlock.sql.relations.tree import LogicalFilter, LogicalLookupJoin, LogicalProject, LogicalRelation, LogicalScan
from poundlock.sql.settings import RESTARTS
from poundlock.sql.statements.results import RunsInserts, SinkTable
from poundlock.sql.tables import TableDefinition
from poundlock.sql.types import BYTES, STRING, SqlType
from poundlock.stream.nodes import CalcNode
from poundlock.stream.stream import DataStream
from poundlock.values import duration, span_ms

ARGUMENTS: Mapping[str, str] = {
    "execution.checkpointing.interval": "checkpoint_interval",
    "execution.checkpointing.timeout": "checkpoint_timeout",
    "execution.checkpointing.min-pause": "checkpoint_min_pause",
    "execution.checkpointing.dir": "checkpoint_dir",
    "state.checkpoints.dir": "checkpoint_dir",
    "parallelism.default": "parallelism",
    "pipeline.max-parallelism": "max_parallelism",
}
"""Settings that are arguments of a job."""
_BOOLEAN = SqlType("BOOLEAN")
_SIZED = ("CHAR", "VARCHAR", "BINARY", "VARBINARY")


def new_job(name: str, settings: Mapping[str, Any], **given: Any) -> Job:
    """Return a job without steps, as settings say.

    Args:
        given: arguments that settings do not change.
    """
    arguments = {ARGUMENTS[key]: value for key, value in settings.items() if key in ARGUMENTS}
    if "checkpoint_dir" in arguments:
        arguments["checkpoint_dir"] = f"{arguments['checkpoint_dir'].rstrip('/')}/{name}"  # a script has several jobs
    restarts = [f"{key}={settings[key]}" for key in RESTARTS if key in settings]
    if restarts:
        arguments["restart"] = restart_strategy(load_settings(restarts))
    mode = settings.get("execution.runtime-mode", "streaming")
    return Job(name, **{"on_error": "fail", "runtime_mode": mode, **arguments, **given})


@dataclass
class JobBuilder:
    """Makes the steps of one job.

    Args:
        settings: of the session.
        stable: names operators by what they are.
        reads_all: tables are read with all of their columns and rows, since statements that come later may read others.
    """

    job: Job
    zone: ZoneInfo
    settings: Mapping[str, Any]
    stable: StableRelations = field(default_factory=StableRelations)
    reads_all: bool = False
    lookups: dict[str, RowLookup] = field(default_factory=dict)
    """The tables that its steps look up in, by their names."""
    tables: dict[str, TableDefinition] = field(default_factory=dict)
    """All tables that it reads, looks up in or writes, by their names."""
    _sources: dict[int, TableSource] = field(default_factory=dict)
    _demands: Mapping[int, ScanDemand] = field(default_factory=dict)

    @property
    def is_batch(self) -> bool:
        """Whether results are final."""
        return bool(self.settings.get("execution.runtime-mode") == "batch")

    def __post_init__(self) -> None:
        self._kept_lookups = KeptLookups(self.is_updating_table)
        self.lowering = Lowering(
            self.job,
            EvaluationContext(self.zone),
            self._scan,
            self.is_updating_table,
            RULES,
            self._lookup,
            ttl_ms=self._span_ms("table.exec.state.ttl"),
            idle_ms=self._span_ms("table.exec.source.idle-timeout"),
            identity=self.stable.identity,
        )

    def _span_ms(self, key: str) -> int | None:
        """Return a span of time that is set, None where it is none or zero."""
        text = self.settings.get(key)
        return None if text is None else span_ms(duration(text)) or None

    # --- tables that are read ---------------------------------------------------------------------------------------------

    def _source(self, scan: LogicalScan) -> TableSource:
        known = self._sources.get(id(scan))
        if known is None:
            demand = self._demands.get(id(scan), ScanDemand())
            table = TableContext(scan.table, scan.definition, scan.fields, self.zone, self.is_batch, demand)
            self.tables[table.name.name] = table.definition
            known = self._sources[id(scan)] = connector_of(table).source(table)
            if self.is_batch and known.is_updating:
                raise OptionError(
                    f"the rows of {scan.table.name} change, and in batch mode tables of insertions alone can be read",
                    next="SET 'execution.runtime-mode' = 'streaming'",
                    kind="unsupported_query",
                )
        return known

    def is_updating_table(self, scan: LogicalScan) -> bool:
        """Return whether the rows of a table change."""
        return self._source(scan).is_updating

    def _scan(self, scan: LogicalScan) -> DataStream:
        table = self._source(scan)
        stream = self.job.from_source(table.source, name=_named(self.job, scan.table.name))
        if table.program is None:
            return stream
        return self.lowering.calc(stream, table.program, scan.fields, kinds=table.is_updating, name="decode")

    def _lookup(self, join: LogicalLookupJoin) -> RowLookup:
        """Return how a table is asked for the rows of keys.

        Raises:
            OptionError: its connector cannot be asked.
        """
        scan = join.table
        table = TableContext(scan.table, scan.definition, scan.fields, self.zone, self.is_batch)
        connector = connector_of(table)
        if not isinstance(connector, LookupConnector):
            raise OptionError(
                f"{table.name.name} cannot be looked up in: {table.definition.options['connector']} gives rows as a stream alone",
                next="join with a table of 'connector' = 'jdbc', or with versions: FOR SYSTEM_TIME AS OF a column with a watermark",
                kind="unsupported_query",
            )
        keys = [scan.field(column) for column in dict.fromkeys(c for _, c in join.looked_up)]
        self.tables[table.name.name] = table.definition
        lookup = self.lookups[table.name.name] = connector.lookup(table, keys)
        return lookup

    # --- tables that are written ------------------------------------------------------------------------------------------

    def inserts(self, inserts: RunsInserts) -> None:
        """Add the sinks of a statement.

        Raises:
            DefinitionError: a table cannot be read or written so.
        """
        relations = self._wanted([self._enforced(each) for each in inserts.sinks])
        for each, relation in zip(inserts.sinks, relations, strict=True):
            self._insert(each, relation)

    def _wanted(self, relations: Sequence[LogicalRelation]) -> Sequence[LogicalRelation]:
        """Return relations without columns that nobody reads, and note what they want of their tables."""
        if self.reads_all:
            return relations
        made = pruned(relations, columns_read)
        self._demands = demands_of(made)
        return made

    def _insert(self, into: SinkTable, relation: LogicalRelation) -> None:
        is_changelog = is_updating(relation, self.is_updating_table)
        updating = is_changelog and not self.is_batch
        table = TableContext(
            into.name,
            into.definition,
            relation.fields,
            self.zone,
            self.is_batch,
            is_updating=updating,
            static=into.static,
        )
        self.tables[table.name.name] = table.definition
        kind = into.definition.options.get("connector")
        if into.overwrite and kind != "filesystem":
            raise OptionError(
                f"INSERT OVERWRITE {into.name.name}, and {kind} takes rows and replaces none",
                next="write INSERT INTO, or into a table over files",
                kind="unsupported_query",
            )
        sink = connector_of(table).sink(table, overwrite=into.overwrite)
        stream = self._final(relation, is_changelog=is_changelog)
        if updating and sink.takes == "append":
            raise OptionError(
                f"{into.name.name} takes insertions alone, and the rows of the query change",
                next="write into a table that takes changes: 'format' = 'debezium-json', an upsert connector, or print",
                kind="updates_into_append_only_sink",
            )
        if updating and sink.takes == "upsert" and set(upsert_key(relation) or ()) != set(sink.key):
            raise OptionError(
                f"the rows of the query are not told apart by the primary key of {into.name.name}",
                next=f"GROUP BY the columns of its key: {', '.join(into.definition.primary_key)}",
                kind="unsupported_query",
            )
        schema = ddl.render(sink.schema)
        node = CalcNode(self.job.operator_id("encode", None), [stream.node], sink.program, schema)
        stream.then(node).sink_to(sink.sink, name=_named(self.job, f"{into.name.name}-sink"))

    def _stream(self, relation: LogicalRelation) -> tuple[DataStream, bool]:
        """Return the stream of a relation, and whether its rows change: in batch mode none does."""
        is_changelog = is_updating(relation, self.is_updating_table)
        return self._final(relation, is_changelog=is_changelog), is_changelog and not self.is_batch

    def _final(self, relation: LogicalRelation, *, is_changelog: bool) -> DataStream:
        """Return the stream of a relation: in batch mode the rows that are there at its end.

        Args:
            is_changelog: whether its rows change.
        """
        stream = self.lowering.stream(self.stable.of(self._kept_lookups.of(relation)))
        if not (is_changelog and self.is_batch):
            return stream
        kind = SqlCall("$INSERTION", (ColumnRef(ROW_KIND, SqlType("VARCHAR", (2,))),), _BOOLEAN)
        names = tuple(f.column for f in relation.fields)
        steps = (CalcStep(condition=kind), CalcStep(names, tuple(f.ref for f in relation.fields)))
        program = CalcProgram(steps, self.lowering.context, keeps_kind=False)
        return self.lowering.calc(stream, program, relation.fields, kinds=False, name="final")

    def _enforced(self, into: SinkTable) -> LogicalRelation:
        """Return the rows with what settings say of values that do not fit their columns."""
        return self._with_lengths(into, self._without_nulls(into, into.relation))

    def _with_lengths(self, into: SinkTable, relation: LogicalRelation) -> LogicalRelation:
        """Return the rows with what settings say of texts and bytes that are longer or shorter than their columns."""
        columns = {each.name for each in into.definition.columns}
        sized = [f for f in relation.fields if f.name in columns and f.type.root in _SIZED and f.type.sizes]
        how = self.settings.get("table.exec.sink.type-length-enforcer", "ignore")
        if how == "ignore" or not sized:
            return relation
        if how == "trim_pad":
            fitted = tuple(_fitted(f) if f in sized else f.ref for f in relation.fields)
            return LogicalProject(relation.fields, relation, fitted)
        condition: Expression | None = None
        for each in sized:
            most = each.type.sizes[0]
            least = most if each.type.root in ("CHAR", "BINARY") else 0
            of = Literal(f"{into.name.name}.{each.name}, which is {each.type}", SqlType("VARCHAR", (400,)))
            fits = SqlCall("$FITS", (each.ref, of), _BOOLEAN, (str(least), str(most)))
            condition = fits if condition is None else SqlCall("AND", (condition, fits), _BOOLEAN)
        assert condition is not None
        return LogicalFilter(relation.fields, relation, condition)

    def _without_nulls(self, into: SinkTable, relation: LogicalRelation) -> LogicalRelation:
        """Return the rows with what settings say of NULL in columns that are NOT NULL."""
        columns = {each.name: each for each in into.definition.columns}
        strict = [
            f
            for f, given in zip(relation.fields, _given_types(relation), strict=True)
            if not f.type.is_nullable and given.is_nullable and f.name in columns
        ]
        if not strict:
            return relation
        drops = self.settings.get("table.exec.sink.not-null-enforcer") == "drop"
        condition: Any = None
        for each in strict:
            there = SqlCall("IS NOT NULL", (each.ref,), _BOOLEAN)
            if not drops:
                message = Literal(f"{into.name.name}.{each.name}", SqlType("VARCHAR", (200,)))
                there = SqlCall("$NOT_NULL", (each.ref, message), _BOOLEAN)
            condition = there if condition is None else SqlCall("AND", (condition, there), _BOOLEAN)
        return LogicalFilter(relation.fields, relation, condition)

    # --- queries that are looked at ---------------------------------------------------------------------------------------

    def query(self, relation: LogicalRelation, sink: Any) -> pa.Schema:
        """Add a query whose rows go into a sink; return their columns, the kind of change behind them where rows change."""
        untyped = next((f.name for f in relation.fields if f.type.root == "NULL"), None)
        if untyped is not None:
            raise OptionError(
                f"the column {untyped} is NULL and of no type",
                next="write its type, such as CAST(NULL AS STRING)",
                kind="type_mismatch",
            )
        (wanted,) = self._wanted([relation])
        stream, updating = self._stream(wanted)
        schema = pa.schema([pa.field(f.column, f.type.arrow) for f in relation.fields])
        if updating:
            schema = schema.append(pa.field(ROW_KIND, pa.string()))
        stream.sink_to(sink, name="result")
        return schema


def _fitted(field: Field) -> Expression:
    loose = BYTES if field.type.root in BINARIES else STRING
    return cast_to(cast_to(field.ref, loose), field.type)


def _given_types(relation: LogicalRelation) -> Sequence[SqlType]:
    expressions = vars(relation).get("expressions")
    return [f.type for f in relation.fields] if expressions is None else [each.type for each in expressions]


def _named(job: Job, name: str) -> str:
    """Return a name for a step that no other has."""
    known = name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,90}", name) else f"table-{digest_of(name)}"
    return job.free_id(known)
