"""What one life of a job is put together from: its sources as a start reads them, its sinks, its coordinator, Spark, the query.

The Spark session outlives a query, and is started again only when its JVM is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from poundlock.checkpoint.capabilities import bound
from poundlock.checkpoint.coordinator import Coordinator
from poundlock.checkpoint.epoch import Epoch
from poundlock.checkpoint.identity import Identity
from poundlock.checkpoint.ledger.ledger import Ledger
from poundlock.checkpoint.outcome import Recovery
from poundlock.checkpoint.participant import Kind
from poundlock.config import Settings
from poundlock.connectors.base import BindableSource
from poundlock.control import cluster_driver as submitted
from poundlock.driver.attempts import Attempts
from poundlock.driver.autoscaler import Autoscaler
from poundlock.driver.checkpoints import JobCheckpoints
from poundlock.driver.job_time import JobTime
from poundlock.driver.loop import JobLoop
from poundlock.driver.parallelism import JobParallelism
from poundlock.driver.planner import Planner
from poundlock.driver.progress import Tracker
from poundlock.driver.requests import CheckpointScheduler, Requests
from poundlock.driver.savepoints.checkpoint_as_savepoint import cut
from poundlock.driver.savepoints.retained_checkpoints import Retained
from poundlock.errors import DefinitionError, TerminalError, TransientError
from poundlock.job import Job
from poundlock.plan.outline import enters_jvm, state_spaces
from poundlock.plan.plan import Plan
from poundlock.plan.segments import spark_streams
from poundlock.plan.stages import stage_chain
from poundlock.savepoint.take import Cut
from poundlock.spark.batch_job import BatchJobs
from poundlock.spark.executors import Watch, check_executors, modules_of, needs_of
from poundlock.spark.launch.master import Master
from poundlock.spark.launch.session import Session
from poundlock.spark.launch.spark_launch import SparkStart, begin_spark
from poundlock.spark.segments import SessionAnalysis
from poundlock.spark.small_jobs import SparkTasks
from poundlock.state.job_state import JobState
from poundlock.state.participant import StateParticipant
from poundlock.storage import Storage, open_storage
from poundlock.values import Clock, SystemClock, duration


@dataclass(kw_only=True)
class Assembly:
    """Puts the lives of one job together."""

    job: Job
    plan: Plan
    settings: Settings
    tracker: Tracker
    requests: Requests
    attempts: Attempts
    # where its tasks run; None = a session is started for the job, and again when its JVM is gone
    session: Session | None = None
    read_only: bool = False  # whether sources are not to learn what was read
    clock: Clock = field(default_factory=SystemClock)
    watch: Watch | None = None
    _tried: bool = False
    _planner: Planner | None = None
    _starting: SparkStart | None = None

    def kill_session(self) -> None:
        """End Spark at once, if it was started for the job."""
        if self.session is not None:
            self.session.kill()

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
            state=self._job_state(storage, identity, epoch),
        )

    def _job_state(self, storage: Storage, identity: Identity, epoch: Epoch) -> JobState | None:
        spaces = state_spaces(self.plan)
        if not spaces:
            return None
        participant = StateParticipant(storage, job=identity.job_id, epoch=epoch.number)
        return JobState(participant, spaces, max_parallelism=self.job.max_parallelism)

    @contextmanager
    def reading(self, recovery: Recovery) -> Iterator[Mapping[str, Any]]:
        """Give the sources as this start reads them, and close the planner afterwards."""
        sources: dict[str, Any] = {}
        try:
            for name, source in self.plan.sources.items():
                span = recovery.sources.get(name)
                if isinstance(source, BindableSource):
                    previous = span.identity if span is not None else None
                    source = source.bind(job=self.job.name, name=name, previous=previous)
                sources[name] = source
                if span is not None:
                    self.say(f"Source {name} {source.describe(span.end)}")
            yield sources
        finally:
            if self._planner is not None:
                self._planner.close()
                self._planner = None

    def loop(
        self,
        storage: Storage,
        identity: Identity,
        coordinator: Coordinator,
        sources: Mapping[str, Any],
        on_checkpoint: Callable[[], None],
    ) -> JobLoop:
        """Return the loop of one life, whose coordinator has recovered; nothing runs yet."""

        def save(directory: str, retained: str | None = None, first: Callable[[], None] = lambda: None) -> Cut:
            def ready() -> None:
                first()
                if self._planner is not None:
                    self._planner.pause()  # what is written beside the checkpoints stands still while it is copied

            at = self.clock
            return cut(self.plan, storage, coordinator, identity, directory, clock=at, retained=retained, ready=ready)

        # Looks at what copies there are, which Spark need not be there for.
        retained = Retained(storage, job_id=identity.job_id, keep=self.job.checkpoints_retained, cut=save, say=self.say)
        session = self._session(storage)
        sources = self._with_streams(session, sources)
        coordinator.tasks = SparkTasks(session, self.job.name)
        coordinator.remove_left()
        parallelism = self._parallelism(coordinator, session)
        self.tracker.parallelism(parallelism.current)
        chain = stage_chain(
            self.plan,
            job_id=identity.job_id,
            sources=sources,
            sinks=self.sinks(identity),
            state_dir=storage.root,
            analysis=SessionAnalysis(session),
        )
        self._planner = Planner(
            sources,
            lambda name: open_storage(f"{storage.root}/sources/{name}"),
            parallelism.current,
            whole=chain.times.graph.per_record_sources,
            alone=any(sink.kind is Kind.SKIPPING for sink in self.plan.sinks.values()),
            read_only=self.read_only,
        )
        interval = timedelta(0) if self.plan.bounded else duration(self.job.checkpoint_interval)
        checkpoints = JobCheckpoints(
            chain=chain,
            jobs=BatchJobs(session, self.job.name, chain),
            planner=self._planner,
            parallelism=parallelism,
            max_parallelism=self.job.max_parallelism,
            time=JobTime(chain.times, self.clock, coordinator.watermarks, chain.operators),
            state=coordinator.state,
            coordinator=coordinator,
            scheduler=CheckpointScheduler(interval, duration(self.job.checkpoint_min_pause), self.requests),
            tracker=self.tracker,
            attempts=self.attempts,
            on_checkpoint=on_checkpoint,
        )
        return JobLoop(
            checkpoints=checkpoints,
            requests=self.requests,
            clock=self.clock,
            save=lambda directory, first: save(directory or f"{self.settings.state_dir}/savepoints", first=first),
            retained=retained,
            watch=self.watch,
        )

    def _parallelism(self, coordinator: Coordinator, session: Session) -> JobParallelism:
        """Return how many tasks a life begins with: where they follow the input, as many as the newest checkpoint had."""
        scaler: Autoscaler | None = self.job.autoscaler
        if scaler is None:
            return JobParallelism(self.job.parallelism or session.context.defaultParallelism)
        interval_s = duration(self.job.checkpoint_interval).total_seconds()
        return JobParallelism(
            coordinator.parallelism or self.job.parallelism or scaler.min_parallelism, scaler, interval_s
        )

    def _with_streams(self, session: Session, sources: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the sources, with what a query stages in place of what Spark reads."""
        if not self.plan.has_streams:
            return sources
        from poundlock.spark.stream_source import stream_source

        session.quieten()
        steps = spark_streams(list(self.plan.job.graph())).steps
        return {
            name: stream_source(name, source, steps[name], session) if name in steps else source
            for name, source in sources.items()
        }

    def _session(self, storage: Storage) -> Session:
        if self.session is not None and (self.session.alive or not self.session.owned):
            if not self.session.alive:
                raise TerminalError(
                    "the Spark session that the job ran in has ended",
                    next="start the job again in another one: it goes on from its checkpoint",
                )
            self._look_at(self.session, storage)
            return self.session
        again = self.session is not None
        starting, self._starting = self._starting, None
        if starting is None:
            self.end_session()
        if self._tried:
            submitted.leave()
        self._tried = True
        try:
            self.session = (starting or self._begin_spark(storage)).session()
        except DefinitionError as error:
            if again:  # it could start before, so it is the cluster that cannot now
                raise TransientError(error.what, next=error.next) from error
            raise
        self._look_at(self.session, storage)
        return self.session

    def start_ahead(self, storage: Storage) -> None:
        """Have Java start beside what comes before the first session is needed, where it starts on this machine for the job alone."""
        if self.session is None and self._starting is None and Master.of(self.settings.master).local:
            self._starting = self._begin_spark(storage)

    def _begin_spark(self, storage: Storage) -> SparkStart:
        return begin_spark(
            self.job,
            self.settings,
            log=f"{self.job.name}.jvm.log",
            quick_start=not enters_jvm(self.plan),
            exchanges=self.plan.exchanges,
            store=storage,
            streams=self.plan.has_streams,
            modules=[*modules_of(self.plan), *self.plan.program_modules],
            say=self.say,
        )

    def _look_at(self, session: Session, storage: Storage) -> None:
        """See that the machines of a cluster, or of a session that others set up, can do the work; look after it from now on."""
        if self.watch is None and not (session.local and session.ours):
            self.watch = Watch(session, self.settings.executor_timeout)
            if not session.local:
                self.tracker.application(session.context.applicationId)
            check_executors(session, needs_of(self.plan, storage.root))

    def end_session(self) -> None:
        """End Spark, if it was started for the job."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
        if self.session is not None:
            self.session.stop()
            self.session = None
        self.watch = None
