"""Rows of each key in an order, with aggregates of those around each, by columns.

Rows wait in state, by time, until the watermark has reached them, or until the end of the input; those that come as they arrive do not
wait. Behind that state has of a key what its rows came to, where aggregates are of all rows, and else the rows that a frame may still reach:
the last ones, or those of a span of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError, TerminalError
from poundlock.formats.arrays import Flags, Numbers, column_of, indices_of, joined, numbers_in, texts_of
from poundlock.operators.columns.changelog.signed import SignedValues, not_taken_away, signs_of
from poundlock.operators.columns.changelog.values import ValueCounts, columns_text
from poundlock.operators.columns.groups import Groups, grouped
from poundlock.operators.columns.joins.held_rows import HeldRows, Part
from poundlock.operators.columns.joins.matching import TimedRows
from poundlock.operators.columns.operator import ColumnChunk, ColumnOperator, Slice, change_schema, row_chunks
from poundlock.operators.columns.over.last_rows import LastRows
from poundlock.operators.columns.over.lateness import FiredTimes, keys_of
from poundlock.operators.columns.over.order import PlacedRows, sorted_rows, spans_in
from poundlock.operators.columns.over.results import FramedResult, RunningResult, is_running
from poundlock.operators.columns.over.waiting import RowsByTime, row_layout
from poundlock.operators.columns.records import decode_records, encode_records
from poundlock.operators.columns.rows.gathered import GatheredRows
from poundlock.operators.columns.rows.keys import NO_TIME, RowKeys, RowsByKey, times_in
from poundlock.operators.columns.rows.table import KeyTable
from poundlock.operators.keyed.group import MAX, MIN, KeyGroup
from poundlock.operators.pieces import PIECE_ROWS
from poundlock.operators.process.deduplicate import ROW_KIND
from poundlock.stream.nodes import SortColumn
from poundlock.stream.over_nodes import OverCall

_AT_ONCE = 1 << 20  # rows that results are computed of at a time, unless they are of one key
_TIME, _FIRED = "$time", "$fired"

Firing = Literal["event_time", "arrival", "end"]


@dataclass(frozen=True)
class ColumnOver:
    """Aggregates of the rows around each row, and rows as columns. Picklable.

    Args:
        operator_id: of the step, for messages.
        keys: of a row.
        schema: the columns of rows.
        order: of the rows of a key; by event time its first column is that. Nothing for rows in order of arrival.
        firing: when rows come out.
        calls: the aggregates; by arrival their frames are of rows, or of a span of time on the clock.
        changes: whether the kind of change comes out behind the results.
        limit: how many rows come out at the end; None: all. `offset`: behind how many.
        ttl_ms: how long a key is known after its last row, None for ever.
    """

    operator_id: str
    keys: RowKeys
    schema: pa.Schema
    order: Sequence[SortColumn]
    firing: Firing
    calls: Sequence[OverCall] = ()
    changes: bool = False
    limit: int | None = None
    offset: int = 0
    ttl_ms: int | None = None

    @property
    def out(self) -> pa.Schema:
        """The columns that come out."""
        results = [pa.field(call.name, call.type) for call in self.calls]
        kept = pa.schema([*(field for field in self.schema if field.name != ROW_KIND), *results])
        return change_schema(kept) if self.changes or ROW_KIND in self.schema.names else kept

    def operator(self) -> ColumnOverOperator:
        """Return a new operator."""
        return ColumnOverOperator(self)


class ColumnOverOperator(ColumnOperator):
    """Aggregates of the rows around each row."""

    def __init__(self, of: ColumnOver) -> None:
        super().__init__()
        self._of, self._out = of, of.out
        self._at_end, self._arrives = of.firing == "end", of.firing == "arrival"
        self._waiting = RowsByTime("waiting", "waiting rows", row_layout(of.schema, of.operator_id))
        self._running = {n: RunningResult(c, of.schema) for n, c in enumerate(of.calls) if self._keeps_totals(c)}
        # In Flink rows of equal time are seen at once by LAG in a stream.
        by_time = of.firing == "event_time"
        self._framed = {
            n: FramedResult(c, of.schema, from_last=by_time) for n, c in enumerate(of.calls) if n not in self._running
        }
        self._keep_before()
        self._over: list[Slice] = []
        self._added = GatheredRows()

    def _keeps_totals(self, call: OverCall) -> bool:
        return not self._at_end and is_running(call)

    def _keep_before(self) -> None:
        """Set up what is kept of rows that came out."""
        of, running = self._of, self._running.values()
        fields = [pa.field(f"{each.call.name}.{n}", kind) for each in running for n, kind in enumerate(each.types)]
        self._totals_schema = pa.schema(fields)
        self._totals: KeyTable | None = None
        if fields:
            holds = (columns_text(self._totals_schema), *(_held_of(each.call) for each in running))
            self._totals = KeyTable("totals", "totals of rows", of.ttl_ms, holds)
        self._seen = {
            n: ValueCounts(n, _kind(each.call, of.schema), of.keys.hash_keys, of.ttl_ms, retracts=False)
            for n, each in self._running.items()
            if each.call.distinct and each.call.function not in ("min", "max")
        }
        framed = [] if self._at_end else [each.call for each in self._framed.values()]
        spans = [call.frame.preceding for call in framed if _by_span(call)]
        counts = [
            call.offset if call.function == "lag" else call.frame.preceding for call in framed if not _by_span(call)
        ]
        # Rows that are sorted keep the time of the last one alone.
        wanted = counts if framed or running or self._at_end or self._arrives else [1]
        self._last = self._fired = self._within = None
        if wanted:
            columns = [name for call in framed if not _by_span(call) for name in call.columns]
            self._last = LastRows(
                _chosen(of.schema, columns), max(n or 0 for n in wanted), of.keys.hash_keys, of.ttl_ms
            )
        if spans:
            self._span_ms = max(span or 0 for span in spans)
            schema = _chosen(of.schema, [name for call in framed if _by_span(call) for name in call.columns])
            schema = pa.schema([(_TIME, pa.int64()), (_FIRED, pa.int64()), *schema])
            self._within_schema = schema
            stay = self._span_ms + self._span_ms // 2 + 1
            layout = row_layout(schema, of.operator_id)
            self._within = RowsByTime("within", "rows of a span", layout, stay_ms=stay, by_clock=self._arrives)
            if not self._arrives:
                self._fired = FiredTimes(self._span_ms)
        self._by_watermark = bool(self._running) or any(call.function == "lag" for call in framed)
        """Whether rows are late that the watermark has reached."""

    def bind(self, group: KeyGroup) -> None:
        if not self._arrives:
            self._waiting.bind(group)
            if self._at_end and not self._waiting.is_empty(group):
                group.wake_at_end()
        if self._totals is not None:
            self._totals.declare(group)
        for values in self._seen.values():
            values.table.declare(group)
        if self._last is not None:
            self._last.declare(group)
        if self._within is not None:
            self._within.bind(group)
        if self._fired is not None:
            self._fired.declare(group)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        if not self._arrives:
            self._waiting.store(group)
        if self._totals is not None:
            self._totals.store(self.rows)
        for values in self._seen.values():
            values.table.store(self.rows)
        if self._last is not None:
            self._last.store(self.rows)
        if self._within is not None:
            self._within.store(group)
        if self._fired is not None:
            self._fired.store(self.rows)

    # --- rows as they come --------------------------------------------------------------------------------------------

    def take_rows(self, group: KeyGroup, rows: pa.RecordBatch) -> Iterator[ColumnChunk]:
        self.use(group)
        rows = rows.select(self._of.schema.names)
        if ROW_KIND in rows.schema.names and not self._at_end:
            raise TerminalError(
                f"{self._of.operator_id}: rows that change come in, and it takes insertions alone",
                next="aggregate or join them without it, or read an append-only table",
            )
        if self._at_end:
            self._waiting.added.append(self._timed(rows, np.zeros(rows.num_rows, np.int64)))
            group.wake_at_end()
        elif self._arrives:
            if self._added.add(rows):
                yield from self._arrived()
        else:
            self._wait(group, rows)

    def _timed(self, rows: pa.RecordBatch, times: Numbers) -> TimedRows:
        hashes, _ = self._of.keys.hashed(rows)
        keys = self._of.keys.encoded(rows, np.arange(rows.num_rows))
        return TimedRows(hashes, keys, times, rows.cast(self._of.schema))

    def _wait(self, group: KeyGroup, rows: pa.RecordBatch) -> None:
        times = times_in(rows.column(self._of.order[0].column))
        if len(times) and times.max() == NO_TIME:
            raise DefinitionError(
                f"{self._of.operator_id}: a row has no event time",
                next="leave such rows out before it: … WHERE time IS NOT NULL",
            )
        timed = self._timed(rows, times)
        late = self._late(group, timed)
        self.late_dropped += int(np.count_nonzero(late))
        timed = timed.where(~late)
        if len(timed):
            self._waiting.added.append(timed)
            if self._fired is not None:
                self._fired.take(group, keys_of(timed.hashes, timed.keys), timed.times)

    def _late(self, group: KeyGroup, rows: TimedRows) -> Flags:
        """Return which rows are late, see `OverNode`."""
        late: Flags = rows.times <= group.watermark
        if self._by_watermark:
            return late
        if self._fired is not None:  # some are, that the watermark has not reached
            return self._fired.late(group, keys_of(rows.hashes, rows.keys), rows.times)
        places = np.flatnonzero(late)
        if self._last is not None and len(places):
            some = rows.take(places)
            keys = keys_of(some.hashes, some.keys)
            held = self._last.of_keys(self.rows, keys)
            last = np.full(len(keys), MIN)
            np.maximum.at(last, held.of, held.times)
            late[places] = some.times <= last[keys.groups.numbers]
        return late

    # --- rows that come out -------------------------------------------------------------------------------------------

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[Any]:
        before = group.watermark
        yield from super().advance_watermark(group, watermark)
        self.use(group)
        if self._arrives:
            yield from self._arrived()
        elif group.watermark > before and (not self._at_end or group.watermark == MAX):
            yield from self._fire(self._waiting.take_due(group, MIN if self._at_end else before))
        self._drop_over()

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk] | None:  # type: ignore[override]
        """Note rows that no frame will reach any more; those that wait are looked for when the watermark has advanced."""
        name, bucket = entry
        if name == "within":
            self._over.append(bucket)
        return None

    def _drop_over(self) -> None:
        """Remove rows of a span that no frame reaches any more, now that all rows up to the watermark have come out."""
        over, self._over = self._over, []
        within = self._within
        if within is None:
            return
        for bucket in over:
            if self._fired is not None:
                for hashes, keys in within.keys_in(self.group, bucket):
                    self._fired.forget(self.group, keys_of(hashes, keys))
            within.drop(self.group, bucket)

    def _arrived(self) -> Iterator[ColumnChunk]:
        (added,) = self._added.take()
        clock = self.group.processing_time
        yield from self._fire([self._timed(rows, np.full(rows.num_rows, clock)) for rows in added])

    def _fire(self, parts: Sequence[Part]) -> Iterator[ColumnChunk]:
        """Yield rows with their results, and keep what later rows need."""
        held = HeldRows(parts, self._of.schema)
        if not len(held):
            return
        groups = grouped(held.hashes, held.keys)
        firsts = groups.firsts
        keys = RowsByKey(groups, held.hashes[firsts], held.keys.take(indices_of(firsts)))
        ends = np.cumsum(groups.counts)
        start = 0
        while start < len(keys):
            before = int(ends[start - 1]) if start else 0
            stop = max(int(np.searchsorted(ends, before + _AT_ONCE, "right")), start + 1)
            yield from self._fire_some(held, keys.slice(start, stop))
            start = stop

    def _fire_some(self, held: HeldRows, keys: RowsByKey) -> Iterator[ColumnChunk]:
        of_place = np.repeat(np.arange(len(keys)), keys.groups.counts)
        by_place = np.argsort(keys.groups.order, kind="stable")
        used, of = keys.groups.order[by_place], of_place[by_place]
        if not self._of.calls:
            yield from self._sorted(held, used, of)
            if self._last is not None:
                self._keep_last_time(held, keys)
            return
        rows, times = held.records(used, self._of.schema.names), held.times[used]
        if ROW_KIND in rows.schema.names:
            there = _net(rows, of)
            rows, times, of = rows.take(indices_of(there)), times[there], of[there]
            if not len(there):
                return
            kept, of = np.unique(of, return_inverse=True)
            keys = RowsByKey(keys.groups, keys.hashes[kept], keys.keys.take(indices_of(kept)))
        places, unlike = self._ordered(rows, times, of)
        of, times, rows = of[places], times[places], rows.take(indices_of(places))
        starts = np.searchsorted(of, np.arange(len(keys)))
        keys = RowsByKey(Groups(np.arange(len(of)), starts), keys.hashes, keys.keys)
        results = self._results(keys, rows, _Ordered(of, unlike, times))
        shown = [rows.column(field.name) for field in self._of.schema if field.name != ROW_KIND] + results
        if ROW_KIND in self._out.names:
            shown.append(_inserted(len(of)))
        out = pa.RecordBatch.from_arrays(shown, schema=self._out)
        order = np.arange(len(of)) if self._at_end else np.lexsort((places, times))
        yield from row_chunks(
            out, order, np.full(len(of), NO_TIME) if self._of.firing != "event_time" else times[order]
        )

    def _ordered(self, rows: pa.RecordBatch, times: Numbers, of: Numbers) -> tuple[Numbers, Flags]:
        """Return the places of rows by key and order, and which of those are unlike the one before."""
        order, columns = list(self._of.order), [rows.column(key.column) for key in self._of.order]
        if self._of.firing == "event_time":
            order[0], columns[0] = SortColumn(_TIME), column_of(times, pa.int64())
        places, unlike = sorted_rows(columns, order, of)
        if self._arrives and self._within is None:
            unlike = np.ones(len(of), np.bool_)
        return places, unlike

    def _sorted(self, held: HeldRows, used: Numbers, of: Numbers) -> Iterator[ColumnChunk]:
        """Yield rows in their order, reading them as they come out."""
        names = [key.column for key in self._of.order]
        names += [ROW_KIND] if ROW_KIND in self._of.schema.names else []
        if ROW_KIND in names:
            names = self._of.schema.names
        rows = held.records(used, list(dict.fromkeys(names)))
        if ROW_KIND in names:
            there = _net(rows, of)
            used, of, rows = used[there], of[there], rows.take(indices_of(there))
        places, _ = self._ordered(rows, held.times[used], of)
        last = None if self._of.limit is None else self._of.offset + self._of.limit
        chosen = used[places[self._of.offset : last]]
        fields = [field.name for field in self._of.schema if field.name != ROW_KIND]
        for start in range(0, len(chosen), PIECE_ROWS):
            some, which = np.unique(chosen[start : start + PIECE_ROWS], return_inverse=True)
            columns = held.records(some, fields).take(indices_of(which.reshape(-1))).columns
            columns += [_inserted(len(which))] if ROW_KIND in self._out.names else []
            batch = pa.RecordBatch.from_arrays(columns, schema=self._out)
            times = held.times[chosen[start : start + PIECE_ROWS]]
            times = times if self._of.firing == "event_time" else np.full(len(times), NO_TIME)
            yield from row_chunks(batch, np.arange(len(which)), times)

    def _keep_last_time(self, held: HeldRows, keys: RowsByKey) -> None:
        assert self._last is not None
        firsts = keys.groups.starts
        times = np.maximum.reduceat(held.times[keys.groups.order], firsts)
        alone = RowsByKey(Groups(np.arange(len(keys)), np.arange(len(keys))), keys.hashes, keys.keys)
        before = self._last.of_keys(self.rows, alone)
        self._last.put(self.group, alone, before, pa.RecordBatch.from_arrays([], schema=self._last.schema), times)

    # --- results ------------------------------------------------------------------------------------------------------

    def _results(self, keys: RowsByKey, rows: pa.RecordBatch, ordered: _Ordered) -> list[pa.Array]:
        """Return the results of rows, and keep what later rows need."""
        results: dict[int, pa.Array] = {}
        if self._running:
            results |= self._run_on(keys, rows, ordered)
        spans = self._spans(rows, ordered)
        by_span = [n for n, each in self._framed.items() if not self._at_end and _by_span(each.call)]
        by_count = [n for n in self._framed if n not in by_span]
        if by_count and self._last is None:
            placed = ordered.behind(np.empty(0, np.int64), len(keys))
            results |= {n: self._framed[n].results(rows, placed, None, spans) for n in by_count}
        elif by_count and self._last is not None:
            last = self._last.of_keys(self.rows, keys)
            placed = ordered.behind(last.of, len(keys))
            results |= {n: self._framed[n].results(rows, placed, last.rows, None) for n in by_count}
            self._last.put(self.group, keys, last, rows, ordered.times)
        if by_span and self._within is not None:
            held, of = self._reached(self._within, keys, ordered.times)
            placed = ordered.behind(of, len(keys))
            before = placed.column(held.column(0), column_of(ordered.times, pa.int64()))
            results |= {n: self._framed[n].results(rows, placed, held, numbers_in(before)) for n in by_span}
            self._keep_within(self._within, keys, rows, ordered)
        return [results[n] for n in range(len(self._of.calls))]

    def _spans(self, rows: pa.RecordBatch, ordered: _Ordered) -> Numbers | None:
        """Return what bounds of spans are of, at the end of the input."""
        if not self._at_end or not self._of.order:
            return None
        key = self._of.order[0]
        return spans_in(rows.column(key.column), key)

    def _run_on(self, keys: RowsByKey, rows: pa.RecordBatch, ordered: _Ordered) -> dict[int, pa.Array]:
        assert self._totals is not None
        places, values = self._totals.look_up(self.rows, keys)
        held = decode_records(values, self._totals_schema).columns
        placed = ordered.behind(places, len(keys))
        results: dict[int, pa.Array] = {}
        kept: list[pa.Array] = []
        at = 0
        for n, each in self._running.items():
            shown = each.shown(rows, placed)
            if n in self._seen:
                shown &= self._first_seen(n, each.call, keys, rows, ordered.of, shown)
            width = len(each.types)
            results[n], totals = each.results(rows, shown, placed, held[at : at + width])
            kept += totals
            at += width
        batch = pa.RecordBatch.from_arrays(kept, schema=self._totals_schema)
        self._totals.put(self.group, keys.hashes, keys.keys, encode_records(batch))
        return results

    def _first_seen(
        self, number: int, call: OverCall, keys: RowsByKey, rows: pa.RecordBatch, of: Numbers, shown: Flags
    ) -> Flags:
        """Return which rows are the first of their key with their value."""
        places = np.flatnonzero(shown)
        values = rows.column(call.column).take(indices_of(places))
        signed = SignedValues(values, np.ones(len(places), np.int64), of[places], len(keys))
        changes = self._seen[number].fold(self.rows, keys, signed)
        first = np.zeros(len(shown), np.bool_)
        first[places[changes.first[changes.appeared]]] = True
        return first

    def _reached(self, within: RowsByTime, keys: RowsByKey, times: Numbers) -> tuple[pa.RecordBatch, Numbers]:
        """Return the rows that came out before and that frames reach, by key and time, and the key of each."""
        parts = within.of_keys(self.group, np.unique(keys.hashes), int(times.min()) - self._span_ms, int(times.max()))
        held = HeldRows(parts, self._within_schema)
        if not len(held):
            nothing = [pa.nulls(0, field.type) for field in self._within_schema]
            return pa.RecordBatch.from_arrays(nothing, schema=self._within_schema), np.empty(0, np.int64)
        rows = held.records(np.arange(len(held)), self._within_schema.names)
        hashes = np.concatenate([keys.hashes, held.hashes])
        groups = grouped(hashes, joined([keys.keys, held.keys]))
        # Each group that has one of the keys begins with it; others share its hash alone.
        of_group = np.where(groups.firsts < len(keys), groups.firsts, -1)
        of = np.empty(len(hashes), np.int64)
        of[groups.order] = np.repeat(of_group, groups.counts)
        of = of[len(keys) :]
        order = np.lexsort((held.times, of))
        order = order[of[order] >= 0]
        if self._fired is not None:  # what came out before a key was forgotten is forgotten
            born = self._fired.born(self.group, keys)
            order = order[numbers_in(rows.column(1))[order] > born[of[order]]]
        return rows.take(indices_of(order)), of[order]

    def _keep_within(self, within: RowsByTime, keys: RowsByKey, rows: pa.RecordBatch, ordered: _Ordered) -> None:
        fired = np.full(len(ordered.times), self.group.watermark)
        columns = [column_of(ordered.times, pa.int64()), column_of(fired, pa.int64())]
        columns += [rows.column(field.name) for field in list(self._within_schema)[2:]]
        records = pa.RecordBatch.from_arrays(columns, schema=self._within_schema)
        own = keys.keys.take(indices_of(ordered.of))
        within.added.append(TimedRows(keys.hashes[ordered.of], own, ordered.times, records))
        if self._fired is not None:
            self._fired.fired(self.group, keys, ordered.times[keys.groups.starts + keys.groups.counts - 1])


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Rows in order: the key of each, which are unlike the one before, and their times."""

    of: Numbers
    unlike: Flags
    times: Numbers

    def behind(self, held_of: Numbers, keys: int) -> PlacedRows:
        return PlacedRows.behind(held_of, self.of, self.unlike, keys)


def _held_of(call: OverCall) -> str:
    """Return what state has of an aggregate, as its manifest says it."""
    return call.describe() if call.own is None else f"{call.describe()}: {call.own.described}"


def _by_span(call: OverCall) -> bool:
    return call.function not in ("lag", "lead") and call.frame.unit == "range"


def _kind(call: OverCall, schema: pa.Schema) -> pa.DataType:
    return schema.field(call.column).type


def _chosen(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in dict.fromkeys(names)])


def _inserted(count: int) -> pa.Array:
    return texts_of(["+I"]).take(indices_of(np.zeros(count, np.int64)))


def _net(rows: pa.RecordBatch, of: Numbers) -> Numbers:
    """Return the places of rows that were not taken away; of equal ones that which came first goes."""
    signs = signs_of(rows)
    if not (signs < 0).any():
        return np.arange(len(signs))
    whole = encode_records(rows.drop_columns([ROW_KIND])).dictionary_encode()
    return not_taken_away(of * max(len(whole.dictionary), 1) + numbers_in(whole.indices), signs)
