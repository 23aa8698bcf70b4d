"""The way to a JVM: what a connection can do, and who makes one.

Nothing here knows how a JVM is reached; the runtime says so before a job with such a source or sink starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from poundlock.errors import TerminalError

if TYPE_CHECKING:
    import pyarrow as pa


class JdbcError(Exception):
    """What a database answered instead of a result: the five letters of the SQL standard, "" if there are none, and its words."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state, self.text = state, text

    @property
    def away(self) -> bool:
        """Whether nobody answered, so that nothing is known."""
        return self.state.startswith("08") or self.state in ("57P01", "57P02", "57P03", "XJ040", "XJ015")


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result, as the driver describes it.

    Args:
        code: of its type, as java.sql.Types numbers them.
        type: what the database calls its type.
        precision, scale: digits in all, and behind the point.
        signed: whether it has negative numbers.
    """

    name: str
    code: int
    type: str
    precision: int = 0
    scale: int = 0
    signed: bool = True


class Result(Protocol):
    """What a query gives, as columns. Everything may raise JdbcError."""

    @property
    def columns(self) -> Sequence[ResultColumn]:
        """Its columns."""

    def batches(self, codes: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, so many at a time as were asked for.

        Args:
            codes: as what each column is read, as java.sql.Types numbers types.
        """

    def close(self) -> None:
        """End the query. Raises nothing."""


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

    def read(self, query: str, rows: int) -> Result:
        """Run a query, of which so many rows are fetched and given at a time. Only for a connection that was made for columns."""

    def commit(self) -> None:
        """Commit what was done since the last end of a transaction."""

    def rollback(self) -> None:
        """Undo it. Raises nothing."""

    def close(self) -> None:
        """Close it. Raises nothing."""


class Connect(Protocol):
    """What makes connections."""

    def __call__(
        self, url: str, properties: dict[str, str], driver: str | None, jars: Sequence[str], *, columns: bool = False
    ) -> Connection:
        """Return a connection.

        Args:
            driver: class of the driver; None = chosen by the URL.
            jars: paths of the driver's jars.
            columns: whether `Connection.read` is wanted, which needs further jars.

        Raises:
            JdbcError: the database does not let anybody in.
            DefinitionError: there is no driver for the URL.
        """


_connector: list[Connect] = []


def install(made: Connect) -> None:
    """Say how connections are made in this process."""
    _connector[:] = [made]


def connector() -> Connect:
    """Return what makes connections. Raises TerminalError in a process that has no way to a JVM."""
    if not _connector:
        raise TerminalError(
            "JDBC works in a running job only, for that is where the JVM is",
            next="start the job again; it finishes what it decided",
        )
    return _connector[0]
