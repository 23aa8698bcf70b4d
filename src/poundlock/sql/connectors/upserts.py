"""Which tables give upserts when they are read: the newest row of a key, or that it is gone."""

from __future__ import annotations

from poundlock.sql.tables import TableDefinition


def gives_upserts(definition: TableDefinition) -> bool:
    """Return whether a table gives upserts by its primary key, of which the changelog has to be made."""
    options = definition.options
    is_upsert = options.get("connector") == "upsert-kafka" or (
        options.get("connector") == "postgres-cdc" and options.get("changelog-mode", "all").lower() == "upsert"
    )
    return is_upsert and bool(definition.primary_key)
