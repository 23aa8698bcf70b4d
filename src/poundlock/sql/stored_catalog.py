"""A catalog that lasts on disk: its databases with their tables, views and functions, as one JSON document a version.

Each change writes the whole document under the next number, exclusively: of two sessions that change version 7 at a time one writes
version 8, and the other is refused and has changed nothing. Readers take the document of the greatest number. Some older versions stay,
so that a reader that is about to read one finds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, MutableMapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar

from poundlock.errors import DefinitionError, TerminalError
from poundlock.sql.catalog import Database, Relation, view_of
from poundlock.sql.create_text import create_table_text, created_in, table_in
from poundlock.sql.tables import TableDefinition
from poundlock.storage import Storage, open_storage

VERSION = 1
_KEPT = 5
_FOLDER = "catalog"
_NAME = re.compile(r"(\d{10})\.json")
Kept = TypeVar("Kept")
Document = dict[str, Any]


def _empty(database: str) -> Document:
    return {"v": VERSION, "databases": {database: _no_objects()}}


def _no_objects() -> Document:
    return {"tables": {}, "views": {}, "functions": {}}


@dataclass
class CatalogFiles:
    """The documents of one catalog.

    Args:
        path: the folder.
        database: that a new catalog has.
    """

    path: str
    database: str
    storage: Storage = field(init=False, repr=False)
    _read: tuple[int, Document] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.storage = open_storage(self.path)

    def newest(self) -> tuple[int, Document]:
        """Return the greatest version and its document; a folder without one is version 0, which nobody has written.

        Raises:
            TerminalError: a document was written by a later version of poundlock.
        """
        for _ in range(_KEPT):
            number = max(self._numbers(), default=0)
            if not number:
                return 0, _empty(self.database)
            if self._read is not None and self._read[0] == number:  # a version never changes
                return self._read
            try:
                document: Document = json.loads(self.storage.read(_file(number)))
            except FileNotFoundError:  # meanwhile several newer ones were written
                continue
            if document.get("v") != VERSION:
                raise TerminalError(
                    f"{self.path}/{_file(number)} is of version {document.get('v')} of the format, and this reads {VERSION}",
                    next="take the poundlock that wrote it, or a newer one",
                )
            self._read = number, document
            return number, document
        raise DefinitionError(f"the catalog in {self.path} changes all the time", next="run the statement again")

    def change(self, do: Callable[[Document], None]) -> None:
        """Write the version behind the newest one: what a function makes of its document.

        Raises:
            DefinitionError: another session has written it at the same time.
        """
        number, document = self.newest()
        document = deepcopy(document)
        do(document)
        data = json.dumps(document, indent=2, ensure_ascii=False).encode()
        if not self.storage.create_exclusive(_file(number + 1), data):
            raise DefinitionError(
                f"another session changed the catalog in {self.path} at the same time; nothing of this statement was kept",
                next="run the statement again",
            )
        for old in self._numbers():
            if old <= number + 1 - _KEPT:
                self.storage.delete(_file(old))

    def _numbers(self) -> Iterator[int]:
        for name in self.storage.names(_FOLDER):
            matched = _NAME.fullmatch(name)
            if matched is not None:
                yield int(matched[1])


def _file(number: int) -> str:
    return f"{_FOLDER}/{number:010}.json"


class StoredDatabases(MutableMapping[str, Database]):
    """The databases of a catalog on disk; a copy of them is in memory, so that a script that is only checked writes nothing."""

    def __init__(self, files: CatalogFiles) -> None:
        self._files = files

    def __deepcopy__(self, memo: object) -> dict[str, Database]:
        return {
            name: Database(
                dict(held.relations), dict(held.functions), comment=held.comment, properties=dict(held.properties)
            )
            for name, held in self.items()
        }

    def __getitem__(self, name: str) -> Database:
        if name not in self._files.newest()[1]["databases"]:
            raise KeyError(name)
        return self._database(name)

    def __setitem__(self, name: str, database: Database) -> None:
        """Write a database's comment and properties; what a database of the name holds stays."""

        def put(document: Document) -> None:
            held = document["databases"].setdefault(name, _no_objects())
            held |= {"comment": database.comment, "properties": {**database.properties}}

        self._files.change(put)

    def __delitem__(self, name: str) -> None:
        self._files.change(lambda document: document["databases"].pop(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._files.newest()[1]["databases"])

    def __len__(self) -> int:
        return len(self._files.newest()[1]["databases"])

    def _database(self, name: str) -> Database:
        held = self._files.newest()[1]["databases"][name]  # documents of before have neither a comment nor properties
        return Database(
            _Relations(name, self._files),
            _Functions(name, self._files),
            comment=held.get("comment"),
            properties=held.get("properties", {}),
        )


class _Objects(MutableMapping[str, Kept], Generic[Kept]):
    """What a database keeps of some kinds."""

    kinds: ClassVar[tuple[str, ...]]

    def __init__(self, database: str, files: CatalogFiles) -> None:
        self._database, self._files = database, files

    def _held(self, document: Document) -> Document:
        held = document["databases"].get(self._database)
        if held is None:
            raise DefinitionError(f"the database {self._database} is gone", next="CREATE DATABASE it again")
        of_database: Document = held
        return of_database

    def _read(self) -> Iterator[tuple[str, str, Any]]:
        """Yield kind, name and what is kept of each object."""
        held = self._held(self._files.newest()[1])
        for kind in self.kinds:
            for name, kept in held[kind].items():
                yield kind, name, kept

    def _change(self, change: Callable[[Document], None]) -> None:
        self._files.change(lambda document: change(self._held(document)))

    def __delitem__(self, name: str) -> None:
        def drop(held: Document) -> None:
            for kind in self.kinds:
                held[kind].pop(name, None)

        if name not in self:
            raise KeyError(name)
        self._change(drop)

    def __contains__(self, name: object) -> bool:
        return any(name == each for _, each, _ in self._read())

    def __iter__(self) -> Iterator[str]:
        return (name for _, name, _ in self._read())

    def __len__(self) -> int:
        return sum(1 for _ in self._read())


class _Relations(_Objects[Relation]):
    kinds = ("tables", "views")

    def __getitem__(self, name: str) -> Relation:
        for kind, each, kept in self._read():
            if each == name:
                if kind == "tables":
                    return _table(kept["statement"])
                return view_of(created_in(kept["statement"]), kept["statement"], kept["catalog"], kept["database"])
        raise KeyError(name)

    def __setitem__(self, name: str, relation: Relation) -> None:
        def put(held: Document) -> None:
            for kind in self.kinds:
                held[kind].pop(name, None)
            if isinstance(relation, TableDefinition):
                held["tables"][name] = {"statement": create_table_text((name,), relation)}
            else:
                held["views"][name] = {
                    "statement": relation.text,
                    "catalog": relation.catalog,
                    "database": relation.database,
                }

        self._change(put)


@lru_cache(256)
def _table(statement: str) -> TableDefinition:
    return table_in(statement)


class _Functions(_Objects[str]):
    kinds = ("functions",)

    def __getitem__(self, name: str) -> str:
        for _, each, kept in self._read():
            if each == name:
                return str(kept["python"])
        raise KeyError(name)

    def __setitem__(self, name: str, path: str) -> None:
        def put(held: Document) -> None:
            held["functions"][name] = {"python": path}

        self._change(put)
