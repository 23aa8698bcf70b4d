"""What one life of a job is put together from: its sources as a start reads them, its sinks, its coordinator, Spark, the query.

The Spark session outlives a query, and is started again only when its JVM is gone.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.ledger import Ledger
from poundlock.checkpoint.outcome import Recovery
from poundlock.checkpoint.participant import bound
from poundlock.config import Settings
from poundlock.connectors.base import BindableSource, PartitionedSource, SourceReading, SplitSource
from poundlock.errors import DefinitionError, TransientError
from poundlock.job import Job
from poundlock.plan.plan import Plan
from poundlock.plan.uses import source_of
from poundlock.runtime import session as sessions
from poundlock.runtime import submitted
from poundlock.runtime.attempts import Attempts
from poundlock.runtime.backends import forget_undecided, state_backend_of
from poundlock.runtime.executors import Watch, check_executors, needs_of
from poundlock.runtime.masters import Master
from poundlock.runtime.offsets import SparkLog
from poundlock.runtime.planner import SplitPlanner
from poundlock.runtime.query import Query
from poundlock.runtime.requests import Requests
from poundlock.runtime.retained import Retained
from poundlock.runtime.saving import cut
from poundlock.runtime.spark_query import Partitions
from poundlock.runtime.starting import start_spark, stop_spark
from poundlock.runtime.stores import spark_path
from poundlock.runtime.tracker import Tracker
from poundlock.savepoint.take import Cut
from poundlock.storage import Storage, open_storage
from poundlock.values import Clock, duration

__all__ = ["IGNORE_LEDGER", "Assembly"]

IGNORE_LEDGER = "POUNDLOCK_TEST_IGNORE_LEDGER"


@dataclass
class Assembly:
    """Puts the lives of one job together.

    Args:
        job, plan, settings: what runs, and how.
        tracker: told of every checkpoint, and of what is worth a line.
        clock: the time.
        requests: what others ask of the job.
        attempts: told of every checkpoint that begins.
    """

    job: Job
    plan: Plan
    settings: Settings
    tracker: Tracker
    clock: Clock
    requests: Requests
    attempts: Attempts
    watch: Watch | None = None
    _spark: Any = None
    _tried: bool = False
    _planner: SplitPlanner | None = None

    @property
    def has_session(self) -> bool:
        """Whether Spark was started, whatever became of it since."""
        return self._spark is not None

    def say(self, line: str) -> None:
        """Tell the watcher a line."""
        self.tracker.state(self.tracker.progress.state, line)

    def sinks(self, identity: Identity) -> dict[str, Any]:
        """Return the sinks as this job owns them."""
        return {name: bound(sink, job_id=identity.job_id, sink=name) for name, sink in self.plan.sinks.items()}

    def coordinator(self, storage: Storage, identity: Identity, epoch: Epoch) -> Coordinator:
        """Return what decides the checkpoints of one life; it has not recovered yet."""
        kept = self.settings.ledger_retention
        return Coordinator(
            identity=identity,
            epoch=epoch,
            ledger=Ledger(storage, retention_ms=None if kept is None else int(kept.total_seconds() * 1000)),
            participants=self.sinks(identity),
            clock=self.clock,
            ignore_ledger=os.environ.get(IGNORE_LEDGER) == "1",
        )

    @contextmanager
    def reading(self, recovery: Recovery) -> Iterator[Mapping[str, Any]]:
        """Give the sources as this start reads them, and let go of them afterwards."""
        sources: dict[str, Any] = {}
        try:
            for name, source in self.plan.sources.items():
                found = recovery.sources.get(name)
                if isinstance(source, BindableSource):
                    previous = found.identity if found is not None else None
                    source = source.bind(job=self.job.name, name=name, previous=previous)
                sources[name] = source
                if found is not None:
                    self.tracker.state(self.tracker.progress.state, f"Source {name} {source.describe(found.end)}")
            yield sources
        finally:
            for source in sources.values():
                if isinstance(source, SourceReading):
                    source.close()
            if self._planner is not None:
                self._planner.close()
                self._planner = None

    def query(
        self,
        storage: Storage,
        identity: Identity,
        coordinator: Coordinator,
        recovery: Recovery,
        sources: Mapping[str, Any],
    ) -> Query:
        """Return a query over the whole plan that is not started.

        Args:
            storage: the checkpoint folder.
            identity: whose it is.
            coordinator: has recovered.
            recovery: what it found.
            sources: as `reading` gave them.
        """
        positions = {name: found.end for name, found in recovery.sources.items()}
        reads = {n: s.spark_read(positions.get(n)) for n, s in sources.items() if not isinstance(s, SplitSource)}
        spark = self._session(storage, {jars for read in reads.values() for jars in read.jars})
        from poundlock.plan.lower import Lowering
        from poundlock.plan.lowered import Lowered

        def lower(added: Partitions) -> Lowered:
            known = {n: s.partitions() for n, s in sources.items() if isinstance(s, PartitionedSource)}
            return Lowering(
                plan=self.plan,
                spark=spark,
                job_id=identity.job_id,
                sources=sources,
                reads=reads,
                sinks=self.sinks(identity),
                parallelism=self.job.parallelism or spark.sparkContext.defaultParallelism,
                partitions={n: sorted({*found, *added.get(n, ())}) for n, found in known.items()},
            ).lower()

        lowered = lower({})
        spark_storage = open_storage(f"{storage.root}/spark")
        forget_undecided(spark_storage, recovery.checkpoint, spark)

        def save(directory: str, retained: str | None = None) -> Cut:
            said = {"state_backend": state_backend_of(self.job, self.settings)}
            return cut(
                self.plan, storage, coordinator, identity, directory, spark=said, clock=self.clock, retained=retained
            )

        self._planner = SplitPlanner(
            {name: source for name, source in sources.items() if isinstance(source, SplitSource)},
            lambda: coordinator.sources,
            lambda name: open_storage(f"{storage.root}/sources/{name}"),
        )
        return Query(
            plan=self.plan,
            lowered=lowered,
            lower=lower,
            sources={use: sources[source_of(use)] for use in lowered.uses},
            spark_log=SparkLog(spark_storage),
            checkpoint_path=spark_path(spark_storage),
            coordinator=coordinator,
            tracker=self.tracker,
            planner=self._planner,
            interval=duration(self.job.checkpoint_interval),
            clock=self.clock,
            watch=self.watch,
            save=lambda directory: save(directory or f"{self.settings.state_dir}/savepoints"),
            requests=self.requests,
            min_pause=duration(self.job.checkpoint_min_pause),
            attempts=self.attempts,
            retained=Retained(
                storage, job_id=identity.job_id, keep=self.job.checkpoints_retained, cut=save, say=self.say
            ),
        )

    def _session(self, storage: Storage, jar_sets: Collection[str]) -> Any:
        if self._spark is not None and sessions.in_use(self._spark):
            return self._spark
        again = self._spark is not None
        self.end_session()
        if self._tried:
            submitted.leave()
        self._tried = True
        try:
            self._spark = start_spark(
                self.job,
                self.settings,
                jar_sets,
                log=f"{self.job.name}.jvm.log",
                quick_start=self.plan.only_fused,
                store=storage,
                say=self.say,
            )
        except DefinitionError as error:
            if again:  # it could start before, so it is the cluster that cannot now
                raise TransientError(error.what, next=error.next) from error
            raise
        if not Master.of(self.settings.master).local:
            self.tracker.application(self._spark.sparkContext.applicationId)
            self.watch = Watch(self._spark, self.settings.executor_timeout)
            check_executors(self._spark, needs_of(self.plan, storage.root))
        return self._spark

    def end_session(self) -> None:
        """End Spark, if it runs."""
        if self._spark is not None:
            stop_spark(self._spark)
            self._spark = None
        self.watch = None
