"""Timers in runs: sections sorted by time, so that what is due is a stretch of rows and nothing else is looked at.

A timer is an entry (key, subkey) at a time. What was registered twice is one timer, at the place of its first registration;
timers up to a time that a newer run says have fired are gone without a row of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from poundlock.formats.arrays import binary_array, ranks_of
from poundlock.state.hashing import groups_of
from poundlock.state.runs.columns import Rows, concat, empty_rows, is_valid
from poundlock.state.runs.lookup import View
from poundlock.state.runs.merge import in_chunks
from poundlock.state.runs.run import Removal, SectionKey

EVENT_TIMERS, PROCESSING_TIMERS = "timers:event", "timers:processing"
MAX_TIME = (1 << 63) - 1
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_CHUNK = 4 << 20  # bytes of timers that are gone through at once
_STRETCH = 256  # rows of a section that are looked at to find its first timer


def timer_rows(
    hashes: npt.NDArray[np.uint64], keys: Any, subkeys: Any, times: Numbers, registered: Sequence[int | None]
) -> Rows:
    """Return timers as rows, in the order of a section.

    Args:
        times: of each in ms.
        registered: the place in the order of registration of each; None where the timer was deleted.
    """
    values = binary_array([None if number is None else number.to_bytes(8, "little") for number in registered])
    return in_order(Rows(hashes, keys, subkeys, values, times))


def sequences(values: Any) -> Numbers:
    """Return the places in the order of registration; -1 for a timer that was deleted."""
    valid = is_valid(values)
    result = np.full(len(values), -1, np.int64)
    if valid.any():
        data = values.drop_null()
        offsets = np.frombuffer(data.buffers()[1], np.int64)[data.offset : data.offset + len(data) + 1]
        result[valid] = np.frombuffer(data.buffers()[2], "<i8", (int(offsets[-1] - offsets[0])) // 8, int(offsets[0]))
    return result


def in_order(rows: Rows) -> Rows:
    """Return timers in the order of a section: by time, deleted ones first, then as they were registered."""
    return rows.take(np.lexsort((rows.hashes, sequences(rows.values), rows.times_or_none())))


def merge_timers(parts: Sequence[Rows], *, drop_deleted: bool) -> Rows:
    """Return the timers of several parts, newest first, each once and in order.

    Args:
        drop_deleted: whether deleted ones are left out; true where there is nothing older.
    """
    rows = concat(list(reversed(parts)))
    if not len(rows):
        return rows
    registered = sequences(rows.values)
    keys, subkeys, times = ranks_of(rows.keys)[0], ranks_of(rows.subkeys_or_none())[0], rows.times_or_none()
    age = np.repeat(np.arange(len(parts)), [len(part) for part in reversed(parts)])
    # Within one run a deletion stands before the registration that came after it.
    order = np.lexsort((registered >= 0, age, subkeys, keys, times))
    end = np.zeros(len(order), np.bool_)
    end[-1] = True
    for column in (times, keys, subkeys):
        end[:-1] |= column[order][1:] != column[order][:-1]
    start = np.concatenate([[True], end[:-1]])
    alive = registered[order] >= 0
    # A timer's place is that of the first registration behind the last deletion.
    after = np.concatenate([[True], ~alive[:-1]]) | start
    first = np.maximum.accumulate(np.where(after, np.arange(len(order)), 0))
    last = np.flatnonzero(end)
    kept = first[last][alive[last]]
    if not drop_deleted:
        # A deletion stays, also before a registration: an older run must not give the timer its former place.
        before = kept[kept > 0] - 1
        kept = np.concatenate([kept, last[~alive[last]], before[~alive[before] & ~end[before]]])
    return in_order(rows.take(order[kept]))


def between(rows: Rows, after: int | None, limit: int) -> Rows:
    """Return those of some rows in the order of a section that are later than a time and up to another, in ms."""
    times = rows.times_or_none()
    start = 0 if after is None else int(np.searchsorted(times, after, "right"))
    return rows.slice(start, int(np.searchsorted(times, limit, "right")))


class TimerView:
    """The timers of one operator and kind in the runs of some key groups."""

    def __init__(self, view: View, key: SectionKey) -> None:
        self._groups = view.max_parallelism
        self._sources = [
            (rows, spans, cuts)
            for run, spans, cuts in view.visible(key)
            if (rows := run.section_rows(key)) is not None and len(rows)
        ]

    def __bool__(self) -> bool:
        return bool(self._sources)

    def rows(self) -> list[Rows]:
        """Return the rows of all runs as they are, also those that are not seen."""
        return [rows for rows, _, _ in self._sources]

    def due(self, after: int | None, limit: int) -> Rows:
        """Return the timers later than a time and up to another, in ms, in the order they fire; they are rows with `times`."""
        return merge_timers(self.parts(after, limit), drop_deleted=True)

    def all(self) -> Iterator[Rows]:
        """Yield all timers in the order they fire, some at a time."""
        after = None
        for pieces in in_chunks(self.rows(), by_time=True, limit=_CHUNK):
            limit = max(int(piece.times_or_none()[-1]) for piece in pieces)
            yield self.due(after, limit)
            after = limit

    def of_hash(self, hash_: np.uint64) -> Rows:
        """Return the timers of the keys of one hash, in the order they fire; costs a look at each hash of the runs."""
        parts = []
        for rows, spans, cuts in self._sources:
            own = rows.take(np.flatnonzero(rows.hashes == hash_))
            parts += [seen] if len(own) and len(seen := self._seen(own, spans, cuts)) else []
        return merge_timers(parts, drop_deleted=True) if parts else empty_rows()

    def parts(self, after: int | None, limit: int) -> list[Rows]:
        """Return the rows of timers between two times as the runs have them, newest first."""
        result = []
        for rows, spans, cuts in self._sources:
            start = self._start(rows, spans, cuts, after)
            stop = int(np.searchsorted(rows.times_or_none(), limit, "right"))
            if start < stop:
                part = self._seen(rows.slice(start, stop), spans, cuts)
                if len(part):
                    result.append(part)
        return result

    def first_time(self, after: int | None, deleted: Any = ()) -> int | None:
        """Return the time in ms of the first timer later than a time, None if there is none.

        Args:
            after: in ms; None: of all of them.
            deleted: (time, encoded key, encoded subkey) of timers that do not count.
        """
        while True:
            limit = self._stretch(after)
            if limit is None:
                return None
            parts = self.parts(after, limit)
            if parts and not deleted and not any(part.values.null_count for part in parts):
                return min(int(part.times_or_none()[0]) for part in parts)  # nothing takes any of them back
            for time, key, subkey in timer_entries(merge_timers(parts, drop_deleted=True)):
                if (time, key, subkey) not in deleted:
                    return time
            after = limit

    def _stretch(self, after: int | None) -> int | None:
        """Return up to what time to look, so that some rows are looked at: None if there are none."""
        limits = []
        for rows, spans, cuts in self._sources:
            start = self._start(rows, spans, cuts, after)
            if start < len(rows):
                limits.append(int(rows.times_or_none()[min(start + _STRETCH, len(rows) - 1)]))
        return min(limits, default=None)

    def _start(self, rows: Rows, spans: Sequence[tuple[int, int]], cuts: Sequence[Removal], after: int | None) -> int:
        """Return the first row later than a time and behind those that are gone for all groups the run is seen for."""
        limits = [cut.before for cut in cuts if cut.first <= spans[0][0] and spans[-1][1] <= cut.stop]
        times = [time for time in (*limits, after) if time is not None]
        return int(np.searchsorted(rows.times_or_none(), max(times), "right")) if times else 0

    def _seen(self, rows: Rows, spans: Sequence[tuple[int, int]], cuts: Sequence[Removal]) -> Rows:
        groups = groups_of(rows.hashes, self._groups)
        seen = np.zeros(len(rows), np.bool_)
        for first, stop in spans:
            seen |= (groups >= first) & (groups < stop)
        for cut in cuts:
            if cut.before is not None:
                seen &= ~((groups >= cut.first) & (groups < cut.stop) & (rows.times_or_none() <= cut.before))
        return rows if seen.all() else rows.take(np.flatnonzero(seen))


def timer_entries(rows: Rows) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield time in ms, encoded key and encoded subkey of timers."""
    return zip(rows.times_or_none().tolist(), rows.keys.to_pylist(), rows.subkeys_or_none().to_pylist(), strict=True)
