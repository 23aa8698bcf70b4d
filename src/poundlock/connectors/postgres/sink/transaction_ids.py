"""Names of a sink's transactions, and the table of markers that tells committed ones from aborted ones.

A marker is written in the very transaction it stands for, so it has that transaction's fate.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

_PREPARED = """
SELECT gid, (extract(epoch FROM prepared) * 1000)::bigint FROM pg_prepared_xacts
WHERE database = current_database() AND left(gid, length(%s)) = %s
"""


def prefix_of(job_id: str, sink: str) -> str:
    """Return how the global ids of a sink's transactions begin; no other sink's begin so. About 90 letters."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", sink)[:30]
    return f"poundlock-{job_id}-{plain}.{hashlib.sha256(sink.encode()).hexdigest()[:8]}-"


def gid(prefix: str, epoch: int, checkpoint: int, subtask: int, attempt: str) -> str:
    """Return the global id of one attempt's transaction, at most 199 bytes, as many as the server takes."""
    return f"{prefix}e{epoch}-{checkpoint}-{subtask}-{attempt}"[:199]


def epoch_of(prefix: str, name: str) -> int:
    """Return which driver's life a transaction is of by its global id; 0 where that does not say, before any life."""
    match = re.match(r"e(\d+)-", name.removeprefix(prefix))
    return int(match[1]) if match else 0


def prepared(connection: Any, prefix: str) -> dict[str, int]:
    """Return the prepared transactions of a sink in this database, id to when they were prepared, ms since the epoch."""
    return {name: int(at) for name, at in connection.execute(_PREPARED, (prefix, prefix)).fetchall()}


class Markers:
    """The table of markers; its name may have a schema."""

    def __init__(self, table: str) -> None:
        self.table = ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))

    @property
    def ddl(self) -> str:
        """What makes the table."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table} (gid text PRIMARY KEY, epoch bigint, checkpoint bigint, "
            "written_at timestamptz NOT NULL DEFAULT now())"
        )

    @property
    def birth(self) -> str:
        """What marks the table, so that another one under its name is not taken for it."""
        return (
            f"INSERT INTO {self.table} (gid) SELECT 'origin:' || gen_random_uuid() WHERE NOT EXISTS "
            f"(SELECT FROM {self.table} WHERE left(gid, 7) = 'origin:')"
        )

    def write(self, connection: Any, name: str, epoch: int, checkpoint: int) -> tuple[str | None, int]:
        """Write a transaction's marker in it; return the table's mark and the server's time, ms since the epoch."""
        connection.execute(
            f"INSERT INTO {self.table} (gid, epoch, checkpoint) VALUES (%s, %s, %s)", (name, epoch, checkpoint)
        )
        return self.state(connection)

    def state(self, connection: Any) -> tuple[str | None, int]:
        """Return the table's mark and the server's time, ms since the epoch."""
        row = connection.execute(
            f"SELECT (SELECT min(gid) FROM {self.table} WHERE gid >= 'origin:' AND gid < 'origin;'),"
            " (extract(epoch FROM now()) * 1000)::bigint"
        ).fetchone()
        return row[0], int(row[1])

    def has(self, connection: Any, name: str) -> bool:
        """Return whether a transaction was committed."""
        return connection.execute(f"SELECT FROM {self.table} WHERE gid = %s", (name,)).fetchone() is not None

    def younger(self, connection: Any, prefix: str, at_ms: int) -> int:
        """Return how many transactions of a sink were begun after a time of the server, and committed."""
        query = f"SELECT count(*) FROM {self.table} WHERE left(gid, length(%s)) = %s AND gid <> %s"
        row = connection.execute(
            f"{query} AND written_at > to_timestamp(%s / 1000.0)", (prefix, prefix, f"{prefix}fence", at_ms)
        ).fetchone()
        return int(row[0])

    def forget(self, connection: Any, prefix: str, older_s: float) -> None:
        """Remove a sink's markers that are so many seconds older than its newest: that one's checkpoint may be asked for."""
        ours = "left(gid, length(%s)) = %s AND gid <> %s"
        parameters = (prefix, prefix, f"{prefix}fence")
        connection.execute(
            f"DELETE FROM {self.table} WHERE {ours} AND written_at <"
            f" (SELECT max(written_at) FROM {self.table} WHERE {ours}) - make_interval(secs => %s)",
            (*parameters, *parameters, older_s),
        )

    def raise_fence(self, connection: Any, prefix: str, epoch: int, checkpoint: int) -> None:
        """Note that a checkpoint is being written; later than the one that was noted before, or nothing changes."""
        connection.execute(
            f"INSERT INTO {self.table} AS m (gid, epoch, checkpoint) VALUES (%s, %s, %s) ON CONFLICT (gid) DO UPDATE"
            " SET epoch = excluded.epoch, checkpoint = excluded.checkpoint, written_at = now()"
            " WHERE (m.epoch, m.checkpoint) < (excluded.epoch, excluded.checkpoint)",
            (f"{prefix}fence", epoch, checkpoint),
        )

    def fence(self, connection: Any, prefix: str) -> tuple[int, int]:
        """Return the epoch and checkpoint that are being written; nobody can write a later one before this transaction ends."""
        row = connection.execute(
            f"SELECT epoch, checkpoint FROM {self.table} WHERE gid = %s FOR SHARE", (f"{prefix}fence",)
        ).fetchone()
        return (0, 0) if row is None else (int(row[0]), int(row[1]))
