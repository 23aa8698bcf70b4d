"""Driver's half of change data capture: a slot, and how far its log may be read.

A position is a place in the server's log. The slot stays one checkpoint behind the newest decided one, so that what was
decided can be read once more after a crash; the server drops nothing that a restart may ask for.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from poundlock.connectors.base import Split
from poundlock.connectors.postgres.source import slots
from poundlock.connectors.postgres.source.cdc_messages import lsn_of, lsn_text
from poundlock.connectors.postgres.source.positions import LogPosition
from poundlock.connectors.postgres.source.relation import Relation, cut, look_up
from poundlock.connectors.postgres.source.snapshot import Plans, one_state
from poundlock.connectors.postgres.types import Column
from poundlock.errors import DefinitionError, SourceGoneError, TransientError
from poundlock.storage import Storage
from poundlock.values import size

if TYPE_CHECKING:
    from poundlock.connectors.postgres.source.source import PostgresSource


_MARK = "slot.json"
# Whether so little of the log has changes of the table is looked up, so that a table at rest makes no checkpoints. More is
# just read: the position has to move, or the server would keep its log for ever.
_LOOK_AT_BYTES = 1 << 20


class CdcEnumerator:
    """Makes the slot, says what is new, and moves the slot on behind decided checkpoints. The workspace knows that it is ours."""

    def __init__(self, source: PostgresSource, workspace: Storage) -> None:
        self._source = source
        self._workspace = workspace
        self._plans = Plans(workspace)
        self._connection: Any = None
        self._relation: Relation | None = None
        self._exported: slots.Exported | None = None
        self._begun: LogPosition | None = None
        self._looked_ms: int | None = None
        self._empty_to = 0  # up to here the log was looked at, and has nothing for this job
        self._decided: int | None = None

    def initial(self) -> dict[str, Any]:
        return LogPosition(str(self._source.slot), None).to_json()

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        now, at = self._source.clock.now_ms(), self._position(start)
        if self._looked_ms is not None and now - self._looked_ms < self._source.poll_ms:
            return start
        with self._source.login.errors(f"looking for changes of {self._source.shown}"):
            connection, relation = self._connect()
            if at.lsn is None:
                self._begun = self._begun or self._begin(connection, relation)
                return self._begun.to_json()
            self._check(connection, at, at.lsn, relation)
            reach = self._reach(connection, lsn_of(at.lsn))
            # Looked at behind the end: what was left out before it is noticed now, before anything of it is decided.
            has = slots.published(connection, str(self._source.publication), relation.oid)
            if at.published is not None:
                what = self._source.shown
                slots.refuse_gap(at.published, has, publication=str(self._source.publication), what=what)
        self._looked_ms = now if reach is None else None
        return start if reach is None else LogPosition(at.slot, lsn_text(reach), at.oid, has).to_json()

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        before, last = self._position(start), self._position(end)
        if before.lsn is None:
            return self._read_first(last, last.plan) if last.plan is not None else []
        with self._source.login.errors(f"planning the changes of {self._source.shown}"):
            connection, relation = self._connect()
            self._check(connection, before, before.lsn, relation)
            changes = changes_of(connection, self._source, relation, lsn_of(before.lsn), lsn_of(str(last.lsn)))
        return [Split(f"{before.lsn}-{last.lsn}", changes, name=f"changes up to {last.lsn}")]

    def finished(self, position: dict[str, Any]) -> bool:
        return False

    def committed(self, position: dict[str, Any]) -> None:
        """Let the server drop what came before the checkpoint that is now decided; that one may be read once more."""
        lsn = self._position(position).lsn
        if lsn is None:
            return
        before, self._decided = self._decided, lsn_of(lsn)
        if self._exported is not None:
            self._exported.close()
            self._exported = None
        if before is not None and before < self._decided:
            # Where the server is away, the next checkpoint does it: until then the slot merely holds more of the log.
            with (
                suppress(TransientError),
                self._source.login.errors(f"moving replication slot {self._source.slot!r} on"),
            ):
                slots.advance(self._connect()[0], str(self._source.slot), before)

    def close(self) -> None:
        """Close the connections; the slot stays."""
        for held in (self._exported, self._connection):
            if held is not None:
                held.close()
        self._exported = self._connection = None

    def _position(self, value: dict[str, Any]) -> LogPosition:
        return LogPosition.from_json(value, self._source.reads)

    def _connect(self) -> tuple[Any, Relation]:
        if self._connection is None or self._connection.closed or self._relation is None:
            self._connection = self._source.login.open()
            current = look_up(self._connection, self._source)
            _, columns = declared_columns(self._connection, current, chosen=self._source.columns is not None)
            self._relation = replace(current, columns=tuple(Column(*fields) for fields in columns))
        return self._connection, self._relation

    def _begin(self, connection: Any, relation: Relation) -> LogPosition:
        """Make the slot, or take the one that is there, and return the position from which changes are read."""
        name = str(self._source.slot)
        slot = slots.find(connection, name)
        has = slots.published(connection, str(self._source.publication), relation.oid)  # before the slot is made
        ours = self._workspace.stat(_MARK) is not None
        if slot is None:
            # Written before the slot is made: a slot that is there without it is somebody else's.
            self._workspace.create_exclusive(_MARK, b"{}")
        if self._source.initial == "none":
            lsn = slots.make(connection, name) if slot is None else slots.usable(connection, name, 1 << 63).confirmed
            return LogPosition(name, lsn_text(lsn), relation.oid, has)
        if slot is not None:
            if not ours:
                raise DefinitionError(
                    f"replication slot {name!r} is there already, and the state of the table at its beginning is not known",
                    next=f"SELECT pg_drop_replication_slot('{name}'), or give another slot, or say initial=\"none\"",
                )
            # Of a start that died before anything was decided: the state that belonged to it died with it.
            slots.drop(connection, name)
        self._exported = exported = slots.export(self._source.login, name)
        connection.execute("; ".join(one_state(exported.snapshot)))
        try:
            conditions = cut(connection, relation, key=self._source.key, split_bytes=size(self._source.split_size))
        finally:
            connection.execute("ROLLBACK")
        plan = f"{exported.snapshot}-{self._source.clock.now_ms()}"
        self._plans.keep(plan, relation, conditions)
        at = lsn_text(exported.lsn)
        return LogPosition(name, at, relation.oid, has, plan, exported.snapshot, len(conditions))

    def _read_first(self, end: LogPosition, plan: str) -> Sequence[Split]:
        if self._exported is None or self._exported.snapshot != end.snapshot:
            raise SourceGoneError(
                f"the first rows of {self._source.shown} were decided and must be read once more, and the"
                " snapshot they were read from is gone",
                next="start the job over into an empty target, with another slot",
            )
        return self._plans.splits(plan, end.snapshot, 0, end.of, lsn=lsn_of(str(end.lsn)))

    def _check(self, connection: Any, at: LogPosition, lsn: str, relation: Relation) -> None:
        if at.slot != self._source.slot:
            raise DefinitionError(
                f"the job reads replication slot {at.slot!r}, and the source now says {self._source.slot!r}",
                next=f"say slot={at.slot!r}, or start the job over with a new checkpoint",
            )
        slots.usable(connection, at.slot, lsn_of(lsn))
        if relation.oid != at.oid:
            raise SourceGoneError(
                f"{self._source.shown} is another table than the one this job reads: it was dropped and created again",
                next="start the job over, with a new checkpoint and another slot",
            )

    def _reach(self, connection: Any, at: int) -> int | None:
        """Return the place up to which there are changes to read; None if there is nothing new."""
        flushed = lsn_of(connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()[0])
        end = min(flushed, at + size(self._source.max_wal_per_checkpoint))
        if end <= max(at, self._empty_to):
            return None
        if end - at < _LOOK_AT_BYTES and not self._changes_between(connection, at, end):
            self._empty_to = end
            return None
        return end

    def _changes_between(self, connection: Any, start: int, end: int) -> bool:
        function = slots.as_function(str(self._source.slot), str(self._source.publication), end)
        begins = connection.execute(f"SELECT data FROM {function} WHERE get_byte(data, 0) = {ord('B')}", binary=True)
        return any(start <= struct.unpack_from("!q", data, 1)[0] < end for (data,) in begins)


def changes_of(connection: Any, source: PostgresSource, relation: Relation, start: int, end: int) -> dict[str, Any]:
    """Return what a reader needs to read the changes of a range of the log."""
    declared, columns = declared_columns(connection, relation, chosen=source.columns is not None)
    return {
        "changes": slots.as_function(str(source.slot), str(source.publication), end),
        "columns": columns,
        "declared": declared,
        "whole": source.columns is None,
        "full": source.before == "full",
        "oid": relation.oid,
        "start": start,
        "end": end,
    }


def declared_columns(connection: Any, relation: Relation, *, chosen: bool) -> tuple[list[int], list[list[Any]]]:
    """Return the declared types of the columns that changes have, and those columns; generated ones are not logged."""
    rows = connection.execute(
        "SELECT attname::text, atttypid::int8, attgenerated::text FROM pg_attribute WHERE attrelid = %s AND attnum > 0"
        " AND NOT attisdropped",
        [relation.oid],
    ).fetchall()
    types = {name: oid for name, oid, generated in rows if chosen or not generated}
    columns = [c for c in relation.columns if c.name in types]
    return [types[c.name] for c in columns], [[c.name, c.oid, c.modifier] for c in columns]
