"""`poundlock sql`: runs a script of Flink SQL, statement by statement, and shows what its queries give."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from poundlock.cli.options import Call, MasterOption, ParallelismOption, with_shared_options
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.sql.relations.fields import Field
    from poundlock.sql.running.shown import FinalTable
    from poundlock.sql.statements.results import ShownRows
    from poundlock.sql.statements.session import SqlSession

Form = Literal["table", "changelog", "json", "csv"]
_FORMS = ("table", "changelog", "json", "csv")


@with_shared_options
def command(
    script: Annotated[Path | None, Argument(metavar="SCRIPT.SQL", help="File of statements, separated by ;.")] = None,
    *,
    call: Call,
    execute: Annotated[
        list[str] | None,
        Option("-e", "--execute", metavar="TEXT", help="Statements; may be repeated, and stand behind a file."),
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
) -> int:
    """Run a script of Flink SQL.

    The whole script is checked before anything runs. Each INSERT is a job that is waited for; STATEMENT SET is one job.
    """
    from poundlock.cli.job_loader import find_modules_in
    from poundlock.sql.errors import SqlError
    from poundlock.sql.running.runner import ScriptRunner
    from poundlock.sql.statements.session import SqlSession

    if form is not None and form not in _FORMS:
        raise DefinitionError(f"--output={form} is not known", next=f"use one of {', '.join(_FORMS)}")
    text = _text(script, execute or ())
    find_modules_in(Path.cwd() if script is None else script.parent)
    output = call.output
    session = SqlSession()
    shown = _Shown(output, session, "json" if output.as_json else form)  # type: ignore[arg-type]
    name = re.sub(r"[^A-Za-z0-9._-]", "-", script.stem) if script is not None else "sql"
    settings = call.settings(master=master)
    runner = ScriptRunner(name or "sql", shown.take, shown.known, session, settings, parallelism)
    try:
        if check:
            runner.check(text)
            output.show("the script is in order", {"checked": True})
            return 0
        runner.run(text, on_statement=shown.end)
    except SqlError as error:
        output.note(error.shown)
        raise
    return 0


def _text(script: Path | None, execute: Sequence[str]) -> str:
    """Return the statements of a file and of the command line.

    Raises:
        DefinitionError: there are none, or the file cannot be read.
    """
    parts = list(execute)
    if script is not None:
        try:
            parts.insert(0, script.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise DefinitionError(f"{script} cannot be read: {error}", next="give a file of SQL in UTF-8") from None
    if not "".join(parts).strip():
        raise DefinitionError("no statements", next='give a file, or -e "SELECT 1"')
    return ";\n".join(parts)


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

    def take(self, fields: tuple[Field, ...], rows: pa.RecordBatch) -> None:
        """Take rows of a query."""
        from poundlock.sql.running.shown import FinalTable, changes_as_texts, changes_as_values

        self._fields = fields
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
        else:
            self._print(names, [[None if v is None else str(v) for v in row] for row in shown.rows])

    def end(self) -> None:
        """Show the table of a query that has ended."""
        if self._fields is not None and self.form == "table":
            self._print([f.name for f in self._fields], [] if self._table is None else self._table.rows())
        self._fields, self._table, self._begun = None, None, False

    def _print(self, names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> None:
        shown = [["NULL" if value is None else value for value in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
        border = "+".join(["", *("-" * (width + 2) for width in widths), ""])
        for line in (border, _row(names, widths), border, *(_row(row, widths) for row in shown), border):
            self.output.line(line)
        self.output.line(f"{len(rows)} row{'' if len(rows) == 1 else 's'}")


def _row(values: Sequence[str], widths: Sequence[int]) -> str:
    return "|".join(["", *(f" {value.ljust(width)} " for value, width in zip(values, widths, strict=True)), ""])


def _csv(values: Sequence[Any]) -> str:
    def quoted(value: Any) -> str:
        text = "" if value is None else str(value)
        return json.dumps(text, ensure_ascii=False).replace('\\"', '""') if re.search(r'[",\n]', text) else text

    return ",".join(map(quoted, values))
