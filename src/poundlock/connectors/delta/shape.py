"""What a Delta table is like, as far as rows have to fit it: its columns, its partitions, and what it asks of writers and readers.

A table that asks for something that is not done here is refused by the name that Delta gives to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from poundlock.errors import DefinitionError, PoundlockError
from poundlock.formats import ddl

if TYPE_CHECKING:
    from deltalake import DeltaTable

# Names of table features, as the protocol has them. Those that are there and not used ask for nothing, see `_used`.
_WRITTEN = frozenset(
    [
        "appendOnly",
        "invariants",
        "changeDataFeed",
        "timestampNtz",
        "deletionVectors",
        "v2Checkpoint",
        "domainMetadata",
        "vacuumProtocolCheck",
        "checkConstraints",
        "generatedColumns",
        "identityColumns",
        "columnMapping",
        "allowColumnDefaults",
    ]
)
_READ = frozenset(["timestampNtz", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "columnMapping"])
_OF_COLUMNS = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
}
_FIT_A_PARTITION = (
    pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp, pa.types.is_decimal,
)  # fmt: skip


@dataclass(frozen=True)
class TableShape:
    """A table at one version.

    Args:
        id: of the table; another one was made again at the same place.
        columns: its columns as DDL.
        partition_by: the columns of its partitions.
        properties: its properties, such as delta.appendOnly.
        writer_features, reader_features: what it asks of writers and readers, as far as it lists that.
        used: features that its columns and properties use.
    """

    id: str
    version: int
    columns: str
    partition_by: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    writer_features: frozenset[str] = frozenset()
    reader_features: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return ddl.parse(self.columns)

    def flag(self, name: str) -> bool:
        """Return whether a property is true."""
        return self.properties.get(name, "").lower() == "true"


def shape_of(table: DeltaTable) -> TableShape:
    """Return what an open table is like."""
    metadata, protocol, schema = table.metadata(), table.protocol(), table.schema()
    properties = {name: str(value) for name, value in metadata.configuration.items()}
    return TableShape(
        str(metadata.id),
        table.version(),
        columns_of(schema.to_json()),
        tuple(metadata.partition_columns),
        properties,
        frozenset(protocol.writer_features or ()),
        frozenset(protocol.reader_features or ()),
        frozenset(_used(json.loads(schema.to_json()), properties)),
    )


def columns_of(schema: str) -> str:
    """Return the columns of a schema in Delta's JSON as DDL. Raises DefinitionError for a type that Spark's DDL has no word for."""
    from deltalake import Schema

    return ddl.render(pa.schema(Schema.from_json(schema).to_arrow()))


def refuse_unwritable(shape: TableShape, place: str, wrong: type[PoundlockError] = DefinitionError) -> None:
    """Raise an error where rows cannot be added to a table as the protocol asks, and where partitions have types that have no text."""
    refused = sorted((shape.writer_features - _WRITTEN) | shape.used)
    if refused:
        raise wrong(
            f"Delta table {place} uses {refused[0]}, which is not written here",
            next=f"write into a table without {refused[0]}: docs/delta.md",
        )
    for name in shape.partition_by:
        kind = shape.schema.field(name).type
        if not any(fits(kind) for fits in _FIT_A_PARTITION):
            raise wrong(
                f"Delta table {place} has partitions by {name!r}, which is {ddl.render_type(kind)}",
                next="partition by a column of texts, whole numbers, decimals, dates, timestamps or booleans",
            )


def refuse_unreadable(shape: TableShape, place: str, wrong: type[PoundlockError] = DefinitionError) -> None:
    """Raise an error where the files of a table do not have its rows as they stand."""
    refused = sorted((shape.reader_features - _READ) | (shape.used & {"columnMapping"}))
    if refused:
        raise wrong(
            f"Delta table {place} uses {refused[0]}, which is not read here",
            next=f"read a table without {refused[0]}: docs/delta.md",
        )


def _used(schema: Mapping[str, Any], properties: Mapping[str, str]) -> Iterator[str]:
    if properties.get("delta.columnMapping.mode", "none") != "none":
        yield "columnMapping"
    if any(name.startswith("delta.constraints.") for name in properties):
        yield "checkConstraints"
    for each in schema["fields"]:
        for word, feature in _OF_COLUMNS.items():
            if word in each["metadata"]:
                yield feature
        if _has_required_elements(each["type"]):
            yield "elements that must not be null"


def _has_required_elements(kind: Any) -> bool:
    """Return whether lists or maps in a type may hold no null, which files of Arrow's would not say."""
    if not isinstance(kind, Mapping):
        return False
    if kind.get("containsNull") is False or kind.get("valueContainsNull") is False:
        return True
    inner = (kind.get(name) for name in ("elementType", "valueType"))
    return any(map(_has_required_elements, inner)) or any(
        _has_required_elements(each["type"]) for each in kind.get("fields", ())
    )
