"""The server's log between two places, as events of a few kinds: transactions, changed rows of some tables, and statements.

Rows are decoded by mysql-replication, with the names and types that the log itself has of their columns. So what an event means does not depend on
how the table is now. What that package does not know, such as compressed events, is refused and never passed over.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from poundlock.connectors.mysql.connection import MySqlLogin, load_pymysql
from poundlock.connectors.mysql.source.positions import LogPlace
from poundlock.errors import PoundlockError, SourceGoneError, TerminalError, TransientError

_ANONYMOUS = 0x22
# What mysql-replication says of a value that is None.
_NULL, _EMPTY_SET = "null", "empty set"

Image = dict[str, Any]
"""A row, by the names of its columns."""


class LoggedTransaction(NamedTuple):
    """A transaction begins at a place of the log. `time` is in seconds since 1970."""

    file: str
    pos: int
    gtid: str
    time: int


class ChangedRows(NamedTuple):
    """Rows of a table changed. `columns` are those of the table at that time, in its order."""

    table: str
    op: str  # "insert", "update" or "delete"
    event: Any

    @property
    def columns(self) -> dict[str, Any]:
        """The columns as the log describes them, by name."""
        return {column.name: column for column in self.event.columns}

    def images(self) -> Iterator[tuple[Image | None, Image | None]]:
        """Yield each row before and after its change, by the names of columns."""
        first, second = {"insert": (None, "values"), "delete": ("values", None)}.get(
            self.op, ("before_values", "after_values")
        )
        sets = {column.name: column.set_values for column in self.event.columns if column.set_values}
        for row in self.event.rows:
            yield self._image(row, first, sets), self._image(row, second, sets)

    def _image(self, row: Mapping[str, Any], name: str | None, sets: Mapping[str, Sequence[str]]) -> Image | None:
        if name is None:
            return None
        image: Image = row[name]
        for column, why in row[name.replace("values", "none_sources")].items():
            if why == _EMPTY_SET:
                image[column] = ()
            elif why != _NULL:
                raise TerminalError(
                    f"{self.table}, column {column!r}: the log has no value for it ({why})",
                    next="SET GLOBAL binlog_row_image = FULL and mend dates such as 0000-00-00; then start the job over",
                )
        for column, names in sets.items():
            if image[column] is not None:
                image[column] = [each for each in names if each in image[column]]
        return image


class Statement(NamedTuple):
    """A statement that the log has as text, and the database it was run in."""

    database: str
    text: str


Event = LoggedTransaction | ChangedRows | Statement


@dataclass(frozen=True)
class ServerIds:
    """The numbers that readers of the log call themselves: no two at one time have the same, or the server drops the older.

    Args:
        first, last: a range that is this job's own; None = chance gives one of many millions.
    """

    first: int | None = None
    last: int | None = None

    @property
    def count(self) -> int | None:
        """How many there are, None where that is no limit."""
        return None if self.first is None or self.last is None else self.last - self.first + 1

    def of(self, reader: int) -> int:
        """Return the number of a reader, 0 for the driver."""
        if self.first is None or self.count is None:
            return random.SystemRandom().randrange(1 << 30, (1 << 32) - 1)
        return self.first + reader % self.count


def events(
    login: MySqlLogin, server_id: int, start: LogPlace, end: LogPlace | None, tables: Collection[str]
) -> Iterator[Event]:
    """Yield the events between two places; of rows, only those of some tables ("database.table").

    Args:
        server_id: what this reader calls itself.
        end: where to stop; None = where the log ends now.

    Raises:
        SourceGoneError: the log has no such place any more.
        TransientError: the server went away.
        TerminalError: an event cannot be read.
    """
    load_pymysql()
    with closing(_stream(login, server_id, start, tables)) as stream, login.errors(f"reading its log from {start}"):
        while True:
            event = _next(stream, start)
            if event is None:
                if end is not None and _place(stream).order < end.order:
                    raise SourceGoneError(
                        f"the log of MySQL at {login.shown} ends at {_place(stream)}, before {end}, which the job has read",
                        next="start the job over, with an empty target and a new checkpoint: the server lost a part of its log",
                    )
                return
            at = LogPlace(stream.log_file, event.packet.log_pos - event.packet.event_size)
            if end is not None and at.order >= end.order:
                return
            yield from _meant(event, at, tables)


def _place(stream: Any) -> LogPlace:
    return LogPlace(stream.log_file, stream.log_pos)


def _next(stream: Any, start: LogPlace) -> Any:
    try:
        return stream.fetchone()
    except (PoundlockError, load_pymysql().MySQLError):
        raise
    except (ValueError, KeyError, IndexError, TypeError, NotImplementedError, struct.error, AttributeError) as error:
        raise TerminalError(
            f"an event of the log behind {start} cannot be read: {type(error).__name__}: {error}",
            next="leave out the table or the column that it is of; report this",
        ) from error
    except Exception as error:
        if type(error).__module__.startswith("pymysqlreplication"):
            raise TerminalError(
                f"an event of the log behind {start} cannot be read: {error}", next="report this"
            ) from error
        raise


def _meant(event: Any, at: LogPlace, tables: Collection[str]) -> Iterator[Event]:
    from pymysqlreplication import event as kinds
    from pymysqlreplication import row_event

    if isinstance(event, (kinds.MariadbGtidEvent, kinds.GtidEvent)):
        yield LoggedTransaction(at.file, at.pos, event.gtid, event.timestamp)
    elif isinstance(event, row_event.RowsEvent):
        name = f"{event.schema}.{event.table}"
        if name in tables:
            ops = {row_event.WriteRowsEvent: "insert", row_event.DeleteRowsEvent: "delete"}
            yield ChangedRows(name, ops.get(type(event), "update"), event)
    elif isinstance(event, kinds.QueryEvent):
        yield Statement(event.schema.decode("utf-8", "replace"), event.query)
    elif isinstance(event, kinds.XAPrepareEvent):
        raise TerminalError(
            f"the log has a transaction of XA at {at}, whose rows stand there before it is known whether they are committed",
            next="read its changes from topics of Debezium, or let writers use plain transactions",
        )
    elif isinstance(event, (kinds.ExecuteLoadQueryEvent, kinds.BeginLoadQueryEvent)):
        raise TerminalError(
            f"LOAD DATA was logged as a statement at {at}",
            next="SET GLOBAL binlog_format = ROW for all sessions; start the job over",
        )
    elif isinstance(event, kinds.NotImplementedEvent) and event.event_type != _ANONYMOUS:
        raise TerminalError(
            f"the log has an event of kind {event.event_type} at {at}, which is not known",
            next="SET GLOBAL log_bin_compress = OFF, if that is on, and start the job over; else report this",
        )


def _stream(login: MySqlLogin, server_id: int, start: LogPlace, tables: Collection[str]) -> Any:
    from pymysqlreplication import BinLogStreamReader, row_event
    from pymysqlreplication import event as kinds

    pymysql = load_pymysql()
    left = [2]  # the log's connection, and one that the package asks for the server's kind

    def connect(**settings: Any) -> Any:
        # The package connects again by itself where the server went away, for ever. Here that is for a restart to do.
        if not left[0]:
            raise TransientError(f"MySQL at {login.shown} went away while its log was read", next="a restart goes on")
        left[0] -= 1
        return pymysql.connect(**settings)

    wanted: Sequence[Any] = [
        kinds.MariadbGtidEvent, kinds.GtidEvent, kinds.QueryEvent, kinds.XAPrepareEvent, kinds.ExecuteLoadQueryEvent,
        kinds.BeginLoadQueryEvent, kinds.NotImplementedEvent, row_event.WriteRowsEvent, row_event.UpdateRowsEvent,
        row_event.DeleteRowsEvent, row_event.PartialUpdateRowsEvent,
    ]  # fmt: skip
    return BinLogStreamReader(
        connection_settings=login.settings(),
        server_id=server_id,
        log_file=start.file,
        log_pos=start.pos,
        resume_stream=True,
        blocking=False,
        only_events=wanted,
        filter_non_implemented_events=False,
        only_schemas=sorted({name.partition(".")[0] for name in tables}),
        only_tables=sorted({name.partition(".")[2] for name in tables}),
        pymysql_wrapper=connect,
        enable_logging=False,
    )
