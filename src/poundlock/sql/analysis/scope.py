"""What a column's name can mean at a place of a query: the relations of FROM, and those of the queries around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from poundlock.errors import did_you_mean
from poundlock.sql.errors import SqlError
from poundlock.sql.expressions.tree import Expression
from poundlock.sql.relations.fields import Field


@dataclass(frozen=True, slots=True)
class NamedFields:
    """One relation of FROM.

    Args:
        name: that it goes by; None where a query without an alias stands there.
        hidden: names that `*` leaves out here, since USING gives them once.
    """

    name: str | None
    fields: tuple[Field, ...]
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class QueryScope:
    """The relations of a query's FROM.

    Args:
        outer: the scope of the query around it.
    """

    script: str
    relations: tuple[NamedFields, ...] = ()
    outer: QueryScope | None = field(default=None)

    def with_relations(self, *more: NamedFields) -> QueryScope:
        """Return the scope with further relations behind those there are."""
        return QueryScope(self.script, (*self.relations, *more), self.outer)

    def find(self, parts: Sequence[str], node: exp.Expr) -> tuple[Field, Sequence[str]]:
        """Return the column that a name means, and the names of fields in it that stand behind.

        Args:
            parts: the names between the dots.

        Raises:
            SqlError: there is no such column, or more than one.
        """
        scope: QueryScope | None = self
        while scope is not None:
            matches = list(scope._matches(parts, node))
            if matches:
                return matches[0]
            scope = scope.outer
        raise self._unknown(parts, node)

    def resolve(self, parts: tuple[str, ...], node: exp.Expr) -> tuple[Expression, tuple[str, ...]]:
        """Return the column that a name means as an expression, and the names of fields in it that stand behind.

        Raises:
            SqlError: there is no such column, or more than one.
        """
        field, behind = self.find(parts, node)
        return field.ref, tuple(behind)

    def _matches(self, parts: Sequence[str], node: exp.Expr) -> Iterator[tuple[Field, Sequence[str]]]:
        if len(parts) > 1:
            for relation in self.relations:
                if relation.name == parts[0]:
                    own = [each for each in relation.fields if each.name == parts[1]]
                    if own:
                        yield own[0], parts[2:]
                        return
        own = [
            each
            for relation in self.relations
            for each in relation.fields
            if each.name == parts[0] and each.name not in relation.hidden
        ]
        if len({each.column for each in own}) > 1:
            owners = [r.name or "a query" for r in self.relations if any(f.name == parts[0] for f in r.fields)]
            raise SqlError.at(
                node,
                f"{parts[0]} is a column of {' and of '.join(owners)}",
                script=self.script,
                next=f"write whose it is, such as {owners[0]}.{parts[0]}",
                kind="ambiguous_column",
            )
        if own:
            yield own[0], parts[1:]

    def _unknown(self, parts: Sequence[str], node: exp.Expr) -> SqlError:
        known: list[str] = []
        scope: QueryScope | None = self
        while scope is not None:
            known += [each.name for relation in scope.relations for each in relation.fields]
            scope = scope.outer
        among = sorted(dict.fromkeys(known))
        use = (
            f"use one of {', '.join(among[:20])}"
            if among
            else "a query without FROM has no columns; texts stand in '…'"
        )
        what = f"there is no column {'.'.join(parts)}"
        return SqlError.at(
            node, what, script=self.script, next=did_you_mean(parts[-1], among, use), kind="unknown_column"
        )

    def star(self, of: str | None, node: exp.Expr) -> list[Field]:
        """Return the columns that * means, or those of one relation.

        Raises:
            SqlError: there is no such relation.
        """
        if of is None:
            return [f for relation in self.relations for f in relation.fields if f.name not in relation.hidden]
        for relation in self.relations:
            if relation.name == of:
                return list(relation.fields)
        names = [each.name for each in self.relations if each.name is not None]
        raise SqlError.at(
            node,
            f"there is no {of} in FROM",
            script=self.script,
            next=did_you_mean(of, names, f"use one of {', '.join(names)}"),
            kind="unknown_table",
        )
