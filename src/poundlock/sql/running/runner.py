"""Scripts, run statement by statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from poundlock.config import Settings, load_settings
from poundlock.driver.driver import run
from poundlock.driver.progress import StopRequest
from poundlock.driver.restart import NoRestart
from poundlock.errors import DefinitionError
from poundlock.spark.launch.session import Session
from poundlock.sql.errors import SqlError
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import LogicalRelation, LogicalScan, walk_relations
from poundlock.sql.running.collected import CollectingSink
from poundlock.sql.running.jobs import JobBuilder, new_job
from poundlock.sql.script import statements_of
from poundlock.sql.statements.results import Done, Explained, Result, RunsInserts, RunsQuery, ShownRows
from poundlock.sql.statements.session import SqlSession, placed
from poundlock.sql.tables import ComputedColumn, TableColumn
from poundlock.sql.types import STRING

Rows = Callable[[tuple[Field, ...], pa.RecordBatch], None]
"""Is given columns of a query's result and rows of it, with their kinds of change behind where rows change."""


@dataclass
class ScriptRunner:
    """Runs the statements of scripts in one session.

    Args:
        name: what jobs are called that settings give no name.
        on_rows: is given the rows of queries.
        on_shown: is given rows that are known at once.
        parallelism: of jobs to which settings give none.
        spark: the Spark session that jobs run in; None: each has one of its own.
    """

    name: str
    on_rows: Rows
    on_shown: Callable[[ShownRows], None]
    session: SqlSession = field(default_factory=SqlSession)
    settings: Settings | None = None
    parallelism: int | None = None
    spark: Session | None = None
    stop: StopRequest = field(default_factory=StopRequest)
    _jobs: Counter[str] = field(default_factory=Counter)

    def run(self, script: str, on_statement: Callable[[], None] = lambda: None) -> None:
        """Check a whole script, then run one statement behind the other.

        Args:
            on_statement: is called when a statement has run.

        Raises:
            SqlError: it cannot be run; nothing was.
            PoundlockError: a job failed.
        """
        self.check(script)
        for statement in statements_of(script):
            self._run(self.session.take(statement, script), statement.text)
            on_statement()

    def check(self, script: str) -> None:
        """Go through a script as far as its jobs' plans, without running anything.

        Raises:
            SqlError: a statement cannot be run.
        """
        trial = self.session.trial()
        for statement in statements_of(script):
            result = trial.take(statement, script)
            of = result.of if isinstance(result, Explained) else result
            if isinstance(of, RunsQuery | RunsInserts):
                try:
                    self._planned(trial, of)
                except SqlError:
                    raise
                except DefinitionError as error:
                    raise placed(error, statement.place, script) from error

    def _settings(self) -> dict[str, Any]:
        """Return the session's settings, with the runner's parallelism where they give none."""
        given = {} if self.parallelism is None else {"parallelism.default": self.parallelism}
        return {**given, **self.session.settings}

    def _planned(self, session: SqlSession, result: RunsQuery | RunsInserts) -> Any:
        job = new_job("check", session.settings)
        builder = JobBuilder(job, session.zone, session.settings)
        if isinstance(result, RunsQuery):
            builder.query(result.relation, CollectingSink("/nowhere"))
        else:
            builder.inserts(result)
        return job

    def _run(self, result: Result, text: str) -> None:
        if isinstance(result, ShownRows):
            self.on_shown(result)
        elif isinstance(result, RunsQuery):
            self._query(result)
        elif isinstance(result, RunsInserts):
            self._inserts(result, text)
        elif isinstance(result, Explained):
            job = self._planned(self.session, result.of)
            self.on_shown(ShownRows((("result", STRING),), [(line,) for line in job.explain().splitlines()]))
        else:
            assert isinstance(result, Done)

    def _query(self, query: RunsQuery) -> None:
        with _folder() as folder:
            sink = CollectingSink(f"{folder}/rows")
            job = new_job(
                f"{self.name}-query",
                self._settings(),
                checkpoint_dir=f"{folder}/job",
                restart=NoRestart(),
                checkpoint_interval="0 s",
            )
            builder = JobBuilder(job, self.session.zone, self.session.settings)
            builder.query(query.relation, sink)
            sink.given_to(lambda rows: self.on_rows(query.relation.fields, rows))
            settings = (self.settings or load_settings()).model_copy(update={"on_error": None, "checkpoint_dir": None})
            run(job, settings=settings, stop=self.stop, session=self.spark)

    def _inserts(self, inserts: RunsInserts, text: str) -> None:
        name = self.session.settings.get("pipeline.name") or f"{self.name}-{identity_of(inserts, text)}"
        self._jobs[name] += 1
        if self._jobs[name] > 1:
            name = f"{name}-{self._jobs[name]}"
        job = new_job(name, self._settings())
        JobBuilder(job, self.session.zone, self.session.settings).inserts(inserts)
        run(job, settings=self.settings or load_settings(), stop=self.stop, session=self.spark)


def identity_of(inserts: RunsInserts, text: str) -> str:
    """Return what tells a job from others: a digest of the statement and of the tables that it reads and writes.

    The same statement over the same tables is the same job, which goes on where it was; any other begins by itself.
    """
    tables = {str(each.name): each.definition for each in inserts.sinks}
    parts = [" ".join(text.split())]
    for sink in inserts.sinks:
        for relation in walk_relations(sink.relation):  # what views stand for, too
            if isinstance(relation, LogicalScan):
                tables[str(relation.table)] = relation.definition
            parts.append(f"{type(relation).__name__} {[*_own(relation)]}")
    for name, table in sorted(tables.items()):
        parts += [name, repr(sorted(table.options.items())), repr(table.primary_key), repr(table.partitioned_by)]
        parts += [f"{column.name} {_what(column)}" for column in table.columns]
        parts.append("" if table.watermark is None else table.watermark.expression.sql())
    return blake2b("\n".join(parts).encode(), digest_size=4).hexdigest()


def _own(relation: LogicalRelation) -> Iterator[str]:
    """Yield what a relation says beside its inputs and the table that it reads."""
    for name, value in vars(relation).items():
        if name != "definition" and value not in (relation.inputs, *relation.inputs):
            yield f"{name}={value!r}"


def _what(column: TableColumn) -> str:
    return column.expression.sql() if isinstance(column, ComputedColumn) else str(column.type)


@contextmanager
def _folder() -> Iterator[str]:
    with TemporaryDirectory(prefix="poundlock-sql-", ignore_cleanup_errors=True) as made:
        yield made
