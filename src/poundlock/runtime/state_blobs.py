"""The state of our own operators as people can read it: keys, windows, timers and contents. Read from Spark's files; nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any

from poundlock.config import Settings
from poundlock.errors import PoundlockError, TerminalError
from poundlock.operators.keyed.group import describe
from poundlock.plan.hosting import STATE
from poundlock.runtime.failures import explain
from poundlock.runtime.state_rows import state_session
from poundlock.savepoint.sparklog import StateOperator
from poundlock.savepoint.state_schema import settle_schemas
from poundlock.savepoint.take import is_temporary
from poundlock.storage import open_storage
from poundlock.storage.copying import copy

__all__ = ["is_ours", "state_blobs"]


def is_ours(operator: StateOperator) -> bool:
    """Return whether a stateful operator of Spark's can be the host of one of ours."""
    return operator.name.startswith("transformWithState")


def state_blobs(
    folder: str, job: str, operators: Sequence[StateOperator], settings: Settings, *, say: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield Spark's number of an operator and one of its key groups, as `operators.keyed.group.describe` gives it.

    Args:
        folder: of a savepoint or a checkpoint.
        job: name of the job, for the log.
        operators: of `savepoint.sparklog.state_operators`, those that host ours.
        settings: of the machine.
        say: told of what takes long.

    Raises:
        PoundlockError: Spark does not start, or a blob is of a newer format.
    """
    with state_session(job, settings, say) as spark:
        try:
            with _copied(folder) as copied:
                for operator in operators:
                    reader = spark.read.format("statestore").option("operatorId", operator.number)
                    frame = reader.option("stateVarName", STATE).load(f"{copied}/spark")
                    for row in frame.selectExpr("value.blob").toLocalIterator():
                        yield operator.number, describe(bytes(row[0]))
        except PoundlockError:
            raise
        except Exception as failure:  # while the JVM is there: what Py4J raised asks it for its text
            raise _unread(folder, failure) from None


def _unread(folder: str, failure: Exception) -> PoundlockError:
    return TerminalError(
        f"the state in {folder} cannot be read: {explain(failure).what}",
        next="of a running job, try once more, or take a savepoint and read that; of another, give an older copy or a savepoint",
    )


@contextmanager
def _copied(folder: str) -> Iterator[str]:
    """Give a folder with the same state in which Spark's notes are of that folder; where it can be, it is made of links."""
    source = open_storage(folder)
    with TemporaryDirectory(prefix="poundlock-state-") as made:
        target = open_storage(made)
        for entry in source.list("spark"):
            if not is_temporary(entry.path):
                with suppress(FileNotFoundError):  # a job that runs removes versions nobody needs any more
                    copy(source, entry.path, target, entry.path, linked=entry.path.startswith("spark/state/"))
        settle_schemas(target)
        yield made
