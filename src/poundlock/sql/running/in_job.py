"""SQL in a job of Python: its streams as tables, queries as streams, INSERTs as sinks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats import ddl
from poundlock.job import Job
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.sql.analysis.context import Analysis, ScanKey
from poundlock.sql.catalog import FullName
from poundlock.sql.errors import SqlError
from poundlock.sql.lowering.programs import CalcProgram, CalcStep
from poundlock.sql.relations.fields import ColumnNames
from poundlock.sql.relations.tree import LogicalRelation, LogicalScan, walk_relations
from poundlock.sql.running.jobs import ARGUMENTS, JobBuilder
from poundlock.sql.running.stream_tables import StreamTable, stream_table
from poundlock.sql.script import SetOption, Statement, statements_of
from poundlock.sql.settings import DML_SYNC, OLDER_NAMES, RECOVERY_PATH, RESTARTS, SETTINGS
from poundlock.sql.statements.results import Done, RunsInserts, RunsQuery, SinkTable
from poundlock.sql.statements.session import SqlSession, placed
from poundlock.stream.nodes import QueryNode
from poundlock.stream.stream import DataStream

_OTHERWISE: Mapping[str, str] = {
    **{key: f"Job(…, {argument}=…)" for key, argument in ARGUMENTS.items()},
    **dict.fromkeys(RESTARTS, 'Job(…, restart=FixedDelayRestart(attempts=3, delay="10 s"))'),
    "execution.runtime-mode": 'Job(…, runtime_mode="batch")',
    "pipeline.name": 'Job("name")',
    RECOVERY_PATH: "poundlock run -s PATH",
}
"""Settings that a job of Python has otherwise."""


@dataclass
class _JobSession(SqlSession):
    """What SQL has defined and set in a job. A table that several statements read is read once."""

    in_batch: bool = False
    names: ColumnNames = field(default_factory=ColumnNames)
    scans: dict[ScanKey, LogicalRelation] = field(default_factory=dict)

    @property
    def is_batch(self) -> bool:
        """Whether statements run in batch mode: the job says so."""
        return self.in_batch

    def analysis(self, script: str) -> Analysis:
        """Return the analysis of a statement; tables that were defined otherwise since are read as they are now."""
        for key in [*self.scans]:
            if not any(known == key[0] and self._is_same(key, now) for known, now in self._relations(key[0])):
                del self.scans[key]
        return Analysis(self.catalogs, script, self.is_batch, self.names, self.scans)

    def _relations(self, name: FullName) -> list[tuple[FullName, Any]]:
        return list(self.catalogs.relations(name.catalog, name.database))

    def _is_same(self, key: ScanKey, now: Any) -> bool:
        scans = [each for each in walk_relations(self.scans[key]) if isinstance(each, LogicalScan)]
        return any(each.definition is now for each in scans)


class JobSql:
    """The SQL of one job.

    Args:
        job: that streams and sinks are added to.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._session = _JobSession(in_batch=job.runtime_mode == "batch")
        self._streams: dict[int, StreamTable] = {}  # by the identity of their definitions
        self._built: tuple[dict[str, Any], _Builder] | None = None

    def create_temporary_view(self, name: str, stream: Any, schema: str | None) -> None:
        """Make a stream a table; see `Job.create_temporary_view`."""
        if not isinstance(name, str) or not name.strip():
            raise DefinitionError(
                f"{name!r} is no name of a table", next='write create_temporary_view("events", stream)'
            )
        if not isinstance(stream, DataStream):
            what = f"a table of {stream!r:.60}, which is no stream"
            raise DefinitionError(what, next="give what from_source or a step of a stream returned")
        if stream.job is not self._job:
            raise DefinitionError("a table of a stream of another job", next="make both from one Job")
        made = stream_table(name, stream, schema)
        self._session.catalogs.create((name,), made.definition, temporary=True)
        self._streams[id(made.definition)] = made

    def run(self, script: str) -> DataStream | None:
        """Take statements; see `Job.sql`."""
        if not isinstance(script, str) or not script.strip():
            raise DefinitionError(f"sql of {script!r:.60}", next='write job.sql("SELECT …")')
        statements = statements_of(script)
        stream = None
        for place, statement in enumerate(statements):
            try:
                stream = self._taken(statement, script, is_last=place == len(statements) - 1)
            except SqlError:
                raise
            except DefinitionError as error:
                raise placed(error, statement.place, script) from error
        return stream

    def _taken(self, statement: Statement, script: str, *, is_last: bool) -> DataStream | None:
        if isinstance(statement, SetOption) and statement.key is not None:
            key = OLDER_NAMES.get(statement.key, statement.key)
            if key in SETTINGS and (key == DML_SYNC or not key.startswith("table.")):
                raise DefinitionError(
                    f"SET '{statement.key}' in a job of Python",
                    next=f"say it there: {_OTHERWISE[key]}" if key in _OTHERWISE else "leave it out",
                )
        builder = self._builder()
        result = self._session.take(statement, script)
        if isinstance(result, RunsQuery | RunsInserts):
            for note in result.notes:
                warnings.warn(note, stacklevel=4)  # where the user called Job.sql
        if isinstance(result, RunsQuery):
            if not is_last:
                raise DefinitionError("a query whose stream nobody is given", next="give it to job.sql by itself")
            return builder.stream(result.relation)
        if isinstance(result, RunsInserts):
            for each in result.sinks:
                self._check_sink(each)
            builder.inserts(result)
        elif not isinstance(result, Done):
            raise DefinitionError(
                f"{statement.text.split()[0].upper()} gives a job neither a stream nor a sink",
                next="type it in poundlock sql; the plan of the job is job.explain()",
            )
        return None

    def _check_sink(self, into: SinkTable) -> None:
        if id(into.definition) in self._streams:
            raise DefinitionError(
                f"{into.name.name} is a stream of the job, and nobody can write into it",
                next="make one stream of both: stream.union(job.sql(…)), or INSERT INTO a table with a connector",
            )

    def _builder(self) -> _Builder:
        """Return what makes streams with the settings of now; tables are read once for all statements with the same ones."""
        mode = {"execution.runtime-mode": "batch"} if self._session.in_batch else {}
        settings = {**self._session.settings, **mode}
        if self._built is None or self._built[0] != settings:
            self._session.scans.clear()
            # Statements that come later may read columns that those before them do not.
            builder = _Builder(self._job, self._session.zone, settings, reads_all=True, streams=self._streams)
            self._built = settings, builder
        return self._built[1]


@dataclass
class _Builder(JobBuilder):
    """Makes steps of a job in which some tables are streams."""

    streams: Mapping[int, StreamTable] = field(default_factory=dict)

    def stream(self, relation: LogicalRelation) -> DataStream:
        """Return the stream of a query, whose columns are called as the query calls them."""
        stream, updating = self._stream(relation)
        names = tuple(each.name for each in relation.fields)
        if updating and ROW_KIND in names:
            raise DefinitionError(
                f"a column {ROW_KIND} beside the kind of change of a query whose rows change",
                next=f"give it another name: {ROW_KIND} AS kind",
            )
        program = CalcProgram((CalcStep(names, tuple(each.ref for each in relation.fields)),), self.lowering.context)
        schema = pa.schema([pa.field(each.name, each.type.arrow) for each in relation.fields])
        if updating:
            schema = schema.append(pa.field(ROW_KIND, pa.string()))
        time = relation.rowtime
        node = QueryNode(
            self.job.operator_id("query", None),
            [stream.node],
            program,
            ddl.render(schema),
            time=None if time is None else time.name,
        )
        return stream.then(node)

    def is_updating_table(self, scan: LogicalScan) -> bool:
        """Return whether the rows of a table or stream change."""
        table = self.streams.get(id(scan.definition))
        return super().is_updating_table(scan) if table is None else table.is_updating

    def _scan(self, scan: LogicalScan) -> DataStream:
        table = self.streams.get(id(scan.definition))
        if table is None:
            return super()._scan(scan)
        return self.lowering.calc(
            table.stream, table.program(scan.fields), scan.fields, kinds=table.is_updating, name="table"
        )
