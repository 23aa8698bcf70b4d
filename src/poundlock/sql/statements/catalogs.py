"""CREATE, ALTER, DESCRIBE and DROP CATALOG: catalogs in memory, and those that last on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from copy import deepcopy

from poundlock.errors import DefinitionError, did_you_mean
from poundlock.sql.catalog import DEFAULT_DATABASE, CatalogDescription, Catalogs, Database
from poundlock.sql.errors import OptionError
from poundlock.sql.object_statements import AlterCatalog, CreateCatalog, DescribeCatalog, DropCatalog
from poundlock.sql.statements.results import ShownRows
from poundlock.sql.stored_catalog import CatalogFiles, StoredDatabases
from poundlock.sql.types import STRING

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
    _check_names(kind, options)
    default = options.get("default-database", DEFAULT_DATABASE)
    databases = None if kind == "generic_in_memory" else _databases(catalogs, options, is_trial=is_trial)
    catalogs.create_catalog(statement.name, databases, default, CatalogDescription(options, statement.comment))


def _check_names(kind: str, names: Iterable[str]) -> None:
    for key in names:
        if key not in _OPTIONS[kind]:
            raise OptionError(
                f"there is no option {key!r} of a catalog of the type {kind}",
                next=did_you_mean(key, _OPTIONS[kind], f"use one of {', '.join(_OPTIONS[kind])}"),
                kind="unknown_option",
            )


def _databases(catalogs: Catalogs, options: Mapping[str, str], *, is_trial: bool) -> MutableMapping[str, Database]:
    """Return the databases of a catalog on disk."""
    if not options.get("path"):
        raise OptionError(
            "a catalog on disk without a path", next="give 'path' = the folder that keeps it", kind="missing_option"
        )
    databases = StoredDatabases(CatalogFiles(options["path"], options.get("default-database", DEFAULT_DATABASE)))
    try:
        list(databases)
    except OSError as error:
        raise DefinitionError(
            f"the catalog in {options['path']} cannot be read: {error.strerror or error}",
            next="give a folder that can be read and written",
        ) from error
    if not is_trial:
        return databases
    known = catalogs.tried.get(options["path"])
    if known is None:
        known = catalogs.tried[options["path"]] = deepcopy(databases)
    return known


def alter_catalog(catalogs: Catalogs, statement: AlterCatalog, *, is_trial: bool) -> None:
    """Do what an ALTER CATALOG statement says: tables and views stay where they are.

    Args:
        is_trial: as of `create_catalog`.

    Raises:
        DefinitionError: there is no such catalog, an option is wrong, or one that cannot change.
    """
    before = catalogs.described_catalog(statement.name)
    kind = before.options["type"]
    _check_names(kind, [*statement.options, *statement.reset])
    if "type" in (*statement.options, *statement.reset):
        raise OptionError(
            f"the type of the catalog {statement.name} stays {kind}",
            next=f"DROP CATALOG {statement.name}, and CREATE it with another type",
            kind="bad_option_value",
        )
    kept = {key: value for key, value in before.options.items() if key not in statement.reset}
    options = {**kept, **statement.options}
    moved = options.get("path") != before.options.get("path")
    databases = _databases(catalogs, options, is_trial=is_trial) if moved else None
    default = statement.options.get("default-database")
    if default is not None and default not in (catalogs.databases(statement.name) if databases is None else databases):
        raise DefinitionError(
            f"there is no database {default} in {statement.name}",
            next=f"CREATE DATABASE {statement.name}.{default} first",
        )
    comment = before.comment if statement.comment is None else statement.comment
    catalogs.alter_catalog(
        statement.name,
        CatalogDescription(options, comment),
        options.get("default-database", DEFAULT_DATABASE),
        databases,
    )


def describe_catalog(catalogs: Catalogs, statement: DescribeCatalog) -> ShownRows:
    """Return what DESCRIBE CATALOG shows. Raises DefinitionError where there is none."""
    known = catalogs.described_catalog(statement.name)
    rows = [("name", statement.name), ("type", known.options["type"]), ("comment", known.comment)]
    if statement.is_extended:
        rows += [(f"option:{key}", value) for key, value in sorted(known.options.items()) if key != "type"]
    return ShownRows((("info name", STRING), ("info value", STRING)), rows)


def drop_catalog(catalogs: Catalogs, statement: DropCatalog) -> None:
    """Do what a DROP CATALOG statement says; what a catalog on disk keeps stays there. Raises as `create_catalog`."""
    if statement.if_exists and statement.name not in catalogs.catalogs():
        return
    catalogs.drop_catalog(statement.name)
