"""Queries made by Hypothesis over small tables, as Flink's text and as SQLite's, which mean the same by the rules of both.

Columns are BIGINT and STRING with NULLs; conditions are of three values. What the two databases do otherwise is not made: division by what
may be zero, texts beyond ASCII, and an order that rows with equal values leave open.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

__all__ = ["Example", "answered", "examples_of_queries", "wanted"]

Row = tuple[Any, ...]
Draw = Callable[[st.SearchStrategy[Any]], Any]

TABLES = {"t": ("id", "a", "b", "s"), "u": ("id", "a", "c", "s")}
_NUMBERS = st.one_of(st.none(), st.integers(-2, 3))
_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "A", "b", "ab"]))
_EMPTY = "/*group*/"
"""Stands in SQLite's text behind an aggregate of all rows, which is no row in a stream where there are none."""


class Text(NamedTuple):
    """An expression or a query in both languages."""

    flink: str
    sqlite: str


class Column(NamedTuple):
    """A column of a query."""

    name: str
    is_number: bool

    @property
    def text(self) -> Text:
        """The column by itself."""
        return Text(self.name, self.name)


class Query(NamedTuple):
    """A query and its columns."""

    text: Text
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Example:
    """Tables, queries over them that are one job, and how it runs.

    Args:
        rows: by table.
        files: in how many files, and so checkpoints, the rows of each table come.
    """

    rows: dict[str, list[Row]]
    files: int
    queries: list[Query]
    is_batch: bool
    parallelism: int

    def script(self, root: Path) -> str:
        """Write the tables; return the script, whose query of number n goes into the folder out_n."""
        parts = [f"SET 'execution.runtime-mode' = '{'batch' if self.is_batch else 'streaming'}'"]
        for name, columns in TABLES.items():
            self._write(root / name, columns, self.rows[name])
            kinds = ", ".join(f"{each} {'STRING' if each == 's' else 'BIGINT'}" for each in columns)
            parts.append(
                f"CREATE TABLE {name} ({kinds}) WITH ('connector' = 'filesystem', 'path' = '{root / name}', 'format' = 'json', "
                "'source.max-files-per-checkpoint' = '1')"
            )
        inserts = []
        for number, query in enumerate(self.queries):
            kinds = ", ".join(f"{c.name} {'BIGINT' if c.is_number else 'STRING'}" for c in query.columns)
            parts.append(
                f"CREATE TABLE out_{number} ({kinds}) WITH ('connector' = 'filesystem', 'path' = '{root}/out_{number}', "
                "'format' = 'debezium-json')"
            )
            inserts.append(f"INSERT INTO out_{number} {query.text.flink}")
        parts += [f"EXECUTE STATEMENT SET BEGIN {inserts[0]}", *inserts[1:], "END"]
        return ";\n".join(parts)

    def _write(self, folder: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
        folder.mkdir(parents=True)
        size = -(-len(rows) // self.files) or 1
        for number in range(self.files):
            path = folder / f"{number}.json"
            part = rows[number * size : (number + 1) * size]
            path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in part))
            os.utime(path, (1e9 + number, 1e9 + number))


def answered(query: Query, folder: Path) -> Counter[Row]:
    """Return the table that the changes of a sink come to.

    Raises:
        AssertionError: a row was taken away that was not there.
    """
    table: Counter[Row] = Counter()
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith((".", "_")):
            continue
        for line in path.read_text().splitlines():
            change = json.loads(line)
            sign, row = (1, change["after"]) if change["op"] == "c" else (-1, change["before"])
            table[tuple(row.get(column.name) for column in query.columns)] += sign
    assert all(count >= 0 for count in table.values()), "a row was taken away that was not there"
    return +table


def wanted(example: Example, query: Query) -> Counter[Row]:
    """Return the table that SQLite gives."""
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    for name, columns in TABLES.items():
        kinds = ", ".join(f"{each} {'TEXT' if each == 's' else 'INTEGER'}" for each in columns)
        database.execute(f"CREATE TABLE {name} ({kinds})")
        places = ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO {name} VALUES ({places})", example.rows[name])
    text = query.text.sqlite.replace(_EMPTY, "" if example.is_batch else "GROUP BY NULL")
    try:
        return Counter(database.execute(text).fetchall())
    finally:
        database.close()


@st.composite
def examples_of_queries(draw: Draw, queries: int = 4, depth: int = 3) -> Example:
    """Draw an example.

    Args:
        queries: how many are one job.
        depth: how deep they are nested at most.
    """
    rows = {}
    for name, columns in TABLES.items():
        kinds = [_TEXTS if column == "s" else _NUMBERS for column in columns[1:]]
        some = draw(st.lists(st.tuples(*kinds), max_size=8))
        rows[name] = [(number, *row) for number, row in enumerate(some)]
    maker = _Maker(draw)
    return Example(
        rows,
        draw(st.integers(1, 3)),
        [maker.query(depth) for _ in range(queries)],
        draw(st.booleans()),
        draw(st.integers(1, 2)),
    )


class _Maker:
    """Draws queries. No two columns of an example have the same name, so that each has one meaning wherever it stands."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._names = 0

    def query(self, depth: int) -> Query:
        """Draw a query."""
        if depth == 0:
            return self._table()
        kinds = (
            self._projected, self._joined, self._grouped, self._distinct, self._combined, self._first_rows, self._limited, self._total,
        )  # fmt: skip
        made: Query = self._draw(st.sampled_from(kinds))(depth - 1)
        return made

    def _input(self, depth: int) -> Query:
        return self.query(self._draw(st.integers(0, depth)))

    def _new(self, is_number: bool) -> Column:
        self._names += 1
        return Column(f"c{self._names}", is_number)

    def _one_of(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def _some(self, columns: Sequence[Column]) -> list[Column]:
        return list(self._draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True)))

    # --- kinds of query -----------------------------------------------------------------------------------------------------

    def _table(self) -> Query:
        name = self._one_of(*TABLES)
        columns = TABLES[name]
        made = [self._new(each != "s") for each in columns]
        items = ", ".join(f"{old} AS {new.name}" for old, new in zip(columns, made, strict=True))
        return Query(_same(f"SELECT {items} FROM {name}"), tuple(made))

    def _projected(self, depth: int) -> Query:
        inner = self._input(depth)
        items, columns = self._items(inner.columns)
        text = _with("SELECT {} FROM ({}) AS q", items, inner.text)
        if self._one_of(True, False, True):
            text = _with("{} WHERE {}", text, self._where(inner.columns, depth))
        return Query(text, columns)

    def _items(self, columns: Sequence[Column]) -> tuple[Text, tuple[Column, ...]]:
        kinds = self._draw(st.lists(st.booleans(), min_size=1, max_size=3))
        made = tuple(self._new(each) for each in kinds)
        parts = [_with("{} AS " + c.name, self._value(columns, c.is_number, 2)) for c in made]
        return _listed(parts), made

    def _joined(self, depth: int) -> Query:
        left, right = self._input(depth), self._input(depth)
        kind = self._one_of("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        pairs = [(a, b) for a in left.columns for b in right.columns if a.is_number == b.is_number]
        conditions = []
        if pairs:
            a, b = self._one_of(*pairs)
            conditions.append(_same(f"{a.name} = {b.name}"))
        else:
            kind = "JOIN"
        if not conditions or self._one_of(True, False, False):
            conditions.append(self._condition([*left.columns, *right.columns], 1))
        on = _joined_by(" AND ", conditions)
        text = _with("SELECT * FROM ({}) AS l " + kind + " ({}) AS r ON {}", left.text, right.text, on)
        return Query(text, (*left.columns, *right.columns))

    def _grouped(self, depth: int) -> Query:
        inner = self._input(depth)
        keys = self._some(inner.columns)
        made = [self._new(each.is_number) for each in keys]
        calls = [self._aggregate(inner.columns) for _ in range(self._one_of(0, 1, 2, 3))]
        items = [_same(f"{old.name} AS {new.name}") for old, new in zip(keys, made, strict=True)]
        columns = [*made, *(self._new(is_number) for _, is_number in calls)]
        items += [_with("{} AS " + c.name, text) for c, (text, _) in zip(columns[len(made) :], calls, strict=True)]
        by = ", ".join(each.name for each in keys)
        text = _with("SELECT {} FROM ({}) AS q GROUP BY " + by, _listed(items), inner.text)
        if self._one_of(True, False, False):
            call, is_number = self._aggregate(inner.columns)
            text = _with("{} HAVING {}", text, self._compared(call, self._literal(is_number)))
        return Query(text, tuple(columns))

    def _total(self, depth: int) -> Query:
        inner = self._input(depth)
        calls = [self._aggregate(inner.columns) for _ in range(self._one_of(1, 2, 3))]
        columns = tuple(self._new(is_number) for _, is_number in calls)
        items = _listed([_with("{} AS " + c.name, text) for c, (text, _) in zip(columns, calls, strict=True)])
        text = _with("SELECT {} FROM ({}) AS q", items, inner.text)
        return Query(Text(text.flink, f"{text.sqlite} {_EMPTY}"), columns)

    def _distinct(self, depth: int) -> Query:
        inner = self._input(depth)
        keys = self._some(inner.columns)
        made = tuple(self._new(each.is_number) for each in keys)
        items = ", ".join(f"{old.name} AS {new.name}" for old, new in zip(keys, made, strict=True))
        return Query(_with("SELECT DISTINCT " + items + " FROM ({}) AS q", inner.text), made)

    def _combined(self, depth: int) -> Query:
        kinds = self._draw(st.lists(st.booleans(), min_size=1, max_size=3))
        made = tuple(self._new(each) for each in kinds)
        sides = [self._side(made, depth) for _ in range(2)]
        operator = self._one_of("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
        flink = f"SELECT * FROM ({sides[0].flink}) AS l {operator} SELECT * FROM ({sides[1].flink}) AS r"
        if operator in ("INTERSECT ALL", "EXCEPT ALL"):  # SQLite has none: equal rows are told apart by a number
            names = ", ".join(each.name for each in made)
            numbered = "SELECT *, ROW_NUMBER() OVER (PARTITION BY {}) AS n FROM ({}) AS {}"
            parts = [numbered.format(names, side.sqlite, alias) for side, alias in zip(sides, "lr", strict=True)]
            sqlite = f"SELECT {names} FROM ({parts[0]} {operator.removesuffix(' ALL')} {parts[1]}) AS q"
        else:
            sqlite = f"SELECT * FROM ({sides[0].sqlite}) AS l {operator} SELECT * FROM ({sides[1].sqlite}) AS r"
        return Query(Text(flink, sqlite), made)

    def _side(self, columns: Sequence[Column], depth: int) -> Text:
        inner = self._input(depth)
        items = [_with("{} AS " + c.name, self._value(inner.columns, c.is_number, 1)) for c in columns]
        return _with("SELECT {} FROM ({}) AS q", _listed(items), inner.text)

    def _order(self, columns: Sequence[Column]) -> str:
        """Return an order that leaves nothing open but which of equal rows comes first."""
        first = self._some(columns)
        rest = [each for each in columns if each not in first]
        return ", ".join(f"{each.name} {self._one_of('ASC', 'DESC')}" for each in [*first, *rest])

    def _first_rows(self, depth: int) -> Query:
        inner = self._input(depth)
        number = self._new(True)
        keys = ", ".join(each.name for each in self._some(inner.columns)) if self._one_of(True, False) else ""
        by = f"PARTITION BY {keys} " if keys else ""
        text = _with(
            f"SELECT *, ROW_NUMBER() OVER ({by}ORDER BY {self._order(inner.columns)}) AS {number.name} FROM ({{}}) AS q",
            inner.text,
        )
        names = [*inner.columns, number] if self._one_of(True, False) else [*inner.columns]
        first = self._one_of("", "", f" AND {number.name} > 1")
        shown = ", ".join(each.name for each in names)
        outer = f"SELECT {shown} FROM ({{}}) AS n WHERE {number.name} <= {self._one_of(1, 2, 3)}{first}"
        return Query(_with(outer, text), tuple(names))

    def _limited(self, depth: int) -> Query:
        inner = self._input(depth)
        behind = self._one_of("", "", " OFFSET 1")
        limited = (
            f"SELECT * FROM ({{}}) AS q ORDER BY {self._order(inner.columns)} LIMIT {self._one_of(1, 2, 4)}{behind}"
        )
        return Query(_with("SELECT * FROM (" + limited + ") AS n", inner.text), inner.columns)

    # --- values -------------------------------------------------------------------------------------------------------------

    def _literal(self, is_number: bool) -> Text:
        return _same(str(self._one_of(-1, 0, 1, 2, 3)) if is_number else self._one_of("''", "'a'", "'b'", "'ab'"))

    def _value(self, columns: Sequence[Column], is_number: bool, depth: int) -> Text:
        """Draw an expression over columns."""
        own = [each.text for each in columns if each.is_number == is_number]
        if depth == 0 or self._one_of(True, False):
            column: Text = self._one_of(*own) if own and self._one_of(True, True, False) else self._literal(is_number)
            return column
        one, other = (self._value(columns, is_number, depth - 1) for _ in range(2))
        common = (
            lambda: _with("CASE WHEN {} THEN {} ELSE {} END", self._condition(columns, 1), one, other),
            lambda: _with("CASE WHEN {} THEN {} END", self._condition(columns, 1), one),
            lambda: _with("COALESCE({}, {})", one, other),
        )
        of_numbers = (
            lambda: _with("({} + {})", one, other),
            lambda: _with("({} - {})", one, other),
            lambda: _with("({} * {})", one, other),
            lambda: _with("({} / 2)", one),
            lambda: _with("({} % 3)", one),
            lambda: _with("(- {})", one),
            lambda: _with("ABS({})", one),
            lambda: _function("CHAR_LENGTH", "LENGTH", self._value(columns, False, depth - 1)),
        )
        of_texts = (
            lambda: _with("({} || {})", one, other),
            lambda: _with("UPPER({})", one),
            lambda: _with("LOWER({})", one),
            lambda: _cast_to_text(self._value(columns, True, depth - 1)),
        )
        made: Text = self._one_of(*common, *(of_numbers if is_number else of_texts))()
        return made

    def _compared(self, one: Text, other: Text) -> Text:
        return _with("{} " + self._one_of("=", "<>", "<", "<=", ">", ">=") + " {}", one, other)

    def _condition(self, columns: Sequence[Column], depth: int) -> Text:
        """Draw a condition of one row."""
        if depth > 0 and self._one_of(True, False, False):
            one, other = (self._condition(columns, depth - 1) for _ in range(2))
            made: Text = self._one_of(
                _with("({} AND {})", one, other), _with("({} OR {})", one, other), _with("NOT ({})", one)
            )
            return made
        is_number = self._one_of(True, True, False)
        one, other = (self._value(columns, is_number, 1) for _ in range(2))
        literals = ", ".join(self._literal(is_number).flink for _ in range(2))
        tested: Text = self._one_of(
            self._compared(one, other),
            self._compared(one, self._literal(is_number)),
            _with("{} IS NULL", one),
            _with("{} IS NOT NULL", one),
            _with("{} IN (" + literals + ")", one),
            _with("{} NOT IN (" + literals + ")", one),
            _with("{} BETWEEN {} AND {}", one, self._literal(is_number), other),
            _with("{} IS NOT DISTINCT FROM {}", one, other),
            _with("{} IS DISTINCT FROM {}", one, other),
            _with("{} LIKE " + self._one_of("'a%'", "'%b'", "'_'"), self._value(columns, False, 1)),
        )
        return tested

    def _where(self, columns: Sequence[Column], depth: int) -> Text:
        """Draw conditions, among which may be some over other queries."""
        parts = [self._condition(columns, 1) for _ in range(self._one_of(0, 1, 1))]
        for _ in range(self._one_of(0, 1, 1) if parts else 1):
            parts.append(self._over_query(columns, depth))
        return _joined_by(" AND ", parts)

    def _over_query(self, columns: Sequence[Column], depth: int) -> Text:
        inner = self._input(max(depth - 1, 0))
        one = self._one_of(*columns)
        same = [each for each in inner.columns if each.is_number == one.is_number]
        if not same:
            return _with("EXISTS ({})", inner.text)
        other = self._one_of(*same)
        of_one = _with("SELECT " + other.name + " FROM ({}) AS e", inner.text)
        matching = _with(f"SELECT {other.name} FROM ({{}}) AS e WHERE {other.name} = {one.name}", inner.text)
        largest = _with(f"SELECT {self._one_of('MIN', 'MAX')}({other.name}) FROM ({{}}) AS e", inner.text)
        of_row = _with("{} WHERE " + f"{other.name} = {one.name}", largest)
        made: Text = self._one_of(
            _with(one.name + " IN ({})", of_one),
            _with(one.name + " NOT IN ({})", of_one),
            _with("EXISTS ({})", matching),
            _with("NOT EXISTS ({})", matching),
            _with(one.name + " = ({})", largest),
            _with(one.name + " <= ({})", largest),
            _with(one.name + " = ({})", of_row),
        )
        return made

    def _aggregate(self, columns: Sequence[Column]) -> tuple[Text, bool]:
        """Draw an aggregate; return it and whether it is a number."""
        numbers = [each for each in columns if each.is_number]
        one = self._one_of(*columns)
        kinds = ["COUNT(*)", "COUNT", "COUNT(DISTINCT", "MIN", "MAX"] + (
            ["SUM", "SUM(DISTINCT", "AVG"] if numbers else []
        )
        kind, is_number = self._one_of(*kinds), True
        if kind == "COUNT(*)":
            text = _same(kind)
        elif kind == "COUNT":
            text = _same(f"COUNT({one.name})")
        elif kind == "COUNT(DISTINCT":
            return _same(f"COUNT(DISTINCT {one.name})"), True
        elif kind in ("MIN", "MAX"):
            text, is_number = _same(f"{kind}({one.name})"), one.is_number
        else:
            of = self._one_of(*numbers).name
            if kind == "SUM(DISTINCT":
                return _same(f"SUM(DISTINCT {of})"), True
            if kind == "AVG":  # Flink's of whole numbers is whole
                return Text(f"AVG({of})", f"(SUM({of}) / COUNT({of}))"), True
            text = _same(f"SUM({of})")
        if self._one_of(True, False, False):
            text = _with("{} FILTER (WHERE {})", text, self._condition(columns, 1))
        return text, is_number


def _same(text: str) -> Text:
    return Text(text, text)


def _with(template: str, *parts: Text) -> Text:
    return Text(template.format(*(each.flink for each in parts)), template.format(*(each.sqlite for each in parts)))


def _joined_by(sign: str, parts: Sequence[Text]) -> Text:
    return Text(sign.join(f"({each.flink})" for each in parts), sign.join(f"({each.sqlite})" for each in parts))


def _listed(parts: Sequence[Text]) -> Text:
    return Text(", ".join(each.flink for each in parts), ", ".join(each.sqlite for each in parts))


def _function(flink: str, sqlite: str, of: Text) -> Text:
    return Text(f"{flink}({of.flink})", f"{sqlite}({of.sqlite})")


def _cast_to_text(of: Text) -> Text:
    return Text(f"CAST({of.flink} AS STRING)", f"CAST({of.sqlite} AS TEXT)")
