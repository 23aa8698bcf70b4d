"""What a table has to be before anything is written: there, with the columns, partitions and branch that are asked for.

What is made here is made by name, so that two drivers that do it leave one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.connectors.iceberg.catalog import TablePlace
from poundlock.connectors.iceberg.errors import load_pyiceberg
from poundlock.connectors.iceberg.sink.partitions import check_writable, transform_of
from poundlock.connectors.iceberg.types import arrow_schema, goes_into
from poundlock.errors import DefinitionError

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from poundlock.connectors.iceberg.sink.sink import IcebergSink

_FORMATS = (1, 2)  # of tables that pyiceberg writes


def preflight(sink: IcebergSink) -> Table:
    """Return the table as it can be written, made where that is asked for.

    Raises:
        DefinitionError: it is not there, or cannot be written as it is.
        TransientError: the catalog does not answer.
    """
    load_pyiceberg()
    place = sink.place
    place.close()
    table = _made(sink, place) if sink.create is not None else place.load("looking it up")
    with place.explained("looking it up"):
        if table.metadata.format_version not in _FORMATS:
            raise DefinitionError(
                f"{place.shown} has format version {table.metadata.format_version}, and pyiceberg writes 1 and 2",
                next='make it with table_properties={"format-version": "2"}',
            )
        if (kind := table.metadata.properties.get("write.format.default", "parquet")) != "parquet":
            raise DefinitionError(
                f"{place.shown} wants files of {kind}, and the sink writes Parquet",
                next="set its property write.format.default to parquet",
            )
        check_writable(place.shown, table.spec(), table.schema())
        _check_key(sink, table)
        return _with_branch(sink, table)


def _made(sink: IcebergSink, place: TablePlace) -> Table:
    assert sink.create is not None
    errors = load_pyiceberg("exceptions")
    catalog = place.catalog()
    with place.explained("creating it"):
        try:
            table = catalog.load_table(place.table)
        except errors.NoSuchTableError:
            catalog.create_namespace_if_not_exists(place.table.rpartition(".")[0])
            try:
                table = _create(sink, catalog, place.table)
            except errors.TableAlreadyExistsError:
                table = catalog.load_table(place.table)
        _check_partitions(sink, table)
        return _with_columns(sink, table)


def _create(sink: IcebergSink, catalog: Any, name: str) -> Table:
    properties = {"format-version": "2", **sink.table_properties}
    transaction = catalog.create_table_transaction(
        name, schema=sink.create, location=sink.location, properties=properties
    )
    with transaction:
        with transaction.update_spec() as spec:
            for text in sink.partition_by:
                column, transform = transform_of(text)
                spec.add_field(column, transform)
        if sink.sort_by:
            _sort(transaction, sink.sort_by)
    return catalog.load_table(name)


def _sort(transaction: Any, names: Sequence[str]) -> None:
    from pyiceberg.table.sorting import NullOrder
    from pyiceberg.transforms import IdentityTransform

    with transaction.update_sort_order() as order:
        for name in names:
            if name.startswith("-"):
                order.desc(name[1:], IdentityTransform(), NullOrder.NULLS_LAST)
            else:
                order.asc(name, IdentityTransform(), NullOrder.NULLS_FIRST)


def _check_partitions(sink: IcebergSink, table: Table) -> None:
    """Raise DefinitionError where a table that is there is partitioned otherwise than it would be made."""
    if not sink.partition_by:
        return
    schema = table.schema()
    has = [(schema.find_column_name(field.source_id), str(field.transform)) for field in table.spec().fields]
    wanted = [(column, str(transform)) for column, transform in map(transform_of, sink.partition_by)]
    if has != wanted:
        shown = ", ".join(f"{transform}({column})" for column, transform in has) or "nothing"
        raise DefinitionError(
            f"{sink.place.shown} is there, and partitioned by {shown}",
            next="leave partition_by out, or name another table",
        )


def _with_columns(sink: IcebergSink, table: Table) -> Table:
    """Return a table with the columns that were declared: those it does not have are added where that is asked for."""
    assert sink.create is not None
    has = arrow_schema(table.schema())
    missing = [field for field in sink.create if field.name not in has.names]
    for field in sink.create:
        if field.name in has.names and not goes_into(field.type, has.field(field.name).type):
            raise DefinitionError(
                f"{sink.place.shown} has a column {field.name!r} of {has.field(field.name).type}, and create= says {field.type}",
                next="correct create=, or name another table",
            )
    if not missing:
        return table
    if not sink.add_columns:
        raise DefinitionError(
            f"{sink.place.shown} has no column {missing[0].name!r}, which create= says",
            next="add it to the table, or say add_columns=True",
        )
    if required := [field.name for field in missing if not field.nullable]:
        raise DefinitionError(
            f"column {required[0]!r} cannot be added as a required one: rows that are there do not have it",
            next=f"declare it as nullable: pa.field({required[0]!r}, …)",
        )
    with table.update_schema() as update:
        update.union_by_name(pa.schema(missing))
    return sink.place.load("adding columns")


def _check_key(sink: IcebergSink, table: Table) -> None:
    names = [field.name for field in table.schema().fields]
    for name in sink.key or ():
        if name not in names:
            raise DefinitionError(
                f"{sink.place.shown} has no column {name!r}, which key= names", next=f"use one of {', '.join(names)}"
            )


def _with_branch(sink: IcebergSink, table: Table) -> Table:
    """Return a table that has the branch that is written: it begins where main is."""
    if sink.branch is None:
        return table
    ref = table.metadata.refs.get(sink.branch)
    if ref is not None and ref.snapshot_ref_type != "branch":
        raise DefinitionError(
            f"{sink.branch} of {sink.place.shown} is a tag, and tags are not written", next="name a branch: branch=…"
        )
    if ref is not None:
        return table
    current = table.current_snapshot()
    if current is None:  # a branch begins at a snapshot: main gets one without rows
        with table.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass
        table = sink.place.load("making a branch")
        current = table.current_snapshot()
    assert current is not None
    table.manage_snapshots().create_branch(current.snapshot_id, sink.branch).commit()
    return sink.place.load("making a branch")
