"""The way to a JVM, which only the driver has: what a connection can do, and who makes one.

Nothing here knows how a JVM is reached; the runtime says so before a job with such a sink starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from poundlock.errors import TerminalError


class JdbcError(Exception):
    """What a database answered instead of a result: the five letters of the SQL standard, "" if there are none, and its words."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state, self.text = state, text

    @property
    def away(self) -> bool:
        """Whether nobody answered, so that nothing is known."""
        return self.state.startswith("08") or self.state in ("57P01", "57P02", "57P03", "XJ040", "XJ015")


class Connection(Protocol):
    """A connection with a transaction that is ended by `commit` or `rollback`. Everything may raise JdbcError."""

    product: str
    quote: str
    transactions: bool

    def run(self, statement: str, parameters: Sequence[str] = ()) -> int:
        """Run a statement, with a text for each of its question marks, and return how many rows it changed."""

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        """Return the rows of a query, each value as text or None."""

    def columns(self, query: str) -> Sequence[tuple[str, str]]:
        """Return names and types of a query's columns."""

    def commit(self) -> None:
        """Commit what was done since the last end of a transaction."""

    def rollback(self) -> None:
        """Undo it. Raises nothing."""

    def close(self) -> None:
        """Close it. Raises nothing."""


Connect = Callable[[str, dict[str, str], str | None, Sequence[str]], Connection]
"""Makes a connection of a URL, properties, the class of a driver, and jars."""

_connector: list[Connect] = []


def install(made: Connect) -> None:
    """Say how connections are made in this process."""
    _connector[:] = [made]


def connector() -> Connect:
    """Return what makes connections. Raises TerminalError in a process that has no way to a JVM."""
    if not _connector:
        raise TerminalError(
            "a JdbcSink works in the driver of a running job only, for that is where the JVM is",
            next="start the job again; it finishes what it decided",
        )
    return _connector[0]
