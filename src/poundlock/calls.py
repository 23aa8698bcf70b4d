"""How a user's function is called, checked where it is given: one that takes other arguments would fail in a task, at its first row.

What cannot be known, as of some functions written in C, is taken as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from poundlock.arguments import function_name
from poundlock.errors import DefinitionError

_SOMETIMES_NEEDED = ("AggregateFunction.merge", "Trigger.on_merge", "WindowAssigner.default_trigger")
"""Methods that are looked at where it is known whether they are called."""


def check_function(function: Any, operator: str, *arguments: str) -> None:
    """Raise DefinitionError unless an object can be called with these arguments, by position.

    Args:
        function: a function, a class, or an object that can be called.
        operator: what calls it, as the user writes it, such as "map".
        arguments: what people know each of them by, such as "record".
    """
    call = ", ".join(arguments)
    if not callable(function):
        raise DefinitionError(
            f"{operator} needs a function, got {function!r:.200}", next=f"write {operator} with a function of ({call})"
        )
    _check(function, operator, function_name(function), f"give a function of ({call})", arguments)


def check_methods(given: Any, base: type, operator: str) -> None:
    """Raise DefinitionError unless each method of a user's class can be called as the one that its base declares, and none is missing.

    Args:
        given: an object of the class, or the class itself.
        base: declares the methods; the class need not be derived from it.
        operator: what calls them, as the user writes it, such as "process".
    """
    cls = given if isinstance(given, type) else type(given)
    for name, declared in inspect.getmembers_static(base, inspect.isfunction):
        written = inspect.getattr_static(given, name, declared)
        if name.startswith("_") or (written is declared and not _is_needed(declared)):
            continue
        arguments = [
            each.name
            for each in inspect.signature(declared).parameters.values()
            if not each.kind.name.startswith("VAR")
        ]
        needed = f"def {name}({', '.join(arguments)})"
        if written is declared:
            raise DefinitionError(f"{operator}: {cls.__name__} has no {name}", next=f"write {needed}")
        if cls is not given or isinstance(written, (classmethod, staticmethod)):
            del arguments[0]  # self
        _check(getattr(given, name), operator, f"{cls.__name__}.{name}", f"write {needed}", arguments)


def _is_needed(declared: FunctionType) -> bool:
    """Return whether a base leaves a method to who derives from it: all that it does is raise NotImplementedError."""
    return (
        declared.__code__.co_names == (NotImplementedError.__name__,) and declared.__qualname__ not in _SOMETIMES_NEEDED
    )


def _check(function: Any, operator: str, name: str, next: str, arguments: Sequence[str]) -> None:
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        bare = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
        shown = str(signature.replace(parameters=bare, return_annotation=signature.empty))
        raise DefinitionError(
            f"{operator}: {name}{shown:.200} cannot be called as {name}({', '.join(arguments)})", next=next
        ) from None
