"""What statements come to: rows that are known at once, or queries that a job is to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.sql.catalog import FullName
from poundlock.sql.expressions.tree import Expression
from poundlock.sql.relations.tree import LogicalRelation
from poundlock.sql.tables import TableDefinition
from poundlock.sql.types import SqlType


@dataclass(frozen=True, slots=True)
class Done:
    """A definition or a setting was taken."""

    message: str = "OK"


@dataclass(frozen=True, slots=True)
class ShownRows:
    """Rows that are known at once."""

    columns: tuple[tuple[str, SqlType], ...]
    rows: Sequence[tuple[Any, ...]]

    @property
    def text(self) -> Sequence[str] | None:
        """The lines of a text, as EXPLAIN and SHOW CREATE give it; None of rows that are a table."""
        if [name for name, _ in self.columns] != ["result"]:
            return None
        return [line for row in self.rows for line in str(row[0]).splitlines()]


@dataclass(frozen=True, slots=True)
class RunsQuery:
    """A query whose rows are to be shown.

    Args:
        notes: what the user is to know beside the result.
    """

    relation: LogicalRelation
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkTable:
    """What a query writes into.

    Args:
        relation: its columns are the table's, of the table's types.
        overwrite: whether what the table has is replaced.
        static: the columns of partitions that the statement gives a value.
    """

    name: FullName
    definition: TableDefinition
    relation: LogicalRelation
    overwrite: bool = False
    static: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class RunsInserts:
    """Queries whose rows are to be written, as one job; `notes` as of `RunsQuery`."""

    sinks: tuple[SinkTable, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explained:
    """Queries that are to be explained, and not run.

    Args:
        details: what is wanted beside, in Flink's words.
    """

    of: RunsQuery | RunsInserts
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowsJobs:
    """The jobs that run are to be shown."""


@dataclass(frozen=True, slots=True)
class StopsJob:
    """A job is to be stopped.

    Args:
        job: its id, the beginning of it, or its name.
        with_savepoint: whether it leaves all to a savepoint, whose path is shown.
        with_drain: whether every window fires before that.
        directory: in which the savepoint is made; None for the one in the state directory.
    """

    job: str
    with_savepoint: bool
    with_drain: bool
    directory: str | None


Result = Done | ShownRows | RunsQuery | RunsInserts | Explained | ShowsJobs | StopsJob
