"""Every error poundlock raises on purpose, as one tree.

An error says what happened, where, and what to type next; `str(error)` is at most two lines, the second starting with "Next:". Each has a
code, which commands print with it: see `poundlock.error_codes`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

from poundlock.error_codes.registry import code_of

CODE_NOTE = "Code: "
"""What the note begins with that has an error's code."""


class PoundlockError(Exception):
    """Base of all errors raised on purpose.

    Args:
        what: what happened and where, one line.
        next: what the user should do or type now, one line; empty when there is nothing to do.
        job: name of the job, where known.
        checkpoint: number of the checkpoint, where known.
        participant: name of the sink or source, where known.
        kind: a word of the registry, for errors that have a code of their own; else the code is that of the class or of the module.
        code: of an error that comes from elsewhere and has one already, such as one of another process; it wins over `kind`.

    `code` is there to read, too, and stands in tracebacks as a note.
    """

    kind: str = ""

    exit_code: ClassVar[int] = 1
    category: ClassVar[int] = 1
    """Last digit of the code: see `poundlock.error_codes.subject.CATEGORIES`."""

    def __init__(
        self,
        what: str,
        *,
        next: str = "",
        job: str | None = None,
        checkpoint: int | None = None,
        participant: str | None = None,
        kind: str = "",
        code: str = "",
    ) -> None:
        self.what = " ".join(what.split())
        self.next = " ".join(next.split())
        self.job = job
        self.checkpoint = checkpoint
        self.participant = participant
        self.kind = kind or self.kind
        classes = (each.__name__ for each in type(self).__mro__)
        self.code = code or code_of(
            kind=self.kind, classes=classes, module=_module_that_raises(), category=self.category
        )
        super().__init__(f"{self.what}\nNext: {self.next}" if self.next else self.what)
        # Workers send errors to the driver as printed tracebacks, which have the notes.
        self.add_note(f"{CODE_NOTE}{self.code}, see: poundlock help {self.code}")

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross from task to driver pickled, which knows nothing of keyword-only arguments.
        place = partial(
            type(self), job=self.job, checkpoint=self.checkpoint, participant=self.participant, code=self.code
        )
        return partial(place, self.what, next=self.next), (), {"kind": self.kind}


_MAKERS = ("poundlock.errors", "poundlock.sql.errors", "poundlock.storage.json_record")  # which make errors for others


def _module_that_raises() -> str:
    """Return the module that makes an error: the nearest caller that makes it for itself, as `logging` knows who logs."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _MAKERS:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def next_of(error: BaseException, otherwise: str = "") -> str:
    """Return what an error, of whatever kind, says to type next; `otherwise` if it says nothing."""
    return str(getattr(error, "next", "") or otherwise)


def did_you_mean(
    wrong: str,
    known: Iterable[str],
    otherwise: str = "",
    *,
    n: int = 1,
    cutoff: float = 0.6,
    show: Callable[[str], str] = str,
) -> str:
    """Return a question for the known words that are nearest to a wrong one; `otherwise` if none is near."""
    words = list(known)
    near = get_close_matches(wrong, words, n, cutoff) or [word for word in words if word.lower() == wrong.lower()]
    return f"did you mean {' or '.join(map(show, near))}?" if near else otherwise


def pip_install(*requirements: str) -> str:
    """Return how to install packages into this Python, quoted as a shell needs it."""
    return f"type: {shlex.join([sys.executable or 'python', '-m', 'pip', 'install', *requirements])}"


class DefinitionError(PoundlockError, ValueError):
    """The job as written, or the machine as set up, cannot run. Raised before anything is touched."""

    exit_code = 2
    category = 2


def missing_package(what: str, package: str, extra: str) -> DefinitionError:
    """Return the error of what needs a package that an extra of poundlock's brings."""
    return DefinitionError(
        f"{what} needs the package {package}", next=pip_install(f"poundlock[{extra}]"), kind="missing_package"
    )


def required(module: str, what: str, extra: str, project: str = "") -> Any:
    """Return a module of a package that an extra of poundlock's brings. Raises DefinitionError where it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_package(what, project or module.partition(".")[0].replace("_", "-"), extra) from error


class TransientError(PoundlockError):
    """Something outside failed in a way a restart may mend: a broker away, a full disk, a lost task."""

    exit_code = 3
    category = 3


class TerminalError(PoundlockError):
    """A restart will not help; a person has to decide."""

    exit_code = 4
    category = 4


class SourceGoneError(TerminalError):
    """Data the job still needs is no longer in the source: a re-created topic, expired offsets, a changed file."""

    category = 6


class FencedError(TerminalError):
    """Another driver has taken over this checkpoint; this one must stop and touch nothing more."""

    exit_code = 5
    category = 5


@contextmanager
def refusing(what: str, *, next: str) -> Iterator[None]:
    """Have what the system refuses within be a DefinitionError: `what`, and why."""
    try:
        yield
    except OSError as error:
        raise DefinitionError(f"{what}: {error.strerror or error}", next=next) from error


class CommitUnknown(TransientError):
    """A commit was asked for and its outcome is not known. Never aborts: it is asked for again."""

    category = 7
