"""SHOW: what there is, by name."""

from __future__ import annotations

import re

from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.analysis.aggregate_calls import AGGREGATES
from poundlock.sql.analysis.context import Analysis
from poundlock.sql.catalog import ViewDefinition, kind_of
from poundlock.sql.create_text import create_catalog_text, create_table_text
from poundlock.sql.dialect import Flink
from poundlock.sql.functions.engines import NAMES
from poundlock.sql.script import Show
from poundlock.sql.statements.definitions import describe
from poundlock.sql.statements.results import ShownRows
from poundlock.sql.tables import TableDefinition
from poundlock.sql.types import STRING, SqlType

_MODULE = "core"
"""What Flink calls the module of its own functions, and there is no other one here."""


def shown(analysis: Analysis, statement: Show, *, is_trial: bool = False) -> ShownRows:
    """Return what a SHOW statement shows.

    Args:
        is_trial: whether the script is only checked: a catalog on disk has not what the script puts there, and a database may be missing.

    Raises:
        DefinitionError: there is no such table, database or catalog, or nothing of the kind here.
    """
    catalogs = analysis.catalogs
    name = tuple(part.strip("` ") for part in (statement.name or "").split(".") if part)
    what = statement.what
    if what == "COLUMNS":
        if not name:
            raise DefinitionError("SHOW COLUMNS of no table", next="write SHOW COLUMNS FROM name")
        described = describe(analysis, exp.to_table(".".join(f"`{part}`" for part in name), dialect=Flink))
        return ShownRows(described.columns, [row for row in described.rows if _matches(statement, row[0])])
    if what == "CREATE CATALOG":
        catalog = ".".join(name)
        return ShownRows((("result", STRING),), [(create_catalog_text(catalog, catalogs.described_catalog(catalog)),)])
    if what.startswith("CREATE"):
        whole, relation = catalogs.find(name)
        is_table = isinstance(relation, TableDefinition)
        if is_table is not (what == "CREATE TABLE"):
            raise DefinitionError(
                f"{whole} is a {kind_of(relation)}", next=f"write SHOW CREATE {kind_of(relation).upper()}"
            )
        place = (whole.catalog, whole.database, whole.name)
        text = create_table_text(place, relation) if isinstance(relation, TableDefinition) else relation.text
        return ShownRows((("result", STRING),), [(text,)])
    if what in ("TABLES", "VIEWS") and not is_trial:
        catalogs.check_database(*_place(name))
    if what == "FULL MODULES":
        return ShownRows((("module name", STRING), ("used", SqlType("BOOLEAN"))), [(_MODULE, True)])
    names = {
        "MODULES": lambda: [_MODULE],
        "CATALOGS": lambda: catalogs.catalogs(),
        "CURRENT CATALOG": lambda: [catalogs.catalog],
        "DATABASES": lambda: catalogs.databases(name[0] if name else None),
        "CURRENT DATABASE": lambda: [catalogs.database],
        "TABLES": lambda: [n.name for n, _ in catalogs.relations(*_place(name))],
        "VIEWS": lambda: [n.name for n, r in catalogs.relations(*_place(name)) if isinstance(r, ViewDefinition)],
        "USER FUNCTIONS": lambda: catalogs.functions.names(name),
        "FUNCTIONS": lambda: sorted({*catalogs.functions.names(name), *map(str.lower, (*NAMES, *AGGREGATES))}),
    }.get(what)
    if names is None:
        raise DefinitionError(
            f"SHOW {what} is not there yet", next="SHOW TABLES, VIEWS, FUNCTIONS, DATABASES, CATALOGS or COLUMNS"
        )
    title = what.removeprefix("CURRENT ").removeprefix("USER ").lower().removesuffix("s") + " name"
    return ShownRows(((title, STRING),), [(each,) for each in names() if _matches(statement, each)])


def _place(name: tuple[str, ...]) -> tuple[str | None, str | None]:
    if len(name) == 2:
        return name[0], name[1]
    return None, name[0] if name else None


def _matches(statement: Show, text: str) -> bool:
    if statement.pattern is None:
        return True
    pattern = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in statement.pattern)
    flags = re.IGNORECASE if statement.ignores_case else 0
    return bool(re.fullmatch(pattern, text, flags | re.DOTALL)) is not statement.is_negated
