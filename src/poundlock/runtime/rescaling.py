"""Brings the state of a savepoint that is being restored into another number of partitions, with Spark and offline.

It works on a checkpoint that is nobody's yet, so that what was cut short is begun anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poundlock.config import Settings
from poundlock.errors import DefinitionError, PoundlockError, TransientError
from poundlock.job import Job
from poundlock.runtime.offsets import SparkLog
from poundlock.runtime.partitions import Rescaling, state_partitions
from poundlock.runtime.starting import on_this_machine, start_spark
from poundlock.runtime.stores import spark_path
from poundlock.savepoint.sparklog import PROVIDER
from poundlock.spark.session import Session, jvm_gone
from poundlock.storage import Storage, open_storage

__all__ = ["rescale"]


def rescale(job: Job, settings: Settings, folder: str, wanted: Rescaling, *, say: Callable[[str], None]) -> int:
    """Bring the state below a checkpoint folder into another number of partitions; return Spark's newest batch then.

    Nothing is read from a source: Spark adds one batch to its logs, which has no rows.

    Args:
        job: whose state it is.
        settings: of the machine and the run.
        folder: the checkpoint folder; no job runs on it.
        wanted: what to do.
        say: told that it begins.

    Raises:
        DefinitionError: Spark cannot do it with this state.
        TransientError: Spark's Java process ended.
    """
    say(f"Rescaling state from {wanted.before} to {wanted.after} partitions")
    log = f"{job.name}.rescale.jvm.log"
    # The state is written in the very format it has, whatever the job says of new state.
    settings = on_this_machine(settings).model_copy(update={"spark": {**settings.spark, PROVIDER: wanted.provider}})
    session = start_spark(
        job,
        settings,
        (),
        log=log,
        quick_start=False,
        store=open_storage(folder),
        say=say,
    )
    try:
        spark = session.sql
        _ = spark.streams  # makes the coordinator of state stores, which the repartition asks for and does not make
        path = spark_path(open_storage(f"{folder}/spark"))
        spark._streamingCheckpointManager.repartition(path, wanted.after, enforce_exactly_once_sink=True)
    except Exception as error:
        raise _failed(session, error, wanted, f"{settings.logs}/{log}") from error
    finally:
        session.stop()
    return _checked(open_storage(folder), wanted)


def _checked(checkpoint: Storage, wanted: Rescaling) -> int:
    """Return the newest batch of a checkpoint that was rescaled. Raises PoundlockError if it does not look like one."""
    log = SparkLog(open_storage(f"{checkpoint.root}/spark"))
    planned, finished = log.newest()
    if planned != finished or state_partitions(checkpoint) != wanted.after:
        raise PoundlockError(
            f"Spark left the state in {state_partitions(checkpoint)} partitions, batch {planned} planned, {finished} done",
            next=f"restore with -p {wanted.before}, and report this",
        )
    if log.watermark(planned) < log.watermark_before(planned):  # windows that are closed would open again
        raise PoundlockError(
            f"Spark took the watermark back to {log.watermark(planned)}",
            next=f"restore with -p {wanted.before}, and report this",
        )
    _forget_partitions(checkpoint, wanted.after)
    return planned


def _forget_partitions(checkpoint: Storage, count: int) -> None:
    """Delete what the partitions held that are no more: nobody reads it, and every savepoint to come would carry it."""
    for entry in list(checkpoint.list("spark/state")):
        partition = entry.path.split("/")[3]
        if partition.isdigit() and int(partition) >= count:
            checkpoint.delete(entry.path)


def _failed(session: Session, error: Any, wanted: Rescaling, log: str) -> PoundlockError:
    if not session.jvm_alive:
        return jvm_gone()
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.getMessage())
    if "No space left" in text:
        return TransientError("the disk is full", next="free the disk and type the same again")
    said = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return DefinitionError(
        f"Spark cannot bring the state from {wanted.before} to {wanted.after} partitions: {said[:300]}",
        next=f"restore it with -p {wanted.before}; the log is {log}",
    )
