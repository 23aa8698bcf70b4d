"""All state of all keys of one key group: tables, timers, and the watermark and clock it has seen.

It is one object in memory and one blob of bytes on disk; what the bytes give back behaves as what was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from poundlock.errors import TerminalError
from poundlock.operators.keyed.codec import (
    FORMAT,
    Blob,
    Head,
    decode,
    encode,
    pack,
    pack_column,
    pack_table,
    read_blob,
    read_head,
    unpack_keys,
    unpack_table,
)
from poundlock.operators.keyed.timers import Timers

MIN, MAX = -(1 << 63), (1 << 63) - 1
Table = dict[Any, Any]
TimerEntries = Literal["keys", "windows", "keys and windows"]


class KeyGroup:
    """State of one key group.

    A table is named by a text and, where its content belongs to a window as a whole, by that window as its namespace. Within
    it an entry is a key, or (key, window). Tables that nobody asks for stay bytes. A window is (start, end) in ms, None for
    the global one, or the number of a count window.

    Args:
        number: of the group.
        watermark: event time in ms that the group's elements are judged by.
        processing_time: the clock in ms as of the last call.
        timer_entries: what timers are registered for: keys, windows of all keys, or (key, window).
    """

    def __init__(
        self,
        number: int,
        *,
        watermark: int = MIN,
        processing_time: int = 0,
        timer_entries: TimerEntries = "keys",
    ) -> None:
        self.number = number
        self.watermark = watermark
        self.processing_time = processing_time
        self.timer_entries = timer_entries
        self.meta: dict[str, dict[str, Any]] = {}
        self._tables: dict[str, dict[Any, Table | memoryview]] = {}
        self._event: Timers | memoryview = Timers()
        self._processing: Timers | memoryview = Timers()

    def table(self, name: str, namespace: Any = None) -> Table:
        """Return a table, an empty one if there is none yet. It may be changed."""
        spaces = self._tables.get(name)
        if spaces is None:
            spaces = self._tables[name] = {}
        table = spaces.get(namespace)
        if isinstance(table, dict):
            return table
        found = spaces[namespace] = {} if table is None else unpack_table(decode(table))
        return found

    def prefetch(self, keys: Iterable[Any]) -> None:
        """Make the entries of some keys ready to be looked up; called before a key's entries are read. Here all of them are."""

    def namespaces(self, name: str) -> list[Any]:
        """Return the namespaces of a table's name."""
        return list(self._tables.get(name, ()))

    def drop(self, name: str, namespace: Any = None) -> None:
        """Forget a table."""
        self._tables.get(name, {}).pop(namespace, None)

    def declare(
        self, name: str, kind: str, ttl_ms: int | None = None, *, windowed: bool = False, broadcast: bool = False
    ) -> None:
        """Say what a table holds; entries with a time to live are kept as [last touched in ms, value].

        Args:
            name: of the table.
            kind: such as "value", "list", "map".
            ttl_ms: time to live, None for ever.
            windowed: whether its entries are (key, window) rather than keys.
            broadcast: whether it is the same for all tasks, so that one of them keeps it for all.

        Raises:
            TerminalError: the state on disk is of another kind.
        """
        known = self.meta.get(name)
        if known is not None and known["kind"] != kind:
            raise TerminalError(
                f"state {name!r} is kept as {known['kind']} state and asked for as {kind} state",
                next="give the new state another name, or start from an empty checkpoint",
            )
        if known is not None and (known["ttl_ms"] is None) != (ttl_ms is None):
            raise TerminalError(
                f"state {name!r} was written {'with' if ttl_ms is None else 'without'} a time to live",
                next="keep its ttl as it was, or give the new state another name",
            )
        if known is None:
            self.meta[name] = {"kind": kind, "ttl_ms": ttl_ms, "windowed": windowed}
        else:
            known["ttl_ms"] = ttl_ms

    @property
    def event_timers(self) -> Timers:
        """The timers that fire when the watermark reaches them."""
        if type(self._event) is memoryview:
            self._event = _timers(self._event)
        return self._event

    @property
    def processing_timers(self) -> Timers:
        """The timers that fire when the clock reaches them."""
        if type(self._processing) is memoryview:
            self._processing = _timers(self._processing)
        return self._processing

    def is_empty(self) -> bool:
        """Return whether there is nothing a blob would have to keep but the watermark and the clock."""
        return not self.event_timers and not self.processing_timers and not any(self._filled())

    def _filled(self) -> Iterator[tuple[str, list[tuple[Any, Table | memoryview]]]]:
        for name in sorted(self._tables):
            spaces = [(space, table) for space, table in self._tables[name].items() if len(table)]
            if spaces:
                yield name, spaces

    def encode(self) -> bytes:
        """Return the group as bytes.

        Raises:
            DefinitionError: a value is of a type that state cannot keep.
        """
        self._drop_expired()
        event, processing = self.event_timers, self.processing_timers
        head = Head(
            FORMAT,
            self.number,
            self.watermark,
            self.processing_time,
            event.next_time(),
            processing.next_time(),
            self.timer_entries,
        )
        tables = [
            (name, self.meta.get(name, {}), [(pack(space), _bytes(table)) for space, table in spaces])
            for name, spaces in self._filled()
        ]
        return encode([head, tables, _timer_bytes(event), _timer_bytes(processing)])

    @classmethod
    def decode(cls, data: bytes) -> KeyGroup:
        """Return the group that `encode` made bytes of.

        Raises:
            TerminalError: it is no such blob, or of a newer format.
        """
        blob: Blob = read_blob(data)
        head = blob.head
        group = cls(
            head.group,
            watermark=head.watermark,
            processing_time=head.processing_time,
            timer_entries=head.timer_entries,
        )
        for name, meta, spaces in blob.tables:
            group.meta[name] = meta
            group._tables[name] = dict(spaces)
        group._event, group._processing = blob.event_timers, blob.processing_timers
        return group

    def _drop_expired(self) -> None:
        for name, meta in self.meta.items():
            ttl = meta.get("ttl_ms")
            if ttl is None:
                continue
            limit = self.processing_time - ttl
            # A table is gone through at most four times in a lifetime, not with each of many small batches.
            if limit - meta.get("dropped_to", MIN) < ttl // 4:
                continue
            meta["dropped_to"] = limit
            table = self.table(name)
            for entry in list(table):
                left = _unexpired(meta["kind"], table[entry], limit)
                if left is None:
                    del table[entry]
                else:
                    table[entry] = left


def _unexpired(kind: str, stored: Any, limit: int) -> Any:
    if kind == "list":
        return [item for item in stored if item[0] > limit] or None
    if kind == "map":
        return {key: item for key, item in stored.items() if item[0] > limit} or None
    return stored if stored[0] > limit else None


def _bytes(table: Table | memoryview) -> bytes | memoryview:
    return encode(pack_table(table)) if isinstance(table, dict) else table


def _timer_bytes(timers: Timers) -> bytes:
    times, counts, entries = timers.content()
    return encode([times, counts, pack_column(entries)])


def _timers(data: memoryview) -> Timers:
    times, counts, column = decode(data)
    return Timers.of(times, counts, unpack_keys(column))


def describe_group(data: bytes) -> dict[str, Any]:
    """Return a blob for people: its head, every entry of every table, every timer.

    Returns:
        `group`, `format`, `watermark`, `processing_time` (ms); `state`: by name `kind`, `ttl_ms` and `entries` of `key`, `window`
        ((start, end) in ms, None where there is none), `windowed` (whether it belongs to a window) and `value`; `event_timers` and
        `processing_timers`: `time`, `key`, `window`; a timer of a window of all keys has no key.

    Raises:
        TerminalError: it is no blob, or of a newer format.
    """
    group = KeyGroup.decode(data)
    return {
        "format": read_head(data).format,
        "group": group.number,
        "watermark": group.watermark,
        "processing_time": group.processing_time,
        "state": {name: _state(group, name) for name, _ in group._filled()},
        "event_timers": _listed(group.event_timers, group.timer_entries),
        "processing_timers": _listed(group.processing_timers, group.timer_entries),
    }


def _state(group: KeyGroup, name: str) -> dict[str, Any]:
    meta = group.meta.get(name, {})
    kind, windowed = meta.get("kind", ""), meta.get("windowed", False)
    entries: list[dict[str, Any]] = []
    for space in group.namespaces(name):
        for entry, value in group.table(name, space).items():
            if kind == "sessions":  # a key's windows are one entry: (start, end, contents) of each
                entries += [{"key": entry, "window": (s, e), "value": held} for s, e, held in value]
            else:
                entries.append({**_named(entry, space, windowed), "value": value})
    for found in entries:
        found["windowed"] = windowed or kind in ("sessions", "panes")
    return {"kind": kind, "ttl_ms": meta.get("ttl_ms"), "entries": entries}


def _listed(timers: Timers, entries: TimerEntries) -> list[dict[str, Any]]:
    windowed = entries == "keys and windows"
    pairs = ((time, (None, entry) if entries == "windows" else entry) for time, entry in timers.listed())
    return [{"time": time, **_named(entry, None, windowed or entries == "windows")} for time, entry in pairs]


def _named(entry: Any, space: Any, windowed: bool) -> dict[str, Any]:
    key, window = entry if windowed else (entry, space)
    return {"key": key, "window": window}
