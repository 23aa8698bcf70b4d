"""Where the reading of a server's log stands, and how much of each table is known there: typed here, and JSON where people read it."""

from __future__ import annotations

from typing import Any

import msgspec

from poundlock.connectors.changes.chunked_snapshot import Frontier
from poundlock.errors import DefinitionError
from poundlock.storage.json_record import typed, untyped


class LogPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in the log of one server, between two transactions.

    Args:
        file, pos: the file, and how many bytes of it are before the place.
        gtid: the newest transaction of each domain before it, as the server says; what tells that the log is still the same.
    """

    file: str
    pos: int
    gtid: str = ""

    @property
    def order(self) -> tuple[int, str, int]:
        """What places of one server are compared by: files are numbered, and the number grows a digit some day."""
        return (len(self.file), self.file, self.pos)

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


class MySqlPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in the log, and what is known of the tables there.

    Args:
        read: the tables, as the source names them.
        server: the server's own number; 0 = not looked at yet.
        log: the place; None = not looked at yet.
        tables: how much of each table is known; empty = all is, from the beginning.
    """

    read: tuple[str, ...]
    server: int = 0
    log: LogPlace | None = None
    tables: dict[str, Frontier] = {}

    @classmethod
    def from_json(cls, value: dict[str, Any], tables: tuple[str, ...]) -> MySqlPosition:
        """Return what a JSON object says.

        Raises:
            DefinitionError: it is no position, or of other tables.
        """
        try:
            at = typed(value, cls)
        except ValueError as error:
            raise DefinitionError(
                f"{value!r:.200} is no position of {', '.join(tables)}: {error}",
                next="start the job over with a new checkpoint_dir",
            ) from None
        if at.read != tables:
            raise DefinitionError(
                f"the job has read {', '.join(at.read)} so far, and the source now says {', '.join(tables)}",
                next="name the same tables, or start the job over with a new checkpoint_dir",
            )
        return at

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return untyped(self)
