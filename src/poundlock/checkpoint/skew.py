"""How unevenly the rows of a checkpoint lie: how many each key group of an operator got, and how many each split of a source had.

Only the largest are named, so what is reported does not grow with key groups or splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest

LARGEST = 10  # so many parts are named


@dataclass(frozen=True, slots=True)
class RowPart:
    """A key group, by its number, or a split of a source, by its name; and its rows."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Shares:
    """How rows lie over parts.

    Args:
        parts: how many have rows.
        rows: of all of them.
        largest: those with the most rows, the largest first.
    """

    parts: int = 0
    rows: int = 0
    largest: tuple[RowPart, ...] = ()

    @classmethod
    def of(cls, rows: Mapping[str, int]) -> Shares:
        """Return the shares of parts, given the rows of each."""
        there = {name: count for name, count in rows.items() if count}
        return cls(len(there), sum(there.values()), _largest(RowPart(name, count) for name, count in there.items()))

    @property
    def skew(self) -> float:
        """How many times the average the largest part is; 1 = all are alike."""
        return self.largest[0].rows * self.parts / self.rows if self.rows else 1.0

    def share(self, part: RowPart) -> float:
        """Return what part of all rows it has."""
        return part.rows / self.rows if self.rows else 0.0


@dataclass(frozen=True, slots=True)
class Skew:
    """The shares of a checkpoint: key groups by the id of their operator, splits by the id of their source."""

    groups: Mapping[str, Shares] = field(default_factory=dict)
    splits: Mapping[str, Shares] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(shares.rows for shares in (*self.groups.values(), *self.splits.values()))


NO_SKEW = Skew()


def together(reports: Iterable[Mapping[str, Shares]]) -> dict[str, Shares]:
    """Return the shares that several tasks report, as one for each operator or source.

    Key groups are of one task each, so theirs are exact. Splits of one name that several tasks read are added up where each
    of these tasks names them.
    """
    named: dict[str, dict[str, int]] = {}
    sums: dict[str, tuple[int, int]] = {}
    for report in reports:
        for of, shares in report.items():
            own = named.setdefault(of, {})
            twice = 0
            for part in shares.largest:
                twice += part.name in own
                own[part.name] = own.get(part.name, 0) + part.rows
            parts, rows = sums.get(of, (0, 0))
            sums[of] = parts + shares.parts - twice, rows + shares.rows
    return {
        of: Shares(*sums[of], _largest(RowPart(name, rows) for name, rows in parts.items()))
        for of, parts in named.items()
    }


def _largest(parts: Iterable[RowPart]) -> tuple[RowPart, ...]:
    return tuple(nlargest(LARGEST, parts, key=lambda part: part.rows))
