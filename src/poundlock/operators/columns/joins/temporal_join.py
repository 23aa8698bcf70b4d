"""The temporal join by columns: each left row with the version of its key that is true at its time.

Left rows wait in state, by time, until the watermark has reached them. Of a key state has the versions by their time. When the watermark
advances those are over that are older than the one that is true at it: no late row is joined with them, and they go away when the key is
worked on. A version that comes late is over with the next watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import Flags, Numbers, column_of, flags_in, indices_of, joined, numbers_in, valid_in
from poundlock.operators.columns.changelog.signed import taken
from poundlock.operators.columns.changelog.values import columns_text, encode_columns
from poundlock.operators.columns.encoding import encode_key_columns
from poundlock.operators.columns.joins.held_rows import HeldRows
from poundlock.operators.columns.joins.matching import TimedRows
from poundlock.operators.columns.joins.sides import SIDES
from poundlock.operators.columns.operator import ColumnChunk, TwoInputColumnOperator, row_chunks
from poundlock.operators.columns.over.lateness import keys_of
from poundlock.operators.columns.over.waiting import RowsByTime, row_layout
from poundlock.operators.columns.records import decode_records, encode_records
from poundlock.operators.columns.rows.keys import NO_TIME, RowKeys, RowsByKey, times_in
from poundlock.operators.columns.rows.map_table import MAP, MapTable, entries_of
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.pieces import PIECE_ROWS
from poundlock.operators.process.deduplicate import ROW_KIND

_AT = pa.schema([("at", pa.int64())])
_THERE = [pa.field("$there", pa.bool_()), pa.field("$as_of", pa.int64())]
_GONE = "-D"
_REPLACED = "-U"


@dataclass(frozen=True)
class TemporalSide:
    """One input. Picklable.

    Args:
        keys: of a row.
        schema: the columns of a row, without the kind of change.
        time: the column of event time.
    """

    keys: RowKeys
    schema: pa.Schema
    time: str


@dataclass(frozen=True)
class ColumnTemporalJoin:
    """A temporal join, and its rows as columns. Picklable.

    Args:
        operator_id: of the step, for messages.
        sides: left, and right of which rows are versions.
        kind: whether left rows without a version come out, with nulls.
        condition: what else must hold of a pair, given a batch with the columns of both; null is false. None: nothing.
    """

    operator_id: str
    sides: tuple[TemporalSide, TemporalSide]
    kind: Literal["inner", "left"]
    condition: Callable[[pa.RecordBatch], pa.Array] | None = None

    @property
    def out(self) -> pa.Schema:
        """The columns that come out."""
        return pa.schema([field for side in self.sides for field in side.schema])

    def operator(self) -> ColumnTemporalJoinOperator:
        """Return a new operator."""
        return ColumnTemporalJoinOperator(self)


@dataclass(frozen=True, slots=True)
class _Versions:
    """Versions of keys, by key and time: the key and the time of each, the watermark when it came, and its bytes."""

    of: Numbers
    times: Numbers
    as_of: Numbers
    values: pa.Array

    def over(self, watermark: int) -> Flags:
        """Return which are over, now that the watermark has advanced so far."""
        seen = self.as_of < watermark
        places = np.arange(len(self.of))
        last = np.full(int(self.of.max(initial=-1)) + 1, -1)
        true = np.flatnonzero(seen & (self.times <= watermark))
        last[self.of[true]] = true  # they ascend, so the last one of a key stays
        over: Flags = seen & (places < last[self.of])
        return over

    def where(self, flags: Flags) -> _Versions:
        """Return some of them."""
        if flags.all():
            return self
        places = np.flatnonzero(flags)
        return _Versions(self.of[flags], self.times[flags], self.as_of[flags], self.values.take(indices_of(places)))


class ColumnTemporalJoinOperator(TwoInputColumnOperator):
    """Joins side 0, left, with the versions of side 1, right."""

    def __init__(self, join: ColumnTemporalJoin) -> None:
        super().__init__()
        self._join, self._out = join, join.out
        left, right = join.sides
        self._waiting = RowsByTime(SIDES[0], "waiting rows", row_layout(left.schema, join.operator_id))
        self._version = pa.schema([*_THERE, *right.schema])
        self._table = MapTable("versions", f"{MAP}versions", (columns_text(_AT), columns_text(self._version)))
        self._changed: list[tuple[Any, pa.Array]] = []

    def bind(self, group: KeyGroup) -> None:
        self._waiting.bind(group)
        self._table.declare(group)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        self._waiting.store(group)
        self._table.store(self.rows)

    # --- rows as they come --------------------------------------------------------------------------------------------

    def take_side(self, group: KeyGroup, rows: pa.RecordBatch, side: int) -> Iterator[ColumnChunk]:
        self.use(group)
        of = self._join.sides[side]
        times = times_in(rows.column(of.time))
        if len(times) and times.max() == NO_TIME:
            raise DefinitionError(
                f"{self._join.operator_id}: a row of the {SIDES[side]} side has no event time",
                next=f"leave such rows out before it: … WHERE {of.time} IS NOT NULL",
            )
        columns = [rows.column(name) for name in of.keys.columns]
        hashes, keys = of.keys.hash_keys(columns), encode_key_columns(columns)
        if side == 0:
            records = rows.select(of.schema.names).cast(of.schema)
            self._waiting.added.append(TimedRows(hashes, keys, times, records))
        else:
            self._take_versions(group, rows, (hashes, keys), times)
        yield from ()

    def _take_versions(self, group: KeyGroup, rows: pa.RecordBatch, keys: tuple[Any, pa.Array], times: Numbers) -> None:
        of = self._join.sides[1]
        there, chosen = np.ones(rows.num_rows, np.bool_), np.ones(rows.num_rows, np.bool_)
        if ROW_KIND in rows.schema.names:
            kinds = rows.column(ROW_KIND).cast(pa.string()).dictionary_encode()
            names, codes = kinds.dictionary.to_pylist(), numbers_in(kinds.indices)
            # What replaces a version says its own time; that another one was before is known.
            chosen = ~np.isin(codes, [n for n, name in enumerate(names) if name == _REPLACED])
            there = ~np.isin(codes, [n for n, name in enumerate(names) if name == _GONE])
        as_of = column_of(np.full(rows.num_rows, group.watermark), pa.int64())
        columns = [column_of(there, pa.bool_()), as_of, *rows.select(of.schema.names).cast(of.schema).columns]
        values = encode_records(pa.RecordBatch.from_arrays(columns, schema=self._version))
        # Of equal times the last row counts.
        places = np.flatnonzero(chosen)[::-1]
        hashes, encoded = keys
        own = encoded.take(indices_of(places))
        subkeys = encode_columns(column_of(times[places], pa.int64()))
        entries, first, _ = entries_of(hashes[places], own, subkeys, of.keys.hash_keys)
        self._table.put(group, entries, values.take(indices_of(places[first])))
        self._changed.append((hashes[places], own))

    # --- rows that come out -------------------------------------------------------------------------------------------

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk] | None:  # type: ignore[override]
        """Do nothing: rows that wait are looked for when the watermark has advanced."""
        return None

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[Any]:
        before = group.watermark
        yield from super().advance_watermark(group, watermark)
        self.use(group)
        changed, self._changed = self._changed, []
        due = HeldRows(self._waiting.take_due(group, before) if group.watermark > before else [], self._left)
        hashes = [each for each, _ in changed] + ([due.hashes] if len(due) else [])
        if not hashes:
            return
        encoded = [each for _, each in changed] + ([due.keys] if len(due) else [])
        keys = keys_of(np.concatenate(hashes), joined(encoded))
        versions = self._versions(keys)
        if len(due):
            of = keys.groups.numbers[-len(due) :]
            yield from self._joined(due, of, versions.where(~versions.over(before)))
        self._drop_over(keys, versions)

    @property
    def _left(self) -> pa.Schema:
        return self._join.sides[0].schema

    def _versions(self, keys: RowsByKey) -> _Versions:
        of, subkeys, values = self._table.entries_within(self.rows, keys.hashes, keys.keys)
        times = numbers_in(decode_records(subkeys, _AT).column(0)).astype(np.int64)
        order = np.lexsort((times, of))
        values = values.take(indices_of(order))
        as_of = numbers_in(decode_records(values, self._version, [_THERE[1].name]).column(0))
        return _Versions(of[order], times[order], as_of, values)

    def _joined(self, due: HeldRows, of: Numbers, versions: _Versions) -> Iterator[ColumnChunk]:
        """Yield left rows, by time, with the version of each."""
        at = _version_at(versions, of, due.times)
        read = decode_records(versions.values, self._version)
        there = flags_in(read.column(0))
        at = np.where((at >= 0) & np.append(there, False)[at], at, -1)
        order = np.argsort(due.times, kind="stable")
        right = list(read.columns)[len(_THERE) :]
        for start in range(0, len(order), PIECE_ROWS):
            some = order[start : start + PIECE_ROWS]
            used = np.sort(some)
            records = due.records(used, self._left.names).take(indices_of(np.searchsorted(used, some)))
            places = at[some]
            places = np.where(self._holds(records, right, places), places, -1)
            shown = np.arange(len(some)) if self._join.kind == "left" else np.flatnonzero(places >= 0)
            columns = [column.take(indices_of(shown)) for column in records.columns]
            columns += [_or_null(column, places[shown]) for column in right]
            out = pa.RecordBatch.from_arrays(columns, schema=self._out)
            yield from row_chunks(out, np.arange(len(shown)), due.times[some[shown]])

    def _holds(self, left: pa.RecordBatch, right: Sequence[pa.Array], places: Numbers) -> Flags:
        """Return of which rows the version is one: no column of the key is null, and the condition holds."""
        holds: Flags = places >= 0
        for name in self._join.sides[0].keys.columns:
            valid = valid_in(left.column(name))
            if valid is not None:
                holds &= valid
        pairs = np.flatnonzero(holds)
        if self._join.condition is None or not len(pairs):
            return holds
        columns = [column.take(indices_of(pairs)) for column in left.columns]
        columns += [column.take(indices_of(places[pairs])) for column in right]
        answer = self._join.condition(pa.RecordBatch.from_arrays(columns, schema=self._out))
        valid = valid_in(answer)
        holds[pairs] = flags_in(answer) if valid is None else flags_in(answer) & valid
        return holds

    def _drop_over(self, keys: RowsByKey, versions: _Versions) -> None:
        """Remove the versions that are over."""
        gone = np.flatnonzero(versions.over(self.group.watermark))
        if not len(gone):
            return
        of = versions.of[gone]
        subkeys = encode_columns(column_of(versions.times[gone], pa.int64()))
        entries, _, _ = entries_of(
            keys.hashes[of], keys.keys.take(indices_of(of)), subkeys, self._join.sides[1].keys.hash_keys
        )
        self._table.put(self.group, entries, pa.nulls(len(entries), pa.large_binary()))


def _version_at(versions: _Versions, of: Numbers, times: Numbers) -> Numbers:
    """Return the place of the last version of each key that is not behind a time, -1 where there is none."""
    different, ranks = np.unique(np.concatenate([versions.times, times]), return_inverse=True)
    words = versions.of * len(different) + ranks[: len(versions.of)]
    at = np.searchsorted(words, of * len(different) + ranks[len(versions.of) :], "right") - 1
    known = np.append(versions.of, -1)[at] == of
    return np.where(known, at, -1)


def _or_null(column: pa.Array, places: Numbers) -> pa.Array:
    return taken(column, places) if len(column) else pa.nulls(len(places), column.type)
