"""`poundlock sql`: runs a script of Flink SQL, statement by statement, and shows what its queries give; without one it is a shell."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from poundlock.cli.completion import savepoints
from poundlock.cli.options import (
    AllowNonRestoredOption,
    Call,
    MasterOption,
    NewerOutputOption,
    NoRestOption,
    ParallelismOption,
    with_shared_options,
)
from poundlock.cli.output import Output, plural
from poundlock.cli.text_tables import table_lines
from poundlock.errors import DefinitionError, required

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.config import Settings
    from poundlock.sql.relations.fields import Field
    from poundlock.sql.running.runner import ScriptRunner
    from poundlock.sql.running.shown import FinalTable
    from poundlock.sql.statements.results import ShownRows
    from poundlock.sql.statements.session import SqlSession

Form = Literal["table", "changelog", "json", "csv"]
_FORMS = ("table", "changelog", "json", "csv")
_STANDARD_INPUT = Path("-")
HISTORY = "sql-history"
"""The file below the state directory that has what was typed into the shell."""


@with_shared_options
def command(
    script: Annotated[
        Path | None,
        Argument(metavar="SCRIPT.SQL", help="File of statements, separated by ;. - is standard input."),
    ] = None,
    *,
    call: Call,
    file: Annotated[
        Path | None, Option("-f", "--file", metavar="SCRIPT.SQL", help="The same file, as Flink's client takes it.")
    ] = None,
    execute: Annotated[
        list[str] | None,
        Option("-e", "--execute", metavar="TEXT", help="Statements; may be repeated, and stand behind a file."),
    ] = None,
    init: Annotated[
        Path | None, Option("-i", "--init", metavar="INIT.SQL", help="File of statements that are run first.")
    ] = None,
    form: Annotated[
        str | None,
        Option(
            "--output",
            metavar="table|changelog|json|csv",
            help="How rows of queries are shown; default: as sql-client.execution.result-mode says, the final table.",
        ),
    ] = None,
    check: Annotated[bool, Option("--check", help="Go through the script and run nothing.")] = False,
    master: MasterOption = None,
    parallelism: ParallelismOption = None,
    savepoint: Annotated[
        str | None,
        Option(
            "-s",
            "--from-savepoint",
            metavar="PATH",
            help="The savepoint or checkpoint that the next INSERT begins with.",
            autocompletion=savepoints,
        ),
    ] = None,
    allow_non_restored: AllowNonRestoredOption = False,
    newer_output: NewerOutputOption = None,
    no_rest: NoRestOption = False,
) -> int:
    """Run a script of Flink SQL, or without one a shell.

    The whole script is checked before anything runs. Each INSERT is a job that is waited for; STATEMENT SET is one job.
    """
    if form is not None and form not in _FORMS:
        raise DefinitionError(f"--output={form} is not known", next=f"use one of {', '.join(_FORMS)}")
    if script is not None and file is not None:
        raise DefinitionError(f"two scripts are given: {script} and {file}", next="leave one of them out")
    from poundlock.cli.job_loader import find_modules_in

    given = script or file
    first = "" if init is None else read_script(init)
    output, settings = call.output, call.settings(master=master, rest_enabled=False if no_rest else None)
    find_modules_in(Path.cwd() if given is None or str(given) == "-" else given.parent)
    is_shell = given is None and not execute and sys.stdin.isatty()
    if is_shell:
        _refuse_for_shell(output, form, check=check)
    text = "" if is_shell else _text(given, execute or ())
    from poundlock.cli.jobs.run import newer_output_of, typed_options
    from poundlock.cli.jobs.sql_jobs import ListedJobs, ScriptTerminal, SqlJobs
    from poundlock.sql.running.runner import ScriptRunner

    session = _session(savepoint, allow_non_restored)
    shown = _Shown(output, session, "json" if output.as_json else form)  # type: ignore[arg-type]
    runner = ScriptRunner(
        job_name(given),
        shown.take,
        shown.known,
        session,
        settings,
        parallelism,
        on_query=shown.begin,
        on_note=output.note,
        control=ListedJobs(call),
        newer=newer_output_of(newer_output),
    )
    typed = [*([] if given is None else [str(given)]), *(word for each in execute or () for word in ("-e", each))]
    typed += [] if init is None else ["-i", str(init)]
    typed += typed_options(call, (), {"master": master, "parallelism": parallelism}, no_rest)
    if is_shell:
        return _shell(runner, settings, output, typed, first, form)
    jobs = SqlJobs(settings, typed, "sql" if given is None else str(given), ScriptTerminal(output))
    runner.launch = jobs.launch
    if check:
        _checked(runner, output, first, text)
    else:
        _run(runner, output, shown, first, text)
    return jobs.exit_code


def _session(savepoint: str | None, allow_non_restored: bool) -> SqlSession:
    """Return a session whose INSERTs begin with a savepoint, where one is given. Raises DefinitionError if one is missing."""
    from poundlock.sql.settings import IGNORE_UNCLAIMED, RECOVERY_PATH
    from poundlock.sql.statements.session import SqlSession

    session = SqlSession()
    if savepoint is not None:
        session.settings |= {RECOVERY_PATH: savepoint, IGNORE_UNCLAIMED: allow_non_restored}
    elif allow_non_restored:
        raise DefinitionError(
            "-n is for a savepoint, and none is given",
            next=f"add -s PATH, or write SET '{IGNORE_UNCLAIMED}' = 'true' beside the path",
        )
    return session


def _run(runner: ScriptRunner, output: Output, shown: _Shown, first: str, text: str) -> None:
    """Run a script behind another one."""
    from poundlock.sql.errors import SqlError

    try:
        if not all(runner.run(each, on_statement=shown.end) for each in (first, text)):
            output.note("the job was stopped: no statement behind it has run")
    except SqlError as error:
        output.note(error.shown)
        raise


def _checked(runner: ScriptRunner, output: Output, first: str, text: str) -> None:
    """Go through a script behind another one, and say that it is in order."""
    from poundlock.sql.errors import SqlError

    try:
        _check(runner, first, text)
    except SqlError as error:
        output.note(error.shown)
        raise
    output.show("the script is in order", {"checked": True})


def _check(runner: ScriptRunner, first: str, text: str) -> None:
    """Go through a script behind another one, without running anything of either."""
    from poundlock.sql.script import statements_of

    runner.check(first)
    for statement in statements_of(first):
        runner.session.take(statement, first)
    runner.check(text)


def job_name(script: Path | None) -> str:
    """Return what jobs of a script are called."""
    if script is None or str(script) == "-":
        return "sql"
    return re.sub(r"[^A-Za-z0-9._-]", "-", script.stem) or "sql"


def _text(script: Path | None, execute: Sequence[str]) -> str:
    """Return the statements of a file, of standard input, and of the command line.

    Raises:
        DefinitionError: there are none, or they cannot be read.
    """
    parts = list(execute)
    if script is not None:
        parts.insert(0, read_script(script))
    elif not parts:
        parts = [read_script(_STANDARD_INPUT)]
    if not "".join(parts).strip():
        raise DefinitionError("no statements", next='give a file, or -e "SELECT 1", or type them: poundlock sql')
    return "\n;\n".join(parts)  # a part may end with a comment


def read_script(script: Path) -> str:
    """Return what is in a file of SQL, or on standard input. Raises DefinitionError: it cannot be read."""
    is_input = script == _STANDARD_INPUT
    try:
        text = sys.stdin.read() if is_input else script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = "standard input" if is_input else script
        raise DefinitionError(f"{what} cannot be read: {error}", next="give a file of SQL in UTF-8") from None
    return text.removeprefix("\ufeff")  # a mark of some editors, and no part of a statement


def _refuse_for_shell(output: Output, form: str | None, *, check: bool) -> None:
    """Raise DefinitionError where what is given is for scripts, or the shell has no terminal."""
    if check:
        raise DefinitionError("--check without a script", next="give a file: poundlock sql --check script.sql")
    if output.as_json or form in ("json", "csv"):
        what = "--json" if output.as_json else f"--output={form}"
        raise DefinitionError(
            f"{what} is for scripts, and the shell shows tables", next='give a file, or -e "SELECT 1"'
        )
    if not output.out.isatty():
        raise DefinitionError(
            "the shell needs a terminal, and its output goes elsewhere", next='give a file, or -e "SELECT 1"'
        )


def _shell(
    runner: ScriptRunner, settings: Settings, output: Output, typed: Sequence[str], first: str, form: str | None
) -> int:
    """Be a shell until it is left, and return the exit code.

    Args:
        typed: the command line behind `sql`.
        first: statements that run before the first one that is typed.
    """
    required("prompt_toolkit", "the shell", "shell")
    from poundlock.cli.main import unexpected
    from poundlock.cli.shell.prompt import Prompt
    from poundlock.cli.shell.shell import Shell
    from poundlock.sql.errors import SqlError
    from poundlock.sql.shell.shared_spark import SharedSpark

    spark = SharedSpark(settings, runner.parallelism)
    shell = Shell(runner, settings, output, spark, typed, unexpected)
    spark.begin()
    try:
        if form is not None:
            shell.set_mode(form)
        if first:
            try:
                runner.check(first)
            except SqlError as error:
                output.note(error.shown)
                raise
            if not shell.execute(first) and shell.ended_by is None:
                raise DefinitionError(
                    "the statements of --init could not be run", next="mend them, or leave --init out"
                )
        shell.loop(Prompt(runner.session, settings.state_dir / HISTORY))
    finally:
        spark.end()
    return 0 if shell.ended_by is None else 128 + shell.ended_by


@dataclass
class _Shown:
    """Shows results as they come, or at the end of a statement where a table is wanted."""

    output: Output
    session: SqlSession
    asked: Form | None
    _fields: tuple[Field, ...] | None = None
    _table: FinalTable | None = None
    _begun: bool = field(default=False)

    @property
    def form(self) -> Form:
        """How rows are shown: as was asked for, else as the session's setting says."""
        if self.asked is not None:
            return self.asked
        return "changelog" if self.session.settings.get("sql-client.execution.result-mode") == "changelog" else "table"

    def begin(self, fields: tuple[Field, ...]) -> None:
        """Take the columns of a query."""
        self._fields = fields

    def take(self, fields: tuple[Field, ...], rows: pa.RecordBatch) -> None:
        """Take rows of a query."""
        from poundlock.sql.running.shown import FinalTable, changes_as_texts, changes_as_values

        if self.form == "json":
            for kind, row in changes_as_values(fields, rows):
                self.output.json({"op": kind, **dict(zip((f.name for f in fields), row, strict=True))})
            return
        changes = changes_as_texts(fields, rows, self.session.zone)
        if self.form == "table":
            self._table = self._table or FinalTable()
            self._table.take(changes)
            return
        if not self._begun and self.form == "csv":
            self.output.line(_csv(["op", *(f.name for f in fields)]))
            self._begun = True
        for kind, row in changes:
            if self.form == "csv":
                self.output.line(_csv([kind, *row]))
            else:
                self.output.line(f"{kind}[{', '.join('NULL' if v is None else v for v in row)}]")

    def known(self, shown: ShownRows) -> None:
        """Show rows that are known at once."""
        names = [name for name, _ in shown.columns]
        if self.form == "json":
            for row in shown.rows:
                self.output.json(dict(zip(names, row, strict=True)))
        elif self.form == "csv":
            self.output.line(_csv(names))
            for row in shown.rows:
                self.output.line(_csv(row))
        elif shown.text is not None:
            for line in shown.text:
                self.output.line(line)
        else:
            self._print(names, [[None if v is None else _text_of(v) for v in row] for row in shown.rows])

    def end(self) -> None:
        """Show the table of a query that has ended; of CSV the names of its columns, where no row came."""
        if self._fields is not None and self.form == "csv" and not self._begun:
            self.output.line(_csv(["op", *(f.name for f in self._fields)]))
        if self._fields is not None and self.form == "table":
            self._print([f.name for f in self._fields], [] if self._table is None else self._table.rows())
        self._fields, self._table, self._begun = None, None, False

    def _print(self, names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> None:
        for line in table_lines(names, rows):
            self.output.line(line)
        self.output.line(plural(len(rows), "row"))


def _text_of(value: Any) -> str:
    return str(value).upper() if isinstance(value, bool) else str(value)


def _csv(values: Sequence[Any]) -> str:
    """Return a line of CSV. NULL is nothing, and a text of no characters is a pair of quotes."""

    def quoted(value: Any) -> str:
        text = "" if value is None else _text_of(value)
        return '"' + text.replace('"', '""') + '"' if value == "" or re.search(r'[",\r\n]', text) else text

    return ",".join(map(quoted, values))
