"""What a script can name: catalogs, their databases, and the tables and views in them; temporary ones stand before those.

Names and rules are Flink's: a session begins in `default_catalog`.`default_database`, a name is resolved in the current database, and a
temporary object hides a permanent one of its name until it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Literal

from sqlglot import exp

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.function_names import FunctionNames
from poundlock.sql.tables import TableDefinition

DEFAULT_CATALOG, DEFAULT_DATABASE = "default_catalog", "default_database"
Kind = Literal["table", "view"]


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """What a CREATE VIEW statement says.

    Args:
        columns: their names, where the statement gives any.
        text: of the statement, as it was written.
        script: that it is of, for errors in it.
        catalog: that names in the query are looked for in, and `database`.
    """

    columns: tuple[str, ...]
    query: exp.Query
    text: str
    comment: str | None = None
    script: str = ""
    catalog: str = DEFAULT_CATALOG
    database: str = DEFAULT_DATABASE


Relation = TableDefinition | ViewDefinition


@dataclass(frozen=True, slots=True, order=True)
class FullName:
    """The whole name of a table or view."""

    catalog: str
    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.catalog}.{self.database}.{self.name}"


def view_of(created: exp.Create, text: str, catalog: str, database: str, script: str | None = None) -> ViewDefinition:
    """Return the view that a CREATE VIEW statement makes.

    Args:
        text: of the statement; `script`: that it is of, where that has more.

    Raises:
        DefinitionError: it has no query.
    """
    target, query = created.this, created.expression
    if not isinstance(query, exp.Query):
        raise DefinitionError("a view without a query", next="write CREATE VIEW name AS SELECT …")
    columns = tuple(each.name for each in target.expressions) if isinstance(target, exp.Schema) else ()
    properties = created.args.get("properties")
    kinds = properties.expressions if properties is not None else ()
    comment = next((each.name for each in kinds if isinstance(each, exp.SchemaCommentProperty)), None)
    return ViewDefinition(columns, query, text, comment, text if script is None else script, catalog, database)


@dataclass
class Database:
    """What a database holds.

    Args:
        relations: its tables and views by name.
        functions: the places in Python of its functions, by name in lower case.
        properties: what its statement gives it; nothing here depends on them.
    """

    relations: MutableMapping[str, Relation] = field(default_factory=dict)
    functions: MutableMapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def kind_of(relation: Relation) -> Kind:
    """Return whether it is a table or a view."""
    return "table" if isinstance(relation, TableDefinition) else "view"


@dataclass(frozen=True, slots=True)
class CatalogDescription:
    """A catalog as its statement said it: its options, `type` among them, and its comment."""

    options: Mapping[str, str] = field(default_factory=lambda: {"type": "generic_in_memory"})
    comment: str | None = None


@dataclass
class Catalogs:
    """All that a session knows by name. Names are told apart by case, as Flink does."""

    catalog: str = DEFAULT_CATALOG
    """The current one."""
    database: str = DEFAULT_DATABASE
    """The current one, of the current catalog."""
    functions: FunctionNames = field(init=False)
    _known: dict[str, MutableMapping[str, Database]] = field(
        default_factory=lambda: {DEFAULT_CATALOG: {DEFAULT_DATABASE: Database()}}
    )
    _defaults: dict[str, str] = field(default_factory=dict)
    _descriptions: dict[str, CatalogDescription] = field(
        default_factory=lambda: {DEFAULT_CATALOG: CatalogDescription()}
    )
    _temporary: dict[FullName, Relation] = field(default_factory=dict)
    tried: dict[str, MutableMapping[str, Database]] = field(default_factory=dict)
    """What a check that writes nothing has made of catalogs on disk, by their paths."""

    def __post_init__(self) -> None:
        self.functions = FunctionNames(self)

    # --- catalogs and databases ---------------------------------------------------------------------------------------

    def catalogs(self) -> list[str]:
        """Return the names of all catalogs, sorted."""
        return sorted(self._known)

    def databases(self, catalog: str | None = None) -> list[str]:
        """Return the names of a catalog's databases, sorted; of the current one where none is named."""
        return sorted(self._databases(catalog or self.catalog))

    def use(self, name: Sequence[str]) -> None:
        """Make a database the current one, with its catalog where that is named."""
        catalog, database = (self.catalog, *name)[-2:]
        self._tables(catalog, database)
        self.catalog, self.database = catalog, database

    def use_catalog(self, catalog: str) -> None:
        """Make a catalog the current one, with its first database."""
        databases = self._databases(catalog)
        default = self._defaults.get(catalog, DEFAULT_DATABASE)
        self.catalog = catalog
        self.database = default if default in databases else min(databases, default=default)

    def create_catalog(
        self,
        name: str,
        databases: MutableMapping[str, Database] | None = None,
        default: str = DEFAULT_DATABASE,
        description: CatalogDescription | None = None,
    ) -> None:
        """Add a catalog.

        Args:
            databases: what it has; None: it is kept in memory, with one database.
            default: the database that is the current one when the catalog becomes the current one.
            description: how it was created.

        Raises:
            DefinitionError: there is one of that name.
        """
        if name in self._known:
            raise DefinitionError(
                f"there is a catalog {name} already", next=f"USE CATALOG {name}, or give another name"
            )
        self._known[name] = {default: Database()} if databases is None else databases
        self._defaults[name] = default
        self._descriptions[name] = description or CatalogDescription()

    def described_catalog(self, name: str) -> CatalogDescription:
        """Return how a catalog was created and changed since. Raises DefinitionError where there is none."""
        self._databases(name)
        return self._descriptions[name]

    def alter_catalog(
        self,
        name: str,
        description: CatalogDescription,
        default: str,
        databases: MutableMapping[str, Database] | None = None,
    ) -> None:
        """Change a catalog; what it has stays.

        Args:
            databases: what it has from now on, where it is kept elsewhere; None = what it had.

        Raises:
            DefinitionError: there is none.
        """
        held = self._databases(name) if databases is None else databases
        self._known[name], self._defaults[name], self._descriptions[name] = held, default, description
        if name == self.catalog and self.database not in held:
            self.use_catalog(name)

    def drop_catalog(self, name: str) -> None:
        """Forget a catalog; what one on disk keeps stays there.

        Raises:
            DefinitionError: there is none, or it is the current one.
        """
        self._databases(name)
        if name == self.catalog:
            raise DefinitionError(f"{name} is the current catalog", next="USE CATALOG another one first")
        del self._known[name], self._descriptions[name]
        self._temporary = {each: kept for each, kept in self._temporary.items() if each.catalog != name}

    def check_database(self, catalog: str | None, database: str | None) -> None:
        """Raise DefinitionError where there is no such database; the current one is there."""
        self._database(catalog or self.catalog, database or self.database)

    def within(self, catalog: str, database: str) -> Catalogs:
        """Return the same catalogs with another current database, for what was written there."""
        if (catalog, database) == (self.catalog, self.database):
            return self
        inner = copy(self)
        inner.catalog, inner.database = catalog, database
        inner.functions = self.functions.within(inner)
        return inner

    def create_database(
        self,
        name: Sequence[str],
        *,
        if_not_exists: bool = False,
        comment: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Add a database; its name may have that of a catalog before it."""
        catalog, database = (self.catalog, *name)[-2:]
        databases = self._databases(catalog)
        if database in databases and not if_not_exists:
            raise DefinitionError(
                f"there is a database {database} in {catalog} already", next="write CREATE DATABASE IF NOT EXISTS"
            )
        if database not in databases:
            databases[database] = Database(comment=comment, properties=properties or {})

    def alter_database(self, name: Sequence[str], properties: Mapping[str, str]) -> None:
        """Give a database properties, beside those that it has.

        Raises:
            DefinitionError: there is none.
        """
        catalog, database = (self.catalog, *name)[-2:]
        held = self._database(catalog, database)
        self._databases(catalog)[database] = replace(held, properties={**held.properties, **properties})

    def drop_database(self, name: Sequence[str], *, if_exists: bool = False, cascade: bool = False) -> None:
        """Remove a database; one with tables or views only if that is asked for."""
        catalog, database = (self.catalog, *name)[-2:]
        if if_exists and database not in self._databases(catalog):
            return
        held = self._database(catalog, database)
        count = len(held.relations) + len(held.functions)
        if count and not cascade:
            raise DefinitionError(
                f"{database} has {count} tables, views and functions", next="write DROP DATABASE … CASCADE"
            )
        if (catalog, database) == (self.catalog, self.database):
            raise DefinitionError(f"{database} is the current database", next="USE another one first")
        del self._databases(catalog)[database]

    # --- tables and views ---------------------------------------------------------------------------------------------

    def full_name(self, name: Sequence[str]) -> FullName:
        """Return the whole of a name."""
        return FullName(*(self.catalog, self.database)[: 3 - len(name)], *name)

    def find(self, name: Sequence[str]) -> tuple[FullName, Relation]:
        """Return a table or view by its name; a temporary one first.

        Raises:
            DefinitionError: there is none.
        """
        whole = self.full_name(name)
        relation = self._temporary.get(whole)
        if relation is None:
            relation = self._held(whole.catalog, whole.database).get(whole.name)
        if relation is None:
            names = [each.name for each, _ in self.relations(whole.catalog, whole.database)]
            raise DefinitionError(
                f"there is no table or view {'.'.join(name)}",
                next=did_you_mean(whole.name, names, "CREATE it first; SHOW TABLES has those there are"),
            )
        return whole, relation

    def has(self, name: FullName, *, temporary: bool) -> bool:
        """Return whether a name is taken, among temporary or permanent objects.

        Raises:
            DefinitionError: there is no such database.
        """
        held = self._tables(name.catalog, name.database)
        return name in self._temporary if temporary else name.name in held

    def has_view(self, name: Sequence[str]) -> bool:
        """Return whether a view that is not temporary has a name."""
        whole = self.full_name(name)
        held = self._held(whole.catalog, whole.database).get(whole.name)
        return isinstance(held, ViewDefinition) and whole not in self._temporary

    def create(
        self, name: Sequence[str], relation: Relation, *, temporary: bool = False, if_not_exists: bool = False
    ) -> bool:
        """Add a table or view; return whether it was added, and not there already.

        Raises:
            DefinitionError: there is one of that name, or no such database.
        """
        whole = self.full_name(name)
        held = self._tables(whole.catalog, whole.database)
        if (whole in self._temporary) if temporary else (whole.name in held):
            if if_not_exists:
                return False
            raise DefinitionError(
                f"there is a table or view {whole} already", next="give another name, or DROP it first"
            )
        if temporary:
            self._temporary[whole] = relation
        else:
            held[whole.name] = relation
        return True

    def replace(self, name: Sequence[str], relation: Relation) -> None:
        """Put another definition in the place of a table's or view's."""
        whole, _ = self.find(name)
        if whole in self._temporary:
            self._temporary[whole] = relation
        else:
            self._tables(whole.catalog, whole.database)[whole.name] = relation

    def rename(self, name: Sequence[str], to: Sequence[str]) -> None:
        """Give a permanent table or view another name in its database."""
        whole, relation = self.find(name)
        renamed = FullName(whole.catalog, whole.database, to[-1])
        held = self._tables(whole.catalog, whole.database)
        if renamed.name in held:
            raise DefinitionError(f"there is a table or view {renamed} already", next="give another name")
        if whole in self._temporary:
            raise DefinitionError(f"{whole} is temporary", next="DROP it and CREATE one of the other name")
        held[renamed.name] = relation  # before the old name goes: a crash in between leaves both
        del held[whole.name]

    def drop(self, name: Sequence[str], kind: Kind, *, temporary: bool = False, if_exists: bool = False) -> None:
        """Remove a table or view.

        Raises:
            DefinitionError: there is none, it is of the other kind, or a temporary one hides it.
        """
        whole = self.full_name(name)
        hidden = whole in self._temporary
        if hidden and not temporary:
            raise DefinitionError(
                f"a temporary {kind_of(self._temporary[whole])} hides {whole}",
                next=f"write DROP TEMPORARY {kind.upper()} first",
            )
        held = self._held(whole.catalog, whole.database)
        relation = self._temporary.get(whole) if temporary else held.get(whole.name)
        if relation is None:
            if if_exists:
                return
            raise DefinitionError(
                f"there is no {'temporary ' if temporary else ''}{kind} {whole}",
                next=f"write DROP {kind.upper()} IF EXISTS",
            )
        if kind_of(relation) != kind:
            raise DefinitionError(f"{whole} is a {kind_of(relation)}", next=f"write DROP {kind_of(relation).upper()}")
        if temporary:
            del self._temporary[whole]
        else:
            del held[whole.name]

    def relations(self, catalog: str | None = None, database: str | None = None) -> Iterator[tuple[FullName, Relation]]:
        """Yield the tables and views of a database by name, of the current one where none is named; temporary ones in their places."""
        catalog, database = catalog or self.catalog, database or self.database
        held = self._held(catalog, database)
        seen = {FullName(catalog, database, name): relation for name, relation in held.items()}
        seen |= {
            name: relation
            for name, relation in self._temporary.items()
            if (name.catalog, name.database) == (catalog, database)
        }
        yield from sorted(seen.items(), key=lambda each: each[0])

    # --- places ---------------------------------------------------------------------------------------------------------

    def place(self, name: Sequence[str]) -> tuple[str, str, str]:
        """Return a name with the catalog and database that it has, or the current ones."""
        whole = self.full_name(name)
        return whole.catalog, whole.database, whole.name

    def functions_of(self, catalog: str, database: str) -> MutableMapping[str, str]:
        """Return the places in Python of a database's functions. Raises DefinitionError where there is no such database."""
        return self._database(catalog, database).functions

    def have_functions(self) -> bool:
        """Return whether a database has a function."""
        return any(each.functions for databases in self._known.values() for each in databases.values())

    def _held(self, catalog: str, database: str) -> MutableMapping[str, Relation]:
        """Return the tables and views of a database, none where it is not there."""
        held = self._known.get(catalog, {}).get(database)
        return {} if held is None else held.relations

    def _databases(self, catalog: str) -> MutableMapping[str, Database]:
        if catalog not in self._known:
            raise DefinitionError(
                f"there is no catalog {catalog}",
                next=did_you_mean(catalog, self._known, "SHOW CATALOGS has those there are"),
            )
        return self._known[catalog]

    def _tables(self, catalog: str, database: str) -> MutableMapping[str, Relation]:
        return self._database(catalog, database).relations

    def _database(self, catalog: str, database: str) -> Database:
        databases = self._databases(catalog)
        if database not in databases:
            raise DefinitionError(
                f"there is no database {database} in {catalog}",
                next=did_you_mean(database, databases, "SHOW DATABASES has those there are"),
            )
        return databases[database]
