"""Whether a sink has written to its table since a savepoint was taken: markers that are younger than the cut.

Times are the server's; a transaction that was decided before the cut was begun before it.
"""

from __future__ import annotations

from poundlock.checkpoint.participant import JSON
from poundlock.checkpoint.portable import Newer
from poundlock.connectors.postgres.connection import PostgresServer
from poundlock.connectors.postgres.sink.transaction_ids import Markers
from poundlock.errors import PoundlockError


def note(asked: PostgresServer, markers: Markers, prefix: str, table: str) -> JSON:
    """Return the server's time, and what the markers of this sink begin with; see `Portable.note`."""
    try:
        origin, now_ms = asked.ask(markers.state, "noting the time")
    except PoundlockError as error:
        return {"v": 1, "table": table, "unknown": error.what}
    return {"v": 1, "table": table, "origin": origin, "at_ms": now_ms, "prefix": prefix}


def newer(asked: PostgresServer, markers: Markers, table: str, recorded: JSON) -> Newer:
    """Look for younger markers; see `Portable.newer`. Raises TransientError where no server answers."""
    if "at_ms" not in recorded:
        return Newer(
            unknown=str(recorded.get("unknown") or "the savepoint does not say when it was taken by the server's clock")
        )
    if recorded["table"] != table:
        return Newer()  # the job writes elsewhere now, where nothing of the savepoint is
    origin, _ = asked.ask(markers.state, "looking for newer rows")
    if origin != recorded["origin"]:
        return Newer(unknown=f"table {markers.table} is another one than at the savepoint")
    count = asked.ask(lambda c: markers.younger(c, recorded["prefix"], recorded["at_ms"]), "looking for newer rows")
    if not count:
        return Newer()
    what = "1 transaction" if count == 1 else f"{count:,} transactions"
    return Newer(what=f"has {what} in table {table} that this job committed after the savepoint", retractable=False)
