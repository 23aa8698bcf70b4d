"""What both kinds of deployment are made from: the job's file, its name, what is typed after `run`, and its environment.

No secret gets into a rendered file: whatever is named like one is refused, with the place where it belongs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from poundlock.config import ENVIRONMENT_PREFIX, Settings
from poundlock.errors import DefinitionError
from poundlock.job import Job
from poundlock.redaction import is_secret
from poundlock.values import duration

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """A job to deploy; the variable stands behind the colon in JOB.PY:NAME, and is "" where the file defines one job. `grace_s` are the
    seconds that a clean stop may take."""

    job: Job
    file: Path
    variable: str
    settings: Settings
    arguments: Sequence[str]
    environment: Mapping[str, str]
    grace_s: int

    def target(self, file: str) -> str:
        """Return JOB.PY or JOB.PY:NAME with the file at another place."""
        return f"{file}:{self.variable}" if self.variable else file


def environment(given: Sequence[str], *, instead: str) -> dict[str, str]:
    """Return the variables that were typed as KEY=VALUE.

    Raises:
        DefinitionError: one of them is no such pair, or a secret.
    """
    variables = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise DefinitionError(f"--env {each} is not KEY=VALUE", next="write --env KEY=VALUE, such as --env TZ=UTC")
        if is_secret(name):
            raise DefinitionError(f"--env {name} looks like a secret, and the file would show it", next=instead)
        if "\n" in value:
            raise DefinitionError(f"--env {name} has more than one line", next="give a value of one line")
        variables[name] = value
    return variables


def refuse_secrets(settings: Settings, define: Sequence[str], *, instead: str) -> None:
    """Raise DefinitionError if what is typed, or what the settings say to Spark, holds a secret."""
    typed = [each.partition("=")[0] for each in define]
    named = [name for name in (*typed, *settings.spark) if is_secret(name)]
    if named:
        raise DefinitionError(f"{named[0]} is a secret, and the file would show it", next=instead)


def own_settings() -> dict[str, str]:
    """Return the settings that this process's environment has, as variables."""
    fields = {f"{ENVIRONMENT_PREFIX}{name.upper()}" for name in Settings.model_fields if name != "spark"}
    return {name: value for name, value in sorted(os.environ.items()) if name in fields and value}


def options(define: Sequence[str] | None, master: str | None, parallelism: int | None) -> list[str]:
    """Return options of `run` as they are typed."""
    words = [word for each in define or () for word in ("-D", each)]
    words += [] if master is None else ["--master", master]
    return [*words, *([] if parallelism is None else ["-p", str(parallelism)])]


def grace_seconds(text: str) -> int:
    """Return how long a clean stop may take, in whole seconds. Raises DefinitionError if that is no duration, or below 1 s."""
    seconds = round(duration(text).total_seconds())
    if seconds < 1:
        raise DefinitionError(f"--stop-timeout {text} is below 1 s", next='write --stop-timeout "5 min"')
    return seconds
