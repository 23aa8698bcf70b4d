"""Deduplication by key, by columns: the first record of each key, or the last one, over the state of the operators of single records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Flags, Numbers, column_of, indices_of, joined, numbers_in, ranks_of, valid_in
from poundlock.operators.columns.groups import Groups, Hashes
from poundlock.operators.columns.msgpack.values import packed, packed_records, packed_timed, unpacked
from poundlock.operators.columns.operator import (
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    ColumnChunk,
    ColumnOperator,
    Slice,
    change_chunks,
    change_schema,
    row_chunks,
)
from poundlock.operators.columns.rows.keys import NO_TIME, RowKeys, RowsByKey, behind, times_in
from poundlock.operators.columns.rows.records import timed_records_of
from poundlock.operators.columns.rows.running_values import running_best
from poundlock.operators.columns.rows.table import KeyTable
from poundlock.operators.keyed.codec import encode
from poundlock.operators.keyed.group import MAX, KeyGroup
from poundlock.operators.pieces import pieces
from poundlock.operators.process.deduplicate import (
    BUCKET_MS,
    LAST,
    SEEN,
    WAITING,
    WAITS,
    Order,
    check_event_time,
)

_TRUE = encode(True)


@dataclass(frozen=True)
class ColumnDeduplication:
    """Deduplication, and its rows as columns. Picklable.

    Args:
        order: of the records of a key.
        schema: the columns of a record.
        keys: of a row.
        time: the column of event time; None where there is none.
        ttl_ms: how long a key is known after its last change, by the clock; None for ever.
    """

    order: Order
    schema: pa.Schema
    keys: RowKeys
    time: str | None
    ttl_ms: int | None = None

    def times(self, rows: pa.RecordBatch) -> Numbers:
        """Return the event time of each row in ms, NO_TIME where it has none.

        Raises:
            DefinitionError: it is needed.
        """
        times = np.full(rows.num_rows, NO_TIME) if self.time is None else times_in(rows.column(self.time))
        if self.order == "event_time" and len(times) and times.max() == NO_TIME:
            check_event_time(None)
        return times

    def records(self, columns: Sequence[pa.Array], times: Numbers) -> pa.Array:
        """Return records with their times as state has them, from their columns."""
        at = column_of(times, pa.int64(), times != NO_TIME)
        return packed_timed(at, packed_records(columns, self.schema.names))

    def read(self, values: pa.Array) -> tuple[Numbers, list[pa.Array]]:
        """Return times and columns of records that state has."""
        times, columns = timed_records_of(values, self.schema)
        valid = valid_in(times)
        return numbers_in(times) if valid is None else np.where(valid, numbers_in(times), NO_TIME), columns


@dataclass(frozen=True)
class FirstRecords:
    """The first record of each key. Picklable."""

    rows: ColumnDeduplication

    def operator(self) -> ColumnFirstOperator:
        """Return a new operator."""
        return ColumnFirstOperator(self.rows)


class ColumnFirstOperator(ColumnOperator):
    """The first record of each key."""

    def __init__(self, rows: ColumnDeduplication) -> None:
        super().__init__()
        self._of = rows
        self._by_time = rows.order == "event_time"
        self._seen, self._waits = KeyTable(SEEN, SEEN, rows.ttl_ms), KeyTable(WAITS, WAITS)
        self._waiting: dict[Slice, KeyTable] = {}

    def bind(self, group: KeyGroup) -> None:
        self._seen.declare(group)
        if self._by_time:
            self._waits.declare(group)
            group.declare(WAITING, WAITING)
            for bucket in group.namespaces(WAITING):
                group.event_timers.register(max(bucket[0], group.watermark + 1), bucket)

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        times = self._of.times(rows)
        if self._by_time:
            late = times <= group.watermark
            self.late_dropped += int(np.count_nonzero(late))
            rows, times = (rows.take(indices_of(np.flatnonzero(~late))), times[~late]) if late.any() else (rows, times)
        keys = RowsByKey.of(rows, self._of.keys)
        new = np.ones(len(keys), np.bool_)
        new[self._seen.look_up(self.rows, keys)[0]] = False
        if self._by_time:
            self._wait(rows, times, keys, new)
            return
        self._seen.put(group, *_keys(keys, new), _repeated(_TRUE, int(np.count_nonzero(new))))
        firsts = np.sort(keys.groups.firsts[new])
        yield from row_chunks(rows.select(self._of.schema.names), firsts, times[firsts])

    def _wait(self, rows: pa.RecordBatch, times: Numbers, keys: RowsByKey, new: Flags) -> None:
        """Keep the earliest record of each key until the watermark reaches it.

        Args:
            new: the keys whose first record has not come out.
        """
        places, values = self._waits.look_up(self.rows, keys)
        known = np.full(len(keys), MAX)
        known[places] = unpacked(values)
        order, starts = keys.groups.order, keys.groups.starts
        first = order[_ends(running_best(~times[order], starts, first=True), keys.groups)]
        new = new & (times[first] < known)
        replaced = new & (known < MAX)
        self._remove(*_keys(keys, replaced), known[replaced])
        first = first[new]
        hashes, encoded = _keys(keys, new)
        self._waits.put(self.group, hashes, encoded, packed(column_of(times[first], pa.int64())))
        chosen = [rows.column(name).take(indices_of(first)) for name in self._of.schema.names]
        records = self._of.records(chosen, times[first])
        for bucket, own in _by_bucket(times[first]):
            indices = indices_of(own)
            self._table(bucket).put(self.group, hashes[own], encoded.take(indices), records.take(indices))
            self.group.event_timers.register(max(bucket[0], self.group.watermark + 1), bucket)

    def _remove(self, hashes: Hashes, keys: pa.Array, times: Numbers) -> None:
        """Remove records that waited for a time."""
        for bucket, own in _by_bucket(times):
            gone = pa.nulls(len(own), pa.large_binary())
            self._table(bucket).put(self.group, hashes[own], keys.take(indices_of(own)), gone)

    def _table(self, bucket: Slice) -> KeyTable:
        return self._waiting.setdefault(bucket, KeyTable(WAITING, WAITING, namespace=bucket))

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk]:  # type: ignore[override]
        """Yield the records that the watermark has reached, by time and key."""
        table, watermark = self._table(entry), self.group.watermark
        waiting = table.entries(self.rows)
        times, columns = self._of.read(waiting.values)
        due = times <= watermark
        table.drop(self.group)
        if not due.all():
            left = np.flatnonzero(~due)
            indices = indices_of(left)
            table.put(self.group, waiting.hashes[left], waiting.keys.take(indices), waiting.values.take(indices))
            self.group.event_timers.register(int(times[left].min()), entry)
        places = np.flatnonzero(due)
        keys = waiting.keys.take(indices_of(places))
        self._seen.put(self.group, waiting.hashes[places], keys, _repeated(_TRUE, len(places)))
        self._waits.put(self.group, waiting.hashes[places], keys, pa.nulls(len(places), pa.large_binary()))
        order = places[np.lexsort((ranks_of(keys)[0], times[places]))]
        yield from row_chunks(pa.RecordBatch.from_arrays(columns, schema=self._of.schema), order, times[order])

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        for table in (self._seen, self._waits, *self._waiting.values()):
            table.store(self.rows)
        self._waiting = {}


@dataclass(frozen=True)
class LastRecords:
    """The last record of each key. Picklable.

    Args:
        update_before: whether the record that is replaced is given before the one that replaces it.
        bounded: whether only the last of each key is wanted, at the end.
    """

    rows: ColumnDeduplication
    update_before: bool = False
    bounded: bool = False

    def operator(self) -> ColumnLastOperator:
        """Return a new operator."""
        return ColumnLastOperator(self)


class ColumnLastOperator(ColumnOperator):
    """The last record of each key: as it changes, or at the end of the input."""

    def __init__(self, last: LastRecords) -> None:
        super().__init__()
        self._last, self._of = last, last.rows
        self._changes = change_schema(last.rows.schema)
        self._table = KeyTable(LAST, LAST, last.rows.ttl_ms)

    def bind(self, group: KeyGroup) -> None:
        self._table.declare(group)
        if self._last.bounded and not self._table.is_empty(group):
            group.wake_at_end()

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        own_times = self._of.times(rows)
        keys = RowsByKey.of(rows, self._of.keys)
        places, values = self._table.look_up(self.rows, keys)
        held_times, held = self._of.read(values)
        times = np.concatenate([held_times, own_times])
        columns = [joined([a, rows.column(name)]) for a, name in zip(held, self._of.schema.names, strict=True)]
        groups = behind(keys.groups, places)
        ranks = times[groups.order] if self._of.order == "event_time" else np.arange(len(times))
        best = running_best(ranks, groups.starts, first=False)
        last = groups.order[_ends(best, groups)]
        changed = last >= len(places)
        some = indices_of(last[changed])
        records = self._of.records([column.take(some) for column in columns], times[last[changed]])
        self._table.put(group, *_keys(keys, changed), records)
        if self._last.bounded:
            group.wake_at_end()
            return
        at = np.empty(len(times), np.int64)
        at[groups.order] = np.arange(len(times))
        at = at[len(places) :]  # where each row is, in the order they came
        at = at[best[at] == at]
        begins = np.zeros(len(times), np.bool_)
        begins[groups.starts] = True
        is_first = begins[at]
        before = groups.order[best[at - 1]]  # of those that are not the first of their key
        chosen, kinds, causes = _updates(groups.order[at], before, is_first, update_before=self._last.update_before)
        yield from change_chunks(columns, self._changes, chosen, kinds, times[causes])

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk]:  # type: ignore[override]
        """Yield the last record of each key."""
        values = self._table.entries(self.rows).values
        for first, count in pieces([values]):
            times, columns = self._of.read(values.slice(first, count))
            every = np.arange(len(times))
            yield from change_chunks(columns, self._changes, every, np.full(len(times), INSERT), times)
        self._table.drop(self.group)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        self._table.store(self.rows)


def _updates(
    rows: Numbers, before: Numbers, is_first: Flags, *, update_before: bool
) -> tuple[Numbers, Numbers, Numbers]:
    """Return the changes that records give: of which row each is, its kind, and the row that made it.

    Args:
        rows: that became the last of their keys, in the order they came.
        before: what was the last before each; any where there was none.
        is_first: whether there was none.
    """
    kinds = np.where(is_first, INSERT, UPDATE_AFTER)
    if not update_before:
        return rows, kinds, rows
    counts = 2 - is_first.astype(np.int64)
    after = np.cumsum(counts) - 1
    chosen, all_kinds = np.empty(int(counts.sum()), np.int64), np.full(int(counts.sum()), UPDATE_BEFORE)
    chosen[after], all_kinds[after] = rows, kinds
    chosen[after[~is_first] - 1] = before[~is_first]
    return chosen, all_kinds, np.repeat(rows, counts)


def _ends(best: Numbers, groups: Groups) -> Numbers:
    """Return the value of the last row of each group."""
    result: Numbers = best[groups.starts + groups.counts - 1]
    return result


def _keys(keys: RowsByKey, which: Flags) -> tuple[Hashes, pa.Array]:
    """Return hash and bytes of some keys."""
    return keys.hashes[which], keys.keys.take(indices_of(np.flatnonzero(which)))


def _repeated(value: bytes, count: int) -> pa.Array:
    ends = pa.py_buffer(np.arange(count + 1, dtype=np.int64) * len(value))
    return pa.Array.from_buffers(pa.large_binary(), count, [None, ends, pa.py_buffer(value * count)])


def _by_bucket(times: Numbers) -> Iterator[tuple[Slice, Numbers]]:
    """Yield each stretch of time that some times are in, and the places of those."""
    starts, which = np.unique(times // BUCKET_MS * BUCKET_MS, return_inverse=True)
    order = np.argsort(which, kind="stable")
    edges = np.searchsorted(which[order], np.arange(len(starts) + 1)).tolist()
    for start, (first, stop) in zip(starts.tolist(), pairwise(edges), strict=True):
        yield (start, start + BUCKET_MS), order[first:stop]
