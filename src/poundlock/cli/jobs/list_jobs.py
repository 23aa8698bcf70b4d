"""`poundlock list`: the jobs of this user, in Flink's words, or those of a folder of checkpoints. No job is asked: it reads
the registry, and what drivers elsewhere write into their checkpoint folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poundlock.cli.options import ConfigOption, DefineOption, JsonOption
from poundlock.cli.output import Output

if TYPE_CHECKING:
    from poundlock.control.registry import JobEntry


_WIDTH = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """The running jobs, and those that ended where they are wanted."""

    running: Sequence[JobEntry]
    ended: Sequence[JobEntry] | None

    def to_json(self) -> Any:
        return [entry.to_json() for entry in (*self.running, *(self.ended or ()))]

    def lines(self) -> Iterable[str]:
        yield from _part("Running/Restarting Jobs", "No running jobs.", self.running)
        yield "No scheduled jobs."
        if self.ended is not None:
            yield from _part("Terminated Jobs", "No terminated jobs.", self.ended)


def _part(title: str, none: str, entries: Sequence[JobEntry]) -> Iterable[str]:
    if not entries:
        yield none
        return
    yield f" {title} ".center(_WIDTH, "-")
    yield from (_line(entry) for entry in entries)
    yield "-" * _WIDTH


def _line(entry: JobEntry) -> str:
    start = datetime.fromtimestamp(entry.started_ms / 1000).strftime("%d.%m.%Y %H:%M:%S")
    gone = ", gone" if entry.gone else ""
    where = f" {entry.on_cluster}" if entry.on_cluster else ""
    return f"{start} : {entry.job_id} : {entry.name} ({entry.state}{gone}){where}"


def command(
    folder: Annotated[
        str | None,
        typer.Argument(metavar="[FOLDER]", help="A checkpoint folder, or one with several in it; default: your jobs."),
    ] = None,
    every: Annotated[bool, typer.Option("-a", "--all", help="Jobs that ended, too.")] = False,
    json: JsonOption = False,
    define: DefineOption = None,
    config: ConfigOption = None,
) -> None:
    """List the running jobs."""
    from poundlock.cli.job_lookup import jobs_in
    from poundlock.config import load_settings
    from poundlock.control.registry import Registry

    settings = load_settings(define or (), config=config)
    entries = Registry(settings.state_dir).entries() if folder is None else jobs_in(folder)
    running = [entry for entry in entries if not entry.ended]
    Output(json).show(_Jobs(running=running, ended=[e for e in entries if e.ended] if every else None))
