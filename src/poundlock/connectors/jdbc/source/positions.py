"""Where the reading of a database stands, one form for each mode: typed here, and a JSON object where people read it in savepoints."""

from __future__ import annotations

from typing import Any, Self

import msgspec

from poundlock.errors import DefinitionError
from poundlock.storage.json_record import typed, untyped


class JdbcPosition(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of them."""

    read: str = ""  # what is read, and by which column

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
                next="write table=…, query=… and the column as they were, or start the job over with a new checkpoint_dir",
            )
        return at

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return untyped(self)


class RangePosition(JdbcPosition, frozen=True):
    """Behind the first ranges of a table."""

    plan: str | None  # how the table is cut; None = not looked at yet
    next: int  # number of the first range that is not read
    of: int = 0  # how many there are

    @property
    def is_whole(self) -> bool:
        """Whether every range is read."""
        return self.plan is not None and self.next >= self.of


class GrowingPosition(JdbcPosition, frozen=True):
    """Behind a value of the column that grows."""

    above: str | None  # as text; None = before all rows
    cuts: tuple[str, ...] = ()  # values since the position before, where the work is cut
