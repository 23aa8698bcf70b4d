"""An argument that has no effect, or is none of its choices, is refused: one way to say it, for every public class.

A value that equals the default is taken as not given, because nobody can tell the two apart and neither changes anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from poundlock.errors import DefinitionError


def refuse_without_effect(
    owner: str, given: Mapping[str, tuple[object, object]], *, because: str, next: str | None = None
) -> None:
    """Raise DefinitionError if one of these arguments, none of which has an effect here, is not its default.

    Args:
        owner: the class or function as the user writes it, such as "FileSource".
        given: argument name to (what was given, the default).
        because: why they have no effect, one clause, such as 'format is "json"'.
        next: what to write instead; None = leave it out.

    Raises:
        DefinitionError: an argument differs from its default; the first in alphabetical order is named.
    """
    for name, (value, default) in sorted(given.items()):
        if value != default:
            raise DefinitionError(
                f"{owner}: {name}={value!r} has no effect, because {because}", next=next or f"leave {name} out"
            )


def check_choices(given: object, choices: Mapping[str, Sequence[str]]) -> None:
    """Raise DefinitionError unless each of these attributes has one of its known values."""
    for name, known in choices.items():
        value = getattr(given, name)
        if value not in known:
            raise DefinitionError(f"{name}={value!r} is not known", next=f"use one of {', '.join(known)}")


@dataclass(frozen=True)
class ValueKind:
    """A kind of value that an argument may have, as people call it, with one of them as it is written."""

    what: str
    such: str
    fits: Callable[[object], bool]


TEXT = ValueKind("a text", '"…"', lambda value: isinstance(value, str))
NAMES = ValueKind(
    "a list of texts",
    '["…", "…"]',
    lambda value: (
        isinstance(value, str) or (isinstance(value, Sequence) and all(isinstance(each, str) for each in value))
    ),
)
"""One name may be given as it is."""
MAPPING = ValueKind(
    "a dict of names",
    '{"…": …}',
    lambda value: isinstance(value, Mapping) and all(isinstance(each, str) for each in value),
)
NUMBER = ValueKind(
    "a number",
    "0.5",
    lambda value: isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value),
)
FLAG = ValueKind("true or false", "True", lambda value: isinstance(value, bool))
WHOLE = ValueKind("a whole number", "100", lambda value: isinstance(value, Integral) and not isinstance(value, bool))


def check_kind(owner: str, kind: ValueKind, given: Mapping[str, object], *, optional: bool = False) -> None:
    """Raise DefinitionError unless each of these arguments is of a kind.

    Args:
        owner: the class or function as the user writes it, such as "FileSource".
        kind: that is needed.
        given: argument name to what was given.
        optional: whether None is taken too.
    """
    for name, value in given.items():
        if not (kind.fits(value) or (optional and value is None)):
            raise DefinitionError(
                f"{owner}: {name}={value!r:.200} is not {kind.what}", next=f"write {name}={kind.such}"
            )


def check_object(given: object, what: str, kinds: tuple[type, ...], next: str) -> None:
    """Raise DefinitionError unless it is an object of one of these kinds, and not a class; `what` that is, for people."""
    if isinstance(given, type):
        name = given.__name__
        raise DefinitionError(f"{name} is a class, and a {what} is an object of one", next=f"write {name}(…)")
    if not isinstance(given, kinds):
        raise DefinitionError(f"{given!r:.200} is no {what}", next=next)


def function_name(function: object) -> str:
    """Return what to call a user's function, or object with a method, for people."""
    return str(getattr(function, "__name__", type(function).__name__))


def defaults_of(cls: type[Any], *names: str) -> dict[str, Any]:
    """Return the defaults of these fields of a dataclass, none of which is made by a factory."""
    return {field.name: field.default for field in fields(cls) if field.name in names}
