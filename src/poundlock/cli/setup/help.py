"""`poundlock help`: what an error's code means, or what a command takes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Annotated

from typer import Argument

from poundlock.cli.completion import codes_and_commands
from poundlock.cli.options import JsonOption
from poundlock.cli.output import Output
from poundlock.error_codes import registry
from poundlock.error_codes.subject import CATEGORIES, ErrorCode, ErrorSubject
from poundlock.errors import DefinitionError, did_you_mean

_WIDTH = 100


def command(
    what: Annotated[
        str | None,
        Argument(
            metavar="CODE|COMMAND",
            help="The code of an error, such as PL-0042, or a command.",
            autocompletion=codes_and_commands,
        ),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Explain an error by its code, or a command."""
    from poundlock.cli.main import commands, main

    if what is None or what in commands():
        return main(["--help"] if what is None else [what, "--help"])
    if (known := registry.look_up(what)) is None:
        raise DefinitionError(f"there is no error and no command {what!r}", next=_near(what, commands()))
    Output(json).show(_shown(*known), lambda: as_json(*known))
    return 0


def _near(what: str, commands: list[str]) -> str:
    codes = [code for code, _, _ in registry.codes()]
    return did_you_mean(what.upper(), codes, did_you_mean(what, commands, "see them all in docs/errors.md"), cutoff=0.8)


def _shown(text: str, subject: ErrorSubject, code: ErrorCode) -> Iterator[str]:
    name, restarts = CATEGORIES[code.category]
    yield f"{text}  {subject.title}: {name}"
    yield ""
    yield from textwrap.wrap(code.meaning, _WIDTH)
    yield from textwrap.wrap(restarts, _WIDTH)
    for heading, items in (("Usual causes", code.causes), ("What to do", code.do)):
        yield ""
        yield f"{heading}:"
        for item in items:
            yield from textwrap.wrap(item, _WIDTH, initial_indent="- ", subsequent_indent="  ")


def as_json(text: str, subject: ErrorSubject, code: ErrorCode) -> dict[str, object]:
    """Return what a code means as plain data."""
    name, restarts = CATEGORIES[code.category]
    return {
        "code": text,
        "subject": subject.title,
        "category": name,
        "meaning": code.meaning,
        "restarts": restarts,
        "causes": list(code.causes),
        "do": list(code.do),
    }
