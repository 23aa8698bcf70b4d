"""Recorded cases, their tables as formats, and rows as the cases write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from sqlglot import exp

from poundlock.sql.connectors.options import TableOptions
from poundlock.sql.formats.format import FormatColumn, FormatContext, RecordDecoder, RecordEncoder
from poundlock.sql.formats.registry import decoder_of, encoder_of
from poundlock.sql.script import ParsedStatement, statements_of
from poundlock.sql.tables import PhysicalColumn, TableDefinition, table_of
from poundlock.sql.types import SqlType

_DATA = json.loads((Path(__file__).parents[1] / "conformance/data/sql.json").read_text())
CASES: Mapping[str, dict[str, Any]] = {case["id"]: case for case in _DATA["cases"]}


def definition_of(ddl: str) -> TableDefinition:
    """Return the table that a script creates."""
    for each in statements_of(ddl):
        if isinstance(each, ParsedStatement) and isinstance(each.expression, exp.Create):
            return table_of(each.expression, ddl)
    raise ValueError(ddl)


def columns_of(**types: SqlType) -> tuple[FormatColumn, ...]:
    """Return columns, each under the same name in the data and in batches."""
    return tuple(FormatColumn(name, name, kind) for name, kind in types.items())


def context_of(columns: Iterable[FormatColumn]) -> FormatContext:
    """Return what formats of a table t are made for."""
    return FormatContext("t", tuple(columns), ZoneInfo("UTC"))


def decoder(columns: Iterable[FormatColumn], format: str, **options: str) -> RecordDecoder:
    """Return what reads a format; the options without what is before their point."""
    prefix = format
    given = {
        "format": format,
        **{f"{prefix}.{name.replace('__', '.').replace('_', '-')}": v for name, v in options.items()},
    }
    made = TableOptions("t", given)
    result = decoder_of(made, context_of(columns))
    made.finish(format)
    return result


def encoder(columns: Iterable[FormatColumn], format: str, **options: str) -> RecordEncoder:
    """Return what writes a format; options as of `decoder`."""
    given = {
        "format": format,
        **{f"{format}.{name.replace('__', '.').replace('_', '-')}": v for name, v in options.items()},
    }
    made = TableOptions("t", given)
    result = encoder_of(made, context_of(columns))
    made.finish(format)
    return result


def physical(table: TableDefinition) -> tuple[FormatColumn, ...]:
    """Return the columns of the data."""
    return tuple(FormatColumn(c.name, c.name, c.type) for c in table.columns if isinstance(c, PhysicalColumn))


def lines_of(table: Mapping[str, Any]) -> list[bytes]:
    """Return the lines of an input table."""
    if "lines" in table:
        return [line.encode() for line in table["lines"]]
    rows = table["rows"]
    if isinstance(rows, str):
        rows = _DATA["datasets"][rows.removeprefix("@")]
    return [json.dumps(row).encode() for row in rows]


def plain(value: Any) -> Any:
    """Return a value as the cases write it."""
    if isinstance(value, datetime):
        zone = "" if value.tzinfo is None else "Z"
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return moment.isoformat(timespec="milliseconds") + zone
    if isinstance(value, date | Decimal):
        return str(value)
    if isinstance(value, time):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, dict):
        return [plain(each) for each in value.values()]
    return [plain(each) for each in value] if isinstance(value, list) else value


def binary(records: Iterable[bytes | None]) -> pa.Array:
    """Return records as tasks have them."""
    return pa.array(list(records), pa.binary())
