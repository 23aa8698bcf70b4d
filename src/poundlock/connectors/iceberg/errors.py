"""What a catalog's and a file system's refusals mean, for whoever reads and whoever writes.

Nothing of pyiceberg, SQLAlchemy or requests leaves this package but a PoundlockError, and no message shows a secret.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

from poundlock.errors import DefinitionError, PoundlockError, TerminalError, TransientError, next_of, required
from poundlock.redaction import redact_text

_NO_TABLE = ("NoSuchTableError", "NoSuchIcebergTableError", "NoSuchNamespaceError", "NoSuchIdentifierError")
_REFUSED = ("UnauthorizedError", "ForbiddenError", "OAuthError", "AuthorizationExpiredError", "BadRequestError")
_NOT_INSTALLED = ("NotInstalledError", "ModuleNotFoundError", "ImportError")


def load_pyiceberg(module: str = "") -> Any:
    """Return pyiceberg, or a module of it. Raises DefinitionError where it is not installed."""
    required("pyiceberg.io.pyarrow", "Iceberg", "iceberg")
    return required(f"pyiceberg.{module}".rstrip("."), "Iceberg", "iceberg")


@contextlib.contextmanager
def explained(what: str, doing: str, secrets: Collection[str] = ()) -> Iterator[None]:
    """Turn errors of the catalog and of the file system into those of this package.

    Raises:
        DefinitionError: there is no such table, or the catalog does not let this user in.
        TransientError: nobody answers, or it cannot be done now.
    """
    try:
        yield
    except PoundlockError:
        raise
    except Exception as error:
        raise explain(error, what, doing, secrets) from error


@contextlib.contextmanager
def writing(what: str, secrets: Collection[str] = ()) -> Iterator[None]:
    """Turn what a file system refuses while a task writes into TransientError: a disk or a quota that is full, a store that has enough of requests."""
    try:
        yield
    except OSError as error:
        text = redact_text(" ".join(str(error).split())[:300], secrets)
        raise TransientError(
            f"{what}, writing data files: {text}",
            next=next_of(error, "free space, or see that the store answers; the checkpoint is repeated"),
        ) from error


def explain(error: Exception, what: str, doing: str, secrets: Collection[str] = ()) -> PoundlockError:
    """Return an error in this package's words; the arguments are those of `explained`."""
    names = {each.__name__ for each in type(error).__mro__}
    text = redact_text(" ".join(str(error).split())[:300], secrets)
    where = f"{what}, {doing}: {text}"
    if names.intersection(_NO_TABLE):
        return DefinitionError(
            f"there is no Iceberg table {what}: {text}", next="create it, or let the sink do so: create=pa.schema([…])"
        )
    if names.intersection(_REFUSED):
        return DefinitionError(where, next="check the catalog's properties: uri, warehouse, token or credential")
    if names.intersection(_NOT_INSTALLED):
        return DefinitionError(where, next="install the package that it names, beside poundlock[iceberg]")
    if "ValueError" in names and "catalog" in doing:
        return DefinitionError(where, next='write catalog={"type": "rest", "uri": "…"}, or "sql", "glue", "hive"')
    return TransientError(where, next="see that the catalog and the warehouse answer; a restart goes on")


def changed_table(what: str, now: object, then: object) -> TerminalError:
    """Return the error of a table that is not the one that was there."""
    return TerminalError(
        f"{what} is another table than the one the job has written or read: its id was {then} and is {now}",
        next="put the table back, or begin with a new checkpoint folder",
    )
