"""The entry point: finds the command, runs it, and turns whatever goes wrong into two lines and an exit code.

Starting it imports no Spark, no Arrow and no NumPy; a command imports what it needs when it runs.

Exit codes: 0 done (a clean stop too), 1 failed, 2 the job, the command or the machine's set-up is wrong, 3 something outside
failed for now, 4 a person has to decide, 5 another driver has taken over, 130 or 143 stopped hard by SIGINT or SIGTERM.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer import Option
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from poundlock.cli.completion import completed_command, refuse_unknown_shell
from poundlock.cli.output import Output
from poundlock.errors import DefinitionError, PoundlockError, did_you_mean
from poundlock.storage.storage_errors import unreadable

# Module below `cli`, and behind a colon the function in it; without one its `command`, or its `app` of several.
_COMMANDS: Mapping[str, str] = {
    "run": "jobs.run", "sql": "jobs.sql", "list": "jobs.info:list_jobs", "info": "jobs.info", "logs": "jobs.logs", "stop": "jobs.ask:stop",
    "cancel": "jobs.ask:cancel", "rest": "jobs.rest", "dashboard": "jobs.dashboard", "checkpoint": "jobs.ask:checkpoint",
    "checkpoints": "data.ledger:checkpoints", "savepoint": "jobs.savepoint", "explain": "setup.explain", "new": "setup.new",
    "demo": "setup.trials:demo", "kafka": "setup.trials", "deploy": "setup.deploy", "doctor": "setup.doctor",
    "connectors": "setup.doctor:connectors", "fsck": "data.sinks:fsck", "state": "data.state", "ledger": "data.ledger",
    "audit": "data.sinks:audit", "replay": "data.replay", "torture": "torture.command", "files": "data.sinks:files",
    "warm": "setup.doctor:warm", "version": "setup.doctor:version", "metrics": "setup.metrics", "help": "setup.help",
}  # fmt: skip


def commands() -> list[str]:
    """Return the names of all commands."""
    return list(_COMMANDS)


def app(names: Iterable[str] = _COMMANDS) -> typer.Typer:
    """Return the command line with some of the commands; a start imports those alone."""
    made = typer.Typer(
        name="poundlock",
        help="Streaming pipelines on PySpark that are exactly-once end to end.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in names:
        path, _, function = _COMMANDS[name].partition(":")
        module = import_module(f"poundlock.cli.{path}")
        if not function and hasattr(module, "app"):
            made.add_typer(module.app, name=name)
        else:
            made.command(name)(getattr(module, function or "command"))
    made.callback(invoke_without_command=True)(_options)
    return made


def _options(
    context: typer.Context,
    show_version: bool = Option(False, "--version", help="Show the version and exit.", is_eager=True),
) -> None:
    if show_version:
        from poundlock.cli.setup.doctor import version

        version()
        raise typer.Exit()
    if context.invoked_subcommand is None:
        Output().line(context.get_help())


def main(arguments: Sequence[str] | None = None, failed: Callable[[PoundlockError], None] = lambda error: None) -> int:
    """Run the command line, by default that of the process, and return the exit code; `failed` is called with what was printed as an error."""
    output = Output()
    try:
        typed = sys.argv[1:] if arguments is None else list(arguments)
        completed = completed_command()
        first = typed[:1] if completed is None else completed
        names = first if first and first[0] in _COMMANDS else _COMMANDS
        refuse_unknown_shell(typed)
        command = get_command(app(names))
        return int(command(args=typed, prog_name="poundlock", standalone_mode=False) or 0)
    except PoundlockError as error:
        output.error(error)
        failed(error)
        return error.exit_code
    except TyperException as error:
        output.error(_usage(error, command, typed))
        return DefinitionError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # The reader of our output went away, as `head` does; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        failure = (unreadable(error) if isinstance(error, OSError) else None) or unexpected(error)
        output.error(failure)
        failed(failure)
        return failure.exit_code


def _usage(error: TyperException, command: Any, typed: Sequence[str]) -> DefinitionError:
    """Say a mistake on the command line with what may have been meant; `command` is the whole of it, of a class that Typer keeps private."""
    where, words = "poundlock", [*typed, ""]
    while isinstance(command, TyperGroup) and words[0] in command.commands:
        command, where, words = command.commands[words[0]], f"{where} {words[0]}", words[1:]
    if (context := getattr(error, "ctx", None)) is not None:  # one whose value is missing has none
        command, where = context.command, context.command_path
    if type(error).__name__ == "NoArgsIsHelpError" or not error.format_message():
        return DefinitionError("a command is missing", next=f"type: {where} --help")
    values = {name: parameter.metavar or "VALUE" for parameter in command.params for name in parameter.opts}
    what = re.sub(r"\s*\(Possible options: .*\)|\.? ?Did you mean .*|\.$", "", error.format_message().strip())
    named = re.search(r"'([^']+)'|: (-\S+)", what)
    word, next = (named[1] or named[2]) if named else "", f"type: {where} --help"
    if what.startswith("No such"):
        next = did_you_mean(word, [*getattr(command, "commands", {}), *values], next, n=2)
    elif what.endswith("requires an argument"):
        next = f"write {word} {values.get(word, 'VALUE')}; see {where} --help"
    elif what.startswith("Got unexpected extra") and "--from-savepoint" in values and (one := _one_savepoint(typed)):
        return one
    return DefinitionError(f"{what} ({where})", next=next)


def _one_savepoint(typed: Sequence[str]) -> DefinitionError | None:
    """Return the error of a pattern that the shell has made several savepoints of, None if it is something else."""
    from poundlock.savepoint.metadata import METADATA

    saved = [word for word in typed if os.path.isfile(os.path.join(word, METADATA))]
    saved.sort(key=os.path.getmtime, reverse=True)
    if len(saved) < 2:
        return None
    rest = [word for word in typed if word not in (*saved, "-s", "--from-savepoint")]
    return DefinitionError(
        f"one savepoint is taken, and {len(saved)} are given, the newest first: {', '.join(saved)}",
        next=f"type: {shlex.join(['poundlock', *rest, '-s', saved[0]])}",
    )


def unexpected(error: Exception) -> PoundlockError:
    """Keep the stack trace of an error nobody foresaw in a file, and say where."""
    from poundlock.redaction import redact_text

    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    text = redact_text("".join(traceback.format_exception(error)))
    try:
        message = redact_text(str(error))
    except Exception:  # one of Py4J's asks a JVM for its text, which may be gone
        message = ""
    what = f"{type(error).__name__}: {message}" if message else type(error).__name__
    for folder in _log_folders():
        path = folder / f"poundlock-{stamp}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError:
            continue
        return PoundlockError(
            f"unexpected {what}", next=f"the stack trace is in {path}; please report it", kind="unexpected"
        )
    return PoundlockError(
        f"unexpected {what}", next="no folder for a log could be written; type: poundlock doctor", kind="unexpected"
    )


def _log_folders() -> Sequence[Path]:
    folders = [Path(tempfile.gettempdir())]
    try:
        from poundlock.config import load_settings

        return [load_settings().logs, *folders]
    except Exception:
        # The settings may be the very thing that is broken.
        return folders


if __name__ == "__main__":
    sys.exit(main())
