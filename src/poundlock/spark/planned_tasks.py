"""What the tasks of a checkpoint are given where an RDD is made once for all checkpoints: by a local property of Spark's.

To make an RDD costs the driver a dozen calls into the JVM, each of them as long as a call to a database.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from poundlock.tasks.entry import Report, drained, run_source_tasks
from poundlock.tasks.report import Directive, TaskWork

if TYPE_CHECKING:
    from poundlock.tasks.stage import Parcel

PROPERTY = "poundlock.checkpoint"
MOST_TASKS = 16  # each of them gets the work of all
_MOST_CHARACTERS = 64 << 10  # Spark sends the property with each task, and keeps it with the job


def as_property(directive: Directive, work: Sequence[TaskWork]) -> str | None:
    """Return a checkpoint's work as text, None where it is too much for a property."""
    if not 0 < len(work) <= MOST_TASKS:
        return None
    text = base64.b64encode(pickle.dumps((directive, list(work)))).decode()
    return text if len(text) <= _MOST_CHARACTERS else None


def run_planned_tasks(task: int, elements: Iterator[object], *, stage: bytes, report: Report) -> Iterator[Parcel]:
    """Run the only stage of a job over the work of one task, to its end; yield nothing.

    Args:
        task: its index among the pieces of work.
        stage, report: as in `run_source_tasks`.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    text = context.getLocalProperty(PROPERTY) if context is not None else None
    assert text is not None, "a task without a checkpoint"
    directive, work = pickle.loads(base64.b64decode(text))
    drained(run_source_tasks(iter([work[task]]), stage=stage, directive=directive, report=report))
    return iter(())
