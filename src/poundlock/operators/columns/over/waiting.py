"""Rows in state by time, whole and beside each other: a checkpoint writes what came, and what is over goes away by the stretch of time.

Rows that came behind the watermark, though they are taken, lie in a stretch without width: theirs is to come out with the next watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import Flags, Numbers
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.joins.buckets import TimeBuckets
from poundlock.operators.columns.joins.held_rows import Part
from poundlock.operators.columns.joins.kept_rows import SideTables
from poundlock.operators.columns.joins.matching import AddedRows, TimedRows, of_hashes
from poundlock.operators.columns.operator import Slice
from poundlock.operators.columns.records import layout_of
from poundlock.operators.keyed.group import MAX, KeyGroup

_LEAST_MS = 1_000
_MOST_BUCKETS = 64  # of what a checkpoint adds


def row_layout(schema: pa.Schema, operator: str) -> str:
    """Return the columns of rows as a manifest has them.

    Raises:
        DefinitionError: one is of a type that has no name.
    """
    layout = layout_of(schema)
    if layout is None:
        named = next(field for field in schema if layout_of(pa.schema([field])) is None)
        raise DefinitionError(
            f"{operator}: rows wait in state, which has no name for the type {named.type} of {named.name}",
            next=f"CAST({named.name}) before it, or leave the column out",
        )
    return layout


class RowsByTime:
    """Rows of keys, by time.

    Args:
        name: of the table.
        kind: what it is.
        layout: the columns of rows, as `layout_of` gives them.
        stay_ms: how long rows stay behind the stretch of time that they are in; 0: until that is over.
        by_clock: whether time is that of the clock.
    """

    def __init__(self, name: str, kind: str, layout: str, *, stay_ms: int = 0, by_clock: bool = False) -> None:
        self._tables = SideTables(name, kind, layout)
        self._name, self._stay_ms, self._by_clock = name, stay_ms, by_clock
        self._width = max(stay_ms // 4, _LEAST_MS)
        self.added: list[TimedRows] = []
        """The rows that were added in this checkpoint."""

    def bind(self, group: KeyGroup) -> None:
        """Take the tables of a group."""
        self._tables.declare(group)
        for bucket in self._tables.namespaces(group):
            self._wait_for(group, bucket)

    def is_empty(self, group: KeyGroup) -> bool:
        """Return whether state has no row."""
        return not self._tables.namespaces(group)

    def _now(self, group: KeyGroup) -> int:
        return group.processing_time if self._by_clock else group.watermark

    def _wait_for(self, group: KeyGroup, bucket: Slice) -> None:
        """Have the operator called when a row's time has come, or when the rows are over."""
        start, end = bucket
        time = end + self._stay_ms if self._stay_ms else start
        timers = group.processing_timers if self._by_clock else group.event_timers
        timers.register(min(max(time, min(self._now(group), MAX - 1) + 1), MAX), (self._name, bucket))

    # --- rows that wait ---------------------------------------------------------------------------------------------------

    def take_due(self, group: KeyGroup, before: int) -> list[Part]:
        """Return the rows that the watermark has reached, those of a key and time as they came; they are no longer here.

        Args:
            group: with the watermark; it is one with state.
            before: the watermark before it.
        """
        watermark, store = group.watermark, _store(group)
        due: list[Part] = []
        for bucket in self._tables.namespaces(group):
            start, end = bucket
            if start > watermark:
                continue
            for part in self._tables.rows_of(store, bucket):
                if start < end:
                    reached = (part.times > before) & (part.times <= watermark)
                    part = replace(part, places=np.flatnonzero(reached))
                due.append(part)
            if start == end or end - 1 <= watermark:
                self._tables.drop(group, bucket)
            else:
                self._wait_for(group, bucket)
        added = self.added
        due += [rows.where(rows.times <= watermark) for rows in added]
        self.added = [left for rows in added if len(left := rows.where(rows.times > watermark))]
        return [part for part in due if len(part)]

    # --- rows that stay ---------------------------------------------------------------------------------------------------

    def of_keys(self, group: KeyGroup, hashes: Hashes, first: int, last: int) -> list[Part]:
        """Return the rows from one time to another whose key has one of some hashes.

        Args:
            hashes: ascending, each once.
        """
        parts: list[Part] = []
        for start, end in self._tables.namespaces(group):
            if start > last or max(start, end - 1) < first:
                continue
            for part in self._tables.rows_of(_store(group), (start, end)):
                rows = of_hashes(part, hashes)
                times = part.times[rows]
                parts.append(replace(part, places=rows[(times >= first) & (times <= last)]))
        for added in self.added:
            within = (added.times >= first) & (added.times <= last)
            parts.append(added.where(within & _among(added.hashes, hashes)))
        return [part for part in parts if len(part)]

    def keys_in(self, group: KeyGroup, bucket: Slice) -> Iterator[tuple[Hashes, pa.Array]]:
        """Yield hashes and bytes of the keys of the rows of a stretch of time."""
        for part in self._tables.rows_of(_store(group), bucket):
            yield part.hashes, part.keys

    def drop(self, group: KeyGroup, bucket: Slice) -> None:
        """Remove the rows of a stretch of time, if they are over."""
        if bucket[1] + self._stay_ms <= self._now(group):
            self._tables.drop(group, bucket)

    # --- the end of the checkpoint ------------------------------------------------------------------------------------------

    def store(self, group: KeyGroup) -> None:
        """Have what was added, and is still here, written with the checkpoint."""
        added, self.added = self.added, []
        if not added:
            return
        by_bucket: dict[Slice, list[TimedRows]] = {}
        span = max(int(rows.times.max()) for rows in added) - min(int(rows.times.min()) for rows in added)
        width = self._width
        while span // width > _MOST_BUCKETS:
            width *= 2
        there = TimeBuckets.of([(start, end) for start, end in self._tables.namespaces(group) if start < end])
        for rows in added:
            ahead = np.ones(len(rows), np.bool_) if self._stay_ms else rows.times > group.watermark
            late, rest = rows.where(~ahead), rows.where(ahead)
            if len(rest):
                for number, part in rest.parted(there.numbers(rest.times, width)):
                    by_bucket.setdefault(there.bucket(number, width), []).append(part)
            if len(late):
                for time, part in late.parted(late.times):
                    by_bucket.setdefault((time, time), []).append(part)
        for bucket, parts in sorted(by_bucket.items()):
            self._tables.append(_store(group), bucket, AddedRows(parts))
            self._wait_for(group, bucket)


def _store(group: KeyGroup) -> Any:
    return group


def _among(hashes: Hashes, wanted: Hashes) -> Flags:
    at: Numbers = np.minimum(np.searchsorted(wanted, hashes), max(len(wanted) - 1, 0))
    flags: Flags = wanted[at] == hashes if len(wanted) else np.zeros(len(hashes), np.bool_)
    return flags
