"""What a session knows by name: databases, tables, views, and temporary ones before them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlglot
from sqlglot import exp

from poundlock.errors import DefinitionError
from poundlock.sql.catalog import Catalogs, FullName, Relation, ViewDefinition
from poundlock.sql.tables import TableDefinition


def table(name: str = "t") -> TableDefinition:
    return TableDefinition((name,), (), None, (), (), {}, None, False, False, None, None)


def view() -> ViewDefinition:
    query = sqlglot.parse_one("SELECT 1")
    assert isinstance(query, exp.Query)
    return ViewDefinition((), query, "SELECT 1")


def test_a_temporary_view_hides_a_table_until_it_is_dropped() -> None:
    known, events, fake = Catalogs(), table(), view()
    assert known.create(["events"], events)
    assert known.create(["events"], fake, temporary=True)
    whole = FullName("default_catalog", "default_database", "events")
    assert known.find(["events"]) == (whole, fake)
    with pytest.raises(DefinitionError, match="a temporary view hides") as refused:
        known.drop(["events"], "table")
    assert refused.value.next == "write DROP TEMPORARY TABLE first"
    known.drop(["events"], "view", temporary=True)
    assert known.find(["default_database", "events"]) == (whole, events)
    known.drop(["events"], "table")
    assert list(known.relations()) == []


def test_databases_and_catalogs() -> None:
    known = Catalogs()
    known.create_catalog("lake")
    known.create_database(["lake", "raw"])
    known.create_database(["lake", "raw"], if_not_exists=True)
    known.use(["lake", "raw"])
    known.create(["t"], table())
    assert known.find(["t"])[0] == FullName("lake", "raw", "t")
    assert (known.catalogs(), known.databases()) == (["default_catalog", "lake"], ["default_database", "raw"])
    known.use_catalog("default_catalog")
    assert (known.database, str(known.find(["lake", "raw", "t"])[0])) == ("default_database", "lake.raw.t")
    known.drop_database(["lake", "raw"], cascade=True)
    known.drop_database(["lake", "raw"], if_exists=True)
    assert known.databases("lake") == ["default_database"]


def test_renaming_and_other_definitions() -> None:
    known, other = Catalogs(), table("other")
    known.create(["a"], table())
    known.rename(["a"], ["b"])
    known.replace(["b"], other)
    assert [(name.name, made) for name, made in known.relations()] == [("b", other)]
    assert not known.create(["b"], table(), if_not_exists=True)


def with_t(do: Callable[[Catalogs], object]) -> None:
    known = Catalogs()
    made: Relation = table()
    known.create(["orders"], made)
    known.create(["now"], view(), temporary=True)
    do(known)


@pytest.mark.parametrize(
    ("do", "says", "next"),
    [
        (lambda known: known.find(["order"]), "there is no table or view order", "did you mean orders?"),
        (lambda known: known.find(["a", "b", "c"]), "there is no table or view a.b.c", "CREATE it first"),
        (lambda known: known.create(["orders"], table()), "default_database.orders already", "DROP it first"),
        (lambda known: known.create(["x", "t"], table()), "there is no database x in default_catalog", "SHOW DATABASES"),
        (lambda known: known.create(["x", "y", "t"], table()), "there is no catalog x", "SHOW CATALOGS"),
        (lambda known: known.drop(["orders"], "view"), "orders is a table", "write DROP TABLE"),
        (lambda known: known.drop(["nope"], "table"), "there is no table", "IF EXISTS"),
        (lambda known: known.drop(["orders"], "table", temporary=True), "there is no temporary table", "IF EXISTS"),
        (lambda known: known.rename(["now"], ["then"]), "is temporary", "DROP it"),
        (lambda known: known.rename(["orders"], ["orders"]), "already", "another name"),
        (lambda known: known.create_catalog("default_catalog"), "there is a catalog", "USE CATALOG"),
        (lambda known: known.create_database(["default_database"]), "there is a database", "IF NOT EXISTS"),
        (lambda known: known.drop_database(["default_database"]), "has 1 tables, views and functions", "CASCADE"),
        (lambda known: known.drop_database(["default_database"], cascade=True), "is the current database", "USE another"),
        (lambda known: known.use(["default_databas"]), "there is no database", "did you mean default_database?"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(do: Callable[[Catalogs], object], says: str, next: str) -> None:
    with pytest.raises(DefinitionError, match=says) as refused:
        with_t(do)
    assert next in refused.value.next
