"""What a DeltaSink may say, when it is written down, and what is asked of its table before anything starts.

Each refusal names the setting and what to type; nothing is made but the table itself, where its columns are given.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from poundlock.arguments import refuse_without_effect
from poundlock.connectors.column_checks import need_columns, wrong_key
from poundlock.connectors.delta.loading import explained, load_deltalake, open_folder, open_table, storage_options
from poundlock.connectors.delta.shape import TableShape, refuse_unwritable, shape_of
from poundlock.connectors.files.sink.committer import preflight as check_folder
from poundlock.errors import DefinitionError
from poundlock.formats import ddl

if TYPE_CHECKING:
    from poundlock.connectors.delta.sink.sink import DeltaSink

COMPRESSION = ("snappy", "zstd", "gzip", "none")
_known: dict[tuple[int, str], TableShape] = {}


def check_sink(sink: DeltaSink) -> None:
    """Raise DefinitionError for settings that mean nothing or contradict each other."""
    open_folder(sink.path)
    load_deltalake()
    if wrong := wrong_key(sink.key, sink.columns, sink.delete_when):
        raise DefinitionError(wrong[0], next=wrong[1])
    if sink.compression not in COMPRESSION:
        raise DefinitionError(
            f"compression={sink.compression!r} is not known", next=f"use one of {', '.join(COMPRESSION)}"
        )
    if sink.target_bytes < 1 or sink.max_open_files < 1:
        raise DefinitionError(
            "DeltaSink: target_file_size and max_open_files must be more than 0", next='write target_file_size="128 MB"'
        )
    if sink.compact_every is not None and sink.compact_every < 1:
        raise DefinitionError(
            f"compact_every={sink.compact_every} is not a number of checkpoints", next="write such as compact_every=60"
        )
    if sink.schema is None:
        unused: dict[str, tuple[object, object]] = {
            "partition_by": (tuple(sink.partition_by), ()),
            "properties": (dict(sink.properties), {}),
        }
        refuse_without_effect(
            "DeltaSink",
            unused,
            because="the table is not made by the job",
            next='give schema="id bigint, day date" too, so that the table is made where it is missing',
        )
        return
    names = ddl.parse(sink.schema).names
    for what, given in (("partition_by", sink.partition_by), ("key", sink.key or ())):
        if missing := [name for name in given if name not in names]:
            raise DefinitionError(f"{what}= names {missing[0]!r}, which is not in schema=", next="add it to schema=")
    if set(sink.partition_by) == set(names):
        raise DefinitionError("partition_by= names every column", next="leave one out: files need a column")


def preflight(sink: DeltaSink) -> TableShape:
    """Return the table, which is made where it is missing and its columns are given.

    Raises:
        DefinitionError: there is none, or rows cannot be written to it as the sink says.
        TransientError: the store does not answer.
    """
    storage = open_folder(sink.path)
    check_folder(storage)
    if sink.schema is not None:
        make_table(sink)
    with explained(storage, "opening it", starting=True):
        shape = shape_of(open_table(storage))
    refuse_unwritable(shape, storage.root)
    if sink.schema is not None and tuple(sink.partition_by) != shape.partition_by:
        raise DefinitionError(
            f"Delta table {storage.root} has partitions by {list(shape.partition_by)}, and partition_by= says {list(sink.partition_by)}",
            next="say the same, or leave schema= and partition_by= out",
        )
    if missing := [name for name in sink.key or () if name not in shape.schema.names]:
        raise DefinitionError(
            f"Delta table {storage.root} has no column {missing[0]!r}, which key= names",
            next=f"use {', '.join(shape.schema.names)}",
        )
    for name in sink.key or ():
        if pa.types.is_nested(shape.schema.field(name).type) or pa.types.is_floating(shape.schema.field(name).type):
            raise DefinitionError(
                f"key column {name!r} of Delta table {storage.root} is {ddl.render_type(shape.schema.field(name).type)}, by which rows are not merged",
                next="take a column of texts, whole numbers, decimals, dates or timestamps for key=",
            )
    if sink.key:
        _refuse_merge(shape, storage.root, deletes=sink.delete_when is not None)
    if "delta.setTransactionRetentionDuration" in shape.properties:
        raise DefinitionError(
            f"Delta table {storage.root} forgets transactions after {shape.properties['delta.setTransactionRetentionDuration']},"
            " so that a repetition is not recognised behind that",
            next="unset the table's property delta.setTransactionRetentionDuration",
        )
    remember(sink, shape)
    return shape


def make_table(sink: DeltaSink) -> None:
    """Make the table where it is missing; of several that do so at once, one wins and the others find it."""
    library, storage = load_deltalake(), open_folder(sink.path)
    schema = ddl.parse(sink.schema or "")
    with explained(storage, "making it", starting=True):
        options = dict(storage_options(storage))
        if library.DeltaTable.is_deltatable(storage.root, options):
            return
        try:
            library.DeltaTable.create(
                storage.root,
                schema=library.Schema.from_arrow(schema),
                mode="ignore",
                partition_by=list(sink.partition_by),
                configuration=dict(sink.properties) or None,
                storage_options=options,
            )
        except library.exceptions.CommitFailedError:
            if not library.DeltaTable.is_deltatable(storage.root, options):
                raise


def remember(sink: DeltaSink, shape: TableShape) -> None:
    """Keep what the table is like, for this process."""
    _known[os.getpid(), open_folder(sink.path).root] = shape


def known(sink: DeltaSink) -> TableShape | None:
    """Return what the table was like when it was last looked at in this process."""
    return _known.get((os.getpid(), open_folder(sink.path).root))


def check_columns(sink: DeltaSink, name: str, columns: Sequence[str]) -> None:
    """Raise DefinitionError unless rows with these columns have what is written and compared."""
    flag = () if sink.delete_when is None else (sink.delete_when,)
    need_columns(name, (*(sink.columns or ()), *(sink.key or ()), *flag), columns)


def check_schema(sink: DeltaSink, name: str, schema: pa.Schema) -> None:
    """Raise DefinitionError unless columns of these types go into the table, as far as it is known by now."""
    shape = known(sink)
    if shape is not None:
        sink.rules(shape.schema, shape.partition_by, name).target(schema)


def _refuse_merge(shape: TableShape, place: str, *, deletes: bool) -> None:
    if shape.flag("delta.appendOnly"):
        raise DefinitionError(
            f"Delta table {place} is append-only, and rows are merged by key",
            next="leave key= out, or use another table",
        )
    if shape.flag("delta.enableDeletionVectors"):
        raise DefinitionError(
            f"Delta table {place} has deletion vectors, into which rows are not merged here",
            next="set the table's property delta.enableDeletionVectors to false, and purge it",
        )
    required = [each.name for each in shape.schema if not each.nullable]
    if deletes and required and shape.flag("delta.enableChangeDataFeed"):
        raise DefinitionError(
            f"Delta table {place} has a change data feed and a column that must not be null, {required[0]!r}: there deltalake cannot delete rows",
            next=f"let {required[0]!r} be null in the table, or turn delta.enableChangeDataFeed off",
        )
