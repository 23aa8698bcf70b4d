"""The functions of the user's own that a session knows by name: of the system, which need no catalog, temporary ones, and those of databases.

Names and rules are Flink's: case does not matter, a temporary function of the system stands before what SQL itself has, which stands
before temporary functions of the current database, which stand before those that the database keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.user.function import SqlUserFunction
from poundlock.sql.user.loading import loaded

Scope = Literal["system", "temporary", "catalog"]
"""Where a function is kept: for the session without a database, for the session in one, or in the database."""
WORDS: dict[Scope, str] = {"system": "TEMPORARY SYSTEM ", "temporary": "TEMPORARY ", "catalog": ""}


class Databases(Protocol):
    """Where the functions of databases are."""

    def place(self, name: Sequence[str]) -> tuple[str, str, str]:
        """Return a name with the catalog and database that it has, or the current ones."""

    def functions_of(self, catalog: str, database: str) -> MutableMapping[str, str]:
        """Return the places in Python of a database's functions, by name in lower case. Raises DefinitionError where there is none."""

    def have_functions(self) -> bool:
        """Return whether one of them has a function."""


@dataclass
class FunctionNames:
    """Functions by name; what is kept of one is its place in Python, `module.attribute`."""

    databases: Databases
    _system: dict[str, str] = field(default_factory=dict)
    _temporary: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def within(self, databases: Databases) -> FunctionNames:
        """Return the same functions beside other current databases."""
        return FunctionNames(databases, self._system, self._temporary)

    def create(self, name: Sequence[str], path: str, scope: Scope, if_not_exists: bool = False) -> None:
        """Add a function.

        Raises:
            DefinitionError: there is one of that name, or its place in Python has none.
        """
        held, key = self._held(name, scope)
        if key in held:
            if if_not_exists:
                return
            raise DefinitionError(
                f"there is a function {'.'.join(name)} already",
                next=f"write CREATE {WORDS[scope]}FUNCTION IF NOT EXISTS, or ALTER it",
            )
        loaded(name[-1], path)
        held[key] = path

    def replace(self, name: Sequence[str], path: str, scope: Scope, if_exists: bool = False) -> None:
        """Have a function be another one of Python's; raises as `create`."""
        held, key = self._held(name, scope)
        if key not in held:
            if if_exists:
                return
            raise self._missing(name, scope)
        loaded(name[-1], path)
        held[key] = path

    def drop(self, name: Sequence[str], scope: Scope, *, if_exists: bool = False) -> None:
        """Remove a function.

        Raises:
            DefinitionError: there is none.
        """
        held, key = self._held(name, scope)
        if key in held:
            del held[key]
        elif not if_exists:
            raise self._missing(name, scope)

    def of_system(self, name: str) -> SqlUserFunction | None:
        """Return a temporary function of the system, None where there is none: what stands before SQL's own."""
        path = self._system.get(name.lower())
        return None if path is None else loaded(name, path)

    def find(self, name: Sequence[str]) -> SqlUserFunction | None:
        """Return a function of a database by its name, a temporary one first, None where there is none.

        Raises:
            DefinitionError: its module has gone, or has other functions than it had.
        """
        catalog, database, own = self.databases.place(name)
        path = self._temporary.get((catalog, database, own.lower()))
        if path is None:
            try:
                path = self.databases.functions_of(catalog, database).get(own.lower())
            except DefinitionError:  # there is no such database
                return None
        return None if path is None else loaded(name[-1], path)

    @property
    def has_any(self) -> bool:
        """Whether there may be a function at all."""
        return bool(self._system or self._temporary) or self.databases.have_functions()

    def names(self, database: Sequence[str] = ()) -> list[str]:
        """Return the names of all functions that can be called in a database by them alone, sorted."""
        return sorted(set(self._names(database)))

    def _names(self, database: Sequence[str]) -> Iterator[str]:
        catalog, own, _ = self.databases.place((*database, ""))
        yield from self._system
        yield from (name for c, d, name in self._temporary if (c, d) == (catalog, own))
        yield from self.databases.functions_of(catalog, own)

    def _held(self, name: Sequence[str], scope: Scope) -> tuple[MutableMapping[Any, str], Any]:
        if scope == "system":
            if len(name) > 1:
                raise DefinitionError(
                    f"a function of the system has no database, and is called {'.'.join(name)}",
                    next=f"write {name[-1]}",
                )
            return self._system, name[-1].lower()
        catalog, database, own = self.databases.place(name)
        of_database = self.databases.functions_of(catalog, database)
        if scope == "temporary":
            return self._temporary, (catalog, database, own.lower())
        return of_database, own.lower()

    def _missing(self, name: Sequence[str], scope: Scope) -> DefinitionError:
        near = did_you_mean(name[-1].lower(), self.names(name[:-1]), "SHOW USER FUNCTIONS has those there are")
        return DefinitionError(f"there is no {WORDS[scope].lower()}function {'.'.join(name)}", next=near)
