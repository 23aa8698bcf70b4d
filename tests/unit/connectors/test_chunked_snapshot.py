"""Chunks beside a log, against a model: writes, chunks and deaths in any order lead to the table, and a second reading gives the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from poundlock.connectors.changes.chunked_snapshot import (
    Chunk,
    Frontier,
    RowChange,
    as_before,
    grown,
    is_whole,
    next_frontiers,
)
from support.examples import examples

Row = tuple[int, int]  # key and value
TABLES = ("a", "b")
KEYS = st.integers(0, 12)


def key_of(row: Row) -> int:
    return row[0]


class Server:
    """Tables and their log: a place is how many transactions are in it."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, Row]] = {name: {} for name in TABLES}
        self.log: list[list[tuple[str, RowChange[Row]]]] = []

    def write(self, changes: Sequence[tuple[str, str, int, int]]) -> None:
        """Change rows in one transaction."""
        logged = []
        for name, what, key, value in changes:
            table = self.tables[name]
            before = table.pop(key, None)
            target = value % 13 if what == "move" and value % 13 not in table else key
            after = None if what == "delete" or (what == "move" and before is None) else (target, value)
            if after is not None:
                table[target] = after
            if before is not None or after is not None:
                logged.append((name, RowChange(before, after)))
        if logged:
            self.log.append(logged)

    def changes(self, start: int, end: int) -> list[tuple[str, RowChange[Row]]]:
        return [change for transaction in self.log[start:end] for change in transaction]

    def border_after(self, name: str, border: str | None) -> str | None:
        """Return the key two rows further on."""
        keys = sorted(key for key in self.tables[name] if border is None or key >= int(border))
        return str(keys[2]) if len(keys) > 2 else None


def inside(chunk: Chunk, row: Row) -> bool:
    return (chunk.low is None or row[0] >= int(chunk.low)) and (chunk.high is None or row[0] < int(chunk.high))


def knows(frontier: Frontier, row: Row) -> bool:
    return frontier.whole or (frontier.below is not None and row[0] < int(frontier.below))


Position = tuple[int, dict[str, Frontier]]
Given = list[tuple[str, RowChange[Row]]]


def read(server: Server, start: Position | None, end: Position, seen: int) -> Given:
    """Return what a checkpoint gives.

    Args:
        seen: how many transactions of those behind its end the chunks' readers see as well, at most.
    """
    place, known = end
    made: Given = []
    if start is not None:
        for name, change in server.changes(start[0], place):
            if (within := change.within(lambda row, f=start[1][name]: knows(f, row))) is not None:
                made.append((name, within))
    for name in TABLES:
        for chunk in (Frontier() if start is None else start[1][name]).chunks_to(known[name]):
            until = min(len(server.log), place + seen)
            table = dict[int, Row]()
            for other, change in server.changes(0, until):
                if other == name:
                    table.pop(change.before[0], None) if change.before is not None else None
                    table.update({change.after[0]: change.after} if change.after is not None else {})
            later = [
                within
                for other, change in server.changes(place, len(server.log))
                if other == name and (within := change.within(lambda row, c=chunk: inside(c, row))) is not None
            ]
            rows = as_before([row for row in table.values() if inside(chunk, row)], later, key_of)
            made += [(name, RowChange(None, row)) for row in sorted(rows)]
    return made


class ReadingBesideWriters(RuleBasedStateMachine):
    """A driver that reads while others write, dies, and goes on."""

    server: Server | None = None
    at: Position | None = None

    @initialize()
    def begin(self) -> None:
        self.server = Server()
        self.at: Position | None = None
        self.planned: Position | None = None
        self.ways: list[tuple[Position | None, Position, Given]] = []
        self.made: dict[str, dict[int, Row]] = {name: {} for name in TABLES}

    @rule(
        changes=st.lists(
            st.tuples(st.sampled_from(TABLES), st.sampled_from(("put", "delete", "move")), KEYS, st.integers(0, 99)),
            max_size=5,
        )
    )
    def write(self, changes: list[tuple[str, str, int, int]]) -> None:
        self.server.write(changes)

    @rule(chunks=st.integers(0, 3))
    def plan(self, chunks: int) -> None:
        known = {} if self.at is None else self.at[1]
        self.planned = len(self.server.log), next_frontiers(TABLES, known, self.server.border_after, chunks)

    @rule(seen=st.integers(0, 9))
    def decide(self, seen: int) -> None:
        if self.planned is None:
            return
        rows = read(self.server, self.at, self.planned, seen)
        self.ways.append((self.at, self.planned, rows))
        for name, change in rows:
            table = self.made[name]
            if change.before is not None:
                assert table.pop(change.before[0]) == change.before
            if change.after is not None:
                assert change.after[0] not in table
                table[change.after[0]] = change.after
        self.at, self.planned = self.planned, None

    @rule()
    def die(self) -> None:
        self.planned = None

    @rule(seen=st.integers(0, 9), data=st.data())
    def read_again(self, seen: int, data: st.DataObject) -> None:
        if self.ways:
            start, end, rows = data.draw(st.sampled_from(self.ways))
            assert read(self.server, start, end, seen) == rows

    @invariant()
    def what_is_known_is_as_it_was_there(self) -> None:
        if self.server is None or self.at is None:
            return
        place, known = self.at
        for name in TABLES:
            there = dict[int, Row]()
            for other, change in self.server.changes(0, place):
                if other == name:
                    if change.before is not None:
                        there.pop(change.before[0])
                    if change.after is not None:
                        there[change.after[0]] = change.after
            assert self.made[name] == {key: row for key, row in there.items() if knows(known[name], row)}

    def teardown(self) -> None:
        if self.server is None:
            return
        while self.at is None or not is_whole(TABLES, self.at[1]):
            self.plan(2)
            self.decide(9)
        self.plan(1)
        self.decide(0)
        assert self.made == self.server.tables


TestReadingBesideWriters = ReadingBesideWriters.TestCase
TestReadingBesideWriters.settings = examples(60)


@given(st.lists(KEYS, unique=True), st.integers(1, 5))
def test_chunks_cover_each_key_once(keys: list[int], most: int) -> None:
    ordered = sorted(keys)

    def border_after(border: str | None) -> str | None:
        rest = [key for key in ordered if border is None or key >= int(border)]
        return str(rest[1]) if len(rest) > 1 else None

    at, chunks = Frontier(), list[Chunk]()
    while not at.whole:
        end = grown(at, border_after, most)
        step = at.chunks_to(end)
        assert 1 <= len(step) <= most
        chunks += step
        at = Frontier(end.below, end.whole)
    for key in range(-1, 14):
        assert sum(inside(chunk, (key, 0)) for chunk in chunks) == 1


def test_a_change_of_what_is_not_known_is_left_out() -> None:
    change: RowChange[Any] = RowChange((1, 5), (9, 5))
    assert change.within(lambda row: row[0] < 5) == RowChange((1, 5), None)
    assert change.within(lambda row: row[0] >= 5) == RowChange(None, (9, 5))
    assert change.within(lambda row: False) is None


@pytest.mark.parametrize("whole", [True, False])
def test_nothing_lies_behind_a_whole_table(whole: bool) -> None:
    assert Frontier(None, True).chunks_to(Frontier(None, whole)) == []
