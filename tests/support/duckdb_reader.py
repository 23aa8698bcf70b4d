"""DuckDB as another engine that reads tables, with extensions that packages have brought: nothing is fetched."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["duckdb_query"]


def duckdb_query(query: str, *extensions: str, settings: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a query.

    Args:
        extensions: names of those that are loaded, in this order.
        settings: statements that come before the query.
    """
    import duckdb

    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        for name in extensions:
            connection.execute(f"LOAD '{_file_of(name)}'")
        for each in settings:
            connection.execute(each)
        rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        return rows


def _file_of(name: str) -> Path:
    """Return the file of an extension."""
    module = importlib.import_module(f"duckdb_extension_{name}")
    (file,) = Path(str(module.__file__)).parent.rglob(f"{name}.duckdb_extension")
    return file
