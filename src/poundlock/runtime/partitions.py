"""In how many partitions Spark keeps a job's state: as many as its parallelism, fixed by the first batch.

What is asked for is compared with what is there before anything is touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from poundlock.config import Settings
from poundlock.errors import DefinitionError
from poundlock.job import Job
from poundlock.savepoint.sparklog import newest_offsets
from poundlock.storage import Storage

__all__ = ["PARTITIONS", "Rescaling", "kept_note", "plan_rescaling", "state_partitions", "wanted_partitions"]

PARTITIONS = "spark.sql.shuffle.partitions"
_ROCKSDB = "RocksDB"


@dataclass(frozen=True, slots=True)
class Rescaling:
    """State that is to be in another number of partitions.

    Args:
        before, after: the numbers.
        provider: the class that keeps the state.
    """

    before: int
    after: int
    provider: str


def wanted_partitions(job: Job, settings: Settings) -> int | None:
    """Return in how many partitions state is wanted, None if nobody said.

    As many as the job's parallelism, unless Spark's own setting says otherwise; what is said outside the job wins.

    Raises:
        DefinitionError: what was said is no number above zero.
    """
    said = (settings.spark.get(PARTITIONS), settings.parallelism, job.spark.get(PARTITIONS), job.parallelism)
    found = next((value for value in said if value is not None), None)
    if found is not None and (not str(found).isdigit() or int(found) < 1):
        raise DefinitionError(f"{PARTITIONS}={found} is no number of partitions", next=f"say {PARTITIONS}=8")
    return None if found is None else int(found)


def state_partitions(storage: Storage) -> int | None:
    """Return in how many partitions the state in a checkpoint or savepoint is, None if there is none."""
    if next(iter(storage.list("spark/state")), None) is None:
        return None
    newest = newest_offsets(storage)
    return None if newest is None else newest.partitions


def kept_note(storage: Storage, wanted: int | None) -> str | None:
    """Return what to say to somebody who wants state that is there in another number of partitions; None = nothing."""
    there = None if wanted is None else state_partitions(storage)
    if there is None or there == wanted:
        return None
    return (
        f"State stays in {there} partitions; for {wanted}: poundlock stop --savepoint-path DIR JOB,"
        f" then poundlock run -s PATH -p {wanted}"
    )


def plan_rescaling(savepoint: Storage, wanted: int | None) -> Rescaling | None:
    """Return what has to be done to restore a savepoint with the number of partitions that is wanted; None = nothing.

    Raises:
        DefinitionError: it cannot be done with this kind of state.
    """
    there = None if wanted is None else state_partitions(savepoint)
    newest = newest_offsets(savepoint)
    if wanted is None or there is None or newest is None or there == wanted:
        return None
    if _ROCKSDB not in newest.provider:
        raise DefinitionError(
            f"the savepoint {savepoint.root} has state in {there} partitions in memory; only RocksDB's can be brought to {wanted}",
            next=f"restore it with -p {there}, or begin without the savepoint and with RocksDB as state backend",
        )
    return Rescaling(there, wanted, newest.provider)
