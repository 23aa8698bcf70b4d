"""Driver's half of change data capture: a slot, how far its log may be read, and which chunks of the tables come beside it.

Between two positions lie the changes of the rows that are known at the first, and the chunks that are known at the second alone, as they are at its
place of the log. No checkpoint needs anything of an earlier one but its position, so a start goes on in the middle of a table.

The slot stays one checkpoint behind the newest decided one, so that what was decided can be read once more after a crash; the server drops
nothing that a restart may ask for. While chunks are read, the driver holds the state of the tables at their place, so that nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from poundlock.connectors.base import Split
from poundlock.connectors.changes.chunked_snapshot import Chunk, Frontier, is_whole, next_frontiers
from poundlock.connectors.postgres.connection import identifier
from poundlock.connectors.postgres.source import slots, states
from poundlock.connectors.postgres.source.cdc_messages import lsn_of, lsn_text
from poundlock.connectors.postgres.source.positions import HeldState, KnownTable, LogPosition
from poundlock.connectors.postgres.source.states import HeldSnapshot
from poundlock.connectors.postgres.source.tables import (
    PublishedTable,
    as_planned,
    check_declared,
    files_of,
    rows_of_a_chunk,
)
from poundlock.connectors.postgres.source.work import DecodingWork, SnapshotChunkWork, payload_of
from poundlock.errors import DefinitionError, SourceGoneError, TransientError
from poundlock.storage import Storage
from poundlock.values import size

if TYPE_CHECKING:
    from poundlock.connectors.postgres.source.source import PostgresSource


_MARK = "slot.json"
# Whether so little of the log has changes of the tables is looked up, so that tables at rest make no checkpoints. More is
# just read: the position has to move, or the server would keep its log for ever.
_LOOK_AT_BYTES = 1 << 20
_OVER = "start the job over, with an empty target, a new checkpoint and another slot"


class CdcEnumerator:
    """Makes the slot, says what is new, and moves the slot on behind decided checkpoints. The workspace knows that it is ours."""

    def __init__(self, source: PostgresSource, workspace: Storage) -> None:
        self._source = source
        self._workspace = workspace
        self._connection: Any = None
        self._tables: dict[str, PublishedTable] = {}
        self._held: list[HeldSnapshot] = []
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
            connection = self._connect()
            if at.lsn is None:
                self._begun = self._begun or self._begin(connection)
                return self._begun.to_json()
            before = self._check(connection, at, at.lsn)
            end = self._end(connection, at, before)
        self._looked_ms = now if end is None else None
        return start if end is None else end.to_json()

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        before, last = self._position(start), self._position(end)
        if before.lsn is None and "plan" in end:
            raise SourceGoneError(
                f"the first rows of {self._source.shown} were decided by another version and must be read once more, and the"
                " snapshot they were read from is gone",
                next="start the job over into an empty target, with another slot",
            )
        with self._source.login.errors(f"planning the changes of {self._source.shown}"):
            connection = self._connect()
            known = self._check(connection, before if before.lsn is not None else last, str(before.lsn or last.lsn))
            then = self._by_name(last)
            # A later start may have tables that were not there yet.
            tables = [table for name, table in self._tables.items() if name in then]
            check_declared(connection, tables)
        log = [] if before.lsn is None else self._log_splits(tables, before.lsn, known, str(last.lsn))
        if last.state is None:  # no rows of before are read here
            return log
        chunks = [
            (table, chunk)
            for table in tables
            for chunk in (Frontier() if before.lsn is None else known[table.name].known).chunks_to(
                then[table.name].known
            )
        ]
        return log + [self._chunk_split(table, chunk, last, number) for number, (table, chunk) in enumerate(chunks)]

    def finished(self, position: dict[str, Any]) -> bool:
        return False

    def committed(self, position: dict[str, Any]) -> None:
        """Let the server drop what came before the checkpoint that is now decided; that one may be read once more."""
        lsn = self._position(position).lsn
        if lsn is None:
            return
        before, self._decided = self._decided, lsn_of(lsn)
        self._release(self._decided)
        if before is not None and before < self._decided:
            # Where the server is away, the next checkpoint does it: until then the slot merely holds more of the log.
            with (
                suppress(TransientError),
                self._source.login.errors(f"moving replication slot {self._source.slot!r} on"),
            ):
                slots.advance(self._connect(), str(self._source.slot), before)

    def close(self) -> None:
        """Close the connections; the slot stays."""
        self._release(None)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _release(self, up_to: int | None) -> None:
        """Close the connections that hold states of places up to one; None = all."""
        for held in self._held:
            if up_to is None or held.lsn <= up_to:
                held.close()
        self._held = [] if up_to is None else [held for held in self._held if held.lsn > up_to]

    def _position(self, value: dict[str, Any]) -> LogPosition:
        return LogPosition.from_json(value, self._source.reads)

    def _connect(self) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = self._source.login.open()
            planned = as_planned(self._connection, self._source, self._source.planned(self._connection))
            self._tables = {table.name: table for table in planned}
        return self._connection

    # --- the beginning ------------------------------------------------------------------------------------------------

    def _begin(self, connection: Any) -> LogPosition:
        """Make the slot, or take the one that is there, and return the position from which changes are read."""
        name, source = str(self._source.slot), self._source
        slot = slots.find(connection, name)
        published = self._published(connection)  # before the slot is made
        ours = self._workspace.stat(_MARK) is not None
        if slot is None:
            # Written before the slot is made: a slot that is there without it is somebody else's.
            self._workspace.create_exclusive(_MARK, b"{}")
        tables = {each.name: KnownTable(each.oid, published=published[each.oid]) for each in self._tables.values()}
        if source.initial == "none":
            lsn = slots.make(connection, name) if slot is None else slots.usable(connection, name, 1 << 63).confirmed
            return LogPosition(name, lsn_text(lsn), {n: _all_known(known) for n, known in tables.items()})
        if slot is not None:
            if not ours:
                raise DefinitionError(
                    f"replication slot {name!r} is there already, and the state of the tables at its beginning is not known",
                    next=f"SELECT pg_drop_replication_slot('{name}'), or give another slot, or say initial=\"none\"",
                )
            # Of a start that died before anything was decided: the state that belonged to it died with it.
            slots.drop(connection, name)
        held = states.make_slot(source.login, name)
        self._held.append(held)
        return LogPosition(name, lsn_text(held.lsn), self._further(connection, tables), held.state)

    def _published(self, connection: Any) -> dict[int, Any]:
        return slots.published(connection, str(self._source.publication), [t.oid for t in self._tables.values()])

    # --- what is new --------------------------------------------------------------------------------------------------

    def _end(self, connection: Any, at: LogPosition, before: dict[str, KnownTable]) -> LogPosition | None:
        """Return the position up to which there is something to read; None if there is nothing new."""
        source, lsn = self._source, lsn_of(str(at.lsn))
        waits = lsn_of(connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()[0]) - lsn
        is_all_known = is_whole(list(before), {name: table.known for name, table in before.items()})
        if not is_all_known and waits <= size(source.max_wal_per_checkpoint):
            held = self._hold(connection, at, lsn)
            self._held.append(held)
            known = self._looked_at(connection, before)
            return LogPosition(at.slot_name, lsn_text(held.lsn), self._further(connection, known), held.state)
        reach = self._reach(connection, lsn)
        # Looked at behind the end: what was left out before it is noticed now, before anything of it is decided.
        known = self._looked_at(connection, before)
        return None if reach is None else LogPosition(at.slot_name, lsn_text(reach), known)

    def _hold(self, connection: Any, at: LogPosition, lsn: int) -> HeldSnapshot:
        """Return a state of the tables that is that of a place."""
        login, name = self._source.login, str(self._source.slot)
        if at.state is None:  # the beginning of a slot is such a place, whatever is known of the one before
            return states.make_slot(login, f"{name[:50]}_{self._source.clock.now_ms() % 10**9}", temporary=True)

        def begun(end: int) -> list[tuple[int, int]]:
            function = slots.as_function(name, str(self._source.publication), end)
            return [each for each in slots.begun(connection, function, self._source.shown) if each[0] >= lsn]

        return states.hold(login, connection, begun, at.state)

    def _further(self, connection: Any, known: dict[str, KnownTable]) -> dict[str, KnownTable]:
        """Return tables some chunks further on."""
        most: dict[str, int] = {}

        def border_after(name: str, border: str | None) -> str | None:
            table = self._tables[name]
            if name not in most:
                most[name] = self._source.chunk_size or rows_of_a_chunk(
                    connection, table, size(self._source.split_size)
                )
            return _border_after(connection, table, border, most[name])

        frontiers = {name: table.known for name, table in known.items()}
        further = next_frontiers(list(known), frontiers, border_after, self._source.chunks_per_checkpoint)
        return {
            name: KnownTable(
                table.oid,
                further[name],
                files_of(connection, table.oid) if table.known.chunks_to(further[name]) else "",
                table.published,
            )
            for name, table in known.items()
        }

    def _looked_at(self, connection: Any, before: dict[str, KnownTable]) -> dict[str, KnownTable]:
        """Return tables with what publishes them now, and without what belongs to the position before.

        Raises:
            SourceGoneError: the publication may have left out changes of one meanwhile.
        """
        publication, now = str(self._source.publication), self._published(connection)
        for name, table in before.items():
            if table.published is not None:
                slots.refuse_gap(table.published, now[table.oid], publication=publication, what=name)
        return {
            name: KnownTable(table.oid, Frontier(table.known.below, table.known.whole), "", now[table.oid])
            for name, table in before.items()
        }

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
        return any(start <= commit < end for commit, _ in slots.begun(connection, function, self._source.shown))

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check(self, connection: Any, at: LogPosition, lsn: str) -> dict[str, KnownTable]:
        """Return the tables of the source as they are known at a position; those that came to it later are not, unless no rows of before are read.

        Raises:
            DefinitionError: the position is of other tables, or of another slot.
            SourceGoneError: the slot does not have the log from there, or a table is another one.
        """
        source = self._source
        if at.slot_name != source.slot:
            raise DefinitionError(
                f"the job reads replication slot {at.slot_name!r}, and the source now says {source.slot!r}",
                next=f"say slot={at.slot_name!r}, or start the job over with a new checkpoint",
            )
        slots.usable(connection, at.slot_name, lsn_of(lsn))
        by_name = self._by_name(at)
        if gone := [name for name in by_name if name not in self._tables]:
            raise DefinitionError(
                f"the job has read {gone[0] or 'another table'} so far, and the source now reads {', '.join(self._tables)}",
                next="name the same tables and further ones, or start the job over with a new checkpoint_dir",
            )
        known = {}
        for name, table in self._tables.items():
            if name not in by_name:
                known[name] = KnownTable(table.oid, Frontier(whole=source.initial == "none"))
                continue
            known[name] = by_name[name]
            if table.oid != known[name].oid:
                raise SourceGoneError(
                    f"{name} is another table than the one this job reads: it was dropped and created again", next=_OVER
                )
        return known

    def _by_name(self, at: LogPosition) -> dict[str, KnownTable]:
        return {name or self._name_of(table.oid): table for name, table in at.tables.items()}

    def _name_of(self, oid: int) -> str:
        """Return the name of a table that an earlier version knew by its number alone."""
        if len(self._tables) == 1:  # it may be another one of the same name
            return next(iter(self._tables))
        return next((table.name for table in self._tables.values() if table.oid == oid), "")

    # --- work ---------------------------------------------------------------------------------------------------------

    def _log_splits(
        self, tables: Sequence[PublishedTable], start: str, known: dict[str, KnownTable], last: str
    ) -> list[Split]:
        source, end = self._source, lsn_of(last)
        if lsn_of(start) >= end:
            return []
        work = DecodingWork(
            slots.as_function(str(source.slot), str(source.publication), end),
            lsn_of(start),
            end,
            tuple(tables),
            {t.name: Frontier(known[t.name].known.below, known[t.name].known.whole) for t in tables},
            source.before == "full",
            source.form,
            self._database(),
        )
        return [Split(f"{start}-{last}", payload_of(work), name=f"changes up to {last}")]

    def _chunk_split(self, table: PublishedTable, chunk: Chunk, end: LogPosition, number: int) -> Split:
        assert end.state is not None
        work = SnapshotChunkWork(
            table,
            chunk.low,
            chunk.high,
            lsn_of(str(end.lsn)),
            HeldState(end.state.name, end.state.seen),
            end.tables[table.name].files,
            end.slot_name,
            str(self._source.publication),
            self._source.form,
            self._database(),
        )
        return Split(f"{end.lsn}-{number:05d}", payload_of(work), name=f"{table.name} from {chunk.low} to {chunk.high}")

    def _database(self) -> str:
        return str(self._connection.info.dbname)


def _all_known(table: KnownTable) -> KnownTable:
    return KnownTable(table.oid, Frontier(whole=True), "", table.published)


def _border_after(connection: Any, table: PublishedTable, border: str | None, rows: int) -> str | None:
    """Return the border of the chunk of a table that begins at a border, None if it has the last rows."""
    if table.cut_by is None:
        return None
    value = _value_at(connection, table, ">=", border, rows)
    if border is not None and value == border:  # more rows than a chunk has with one value: the next value ends it
        value = _value_at(connection, table, ">", border, 0)
    return value


def _value_at(connection: Any, table: PublishedTable, sign: str, border: str | None, passed: int) -> str | None:
    """Return a value of the column that a table is cut by, as text: of the rows from a border on, the one behind some others."""
    column = identifier(str(table.cut_by))
    where = f" WHERE {column} {sign} {table.border(border)}" if border is not None else ""
    # With the table's name it is the column that they are ordered by, and not its text.
    row = connection.execute(
        f"SELECT {column}::text FROM {table.source}{where} ORDER BY {table.source}.{column} OFFSET {passed} LIMIT 1"
    ).fetchone()
    return None if row is None else str(row[0])
