"""Tables of SQL as connectors are given them."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from poundlock.sql.catalog import FullName
from poundlock.sql.connectors.table import TableContext
from poundlock.sql.relations.fields import Field
from poundlock.sql.tables import ConnectorColumn, PhysicalColumn
from support.table_formats import definition_of

__all__ = ["table_context"]


def table_context(ddl: str) -> TableContext:
    """Return the table t that a statement creates, of which all columns are used, in streaming mode."""
    definition = definition_of(ddl)
    fields = tuple(
        Field(c.name, f"{c.name}_{place}", c.type)
        for place, c in enumerate(definition.columns)
        if isinstance(c, PhysicalColumn | ConnectorColumn)
    )
    return TableContext(FullName("c", "d", "t"), definition, fields, ZoneInfo("UTC"), False)
