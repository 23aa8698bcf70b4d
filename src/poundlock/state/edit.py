"""State that a person writes: one key, or the rows of a Parquet file, as one more run on top of what there is.

Nothing that exists is changed. The files that are written count only once the new manifest is recorded, under names that no
attempt of a task has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from operator import index
from typing import Any

import msgspec

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.codec import normal_key
from poundlock.operators.pieces import rows_of_row_group
from poundlock.state.edited_values import check_value
from poundlock.state.inspect import StateReader
from poundlock.state.manifest import Manifest, TableMeta
from poundlock.state.operator_state import OperatorState
from poundlock.state.participant import StateParticipant
from poundlock.state.runs.adding import stay_apart
from poundlock.state.runs.files import RunFiles
from poundlock.state.task_state import TaskState

_VALUES = ("value", "list", "map", "reducing", "aggregating", "rolling", "counted", "counts", "last")
_WINDOWS = ("panes", "slices", "sessions", "spans", "windows")
_REASONS = {
    "evictable windows": "it holds elements with their times, of which an evictor chooses",
    "purged spans": "its sessions came out, and hold nothing until a row comes",
    "merging windows": "it says which windows a key has, and follows from what they hold",
    "interval join": "it holds the rows of two streams, each with a timer",
    "sliding counts": "it holds what the last rows of a key add up to in parts, which rows make",
    "seen": "it says of which keys the first record has come out",
    "waits": "it says for which time the first record of a key waits",
    "waiting": "it holds the records that wait for the watermark, by time",
    "waiting rows": "it holds the rows that wait for the watermark, by time",
    "rows of a span": "it holds rows that came out, by time",
    "totals of rows": "it holds what the rows of a key come to, which rows make",
    "timers of keys": "it says when timers of keys fire, which follows from their rows",
    "map of last rows": "it holds rows that came out, in their order",
    "map of ranked rows": "its rows stand in their order, which rows make",
    "map of versions": "it holds the versions of rows by time",
    "top": "its records stand in their order, which records make",
    "joined rows": "it holds the rows of two streams",
    "joined slices": "it holds the rows of two streams",
}
Windows = Callable[[Any], Mapping[Any, Any]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class KeyInWindow:
    """A key in one of the windows that are open."""

    key: Any  # as the records have it
    start: int  # of the window, ms since the epoch
    end: int | None = None  # of it; None where its start tells it from others

    @classmethod
    def of(cls, key: Any, window: Any) -> KeyInWindow:
        """Return a key in a window as people write it: its start, or [start, end], in ms or as ISO texts. Raises DefinitionError."""
        times = window if isinstance(window, list) else [window]
        try:
            return cls(key, *map(_ms, times))
        except (TypeError, ValueError):
            raise DefinitionError(
                f"{window!r} is no window", next='give its start, or [start, end]: ms, or "2018-12-19T05:30:00Z"'
            ) from None

    def one_of(self, windows: Mapping[tuple[int, int], Any], operator: str) -> Any:
        """Return what belongs to the window, of those that are there. Raises DefinitionError."""
        chosen = [w for w in windows if isinstance(w, tuple) and w[0] == self.start and self.end in (None, w[1])]
        if len(chosen) == 1:
            return windows[chosen[0]]
        there = ", ".join(f"[{w[0]}, {w[1]}]" for w in windows if isinstance(w, tuple))
        raise DefinitionError(
            f"{operator} has {'several windows' if chosen else 'no open window'} of {self.key!r} from {self.start} on:"
            " a window is opened by its first element",
            next=f"give one of those that are there: {there or 'none'}",
        )


def _ms(time: Any) -> int:
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    if isinstance(time, datetime):
        return (time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) // timedelta(milliseconds=1)
    return index(time)


class StateEditor:
    """Writes entries of the state that a manifest names.

    Args:
        attempt: a text that nothing else that writes there has.
        now: the clock in ms, which state with a time to live counts from.
        slots: operators whose accumulators are lists of one length.
    """

    def __init__(
        self,
        manifest: Manifest,
        participant: StateParticipant,
        files: RunFiles,
        *,
        attempt: str,
        now: int,
        slots: Collection[str] = (),
    ) -> None:
        self._manifest = manifest
        self._participant = participant
        self._files = files
        self._now = now
        self._slots = slots
        self._directive = participant.directive(manifest, checkpoint=manifest.checkpoint, parallelism=1)
        self._task = TaskState(self._directive, 0, files, attempt)

    def put(self, operator: str, table: str, key: Any, value: Any) -> None:
        """Give a key another value.

        Args:
            table: name of the state, such as "state:count".
            key: as the records have it: a tuple where it is made of several columns; a KeyInWindow of what is kept by window;
                of broadcast state a key of its map.
            value: what the state is to hold: a list for list state, a dict for map state, the accumulator for others.

        Raises:
            DefinitionError: there is no such operator or state, or state of that kind is not written by people.
        """
        self._put(operator, table, [key], [value])

    def delete(self, operator: str, table: str, key: Any) -> None:
        """Remove the value of a key; nothing happens if it has none. Raises as `put`."""
        state, meta = self._opened(operator, table)
        state.prefetch([_plain(key)])
        place, entry, _ = self._place(state, operator, table, meta, key, _open_windows(state, table, meta))
        if meta.kind != "sessions":
            place.pop(entry, None)
            return
        held = state.table(table)
        held[_plain(key)] = left = [session for session in held[_plain(key)] if session is not place]
        if not left:
            del held[_plain(key)]

    def put_parquet(
        self,
        operator: str,
        table: str,
        path: str,
        *,
        keys: Sequence[str],
        value: str | None = None,
        window: str | None = None,
    ) -> int:
        """Give keys the values of a Parquet file; return how many rows it has.

        Raises:
            DefinitionError: a column is missing, or as of `put`.
        """
        import pyarrow.parquet as pq

        from poundlock.formats.convert import column_values

        rows = 0
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            missing = [name for name in (*keys, value, window) if name is not None and name not in names]
            if missing:
                raise DefinitionError(
                    f"{path} has no column {', '.join(missing)}", next=f"it has: {', '.join(names) or 'none'}"
                )
            for batch in _batches(file):
                columns = {name: column_values(batch.column(name)) for name in names}
                parts = [columns[name] for name in keys]
                result = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
                if window is not None:
                    result = list(map(KeyInWindow.of, result, columns[window]))
                if value is not None:
                    values = columns[value]
                else:
                    rest = [name for name in names if name not in (*keys, window)]
                    lists = [columns[name] for name in rest]
                    values = [dict(zip(rest, row, strict=True)) for row in zip(*lists, strict=True)]
                self._put(operator, table, result, values)
                rows += batch.num_rows
        return rows

    def finish(self) -> Manifest:
        """Write the run; return the manifest behind it. What is written has no timers, so the next are due when they were.

        The clock is that of the last checkpoint as well: what was due by now has not fired.
        """
        _, manifest = self._participant.apply(self._directive, [self._task.finish()])
        clocks = {name: meta.processing_time for name, meta in self._manifest.operators.items()}
        operators = {
            name: msgspec.structs.replace(meta, processing_time=clocks[name])
            for name, meta in manifest.operators.items()
        }
        return msgspec.structs.replace(manifest, timers=self._manifest.timers, operators=operators)

    def _opened(self, operator: str, table: str) -> tuple[OperatorState, TableMeta]:
        meta = self._manifest.operators.get(operator)
        if meta is None or table not in meta.tables:
            there = self._manifest.operators if meta is None else meta.tables
            what = f"an operator {operator!r}" if meta is None else f"{table.removeprefix('state:')!r} of {operator}"
            raise DefinitionError(
                f"there is no state of {what}", next=f"give one of: {', '.join(sorted(there)) or 'none'}"
            )
        of = meta.tables[table]
        own = of.kind.startswith("spans,") or (of.kind == "slices" and stay_apart(of.merges))
        if own or of.kind not in (*_VALUES, *_WINDOWS) or (of.windowed and table.startswith("trigger:")):
            reason = _REASONS.get(of.kind, "it follows from windows and their timers")
            reason = "only the function knows what it has added up" if own else reason
            raise DefinitionError(
                f"{table} of {operator} is not written by hand: {reason}",
                next=f"write values of keys, or what open windows hold: of the kinds {', '.join((*_VALUES, *_WINDOWS))}",
            )
        now = self._now if meta.processing_time is None else max(self._now, meta.processing_time)
        watermark = {} if meta.watermark is None else {"watermark": meta.watermark}
        return self._task.operator(operator, processing_time=now, **watermark), of

    def _put(self, operator: str, table: str, keys: Sequence[Any], values: Sequence[Any]) -> None:
        state, meta = self._opened(operator, table)
        state.prefetch(_plain(key) for key in keys)
        windows = _open_windows(state, table, meta)
        example = lru_cache(1)(partial(self._example, operator, table, meta))
        for key, value in zip(keys, values, strict=True):
            place, entry, was = self._place(state, operator, table, meta, key, windows)
            check_value(operator, meta, value, was, example, slots=operator in self._slots)
            kind = "value" if meta.broadcast else meta.kind
            place[entry] = value if meta.ttl_ms is None else _touched(kind, value, state.processing_time)

    def _example(self, operator: str, table: str, meta: TableMeta) -> Any:
        """Return a value of a state as it was before the edits; None where there is none."""
        reader = StateReader(self._manifest, self._files)
        value = next((entry.value for entry in reader.entries(operator) if entry.table == table), None)
        return value if value is None or meta.ttl_ms is None else value[1]

    def _place(
        self, state: OperatorState, operator: str, table: str, meta: TableMeta, key: Any, windows: Windows
    ) -> tuple[Any, Any, Any]:
        """Return what holds the value of a key, under which name, and a value that is there to compare with."""
        plain = _plain(key)
        if meta.broadcast:
            held = state.table(table)
            rules = held[None] = dict(held.get(None, {}))
            return rules, plain, None
        if not isinstance(key, KeyInWindow):
            if meta.windowed or meta.kind in _WINDOWS:
                raise DefinitionError(
                    f"{table} of {operator} is kept by key and window",
                    next='write the key as {"key": …, "window": START}; in a file, give --window-column',
                )
            return state.table(table), plain, None
        if not (meta.windowed or meta.kind in _WINDOWS):
            raise DefinitionError(f"{table} of {operator} is kept by key alone", next="write the key without a window")
        chosen = key.one_of(windows(plain), operator)
        if meta.kind == "sessions":
            return chosen, 2, chosen[2]
        if meta.windowed:
            held = state.table(table, chosen[1]) if meta.kind == "spans" else state.table(table)
            window = chosen[0] if meta.kind == "spans" else chosen
            return held, (plain, window), held[plain, window]
        pane = state.table(table, chosen)
        return pane, plain, pane[plain] if plain in pane else next(iter(pane.values()), None)


def _open_windows(state: OperatorState, table: str, meta: TableMeta) -> Windows:
    """Return what tells, of a key, the windows that are open and what stands for each."""
    if meta.kind == "sessions":
        return lambda key: {(session[0], session[1]): session for session in state.table(table).get(key, ())}
    if meta.kind == "spans":  # the sessions of a key, each with the bucket that it is in
        buckets = {bucket: list(dict.keys(state.table(table, bucket))) for bucket in state.namespaces(table)}
        spans = [(key, window, bucket) for bucket, held in buckets.items() for key, window in held]
        return lambda key: {window: (window, bucket) for of, window, bucket in spans if of == key}
    if meta.windowed:
        entries: dict[Any, dict[Any, Any]] = {}
        for key, window in dict.keys(state.table(table)):
            entries.setdefault(key, {})[window] = window
        return lambda key: entries.get(key, {})
    open_windows = {span: span for span in state.namespaces(table)} if meta.kind in _WINDOWS else {}
    return lambda key: open_windows


def _plain(key: Any) -> Any:
    return normal_key(key.key if isinstance(key, KeyInWindow) else key)


def _touched(kind: str, value: Any, now: int) -> Any:
    """Return a value as state with a time to live keeps it."""
    if kind == "list":
        return [[now, item] for item in value]
    if kind == "map":
        return {key: [now, item] for key, item in value.items()}
    return [now, value]


def _batches(file: Any) -> Iterator[Any]:
    """Yield the rows of a Parquet file, some megabytes at a time."""
    for number in range(file.num_row_groups):
        rows = rows_of_row_group(file.metadata.row_group(number))
        yield from file.iter_batches(rows, row_groups=[number])
