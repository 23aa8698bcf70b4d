"""Where the reading of PostgreSQL stands, one form for each mode: typed here, and a JSON object where people read it in savepoints."""

from __future__ import annotations

from typing import Any, Self

import msgspec

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


class LogPosition(PostgresPosition, frozen=True):
    """A place in the server's log; the first one is behind the rows of before it, too."""

    slot: str
    lsn: str | None  # the place, such as "0/16B3748"; None = there is no slot yet
    oid: int = 0  # the table
    published: Publication | None = None  # as it was there; None = not looked at
    plan: str | None = None  # how the rows of before are cut; None = none are read
    snapshot: str = ""  # the server's name of the state that they are read from
    of: int = 0  # how many ranges they are
