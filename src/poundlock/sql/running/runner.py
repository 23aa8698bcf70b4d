"""Scripts, run statement by statement."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import pyarrow as pa

from poundlock.checkpoint.portable import NewerOutput
from poundlock.config import Settings, load_settings
from poundlock.driver.driver import run
from poundlock.driver.progress import Progress, StopRequest
from poundlock.driver.restart import NoRestart
from poundlock.driver.savepoints.restore import Beginning
from poundlock.errors import DefinitionError
from poundlock.job import Job
from poundlock.spark.launch.session import Session
from poundlock.sql.dialect import Flink
from poundlock.sql.errors import SqlError, too_deep
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import LogicalRelation, LogicalScan, walk_relations
from poundlock.sql.running.beginnings import beginning_of, refuse_unfit
from poundlock.sql.running.checked import CheckedStatement, JobKey, QueryFolder
from poundlock.sql.running.collected import CollectingSink
from poundlock.sql.running.explained import explained
from poundlock.sql.running.jobs import JobBuilder, new_job
from poundlock.sql.script import Statement, statements_of
from poundlock.sql.statements.results import (
    Done,
    Explained,
    Result,
    RunsInserts,
    RunsQuery,
    ShownRows,
    ShowsJobs,
    StopsJob,
)
from poundlock.sql.statements.session import SqlSession, placed
from poundlock.sql.tables import ComputedColumn, TableColumn
from poundlock.sql.types import STRING, SqlType

Rows = Callable[[tuple[Field, ...], pa.RecordBatch], None]
"""Is given columns of a query's result and rows of it, with their kinds of change behind where rows change."""


class JobControl(Protocol):
    """What statements ask of jobs that run."""

    def running(self) -> Sequence[tuple[str, str, str, str]]:
        """Return id, name, state and start of each, the newest first."""

    def check(self, job: str) -> None:
        """Check that a job runs.

        Raises:
            DefinitionError: it does not.
        """

    def stop(self, stopped: StopsJob) -> str | None:
        """Stop a job and wait for its end; return the path of the savepoint, None where none is asked for.

        Raises:
            PoundlockError: it does not run, or the savepoint was not taken.
        """


Launch = Callable[[Job, Beginning | None], bool]
"""Runs a job; returns whether it came to the end of its input, so that the script goes on."""


@dataclass
class ScriptRunner:
    """Runs the statements of scripts in one session.

    Args:
        name: what jobs are called that settings give no name.
        on_rows: is given the rows of queries.
        on_shown: is given rows that are known at once.
        on_query: is given the columns of a query before it runs.
        on_note: is given what the user is to know of a statement beside its result.
        same_again: whether an INSERT that is there a second time goes on with the job of the first; else it is a job of its own, as in a
            script, which means both.
        parallelism: of jobs to which settings give none.
        spark: gives the Spark session that the next job runs in; None: it has one of its own.
        on_progress: is given what becomes of jobs that run here, in their threads.
        launch: runs the jobs of inserts; None: they run here, and nobody sees them from outside.
        control: reaches jobs that run; None: nobody does, and statements about them are refused.
        newer: what becomes of output that was finished after the savepoint that a job begins with.
    """

    name: str
    on_rows: Rows
    on_shown: Callable[[ShownRows], None]
    session: SqlSession = field(default_factory=SqlSession)
    settings: Settings | None = None
    parallelism: int | None = None
    spark: Callable[[], Session | None] = lambda: None
    on_progress: Callable[[Progress], None] | None = None
    on_query: Callable[[tuple[Field, ...]], None] = lambda fields: None
    on_note: Callable[[str], None] = lambda text: None
    stop: StopRequest = field(default_factory=StopRequest)
    launch: Launch | None = None
    control: JobControl | None = None
    newer: NewerOutput = "refuse"
    same_again: bool = False
    _jobs: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The statements that have run, by the name of their jobs."""

    def run(self, script: str, on_statement: Callable[[], None] = lambda: None) -> bool:
        """Check a whole script, then run one statement behind the other; return whether all have run, and no job was stopped.

        Args:
            on_statement: is called when a statement has run.

        Raises:
            SqlError: it cannot be run; nothing was.
            PoundlockError: a job failed.
        """
        for checked in self.check(script):
            if not self._run(checked, script):
                return False
            on_statement()
        return True

    def check(self, script: str) -> list[CheckedStatement]:
        """Go through a script as far as its jobs' plans, without running anything.

        Raises:
            SqlError: a statement cannot be run.
        """
        trial, names = self.session.trial(), deepcopy(self._jobs)
        checked = []
        for statement in statements_of(script):
            result = trial.take(statement, script)
            try:
                checked.append(self._checked(trial, statement, result, names))
            except RecursionError:
                raise too_deep(statement.place, script) from None
            except SqlError:
                raise
            except DefinitionError as error:
                raise placed(error, statement.place, script) from error
        return checked

    def _checked(
        self, session: SqlSession, statement: Statement, result: Result, names: dict[str, list[str]]
    ) -> CheckedStatement:
        if isinstance(result, Explained):
            builder = self._builder(session, new_job("explained", self._settings(session)))
            if isinstance(result.of, RunsQuery):
                builder.query(result.of.relation, CollectingSink("/nowhere"))
            else:
                builder.inserts(result.of)
            return CheckedStatement(statement, result, builder)
        if isinstance(result, RunsQuery):
            return self._checked_query(session, statement, result)
        if isinstance(result, RunsInserts):
            key = self._key(session, result, statement.text)
            name = key.take(names, same_again=self.same_again)
            builder = self._builder(session, new_job(name, self._settings(session)))
            builder.inserts(result)
            beginning = self._beginning(session, builder.job)
            if beginning is not None:
                refuse_unfit(builder.job, beginning)
            return CheckedStatement(statement, result, builder, key)
        if isinstance(result, ShowsJobs | StopsJob):
            control = self._control()
            if isinstance(result, StopsJob):
                control.check(result.job)
        return CheckedStatement(statement, result)

    def _checked_query(self, session: SqlSession, statement: Statement, query: RunsQuery) -> CheckedStatement:
        folder = QueryFolder()
        job = new_job(
            f"{self.name}-query",
            self._settings(session),
            checkpoint_dir=folder.checkpoint,
            restart=NoRestart(),
            checkpoint_interval="0 s",
        )
        builder = self._builder(session, job)
        builder.query(query.relation, folder.sink)
        return CheckedStatement(statement, query, builder, folder=folder)

    def _builder(self, session: SqlSession, job: Job) -> JobBuilder:
        return JobBuilder(job, session.zone, {**session.settings})

    def _settings(self, session: SqlSession) -> dict[str, Any]:
        """Return a session's settings, with the runner's parallelism where they give none."""
        given = {} if self.parallelism is None else {"parallelism.default": self.parallelism}
        return {**given, **session.settings}

    def _run(self, checked: CheckedStatement, script: str) -> bool:
        """Run a statement; return whether the script goes on."""
        result = self.session.take(checked.statement, script) if checked.changes_session else checked.result
        if isinstance(result, RunsQuery | RunsInserts):
            for note in result.notes:
                self.on_note(note)
        if isinstance(result, ShownRows):
            self.on_shown(result)
        elif isinstance(result, RunsQuery):
            self._query(result, checked)
        elif isinstance(result, RunsInserts):
            return self._inserts(checked)
        elif isinstance(result, Explained):
            assert checked.builder is not None
            self.on_shown(ShownRows((("result", STRING),), [(explained(result, checked.builder),)]))
        elif isinstance(result, ShowsJobs):
            self.on_shown(ShownRows(_JOB_COLUMNS, list(self._control().running())))
        elif isinstance(result, StopsJob):
            path = self._control().stop(result)
            if path is not None:
                self.on_shown(ShownRows((("savepoint path", STRING),), [(path,)]))
        else:
            assert isinstance(result, Done)
        return True

    def _control(self) -> JobControl:
        if self.control is None:
            raise DefinitionError(
                "statements about jobs that run have nobody here who reaches them",
                next="run the script with poundlock sql",
            )
        return self.control

    def _query(self, query: RunsQuery, checked: CheckedStatement) -> None:
        assert checked.builder is not None
        assert checked.folder is not None
        with checked.folder.made():
            self.on_query(query.relation.fields)
            checked.folder.sink.given_to(lambda rows: self.on_rows(query.relation.fields, rows))
            settings = self._run_settings().model_copy(update={"on_error": None, "checkpoint_dir": None})
            job = checked.builder.job
            run(job, settings=settings, stop=self.stop, session=self.spark(), on_progress=self.on_progress)

    def _inserts(self, checked: CheckedStatement) -> bool:
        assert checked.builder is not None
        assert checked.key is not None
        checked.key.take(self._jobs, same_again=self.same_again)
        job = checked.builder.job
        return (self.launch or self._launched)(job, self._beginning(self.session, job))

    def _launched(self, job: Job, beginning: Beginning | None) -> bool:
        run(
            job,
            settings=self._run_settings(),
            stop=self.stop,
            session=self.spark(),
            beginning=beginning,
            on_progress=self.on_progress,
        )
        return not self.stop.stopping

    def _key(self, session: SqlSession, inserts: RunsInserts, text: str) -> JobKey:
        identity = identity_of(inserts, text)
        return JobKey(session.settings.get("pipeline.name") or f"{self.name}-{identity}", identity)

    def _beginning(self, session: SqlSession, job: Job) -> Beginning | None:
        return beginning_of(session.settings, job, self._run_settings(), self.newer)

    def _run_settings(self) -> Settings:
        return self.settings or load_settings()


_JOB_COLUMNS = (
    ("job id", STRING),
    ("job name", STRING),
    ("status", STRING),
    ("start time", SqlType("TIMESTAMP_LTZ", (3,))),
)


def identity_of(inserts: RunsInserts, text: str) -> str:
    """Return what tells a job from others: a digest of the statement and of the tables that it reads and writes.

    The same statement over the same tables is the same job, which goes on where it was; any other begins by itself. A path that
    is written from the current folder on is another one in another folder, and so is the job.
    """
    tables = {str(each.name): each.definition for each in inserts.sinks}
    parts = [" ".join(text.split())]
    for sink in inserts.sinks:
        for relation in walk_relations(sink.relation):  # what views stand for, too
            if isinstance(relation, LogicalScan):
                tables[str(relation.table)] = relation.definition
            parts.append(f"{type(relation).__name__} {[*_own(relation)]}")
    for name, table in sorted(tables.items()):
        parts += [name, repr(sorted(_placed(table.options))), repr(table.primary_key), repr(table.partitioned_by)]
        parts += [f"{column.name} {_what(column)}" for column in table.columns]
        parts.append("" if table.watermark is None else table.watermark.expression.sql(dialect=Flink))
    return blake2b("\n".join(parts).encode(), digest_size=4).hexdigest()


def _placed(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield options, the path of files as a whole one."""
    for key, text in options.items():
        yield (
            key,
            os.path.abspath(text) if key == "path" and "://" not in text and not text.startswith("file:") else text,
        )


def _own(relation: LogicalRelation) -> Iterator[str]:
    """Yield what a relation says beside its inputs and the table that it reads."""
    for name, value in vars(relation).items():
        if name != "definition" and value not in (relation.inputs, *relation.inputs):
            yield f"{name}={value!r}"


def _what(column: TableColumn) -> str:
    return column.expression.sql(dialect=Flink) if isinstance(column, ComputedColumn) else str(column.type)
