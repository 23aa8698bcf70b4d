"""A session: what was defined and set so far, and what each statement of a script comes to.

A statement changes the session alone; nothing here reads or writes a table. A whole script is gone through on a copy before the first
of its queries runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.query import QueryAnalysis
from poundlock.sql.catalog import Catalogs
from poundlock.sql.errors import NOWHERE, OptionError, Place, SqlError, too_deep
from poundlock.sql.object_statements import (
    AlterCatalog,
    CreateCatalog,
    CreateFunction,
    DescribeCatalog,
    DropCatalog,
    DropFunction,
    ObjectStatement,
)
from poundlock.sql.script import (
    Explain,
    ParsedStatement,
    ResetOption,
    SetOption,
    Show,
    Statement,
    StatementSet,
    StopJob,
    statements_of,
)
from poundlock.sql.settings import OLDER_NAMES, SAVEPOINT_DIR, SETTINGS, checked
from poundlock.sql.statements.alterations import altered
from poundlock.sql.statements.catalogs import alter_catalog, create_catalog, describe_catalog, drop_catalog
from poundlock.sql.statements.definitions import create, describe, drop
from poundlock.sql.statements.inserts import insert_of
from poundlock.sql.statements.results import (
    Done,
    Explained,
    Result,
    RunsInserts,
    RunsQuery,
    ShownRows,
    ShowsJobs,
    SinkTable,
    StopsJob,
)
from poundlock.sql.statements.shows import shown
from poundlock.sql.types import STRING


@dataclass
class SqlSession:
    """What a script has defined and set."""

    catalogs: Catalogs = field(default_factory=Catalogs)
    settings: dict[str, Any] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    """The settings as they were written."""
    is_trial: bool = False
    """Whether statements are only checked: what lasts on disk is not written."""

    def trial(self) -> SqlSession:
        """Return a copy on which a script is checked: what it defines and sets is known there alone."""
        copied = deepcopy(self)
        copied.is_trial = True
        return copied

    @property
    def is_batch(self) -> bool:
        """Whether statements run in batch mode."""
        return bool(self.settings.get("execution.runtime-mode") == "batch")

    @property
    def zone(self) -> ZoneInfo:
        """The session's time zone."""
        zone = self.settings.get("table.local-time-zone")
        return zone if isinstance(zone, ZoneInfo) else ZoneInfo("UTC")

    def check(self, script: str) -> None:
        """Go through a whole script on a copy of the session.

        Raises:
            SqlError: one of its statements cannot be run.
        """
        trial = self.trial()
        for statement in statements_of(script):
            trial.take(statement, script)

    def results(self, script: str) -> Iterator[Result]:
        """Yield what each statement of a script comes to; the next one is looked at when the one before has been run."""
        for statement in statements_of(script):
            yield self.take(statement, script)

    def take(self, statement: Statement, script: str) -> Result:
        """Return what a statement comes to; one that defines or sets something has done so.

        Raises:
            SqlError: it cannot be run; the session is as it was.
        """
        try:
            return self._taken(statement, script)
        except RecursionError:
            raise too_deep(statement.place, script) from None
        except SqlError as error:
            if error.place != NOWHERE:
                raise
            raise placed(error, statement.place, script) from None
        except DefinitionError as error:
            raise placed(error, statement.place, script) from error

    def _taken(self, statement: Statement, script: str) -> Result:
        if isinstance(statement, SetOption):
            return self._set(statement)
        if isinstance(statement, ResetOption):
            return self._reset(statement)
        if isinstance(statement, StopJob):
            folder = self.settings.get(SAVEPOINT_DIR)
            return StopsJob(statement.job, statement.with_savepoint, statement.with_drain, folder)
        if isinstance(statement, Show) and statement.what == "JOBS":
            return ShowsJobs()
        if isinstance(statement, Show):
            return shown(self.analysis(script), statement)
        if isinstance(statement, StatementSet):
            return self._inserts(statement, script)
        if isinstance(statement, Explain):
            of = self.take(statement.of, script)
            assert isinstance(of, RunsQuery | RunsInserts)
            return Explained(of, statement.details)
        if isinstance(statement, DescribeCatalog):
            return describe_catalog(self.catalogs, statement)
        if isinstance(statement, ObjectStatement):
            self._define(statement)
            return Done()
        return self._parsed(statement, script)

    def analysis(self, script: str) -> Analysis:
        """Return the analysis of a statement."""
        return Analysis(self.catalogs, script, self.is_batch)

    def _parsed(self, statement: ParsedStatement, script: str) -> Result:
        expression = statement.expression
        if isinstance(expression, exp.Query | exp.Values):
            return RunsQuery(QueryAnalysis(self.analysis(script)).relation(expression))
        if isinstance(expression, exp.Insert):
            return RunsInserts((insert_of(self.analysis(script), expression),))
        if isinstance(expression, exp.Create):
            return create(self.catalogs, self.analysis(script), expression, statement.text)
        if isinstance(expression, exp.Drop):
            drop(self.catalogs, self.analysis(script), expression)
            return Done()
        if isinstance(expression, exp.Alter):
            altered(self.catalogs, self.analysis(script), expression)
            return Done()
        if isinstance(expression, exp.Describe):
            return describe(self.analysis(script), expression.this)
        if isinstance(expression, exp.Use):
            self._use(expression)
            return Done()
        raise self.analysis(script).error(
            expression,
            f"{statement.text.split()[0].upper()} is for tables that are changed row by row, and streams are not",
            "INSERT INTO another table what a query leaves over",
            "unsupported_query",
        )

    def _define(self, statement: CreateFunction | DropFunction | CreateCatalog | AlterCatalog | DropCatalog) -> None:
        functions = self.catalogs.functions
        if isinstance(statement, CreateCatalog):
            create_catalog(self.catalogs, statement, is_trial=self.is_trial)
        elif isinstance(statement, AlterCatalog):
            alter_catalog(self.catalogs, statement, is_trial=self.is_trial)
        elif isinstance(statement, DropCatalog):
            drop_catalog(self.catalogs, statement)
        elif isinstance(statement, DropFunction):
            functions.drop(statement.name, statement.scope, if_exists=statement.if_exists)
        elif statement.is_change:
            functions.replace(statement.name, statement.path, statement.scope, statement.if_so)
        else:
            functions.create(statement.name, statement.path, statement.scope, statement.if_so)

    def _inserts(self, statement: StatementSet, script: str) -> RunsInserts:
        analysis = self.analysis(script)  # tables that several of them read are read once
        sinks: list[SinkTable] = []
        for each in statement.inserts:
            assert isinstance(each.expression, exp.Insert)
            sinks.append(insert_of(analysis, each.expression))
        return RunsInserts(tuple(sinks))

    def _use(self, use: exp.Use) -> None:
        parts = [each.name for each in use.this.parts]
        if use.args.get("kind") is not None and use.args["kind"].name.upper() == "CATALOG":
            self.catalogs.use_catalog(parts[-1])
        else:
            self.catalogs.use(parts)

    def _set(self, statement: SetOption) -> Result:
        if statement.key is None:
            rows = [(key, text) for key, text in sorted(self.written.items())]
            return ShownRows((("key", STRING), ("value", STRING)), rows)
        assert statement.value is not None
        key = OLDER_NAMES.get(statement.key, statement.key)
        self.settings[key] = checked(key, statement.value)
        self.written[key] = statement.value
        return Done()

    def _reset(self, statement: ResetOption) -> Result:
        if statement.key is None:
            self.settings.clear()
            self.written.clear()
        else:
            key = OLDER_NAMES.get(statement.key, statement.key)
            if key not in SETTINGS:
                checked(key, "")
            self.settings.pop(key, None)
            self.written.pop(key, None)
        return Done()


def placed(error: DefinitionError, place: Place, script: str) -> SqlError:
    """Return an error that says where its statement stands."""
    what = error.bare if isinstance(error, SqlError) else error.what
    return SqlError(what, place=place, script=script, next=error.next, kind=error_kind(error), code=error.code)


def error_kind(error: DefinitionError) -> str:
    """Return what kind of error it is, as the recorded scripts call it."""
    return error.kind if isinstance(error, SqlError | OptionError) else "other"
