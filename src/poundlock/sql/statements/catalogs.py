"""CREATE CATALOG and DROP CATALOG: catalogs in memory, and those that last on disk."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.catalog import DEFAULT_DATABASE, Catalogs
from poundlock.sql.errors import OptionError
from poundlock.sql.object_statements import CreateCatalog, DropCatalog
from poundlock.sql.stored_catalog import CatalogFiles, StoredDatabases

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "generic_in_memory": ("type", "default-database"),
    "filesystem": ("type", "default-database", "path"),
}


def create_catalog(catalogs: Catalogs, statement: CreateCatalog, *, is_trial: bool) -> None:
    """Do what a CREATE CATALOG statement says.

    Args:
        is_trial: whether the script is only checked: what the catalog has is read then, and nothing is written to it.

    Raises:
        DefinitionError: there is a catalog of that name, or an option is wrong.
    """
    if statement.if_not_exists and statement.name in catalogs.catalogs():
        return
    options = statement.options
    kind = options.get("type")
    if kind is None or kind not in _OPTIONS:
        given = "without a type" if kind is None else f"of the type {kind!r}"
        raise OptionError(
            f"a catalog {given}",
            next=did_you_mean(kind or "", _OPTIONS, f"give 'type' = one of {', '.join(_OPTIONS)}"),
            kind="missing_option" if kind is None else "bad_option_value",
        )
    for key in options:
        if key not in _OPTIONS[kind]:
            raise OptionError(
                f"there is no option {key!r} of a catalog of the type {kind}",
                next=did_you_mean(key, _OPTIONS[kind], f"use one of {', '.join(_OPTIONS[kind])}"),
                kind="unknown_option",
            )
    default = options.get("default-database", DEFAULT_DATABASE)
    if kind == "generic_in_memory":
        catalogs.create_catalog(statement.name, default=default)
        return
    if not options.get("path"):
        raise OptionError(
            "a catalog on disk without a path", next="give 'path' = the folder that keeps it", kind="missing_option"
        )
    databases = StoredDatabases(CatalogFiles(options["path"], default))
    try:
        list(databases)
    except OSError as error:
        raise DefinitionError(
            f"the catalog in {options['path']} cannot be read: {error.strerror or error}",
            next="give a folder that can be read and written",
        ) from error
    catalogs.create_catalog(statement.name, deepcopy(databases) if is_trial else databases, default)


def drop_catalog(catalogs: Catalogs, statement: DropCatalog) -> None:
    """Do what a DROP CATALOG statement says; what a catalog on disk keeps stays there. Raises as `create_catalog`."""
    if statement.if_exists and statement.name not in catalogs.catalogs():
        return
    catalogs.drop_catalog(statement.name)
