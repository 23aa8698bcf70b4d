"""What a table answered, kept in a worker process for as long as its options say: the keys that were wanted last."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, indices_of, ranges
from poundlock.sql.connectors.table import CacheLimits

Answer = tuple[pa.RecordBatch, Numbers]
"""Rows of the table, and the number of the key that each is of, ascending."""
_CACHES = 16  # of a process
_WASTE = 10_000  # rows that nobody can want any more, before the others are put together


@dataclass(slots=True)
class _Entry:
    """Where the rows of a key are, and when it was asked for and last wanted, ms of a clock that only goes on."""

    start: int
    count: int
    written_ms: float
    wanted_ms: float


class LookupCache:
    """Rows by key, the keys that were wanted last behind the others.

    Args:
        clock_ms: a clock that only goes on.
    """

    def __init__(self, limits: CacheLimits, clock_ms: Callable[[], float] = lambda: time.monotonic() * 1_000) -> None:
        self._limits, self._clock_ms = limits, clock_ms
        self._entries: OrderedDict[tuple[Any, ...], _Entry] = OrderedDict()
        self._rows: pa.Table | None = None
        self._live = 0  # rows of entries

    def answer(self, keys: pa.RecordBatch, ask: Callable[[pa.RecordBatch], Answer]) -> Answer:
        """Return the rows of different keys.

        Args:
            ask: gives those of keys that are not here.
        """
        now = self._clock_ms()
        values = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
        missing = [number for number, value in enumerate(values) if not self._is_known(value, now)]
        places = {value: self._entries[value] for value in values if value in self._entries}
        if missing or self._rows is None:
            given, owners = ask(keys.take(indices_of(np.array(missing, np.int64))))
            places |= self._kept([values[number] for number in missing], given, owners, now)
        starts = np.fromiter((places[value].start for value in values), np.int64, len(values))
        counts = np.fromiter((places[value].count for value in values), np.int64, len(values))
        assert self._rows is not None
        rows = self._rows.take(indices_of(ranges(starts, counts))).combine_chunks()
        made = rows.to_batches()[0] if rows.num_rows else _empty(rows.schema)
        self._evict()
        return made, np.repeat(np.arange(len(values)), counts)

    def __len__(self) -> int:
        return len(self._entries)

    def _is_known(self, value: tuple[Any, ...], now: float) -> bool:
        entry = self._entries.get(value)
        if entry is None:
            return False
        limits = self._limits
        old = limits.after_write_ms is not None and now - entry.written_ms >= limits.after_write_ms
        idle = limits.after_access_ms is not None and now - entry.wanted_ms >= limits.after_access_ms
        if old or idle:
            del self._entries[value]
            self._live -= entry.count
            return False
        entry.wanted_ms = now
        self._entries.move_to_end(value)
        return True

    def _kept(
        self, values: list[tuple[Any, ...]], given: pa.RecordBatch, owners: Numbers, now: float
    ) -> dict[tuple[Any, ...], _Entry]:
        """Take the rows of keys that were asked for; return where they are."""
        counts = np.bincount(owners, minlength=len(values))
        begin = 0 if self._rows is None else self._rows.num_rows
        starts = begin + np.cumsum(counts) - counts
        more = pa.Table.from_batches([given])
        self._rows = more if self._rows is None else pa.concat_tables([self._rows, more])
        made = {
            value: _Entry(start, count, now, now)
            for value, start, count in zip(values, starts.tolist(), counts.tolist(), strict=True)
        }
        for value, entry in made.items():
            if entry.count or self._limits.keeps_missing:
                self._entries[value] = entry
                self._live += entry.count
        return made

    def _evict(self) -> None:
        """Leave out the keys that were not wanted for longest, and put the rows of the others together."""
        while len(self._entries) > self._limits.max_rows:
            _, entry = self._entries.popitem(last=False)
            self._live -= entry.count
        assert self._rows is not None
        if self._rows.num_rows <= 2 * self._live + _WASTE:
            return
        entries = list(self._entries.values())
        starts = np.fromiter((entry.start for entry in entries), np.int64, len(entries))
        counts = np.fromiter((entry.count for entry in entries), np.int64, len(entries))
        self._rows = self._rows.take(indices_of(ranges(starts, counts))).combine_chunks()
        for entry, start in zip(entries, (np.cumsum(counts) - counts).tolist(), strict=True):
            entry.start = start


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


def cache_of(identity: str, limits: CacheLimits) -> LookupCache | None:
    """Return this process's cache of a lookup, None where nothing is kept."""
    return _cache(os.getpid(), identity, limits) if limits.max_rows else None


@lru_cache(maxsize=_CACHES)
def _cache(process: int, identity: str, limits: CacheLimits) -> LookupCache:
    return LookupCache(limits)
