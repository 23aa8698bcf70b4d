"""The shell: reads statements, runs each at once in one session, and goes on whatever becomes of it.

The job of an INSERT is one as those of scripts are: listed and asked from outside, and not the shell's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from poundlock import __version__
from poundlock.cli.jobs.sql_jobs import SqlJobs
from poundlock.cli.output import Output, plural
from poundlock.cli.progress_display import status_line
from poundlock.cli.shell.prompt import command_of
from poundlock.cli.shell.result_views import ChangelogView, ResultTableView, ResultView, TailView
from poundlock.cli.shell.statement_run import StatementRun
from poundlock.cli.signals import Signals
from poundlock.cli.text_tables import table_lines
from poundlock.config import Settings
from poundlock.driver.progress import Progress, StopRequest
from poundlock.errors import PoundlockError
from poundlock.sql.errors import SqlError
from poundlock.sql.running.runner import ScriptRunner
from poundlock.sql.script import ParsedStatement, StatementSet, statements_of
from poundlock.sql.shell.shared_spark import SharedSpark
from poundlock.sql.shell.statement_input import statements_in
from poundlock.sql.shell.words import COMMANDS

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.job import Job
    from poundlock.sql.relations.fields import Field
    from poundlock.sql.statements.results import ShownRows

MOST_ROWS = 1_000_000
"""How many rows of a result are kept where nothing is set, as in Flink."""
_MODE = "sql-client.execution.result-mode"
_MOST = "sql-client.execution.max-table-result.rows"
_WRITES = ("INSERT", "CREATE")  # CREATE TABLE … AS SELECT
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_HELP = (
    "A statement ends with ; and may have several lines; several of them run one after the other, until one fails.",
    "  CREATE TABLE, CREATE VIEW, ALTER, DROP, USE      what the statements behind them know",
    "  SELECT …, VALUES …, WITH …                       rows as a table that changes in place; Ctrl-C ends the query",
    "  INSERT INTO …, EXECUTE STATEMENT SET BEGIN … END a job with exactly-once checkpoints; the same one again goes on",
    "  SHOW, DESCRIBE, EXPLAIN, SET, RESET              what there is, what it means, and settings",
    "  SET 'sql-client.execution.result-mode' = 'table' | 'changelog' | 'tableau'",
    "Tab completes; the arrow keys and Ctrl-R look through what was typed before; Ctrl-C drops what is typed.",
)


class ReadsStatements(Protocol):
    """Asks for input."""

    def read(self) -> str:
        """Return what was typed. Raises EOFError at the end, KeyboardInterrupt where it is dropped."""


@dataclass
class Shell:
    """Runs what is typed.

    Args:
        runner: runs statements; its session is the shell's.
        spark: what the jobs of the shell run in.
        typed: the command line behind `sql`, with which there is such a shell again.
        unexpected: makes an error to show of one that nobody foresaw.
    """

    runner: ScriptRunner
    settings: Settings
    output: Output
    spark: SharedSpark
    typed: Sequence[str]
    unexpected: Callable[[Exception], PoundlockError]
    ended_by: int | None = field(default=None, init=False)
    """The signal that has ended the shell while a statement ran."""
    _run: StatementRun = field(init=False)
    _shown: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        jobs = SqlJobs(self.settings, self.typed, "sql", self, spark=self.spark.session, is_shell=True)
        self.runner.spark, self.runner.same_again, self.runner.launch = self.spark.session, True, jobs.launch
        self.runner.on_query = self._query
        self.runner.on_rows = self._rows
        self.runner.on_shown = self._known
        self.runner.on_progress = self.update

    def set_mode(self, mode: str) -> None:
        """Set how results are shown, as SET does."""
        self.runner.session.settings[_MODE] = self.runner.session.written[_MODE] = mode

    def loop(self, prompt: ReadsStatements) -> None:
        """Read and run until quit or Ctrl-D, or a signal that ends the shell."""
        if self.ended_by is None:
            self.output.line(f"poundlock {__version__}, Flink SQL. Type help, or a statement and ;")
        while self.ended_by is None:
            try:
                text = prompt.read()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            command = command_of(text)
            if command in ("quit", "exit"):
                return
            if command is not None:
                self._command(command)
            else:
                self._executed(text)

    def _executed(self, text: str) -> None:
        try:
            self.execute(text)
        except KeyboardInterrupt:  # while a long result was printed
            self.output.note("the rest is left out")

    def _command(self, command: str) -> None:
        if command == "clear":
            self.output.line(_CLEAR)
            return
        for line in _HELP:
            self.output.line(line)
        for name, what in COMMANDS.items():
            self.output.line(f"  {name:<8}{what}")

    def execute(self, text: str) -> bool:
        """Run the statements of a text, each when the one before has ended; return whether all of them did well."""
        statements = statements_in(text)
        for number, statement in enumerate(statements, 1):
            command = command_of(statement)
            if command == "clear":
                self._command(command)
                continue
            if command in ("quit", "exit"):  # as in a script; the shell ends where it is typed alone
                if number < len(statements):
                    self.output.note(f"not run: {plural(len(statements) - number, 'statement')} behind {command}")
                return True
            if not self._statement(statement):
                if number < len(statements) and self.ended_by is None:
                    self.output.note(f"not run: {plural(len(statements) - number, 'statement')} behind it")
                return False
        return True

    def _statement(self, script: str) -> bool:
        """Run one statement; return whether it came to its end."""
        stop = self.runner.stop = StopRequest()
        self._run = run = StatementRun(self.output, stop, self.spark.kill)
        self._shown = False
        try:
            return self._outcome(run, script)
        finally:
            self.ended_by = run.ended_by

    def _outcome(self, run: StatementRun, script: str) -> bool:
        try:
            run.writes = _writes(script)
            is_whole = run.run(lambda: self.runner.run(script))
        except Exception as error:
            if run.is_seen:
                self._end_view(run)
                self._failed(run, error)
            return False
        if not run.is_seen:
            return False
        self._end_view(run)
        if run.interrupts:
            self._interrupted(run)
            return False
        self._done(run, is_whole=is_whole)
        return is_whole

    def _end_view(self, run: StatementRun) -> None:
        if run.view is not None:
            run.view.end(self.output.line)

    def _failed(self, run: StatementRun, error: Exception) -> None:
        if isinstance(error, SqlError):
            self.output.note(error.shown)
            self.output.error(error)
        elif isinstance(error, PoundlockError):
            if run.writes or not run.interrupts:
                self.output.error(error)
            if run.interrupts:
                self._interrupted(run)
        else:
            self.output.error(self.unexpected(error))

    def _done(self, run: StatementRun, *, is_whole: bool) -> None:
        progress = run.progress
        if run.writes and progress is not None:
            self.output.line(status_line(progress))
            if not is_whole:
                self.output.note("the job was ended from outside; what it has written stays")
            elif progress.checkpoint is None:
                self.output.line(
                    "Nothing was inserted: this INSERT has read all there is. "
                    "To insert it once more, give it a name: SET 'pipeline.name' = '…'"
                )
        elif run.view is None and not self._shown:
            self.output.line("OK")

    def _interrupted(self, run: StatementRun) -> None:
        if not run.writes:
            self.output.note("the query was ended")
            return
        self.output.note("the INSERT was ended; what it has written stays")
        self.output.note("Next: the same statement goes on where it was, here or in another shell")

    # --- from the threads of the statement and its job ----------------------------------------------------------------

    def say(self, line: str) -> None:
        """Have a line printed that stays."""
        self._run.say(line)

    def update(self, progress: Progress) -> None:
        """Take how a job goes."""
        self._run.update(progress)

    @contextmanager
    def asking(self, job: Job) -> Iterator[Signals]:
        """Have a job asked to stop by what stops the statement: signals come to the main thread, which watches that."""
        yield Signals(self.runner.stop, self.say)

    def _query(self, fields: tuple[Field, ...]) -> None:
        self._run.view = self._view([each.name for each in fields])

    def _view(self, names: list[str]) -> ResultView:
        session = self.runner.session
        mode, most = session.settings.get(_MODE, "table"), session.settings.get(_MOST, MOST_ROWS)
        if mode == "changelog":
            return ChangelogView(names, session.zone)
        if mode == "tableau":
            return TailView(names, session.zone, most, has_kinds=not session.is_batch)
        return ResultTableView(names, session.zone, most)

    def _rows(self, fields: tuple[Field, ...], rows: pa.RecordBatch) -> None:
        assert self._run.view is not None
        self._run.view.take(fields, rows)

    def _known(self, shown: ShownRows) -> None:
        self._shown = True
        if shown.text is not None:
            for line in shown.text:
                self.output.line(line)
            return
        rows = [[None if value is None else str(value) for value in row] for row in shown.rows]
        for line in table_lines([name for name, _ in shown.columns], rows):
            self.output.line(line)
        self.output.line(plural(len(rows), "row"))


def _writes(script: str) -> bool:
    """Return whether a statement inserts.

    Raises:
        SqlError: it is none.
    """
    return any(
        isinstance(each, StatementSet) or (isinstance(each, ParsedStatement) and each.text.upper().startswith(_WRITES))
        for each in statements_of(script)
    )
