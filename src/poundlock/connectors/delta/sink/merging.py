"""Changes by key merged into a table, in the one commit of their decision.

The driver merges: it reads the changes of a checkpoint, of which the last one of each key counts, and the library rewrites the files that have
one of these keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from poundlock.connectors.delta.sink.values import DecidedRows, WrittenFile
from poundlock.storage import Storage

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_PLACE = "__poundlock_place"
_SHOWN = ("num_target_rows_inserted", "num_target_rows_updated", "num_target_rows_deleted")


def merge(storage: Storage, table: DeltaTable, decided: DecidedRows, properties: CommitProperties) -> Mapping[str, Any]:
    """Merge what was decided; return how many rows came of it. Raises what the library raises."""
    changes = changes_of(storage, decided)
    key, flag = decided.key, decided.delete_when
    written = [name for name in changes.schema.names if name != flag]
    builder = table.merge(
        changes.to_reader(),
        predicate=" AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key),
        source_alias="s",
        target_alias="t",
        commit_properties=properties,
    )
    gone = f"s.{_quoted(flag)}" if flag else None
    values = {_quoted(name): f"s.{_quoted(name)}" for name in written}
    others = {name: value for name, value in values.items() if name not in {_quoted(each) for each in key}}
    if gone is not None:
        builder = builder.when_matched_delete(gone)
    if others:
        builder = builder.when_matched_update(others)
    builder = builder.when_not_matched_insert(values, predicate=None if gone is None else f"NOT {gone}")
    made = builder.execute()
    return {name.removeprefix("num_target_"): made[name] for name in _SHOWN}


def changes_of(storage: Storage, decided: DecidedRows) -> pa.Table:
    """Return the changes of a decision, the last one of each key: tasks in the order of their numbers, rows in that in which they came."""
    tables = [_read(storage, each) for each in decided.files]
    whole = pa.concat_tables(tables, promote_options="default")
    return newest(whole, decided.key)


def newest(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last row of each key."""
    placed = changes.select(list(key)).append_column(_PLACE, pa.array(range(changes.num_rows), pa.int64()))
    last = placed.group_by(list(key)).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    if len(last) == changes.num_rows:
        return changes
    return changes.take(last.combine_chunks().sort())


def _read(storage: Storage, file: WrittenFile) -> pa.Table:
    with storage.open(file.path) as handle:
        return pq.ParquetFile(handle).read()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
