"""The clauses that are read of a statement. sqlglot reads those of many databases: what nobody here looks at is refused by name, never passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlglot import exp

from poundlock.sql.errors import shown

_QUERY = frozenset({"with_", "order", "limit", "offset"})
_SET = _QUERY | {"this", "expression", "distinct"}
_CAST = frozenset({"this", "to", "safe", "requires_string"})
_READ: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.Select: _QUERY
    | {
        "expressions",
        "distinct",
        "from_",
        "joins",
        "laterals",
        "match",
        "where",
        "group",
        "having",
        "windows",
        "hint",
    },
    exp.Union: _SET,
    exp.Intersect: _SET,
    exp.Except: _SET,
    exp.Subquery: _QUERY | {"this", "alias", "joins", "laterals"},
    exp.Values: frozenset({"expressions", "alias"}),
    exp.With: frozenset({"expressions", "recursive"}),
    exp.CTE: frozenset({"this", "alias"}),
    exp.Table: frozenset(
        {"this", "db", "catalog", "alias", "joins", "laterals", "hints", "version", "ordinality", "partition"}
    ),
    exp.Join: frozenset({"this", "side", "kind", "method", "on", "using"}),
    exp.Lateral: frozenset({"this", "alias", "ordinality"}),
    exp.Group: frozenset({"expressions", "rollup", "cube", "grouping_sets", "all"}),
    exp.Order: frozenset({"expressions"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Limit: frozenset({"expression", "limit_options"}),
    exp.Fetch: frozenset({"count", "direction", "limit_options"}),
    exp.LimitOptions: frozenset({"rows"}),
    exp.Offset: frozenset({"expression"}),
    exp.Distinct: frozenset({"expressions"}),
    exp.Star: frozenset(),
    exp.Window: frozenset({"this", "alias", "partition_by", "order", "spec", "over"}),
    exp.WindowSpec: frozenset({"kind", "start", "start_side", "end", "end_side"}),
    exp.Cast: _CAST,
    exp.TryCast: _CAST,
    exp.Insert: frozenset({"this", "expression", "overwrite", "partition"}),
    exp.Create: frozenset({"this", "kind", "properties", "expression", "exists", "replace"}),
    exp.Drop: frozenset({"this", "kind", "exists", "temporary", "tables", "cascade", "restrict"}),
    exp.Describe: frozenset({"this", "kind", "style"}),
    exp.ComputedColumnConstraint: frozenset({"this"}),
}
"""What is read of each kind of node; of all others everything is, or they are refused where they are met."""
_WORDS: Mapping[str, str] = {
    "locks": "FOR UPDATE",
    "into": "SELECT … INTO",
    "expressions": "LIMIT … BY",
    "connect": "CONNECT BY",
    "by_name": "BY NAME",
    "sample": "TABLESAMPLE",
    "pivots": "PIVOT",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "sort": "SORT BY",
    "totals": "WITH TOTALS",
    "with_fill": "WITH FILL",
    "with_ties": "WITH TIES",
    "on": "DISTINCT ON",
    "except_": "* EXCEPT",
    "replace": "* REPLACE",
    "rename": "* RENAME",
    "exclude": "EXCLUDE",
    "conflict": "ON CONFLICT",
    "alternative": "INSERT OR",
    "default": "DEFAULT",
    "with_": "WITH before INSERT",
    "when": "a time behind the table",
    "no_schema_binding": "WITH NO SCHEMA BINDING",
    "view": "LATERAL VIEW",
    "cross_apply": "APPLY",
    "data_type": "a type behind the expression of a computed column",
    "not_null": "NOT NULL behind the expression of a computed column",
    "persisted": "STORED",
}
"""What clauses are called that are not as their key in capitals."""
_KINDS: Mapping[type[exp.Expr], str] = {
    exp.IgnoreNulls: "IGNORE NULLS",
    exp.RespectNulls: "RESPECT NULLS",
    exp.WithinGroup: "WITHIN GROUP",
}
_VIEW = exp.TemporaryProperty, exp.SchemaCommentProperty
_DATABASE = exp.SchemaCommentProperty, exp.Property


def unread(statement: exp.Expr) -> Iterator[tuple[exp.Expr, str]]:
    """Yield the clauses of a statement that nobody reads: the node that has it, and what it is called."""
    for node in statement.walk():
        kind = _KINDS.get(type(node))
        if kind is not None:
            yield node, kind
        read = _READ.get(type(node))
        if read is None:
            continue
        for key, value in node.args.items():
            if key not in read and _is_written(value):
                yield node, _WORDS.get(key, key.strip("_").upper().replace("_", " "))
        yield from ((node, what) for what in _values_unread(node))


def _is_written(value: Any) -> bool:
    return value is not None and value is not False and value != []


def _values_unread(node: exp.Expr) -> Iterator[str]:
    """Yield what a node has that is not read though others of its kind are."""
    if isinstance(node, exp.Join):
        kind, side, method = (str(node.args.get(key) or "").upper() for key in ("kind", "side", "method"))
        if method not in ("", "NATURAL"):
            yield f"{method} JOIN"
        elif kind not in ("", "INNER", "CROSS") and (kind != "OUTER" or not side):
            yield f"{side} {kind} JOIN".strip()
    elif isinstance(node, exp.Table):
        around = node.parent.parent if isinstance(node.parent, exp.Schema) else node.parent
        if node.args.get("partition") and not isinstance(around, exp.Insert):
            yield "PARTITION"
    elif isinstance(node, exp.Group):
        if node.args.get("all") is False:
            yield "GROUP BY DISTINCT"
        for key in ("rollup", "cube"):
            if any(not each.expressions for each in node.args.get(key) or ()):
                yield f"WITH {key.upper()}"
    elif isinstance(node, exp.Drop):
        if str(node.args.get("kind")).upper() not in ("DATABASE", "SCHEMA"):
            yield from (word.upper() for word in ("cascade", "restrict") if node.args.get(word))
    elif isinstance(node, exp.Describe):
        words = (str(node.args.get(key) or "").upper() for key in ("kind", "style"))
        yield from (f"DESCRIBE {word}" for word in words if word not in ("", "TABLE", "VIEW", "EXTENDED"))
    elif isinstance(node, exp.Create):
        kind = str(node.args.get("kind")).upper()
        properties = node.args.get("properties")
        allowed = {"VIEW": _VIEW, "DATABASE": _DATABASE}.get(kind, (exp.Expr,))
        for each in properties.expressions if properties is not None else ():
            if not isinstance(each, allowed) or (kind == "DATABASE" and isinstance(each, exp.CharacterSetProperty)):
                yield f"{shown(each)} of a {kind}"
