"""The Avro schema of a row, with the names and logical types that Flink gives it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from poundlock.sql.errors import OptionError
from poundlock.sql.types import Root, SqlType

ROW_NAME = "org.apache.flink.avro.generated.record"
"""What Flink calls the record of a table."""

_PLAIN: Mapping[Root, str] = {
    "BOOLEAN": "boolean", "TINYINT": "int", "SMALLINT": "int", "INT": "int", "BIGINT": "long", "FLOAT": "float",
    "DOUBLE": "double", "CHAR": "string", "VARCHAR": "string", "BINARY": "bytes", "VARBINARY": "bytes",
}  # fmt: skip
_MILLIS, _MICROS = 3, 6


def row_schema(kind: SqlType, table: str) -> str:
    """Return the schema of rows, as JSON.

    Raises:
        OptionError: Avro has not the type of a column, or its name.
    """
    return json.dumps(_record(kind, ROW_NAME, table))


def _record(kind: SqlType, name: str, place: str) -> dict[str, Any]:
    fields = []
    for column, of in zip(kind.names, kind.of, strict=True):
        if not (column.isidentifier() and column.isascii()):
            raise OptionError(
                f"{place}.{column}: this is no name in Avro", next="rename the column: ASCII letters, digits and _"
            )
        made = {"name": column, "type": _schema(of, f"{name}_{column}", f"{place}.{column}")}
        fields.append({**made, "default": None} if of.is_nullable else made)
    return {"type": "record", "name": name, "fields": fields}


def _schema(kind: SqlType, name: str, place: str) -> Any:
    made = _not_null(kind, name, place)
    return ["null", made] if kind.is_nullable else made


def _not_null(kind: SqlType, name: str, place: str) -> Any:
    root = kind.root
    if root in _PLAIN:
        return _PLAIN[root]
    if root == "ROW":
        return _record(kind, name, place)
    if root == "ARRAY":
        return {"type": "array", "items": _schema(kind.of[0], name, place)}
    if root == "MAP" and kind.of[0].root in ("CHAR", "VARCHAR"):
        return {"type": "map", "values": _schema(kind.of[1], name, place)}
    if root == "DATE":
        return {"type": "int", "logicalType": "date"}
    if root == "TIME" and kind.sizes[0] <= _MILLIS:
        return {"type": "int", "logicalType": "time-millis"}
    if root in ("TIMESTAMP", "TIMESTAMP_LTZ") and kind.sizes[0] <= _MICROS:
        return {"type": "long", "logicalType": f"timestamp-{'millis' if kind.sizes[0] <= _MILLIS else 'micros'}"}
    if root == "DECIMAL":
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.sizes[0], "scale": kind.sizes[1]}
    raise OptionError(f"{place}: Avro has no {kind} here", next="declare another type", kind="type_mismatch")
