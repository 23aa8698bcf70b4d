"""State as people read it: one key, all keys, timers, straight from the files. Nothing is changed, and no JVM is needed.

One key costs a look-up in each run of its key group, whatever there is besides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np

from poundlock.errors import DefinitionError
from poundlock.formats.arrays import binary_array
from poundlock.formats.convert import column_values
from poundlock.operators.columns.records import columns_of, decode_records
from poundlock.operators.columns.rows.map_table import MAP, hashes_within
from poundlock.operators.keyed.codec import canonical_key, decode, encode_key, normal_key
from poundlock.operators.keyed.group import MIN
from poundlock.state.hashing import groups_of, hashes_of
from poundlock.state.key_text import KEY_FORMS, KeyTypes
from poundlock.state.manifest import Fragment, Manifest, OperatorMeta, TableMeta, clip
from poundlock.state.runs.adding import added_up, stay_apart
from poundlock.state.runs.columns import Hashes, Rows
from poundlock.state.runs.compaction import CHUNK
from poundlock.state.runs.files import RunFiles
from poundlock.state.runs.lookup import TableView, View
from poundlock.state.runs.merge import in_chunks, merge_rows
from poundlock.state.runs.paging import will_read
from poundlock.state.runs.run import SectionKey
from poundlock.state.runs.timers import EVENT_TIMERS, PROCESSING_TIMERS, TimerView, timer_entries

_DOMAINS: tuple[tuple[Literal["event", "processing"], str], ...] = (
    ("event", EVENT_TIMERS),
    ("processing", PROCESSING_TIMERS),
)
_NO_WINDOW = object()
_SHARED = "broadcast:"  # what tables are called whose keys are not those of the records
_LOOK_AT = 64  # so many keys of a run tell the types of all


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """One entry of a table."""

    table: str
    key: Any
    # (start, end) in ms or the number of a count window, None for the global window and where there is none
    window: Any
    windowed: bool
    value: Any  # what is kept; [last touched in ms, value] where it has a time to live


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerEntry:
    """One timer, at a time in ms."""

    domain: Literal["event", "processing"]
    time: int
    key: Any
    window: Any


class StateReader:
    """Reads the state that a manifest names."""

    def __init__(self, manifest: Manifest, files: RunFiles) -> None:
        self.manifest = manifest
        self.files = files

    def entries(self, operator: str) -> Iterator[StateEntry]:
        """Yield every entry of an operator, table by table, by hash.

        Raises:
            DefinitionError: there is no state of such an operator.
            DamagedRunError: a file is missing or damaged.
        """
        for key, of, rows in self._rows(operator):
            subkeys = rows.subkeys_or_none().to_pylist()
            for data, subkey, value in zip(rows.keys.to_pylist(), subkeys, rows.values.to_pylist(), strict=True):
                yield from _listed(key, of, canonical_key(decode(data)), subkey, value)

    def count(self, operator: str) -> int:
        """Return how many entries an operator has; none but sessions is decoded. Raises as `entries`."""
        return sum(
            sum(len(decode(value)) for value in rows.values.to_pylist()) if of.kind == "sessions" else len(rows)
            for _, of, rows in self._rows(operator)
        )

    def _rows(self, operator: str) -> Iterator[tuple[SectionKey, TableMeta, Rows]]:
        """Yield the rows of an operator that are true, some at a time, so that memory does not follow the state."""
        for key, table, of in self._tables(self._meta(operator), self.manifest.fragments):
            for parts in in_chunks(table.parts, limit=CHUNK):
                for part in parts:
                    will_read(part)
                if of.merges:
                    yield key, of, added_up(parts, of.merges, drop_deleted=True)
                else:
                    yield key, of, merge_rows(parts, drop_deleted=True)

    def entries_of(self, operator: str, key: Any) -> Iterator[StateEntry]:
        """Yield the entries of one key; raises as `entries`.

        Args:
            key: as the records have it: a tuple where it is made of several columns.
        """
        meta = self._meta(operator)
        wanted = normal_key(key)
        hashes, encoded = hashes_of([wanted]), binary_array([encode_key(wanted)])
        for section, table, of in self._tables(meta, self._fragments_of(hashes)):
            if of.merges:
                table = _added_up(table, hashes, of.merges)
            seen: set[bytes] = set()
            apart = stay_apart(of.merges)
            if of.kind.startswith(MAP):
                matches = table.find_between(*hashes_within(hashes), encoded)
            else:
                matches = table.find(hashes, encoded, several=of.windowed or apart)
            for result in matches:
                subkeys = [b""] * len(result.values) if result.subkeys is None else result.subkeys.to_pylist()
                for subkey, value in zip(subkeys, result.values.to_pylist(), strict=True):
                    if (subkey not in seen or apart) and value is not None:
                        yield from _listed(section, of, wanted, subkey, value)
                    seen.add(subkey)

    def key_of(self, operator: str, text: str) -> Any:
        """Return the key that a text says, of the types that the operator's keys have: see `state.key_text`.

        Raises:
            DefinitionError: it cannot be one of them, or there is no state of such an operator.
            DamagedRunError: a file is missing or damaged.
        """
        known = self._key_types(self._meta(operator))
        try:
            return known.key_of(text)
        except ValueError:
            raise DefinitionError(
                f"{text!r} is no key of {operator}, whose keys are such as {known.example}", next=KEY_FORMS
            ) from None

    def _key_types(self, meta: OperatorMeta) -> KeyTypes:
        """Look at some keys of the first key groups that have any. What was deleted is of the same type."""
        keys: list[Any] = []
        others: list[Any] = []  # of tables that all tasks share, where there are none but these
        for fragment in self.manifest.fragments:
            for section, table, _ in self._tables(meta, [fragment]):
                some = others if section[1].startswith(_SHARED) else keys
                for part in table.parts:
                    some += [canonical_key(decode(data)) for data in part.keys.slice(0, _LOOK_AT).to_pylist()]
            known = KeyTypes(keys)
            if known.complete:
                return known
        return KeyTypes(keys or others)

    def timers(self, operator: str, key: Any = _NO_WINDOW) -> Iterator[TimerEntry]:
        """Yield the timers of an operator, or of one of its keys, in the order they fire; raises as `entries`.

        The timers of windows that lie the same for all keys are not among them: they follow from the windows there are.
        """
        meta = self._meta(operator)
        wanted = None if key is _NO_WINDOW else encode_key(normal_key(key))
        hashes = None if wanted is None else hashes_of([normal_key(key)])
        view = self._view(self.manifest.fragments if hashes is None else self._fragments_of(hashes))
        for domain, table in _DOMAINS:
            timers = TimerView(view, (meta.number, table, None))
            chosen = timers.all() if hashes is None else [timers.of_hash(hashes[0])]
            for time, data, subkey in chain.from_iterable(map(timer_entries, chosen)):
                if wanted is None or data == wanted:
                    window = canonical_key(decode(subkey)) if subkey else None
                    yield TimerEntry(domain=domain, time=time, key=canonical_key(decode(data)), window=window)

    def _meta(self, operator: str) -> OperatorMeta:
        meta = self.manifest.operators.get(operator)
        if meta is None:
            raise DefinitionError(
                f"there is no state of an operator {operator!r}",
                next=f"give one of: {', '.join(sorted(self.manifest.operators)) or 'none, the job keeps no state'}",
            )
        return meta

    def _fragments_of(self, hashes: Any) -> Sequence[Fragment]:
        group = int(groups_of(hashes, self.manifest.max_parallelism)[0])
        return clip(self.manifest.fragments, group, group + 1)

    def _view(self, fragments: Sequence[Fragment]) -> View:
        needed = {number for fragment in fragments for number in fragment.runs}
        names = {meta.number: name for name, meta in self.manifest.operators.items()}
        runs = self.files.open_all([file for file in self.manifest.files if file.id in needed], names)
        return View(fragments, runs, self.manifest.max_parallelism)

    def _tables(
        self, meta: OperatorMeta, fragments: Sequence[Fragment]
    ) -> Iterator[tuple[SectionKey, TableView, TableMeta]]:
        """Yield each table of an operator that has rows in some groups, broadcast ones too."""
        everywhere = [Fragment(0, self.manifest.max_parallelism, self.manifest.broadcast)]
        for view in (self._view(fragments), self._view(everywhere)):
            for key in sorted(view.section_keys(), key=lambda key: (key[1], key[2] is not None, key[2] or (0, 0))):
                table = view.table(key) if key[0] == meta.number and not key[1].startswith("timers:") else None
                if table is not None:
                    yield key, table, meta.tables.get(key[1], TableMeta())


def count_entries(manifest: Manifest, files: RunFiles, operator: str) -> int:
    """Return how many entries the tables of an operator have; takes and raises what `described` does."""
    return StateReader(manifest, files).count(operator)


def described(
    manifest: Manifest, files: RunFiles, operator: str, *key: Any, limit: int | None = None
) -> dict[str, Any]:
    """Return the state of an operator, or that of one key, as plain data.

    Args:
        key: one key, as the records have it; without one, all keys.
        limit: so many entries of a table, and timers of a kind, are listed at most, so that memory does not follow the state.

    Returns:
        `watermark`, `processing_time` (ms); `state`: by name `kind`, `ttl_ms`, `count` and `entries` of `key`, `window`,
        `windowed` and `value`; `event_timers` and `processing_timers`: `time`, `key`, `window`; `timers`: by kind how many.

    Raises:
        DefinitionError: there is no state of such an operator.
        DamagedRunError: a file is missing or damaged.
    """
    reader = StateReader(manifest, files)
    state: dict[str, dict[str, Any]] = {}
    for entry in reader.entries_of(operator, key[0]) if key else reader.entries(operator):
        meta = manifest.operators[operator].tables.get(entry.table, TableMeta())
        table = state.setdefault(entry.table, {"kind": meta.kind, "ttl_ms": meta.ttl_ms, "count": 0, "entries": []})
        table["count"] += 1
        if limit is None or table["count"] <= limit:
            table["entries"].append(
                {"key": entry.key, "window": entry.window, "windowed": entry.windowed, "value": entry.value}
            )
    timers: dict[str, list[dict[str, Any]]] = {"event": [], "processing": []}
    counts = Counter[str]()
    for timer in reader.timers(operator, *key):
        counts[timer.domain] += 1
        if limit is None or counts[timer.domain] <= limit:
            timers[timer.domain].append({"time": timer.time, "key": timer.key, "window": timer.window})
    of = manifest.operators[operator]
    return {
        "watermark": MIN if of.watermark is None else of.watermark,
        "processing_time": of.processing_time,
        "state": state,
        "event_timers": timers["event"],
        "processing_timers": timers["processing"],
        "timers": {domain: counts[domain] for domain in timers},
    }


def _added_up(table: TableView, hashes: Hashes, merges: tuple[str, ...]) -> TableView:
    """Return a table of the keys of one hash, their rows added up."""
    spans = [np.searchsorted(part.hashes, hashes[0], side) for part in table.parts for side in ("left", "right")]
    own = [part.slice(int(a), int(b)) for part, a, b in zip(table.parts, spans[::2], spans[1::2], strict=True)]
    return TableView([added_up(own, merges, drop_deleted=True)])


def _listed(section: SectionKey, meta: TableMeta, key: Any, subkey: bytes, value: bytes) -> Iterator[StateEntry]:
    _, table, namespace = section
    if stay_apart(meta.merges):  # a row of a join by columns, or what a function has added up
        columns = decode_records(binary_array([value]), columns_of(meta.merges[0]))
        row = {
            name: column_values(column)[0] for name, column in zip(columns.schema.names, columns.columns, strict=True)
        }
        windowed = meta.kind == "slices"
        window = namespace if windowed else None
        yield StateEntry(table=table, key=key, window=window, windowed=windowed, value=row)
        return
    stored = decode(value)
    if meta.kind == "sessions":  # the windows of a key are one entry: start, end and contents of each
        for start, end, held in stored:
            yield StateEntry(table=table, key=key, window=(start, end), windowed=True, value=held)
        return
    windowed = meta.windowed or meta.kind in ("panes", "slices", "joined slices")
    window = canonical_key(decode(subkey)) if meta.windowed else namespace
    yield StateEntry(table=table, key=key, window=window, windowed=windowed, value=stored)
