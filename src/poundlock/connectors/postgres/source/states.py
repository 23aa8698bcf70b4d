"""States of all tables that are exactly those of a place in the log: every transaction whose commit stands before it is seen, and no other.

A transaction is in the log a moment before others see it, and two may be seen in another order than the log has them. So the server names no place for
a state. But both know transactions by their numbers, and a state whose transactions are all those of the log before some place is that place's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from poundlock.connectors.postgres.connection import NO_LIMITS, PostgresLogin, identifier
from poundlock.connectors.postgres.source.cdc_messages import lsn_of
from poundlock.connectors.postgres.source.positions import HeldState
from poundlock.errors import TransientError

_LOOK_S, _PATIENCE_S, _STILL_S = 0.05, 60.0, 1.0
_HALF = 1 << 31
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclass(frozen=True, slots=True)
class Visibility:
    """Which transactions a state has: those below `next` but for `running`. Numbers have 64 bits, and are never given twice."""

    next: int
    running: frozenset[int]

    @classmethod
    def of(cls, text: str) -> Visibility:
        """Return what the server's text such as "10:20:10,14,15" says."""
        _, following, running = text.split(":")
        return cls(int(following), frozenset(int(each) for each in running.split(",") if each))

    def sees(self, transaction: int) -> bool:
        """Return whether it has a transaction."""
        return transaction < self.next and transaction not in self.running

    def sees_logged(self, transaction: int) -> bool:
        """Return whether it has a transaction that the log knows by the lower 32 bits of its number."""
        full = (self.next & ~0xFFFFFFFF) | transaction
        if full >= self.next + _HALF:
            full -= 1 << 32
        elif full < self.next - _HALF:
            full += 1 << 32
        return self.sees(full)

    def is_before(self, other: Visibility) -> bool:
        """Return whether it is without a transaction that another has."""
        return self.next < other.next or any(other.sees(each) for each in self.running)


def place_of(seen: Visibility, begun: Sequence[tuple[int, int]], end: int) -> int | None:
    """Return the place in the log whose state a state is; None if it is that of no place.

    Args:
        begun: where the commits of transactions stand, and their numbers: all of them from a place on whose transactions it has.
        end: a place behind which the log has no transaction that it has.
    """
    known = [(commit, seen.sees_logged(transaction)) for commit, transaction in begun]
    place = min((commit for commit, is_seen in known if not is_seen), default=end)
    place = min(place, end)
    return None if any(commit >= place for commit, is_seen in known if is_seen) else place


@dataclass
class HeldSnapshot:
    """A state of the tables that is that of a place, for as long as the connection stays open."""

    connection: Any
    lsn: int
    state: HeldState

    def close(self) -> None:
        """Close the connection that holds the state."""
        self.connection.close()


def one_state(snapshot: str) -> list[str]:
    """Return the statements that begin a transaction which sees an exported snapshot."""
    return [_BEGIN, f"SET TRANSACTION SNAPSHOT '{snapshot}'"]


def make_slot(login: PostgresLogin, name: str, *, temporary: bool = False) -> HeldSnapshot:
    """Make a slot by the replication protocol, which gives the state that belongs to its beginning.

    It waits for transactions that run. A temporary slot goes with the connection.

    Raises:
        DefinitionError: the user may not.
        TransientError: the server cannot now.
    """
    from psycopg import pq

    connection = login.replication()
    connection.pgconn.exec_(NO_LIMITS.encode())  # it only waits while the state is read
    with_snapshot = "(SNAPSHOT 'export')" if connection.info.server_version >= 150000 else "EXPORT_SNAPSHOT"
    kept = "TEMPORARY " if temporary else ""
    result = connection.pgconn.exec_(
        f"CREATE_REPLICATION_SLOT {identifier(name)} {kept}LOGICAL pgoutput {with_snapshot}".encode()
    )
    if result.status != pq.ExecStatus.TUPLES_OK:
        message = " ".join(result.error_message.decode(errors="replace").split())
        connection.close()
        raise TransientError(f"replication slot {name!r} could not be made: {message}", next="a restart tries again")
    lsn, snapshot = result.get_value(0, 1).decode(), result.get_value(0, 2).decode()
    with login.reading("asking for the state at the beginning of a slot") as looking:
        for statement in one_state(snapshot):
            looking.execute(statement)
        seen = str(looking.execute("SELECT pg_current_snapshot()::text").fetchone()[0])
    return HeldSnapshot(connection, lsn_of(lsn), HeldState(snapshot, seen))


def hold(
    login: PostgresLogin,
    connection: Any,
    begun: Callable[[int], Sequence[tuple[int, int]]],
    after: HeldState,
    sleep: Callable[[float], None] = time.sleep,
) -> HeldSnapshot:
    """Return a state of now that is that of a place in the log.

    Args:
        connection: another one, to look at the log with.
        begun: returns where commits stand, and the numbers of their transactions, from the place of `after` to one or a little behind.
        after: the state of an earlier place.

    Raises:
        TransientError: there was none for a minute.
    """
    waited, held = 0.0, login.open()
    try:
        while waited < _PATIENCE_S:
            held.execute(_BEGIN)
            name, text, lsn = held.execute(
                "SELECT pg_export_snapshot(), pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"
            ).fetchone()
            seen, end = Visibility.of(text), lsn_of(lsn)
            if not seen.is_before(Visibility.of(after.seen)):
                flushed_to(connection, end, sleep)
                if (place := place_of(seen, begun(end), end)) is not None:
                    return HeldSnapshot(held, place, HeldState(str(name), str(text)))
            held.execute("ROLLBACK")
            sleep(_LOOK_S)
            waited += _LOOK_S
        raise TransientError(
            f"PostgreSQL at {login.name} shows its tables at no moment as its log has them",
            next="see what commits wait for, such as a standby; a restart goes on",
        )
    except BaseException:
        held.close()
        raise


def flushed_to(connection: Any, lsn: int, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until the log is on the disk up to a place, from which alone it can be read.

    Raises:
        TransientError: it was not within a minute.
    """
    waited = 0.0
    while lsn_of(connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()[0]) < lsn:
        if waited >= _PATIENCE_S:
            raise TransientError("the log is not written to the server's disk", next="see what the server logs")
        if (
            waited >= _STILL_S
        ):  # nobody commits, and what is not committed may wait: a transaction without rows has it written
            connection.execute("SELECT pg_current_xact_id()")
        sleep(_LOOK_S)
        waited += _LOOK_S


def begin_at(connection: Any, state: HeldState) -> bool:
    """Begin a transaction that sees a state, if somebody holds it still; return whether that is so."""
    from psycopg.errors import InvalidParameterValue, ObjectNotInPrerequisiteState, UndefinedObject

    try:
        for statement in one_state(state.name):
            connection.execute(statement)
        # Names of states are given again after the server was started again.
        if connection.execute("SELECT pg_current_snapshot()::text").fetchone()[0] == state.seen:
            return True
    except (InvalidParameterValue, ObjectNotInPrerequisiteState, UndefinedObject):
        pass
    connection.execute("ROLLBACK")
    return False


def begin_after(connection: Any, state: HeldState, where: str, sleep: Callable[[float], None] = time.sleep) -> int:
    """Begin a transaction that sees the tables as they are now; return a place behind which the log has nothing of what it sees.

    Args:
        state: of an earlier place, that it must not be before.

    Raises:
        TransientError: what that state has is not seen within a minute.
    """
    waited, earlier = 0.0, Visibility.of(state.seen)
    while waited < _PATIENCE_S:
        connection.execute(_BEGIN)
        text, lsn = connection.execute(
            "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"
        ).fetchone()
        if not Visibility.of(text).is_before(earlier):
            return lsn_of(lsn)
        connection.execute("ROLLBACK")
        sleep(_LOOK_S)
        waited += _LOOK_S
    raise TransientError(
        f"PostgreSQL at {where} does not show what its log has had for a while",
        next="see what commits wait for, such as a standby; a restart goes on",
    )
