"""What rows and columns of a statement are, in words that stay the same when something is added to the statement.

Names of columns in batches follow the whole statement; what a column is, by the tables that it comes from, does not. State is known by
that.
"""

from __future__ import annotations

from hashlib import blake2b

from poundlock.sql.catalog import DEFAULT_CATALOG, DEFAULT_DATABASE, FullName
from poundlock.sql.expressions.tree import Expression
from poundlock.sql.relations.texts import Column, call_text, expression_text, order_text, window_text
from poundlock.sql.relations.tree import (
    LogicalAggregate,
    LogicalDeduplicate,
    LogicalExpand,
    LogicalFilter,
    LogicalIntervalJoin,
    LogicalJoin,
    LogicalMatch,
    LogicalOver,
    LogicalProject,
    LogicalRelation,
    LogicalRepeat,
    LogicalScan,
    LogicalSort,
    LogicalTemporalJoin,
    LogicalTopN,
    LogicalUnionAll,
    LogicalUnnest,
    LogicalValues,
    LogicalWindowAggregate,
    LogicalWindowTable,
    SqlAggregateCall,
)

_LONGEST = 200  # of a text that is written out


def digest_of(text: str, size: int = 4) -> str:
    """Return what tells a text from others, as so many bytes in hexadecimal digits."""
    return blake2b(text.encode(), digest_size=size).hexdigest()


def brief(text: str) -> str:
    """Return a text that is not long: of a long one its beginning, and a digest of the whole."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]}… {digest_of(text, 8)}"


def table_text(name: FullName) -> str:
    """Return the name of a table, without the catalog and database that are there from the beginning."""
    is_usual = (name.catalog, name.database) == (DEFAULT_CATALOG, DEFAULT_DATABASE)
    return name.name if is_usual else str(name)


class Meanings:
    """What relations and their columns are. A relation is looked at once."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[LogicalRelation, str]] = {}
        self._columns: dict[tuple[int, str], tuple[LogicalRelation, str]] = {}

    def rows(self, relation: LogicalRelation) -> str:
        """Return which rows a relation has, whatever their columns."""
        known = self._rows.get(id(relation))
        if known is None:
            known = self._rows[id(relation)] = relation, brief(self._rows_of(relation))
        return known[1]

    def column(self, relation: LogicalRelation, column: str) -> str:
        """Return what a column of a relation is."""
        known = self._columns.get((id(relation), column))
        if known is None:
            known = self._columns[id(relation), column] = relation, brief(self._column_of(relation, column))
        return known[1]

    def text(self, expression: Expression, relation: LogicalRelation) -> str:
        """Return what an expression over the columns of a relation is."""
        return brief(expression_text(expression, lambda column: self.column(relation, column)))

    def call(self, call: SqlAggregateCall, relation: LogicalRelation) -> str:
        """Return what an aggregate over the columns of a relation is, with its type."""
        return f"{brief(call_text(call, lambda column: self.column(relation, column)))} {call.type}"

    def key(self, relation: LogicalRelation, column: str) -> str:
        """Return what a column is, with its type."""
        return f"{self.column(relation, column)} {relation.field(column).type}"

    def _keys(self, relation: LogicalRelation, keys: tuple[str, ...]) -> str:
        return ", ".join(self.column(relation, each) for each in keys)

    # --- rows -------------------------------------------------------------------------------------------------------------

    def _rows_of(self, relation: LogicalRelation) -> str:
        if isinstance(relation, LogicalScan):
            return table_text(relation.table)
        if isinstance(relation, LogicalValues):
            return f"VALUES {digest_of(repr(relation.rows))}"
        if isinstance(relation, LogicalUnionAll):
            return f"({' UNION ALL '.join(map(self.rows, relation.parts))})"
        if isinstance(relation, LogicalJoin):
            return self._join(relation)
        whole = " and ".join(map(self.rows, relation.inputs))
        if isinstance(relation, LogicalFilter):
            return f"{whole} WHERE {self.text(relation.condition, relation.input)}"
        if isinstance(relation, LogicalAggregate):
            return f"{whole} GROUP BY ({self._keys(relation.input, relation.keys)})"
        if isinstance(relation, LogicalWindowAggregate):
            of = relation.input
            window = window_text(relation.window, lambda column: self.column(of, column))
            return f"{whole} GROUP BY ({self._keys(of, relation.keys)}) {window}"
        if isinstance(relation, LogicalWindowTable):
            inner = relation.input
            return f"{whole} IN {window_text(relation.window, lambda column: self.column(inner, column))}"
        if isinstance(relation, LogicalTopN):
            return f"{whole} {self._order(relation)} FROM {relation.first} TO {relation.last}"
        if isinstance(relation, LogicalDeduplicate):
            time = "" if relation.by_clock else self.column(relation.input, relation.time)
            return f"{whole} {relation.keep.upper()} BY ({self._keys(relation.input, relation.keys)}) {time}"
        if isinstance(relation, LogicalSort) and (relation.limit is not None or relation.offset):
            return f"{whole} {self._order(relation)} LIMIT {relation.limit} OFFSET {relation.offset}"
        if isinstance(relation, LogicalUnnest):
            outer = " OUTER" if relation.is_outer else ""
            return f"{whole}{outer} UNNEST({self.column(relation.input, relation.collection)})"
        if isinstance(relation, LogicalExpand):
            sets = ", ".join(f"({self._keys(relation.input, some)})" for some in relation.sets)
            return f"{whole} GROUPING SETS ({sets})"
        if isinstance(relation, LogicalRepeat):
            return f"{whole} REPEAT {self.column(relation.input, relation.times)}"
        if isinstance(relation, LogicalMatch):
            return f"{whole} MATCH {self.pattern(relation)}"
        return whole

    def _order(self, relation: LogicalTopN | LogicalSort) -> str:
        inner = relation.input
        order = ", ".join(order_text(each, lambda column: self.column(inner, column)) for each in relation.order)
        keys = f"PARTITION BY {self._keys(inner, relation.keys)} " if isinstance(relation, LogicalTopN) else ""
        return f"{keys}ORDER BY {order}"

    def pattern(self, match: LogicalMatch) -> str:
        """Return what rows a pattern is looked for in, and what each of its variables has to be."""
        value = self._values(match)
        order = ", ".join(order_text(each, lambda column: self.column(match.input, column)) for each in match.order)
        conditions = "; ".join(f"{name} AS {brief(expression_text(each, value))}" for name, each in match.conditions)
        within = "" if match.within_ms is None else f" WITHIN {match.within_ms} ms"
        pattern = " ".join(map(str, match.pattern))
        keys = self._keys(match.input, match.keys)
        return f"BY ({keys}) {order} {pattern} {match.after}{within}: {conditions}"

    def _values(self, match: LogicalMatch) -> Column:
        """Return what says of a value of a pattern, or of a key, what it is."""
        values = {value.column: value for value in match.values}

        def of(column: str) -> str:
            value = values.get(column)
            if value is None:
                return self.column(match.input, column)
            inner = "" if value.expression is None else self.text(value.expression, match.input)
            place = f", {'FIRST' if value.from_first else 'LAST'} {value.offset}" if value.kind == "row" else ""
            return f"{value.kind.upper()}({value.variable or '*'}.{inner}{place})"

        return of

    def _join(self, join: LogicalJoin) -> str:
        pairs = [f"{self.column(join.left, left)} = {self.column(join.right, right)}" for left, right in join.keys] + (
            [] if join.condition is None else [self.text(join.condition, join)]
        )
        what = f"{join.kind.upper()} {type(join).__name__.removeprefix('Logical').upper()}"
        if isinstance(join, LogicalIntervalJoin | LogicalTemporalJoin):
            pairs.append(f"{self.column(join.left, join.times[0])} AND {self.column(join.right, join.times[1])}")
        if isinstance(join, LogicalIntervalJoin):
            pairs.append(f"from {join.lower} to {join.upper} ms")
        return f"({self.rows(join.left)} {what} {self.rows(join.right)} ON {' AND '.join(pairs)})"

    # --- columns ----------------------------------------------------------------------------------------------------------

    def _column_of(self, relation: LogicalRelation, column: str) -> str:
        if isinstance(relation, LogicalProject):
            place = next((n for n, each in enumerate(relation.fields) if each.column == column), None)
            return column if place is None else self.text(relation.expressions[place], relation.input)
        if isinstance(relation, LogicalUnionAll):
            return " | ".join(dict.fromkeys(self.column(part, column) for part in relation.parts))
        for place, inner in enumerate(relation.inputs):
            if any(each.column == column for each in inner.fields):
                side = ("left.", "right.")[place] if len(relation.inputs) == 2 else ""
                return f"{side}{self.column(inner, column)}"
        return self._own_column(relation, column)

    def _own_column(self, relation: LogicalRelation, column: str) -> str:
        """Return what a column is that comes into being with a relation."""
        if isinstance(relation, LogicalAggregate | LogicalWindowAggregate | LogicalOver):
            call = next((each for each in relation.calls if each.column == column), None)
            if call is not None:
                return self.call(call, relation.input)
        if isinstance(relation, LogicalMatch):
            place = next((n for n, each in enumerate(relation.fields) if each.column == column), None)
            if place is not None:
                return expression_text(relation.measures[place], self._values(relation))
        field = next((each for each in relation.fields if each.column == column), None)
        return column if field is None else field.name
