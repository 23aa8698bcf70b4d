"""The regular join by columns: all rows of two changelogs that have equal keys and of which a condition holds, as a changelog.

State has of each side the different rows of each key with how many of each there are, and where rows of the side come out without a match,
or only with one, how many rows each of them matches. What a checkpoint changes is worked out at once: pairs of which either row
changed, how many of each there were and how many there are. So a pair that comes and goes within a checkpoint never shows, and of a
key what is taken away comes out before what is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import (
    Flags,
    Numbers,
    column_of,
    flags_in,
    indices_of,
    joined,
    numbers_in,
    valid_in,
)
from poundlock.operators.columns.changelog.signed import signs_of, taken
from poundlock.operators.columns.changelog.values import columns_text
from poundlock.operators.columns.encoding import encode_key_columns
from poundlock.operators.columns.groups import Hashes
from poundlock.operators.columns.joins.changed_rows import (
    JoinedRows,
    RowChanges,
    count_matches,
    numbered,
    pairs_of,
    stretches,
)
from poundlock.operators.columns.joins.sides import SIDES
from poundlock.operators.columns.operator import (
    DELETE,
    INSERT,
    ColumnChunk,
    TwoInputColumnOperator,
    change_chunks,
    change_schema,
    row_chunks,
)
from poundlock.operators.columns.records import decode_records, encode_records, joined_rows
from poundlock.operators.columns.rows.gathered import GatheredRows
from poundlock.operators.columns.rows.keys import NO_TIME, RowKeys
from poundlock.operators.columns.rows.map_table import (
    MAP,
    MapEntries,
    MapTable,
    entries_of,
    entry_hashes,
    hashes_within,
    no_entries,
)
from poundlock.operators.keyed.codec import canonical_key, decode
from poundlock.operators.keyed.group import KeyGroup
from poundlock.operators.pieces import PIECE_ROWS
from poundlock.stream.changelog_nodes import JoinKind, gives_changes, one_sided

Condition = Callable[[pa.RecordBatch], pa.Array]
_AT_ONCE = 1 << 20  # pairs that are looked at at a time, unless one key has more
_CHUNK_BYTES = 64 << 20  # of rows that come out at a time, about


@dataclass(frozen=True)
class ChangelogSide:
    """One input of a regular join. Picklable.

    Args:
        keys: of a row.
        schema: the columns that are kept of a row, without the kind of change.
        retracts: whether rows may be taken away.
        ttl_ms: time to live of a row after it was last changed, None for ever.
    """

    keys: RowKeys
    schema: pa.Schema
    retracts: bool
    ttl_ms: int | None = None


@dataclass(frozen=True)
class ColumnRegularJoin:
    """A regular join. Picklable.

    Args:
        sides: left and right.
        condition: what must hold of a pair, given a batch with the columns of both; None: nothing.
        null_equal: for each column of the key whether null equals null; none: null equals nothing.
        bounded: whether only what is left of the result at the end of the input is wanted.
    """

    kind: JoinKind
    sides: tuple[ChangelogSide, ChangelogSide]
    condition: Condition | None = None
    null_equal: tuple[bool, ...] = ()
    bounded: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out; those of left and right have different names."""
        left, right = (side.schema for side in self.sides)
        fields = list(left) if self.one_sided else [*left, *right]
        return change_schema(pa.schema(fields)) if self.retracts else pa.schema(fields)

    @property
    def one_sided(self) -> bool:
        """Whether left rows alone come out."""
        return one_sided(self.kind)

    @property
    def retracts(self) -> bool:
        """Whether what came out may be taken away again."""
        return gives_changes(self.kind, [side.retracts for side in self.sides])

    def padded(self, side: int) -> bool:
        """Return whether a row of a side comes out, or does not, because it has no match."""
        return self.kind in (("left", "full", "semi", "anti"), ("right", "full"))[side]

    def operator(self) -> ColumnRegularJoinOperator:
        """Return a new operator."""
        return ColumnRegularJoinOperator(self)


@dataclass(frozen=True)
class _Out:
    """Rows that come out, or are taken away: of each the place of its left row and of its right one, -1 for nulls."""

    left: Numbers
    right: Numbers
    kind: int


class ColumnRegularJoinOperator(TwoInputColumnOperator):
    """Joins side 0, left, with side 1, right."""

    def __init__(self, join: ColumnRegularJoin) -> None:
        super().__init__()
        self._join, self._schema = join, join.schema
        self._null_equal = join.null_equal or (False,) * len(join.sides[0].keys.columns)
        self._counts = [
            pa.schema([("rows", pa.int64()), *([("matches", pa.int64())] if join.padded(side) else [])])
            for side in (0, 1)
        ]
        self._tables = [
            MapTable(name, f"{MAP}joined rows", (columns_text(side.schema), columns_text(counts)), side.ttl_ms)
            for name, side, counts in zip(SIDES, join.sides, self._counts, strict=True)
        ]
        self._added = GatheredRows(2)
        self._at_end = join.bounded and join.retracts
        """Whether rows come out at the end of the input; of a join that takes nothing away again they do as they come."""

    def bind(self, group: KeyGroup) -> None:
        for table in self._tables:
            table.declare(group)
        if self._at_end and not all(table.is_empty(group) for table in self._tables):
            group.wake_at_end()

    def take_side(self, group: KeyGroup, rows: pa.RecordBatch, side: int) -> Iterator[ColumnChunk]:
        self.use(group)
        if self._added.add(rows, side):
            yield from self._work()

    def advance_watermark(self, group: KeyGroup, watermark: int) -> Iterator[Any]:
        self.use(group)
        yield from self._work()
        yield from super().advance_watermark(group, watermark)

    def store(self, group: KeyGroup) -> None:
        self.use(group)
        for table in self._tables:
            table.store(self.rows)

    # --- what changes ---------------------------------------------------------------------------------------------------

    def _work(self) -> Iterator[ColumnChunk]:
        """Join what came, and yield what changes of the result; keep it where only the last result is wanted."""
        added = self._added.take()
        if not any(added):
            return
        changes = [self._changes_of(side, batches) for side, batches in enumerate(added)]
        if not self._at_end:
            yield from self._joined(changes)
            return
        self.group.wake_at_end()
        for side, each in enumerate(changes):
            (own,), keys = numbered([each])
            self._put(side, self._rows_of(side, each, own, own[:0], keys))

    def on_timer(self, time: int, entry: Any, *, event: bool) -> Iterator[ColumnChunk]:  # type: ignore[override]
        """Yield the join of all rows that there are, at the end of the input."""
        changes = []
        for side, table in enumerate(self._tables):
            entries, values = table.entries(self.rows)
            table.drop(self.group)
            counts = numbers_in(decode_records(values, self._counts[side]).column(0))
            without = self._without_match(side, entries.keys)
            # The hash of an entry begins as that of its key does, on either side.
            hashes, _ = hashes_within(entries.hashes)
            changes.append(RowChanges(hashes, entries, counts, without).where(counts > 0))
        yield from self._joined(changes)
        for table in self._tables:
            table.drop(self.group)

    def _joined(self, changes: Sequence[RowChanges]) -> Iterator[ColumnChunk]:
        for side, each in enumerate(changes):
            yield from self._without_key(side, each.where(each.without))
        changes = [each.where(~each.without) for each in changes]
        numbers, keys = numbered(changes)
        if not len(keys[0]):
            return
        left, right = (self._rows_of(side, changes[side], numbers[side], numbers[1 - side], keys) for side in (0, 1))
        for first, stop in stretches(left, right, len(keys[0]), _AT_ONCE):
            yield from self._changed(left, right, first, stop)
        for side, rows in enumerate((left, right)):
            self._put(side, rows)

    def _null_keys(self, side: int, rows: pa.RecordBatch) -> Flags:
        """Return which rows have a key that equals no other."""
        without = np.zeros(rows.num_rows, np.bool_)
        for name, equal in zip(self._join.sides[side].keys.columns, self._null_equal, strict=True):
            valid = valid_in(rows.column(name))
            if valid is not None and not equal:
                without |= ~valid
        return without

    def _without_match(self, side: int, keys: pa.Array) -> Flags:
        """Return which keys, of which the bytes are given, equal no other; the columns they came of may be no part of the rows."""
        if all(self._null_equal):
            return np.zeros(len(keys), np.bool_)
        encoded = keys.dictionary_encode()
        values = [canonical_key(decode(data)) for data in encoded.dictionary.to_pylist()]
        of_key = [value if len(self._null_equal) > 1 else (value,) for value in values]
        flags = [
            any(part is None and not equal for part, equal in zip(parts, self._null_equal, strict=True))
            for parts in of_key
        ]
        without: Flags = np.array(flags, np.bool_)[numbers_in(encoded.indices)]
        return without

    def _without_key(self, side: int, changes: RowChanges) -> Iterator[ColumnChunk]:
        """Yield rows that cannot have a match; those that come out with a match alone never do."""
        if not len(changes) or not self._join.padded(side) or self._join.kind == "semi":
            return
        records = decode_records(changes.entries.subkeys, self._join.sides[side].schema)
        both = (records, self._nothing(1)) if side == 0 else (self._nothing(0), records)
        for kind in (DELETE, INSERT):
            times = np.maximum(-changes.added if kind == DELETE else changes.added, 0)
            own = np.repeat(np.arange(len(times)), times)
            none = np.full(len(own), -1)
            yield from self._emit(_Out(own, none, kind) if side == 0 else _Out(none, own, kind), both)

    def _nothing(self, side: int) -> pa.RecordBatch:
        """Return a row of nulls."""
        schema = self._join.sides[side].schema
        return pa.RecordBatch.from_arrays([pa.nulls(1, each.type) for each in schema], schema=schema)

    def _changes_of(self, side: int, batches: Sequence[pa.RecordBatch]) -> RowChanges:
        """Return how many of each row are added."""
        of = self._join.sides[side]
        if not batches:
            entries, nothing = no_entries(), np.empty(0, np.int64)
            return RowChanges(entries.hashes, entries, nothing, nothing.astype(np.bool_))
        rows = joined_rows(batches)
        keys = [rows.column(name) for name in of.keys.columns]
        hashes = of.keys.hash_keys(keys) if keys else np.zeros(rows.num_rows, np.uint64)
        encoded = encode_key_columns(keys or [pa.nulls(rows.num_rows)])
        records = encode_records(rows.select(of.schema.names).cast(of.schema))
        entries, first, which = entries_of(hashes, encoded, records, of.keys.hash_keys)
        added = np.zeros(len(entries), np.int64)
        np.add.at(added, which, signs_of(rows))
        return RowChanges(hashes[first], entries, added, self._null_keys(side, rows)[first]).where(added != 0)

    def _rows_of(
        self, side: int, changes: RowChanges, own: Numbers, others: Numbers, keys: tuple[Hashes, pa.Array]
    ) -> JoinedRows:
        """Return the rows of a side that changed, and all rows of the keys of which the other side has changes.

        Args:
            own: the number of the key of each changed row; `others`: of each of the other side.
            keys: hash and bytes of each key.
        """
        table, schema = self._tables[side], self._join.sides[side].schema
        asked = np.unique(others)
        at, subkeys, values = table.entries_within(self.rows, keys[0][asked], keys[1].take(indices_of(asked)))
        alone = np.flatnonzero(~np.isin(own, asked))
        places, own_values = table.look_up(self.rows, changes.entries.take(alone))
        known = alone[places]
        # First what state has, then what changes: of each key and row one of either at most.
        key_of = np.concatenate([asked[at], own[known], own])
        every = joined([subkeys, changes.entries.subkeys.take(indices_of(known)), changes.entries.subkeys])
        counts = decode_records(joined([values, own_values]), self._counts[side])
        held = len(counts)
        codes = every.dictionary_encode()
        words = key_of * (len(every) + 1) + numbers_in(codes.indices)
        different, first, which = np.unique(words, return_index=True, return_inverse=True)
        before, added, matches = (np.zeros(len(different), np.int64) for _ in range(3))
        before[which[:held]] = numbers_in(counts.column(0))
        if counts.num_columns > 1:
            matches[which[:held]] = numbers_in(counts.column(1))
        added[which[held:]] = changes.added
        numbers, rows = key_of[first], indices_of(first)
        encoded = every.take(rows)
        hashes = self._hashes_of(side, encoded, keys[0][numbers])
        entries = MapEntries(hashes, keys[1].take(indices_of(numbers)), encoded)
        return JoinedRows(numbers, entries, before, before + added, matches, decode_records(encoded, schema))

    def _hashes_of(self, side: int, records: pa.Array, hashes: Hashes) -> Hashes:
        return entry_hashes(hashes, self._join.sides[side].keys.hash_keys([records]))

    def _put(self, side: int, rows: JoinedRows) -> None:
        changed = rows.changed
        columns = [column_of(rows.after, pa.int64())]
        if self._join.padded(side):
            changed = changed | (rows.now != rows.matches)
            columns.append(column_of(rows.now, pa.int64()))
        places = np.flatnonzero(changed)
        places = places[np.argsort(rows.entries.hashes[places], kind="stable")]
        values = encode_records(pa.RecordBatch.from_arrays(columns, schema=self._counts[side]))
        self._tables[side].put(
            self.group, rows.entries.take(places), taken(values, np.where(rows.after[places] != 0, places, -1))
        )

    # --- pairs ----------------------------------------------------------------------------------------------------------

    def _changed(self, left: JoinedRows, right: JoinedRows, first: int, stop: int) -> Iterator[ColumnChunk]:
        """Yield what changes of the result of some keys, what is taken away first."""
        one, other = self._matched(left, right, first, stop)
        kind, both = self._join.kind, (left, right)
        if self._join.padded(0):
            count_matches(left, right, one, other)
        if self._join.padded(1):
            count_matches(right, left, other, one)
        out: list[tuple[Numbers, Numbers, Numbers]] = []  # the places of rows, and how many more of them there are
        if not self._join.one_sided:
            net = left.shown[one] * right.shown[other] - left.shown_before[one] * right.shown_before[other]
            out.append((one, other, net))
        for side, rows in enumerate(both):
            if self._join.padded(side):
                start, end = np.searchsorted(rows.keys, [first, stop])
                own = np.arange(start, end)
                wanted = kind == "semi"
                was = rows.shown_before[own] * ((rows.matches[own] > 0) == wanted)
                now = rows.shown[own] * ((rows.now[own] > 0) == wanted)
                none = np.full(len(own), -1)
                out.append((own, none, now - was) if side == 0 else (none, own, now - was))
        records = (left.records, right.records)
        for sign in (DELETE, INSERT):
            for lefts, rights, net in out:
                times = np.maximum(-net if sign == DELETE else net, 0)
                if times.any():
                    places = np.repeat(np.arange(len(net)), times)
                    yield from self._emit(_Out(lefts[places], rights[places], sign), records)

    def _matched(self, left: JoinedRows, right: JoinedRows, first: int, stop: int) -> tuple[Numbers, Numbers]:
        """Return the pairs of some keys of which either row changed and the condition holds."""
        one, other = (slice(*np.searchsorted(rows.keys, [first, stop]).tolist()) for rows in (left, right))
        lefts, rights = np.arange(one.start, one.stop), np.arange(other.start, other.stop)
        changed, others = left.changed[one], right.changed[other]
        pairs = [
            pairs_of(left.keys, right.keys, lefts[changed], rights),
            pairs_of(left.keys, right.keys, lefts[~changed], rights[others]),
        ]
        own, matched = (np.concatenate(each) for each in zip(*pairs, strict=True))
        condition = self._join.condition
        if condition is None or not len(own):
            return own, matched
        holds = []
        for start in range(0, len(own), PIECE_ROWS):
            columns = [
                column.take(indices_of(places[start : start + PIECE_ROWS]))
                for rows, places in ((left, own), (right, matched))
                for column in rows.records.columns
            ]
            schema = pa.schema([*left.records.schema, *right.records.schema])
            answer = condition(pa.RecordBatch.from_arrays(columns, schema=schema))
            valid = valid_in(answer)
            holds.append(flags_in(answer) if valid is None else flags_in(answer) & valid)
        true = np.concatenate(holds)
        return own[true], matched[true]

    def _emit(self, out: _Out, records: Sequence[pa.RecordBatch]) -> Iterator[ColumnChunk]:
        sides = (0,) if self._join.one_sided else (0, 1)
        width = 1 + sum(int(records[side].nbytes) // max(len(records[side]), 1) for side in sides)
        most = max(1, min(PIECE_ROWS, _CHUNK_BYTES // width))
        for start in range(0, len(out.left), most):
            some = [each[start : start + most] for each in (out.left, out.right)]
            columns = [_or_null(column, some[side]) for side in sides for column in records[side].columns]
            every = np.arange(len(some[0]))
            times = np.full(len(every), NO_TIME)
            if self._join.retracts:
                kinds = np.full(len(every), out.kind)
                yield from change_chunks(columns, self._schema, every, kinds, times)
            else:
                yield from row_chunks(pa.RecordBatch.from_arrays(columns, schema=self._schema), every, times)


def _or_null(column: pa.Array, places: Numbers) -> pa.Array:
    return taken(column, places) if len(column) else pa.nulls(len(places), column.type)
