"""SHOW PARTITIONS: the folders of a table over files, as they are when the statement runs."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.catalog import Catalogs
from poundlock.sql.errors import OptionError
from poundlock.sql.object_statements import ShowPartitions
from poundlock.sql.statements.results import ShownRows
from poundlock.sql.tables import TableDefinition
from poundlock.sql.types import STRING
from poundlock.storage import Storage, open_storage


def shown_partitions(catalogs: Catalogs, statement: ShowPartitions) -> ShownRows:
    """Return the partitions of a table that have a file which readers see.

    Raises:
        DefinitionError: there is no such table, it has no partitions, no such column of them, or its folder cannot be read.
    """
    name, table = catalogs.find(statement.table)
    if not isinstance(table, TableDefinition) or not table.partitioned_by:
        raise OptionError(
            f"{name.name} has no partitions", next="name a table with PARTITIONED BY", kind="unsupported_query"
        )
    kind, path = table.options.get("connector"), table.options.get("path")
    if kind != "filesystem" or not path:
        raise OptionError(
            f"the partitions of {name.name}, a table of {kind}, are known to nobody",
            next="name a table over files, with its 'path'",
            kind="unsupported_query",
        )
    for column in statement.values:
        if column not in table.partitioned_by:
            raise OptionError(
                f"{column} is no column of the partitions of {name.name}",
                next=did_you_mean(column, table.partitioned_by, f"use one of {', '.join(table.partitioned_by)}"),
                kind="unknown_column",
            )
    try:
        partitions = sorted(_partitions(open_storage(path), table.partitioned_by))
    except OSError as error:
        raise DefinitionError(
            f"the partitions in {path} cannot be read: {error.strerror or error}", next="give a folder that can be read"
        ) from error
    wanted = {f"{column}={value}" for column, value in statement.values.items()}
    return ShownRows((("partition name", STRING),), [("/".join(each),) for each in partitions if wanted <= {*each}])


def _partitions(storage: Storage, keys: Sequence[str]) -> set[tuple[str, ...]]:
    """Return what stands for each key in the folders of files, such as day=2026-01-05."""
    made: set[tuple[str, ...]] = set()
    for entry in storage.list():
        folders, (*others, name) = entry.path.split("/")[: len(keys)], entry.path.split("/")[len(keys) :] or [""]
        if not name or any(each.startswith((".", "_")) for each in (*others, name)):
            continue
        parts = [folder.partition("=") for folder in folders]
        if [unquote(key) for key, sign, _ in parts if sign] == [*keys]:
            made.add(tuple(f"{key}={unquote(value)}" for key, (_, _, value) in zip(keys, parts, strict=True)))
    return made
