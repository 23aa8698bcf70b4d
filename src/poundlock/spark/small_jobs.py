"""Functions run by tasks beside a job's checkpoints: one Spark job, which any thread may run, and whose answers come back to the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from poundlock.spark.launch.session import Session
from poundlock.spark.pickled_functions import shipped
from poundlock.tasks.entry import run_pieces

T = TypeVar("T")
R = TypeVar("R")


class SparkTasks:
    """Runs functions in a session. See `checkpoint.in_tasks.Tasks`."""

    def __init__(self, session: Session, job: str) -> None:
        self._session, self._job = session, job

    def run(self, call: Callable[[list[T]], list[R]], pieces: Sequence[list[T]]) -> list[list[R]]:
        context = self._session.context
        work = context.parallelize(pieces, len(pieces)).setName(f"{self._job}: {len(pieces)} pieces of work")
        done: list[list[R]] = work.mapPartitions(partial(run_pieces, call=shipped(call))).collect()
        return done
