"""FROM: tables, views, queries, VALUES, functions of tables, and their joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.analysis.context import Analysis, Queries
from poundlock.sql.analysis.hints import hinted
from poundlock.sql.analysis.joins import conjuncts_of, filtered, joined, lookup_joined, using_columns
from poundlock.sql.analysis.patterns.match import MatchAnalysis
from poundlock.sql.analysis.scope import NamedFields, QueryScope
from poundlock.sql.analysis.tables import scanned
from poundlock.sql.analysis.unnest import function_rows, is_own_rows, unnested
from poundlock.sql.analysis.values import values_of
from poundlock.sql.analysis.windows import in_order, is_window_function, window_table
from poundlock.sql.catalog import ViewDefinition
from poundlock.sql.dialect import TableArgument
from poundlock.sql.errors import shown
from poundlock.sql.relations.changes import upsert_key
from poundlock.sql.relations.fields import Field
from poundlock.sql.relations.tree import (
    JoinKind,
    LogicalProject,
    LogicalRelation,
    LogicalTemporalJoin,
    LogicalValues,
)
from poundlock.sql.tables import TableDefinition, name_of

_SIDES: dict[str, JoinKind] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


class FromClause:
    """Makes relations of FROM.

    Args:
        queries: makes those of queries in it.
        common: the queries of WITH, by name.
    """

    def __init__(self, analysis: Analysis, queries: Queries) -> None:
        self._analysis, self._queries = analysis, queries

    def relation(self, select: exp.Select, outer: QueryScope | None) -> tuple[LogicalRelation, QueryScope]:
        """Return the relation of a query's FROM, and what its columns are called."""
        scope = QueryScope(self._analysis.script, outer=outer)
        source = select.args.get("from_")
        if source is None:
            return LogicalValues((), ((),)), scope
        version = source.this.args.get("version")
        if version is not None:
            raise self._analysis.error(
                version,
                "FOR SYSTEM_TIME AS OF behind the first table of FROM",
                "write it behind a table that is joined, with a time of the rows before it",
                "unsupported_query",
            )
        relation, own = self._item(source.this, scope)
        match = select.args.get("match")
        if match is not None:
            relation, own = self._matched(select, match, relation, own)
        scope = scope.with_relations(own)
        for join in [*_joins_in(source.this), *(select.args.get("joins") or ())]:
            relation, scope = self._joined(relation, scope, join)
        for lateral in select.args.get("laterals") or ():
            relation, scope = self._joined(relation, scope, exp.Join(this=lateral, kind="CROSS"))
        return relation, scope

    # --- what stands in FROM ----------------------------------------------------------------------------------------------

    def _item(self, node: exp.Expr, scope: QueryScope) -> tuple[LogicalRelation, NamedFields]:
        alias = node.args.get("alias")
        if isinstance(node, exp.Table):
            if is_own_rows(self._analysis, node.this):
                return function_rows(self._analysis, LogicalValues((), ((),)), scope, node, is_outer=False)
            if isinstance(node.this, exp.Anonymous):
                return self._renamed(self._table_function(node.this), alias, None)
            relation, name = self._table(node)
            return self._renamed(relation, alias, name)
        if isinstance(node, exp.Subquery):
            return self._renamed(self._queries.relation(node.this, scope.outer), alias, None)
        if isinstance(node, exp.Values):
            values = values_of(self._analysis, node)
            named = renamed_fields(self._analysis, values.fields, alias)
            return replace(values, fields=named), NamedFields(_name_of(alias), named)
        if isinstance(node, exp.Lateral) and not isinstance(node.this, exp.Subquery):
            return function_rows(self._analysis, LogicalValues((), ((),)), scope, node, is_outer=False)
        if isinstance(node, exp.Lateral):
            raise self._analysis.missing(node, "LATERAL as the first of FROM")
        raise self._analysis.missing(node, f"{shown(node)} in FROM")

    def _matched(
        self, select: exp.Select, match: exp.Expr, relation: LogicalRelation, own: NamedFields
    ) -> tuple[LogicalRelation, NamedFields]:
        if select.args.get("joins") or select.args.get("laterals"):
            raise self._analysis.error(
                match,
                "MATCH_RECOGNIZE beside other tables",
                "put it into a sub-query, or a view, and join that",
                "unsupported_query",
            )
        return self._renamed(
            MatchAnalysis(self._analysis, relation, own).relation(match), match.args.get("alias"), None
        )

    def _renamed(
        self, relation: LogicalRelation, alias: exp.Expr | None, name: str | None
    ) -> tuple[LogicalRelation, NamedFields]:
        """Return the relation and its name; columns have those that the alias gives them."""
        fields = renamed_fields(self._analysis, relation.fields, alias)
        return relation, NamedFields(_name_of(alias) or name, fields)

    def _table(self, node: exp.Table) -> tuple[LogicalRelation, str]:
        name = name_of(node)
        if node.args.get("pivots") or node.args.get("sample"):
            raise self._analysis.missing(node, "PIVOT or TABLESAMPLE")
        common = self._queries.common(name[-1]) if len(name) == 1 else None
        if common is not None:
            return self._again(common), name[-1]
        try:
            whole, relation = self._analysis.catalogs.find(name)
        except DefinitionError as error:
            raise self._analysis.error(node, error.what, error.next, "unknown_table") from None
        if isinstance(relation, ViewDefinition):
            if node.args.get("hints"):
                raise self._analysis.error(
                    node,
                    f"a hint behind the view {name[-1]}",
                    "write it behind a table, in the view",
                    "unsupported_query",
                )
            return self._view(node, relation), name[-1]
        assert isinstance(relation, TableDefinition)
        return self._again(scanned(self._analysis, whole, hinted(self._analysis, node, relation))), name[-1]

    def _view(self, node: exp.Table, view: ViewDefinition) -> LogicalRelation:
        relation = self._queries.view(view)
        if view.columns:
            if len(view.columns) != len(relation.fields):
                raise self._analysis.error(
                    node,
                    f"the view {node.name} has {len(view.columns)} names for {len(relation.fields)} columns",
                    "give each column of its query a name",
                    "column_count_mismatch",
                )
            named = zip(relation.fields, view.columns, strict=True)
            fields = tuple(each.renamed(name) for each, name in named)
            relation = (
                LogicalProject(fields, relation, tuple(each.ref for each in relation.fields)) if fields else relation
            )
        return self._again(relation)

    def _again(self, relation: LogicalRelation) -> LogicalRelation:
        """Return a relation under column names of its own, as it may stand in a statement twice."""
        if isinstance(relation, LogicalValues) and not relation.fields:
            return relation
        fields = tuple(replace(each, column=self._analysis.names.fresh(each.name)) for each in relation.fields)
        return LogicalProject(fields, relation, tuple(each.ref for each in relation.fields))

    def _table_function(self, node: exp.Anonymous) -> LogicalRelation:
        inner = node.expressions[0] if str(node.this).upper() == "TABLE" and node.expressions else node
        if not isinstance(inner, exp.Anonymous) or not is_window_function(str(inner.this)):
            raise self._analysis.error(
                node,
                f"there is no function of tables {shown(inner)}",
                "write TUMBLE, HOP, CUMULATE or SESSION",
                "unknown_function",
            )
        given = in_order(self._analysis, inner)
        if len(given) < 2 or not isinstance(given[0], TableArgument):
            raise self._analysis.error(
                node,
                f"{inner.this} takes TABLE name, DESCRIPTOR(column) and spans of time",
                "write such as TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
                "wrong_arguments",
            )
        relation, _ = self._table(given[0].this)
        scope = self._analysis.scope_of(relation)
        keys = [scope.find([p.name for p in key.parts], key)[0] for key in given[0].args.get("partition_by") or ()]
        described = (
            given[1].expressions[0] if isinstance(given[1], exp.Anonymous) and given[1].expressions else given[1]
        )
        return window_table(self._analysis, str(inner.this), relation, described, given[2:], keys)

    # --- joins ------------------------------------------------------------------------------------------------------------

    def _joined(self, left: LogicalRelation, scope: QueryScope, join: exp.Join) -> tuple[LogicalRelation, QueryScope]:
        item, on = join.this, join.args.get("on")
        side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
        made: JoinKind = {"SEMI": "semi", "ANTI": "anti"}.get(kind, _SIDES.get(side, "inner"))  # type: ignore[assignment]
        if isinstance(item, exp.Unnest):
            return self._unnested(left, scope, item, is_outer=made == "left")
        if isinstance(item, exp.Lateral):
            return self._lateral(left, scope, item, made, on)
        right, own = self._item(item, scope)
        both = scope.with_relations(own)
        version = item.args.get("version") if isinstance(item, exp.Table) else None
        conditions = [] if on is None else list(conjuncts_of(self._analysis.condition(on, both)))
        names = using_columns(self._analysis, join, [f for r in scope.relations for f in r.fields], own.fields)
        if names and version is not None:
            raise self._analysis.error(
                version, "FOR SYSTEM_TIME AS OF with USING", "write ON left.column = right.column"
            )
        if names:
            return self._joined_using(left, right, scope, own, made, names)
        if version is not None:
            return self._temporal(left, right, scope, own, made, version, conditions)
        if made == "inner":
            relation: LogicalRelation = filtered(joined("inner", left, right, ()), conditions)
        else:
            relation = joined(made, left, right, conditions)
        return relation, _scope_behind(relation, both)

    def _joined_using(
        self,
        left: LogicalRelation,
        right: LogicalRelation,
        scope: QueryScope,
        own: NamedFields,
        kind: JoinKind,
        names: Sequence[str],
    ) -> tuple[LogicalRelation, QueryScope]:
        conditions = []
        for name in names:
            one, _ = scope.find([name], exp.Null())
            other = next(each for each in own.fields if each.name == name)
            conditions.append(self._analysis.equal(one.ref, other.ref))
        relation = joined(kind, left, right, conditions)
        if kind in ("right", "full"):
            raise self._analysis.missing(
                exp.Null(), f"{kind.upper()} JOIN … USING: write ON, and COALESCE of both columns"
            )
        hidden = replace(own, hidden=frozenset(names))
        both = QueryScope(scope.script, (*scope.relations, hidden), scope.outer)
        return relation, _scope_behind(relation, both)

    def _temporal(
        self,
        left: LogicalRelation,
        right: LogicalRelation,
        scope: QueryScope,
        own: NamedFields,
        kind: JoinKind,
        version: exp.Expr,
        conditions: Sequence[object],
    ) -> tuple[LogicalRelation, QueryScope]:
        moment, which = version.expression, (version.name.upper(), str(version.args.get("kind")).upper())
        if which != ("TIMESTAMP", "AS OF"):
            raise self._analysis.missing(version, f"FOR {which[0]} {which[1]}")
        at = scope.find([each.name for each in moment.parts], version)[0] if isinstance(moment, exp.Column) else None
        if at is None or at.time is None:
            raise self._analysis.error(
                version,
                f"FOR SYSTEM_TIME AS OF {moment.sql()}, which is no time attribute of the left side",
                "name a column with a watermark, or one AS PROCTIME()",
                "unsupported_query",
            )
        if kind not in ("inner", "left"):
            raise self._analysis.error(
                version,
                f"a {kind.upper()} JOIN of versions: right rows alone have no time that one is of",
                "write JOIN or LEFT JOIN",
                "unsupported_query",
            )
        if at.time == "proctime":
            looked_up = lookup_joined(kind, left, right, conditions)  # type: ignore[arg-type]
            if looked_up is None:
                raise self._analysis.error(
                    version,
                    f"a join with {own.name} by the clock needs a column of that table which equals one of the left side",
                    f"write … ON o.id = {own.name}.id; {own.name} is a table, without aggregates or joins",
                    "unsupported_query",
                )
            return looked_up, _scope_behind(looked_up, scope.with_relations(own))
        since = right.rowtime
        if since is None:
            raise self._analysis.error(
                version,
                f"the rows of {own.name} have no event time, so that no version is the one of a time",
                "give the table WATERMARK FOR a column",
                "not_a_time_attribute",
            )
        plain = joined(kind, left, right, conditions)  # type: ignore[arg-type]
        self._check_version_key(version, own, right, [column for _, column in plain.keys])
        relation = LogicalTemporalJoin(
            plain.fields, kind, plain.left, plain.right, plain.keys, plain.condition, times=(at.column, since.column)
        )
        return relation, _scope_behind(relation, scope.with_relations(own))

    def _check_version_key(
        self, node: exp.Expr, own: NamedFields, right: LogicalRelation, joined_by: Sequence[str]
    ) -> None:
        """Refuse a join with versions by other columns than those by which the rows of a table replace each other."""
        key = upsert_key(right)
        names = {each.column: each.name for each in right.fields}
        if key is None:
            what = f"{own.name} has no primary key, so that no row is the version of another one"
            next = "write PRIMARY KEY (…) NOT ENFORCED into the table"
        elif set(key) <= {*joined_by}:
            return
        else:
            columns = ", ".join(names.get(each, each) for each in key)
            what = f"a join of versions that is not by the primary key of {own.name}"
            next = f"write ON an equal column for each of {columns}"
        raise self._analysis.error(node, what, next, "unsupported_query")

    def _unnested(
        self, left: LogicalRelation, scope: QueryScope, item: exp.Unnest, *, is_outer: bool
    ) -> tuple[LogicalRelation, QueryScope]:
        (node, *more) = item.expressions
        if more:
            raise self._analysis.missing(item, "UNNEST of several collections")
        typed = self._analysis.expression(node, scope)
        numbered = bool(item.args.get("offset"))
        relation, own = unnested(self._analysis, left, typed, item, is_outer=is_outer, numbered=numbered)
        return relation, scope.with_relations(own)

    def _lateral(
        self, left: LogicalRelation, scope: QueryScope, item: exp.Lateral, kind: JoinKind, on: exp.Expr | None
    ) -> tuple[LogicalRelation, QueryScope]:
        if not isinstance(item.this, exp.Subquery):
            return self._of_function(left, scope, item, kind, on)
        relation, fields = self._queries.lateral(left, scope, item.this.this, kind)
        alias = item.args.get("alias")
        both = scope.with_relations(NamedFields(_name_of(alias), renamed_fields(self._analysis, fields, alias)))
        if on is not None:
            relation = filtered(relation, list(conjuncts_of(self._analysis.condition(on, both))))
        return relation, _scope_behind(relation, both)

    def _of_function(
        self, left: LogicalRelation, scope: QueryScope, item: exp.Expr, kind: JoinKind, on: exp.Expr | None
    ) -> tuple[LogicalRelation, QueryScope]:
        """Return a relation joined with the rows that a function of the user's own gives for each of its rows."""
        if kind not in ("inner", "left"):
            raise self._analysis.missing(item, f"a {kind.upper()} JOIN of a function's rows")
        relation, own = function_rows(self._analysis, left, scope, item, is_outer=kind == "left")
        both = scope.with_relations(own)
        if on is None or (isinstance(on, exp.Boolean) and on.this):
            return relation, both
        if kind == "left":
            raise self._analysis.missing(on, "a LEFT JOIN of a function's rows ON something else than TRUE")
        return filtered(relation, list(conjuncts_of(self._analysis.condition(on, both)))), both


def _joins_in(node: exp.Expr) -> Sequence[exp.Join]:
    return node.args.get("joins") or ()


def _scope_behind(relation: LogicalRelation, scope: QueryScope) -> QueryScope:
    """Return a scope whose columns are those of a relation: padded ones may be null, times may be plain."""
    now = {each.column: each for each in relation.fields}
    relations = tuple(
        replace(
            named,
            fields=tuple(now[f.column].renamed(f.name) if f.column in now else f for f in named.fields),
        )
        for named in scope.relations
    )
    return QueryScope(scope.script, relations, scope.outer)


def _name_of(alias: exp.Expr | None) -> str | None:
    return (alias.name or None) if alias is not None else None


def renamed_fields(analysis: Analysis, fields: Sequence[Field], alias: exp.Expr | None) -> tuple[Field, ...]:
    """Return columns under the names that an alias gives them, where it gives some.

    Raises:
        SqlError: there are more or fewer names than columns.
    """
    names = [each.name for each in alias.args.get("columns") or ()] if alias is not None else []
    if alias is None or not names:
        return tuple(fields)
    if len(names) != len(fields):
        raise analysis.error(
            alias,
            f"{len(names)} names for {len(fields)} columns",
            "give each column a name",
            "column_count_mismatch",
        )
    return tuple(each.renamed(name) for each, name in zip(fields, names, strict=True))
