"""The Arrow columns of fields."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from poundlock.sql.relations.fields import Field


def schema_of(fields: Sequence[Field]) -> pa.Schema:
    """Return the columns of batches."""
    return pa.schema([pa.field(f.column, f.type.arrow) for f in fields])
