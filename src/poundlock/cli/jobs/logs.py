"""`poundlock logs`: the log of a job's process, and what is added to it while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poundlock.cli.job_lookup import RunningJobArgument, find_job
from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.control.registry import JobEntry, Registry


_POLL_S = 0.25


def command(
    job: RunningJobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Begin with the newest so many lines.")] = None,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> None:
    """Print a job's log.

    With --json the lines are as they are in the file, one JSON object each.
    """
    registry, entry = find_job(job, define, config)
    if entry.application is not None:
        raise DefinitionError(
            f"the log of job {entry.name} is where its driver runs, in a container of {entry.application}",
            next=f"type: yarn logs -applicationId {entry.application}",
        )
    output = Output(json)
    path = Path(entry.log)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = [line for line in file if line.strip()]
            for line in lines[-last:] if last else lines:
                _print(line, output)
            if follow:
                for line in _followed(file, registry, entry):
                    _print(line, output)
    except OSError as error:
        raise DefinitionError(
            f"the log of job {entry.name} cannot be read: {path}: {error.strerror or error}",
            next=f"see where its process ran: poundlock info {entry.job_id[:8]}",
        ) from error


def _followed(file: Any, registry: Registry, entry: JobEntry) -> Iterator[str]:
    """Yield lines as they are written, until the job has ended; a process that its supervisor starts has a log of its own."""
    yield from _coming(file, registry, entry)
    while (now := registry.reread(entry)) is not None and now.log != entry.log:
        entry = now
        with Path(entry.log).open(encoding="utf-8", errors="replace") as next:
            yield from _coming(next, registry, entry)


def _coming(file: Any, registry: Registry, entry: JobEntry) -> Iterator[str]:
    """Yield lines as they are written, until the job has ended or writes another log, and all of them are read."""
    begun = ""
    while True:
        now = registry.reread(entry)
        over = now is None or now.ended or now.log != entry.log
        while part := file.readline():
            begun += part
            if begun.endswith("\n"):
                if begun.strip():
                    yield begun
                begun = ""
        if over:
            return
        time.sleep(_POLL_S)


def _print(line: str, output: Output) -> None:
    output.line(line.rstrip("\n") if output.as_json else _for_people(line))


def _for_people(line: str) -> str:
    """Return a line of the log as text: time, level, message, and what else it says; any other line as it is."""
    try:
        value = loads(line)
        head = f"{value.pop('time')} {value.pop('level'):<7} {value.pop('message')}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return line.rstrip("\n")
    trace = value.pop("exception", None)
    rest = [f"{name}={item}" for name, item in value.items() if name not in ("job", "logger")]
    return "\n".join([" ".join([head, *rest]), *([str(trace)] if trace else [])])
