"""Delta tables as another reader sees them: by the SQL engine of the library, which goes by the log alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from poundlock.connectors.delta.loading import open_folder, open_table

__all__ = ["rows_of", "table_of"]


def table_of(path: str, version: int | None = None, order: Sequence[str] = ()) -> pa.Table:
    """Return the rows of a table."""
    from deltalake import QueryBuilder

    engine = QueryBuilder().register("t", open_table(open_folder(path), version))
    by = f" ORDER BY {', '.join(order)}" if order else ""
    return pa.table(engine.execute(f"SELECT * FROM t{by}").read_all())


def rows_of(path: str, order: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the rows of a table as dicts."""
    rows: list[dict[str, Any]] = table_of(path, order=order).to_pylist()
    return rows
