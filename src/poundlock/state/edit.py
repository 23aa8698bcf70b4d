"""State that a person writes: one key, or the rows of a Parquet file, as one more run on top of what there is.

Nothing that exists is changed. The files that are written count only once the new manifest is recorded, under names that no
attempt of a task has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poundlock.errors import DefinitionError
from poundlock.operators.keyed.codec import normal
from poundlock.state.manifest import Manifest, ManifestChange, TableMeta
from poundlock.state.operator_state import OperatorState
from poundlock.state.participant import StateParticipant
from poundlock.state.runs.files import RunFiles
from poundlock.state.task_state import TaskState

_VALUES = ("value", "list", "map", "reducing", "aggregating", "rolling")
_ROWS = 65_536  # of a Parquet file at a time


class StateEditor:
    """Writes entries of the state that a manifest names.

    Args:
        manifest: the state.
        participant: of the directory it is in.
        files: opens and writes its runs.
        attempt: a text that nothing else that writes there has.
        now: the clock in ms, which state with a time to live counts from.
    """

    def __init__(
        self, manifest: Manifest, participant: StateParticipant, files: RunFiles, *, attempt: str, now: int
    ) -> None:
        self._manifest = manifest
        self._participant = participant
        self._now = now
        self._directive = participant.directive(manifest, checkpoint=manifest.checkpoint, parallelism=1)
        self._task = TaskState(self._directive.task(0), files, attempt)

    def put(self, operator: str, table: str, key: Any, value: Any) -> None:
        """Give a key another value.

        Args:
            operator: id of the operator.
            table: name of the state, such as "state:count".
            key: as the records have it: a tuple where it is made of several columns.
            value: what the state is to hold: a list for list state, a dict for map state, the accumulator for others.

        Raises:
            DefinitionError: there is no such operator or state, or state of that kind is not written by people.
        """
        self._put(operator, table, [key], [value])

    def delete(self, operator: str, table: str, key: Any) -> None:
        """Remove the value of a key; nothing happens if it has none. Raises as `put`."""
        state, _ = self._opened(operator, table)
        wanted = _normal(key)
        state.prefetch([wanted])
        state.table(table).pop(wanted, None)

    def put_parquet(
        self, operator: str, table: str, path: str, *, keys: Sequence[str], value: str | None = None
    ) -> int:
        """Give keys the values of a Parquet file; return how many rows it has.

        Args:
            operator: id of the operator.
            table: name of the state.
            path: of the local file.
            keys: its columns that are the key.
            value: its column with the values; None: a value is a record of the columns that are not the key.

        Raises:
            DefinitionError: a column is missing, or as of `put`.
        """
        import pyarrow.parquet as pq

        from poundlock.formats.convert import column_values

        rows = 0
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            missing = [name for name in (*keys, *([value] if value else [])) if name not in names]
            if missing:
                raise DefinitionError(
                    f"{path} has no column {', '.join(missing)}", next=f"it has: {', '.join(names) or 'none'}"
                )
            for batch in file.iter_batches(_ROWS):
                columns = {name: column_values(batch.column(name)) for name in names}
                parts = [columns[name] for name in keys]
                result = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
                if value is not None:
                    values = columns[value]
                else:
                    rest = [name for name in names if name not in keys]
                    lists = [columns[name] for name in rest]
                    values = [dict(zip(rest, row, strict=True)) for row in zip(*lists, strict=True)]
                self._put(operator, table, result, values)
                rows += batch.num_rows
        return rows

    def finish(self) -> tuple[ManifestChange, Manifest]:
        """Write the run; return what a decision is to say, and the manifest behind it."""
        return self._participant.apply(self._directive, [self._task.finish()])

    def _opened(self, operator: str, table: str) -> tuple[OperatorState, TableMeta]:
        meta = self._manifest.operators.get(operator)
        if meta is None or table not in meta.tables:
            there = self._manifest.operators if meta is None else meta.tables
            what = f"an operator {operator!r}" if meta is None else f"{table!r} of {operator}"
            raise DefinitionError(
                f"there is no state of {what}", next=f"give one of: {', '.join(sorted(there)) or 'none'}"
            )
        of = meta.tables[table]
        if of.windowed or of.broadcast or of.kind not in _VALUES:
            raise DefinitionError(
                f"{table} of {operator} is {'broadcast' if of.broadcast else of.kind} state, which is not written by hand",
                next=f"write state of one of the kinds {', '.join(_VALUES)} that belongs to keys",
            )
        now = self._now if meta.processing_time is None else max(self._now, meta.processing_time)
        watermark = {} if meta.watermark is None else {"watermark": meta.watermark}
        return self._task.operator(operator, processing_time=now, **watermark), of

    def _put(self, operator: str, table: str, keys: Sequence[Any], values: Sequence[Any]) -> None:
        state, meta = self._opened(operator, table)
        wanted = list(map(_normal, keys))
        state.prefetch(wanted)
        held = state.table(table)
        for key, value in zip(wanted, values, strict=True):
            held[key] = value if meta.ttl_ms is None else _touched(meta.kind, value, state.processing_time)


def _normal(key: Any) -> Any:
    return tuple(normal(key)) if type(key) is tuple else normal([key])[0]


def _touched(kind: str, value: Any, now: int) -> Any:
    """Return a value as state with a time to live keeps it."""
    if kind == "list":
        return [[now, item] for item in value]
    if kind == "map":
        return {key: [now, item] for key, item in value.items()}
    return [now, value]
