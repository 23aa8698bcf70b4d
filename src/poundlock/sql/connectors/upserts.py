"""Which tables give upserts when they are read: the newest row of a key, or that it is gone."""

from __future__ import annotations

from poundlock.sql.tables import TableDefinition


def gives_upserts(definition: TableDefinition) -> bool:
    """Return whether a table gives upserts by its primary key, of which the changelog has to be made."""
    return bool(definition.primary_key) and definition.options.get("connector") == "upsert-kafka"
