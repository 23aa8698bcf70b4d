"""Where the reading of PostgreSQL stands, one form for each mode: typed here, and a JSON object where people read it in savepoints."""

from __future__ import annotations

from typing import Any, Self

import msgspec

from poundlock.connectors.changes.chunked_snapshot import Frontier
from poundlock.errors import DefinitionError
from poundlock.storage.json_record import typed, untyped


class PostgresPosition(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of them."""

    read: str = ""  # the table, and the column that grows, as the source named them; "" = not known

    @classmethod
    def from_json(cls, value: dict[str, Any], what: str) -> Self:
        """Return what a JSON object says.

        Raises:
            DefinitionError: it is of another mode, or not of `what` is read now.
        """
        try:
            at = typed(value, cls)
        except ValueError as error:
            raise DefinitionError(
                f"{value!r:.200} is no position of {what} in the mode that the source is in now: {error}",
                next="give it the mode that it had, or start the job over with a new checkpoint_dir",
            ) from None
        if at.read not in ("", what):
            raise DefinitionError(
                f"the job has read {at.read} so far, and the source now says {what}",
                next="write table=… and column=… as they were, or start the job over with a new checkpoint_dir",
            )
        return at

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return untyped(self)


class SnapshotPosition(PostgresPosition, frozen=True):
    """Behind the first ranges of a table."""

    plan: str | None  # how the table is cut; None = not looked at yet
    next: int  # number of the first range that is not read
    of: int = 0  # how many there are
    snapshot: str = ""  # the server's name of the state that the newest of them were read from

    @property
    def is_whole(self) -> bool:
        """Whether every range is read."""
        return self.plan is not None and self.next >= self.of


class ColumnPosition(PostgresPosition, frozen=True):
    """Behind a value of the column that grows."""

    value: str | None  # as text; None = before all rows
    cuts: tuple[str, ...]  # values since the position before, where the work is cut
    done: bool  # whether `until` is reached
    until: str | None = None  # what it was then; None = not known


class Publication(msgspec.Struct, frozen=True):
    """What tells whether a publication had a table ever since: its own number and version, and what names the table."""

    version: str
    by: tuple[str, ...]


class HeldState(msgspec.Struct, frozen=True):
    """A state of all tables that is exactly that of a place in the log.

    Args:
        name: the server's name of it, for as long as a connection holds it.
        seen: which transactions it has, as the server writes it; what tells it from another one of the same name.
    """

    name: str
    seen: str


class KnownTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table at a place in the log.

    Args:
        oid: its number; a table that is made again has another one.
        known: how much of it is known.
        files: what names the files that its rows are in, while not all of it is known.
        published: what publishes it; None = not looked at.
    """

    oid: int
    known: Frontier = Frontier()
    files: str = ""
    published: Publication | None = None


class LogPosition(PostgresPosition, frozen=True):
    """A place in the server's log, and what is known of the tables there."""

    slot_name: str
    lsn: str | None  # the place, such as "0/16B3748"; None = there is no slot yet
    tables: dict[str, KnownTable] = {}
    state: HeldState | None = None  # that of the place, which chunks are read from; None = none are

    @classmethod
    def from_json(cls, value: dict[str, Any], what: str) -> LogPosition:
        """Return what a JSON object says, also one of a version that read one table alone; raises as that of the base."""
        if "slot" not in value:
            return super().from_json(value, what)
        old = OneTablePosition.from_json(value, what)
        tables = {} if old.lsn is None else {"": KnownTable(old.oid, Frontier(whole=True), "", old.published)}
        return cls(old.slot, old.lsn, tables)

    @property
    def described(self) -> str:
        """It in words."""
        parts = [
            f"{name} {'not yet' if known.below is None else f'below {known.below}'}"
            for name, known in ((name, table.known) for name, table in self.tables.items())
            if not known.whole
        ]
        return "; ".join([f"changes up to {self.lsn} of slot {self.slot_name}", *parts])


class OneTablePosition(PostgresPosition, frozen=True):
    """What versions wrote that read one table, whole and from one state."""

    slot: str
    lsn: str | None
    oid: int = 0
    published: Publication | None = None
    plan: str | None = None  # how the rows of before were cut; None = none were read
    snapshot: str = ""
    of: int = 0
