"""What the check of a script leaves for its run: each statement, what it comes to, and the job that was planned of it.

A plan follows from the script and the session alone, and the check goes through statements in the order in which they run, on a copy of
the session: so it holds when its statement is reached, whatever the jobs before it have written.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlglot import exp

from poundlock.sql.running.collected import CollectingSink
from poundlock.sql.running.jobs import JobBuilder
from poundlock.sql.script import Explain, ParsedStatement, Statement, StatementSet
from poundlock.sql.statements.results import Result


@dataclass(frozen=True)
class JobKey:
    """What the job of an INSERT is known by.

    Args:
        base: its name, where no other job has that.
        identity: tells it from other jobs of that name.
    """

    base: str
    identity: str

    def take(self, taken: dict[str, list[str]], *, same_again: bool) -> str:
        """Return the name of the job, by which it goes on where it was.

        Args:
            taken: the identities that have a name by now, by the base of it; this one is added.
            same_again: whether a job that has its name keeps it; else it gets another one.
        """
        known = taken[self.base]
        if self.identity not in known or not same_again:
            known.append(self.identity)
        times = known.index(self.identity) + 1 if same_again else len(known)
        return self.base if times == 1 else f"{self.base}-{times}"


@dataclass(frozen=True)
class QueryFolder:
    """A folder of this machine for what the job of a query keeps; its name is known before it is there."""

    path: str = field(default_factory=lambda: f"{tempfile.gettempdir()}/poundlock-sql-{secrets.token_hex(8)}")

    @property
    def sink(self) -> CollectingSink:
        """What the rows of the query go into."""
        return CollectingSink(f"{self.path}/rows")

    @property
    def checkpoint(self) -> str:
        """The folder of its checkpoint."""
        return f"{self.path}/job"

    @contextmanager
    def made(self) -> Iterator[None]:
        """Have the folder, which its user alone can read, as long as it is entered."""
        os.mkdir(self.path, 0o700)
        try:
            yield
        finally:
            shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True)
class CheckedStatement:
    """A statement that can be run.

    Args:
        result: what it comes to in the copy of the session.
        builder: has the job of a query or an INSERT.
        key: of the job of an INSERT.
        folder: of the job of a query.
    """

    statement: Statement
    result: Result
    builder: JobBuilder | None = None
    key: JobKey | None = None
    folder: QueryFolder | None = None

    @property
    def changes_session(self) -> bool:
        """Whether it defines or sets something, or shows what is there: then it is taken once more when it runs."""
        if isinstance(self.statement, Explain | StatementSet):
            return False
        parsed = self.statement.expression if isinstance(self.statement, ParsedStatement) else None
        return not isinstance(parsed, exp.Query | exp.Values | exp.Insert)
