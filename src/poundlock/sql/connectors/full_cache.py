"""Tables that are looked up in and kept whole in each worker process, with Flink's options of a FULL cache: when they are read again.

A table is read when the first key is wanted, and again when one is wanted and its time has come; in between, nothing is asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from datetime import time as time_of_day
from functools import lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from poundlock.connectors.examination import Examinable, Examination
from poundlock.formats.arrays import Numbers, indices_of, numbers_in, ranges, valid_in
from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.connectors.table import CacheLimits
from poundlock.sql.errors import OptionError
from poundlock.values import duration, format_duration, span_ms

_PREFIX = "lookup.full-cache."
_TABLES = 8  # of a process


@dataclass(frozen=True, slots=True)
class FullReload:
    """When a table that is kept whole is read again.

    Args:
        interval_ms: how long it is kept; None = it is read again at a time of the day.
        is_fixed_rate: whether that counts from the begin of the last reading, and not from its end.
        at: the time of the day, of `zone` where it has none of its own.
        every_days: each so many days.
    """

    interval_ms: int | None = None
    is_fixed_rate: bool = False
    at: time_of_day | None = None
    every_days: int = 1
    zone: str = "UTC"

    def next_ms(self, begun_ms: float, ended_ms: float, before_ms: float | None) -> float:
        """Return when a table is read again, ms since the epoch.

        Args:
            begun_ms, ended_ms: of the last reading.
            before_ms: when that was due; None for the first one.
        """
        if self.at is None:
            assert self.interval_ms is not None
            return (begun_ms if self.is_fixed_rate else ended_ms) + self.interval_ms
        zone = self.at.tzinfo or ZoneInfo(self.zone)
        first = datetime.fromtimestamp((begun_ms if before_ms is None else before_ms) / 1000, zone)
        days = 0 if before_ms is None else self.every_days
        while True:
            due = datetime.combine(first.date() + timedelta(days=days), self.at.replace(tzinfo=None), zone)
            if due.timestamp() * 1000 > ended_ms:
                return due.timestamp() * 1000
            days += 1 if before_ms is None else self.every_days

    def describe(self) -> str:
        """Return it in words."""
        if self.at is None:
            return f"every {format_duration(timedelta(milliseconds=self.interval_ms or 0))}"
        return f"at {self.at.isoformat('minutes')} every {f'{self.every_days} days' if self.every_days > 1 else 'day'}"


def full_reload_of(options: TableOptions, *, is_full: bool, zone: str) -> FullReload | None:
    """Return when a table is read again; None where its cache is another one.

    Args:
        zone: of the session.

    Raises:
        OptionError: an option is missing, or cannot be.
    """
    strategy = options.one_of(f"{_PREFIX}reload-strategy", ("periodic", "timed"), "periodic")
    interval = options.span(f"{_PREFIX}periodic-reload.interval")
    mode = options.one_of(f"{_PREFIX}periodic-reload.schedule-mode", ("fixed_delay", "fixed_rate"), "fixed_delay")
    at = options.read(f"{_PREFIX}timed-reload.iso-time", time_of_day.fromisoformat, None, "10:15")
    days = options.read(f"{_PREFIX}timed-reload.interval-in-days", _days, 1, "1")
    if not is_full:
        return None
    needed = "periodic-reload.interval" if strategy == "periodic" else "timed-reload.iso-time"
    if (interval if strategy == "periodic" else at) is None:
        raise OptionError(
            f"{options.table} has no option '{_PREFIX}{needed}', and its rows are kept until they are read again",
            next=f"add '{_PREFIX}{needed}' = '{'10 min' if strategy == 'periodic' else '10:15'}'",
            kind="missing_option",
        )
    if strategy == "timed":
        return FullReload(at=at, every_days=days, zone=zone)
    interval_ms = span_ms(duration(interval or "0 s"))
    if not interval_ms:
        raise OptionError(
            f"{options.table}: '{_PREFIX}periodic-reload.interval' = {interval!r} has to be a millisecond at least",
            next="write such as '10 min', or leave 'lookup.cache' out",
            kind="bad_option_value",
        )
    return FullReload(interval_ms, mode == "fixed_rate")


def _days(text: str) -> int:
    days = int(text)
    if days < 1:
        raise ValueError(text)
    return days


class WholeTable(Protocol):
    """A table that can be read whole, and asked for the rows of keys. See `RowLookup`."""

    @property
    def identity(self) -> str:
        """What its rows depend on."""

    def whole(self) -> pa.RecordBatch:
        """Return all rows that it has now. Raises TransientError where the database does not answer."""

    def describe(self) -> str:
        """Return it in words."""


@dataclass(frozen=True)
class FullCacheLookup:
    """A table that is kept whole. See `RowLookup`.

    Args:
        keys: the columns of its rows by which it is asked, in order.
        clock_ms: ms since the epoch.
    """

    table: WholeTable
    keys: tuple[str, ...]
    reload: FullReload
    clock_ms: Callable[[], float] = field(default=lambda: time.time() * 1000, compare=False)

    @property
    def identity(self) -> str:
        """What its answers depend on."""
        return repr((self.table.identity, self.keys, self.reload))

    @property
    def cache(self) -> CacheLimits:
        """No further one."""
        return CacheLimits()

    def rows(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of some keys, as the table was when it was read last; raises as `RowLookup.rows`."""
        return _kept(os.getpid(), self.identity).current(self).rows_of(keys.columns)

    def examine(self) -> Examination:
        """Do what the table does; see `Examinable`."""
        return self.table.examine() if isinstance(self.table, Examinable) else Examination()

    def describe(self) -> str:
        """Return it in words."""
        return f"{self.table.describe()}, all of them, read again {self.reload.describe()}"


@dataclass
class _Kept:
    """What a process has of one table."""

    rows: IndexedRows | None = None
    due_ms: float | None = None

    def current(self, lookup: FullCacheLookup) -> IndexedRows:
        """Return the table's rows, read again where that is due."""
        begun = lookup.clock_ms()
        if self.rows is None or self.due_ms is None or begun >= self.due_ms:
            # The old rows stay until the new ones are there: where the table cannot be read, that is raised, and the next call reads it.
            self.rows = IndexedRows.of(lookup.table.whole(), lookup.keys)
            self.due_ms = lookup.reload.next_ms(begun, lookup.clock_ms(), self.due_ms)
        return self.rows


@lru_cache(maxsize=_TABLES)
def _kept(process: int, identity: str) -> _Kept:
    return _Kept()


@dataclass(frozen=True)
class IndexedRows:
    """Rows in the order of their keys.

    Args:
        values: the different values of each key column.
        known: the different keys of the first columns, of two of them, of three and so on: the number of the one before them, and of
            the value of the last, as one number each, ascending.
        codes: the place of each row's key among those of all columns, ascending.
    """

    rows: pa.RecordBatch
    values: tuple[pa.Array, ...]
    known: tuple[Numbers, ...]
    codes: Numbers

    @classmethod
    def of(cls, rows: pa.RecordBatch, keys: Sequence[str]) -> IndexedRows:
        """Return rows by some of their columns; one with a null in a key is left out."""
        encoded = [rows.column(name).dictionary_encode() for name in keys]
        valid = np.ones(rows.num_rows, np.bool_)
        for name in keys:
            there = valid_in(rows.column(name))
            valid &= True if there is None else there
        values = tuple(each.dictionary for each in encoded)
        places = np.flatnonzero(valid)
        codes, known = np.zeros(len(places), np.int64), []
        for each in encoded:
            # Both are below the number of rows, and their product fits 64 bits, however many columns there are.
            pairs = codes * max(len(each.dictionary), 1) + numbers_in(each.indices)[places]
            different, codes = np.unique(pairs, return_inverse=True)
            known.append(different)
        order = np.argsort(codes, kind="stable")
        return cls(rows.take(indices_of(places[order])), values, tuple(known), codes[order])

    def rows_of(self, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return the rows of different keys."""
        there = np.arange(len(keys[0]))
        codes = np.zeros(len(there), np.int64)
        for column, values, known in zip(keys, self.values, self.known, strict=True):
            numbers = pc.index_in(column.take(indices_of(there)), value_set=values)
            is_known = valid_in(numbers)
            kept = np.arange(len(there)) if is_known is None else np.flatnonzero(is_known)
            there = there[kept]
            pairs = codes[kept] * max(len(values), 1) + numbers_in(numbers)[kept]
            codes = np.searchsorted(known, pairs)
            same = np.flatnonzero(np.append(known, -1)[codes] == pairs)
            there, codes = there[same], codes[same]
        starts = np.searchsorted(self.codes, codes, "left")
        counts = np.searchsorted(self.codes, codes, "right") - starts
        return self.rows.take(indices_of(ranges(starts, counts)))
