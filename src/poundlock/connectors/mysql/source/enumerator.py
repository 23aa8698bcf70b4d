"""Driver's half: how far the log may be read, and which chunks of the tables come beside it.

Between two positions lie the changes of the rows that are known at the first, and the chunks that are known at the second alone, as they are at its
place of the log. No checkpoint needs anything of an earlier one but its position, so a start goes on in the middle of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from poundlock.connectors.base import Split
from poundlock.connectors.changes.chunked_snapshot import Chunk, Frontier, is_whole, next_frontiers
from poundlock.connectors.mysql.connection import identifier, rows_of
from poundlock.connectors.mysql.source.catalog import LoggedTable, look_up
from poundlock.connectors.mysql.source.log import ChangedRows, LoggedTransaction, Statement, events
from poundlock.connectors.mysql.source.positions import LogPlace, MySqlPosition
from poundlock.connectors.mysql.source.statements import effects
from poundlock.connectors.mysql.source.work import ChunkWork, LogWork, payload_of
from poundlock.errors import DefinitionError, SourceGoneError
from poundlock.values import size

if TYPE_CHECKING:
    from poundlock.connectors.mysql.source.source import MySqlSource

# Whether so little of the log has changes of the tables is looked up, so that tables at rest make no checkpoints. More is just
# read: the position has to move, or the server would remove a part of its log that the job still needs.
_LOOK_AT_BYTES = 1 << 20
_GONE = "start the job over, with an empty target and a new checkpoint"


class MySqlEnumerator:
    """Asks the server where its log ends, and where tables are to be cut. It keeps nothing in its workspace."""

    def __init__(self, source: MySqlSource) -> None:
        self._source = source
        self._connection: Any = None
        self._tables: list[LoggedTable] = []
        self._looked_ms: int | None = None
        self._empty_to: LogPlace | None = None  # up to here the log was looked at, and has nothing for this job

    def initial(self) -> dict[str, Any]:
        return MySqlPosition(self._source.names).to_json()

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        source, at = self._source, self._position(start)
        now = source.clock.now_ms()
        if self.finished(start) or (self._looked_ms is not None and now - self._looked_ms < source.poll_ms):
            return start
        with source.login.errors("looking for changes"):
            connection = self._connect()
            server = self._server(connection)
            if at.log is None:
                return self._begin(connection, server).to_json()
            self._check(connection, at, at.log, server)
            end = self._end(connection, at, at.log)
        self._looked_ms = now if end is None else None
        return start if end is None else end.to_json()

    def splits(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Split]:
        before, last = self._position(start), self._position(end)
        assert last.log is not None
        with self._source.login.errors("planning"):
            self._connect()
            if before.log is not None:
                self._check(self._connection, before, before.log, self._server(self._connection))
        made = []
        if before.log is not None and before.log.order < last.log.order:
            stops = self._source.on_schema_change == "stop"
            work = LogWork(before.log, last.log, tuple(self._tables), before.tables, stops, 1, before.server)
            made.append(Split(f"{before.log}-{last.log}", payload_of(work), name="log"))
        chunks = [
            (table, chunk)
            for table in self._tables
            for chunk in before.tables.get(table.name, Frontier()).chunks_to(last.tables.get(table.name, Frontier()))
        ]
        return made + [self._chunk_split(table, chunk, last, n) for n, (table, chunk) in enumerate(chunks)]

    @staticmethod
    def _chunk_split(table: LoggedTable, chunk: Chunk, end: MySqlPosition, number: int) -> Split:
        assert end.log is not None
        work = ChunkWork(table, chunk.low, chunk.high, end.log, number + 2, end.server)
        return Split(f"{end.log}-{number:05d}", payload_of(work), name=f"{table.name} from {chunk.low} to {chunk.high}")

    def finished(self, position: dict[str, Any]) -> bool:
        at = self._position(position)
        return self._source.bounded and at.log is not None and is_whole(self._source.names, at.tables)

    def committed(self, position: dict[str, Any]) -> None:
        """Do nothing: the server keeps its log for as long as it is set to."""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _position(self, value: dict[str, Any]) -> MySqlPosition:
        return MySqlPosition.from_json(value, self._source.names)

    def _connect(self) -> Any:
        if self._connection is None or not self._connection.open:
            self._connection = self._source.login.open()
            self._tables = look_up(self._connection, self._source.names, self._source.planned())
        return self._connection

    def _begin(self, connection: Any, server: int) -> MySqlPosition:
        """Return the position at which the reading begins."""
        source, place = self._source, _current(connection)
        if source.reads_before:
            return MySqlPosition(source.names, server, place, self._further({}))
        if source.start == "earliest":
            place = LogPlace(str(rows_of(connection, "SHOW BINARY LOGS")[0][0]), 4)
        elif source.start != "latest":
            file, _, pos = source.start.rpartition(":")
            place = LogPlace(file, int(pos))
        at = MySqlPosition(source.names, server, _with_gtid(connection, place))
        self._check(connection, at, place, server)
        return at

    def _further(self, known: dict[str, Frontier]) -> dict[str, Frontier]:
        return next_frontiers(self._source.names, known, self._border_after, self._source.chunks_per_checkpoint)

    def _border_after(self, name: str, border: str | None) -> str | None:
        """Return the border of the chunk of a table that begins at a border, None if it has the last rows."""
        table = next(each for each in self._tables if each.name == name)
        if table.cut_by is None:
            return None
        most = self._source.chunk_size
        border_then = self._key_at(table, ">=", border, f"{most}, 1")
        if (
            border is not None and border_then == border
        ):  # more rows than a chunk has with one value: the next value ends it
            border_then = self._key_at(table, ">", border, "1")
        return border_then

    def _key_at(self, table: LoggedTable, sign: str, border: str | None, limit: str) -> str | None:
        """Return a value of the column that a table is cut by, as text: of the rows from a border on, the one that LIMIT says."""
        column = identifier(str(table.cut_by))
        where = (
            f" WHERE {column} {sign} '{border}'" if border is not None else ""
        )  # a number or a time, as the server gave it
        query = f"SELECT CAST({column} AS CHAR) FROM {table.source}{where} ORDER BY {column} LIMIT {limit}"
        rows = rows_of(self._connection, query)
        return str(rows[0][0]) if rows else None

    def _end(self, connection: Any, at: MySqlPosition, log: LogPlace) -> MySqlPosition | None:
        """Return the position up to which there is something to read; None if there is nothing new."""
        source, now = self._source, _current(connection)
        waits = _bytes_between(connection, log, now)
        known = {name: Frontier(f.below, f.whole) for name, f in at.tables.items()}
        if waits > size(source.max_log_per_checkpoint):
            cut = self._cut(log, size(source.max_log_per_checkpoint))
            if cut is not None and cut.order < now.order:
                return MySqlPosition(source.names, at.server, _with_gtid(connection, cut), known)
        if source.reads_before and not is_whole(source.names, at.tables):
            return MySqlPosition(source.names, at.server, now, self._further(known))
        if now.order == log.order:
            return None
        if waits < _LOOK_AT_BYTES:
            seen = log if self._empty_to is None or self._empty_to.order < log.order else self._empty_to
            if now.order == seen.order or not self._changes_between(seen, now):
                self._empty_to = now
                return None
        return MySqlPosition(source.names, at.server, now, known)

    def _cut(self, start: LogPlace, most: int) -> LogPlace | None:
        """Return the first place between transactions that is so many bytes behind another; None if there is none."""
        passed, file, pos = 0, start.file, start.pos
        for event in events(self._source.login, self._source.ids.of(0), start, None, ()):
            if isinstance(event, LoggedTransaction):
                passed += event.pos - pos if event.file == file else event.pos
                file, pos = event.file, event.pos
                if passed >= most:
                    return LogPlace(file, pos)
        return None

    def _changes_between(self, start: LogPlace, end: LogPlace) -> bool:
        names = self._source.names
        passed = events(self._source.login, self._source.ids.of(0), start, end, names)
        return any(isinstance(e, ChangedRows) or (isinstance(e, Statement) and effects(e, names)) for e in passed)

    @staticmethod
    def _server(connection: Any) -> int:
        return int(rows_of(connection, "SELECT @@global.server_id")[0][0])

    def _check(self, connection: Any, at: MySqlPosition, place: LogPlace, server: int) -> None:
        """Raise SourceGoneError unless the log still has a place, and is the one that was read before."""
        where = f"the log of MySQL at {self._source.login.shown}"
        if at.server != server:
            raise SourceGoneError(
                f"{where} is that of server {server}, and the job has read that of server {at.server} up to {place}",
                next=f"connect to the server that it was; a place of one server's log is none of another's; or {_GONE}",
            )
        sizes = _sizes(connection)
        if place.file not in sizes:
            raise SourceGoneError(
                f"{where} begins at {min(sizes, key=lambda f: (len(f), f), default='nothing')}, and {place}, which the job needs, was removed",
                next=f"let the server keep its log for longer (binlog_expire_logs_seconds); {_GONE}",
            )
        if place.pos > sizes[place.file]:
            raise SourceGoneError(
                f"{where} has {sizes[place.file]} bytes in {place.file}, and the job has read up to {place}: a part of it was lost",
                next=f"set sync_binlog=1 on the server; {_GONE}",
            )
        if place.gtid and (now := _with_gtid(connection, place).gtid) != place.gtid:
            raise SourceGoneError(
                f"{where} is another one than the job has read: at {place} stands {now or 'nothing'}, and it was {place.gtid}",
                next=f"the log was reset, or the server is another; {_GONE}",
            )


def _current(connection: Any) -> LogPlace:
    """Return where the log ends."""
    status = rows_of(connection, "SHOW MASTER STATUS")
    if not status:
        raise DefinitionError(
            "the server has no log of changes", next="set log-bin in its configuration, and restart it"
        )
    return _with_gtid(connection, LogPlace(str(status[0][0]), int(status[0][1])))


def _with_gtid(connection: Any, place: LogPlace) -> LogPlace:
    answer = rows_of(connection, "SELECT BINLOG_GTID_POS(%s, %s)", [place.file, place.pos])
    return LogPlace(place.file, place.pos, str(answer[0][0] or ""))


def _sizes(connection: Any) -> dict[str, int]:
    return {str(row[0]): int(row[1]) for row in rows_of(connection, "SHOW BINARY LOGS")}


def _bytes_between(connection: Any, start: LogPlace, end: LogPlace) -> int:
    """Return how many bytes of the log are between two places."""
    if start.file == end.file:
        return end.pos - start.pos
    sizes = _sizes(connection)
    first, last = (len(start.file), start.file), (len(end.file), end.file)
    between = sum(count for file, count in sizes.items() if first < (len(file), file) < last)
    return sizes.get(start.file, start.pos) - start.pos + between + end.pos
