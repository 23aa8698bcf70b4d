"""What PostgreSQL's refusals mean, for whoever reads and whoever writes: one table, by SQLSTATE.

Nothing of psycopg leaves this package but a PoundlockError, and no message shows a password.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from poundlock.errors import DefinitionError, PoundlockError, SourceGoneError, TerminalError, TransientError, required
from poundlock.redaction import redact_text

Use = Literal["read", "write"]

BY_A_ROW = ("22", "23", "54", "P0")
"""Classes of errors that one row is to blame for: a value that does not fit, a constraint, a limit of the server such as
the size of an index's entry, an exception of a trigger."""
BUSY = frozenset(("55006", "55000"))
"""Another session is ending the very transaction."""
PASSING = ("08", "53", "57", "58")
"""Classes of what passes: connection exceptions, no resources, an operator or a crash, the server's disk."""
READ_ONLY = "25006"
"""The server is not the primary any more."""

# Each text is part of what a server says when it lets nobody in; no code of it reaches the client.
_REFUSED = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "is not permitted to log in",
    "permission denied for database",
    "authentication",
    "server does not support SSL",
    "certificate",
)


def load_psycopg() -> Any:
    """Return psycopg. Raises DefinitionError where it is not installed."""
    required("psycopg.conninfo", "PostgreSQL", "postgres")
    return required("psycopg", "PostgreSQL", "postgres")


@contextlib.contextmanager
def explained(where: str, doing: str, *, use: Use = "write", secrets: Sequence[str] = ()) -> Iterator[None]:
    """Turn errors of psycopg into those of this package.

    Args:
        use: whether rows are read or written, which decides what to type next.

    Raises:
        DefinitionError: the server refuses this user or what is asked of it.
        TransientError: nobody answers, or the server cannot do it now.
        TerminalError: a restart will not help; SourceGoneError where data is gone.
    """
    psycopg = load_psycopg()
    try:
        yield
    except psycopg.Error as error:
        raise explain(error, where, doing, use=use, secrets=secrets) from error


def explain(error: Any, where: str, doing: str, *, use: Use = "write", secrets: Sequence[str] = ()) -> PoundlockError:
    """Return an error of psycopg in this package's words; the arguments are those of `explained`."""
    code, text = error.sqlstate or "", redact_text(server_text(error), list(secrets))
    if not code and isinstance(error, load_psycopg().OperationalError) and "WAL sender" not in text:
        return _no_connection(where, text)
    what = f"PostgreSQL at {where}, {doing}: {text}"
    return _of_replication(code, text, what) or _of_code(code, text, what, use, error)


def _no_connection(where: str, text: str) -> PoundlockError:
    if any(sign in text for sign in _REFUSED):
        return DefinitionError(
            f"PostgreSQL at {where} refuses the connection: {text.rpartition('FATAL: ')[2].strip()}",
            next="check user, password and database: psql with the same dsn has to connect",
        )
    return TransientError(
        f"no PostgreSQL answers at {where}: {text}", next="check the dsn, and that the server runs; a restart goes on"
    )


def _of_replication(code: str, text: str, what: str) -> PoundlockError | None:
    """Return the error of a snapshot, slot or publication; None if it is of something else."""
    if (code == "42704" and "snapshot" in text) or "snapshot identifier" in text:
        return TransientError(
            f"{what}; the connection that held the snapshot is gone", next="start again: another snapshot is taken"
        )
    if code == "53400" and "slot" in text:
        return TransientError(what, next="drop a slot that nobody reads, or raise max_replication_slots of the server")
    if code == "42704" and "slot" in text:
        return SourceGoneError(
            what, next="the changes since the last checkpoint are lost: begin the job again with a new slot"
        )
    if code == "42704" and "publication" in text:
        return TerminalError(
            what, next="changes of that time are missing: begin the job again, with an empty target and another slot"
        )
    if code.startswith("55") and "slot" in text and ("invalidated" in text or "can no longer" in text):
        return SourceGoneError(
            what, next="the server removed changes this job still needed: begin the job again with a new slot"
        )
    if "WAL sender" in text or "to start walsender" in text:  # it comes without a code
        return DefinitionError(what, next="ALTER ROLE … REPLICATION for this user: change data capture needs it")
    return None


def _of_code(code: str, text: str, what: str, use: Use, error: Any) -> PoundlockError:
    reads = use == "read"
    if code == "42501":
        grant = "GRANT SELECT on it to this user; for cdc also: ALTER ROLE … REPLICATION"
        needed = "let the database's owner GRANT it; docs/postgres-sink.md lists what is needed"
        return DefinitionError(what, next=grant if reads else needed)
    if code.startswith("28"):
        return DefinitionError(what, next="check user, password and database: psql with the same dsn has to connect")
    if code == "42P01" and not reads:
        return DefinitionError(what, next="start the job again: it makes its table of markers, or says what to type")
    if code.startswith(("42", "3F", "3D")):
        compare = "compare the table with the rows of the sink: poundlock explain shows them"
        return DefinitionError(what, next="mend table=…, columns=…, query=… or where=…" if reads else compare)
    if code.startswith(("53", "55")) and "prepared transactions" in text:  # too many of them has the code of no memory
        return TransientError(
            what, next="raise max_prepared_transactions of the server, or lower the job's parallelism; it is repeated"
        )
    if code == "55P03":
        return TransientError(
            f"{what}: another transaction holds what this one needs",
            next="where a table has a unique key, two tasks with one key wait for each other: write by key= instead; "
            "else end the other session or what SELECT * FROM pg_prepared_xacts shows of a job that is gone, or make lock_timeout longer",
        )
    if code == READ_ONLY:
        return TransientError(
            what,
            next="end its read-only state, or name several hosts and target_session_attrs=read-write in the dsn; it is repeated",
        )
    by_a_row = code.startswith(BY_A_ROW) or (not code and isinstance(error, load_psycopg().DataError))  # such as a NUL
    if by_a_row:
        mend = "mend the value, or leave it out with query=… or where=…"
        return TerminalError(what, next=mend if reads else "mend the rows before the sink, or the table's constraint")
    if not code or code.startswith((*PASSING, "40", "55")):
        return TransientError(what, next="see that the server runs and what it logs; the checkpoint is repeated")
    return TerminalError(what, next="see the server's log")


def server_text(error: Any) -> str:
    """Return the server's message, on one line."""
    diag = error.diag
    if diag is None or not diag.message_primary:
        return " ".join(str(error).split()) or type(error).__name__
    detail = f" ({diag.message_detail})" if diag.message_detail else ""
    return " ".join(f"{diag.message_primary}{detail}".split())
