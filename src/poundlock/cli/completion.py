"""What the shell completes: jobs, savepoints and codes of errors, by what is written on this machine.

Nobody is asked and no file of a job is run, so that a key costs no more than a start of Python; what goes wrong completes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from poundlock.config import Settings
    from poundlock.control.registry import JobEntry

_ASKED = "_POUNDLOCK_COMPLETE"
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
_FOR_A_SHELL = ("--install-completion", "--show-completion")
_SAVEPOINT = "_metadata.json"  # what `savepoint.metadata` calls METADATA, which loads Arrow
_MOST = 50

Offered = tuple[str, str]
"""A value and what it is."""


# --- before the command line is made -------------------------------------------------------------------------------------


def completed_command() -> list[str] | None:
    """Return the command behind which a shell completes, [] where it completes the command itself; None where no shell asks."""
    if not os.environ.get(_ASKED, "").startswith("complete_"):
        return None
    typed = os.environ.get("_TYPER_COMPLETE_ARGS")
    text = os.environ.get("COMP_WORDS", "") if typed is None else typed
    words = text.split()
    if typed is None:
        with suppress(ValueError):
            return words[1:2] if int(os.environ.get("COMP_CWORD", "0")) > 1 else []
    return words[1:2] if len(words) > 2 or text.endswith(" ") else []


def refuse_unknown_shell(typed: list[str]) -> None:
    """Raise DefinitionError where the shell that completion is wanted for cannot be seen, or has none."""
    if typed[:1] not in ([name] for name in _FOR_A_SHELL):
        return
    if len(typed) > 1 or os.environ.get("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"):
        return
    import shellingham

    try:
        shell, _ = shellingham.detect_shell()
    except shellingham.ShellDetectionFailure:
        shell = ""
    if shell not in _SHELLS:
        raise DefinitionError(
            f"there is no completion for the shell {shell}" if shell else "it cannot be seen which shell this is",
            next=f"type: env {_ASKED}=source_bash poundlock, or source_zsh, source_fish; and have your shell read what it prints",
        )


# --- values --------------------------------------------------------------------------------------------------------------


def job_names(context: typer.Context, incomplete: str) -> list[Offered]:
    """Return the names of jobs that this user has run, and their ids where one is begun."""
    return list(_jobs(context, incomplete, ended=True))


def running_job_names(context: typer.Context, incomplete: str) -> list[Offered]:
    """Return the names of jobs that run, and their ids where one is begun."""
    return list(_jobs(context, incomplete, ended=False))


def checkpoint_names(context: typer.Context, incomplete: str) -> list[Offered]:
    """Return the names of jobs that have a checkpoint in the state directory, and of those that this user has run elsewhere."""
    names = dict(_jobs(context, incomplete, ended=True))
    settings = _settings(context)
    if settings is not None:
        with suppress(OSError):
            kept = sorted(os.listdir(settings.state_dir / "checkpoints"))
            names |= {name: "checkpoint" for name in kept if name.startswith(incomplete) and name not in names}
    return list(names.items())


def savepoints(context: typer.Context, incomplete: str) -> list[Offered]:
    """Return the savepoints in the state directory, the newest first, and those in the folder that is typed."""
    places: list[Path] = []
    settings = _settings(context)
    if settings is not None:
        places += _savepoints_in(settings.state_dir / "savepoints")
    shown = {str(path): "savepoint" for path in places if str(path).startswith(incomplete)}
    folder, name = os.path.split(incomplete)
    if folder:
        at = Path(folder).expanduser()
        typed = [each.name for each in _savepoints_in(at) if each.name.startswith(name)]
        shown |= {os.path.join(folder, each): "savepoint" for each in typed}
    return list(shown.items())[:_MOST]


def codes_and_commands(incomplete: str) -> list[Offered]:
    """Return the codes of errors, each with what it is of, and the commands."""
    from poundlock.cli.main import commands
    from poundlock.error_codes.registry import codes

    known = [(code, subject.title) for code, subject, _ in codes() if code.startswith(incomplete)]
    return [*((name, "command") for name in commands() if name.startswith(incomplete)), *known]


def _jobs(context: typer.Context, incomplete: str, *, ended: bool) -> Iterator[Offered]:
    entries = [entry for entry in _entries(context) if ended or not entry.ended]
    yield from _first((entry.name, entry) for entry in entries if entry.name.startswith(incomplete))
    if incomplete:
        yield from _first((entry.job_id, entry) for entry in entries if entry.job_id.startswith(incomplete.lower()))


def _first(entries: Iterable[tuple[str, JobEntry]]) -> Iterator[Offered]:
    """Yield each value once, with what the newest entry of it says."""
    shown: set[str] = set()
    for value, entry in entries:
        if value not in shown:
            shown.add(value)
            yield value, f"{entry.state} {entry.job_id[:8]} {entry.name}"


def _entries(context: typer.Context) -> list[JobEntry]:
    from poundlock.control.registry import Registry

    settings = _settings(context)
    return [] if settings is None else Registry(settings.state_dir).written()


def _settings(context: typer.Context) -> Settings | None:
    """Return the settings as far as the line says them by now; None where they are wrong, of which the command itself will speak."""
    from poundlock.config import load_settings

    given = context.params
    try:
        return load_settings(given.get("define") or (), config=given.get("config"))
    except (DefinitionError, OSError):
        return None


def _savepoints_in(folder: Path) -> list[Path]:
    """Return the savepoints right below a folder, the newest first; none where it cannot be read."""
    with suppress(OSError):
        written = {each.parent: each.stat().st_mtime for each in folder.glob(f"*/{_SAVEPOINT}")}
        return sorted(written, key=lambda path: written[path], reverse=True)
    return []
