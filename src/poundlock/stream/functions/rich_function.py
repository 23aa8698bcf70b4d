"""Functions of single records that are objects with an open and a close: Flink's RichFunction.

An object is made where the job is written, travels to the tasks pickled, and is opened there before its first record.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from poundlock.errors import DefinitionError


@runtime_checkable
class RichFunction(Protocol):
    """A callable object for `map`, `flat_map`, `filter` or `map_batches` that has something to open and to close.

    Derive from it and give it a `__call__`, and `open` or `close` or both. An object that has both without being derived is one too.
    Every attempt of a task opens the object before its first record and closes it behind its last one, also where the
    task fails; a task without records opens none. A worker may keep the object, and then opens it again for its next task.
    """

    def open(self) -> None:
        """Make what the function needs, such as a connection. Called in the task, not where the job is written."""

    def close(self) -> None:
        """Give back what `open` made. An error here fails the task, unless it has failed already."""


def check_rich_function(function: Any, kind: str) -> None:
    """Raise DefinitionError for an object that has one of `open` and `close`, and would be opened or closed by nobody."""
    if isinstance(function, RichFunction):
        return
    for name, other in (("open", "close"), ("close", "open")):
        if callable(getattr(function, name, None)):
            raise DefinitionError(
                f"the function of {kind}, a {type(function).__name__}, has {name}() and no {other}(), so nobody calls it",
                next="derive its class from poundlock.RichFunction",
            )
