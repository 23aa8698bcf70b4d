"""`poundlock logs`: the log of a job's process, wherever it runs, and what is added to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from poundlock.cli.job_lookup import KnownJob, KnownJobArgument, find_job
from poundlock.cli.options import Call, with_shared_options
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError, PoundlockError

if TYPE_CHECKING:
    from poundlock.control.control_logs import CopiedLog, LogFile
    from poundlock.control.registry import JobEntry


_POLL_S = 0.25
_FOLDER_POLL_S = 2.0


@with_shared_options
def command(
    job: KnownJobArgument,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on until the job ends.")] = False,
    last: Annotated[int | None, Option("--last", min=1, help="Begin with the newest so many lines.")] = None,
    *,
    call: Call,
) -> None:
    """Print a job's log.

    With --json the lines are as they are in the file, one JSON object each.
    """
    known, output = find_job(job, call), call.output
    entry = known.entry
    try:
        log = _log_of(entry)
        data = log.new()
        if not data and not entry.here and (entry.ended or not follow):
            raise FileNotFoundError(2, "its driver has put no copy there")
        *lines, begun = data.split(b"\n")
        lines = [line for line in [*lines, *([] if follow else [begun])] if line.strip()]
        for line in lines[-last:] if last else lines:
            _print(line, output)
        if follow:
            for line in _followed(known, log, begun):
                _print(line, output)
    except BrokenPipeError:
        raise
    except (OSError, PoundlockError) as error:
        place = entry.log if entry.here else entry.checkpoint_dir
        raise DefinitionError(
            f"the log of job {entry.name} cannot be read: {place}: {getattr(error, 'strerror', None) or error}",
            next=f"see where its process ran: poundlock info {entry.job_id[:8]}"
            if entry.application is None
            else f"type: yarn logs -applicationId {entry.application}",
        ) from error


def _log_of(entry: JobEntry) -> LogFile | CopiedLog:
    """Return the log of a process of this machine, else the copy that the driver makes in its checkpoint folder."""
    from poundlock.control.control_logs import CopiedLog, LogFile
    from poundlock.storage import open_storage

    return LogFile(Path(entry.log)) if entry.here else CopiedLog(open_storage(entry.checkpoint_dir))


def _followed(known: KnownJob, log: LogFile | CopiedLog, begun: bytes) -> Iterator[bytes]:
    """Yield lines as they are written, until the job has ended; a process that its supervisor starts has a log of its own."""
    path = known.entry.log
    while True:
        now = known.again()
        over = now is None or now.ended
        *lines, begun = (begun + log.new()).split(b"\n")
        yield from (line for line in lines if line.strip())
        if over:
            return
        if now is not None and now.here and now.log != path:
            path, log = now.log, _log_of(now)
        else:
            time.sleep(_POLL_S if now is None or now.here else _FOLDER_POLL_S)


def _print(data: bytes, output: Output) -> None:
    line = data.decode(errors="replace")
    output.line(line if output.as_json else _for_people(line))


def _for_people(line: str) -> str:
    """Return a line of the log as text: time, level, message, and what else it says; any other line as it is."""
    try:
        value = loads(line)
        head = f"{value.pop('time')} {value.pop('level'):<7} {value.pop('message')}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return line
    trace = value.pop("exception", None)
    rest = [_as_text(name, item) for name, item in value.items() if name not in ("job", "logger")]
    return "\n".join([" ".join([head, *rest]), *([str(trace)] if trace else [])])


def _as_text(name: str, item: object) -> str:
    if isinstance(item, dict):
        return " ".join(_as_text(str(key), each) for key, each in item.items())
    return f"{name}={','.join(map(str, item)) if isinstance(item, list) else item}"
