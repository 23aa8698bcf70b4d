"""The state of one operator in one task: all its key groups as the one `KeyGroup` that operators work on.

What is read comes from runs, by the keys in use; what was changed is handed out once, at the end of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import proxy

import numpy as np
import pyarrow as pa

from poundlock.formats.arrays import Numbers, binary_array, indices_of, joined, ranks_of
from poundlock.operators.keyed.group import MIN, KeyGroup, Table, Timers
from poundlock.state.manifest import OperatorChange, OperatorMeta, TableMeta, TimerBound
from poundlock.state.runs.adding import added_up
from poundlock.state.runs.columns import Hashes, Rows, empty_rows, is_valid
from poundlock.state.runs.lookup import Matches, TableView, View
from poundlock.state.runs.merge import merge_rows
from poundlock.state.runs.run import Removal, SectionKey
from poundlock.state.runs.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerView
from poundlock.state.tables import KeysInUse, StoredTable, StoredTimers, TableWork

_TIMERS = EVENT_TIMERS, PROCESSING_TIMERS


class OperatorState(KeyGroup):
    """Key groups `first` to `stop` - 1 of an operator. `watermark`: event time in ms that elements are judged by."""

    def __init__(
        self,
        meta: OperatorMeta,
        view: View,
        broadcast: View,
        *,
        groups: tuple[int, int],
        watermark: int,
        processing_time: int,
        work: TableWork,
    ) -> None:
        super().__init__(groups[0], watermark=watermark, processing_time=processing_time)
        self.clock_before = MIN if meta.processing_time is None else meta.processing_time
        self.operator = meta.number
        self.arrived = meta.arrived or 0
        self._known = meta
        self._view, self._broadcast = view, broadcast
        self._groups = groups
        self._work = work
        self._declared: dict[str, TableMeta] = dict(meta.tables)
        self._keys = KeysInUse(*groups, view.max_parallelism)
        self._everyone = KeysInUse(0, view.max_parallelism, view.max_parallelism)  # keys of broadcast state
        self._everyone.add([None])
        self._stored: dict[tuple[str, Any], StoredTable] = {}
        self._gone: set[tuple[str, Any]] = set()  # namespaces that were dropped
        self._appended: dict[tuple[str, Any], Callable[[], Any]] = {}
        self._loaded = 0
        self._used = False
        self.due: Callable[[int], int] = lambda time: time
        """Tells the instant, ms, at which a timer is due: of an operator whose times are no instants another one."""
        views = [TimerView(view, (self.operator, name, None)) for name in _TIMERS]
        # Not in a circle, or what a checkpoint touched would stay in memory until a whole collection of garbage.
        this = proxy(self)
        self._timers = [StoredTimers(v, lambda keys: this.prefetch(keys), lambda: this.timer_entries) for v in views]

    def prefetch(self, keys: Iterable[Any]) -> None:
        """Read the entries of some keys, of every table that is not of one window, and of those when they are asked for."""
        self._used = True
        self._keys.add(keys)
        if self._loaded != len(self._keys.batches):
            self._loaded = len(self._keys.batches)
            for (_, namespace), table in self._stored.items():
                if namespace is None:
                    table.load()

    def table(self, name: str, namespace: Any = None) -> Table:
        """Return a table: the entries of the keys in use. Going through it reads the rest."""
        self._used = True
        table = self._stored.get((name, namespace))
        if table is None:
            table = self._stored[name, namespace] = self._opened(name, namespace)
        table.load()
        return table

    def _opened(self, name: str, namespace: Any) -> StoredTable:
        meta = self._declared.get(name, TableMeta())
        runs, keys = (self._broadcast, self._everyone) if meta.broadcast else (self._view, self._keys)
        gone = (name, namespace) in self._gone
        view = None if gone else runs.table((self.operator, name, namespace))
        if view is not None and meta.merges:
            view = TableView([added_up(view.parts, meta.merges, drop_deleted=True)])
        return StoredTable(view, keys, meta.windowed, self._work)

    def namespaces(self, name: str) -> list[Any]:
        """Return the windows that have a table of a name, in order; one that was emptied key by key may be among them."""
        stored = {key[2] for key in self._view.section_keys() if key[:2] == (self.operator, name)}
        there = {space for space in stored if self._view.table((self.operator, name, space)) is not None}
        there -= {space for of, space in self._gone if of == name}
        there |= {space for (of, space), table in self._stored.items() if of == name and dict.__len__(table)}
        there |= {space for of, space in self._appended if of == name}
        return sorted(there, key=lambda space: (space is not None, space))

    def drop(self, name: str, namespace: Any = None) -> None:
        """Remove a table as a whole, whatever its size."""
        self._stored.pop((name, namespace), None)
        self._appended.pop((name, namespace), None)
        self._gone.add((name, namespace))

    def declare(
        self,
        name: str,
        kind: str,
        ttl_ms: int | None = None,
        *,
        windowed: bool = False,
        broadcast: bool = False,
        merges: tuple[str, ...] = (),
        holds: tuple[str, ...] = (),
        replaces: tuple[str, ...] = (),
    ) -> None:
        """Say what a table holds; see `KeyGroup.declare`."""
        known = self._declared.get(name)
        if known is not None and name not in self.meta:
            self.meta[name] = {
                "kind": known.kind,
                "ttl_ms": known.ttl_ms,
                "windowed": known.windowed,
                "merges": known.merges,
                "holds": known.holds,
            }
        super().declare(
            name, kind, ttl_ms, windowed=windowed, broadcast=broadcast, merges=merges, holds=holds, replaces=replaces
        )
        self._declared[name] = TableMeta(
            kind=kind, ttl_ms=ttl_ms, windowed=windowed, broadcast=broadcast, merges=merges, holds=holds
        )

    def merging(self, kind: str) -> dict[str, tuple[str, ...]]:
        """Return the tables of a kind; see `KeyGroup.merging`."""
        return {name: meta.merges for name, meta in self._declared.items() if meta.kind == kind}

    def rows_of(self, name: str, namespace: Any = None) -> Sequence[Rows]:
        """Return what runs have of a table, oldest first, each by hash; of one that is added up only what counts."""
        return self._parts_of(name, namespace)[::-1]

    def _parts_of(self, name: str, namespace: Any) -> Sequence[Rows]:
        """Return what `rows_of` does, newest first, as whatever looks for what is true wants it."""
        self._used = True
        view = None if (name, namespace) in self._gone else self._view.table((self.operator, name, namespace))
        if view is None:
            return []
        merges = self._declared[name].merges
        if merges and any(part.values.null_count for part in view.parts):  # a person wrote a whole
            return [added_up(view.parts, merges, drop_deleted=True)]
        return view.parts

    def entries_of(self, name: str, namespace: Any) -> Rows:
        """Return the rows of a table that runs have and that are true, by hash."""
        return merge_rows(self._parts_of(name, namespace), drop_deleted=True)

    def look_up(self, name: str, namespace: Any, hashes: Hashes, keys: pa.Array) -> tuple[Numbers, Rows]:
        """Return the rows of some keys that runs have and that are true, and before them the number of each one's key.

        Args:
            hashes: of the keys, ascending.
            keys: their bytes, large_binary.
        """
        return _newest_of(TableView(self._parts_of(name, namespace)).find(hashes, keys, several=True), hashes, keys)

    def look_up_between(
        self, name: str, namespace: Any, first: Hashes, last: Hashes, keys: pa.Array
    ) -> tuple[Numbers, Rows]:
        """Return what `look_up` does, of keys whose rows have hashes from a first to a last one; the rows' hashes are the first.

        Args:
            first: the least hash that rows of each key may have, in any order.
            last: the greatest one.
            keys: their bytes, large_binary.
        """
        return _newest_of(TableView(self._parts_of(name, namespace)).find_between(first, last, keys), first, keys)

    def values_of(self, name: str, namespace: Any, hashes: Hashes, keys: pa.Array) -> tuple[Numbers, pa.Array]:
        """Return the numbers of those keys that runs have an entry of, ascending, and the values; of a table of one entry a key.

        Args:
            hashes: of the keys, ascending.
            keys: their bytes, large_binary.
        """
        matches = list(TableView(self._parts_of(name, namespace)).find(hashes, keys, several=False))
        if not matches:
            return np.empty(0, np.int64), binary_array([])
        places = np.concatenate([match.places for match in matches])
        values = joined([match.values for match in matches])
        there = np.flatnonzero(is_valid(values))
        rows = there[np.argsort(places[there], kind="stable")]
        return places[rows], values.take(indices_of(rows))

    def append(self, name: str, namespace: Any, pending: Callable[[], Any]) -> None:
        """Put rows beside those that runs have of a table; they are asked for at the end of the checkpoint."""
        self._used = True
        self._appended[name, namespace] = pending

    @property
    def event_timers(self) -> Timers:
        """The timers that fire when the watermark reaches them."""
        self._used = True
        return self._timers[0]

    @property
    def processing_timers(self) -> Timers:
        """The timers that fire when the clock reaches them."""
        self._used = True
        return self._timers[1]

    def is_empty(self) -> bool:
        """Return whether there is neither an entry nor a timer."""
        names = {name for name, _ in self._stored} | {key[1] for key in self._view.section_keys()}
        tables = [self.table(n, s) for n in names if not n.startswith("timers:") for s in self.namespaces(n)]
        return not any(map(len, tables)) and not self.event_timers and not self.processing_timers

    # --- the end of the checkpoint --------------------------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[str, TableMeta]:
        """What is known of each table."""
        return self._declared

    def changed_tables(self, *, broadcast: bool) -> Iterator[tuple[SectionKey, TableMeta, Rows]]:
        """Yield what was changed in each table, in no order of rows."""
        for (name, namespace), table in self._stored.items():
            meta = self._declared.get(name, TableMeta())
            if meta.broadcast is broadcast:
                rows = table.changes(meta)
                if rows is not None:
                    yield (self.operator, name, namespace), meta, rows
        if not broadcast:
            for (name, namespace), pending in self._appended.items():
                hashes, keys, values, subkeys, times = pending()
                self._work.encoded += len(hashes)
                yield (self.operator, name, namespace), self._declared[name], Rows(hashes, keys, subkeys, values, times)

    def changed_timers(self, checkpoint: int) -> Iterator[tuple[SectionKey, Rows]]:
        """Yield the timers that were registered or deleted. Those of windows of all keys follow from the windows there are."""
        if self.timer_entries == "windows":
            return
        for name, timers in zip(_TIMERS, self._timers, strict=True):
            rows = timers.changes(self._keys, checkpoint)
            if rows is not None:
                yield (self.operator, name, None), rows

    def cuts(self) -> Iterator[Removal]:
        """Yield what older runs hold that is gone."""
        for name, namespace in sorted(self._gone, key=repr):
            yield Removal(self.operator, name, namespace, *self._groups)
        for name, timers in zip(_TIMERS, self._timers, strict=True):
            fired = timers.fired_up_to()
            if fired is not None:
                yield Removal(self.operator, name, None, *self._groups, fired)

    def timer_bound(self) -> TimerBound | None:
        """Return when the first timers are due; None if the operator did nothing, so that what was known stays true."""
        if not self._used:
            return None
        event, processing = (
            None if (time := timers.next_time()) is None else self.due(time) for timers in self._timers
        )
        return TimerBound(self.operator, *self._groups, event, processing)

    def change(self) -> OperatorChange:
        """Return what became of the operator itself."""
        known = self._known
        return OperatorChange(
            tables={name: meta for name, meta in self._declared.items() if known.tables.get(name) != meta},
            watermark=self.watermark if self.watermark != known.watermark else None,
            processing_time=self.processing_time if self.processing_time != known.processing_time else None,
            arrived=self.arrived if self.arrived != (known.arrived or 0) else None,
        )


def _newest_of(each_run: Iterable[Matches], hashes: Hashes, keys: pa.Array) -> tuple[Numbers, Rows]:
    """Return the rows that are true, of some that come newest first, and before them the number of each one's key."""
    matches = list(each_run)
    if not matches:
        return np.empty(0, np.int64), empty_rows()
    places = np.concatenate([match.places for match in matches])
    subkeys = pa.concat_arrays([match.subkeys for match in matches])
    values = pa.concat_arrays([match.values for match in matches])
    order = ranks_of(subkeys)[0]
    # Of a key and subkey the first is the newest.
    _, first = np.unique(places * (int(order.max()) + 1) + order, return_index=True)
    first = first[is_valid(values)[first]]
    indices, own = indices_of(first), places[first]
    return own, Rows(hashes[own], keys.take(indices_of(own)), subkeys.take(indices), values.take(indices))
