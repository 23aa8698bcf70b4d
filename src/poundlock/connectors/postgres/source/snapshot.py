"""Driver's half of a table that is read once: every range of it in one state, that of one exported snapshot.

The server keeps that state while a connection of the driver holds it. A position names the snapshot it was read from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from poundlock.connectors.base import Split
from poundlock.connectors.postgres.source.positions import SnapshotPosition
from poundlock.connectors.postgres.source.relation import Relation, as_planned, cut, look_up
from poundlock.connectors.postgres.types import Column
from poundlock.errors import DefinitionError, SourceGoneError, TerminalError
from poundlock.storage import Storage
from poundlock.storage.json_record import read_record, typed
from poundlock.values import size

if TYPE_CHECKING:
    from poundlock.connectors.postgres.source.source import PostgresSource


def copy_payload(select: str, columns: Sequence[Column], snapshot: str | None = None, **more: Any) -> dict[str, Any]:
    """Return what a reader needs to read the rows of a SELECT."""
    payload = {"select": select, "columns": _fields(columns), **more}
    return {**payload, "snapshot": snapshot} if snapshot is not None else payload


_PLANS = "plans"  # a folder of the workspace


class Plans:
    """How a table was cut, as files in the source's workspace, so that a position means the same ranges for ever."""

    def __init__(self, workspace: Storage) -> None:
        self._workspace = workspace

    def keep(self, name: str, relation: Relation, conditions: Sequence[str]) -> None:
        """Write a plan down; those of starts that died before they decided anything go."""
        for old in self._workspace.names(_PLANS):
            self._workspace.delete(f"{_PLANS}/{old}")
        plan = {"selects": [relation.select(c) for c in conditions], "columns": _fields(relation.columns)}
        self._workspace.create_exclusive(f"{_PLANS}/{name}.json", json.dumps(plan).encode())

    def splits(self, name: str, snapshot: str, first: int, last: int, **more: Any) -> list[Split]:
        """Return the work of the ranges from `first` to before `last`."""
        path, next = f"{_PLANS}/{name}.json", "put the job's checkpoint folder back as it was"
        plan = read_record(self._workspace, path, lambda data: typed(json.loads(data), dict[str, list[Any]]), next=next)
        if plan is None:
            raise SourceGoneError(f"{self._workspace.root} has no plan {name}", next=next)
        columns = [Column(*fields) for fields in plan["columns"]]
        return [
            Split(
                f"{name}-{i:05d}",
                copy_payload(plan["selects"][i], columns, snapshot, **more),
                name=f"range {i + 1} of {len(plan['selects'])}",
            )
            for i in range(first, last)
        ]


def _fields(columns: Sequence[Column]) -> list[list[Any]]:
    return [[c.name, c.oid, c.modifier] for c in columns]


class SnapshotEnumerator:
    """Plans the ranges, and holds the snapshot while they are read."""

    def __init__(self, source: PostgresSource, workspace: Storage) -> None:
        self._source = source
        self._plans = Plans(workspace)
        self._connection: Any = None
        self._snapshot = ""
        self._plan: tuple[str, int] | None = None  # made in this life: its name, and how many ranges it has

    def initial(self) -> dict[str, Any]:
        return SnapshotPosition(None, 0).to_json()

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        at = self._position(start)
        if at.is_whole:
            return start
        with self._source.login.errors(f"reading {self._source.shown}"):
            self._hold(at)
            if at.plan is not None:
                name, count = at.plan, at.of
            else:
                self._plan = self._plan or self._make_plan()
                name, count = self._plan
        most = self._source.ranges_per_checkpoint
        last = count if most is None else min(count, at.next + most)
        return SnapshotPosition(name, last, count, self._snapshot, read=self._source.reads).to_json()

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        first, last = self._position(start), self._position(end)
        if self._connection is None or last.snapshot != self._snapshot:
            raise SourceGoneError(
                f"ranges of {self._source.shown} that were decided must be read once more, and the snapshot"
                " they were read from is gone",
                next="start the job over into an empty target; for jobs that may need such rows again, read with "
                'mode="incremental" or "cdc"',
            )
        splits = self._plans.splits(str(last.plan), self._snapshot, first.next, last.next)
        self._check_columns(splits)
        return splits

    def finished(self, position: dict[str, Any]) -> bool:
        return self._position(position).is_whole

    def committed(self, position: dict[str, Any]) -> None:
        """Let the server clean up again, once everything is read."""
        if self.finished(position):
            self.close()

    def close(self) -> None:
        """Close the connection that holds the snapshot."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _position(self, value: dict[str, Any]) -> SnapshotPosition:
        return SnapshotPosition.from_json(value, self._source.reads)

    def _hold(self, at: SnapshotPosition) -> None:
        if self._connection is not None:
            # Held by this life; a connection that broke took the snapshot along, and the next start deals with it.
            self._connection.execute("SELECT 1")
            return
        if at.plan is not None and self._source.lost_snapshot == "stop":
            raise SourceGoneError(
                f"{at.next} of {at.of} ranges of {self._source.shown} were read from a snapshot"
                " that is gone, as the driver that held it is",
                next='start the job over into an empty target, or say lost_snapshot="newer" to read the rest as it is now',
            )
        self._connection = self._source.login.open()
        self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._snapshot = str(self._connection.execute("SELECT pg_export_snapshot()").fetchone()[0])

    def _check_columns(self, splits: Sequence[Split]) -> None:
        """Raise TerminalError if the ranges of an earlier start have other columns than this one says it reads."""
        columns = [Column(*fields) for split in splits[:1] for fields in split.payload["columns"]]
        if splits and [(c.name, c.arrow) for c in columns] != [(f.name, f.type) for f in self._source.schema()]:
            names = ", ".join(repr(column.name) for column in columns)
            raise TerminalError(
                f"{self._source.shown} has other columns now than when its ranges were planned",
                next=f"read those of then, columns=[{names}], or start the job over into an empty target",
            )

    def _make_plan(self) -> tuple[str, int]:
        current = look_up(self._connection, self._source)
        relation = as_planned(current, self._source.schema(), self._source.shown)
        conditions = list(self._source.ranges or ())
        if not conditions:
            key = key_of(self._source, relation)
            conditions = cut(self._connection, relation, key=key, split_bytes=size(self._source.split_size))
        name = f"{self._snapshot}-{self._source.clock.now_ms()}"
        self._plans.keep(name, relation, conditions)
        return name, len(conditions)


def key_of(source: PostgresSource, relation: Relation) -> str | None:
    """Return the column by which a table is cut; None = by physical place.

    Raises:
        DefinitionError: the rest may have to be read from another state of the table, and there is no key.
    """
    if source.key is not None or source.lost_snapshot != "newer":
        return source.key
    if relation.key is None:
        raise DefinitionError(
            f'lost_snapshot="newer" needs ranges of a key, and {source.shown} has no primary key of one column',
            next="name a column that does not change in key=…",
        )
    return relation.key
