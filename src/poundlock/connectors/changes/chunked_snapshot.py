"""A table read in chunks beside the log of its changes: which rows are known, and what rows were at an earlier place of the log.

This is the idea of Netflix's DBLog (Andreakis and Papapanagiotou, 2020), put so that a chunk can be read twice. A checkpoint ends at a place
of the log. It gives the changes up to there of the rows that are known, and then further chunks as they were *at that very place*: a chunk
is read later, and what the log has of it behind the place is undone by the images before. So what is given at the end of a
checkpoint is the table at its place, as far as it is known; whatever is written meanwhile, and whenever a chunk is read again.

Pure: no server is asked here. Rows are of any type; what a row's key is, a function says.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)


class Frontier(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much of a table is known: the rows whose key is smaller than a border.

    Args:
        below: the border, as text; None = no row is known, unless all are.
        whole: whether all rows are known.
        cuts: the borders since the position before, where the work is cut.
    """

    below: str | None = None
    whole: bool = False
    cuts: tuple[str, ...] = ()

    def chunks_to(self, end: Frontier) -> list[Chunk]:
        """Return the chunks between this frontier, of the position before, and that of the next."""
        if self.whole or (self.below == end.below and not end.whole):
            return []
        borders = [self.below, *end.cuts, None if end.whole else end.below]
        return [Chunk(borders[i], borders[i + 1]) for i in range(len(borders) - 1)]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows whose key is at least `low` and smaller than `high`, each as text; None = no border."""

    low: str | None
    high: str | None


def grown(start: Frontier, border_after: Callable[[str | None], str | None], chunks: int) -> Frontier:
    """Return a frontier some chunks further on.

    Args:
        border_after: returns the border of the chunk that begins at a border, None where it has the last rows. It may look at
            the table at any time: borders say where the work is cut, and nothing about what rows there are.
    """
    at, cuts = start.below, list[str]()
    for _ in range(chunks):
        border = border_after(at)
        if border is None:
            return Frontier(None, True, tuple(cuts))
        cuts.append(border)
        at = border
    return Frontier(at, False, tuple(cuts[:-1]))


@dataclass(frozen=True, slots=True)
class RowChange(Generic[Row]):
    """One row changed: as it was before, None where it was not there; as it is then, None where it is gone."""

    before: Row | None
    after: Row | None

    def within(self, knows: Callable[[Row], bool]) -> RowChange[Row] | None:
        """Return what the change is to somebody who knows some rows alone; None = nothing.

        A row whose key moves over the frontier comes or goes.
        """
        before = self.before if self.before is not None and knows(self.before) else None
        after = self.after if self.after is not None and knows(self.after) else None
        return None if before is None and after is None else RowChange(before, after)


@dataclass
class Undone(Generic[Row, Key]):
    """What rows were before changes that came later: of each key, the image before its first change.

    Args:
        key_of: the key of a row; rows that are one row to the server have one key.
    """

    key_of: Callable[[Row], Key]
    rows: dict[Key, Row | None] = field(default_factory=dict)

    def add(self, change: RowChange[Row]) -> None:
        """Take note of the next change, in the order of the log."""
        if change.before is not None:
            self.rows.setdefault(self.key_of(change.before), change.before)
        if change.after is not None:
            self.rows.setdefault(self.key_of(change.after), None)

    def there(self) -> list[Row]:
        """Return those of the changed rows that were there, which take the place of all rows with a changed key."""
        return [row for row in self.rows.values() if row is not None]


def as_before(read: Iterable[Row], later: Iterable[RowChange[Row]], key_of: Callable[[Row], Key]) -> list[Row]:
    """Return what rows of a chunk were at a place of the log.

    A row without a change between the place and a later one is the same at every place between. So nothing has to be known of
    when the rows were read but this: not before the place, and not behind the end of `later`.

    Args:
        read: the chunk as it was read.
        later: the changes of its rows behind the place, in order.
    """
    undone = Undone(key_of)
    for change in later:
        undone.add(change)
    return [row for row in read if key_of(row) not in undone.rows] + undone.there()


def next_frontiers(
    order: Sequence[str],
    known: Mapping[str, Frontier],
    border_after: Callable[[str, str | None], str | None],
    chunks: int,
) -> dict[str, Frontier]:
    """Return the frontiers of tables some chunks further on: one table after the other.

    Args:
        order: the tables; one that is not in `known` begins at its beginning.
        border_after: as that of `grown`, of a table.
        chunks: how many chunks at most, of all tables.
    """
    made: dict[str, Frontier] = {}
    left = chunks
    for table in order:
        at = known.get(table, Frontier())
        if at.whole or not left:
            made[table] = Frontier(at.below, at.whole)
            continue
        made[table] = further = grown(at, _of_table(border_after, table), left)
        left -= len(at.chunks_to(further))
    return made


def _of_table(border_after: Callable[[str, str | None], str | None], table: str) -> Callable[[str | None], str | None]:
    return lambda border: border_after(table, border)


def is_whole(order: Sequence[str], known: Mapping[str, Any]) -> bool:
    """Return whether all rows of all tables are known."""
    return all(table in known and known[table].whole for table in order)
