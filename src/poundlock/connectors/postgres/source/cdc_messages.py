"""The messages of PostgreSQL's logical replication (plugin pgoutput, protocol version 1), from bytes to values.

A transaction comes whole, in the order of commits: Begin, its changes, Commit. A table's columns are described before its first change.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from poundlock.errors import TerminalError

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Unchanged:
    """Stands for a long value that an update did not touch and the server therefore does not send."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()
Values = tuple["str | Unchanged | None", ...]


class Begin(NamedTuple):
    """A transaction begins. `commit` is where in the log its commit stands, `time` when that was, `xid` its number."""

    commit: int
    time: datetime
    xid: int


class Commit(NamedTuple):
    """A transaction ends. `end` is the place behind its commit."""

    commit: int
    end: int


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """A table as it is from here on: number, schema, name, replica identity, and of each column name, type, modifier."""

    oid: int
    space: str
    name: str
    identity: str
    columns: tuple[tuple[str, int, int], ...]


class Change(NamedTuple):
    """One row changed. `old_is_key`: of `old` only the key's columns are known, the others are null."""

    op: str  # "insert", "update" or "delete"
    oid: int
    old: Values | None
    new: Values | None
    old_is_key: bool


class Truncate(NamedTuple):
    """Tables were emptied."""

    oids: tuple[int, ...]


Message = Begin | Commit | RelationMessage | Change | Truncate


def lsn_of(text: str) -> int:
    """Return a place in the log as a number, from the server's way of writing it such as "0/16B3748"."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return a place in the log as the server writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 1

    def number(self, form: str) -> int:
        value: int = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def letter(self) -> str:
        self.at += 1
        return chr(self.data[self.at - 1])

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        text, self.at = self.data[self.at : end].decode(), end + 1
        return text

    def values(self) -> Values:
        values: list[str | Unchanged | None] = []
        data = self.data
        for _ in range(self.number("!h")):
            kind = data[self.at]
            self.at += 1
            if kind == 116:  # t
                size = int.from_bytes(data[self.at : self.at + 4], "big")
                self.at += 4
                values.append(data[self.at : self.at + size].decode())
                self.at += size
            elif kind == 110:  # n
                values.append(None)
            elif kind == 117:  # u
                values.append(UNCHANGED)
            else:
                raise ValueError(f"a value of kind {chr(kind)!r}")
        return tuple(values)


def parse(data: bytes) -> Message | None:
    """Return a message; None for kinds that say nothing about rows, such as origins and types.

    Raises:
        TerminalError: this is no message of the protocol.
    """
    try:
        return _parse(data)
    except (ValueError, IndexError, struct.error) as error:
        raise TerminalError(
            f"a message of the replication protocol cannot be read ({error}): {data[:40]!r}", next="report this"
        ) from None


def _parse(data: bytes) -> Message | None:
    kind = chr(data[0])
    reading = _Bytes(data)
    if kind == "B":
        commit, micros, xid = struct.unpack_from("!qqI", data, 1)
        return Begin(commit, _EPOCH + timedelta(microseconds=micros), xid)
    if kind == "C":
        _, commit, end, _ = struct.unpack_from("!bqqq", data, 1)
        return Commit(commit, end)
    if kind == "R":
        oid, space, name, identity = reading.number("!I"), reading.text(), reading.text(), reading.letter()
        columns = []
        for _ in range(reading.number("!h")):
            reading.at += 1  # whether it is part of the key
            columns.append((reading.text(), reading.number("!I"), reading.number("!i")))
        return RelationMessage(oid, space, name, identity, tuple(columns))
    if kind in "IUD":
        oid, which = reading.number("!I"), reading.letter()
        old, is_key = None, which == "K"
        if which in "KO":
            old = reading.values()
            which = reading.letter() if kind == "U" else ""
        new = reading.values() if which == "N" else None
        return Change({"I": "insert", "U": "update", "D": "delete"}[kind], oid, old, new, is_key)
    if kind == "T":
        count, _ = reading.number("!I"), reading.number("!b")
        return Truncate(tuple(reading.number("!I") for _ in range(count)))
    if kind in "OYM":
        return None
    raise ValueError(f"kind {kind!r}")
