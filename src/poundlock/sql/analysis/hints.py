"""Hints: options of a table behind its name, and behind SELECT how long state is kept, how joins are computed, and how a table is looked up in.

What a hint asks for is done, or is what is done anyhow and noted, or the hint is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.analysis.context import Analysis
from poundlock.sql.analysis.scope import QueryScope
from poundlock.sql.relations.state_ttl import StateTtl
from poundlock.sql.relations.tree import LogicalRelation
from poundlock.sql.tables import TableDefinition
from poundlock.values import duration, span_ms

_TTL = "write such as SELECT /*+ STATE_TTL('o' = '1 d', 'c' = '12 h') */"
_LOOKUP = "write LOOKUP('table' = 'name'), or leave the hint out"
_STRATEGIES = ("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP")
"""Joins of Flink's batch mode."""


def hinted(analysis: Analysis, node: exp.Expr, definition: TableDefinition) -> TableDefinition:
    """Return a table with the options that hints behind its name give it.

    Raises:
        SqlError: there is another hint than OPTIONS.
    """
    options = dict(definition.options)
    for hint in node.args.get("hints") or ():
        given = hint.args.get("options")
        if not given:
            raise analysis.error(
                node,
                f"the hint {hint.name or '/*+ */'} is not there",
                "write /*+ OPTIONS('key' = 'value') */, or leave it out",
                "unsupported_query",
            )
        options.update(given)
    return definition if options == definition.options else replace(definition, options=options)


def state_ttl_of(analysis: Analysis, select: exp.Select, scope: QueryScope) -> StateTtl | None:
    """Return how long state of single tables in FROM is kept, as the hint STATE_TTL behind SELECT says; None without one.

    Hints about joins are looked at as well; what they do not change is noted.

    Args:
        scope: what stands in FROM.

    Raises:
        SqlError: there is another hint, or one that names no table of FROM or no span of time, or asks for what is not there.
    """
    hint = select.args.get("hint")
    spans: dict[str, int] = {}
    for each in () if hint is None else hint.expressions:
        name = each.name.upper()
        if name in _STRATEGIES:
            _check_strategy(analysis, select, scope, each)
        elif name == "LOOKUP":
            _check_lookup(analysis, select, scope, each)
        elif name == "STATE_TTL":
            for table, text in _pairs(analysis, select, each, _TTL):
                _check_named(analysis, select, scope, name, table)
                try:
                    spans.setdefault(table, span_ms(duration(text)))
                except DefinitionError as error:
                    raise analysis.error(select, error.what, _TTL, "bad_option_value") from None
        else:
            raise analysis.missing(select, f"the hint {name}")
    if not spans:
        return None
    return StateTtl(spans, {f.column: each.name for each in scope.relations if each.name for f in each.fields})


def kept_for(analysis: Analysis, select: exp.Select, ttl: StateTtl, relation: LogicalRelation) -> LogicalRelation:
    """Return a query with the times to live of its hint.

    Raises:
        SqlError: one of them has no effect.
    """
    made = ttl.given_to(relation)
    for name in ttl.unused:
        raise analysis.error(
            select,
            f"STATE_TTL of {name} has no effect: it is neither a side of a regular join nor what is aggregated",
            "leave it out, or SET 'table.exec.state.ttl', which is for all state",
            "unsupported_query",
        )
    return made


def _check_strategy(analysis: Analysis, select: exp.Select, scope: QueryScope, hint: exp.Expr) -> None:
    """Note that a hint changes nothing. Raises SqlError where it names no table of FROM."""
    name = hint.name.upper()
    tables = [each.name for each in hint.expressions if isinstance(each, exp.Column)]
    if not tables or len(tables) < len(hint.expressions):
        raise analysis.error(
            select, f"{name} without names of tables", f"write such as {name}(o), or leave it out", "wrong_arguments"
        )
    for table in tables:
        _check_named(analysis, select, scope, name, table)
    analysis.notes.append(
        f"the hint {name} changes nothing: a join takes rows of both sides by their key; Flink looks at it in batch mode alone"
    )


def _check_lookup(analysis: Analysis, select: exp.Select, scope: QueryScope, hint: exp.Expr) -> None:
    """Note that a hint changes nothing. Raises SqlError where it asks for something else than what is done."""
    given: Mapping[str, str] = dict(_pairs(analysis, select, hint, _LOOKUP))
    table = given.get("table")
    if table is None:
        raise analysis.error(select, "LOOKUP without 'table'", _LOOKUP, "missing_option")
    _check_named(analysis, select, scope, "LOOKUP", table)
    for key, value in given.items():
        if key != "table" and (key, value.lower()) not in (("async", "false"), ("shuffle", "false")):
            raise analysis.error(
                select,
                f"LOOKUP with '{key}' = '{value}', which is not there: a table is asked for all keys of a batch at once",
                "leave it out; 'lookup.max-retries' of the table says how often a query that failed is asked again",
                "unsupported_query",
            )
    analysis.notes.append(
        f"the hint LOOKUP changes nothing: {table} is asked for all keys of a batch at once in any case"
    )


def _check_named(analysis: Analysis, select: exp.Select, scope: QueryScope, hint: str, table: str) -> None:
    names = sorted({each.name for each in scope.relations if each.name is not None})
    if table not in names:
        raise analysis.error(
            select,
            f"{hint} of {table}, which does not stand in FROM",
            f"name one of {', '.join(names) or 'its tables, which need an alias'}",
            "unknown_table",
        )


def _pairs(analysis: Analysis, select: exp.Select, hint: exp.Expr, write: str) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a hint, which are texts."""
    parts = hint.expressions
    texts = [part.args.get(side) for part in parts if isinstance(part, exp.EQ) for side in ("this", "expression")]
    if (
        not parts
        or len(texts) < 2 * len(parts)
        or not all(isinstance(each, exp.Literal) and each.is_string for each in texts)
    ):
        what = "names and spans of time" if hint.name.upper() == "STATE_TTL" else "'key' = 'value'"
        raise analysis.error(select, f"{hint.name.upper()} without {what}", write, "wrong_arguments")
    for part in parts:
        yield part.this.name, part.expression.name
