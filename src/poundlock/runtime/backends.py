"""State backends: what Spark keeps keyed state with, by name, and what a checkpoint's state was kept with.

Spark writes its choice into the first line of each planned batch and silently goes by that; so a change is found there, and
refused before anything is touched. So is a checkpoint of the other loop, that of a streaming query or poundlock's own: what is
kept of positions, event time and state differs, and would be missed in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from poundlock.checkpoint.ledger import Ledger
from poundlock.config import Settings
from poundlock.errors import DefinitionError
from poundlock.job import Job
from poundlock.plan.plan import Plan
from poundlock.savepoint.metadata import METADATA, read_metadata
from poundlock.savepoint.sparklog import PROVIDER
from poundlock.storage import Storage, open_storage

__all__ = [
    "DEFAULT",
    "backend_conf",
    "check_backend",
    "forget_undecided",
    "kept_with",
    "refuse_other_backend",
    "refuse_other_host",
    "state_backend_of",
]

DEFAULT = "rocksdb_changelog"  # measured: docs/state-backends.md

CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_STATE = "org.apache.spark.sql.execution.streaming.state"
_MEMORY, _ROCKSDB = f"{_STATE}.HDFSBackedStateStoreProvider", f"{_STATE}.RocksDBStateStoreProvider"
# With format 2 a batch that is run again never meets files of the run that failed; the backend in memory knows format 1 only.
_CONF: Mapping[str, Mapping[str, str]] = {
    "memory": {PROVIDER: _MEMORY, FORMAT: "1"},
    "rocksdb": {PROVIDER: _ROCKSDB, FORMAT: "2", CHANGELOG: "false"},
    "rocksdb_changelog": {PROVIDER: _ROCKSDB, FORMAT: "2", CHANGELOG: "true"},
}
_VERSION = re.compile(r"([0-9]+)\.(?:delta|snapshot)")


def state_backend_of(job: Job, settings: Settings) -> str:
    """Return the name of a job's state backend; a class name where Spark's own setting names another.

    Raises:
        DefinitionError: Spark's own setting says something else than `state_backend`.
    """
    said = {**job.spark, **settings.spark}
    named = settings.state_backend or job.state_backend
    provider = said.get(PROVIDER)
    if named is None:
        if provider is None:
            return DEFAULT
        if provider == _ROCKSDB and said.get(CHANGELOG, "true") != "true":
            return "rocksdb"
        return {_MEMORY: "memory", _ROCKSDB: "rocksdb_changelog"}.get(provider, provider)
    for key, value in _CONF[named].items():
        if said.get(key, value) != value:
            raise DefinitionError(
                f"state_backend={named} means {key}={value}, and the job sets it to {said[key]}",
                next=f"leave {key} out, or leave out state_backend",
            )
    return named


def backend_conf(job: Job, settings: Settings) -> Mapping[str, str]:
    """Return the Spark settings of a job's state backend. Raises DefinitionError as `state_backend_of` does."""
    return _CONF.get(state_backend_of(job, settings), {})


def kept_with(spark: Storage) -> str | None:
    """Return the backend that the state of a Spark checkpoint is kept with: "memory" or "rocksdb", a class name where it is
    another; None if there is no state.

    Args:
        spark: Spark's checkpoint folder.
    """
    if next(iter(spark.list("state")), None) is None:
        return None
    planned = [int(name) for name in spark.names("offsets") if name.isdigit()]
    if not planned:
        return None
    provider = _planned_conf(spark, max(planned)).get(PROVIDER)
    return {_MEMORY: "memory", _ROCKSDB: "rocksdb"}.get(provider, provider) if provider else None


def check_backend(spark: Storage, wanted: str, *, what: str, next: str) -> None:
    """Raise DefinitionError if a Spark checkpoint has state of another backend. With a changelog and without go together.

    Args:
        spark: Spark's checkpoint folder, of a job or in a savepoint.
        wanted: what `state_backend_of` said.
        what, next: what has the state, and what can be done besides staying with its backend.
    """
    found = kept_with(spark)
    if found is not None and found != wanted.removesuffix("_changelog"):
        raise DefinitionError(
            f"{what} has state that {found} keeps, and the job says state_backend={wanted}",
            next=f"stay with state_backend={found}, for nothing can convert it; or {next}",
        )


def refuse_other_backend(savepoint: str, wanted: str) -> None:
    """Raise DefinitionError if a savepoint has state of another backend."""
    check_backend(
        open_storage(f"{savepoint.rstrip('/')}/spark"),
        wanted,
        what=f"the savepoint {savepoint}",
        next="begin without the savepoint",
    )


def forget_undecided(spark: Storage, checkpoint: int, session: Any) -> None:
    """Remove what state in memory has on disk of batches that were run and never decided.

    Such a batch may be planned anew and read something else, and Spark would take a snapshot of the first run for one of the
    second: their names are the same. Call it when no task runs.

    Args:
        spark: Spark's checkpoint folder.
        checkpoint: the newest decided checkpoint, -1 if none.
        session: the Spark session, whose loaded state is let go of.
    """
    if kept_with(spark) != "memory":
        return
    getattr(session._jvm, f"{_STATE}.StateStore$").__getattr__("MODULE$").stop()
    for entry in list(spark.list("state")):
        version = _VERSION.fullmatch(entry.path.rpartition("/")[2])
        if version and int(version[1]) > checkpoint + 1:
            spark.delete(entry.path)


def _planned_conf(spark: Storage, batch: int) -> Mapping[str, str]:
    try:
        lines = spark.read(f"offsets/{batch}").decode().splitlines()
        found: Mapping[str, str] = json.loads(lines[1]).get("conf", {})
    except (FileNotFoundError, ValueError, IndexError, AttributeError):
        return {}  # Spark's log of another format; Spark itself will say what is wrong with it
    return found


def refuse_other_host(folder: Storage, plan: Plan, *, next: str) -> None:
    """Raise DefinitionError if a checkpoint or savepoint was taken in the other loop.

    Args:
        folder: of the checkpoint or savepoint.
        plan: of the job that is to go on from it.
        next: what can be done.
    """
    of_query = any(True for _ in folder.list("spark/offsets"))
    if plan.only_split and of_query:
        raise DefinitionError(
            f"{folder.root} is of a job on Structured Streaming, and this job runs in poundlock's own loop,"
            " which cannot read its state",
            next=f"finish that job as it was, with the version that began it; {next}",
        )
    if not plan.only_split and not of_query and _newest(folder) >= 0:
        raise DefinitionError(
            f"{folder.root} is of a job in poundlock's own loop, and a job with a SparkSource runs on Structured Streaming,"
            " which cannot read its state",
            next=f"read that source in a job of its own; or {next}",
        )


def _newest(folder: Storage) -> int:
    """Return the newest checkpoint; -1 if there is none."""
    if folder.stat(METADATA) is not None:
        return read_metadata(folder).decision.checkpoint
    newest = Ledger(folder).newest()
    return -1 if newest is None else newest.checkpoint
