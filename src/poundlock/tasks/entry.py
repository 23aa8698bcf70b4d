"""The functions handed to Spark: a stage and what a checkpoint wants of it come in, a report and rows for later stages go out.

A stage is unpickled again by each task, so that what a user's function keeps in itself does not outlive it.
"""

from __future__ import annotations

import pickle
import sys
import uuid
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from poundlock.errors import DefinitionError
from poundlock.tasks.report import Directive, TaskReport, TaskWork
from poundlock.tasks.worker import prepare_worker, utf8_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from poundlock.tasks.exchange.blocks import Delivery
    from poundlock.tasks.exchange.exits import SegmentRows
    from poundlock.tasks.keyed_stage import KeyedStage
    from poundlock.tasks.partitioned_stage import PartitionedStage
    from poundlock.tasks.rows_stage import RowsStage, SourceStage
    from poundlock.tasks.stage import Parcel


Report = Callable[[TaskReport], None]
Addressed = tuple[int, "Delivery"]
"""(index of a task, what goes there)"""


def load_shipped(pickled: bytes) -> Any:
    """Return what travelled to this worker pickled. Raises DefinitionError: it names a module that this worker cannot import."""
    try:
        return pickle.loads(pickled)
    except ModuleNotFoundError as error:
        raise DefinitionError(
            f"tasks cannot import {error.name!r}, which the job's functions use and the driver has installed",
            next=f"install it for {sys.executable} where tasks run, or put its folder into PYTHONPATH before the start; "
            "on a cluster, send an environment along with --archives",
        ) from error


def run_source_tasks(
    elements: Iterator[TaskWork], *, stage: bytes, directive: Directive, report: Report
) -> Iterator[Parcel]:
    """Run the source stage over the work of one partition, which is one task's; yield what goes to later stages.

    Args:
        stage: the stage, pickled.
        report: takes the task's report.
    """
    with utf8_errors():
        loaded: SourceStage = load_shipped(stage)
        prepare_worker()
        for work in elements:
            report((yield from loaded.run(work, directive, attempt=new_attempt())))


def run_pieces(pieces: Iterator[list[Any]], *, call: bytes) -> Iterator[list[Any]]:
    """Yield what a function returns for each piece of work. `call`: the function, pickled."""
    with utf8_errors():
        loaded = load_shipped(call)
        prepare_worker()
        yield from map(loaded, pieces)


def run_exchange_tasks(
    task: int, elements: Iterator[Addressed], *, stage: bytes, directive: Directive, report: Report
) -> Iterator[Parcel]:
    """Run a stage behind an exchange over all that earlier stages sent to one task; the rest is as in `run_source_tasks`."""
    with utf8_errors():
        loaded: KeyedStage | PartitionedStage = load_shipped(stage)
        prepare_worker()
        sent = (delivery for _, delivery in elements)
        report((yield from loaded.run(task, sent, directive, attempt=new_attempt())))


def run_rows_tasks(
    task: int, elements: Iterator[SegmentRows], *, stage: bytes, directive: Directive, report: Report
) -> Iterator[Parcel]:
    """Run the stage behind a Spark segment over one partition of its rows; the rest is as in `run_source_tasks`."""
    with utf8_errors():
        loaded: RowsStage = load_shipped(stage)
        prepare_worker()
        report((yield from loaded.run(task, elements, directive, attempt=new_attempt())))


def run_arrow_task(
    batches: Iterator[pa.RecordBatch], *, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Run a function of a partition's rows in a task of Spark SQL."""
    with utf8_errors():
        prepare_worker()
        yield from task(batches)


def segment_blocks(elements: Iterator[Parcel], *, stage: int, input: str) -> Iterator[bytes]:
    """Yield the blocks that go into a segment from one of its inputs."""
    prepare_worker()
    for number, _, rows in elements:
        if number == stage and rows.input == input:
            yield rows.block


def segment_rows(elements: Iterator[bytes], *, output: str) -> Iterator[SegmentRows]:
    """Yield blocks that came out of a segment with the output they are of."""
    from poundlock.tasks.exchange.exits import SegmentRows

    for block in elements:
        yield SegmentRows(output, block)


def addressed(elements: Iterator[Parcel], *, stage: int) -> Iterator[Addressed]:
    """Yield what goes to one stage, by the index of its task."""
    prepare_worker()
    for number, task, delivery in elements:
        if number == stage:
            yield task, delivery


_PICKLED_AT_ONCE = 100  # elements that pyspark's `zip` pickles together
_TOGETHER_BYTES = 64 << 20  # of blocks in an element of what is zipped
_MORE = 16  # elements beyond one of each sender


def one_for_each(elements: Iterator[int], *, senders: int) -> Iterator[int]:
    """Yield as many elements as `apart` makes of what so many tasks send to one."""
    prepare_worker()
    for element in elements:
        yield from repeat(element, (senders + _MORE) * _PICKLED_AT_ONCE)


def apart(elements: Iterator[Addressed], *, senders: int) -> Iterator[list[Addressed] | None]:
    """Yield what was sent in a number of elements that only the number of senders decides.

    They are so far from each other that they are pickled one by one: together they may be larger than 2 GB.
    """
    prepare_worker()
    left, gathered = senders + _MORE, _gathered(elements)
    for some in islice(gathered, left - 1):
        yield some
        yield from repeat(None, _PICKLED_AT_ONCE - 1)
        left -= 1
    yield from repeat(None, (left - 1) * _PICKLED_AT_ONCE)
    yield [each for some in gathered for each in some]
    yield from repeat(None, _PICKLED_AT_ONCE - 1)


def _gathered(elements: Iterator[Addressed]) -> Iterator[list[Addressed]]:
    some: list[Addressed] = []
    size = 0
    for element in elements:
        some.append(element)
        size += sum(len(block.rows) for block in element[1].blocks)
        if size >= _TOGETHER_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def unzipped(elements: Iterator[tuple[int, list[Addressed] | None]]) -> Iterator[Addressed]:
    """Yield what was sent to a task, without its anchor."""
    for _, sent in elements:
        yield from sent or ()


def drained(elements: Iterator[object]) -> Iterator[object]:
    """Run a task to its end; yield nothing."""
    for _ in elements:
        pass
    return iter(())


def by_task(task: int) -> int:
    """Return the partition of a task: its index."""
    return task


def new_attempt() -> str:
    """Return a name for an attempt of a task that no other has."""
    return uuid.uuid4().hex[:12]
