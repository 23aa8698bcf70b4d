"""Where the reading of a table stands: typed here, and a JSON object where people read it in savepoints."""

from __future__ import annotations

from typing import Any

import msgspec

from poundlock.errors import DefinitionError
from poundlock.storage.json_record import typed, untyped


class TablePosition(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Behind some of the data files of a snapshot, and all of those before it.

    Args:
        snapshot: its id; "" = nothing was read.
        next: how many of its files were read, in their order.
        of: how many it has to be read.
        first: the snapshot that was read first.
        scan: whether all of the table was read as it was then, and not what that snapshot added.
        table: id of the table; "" before the first.
        sequence: the snapshot's number in the order of the table's commits; 0 = not known.
    """

    snapshot: str = ""
    next: int = 0
    of: int = 0
    first: str = ""
    scan: bool = False
    table: str = ""
    sequence: int = 0

    @property
    def whole(self) -> bool:
        """Whether all of the snapshot's files were read."""
        return self.next >= self.of

    @classmethod
    def from_json(cls, value: dict[str, Any], what: str) -> TablePosition:
        """Return what a JSON object says. Raises DefinitionError where it is no position of a table."""
        try:
            return typed(value, cls)
        except ValueError as error:
            raise DefinitionError(
                f"{value!r:.200} is no position of {what}: {error}",
                next="go on from a checkpoint of this source, or begin with a new checkpoint_dir",
            ) from None

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return untyped(self)
