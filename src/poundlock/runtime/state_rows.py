"""How many entries Spark's state has in a savepoint, counted by Spark's own reader of state. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from poundlock.config import Settings
from poundlock.job import Job
from poundlock.runtime.failures import explain
from poundlock.runtime.starting import on_this_machine, start_spark
from poundlock.savepoint.sparklog import StateOperator

__all__ = ["state_rows", "state_session"]


@contextmanager
def state_session(job: str, settings: Settings, say: Callable[[str], None]) -> Iterator[Any]:
    """Give a Spark session of this machine whose reader of state can be used. Raises PoundlockError where Spark does not start."""
    session = start_spark(
        Job(job),
        on_this_machine(settings),
        (),
        log=f"{job}.state.jvm.log",
        quick_start=False,
        store=None,
        say=say,
    )
    try:
        spark = session.sql
        _ = spark.streams  # makes the coordinator of state stores, which the reader asks for and does not make
        yield spark
    finally:
        session.stop()


def state_rows(
    folder: str, job: str, operators: Sequence[StateOperator], settings: Settings, *, say: Callable[[str], None]
) -> dict[str, int | None]:
    """Return the entries of each of Spark's stateful operators, by Spark's number; None where its reader cannot tell.

    Args:
        folder: the savepoint's.
        job: name of the job, for the log.
        operators: as `savepoint.sparklog.state_operators` found them.
        settings: of the machine.
        say: told of what takes long.

    Raises:
        PoundlockError: Spark does not start.
    """
    rows: dict[str, int | None] = {}
    with state_session(job, settings, say) as spark:
        for operator in operators:
            # Both sides of a join are kept, and read one by one.
            sides = ("left", "right") if "Join" in operator.name else ("none",)
            reader = spark.read.format("statestore").option("operatorId", operator.number)
            try:
                found = [reader.option("joinSide", side).load(f"{folder}/spark").count() for side in sides]
                rows[operator.number] = sum(map(int, found))
            except Exception as error:  # of an operator that the reader does not know, such as one with several states
                say(f"state {operator.number} cannot be counted: {explain(error).what}")
                rows[operator.number] = None
    return rows
