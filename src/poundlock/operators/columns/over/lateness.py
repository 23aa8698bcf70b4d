"""Which rows are late for aggregates of a span of time before each row, as Flink's OVER has it.

There a row is late that is not behind the last time at which a timer of its key fired. Timers are set for rows, and for when a key
is to be forgotten: one and a half spans behind a row, unless that is set already for a span behind it or later. A timer of
forgetting that was set before a later one counts as any other; the last one makes all rows of the key be taken again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, ends_in, indices_of, numbers_in
from poundlock.operators.columns.changelog.signed import taken
from poundlock.operators.columns.groups import Hashes, grouped
from poundlock.operators.columns.records import decode_records, encode_records
from poundlock.operators.columns.rows.keys import RowsByKey
from poundlock.operators.columns.rows.running_values import running
from poundlock.operators.columns.rows.table import KeyTable
from poundlock.operators.keyed.group import MIN, KeyGroup

_ENTRY = pa.schema(
    [
        ("last", pa.int64()),
        ("forget", pa.int64()),
        ("born", pa.int64()),
        ("as_of", pa.int64()),
        ("before", pa.large_binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class _Entries:
    """Of each key when a timer last fired, when it is forgotten, and the watermark when it was first known; of timers before that the key
    and the time. A key that is forgotten, or that never had a row, has MIN for the first two."""

    last: Numbers
    forget: Numbers
    born: Numbers
    of: Numbers
    before: Numbers


def keys_of(hashes: Hashes, keys: pa.Array) -> RowsByKey:
    """Return the different keys of rows, with their rows."""
    groups = grouped(hashes, keys)
    firsts = groups.firsts
    return RowsByKey(groups, hashes[firsts], keys.take(indices_of(firsts)))


class FiredTimes:
    """When timers of each key last fired.

    Args:
        span_ms: the longest span of time before a row.
    """

    def __init__(self, span_ms: int) -> None:
        self._span_ms, self._forget_ms = span_ms, span_ms + span_ms // 2 + 1
        self._table = KeyTable("timers of keys", "timers of keys", holds=(f"a span of {span_ms} ms",))

    def declare(self, group: KeyGroup) -> None:
        """Say what the table holds; called with each group."""
        self._table.declare(group)

    def store(self, store: Any) -> None:
        """Have what changed written with the checkpoint."""
        self._table.store(store)

    def _read(self, group: KeyGroup, keys: RowsByKey) -> _Entries:
        places, values = self._table.look_up(group, keys)
        rows = decode_records(values, _ENTRY)
        last, forget, born, as_of = (np.full(len(keys), MIN) for _ in range(4))
        for numbers, column in zip((last, forget, born, as_of), rows.columns[:4], strict=True):
            numbers[places] = numbers_in(column)
        packed = rows.column(4)
        ends, data = ends_in(packed), packed.buffers()[2]
        times = np.frombuffer(b"" if data is None else data, np.uint8)[ends[0] : ends[-1]].view("<i8")
        of = np.repeat(places, np.diff(ends) // 8) if len(places) else places
        # A timer that is set for a time that the watermark has passed fires when the watermark next advances.
        advanced = as_of < group.watermark
        known = (forget > group.watermark) | ~advanced
        last[~known] = forget[~known] = MIN
        of, times = of[known[of]], times[known[of]]
        fired = (times <= group.watermark) & advanced[of]
        np.maximum.at(last, of[fired], times[fired])
        return _Entries(last, forget, born, of[~fired], times[~fired])

    def late(self, group: KeyGroup, keys: RowsByKey, times: Numbers) -> Flags:
        """Return which rows are late; `times` are theirs."""
        late: Flags = times <= self._read(group, keys).last[keys.groups.numbers]
        return late

    def born(self, group: KeyGroup, keys: RowsByKey) -> Numbers:
        """Return which watermark there was when each key was first known, since it was forgotten."""
        return self._read(group, keys).born

    def take(self, group: KeyGroup, keys: RowsByKey, times: Numbers) -> None:
        """Set the timers of rows that came and are not late; `times` are theirs, in the order they came."""
        entries = self._read(group, keys)
        forget = entries.forget
        born = np.where(forget == MIN, group.watermark, entries.born)
        order, starts, stops = keys.groups.order, keys.groups.starts, keys.groups.starts + keys.groups.counts
        latest = running(np.maximum, times[order], starts)
        more_of, more = [entries.of], [entries.before]
        at, active = starts.copy(), np.arange(len(keys))
        while len(active):
            # A key that is new sets a timer with its first row.
            limit = np.where(forget[active] == MIN, MIN, forget[active] - self._span_ms - 1)
            at[active] = _first_above(latest, at[active], stops[active], limit)
            active = active[at[active] < stops[active]]
            replaced = active[forget[active] != MIN]
            more_of.append(replaced)
            more.append(forget[replaced])
            forget[active] = latest[at[active]] + self._forget_ms
        self._put(group, keys, _Entries(entries.last, forget, born, np.concatenate(more_of), np.concatenate(more)))

    def fired(self, group: KeyGroup, keys: RowsByKey, times: Numbers) -> None:
        """Take the time of the last row of each key that came out."""
        entries = self._read(group, keys)
        self._put(group, keys, replace(entries, last=np.maximum(entries.last, times)))

    def forget(self, group: KeyGroup, keys: RowsByKey) -> None:
        """Remove those of some keys that are over."""
        places, _ = self._table.look_up(group, keys)
        gone = places[self._read(group, keys).forget[places] == MIN]
        nothing = pa.nulls(len(gone), pa.large_binary())
        self._table.put(group, keys.hashes[gone], keys.keys.take(indices_of(gone)), nothing)

    def _put(self, group: KeyGroup, keys: RowsByKey, entries: _Entries) -> None:
        order = np.argsort(entries.of, kind="stable")
        ends = np.append(0, np.cumsum(np.bincount(entries.of, minlength=len(keys)) * 8)).astype(np.int64)
        data = np.ascontiguousarray(entries.before[order].astype("<i8"))
        packed = pa.Array.from_buffers(pa.large_binary(), len(keys), [None, pa.py_buffer(ends), pa.py_buffer(data)])
        as_of = np.full(len(keys), group.watermark)
        columns = [column_of(each, pa.int64()) for each in (entries.last, entries.forget, entries.born, as_of)]
        values = encode_records(pa.RecordBatch.from_arrays([*columns, packed], schema=_ENTRY))
        known = np.where(entries.forget > MIN, np.arange(len(keys)), -1)
        self._table.put(group, keys.hashes, keys.keys, taken(values, known))


def _first_above(numbers: Numbers, first: Numbers, stop: Numbers, limit: Numbers) -> Numbers:
    """Return the first place of each stretch, in which numbers ascend, with a number above a limit; its end where there is none."""
    low, high = first.copy(), stop.copy()
    while (open_ := np.flatnonzero(low < high)).size:
        middle = (low[open_] + high[open_]) // 2
        above = numbers[middle] > limit[open_]
        high[open_[above]] = middle[above]
        low[open_[~above]] = middle[~above] + 1
    return low
