"""Which table, in which catalog: a value that can be pickled, and the connections that a process keeps to catalogs.

Secrets are read where a connection is made, and stand in no message. A connection is never taken over by a forked process.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from poundlock.connectors.iceberg.errors import explained, load_pyiceberg, writing
from poundlock.connectors.secrets import secret
from poundlock.errors import DefinitionError
from poundlock.redaction import redact, secret_values

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

_kept: dict[tuple[int, str], Any] = {}  # catalogs of this process
_CATALOGS = 16  # no more are kept


@dataclass(frozen=True)
class TablePlace:
    """A table of a catalog.

    Args:
        properties: the catalog's, as pyiceberg knows them; a value may be "env:NAME" or "file:PATH".
        table: "namespace.name".
    """

    properties: Mapping[str, str] = field(repr=False)
    table: str

    def load(self, doing: str = "loading it") -> Table:
        """Return the table as it is now.

        Raises:
            DefinitionError: there is none, or the catalog lets nobody in.
            TransientError: it does not answer.
        """
        with self.explained(doing):
            return self.catalog().load_table(self.table)

    def catalog(self) -> Catalog:
        """Return this process's connection to the catalog; made where there is none yet."""
        key = (os.getpid(), self._digest())
        if key not in _kept:
            module = load_pyiceberg("catalog")
            given = self._resolved()
            with self.explained("opening the catalog"):
                made = module.load_catalog(given.pop("name", "poundlock"), **given)
            while len(_kept) >= _CATALOGS:
                _kept.pop(next(iter(_kept)))
            _kept[key] = made
        return _kept[key]

    def close(self) -> None:
        """Let this process's connection go."""
        _kept.pop((os.getpid(), self._digest()), None)

    def explained(self, doing: str) -> AbstractContextManager[None]:
        """Turn what the catalog raises within into this package's errors; see `errors.explained`."""
        return explained(self.shown, doing, secret_values(self.properties))

    def writing(self) -> AbstractContextManager[None]:
        """Turn what the file system raises within, in a task, into TransientError; see `errors.writing`."""
        return writing(self.shown, secret_values(self.properties))

    @property
    def shown(self) -> str:
        """The table and where it is, for people, without secrets."""
        uri = self.properties.get("uri", self.properties.get("warehouse", ""))
        return f"{self.table} of {redact({'uri': uri})['uri']}" if uri else self.table

    @property
    def open_properties(self) -> dict[str, str]:
        """The properties that are no secrets, to be kept in the ledger; "env:NAME" stays what it is."""
        hidden = secret_values(self.properties)
        return {name: value for name, value in self.properties.items() if value not in hidden}

    def _resolved(self) -> dict[str, str]:
        given = {
            name: value if value.startswith("file://") else secret(value, f"catalog property {name}")
            for name, value in self.properties.items()  # a URL is a place, and no secret that stands elsewhere
        }
        return {"py-io-impl": "poundlock.connectors.iceberg.file_io.TableFileIO", **given}

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(sorted(self.properties.items())).encode()).hexdigest()


def place_of(owner: str, properties: object, table: object) -> TablePlace:
    """Return the place that arguments say.

    Raises:
        DefinitionError: they are no properties of a catalog, or no name of a table.
    """
    if not isinstance(properties, Mapping) or not all(
        isinstance(each, str) for pair in properties.items() for each in pair
    ):
        raise DefinitionError(
            f"{owner}: catalog= is not a dict of texts",
            next='write catalog={"type": "rest", "uri": "http://localhost:8181"}',
        )
    if not properties.get("type") and not properties.get("py-catalog-impl") and not properties.get("uri"):
        raise DefinitionError(
            f"{owner}: catalog= has neither type nor uri",
            next='write catalog={"type": "sql", "uri": "…", "warehouse": "…"}',
        )
    if not isinstance(table, str) or "." not in table or any(not part for part in table.split(".")):
        raise DefinitionError(
            f"{owner}: {table!r} is not the name of a table with its namespace", next='write table="namespace.name"'
        )
    return TablePlace(dict(properties), table)


_KEPT_S = 300.0  # so long a table is kept in a task: what a catalog lends to reach the files may run out
_tables: dict[tuple[int, str, str], tuple[Table, float]] = {}  # of tasks, in this process, and when they were loaded


def known_table(place: TablePlace, wanted: Mapping[str, Any]) -> Table:
    """Return a table whose schemas, partition specs and properties are those that the driver saw: kept, or loaded once.

    Args:
        wanted: what `outline` returned in the driver.
    """
    key = (os.getpid(), place._digest(), place.table)
    table, since = _tables.get(key, (None, 0.0))
    if table is None or time.monotonic() - since > _KEPT_S or outline(table) != wanted:
        table = place.load("loading it in a task")
        _tables.pop(key, None)
        while len(_tables) >= _CATALOGS:
            _tables.pop(next(iter(_tables)))
        _tables[key] = (table, time.monotonic())
    return table


def outline(table: Table) -> dict[str, Any]:
    """Return what a task has to know of a table that can change: JSON, the same as long as it need not be loaded again."""
    metadata = table.metadata
    properties = {k: v for k, v in metadata.properties.items() if not k.startswith("poundlock.")}
    return {
        "table": str(metadata.table_uuid),
        "location": metadata.location,
        "schema": metadata.current_schema_id,
        "spec": metadata.default_spec_id,
        "sort": metadata.default_sort_order_id,
        "properties": hashlib.sha256(json.dumps(sorted(properties.items())).encode()).hexdigest()[:16],
    }


def file_system(io: FileIO, location: str) -> tuple[Any, str]:
    """Return the file system of Arrow that a location is on, and the path there. Raises DefinitionError for another FileIO."""
    module = load_pyiceberg("io.pyarrow")
    if not isinstance(io, module.PyArrowFileIO):
        raise DefinitionError(
            f"{type(io).__name__} cannot list files",
            next='add "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO" to catalog=',
        )
    scheme, host, path = module.PyArrowFileIO.parse_location(location, io.properties)
    return io.fs_by_scheme(scheme, host), path
